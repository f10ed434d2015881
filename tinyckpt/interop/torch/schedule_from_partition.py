"""Conversion of PyTorch's partitions (a forward and a backward graph) into schedules.

In: the two graphs of a partitioner and the joint graph they were made from. Out: a legal schedule
of the joint graph. Operators that the two graphs omit (duplicates merged by common subexpression
elimination, generator states) are evaluated where they are first needed, since a schedule evaluates
every operator at least once. Random operators first draw in the order of the traced step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import fx

from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.torch.capture import is_random, output_node
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.planner.model.liveness import FlatGraph
from tinyckpt.planner.model.vectorised_lowering import from_order_eliminating_dead

GraphPair = Sequence[fx.GraphModule]


def schedule_of(
    halves: GraphPair, imported: Imported, policy: str, options: Mapping[str, Any], note: str
) -> Schedule:
    """Convert a forward and a backward graph to a schedule; their saved values are its checkpoints.

    Args:
        halves: forward and backward graph, with the joint graph's node names.
        imported: the joint graph.
        policy, options, note: recorded in the schedule as its origin.
    """
    order, saved = order_of(halves, imported), saved_by(halves, imported)
    flat = FlatGraph(imported.graph)
    return from_order_eliminating_dead(flat, order, policy, options, note, sorted(saved))


def order_of(halves: GraphPair, imported: Imported) -> list[int]:
    """Return the evaluation order of two graphs, completed by the operators that they omit."""
    graph, order = imported.graph, OrderBuilder(imported)
    together = evaluated_with(halves, imported)
    for half in halves:
        for name in calls_in(half):
            for operator in together.get(name, ()):
                order.evaluate(operator)
        # Complete the forward pass, then make the cotangents of its results.
        for operator in range(graph.forward_count):
            order.evaluate_once(operator)
        order.evaluate_once(imported.begin)
    for operator in range(len(graph.operators)):
        order.evaluate_once(operator)
    return order.operators


class OrderBuilder:
    """An evaluation order under construction.

    Attributes:
        operators: the evaluations so far.
        before: for each operator, its predecessors: producers of operands, earlier random draws.
        done: whether each operator has been evaluated.
    """

    def __init__(self, imported: Imported) -> None:
        graph = imported.graph
        self.operators: list[int] = []
        self.done = bytearray(len(graph.operators))
        makers = [[graph.data[data].producer for data in op.inputs] for op in graph.operators]
        self.before = [[maker for maker in each if maker is not None] for each in makers]
        # Random operators first draw in the order of the traced step.
        calls = enumerate(imported.calls)
        random = [number for number, node in calls if node is not None and is_random(node)]
        for first, second in pairwise(random):
            self.before[second].append(first)

    def evaluate_once(self, operator: int) -> None:
        """Evaluate an operator unless it has been evaluated."""
        if not self.done[operator]:
            self.evaluate(operator)

    def evaluate(self, operator: int) -> None:
        """Append an evaluation (recomputation if not the first) after missing predecessors."""
        needed, todo = {operator}, list(self.before[operator])
        while todo:
            other = todo.pop()
            if not self.done[other] and other not in needed:
                needed.add(other)
                todo += self.before[other]
        for other in sorted(needed):  # ids are a topological order
            self.operators.append(other)
            self.done[other] = 1


def evaluated_with(halves: GraphPair, imported: Imported) -> Mapping[str, list[int]]:
    """Map each node name to its operator and to the duplicates that it stands for.

    PyTorch merges equal calls (common subexpression elimination); the merged operators are
    evaluated together with the remaining one.
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
    """Return the names of the nodes that a graph evaluates, placeholders excluded."""
    return [node.name for node in half.graph.nodes if node.op == "call_function"]


def saved_by(halves: GraphPair, imported: Imported) -> frozenset[int]:
    """Return the forward values that a forward graph saves for the backward graph.

    For a saved view that belongs to the traced graph's backward pass, as its only reader, the
    forward value that it is a view of.
    """
    graph = imported.graph
    saved_nodes = output_node(halves[0]).args[0][len(imported.joint.forward) :]
    names = {node.name for node in saved_nodes if isinstance(node, fx.Node)}
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
