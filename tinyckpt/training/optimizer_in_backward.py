"""Optimiser in the backward pass: order each update right after its gradient (fused optimiser).

The optimiser's operators are built after the whole backward pass; here they move to the earliest
place where their inputs are complete, so that a gradient is freed as soon as its parameter has been
updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyckpt.core.graph import Graph, Operator
from tinyckpt.ops.update_steps import UpdateOrder

SCOPE = "optimizer"  # of the optimiser's operators; no other operator is in a scope of that name


def is_of_optimizer(operator: Operator) -> bool:
    """Whether an operator belongs to the optimiser, and not to the backward pass proper."""
    return operator.scope.split("/", 1)[0] == SCOPE


def beside(graph: Graph) -> Graph:
    """Attach the optimiser's operators to the backward operator that computes their gradient.

    Pictures group them with it, and the policy ``regions`` moves them with it.
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
    """Topological order of a step's operators with each update as soon as its gradient is ready.

    Ready operators are taken last in, first out, so that new values exist for one parameter at a
    time, even where all gradients are waited for. Operators that depend on the state only, such as
    the learning rate, are placed on demand. An update comes after every reader of the old value.

    Args:
        graph: of a step; the optimiser's operators are at its end.
        held: whether the optimiser starts after all gradients.
    """
    late = [is_of_optimizer(operator) for operator in graph.operators]
    missing, followers = dependences_of(graph, late)
    adjoints = [operator.id for operator in graph.operators if not late[operator.id]]
    sequence: list[int] = list(adjoints) if held else []
    is_placed = [not own for own in late]
    ready: list[int] = []

    def place(index: int) -> None:
        """Place an operator of the optimiser, after its unplaced producers."""
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
        """Remove an operator from the missing inputs of its followers, which may become ready."""
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
            place(index)  # depends on the state only and was not demanded, such as the step count
    return sequence


def dependences_of(graph: Graph, late: Sequence[bool]) -> tuple[list[set[int]], list[list[int]]]:
    """Return the dependences of the optimiser's operators, and their inverse.

    Operators that depend on the state only have no dependences, and are none.
    """
    missing: list[set[int]] = [set() for _ in graph.operators]
    waiting = [not own for own in late]
    for operator in graph.operators:
        producers = [graph.data[data].producer for data in operator.inputs]
        missing[operator.id] = {p for p in producers if p is not None and waiting[p]}
        waiting[operator.id] = waiting[operator.id] or bool(missing[operator.id])
    for reader, updates in UpdateOrder(graph).updates_after.items():
        for update in updates if waiting[reader] else ():
            missing[update].add(reader)
    followers: list[list[int]] = [[] for _ in graph.operators]
    for index, needs in enumerate(missing):
        for need in needs if late[index] else ():
            followers[need].append(index)
    return missing, followers
