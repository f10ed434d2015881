"""Abstract graphs from rows of text: each an operator's name, inputs, size and cost.

A training graph gets an adjoint for each row. Like that of tanh or relu it reads the row's output
and its cotangent; it adds to the cotangents of the row's inputs, which it reads if there are any
yet. Graphs of rows are planned and replayed, and not executed.
"""

from __future__ import annotations

from collections.abc import Sequence

import tinyckpt as tc
from tinyckpt.core.graph import Phase, Role

KIB = 1024


class Rows:
    """A graph while it grows: its values, their ids by name, and its operators."""

    def __init__(self, sources: Sequence[str], size: int) -> None:
        spec = tc.Spec((size,), "uint8")
        self.data = [tc.DataNode(i, x, spec, "input", size) for i, x in enumerate(sources)]
        self.ids = {name: index for index, name in enumerate(sources)}
        self.operators: list[tc.Operator] = []

    def add(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, int]],
        cost: int,
        adjoint_of: int | None = None,
    ) -> None:
        """Add an operator, and its outputs of so many bytes."""
        index, forward = len(self.operators), adjoint_of is None
        made = tuple(range(len(self.data), len(self.data) + len(outputs)))
        for number, (data, size) in zip(made, outputs, strict=True):
            self.ids[data] = number
            role: Role = "activation" if forward else "cotangent"
            self.data.append(
                tc.DataNode(number, data, tc.Spec((size,), "uint8"), role, size, index)
            )
        read = tuple(self.ids[data] for data in inputs)
        kind = "layer" if forward else "layer_vjp"
        phase: Phase = "forward" if forward else "backward"
        self.operators.append(
            tc.Operator(index, name, kind, read, made, phase, adjoint_of, cost=cost)
        )

    def graph(self, name: str, results: Sequence[str], gradients: Sequence[str] = ()) -> tc.Graph:
        """Return the graph, with values as its results, and others as its gradients."""
        first, last = ([self.ids[data] for data in each] for each in (results, gradients))
        return tc.Graph(name, tuple(self.data), tuple(self.operators), (0,), first, last)


def graph_of_rows(name: str, rows: str, source: int | None = None) -> tc.Graph:
    """Build a graph of rows ``name inputs size cost``, separated by semicolons.

    Args:
        name: of the graph.
        rows: inputs separated by commas, ``x`` being the source; sizes in KiB; costs are 1 unless
            given. An operator and its output have the same name.
        source: size of x, and of its gradient, which is a result of a training graph; without it
            the graph is a forward pass. Its results are the values that no row reads.

    >>> graph = graph_of_rows("two layers", "f1 x 2; f2 f1 2 3; loss f2 0", source=2)
    >>> [operator.name for operator in graph.operators]
    ['f1', 'f2', 'loss', 'b_loss', 'b_f2', 'b_f1']
    >>> tc.replay(tc.plan(graph)).peak_bytes
    8192
    """
    made = Rows(["x"], KIB * (source or 0))
    table = [
        (own, inputs.split(","), KIB * int(size), int(*cost or "1"))
        for own, inputs, size, *cost in map(str.split, rows.split(";"))
    ]
    for own, inputs, size, cost in table:
        made.add(own, inputs, [(own, size)], cost)
    read = {data for _, inputs, *_ in table for data in inputs}
    results = [own for own, *_ in table if own not in read]
    if source is None:
        return made.graph(name, results)
    cotangent: dict[str, str] = {}  # of each value, as far as it is summed up
    for index, (own, inputs, _, cost) in reversed(list(enumerate(table))):
        known = [cotangent[data] for data in (own, *inputs) if data in cotangent]
        residuals = [own] if own in read else inputs
        for data in inputs:
            cotangent[data] = f"{cotangent[data]}+" if data in cotangent else f"g_{data}"
        outputs = [(cotangent[data], made.data[made.ids[data]].nbytes) for data in inputs]
        made.add(f"b_{own}", [*residuals, *known], outputs, cost, index)
    return made.graph(name, results, [cotangent["x"]])
