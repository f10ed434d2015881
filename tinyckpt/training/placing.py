"""Where the optimiser's operators stand among those of the backward half.

They are built behind all of it; here they are moved to where what they read is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyckpt.core.graph import Graph, Operator
from tinyckpt.planner.model.update_order import Updates

SCOPE = "optimizer"  # of the optimiser's operators; no other operator is in a scope of that name


def is_of_optimizer(operator: Operator) -> bool:
    """Whether an operator is part of what is done with gradients, and of no adjoint."""
    return operator.scope.split("/", 1)[0] == SCOPE


def beside(graph: Graph) -> Graph:
    """Return the graph with the optimiser's operators beside the adjoint that made the gradient.

    In pictures they are part of it, and the policy ``regions`` takes them along.
    """
    operators = list(graph.operators)
    for operator in graph.operators:
        if not is_of_optimizer(operator):
            continue
        producers = [graph.data[data].producer for data in operator.inputs]
        mirrors = [operators[p].adjoint_of for p in producers if p is not None]
        known = [mirror for mirror in mirrors if mirror is not None]
        if known:
            operators[operator.id] = replace(operator, adjoint_of=sorted(known)[-1])
    return replace(graph, operators=tuple(operators))


def placed(graph: Graph, held: bool) -> list[int]:
    """Return the operators with those of the optimiser as soon as the gradient that they read is.

    What became ready last comes first, so that new values are on their way for one parameter at a
    time, even where all gradients are waited for. What depends on the state alone, such as the
    learning rate, is computed when it is wanted. An update comes after every operator that reads
    the old value.

    Args:
        graph: of a step; the optimiser's operators stand at its end.
        held: whether the optimiser waits for all gradients before it begins.
    """
    late = [is_of_optimizer(operator) for operator in graph.operators]
    missing, followers = waits(graph, late)
    adjoints = [operator.id for operator in graph.operators if not late[operator.id]]
    sequence: list[int] = list(adjoints) if held else []
    is_placed = [not own for own in late]
    ready: list[int] = []

    def place(index: int) -> None:
        """Place an operator of the optimiser, and before it what it wants of the state."""
        todo = [index]
        while todo:
            producers = [graph.data[data].producer for data in graph.operators[todo[-1]].inputs]
            wanted = [p for p in producers if p is not None and not is_placed[p]]
            if wanted:
                todo += wanted
            else:
                now = todo.pop()
                if not is_placed[now]:
                    is_placed[now] = True
                    sequence.append(now)
                    release(now)

    def release(index: int) -> None:
        """Note that an operator is done."""
        for follower in sorted(followers[index], reverse=True):
            missing[follower].discard(index)
            if not missing[follower] and not is_placed[follower]:
                ready.append(follower)

    for index in adjoints:
        if not held:
            sequence.append(index)
        release(index)
        while ready and index >= graph.forward_count:
            place(ready.pop())
    for index, own in enumerate(late):
        if own:
            place(index)  # what depends on the state alone and nobody wanted, such as the count
    return sequence


def waits(graph: Graph, late: Sequence[bool]) -> tuple[list[set[int]], list[list[int]]]:
    """Return what each operator of the optimiser has to wait for, and who waits for whom.

    What can be computed from the state alone has to wait for nobody, and nobody for it.
    """
    missing: list[set[int]] = [set() for _ in graph.operators]
    waiting = [not own for own in late]
    for operator in graph.operators:
        producers = [graph.data[data].producer for data in operator.inputs]
        missing[operator.id] = {p for p in producers if p is not None and waiting[p]}
        waiting[operator.id] = waiting[operator.id] or bool(missing[operator.id])
    for reader, updates in Updates(graph).behind.items():
        for update in updates if waiting[reader] else ():
            missing[update].add(reader)
    followers: list[list[int]] = [[] for _ in graph.operators]
    for index, needs in enumerate(missing):
        for need in needs if late[index] else ():
            followers[need].append(index)
    return missing, followers
