"""From the two graphs of a step that PyTorch made to a schedule of the joint graph they are from.

A partitioner of PyTorch's says by two graphs what is evaluated in either half. They are read as one
order of evaluations. What they leave out (a value that is equal to another one, the state of a
generator) is evaluated where it is first needed, since a schedule has every operator once at least.
So whatever PyTorch made, a legal schedule comes out, which draws the random numbers of the traced
step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import fx

from tinyckpt.core.lowering import from_order_without_dead
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.torch.capture import is_random, output_node
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.planner.model.liveness import Flat

Halves = Sequence[fx.GraphModule]


def schedule_of(
    halves: Halves, imported: Imported, policy: str, options: Mapping[str, Any], note: str
) -> Schedule:
    """Return what two halves evaluate as a schedule; what they save are its checkpoints.

    Args:
        halves: forward and backward graph, whose nodes have the names of the joint graph's.
        imported: that graph.
        policy, options, note: what the schedule says of its origin.
    """
    order, saved = order_of(halves, imported), saved_by(halves, imported)
    flat = Flat(imported.graph)
    return from_order_without_dead(flat, order, policy, options, note, sorted(saved))


def order_of(halves: Halves, imported: Imported) -> list[int]:
    """Return the order in which two halves evaluate operators, with those that they leave out."""
    graph, order = imported.graph, Order(imported)
    together = evaluated_with(halves, imported)
    for half in halves:
        for name in calls_in(half):
            for operator in together.get(name, ()):
                order.evaluate(operator)
        # All that belongs to the forward half, and then what its results turn into cotangents.
        for operator in range(graph.forward_count):
            order.ensure(operator)
        order.ensure(imported.begin)
    for operator in range(len(graph.operators)):
        order.ensure(operator)
    return order.operators


class Order:
    """An order in the making.

    Attributes:
        imported: whose operators they are.
        operators: the evaluations so far.
        before: for each operator those that must have been evaluated.
        done: which operators were.
    """

    def __init__(self, imported: Imported) -> None:
        graph = imported.graph
        self.operators: list[int] = []
        self.done = bytearray(len(graph.operators))
        makers = [[graph.data[data].producer for data in op.inputs] for op in graph.operators]
        self.before = [[maker for maker in each if maker is not None] for each in makers]
        # What draws random numbers does so in the order of the traced step.
        calls = enumerate(imported.calls)
        random = [number for number, node in calls if node is not None and is_random(node)]
        for first, second in pairwise(random):
            self.before[second].append(first)

    def ensure(self, operator: int) -> None:
        """Evaluate an operator unless it was."""
        if not self.done[operator]:
            self.evaluate(operator)

    def evaluate(self, operator: int) -> None:
        """Evaluate an operator, once more if it was, after what it needs and was not."""
        needed, todo = {operator}, list(self.before[operator])
        while todo:
            other = todo.pop()
            if not self.done[other] and other not in needed:
                needed.add(other)
                todo += self.before[other]
        for other in sorted(needed):  # ids rise from what is read to who reads it
            self.operators.append(other)
            self.done[other] = 1


def evaluated_with(halves: Halves, imported: Imported) -> Mapping[str, list[int]]:
    """Return for each node of two halves, by name, its operator and those that it stands for.

    PyTorch evaluates equal calls once. Ours are evaluated together with the one that it evaluates.
    """
    evaluated = {name for half in halves for name in calls_in(half)}
    operators = {node: index for index, node in enumerate(imported.calls) if node is not None}
    stands_for: dict[fx.Node, fx.Node] = {}
    first: dict[str, fx.Node] = {}
    found: dict[str, list[int]] = {}
    for node in imported.joint.module.graph.nodes:
        if node.op != "call_function":
            continue
        given = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: stands_for.get(n, n))
        call = repr((node.target, given))
        if node.name in evaluated:
            first.setdefault(call, node)
        elif call in first:
            stands_for[node] = first[call]
        if node in operators:
            found.setdefault(stands_for.get(node, node).name, []).append(operators[node])
    return found


def calls_in(half: fx.GraphModule) -> list[str]:
    """Return the names of what a half evaluates; what it is given has names of the same kind."""
    return [node.name for node in half.graph.nodes if node.op == "call_function"]


def saved_by(halves: Halves, imported: Imported) -> frozenset[int]:
    """Return the forward values that a forward graph hands to the backward one.

    Of values that stand in the backward half of the traced graph, since only that reads them, those
    that they are views of.
    """
    graph = imported.graph
    handed = output_node(halves[0]).args[0][len(imported.joint.forward) :]
    names = {node.name for node in handed if isinstance(node, fx.Node)}
    saved = set()
    for node, values in imported.values.items():
        for data in values if node.name in names else ():
            shown: int | None = data
            while shown is not None:
                producer = graph.data[shown].producer
                if producer is not None and producer < graph.forward_count:
                    saved.add(shown)
                    break
                shown = graph.data[shown].view_of
    return frozenset(saved)
