"""Memory breakdown of a training step by category: over time and at the peak (the ledger).

Parameters, gradients, optimiser state, activations, cotangents, updates, results and workspace.
``replay`` counts the values of a schedule in three categories. Here the same machine counts more of
them, and the sources are added, which are memory of the process but not of the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyckpt.base.display import html_escaped
from tinyckpt.base.errors import expect
from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import size_text
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import ReplayState
from tinyckpt.core.schedule import Schedule
from tinyckpt.ops.update_steps import updated_sources
from tinyckpt.training.optimizer_in_backward import is_of_optimizer

# Categories of sources, which are always resident; and of the values of a schedule.
SOURCES = ("parameters", "accumulated gradients", "optimizer state", "other sources")
HEADER = ("at the peak", "bytes", "share")
HELD = ("gradients", "activations", "cotangents", "updates", "results", "workspace")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Bytes by category.

    Attributes:
        schedule: whose memory is broken down.
        sources: bytes that are always resident, by category: parameters; accumulated gradients of
            micro-batches; the rest of the state, nearly all of it the optimiser's; the batch,
            constants and everything else that the caller supplies.
        held: bytes at each step of the schedule, by category: gradients of parameters; forward
            values (activations); cotangents; new values of the state before they are written;
            results; workspace.
        peak_step: the first step at which the total is largest.

    >>> import tinyckpt as tc
    >>> network = tc.networks.mlp(2, 8, batch=4)
    >>> found = tc.ledger(tc.plan(network.graph()))
    >>> found.peak_bytes, found.sources["parameters"]
    (4312, 1872)
    """

    schedule: Schedule
    sources: dict[str, int]
    held: dict[str, tuple[int, ...]] = field(repr=False)
    peak_step: int

    @property
    def at_peak(self) -> dict[str, int]:
        """Bytes by category, at the peak."""
        return {
            **self.sources,
            # Sources alone, if the schedule has no steps: a function that returns its argument.
            **{what: column[self.peak_step] for what, column in self.held.items() if column},
        }

    @property
    def peak_bytes(self) -> int:
        """Total bytes at the peak, sources included."""
        return sum(self.at_peak.values())

    @property
    def title(self) -> str:
        """The policy, the graph and the step of the peak."""
        return f"{self.schedule.policy} on {self.schedule.graph.name}, step {self.peak_step}:"

    def rows(self) -> list[list[str]]:
        """Return category, bytes and share at the peak, and their total."""
        total = self.peak_bytes
        rows = [
            [what, size_text(nbytes), f"{100 * nbytes / total:.1f} %" if total else ""]
            for what, nbytes in self.at_peak.items()
            if nbytes
        ]
        return [*rows, ["total", size_text(total), ""]]

    def __str__(self) -> str:
        return f"{self.title}\n{table(HEADER, self.rows())}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the table for a notebook."""
        shown = f"<p>{html_escaped(self.title)}</p>{html_table(HEADER, self.rows())}"
        return {"text/plain": str(self), "text/html": shown}


def ledger(schedule: Schedule) -> Ledger:
    """Break down the memory of a schedule by category, by replay.

    Raises:
        ScheduleError: if the schedule is not legal.

    >>> import tinyckpt as tc
    >>> def loss(params, x):
    ...     return tc.half_squared_norm(x @ params["w"])
    >>> step = tc.train_step(loss, tc.adam(1e-3))
    >>> state = step.init({"w": tc.Spec((64, 64), "float32")})
    >>> ledger(step.schedule(state, tc.Spec((1, 64), "float32"))).sources["optimizer state"]
    32776
    """
    expect(schedule, Schedule)
    graph = schedule.graph
    machine = ReplayState(schedule)
    machine.kind = kinds_of(graph)
    machine.live = [0] * (len(HELD) - 1)
    columns: list[list[int]] = [[] for _ in HELD]
    for position, step in enumerate(schedule.steps):
        workspace = machine.take(position, step)
        for column, nbytes in zip(columns, (*machine.live, workspace), strict=True):
            column.append(nbytes)
    machine.check_outputs()
    totals = [sum(row) for row in zip(*columns, strict=True)]
    peak = max(range(len(totals)), key=totals.__getitem__, default=0)
    held = {what: tuple(column) for what, column in zip(HELD, columns, strict=True)}
    return Ledger(schedule, sources_of(graph), held, peak)


def kinds_of(graph: Graph) -> list[int]:
    """Return the category of every value, as an index into HELD."""
    gradients = set(leaves(graph.gradients))
    results = set(graph.outputs) - gradients
    for operator in graph.operators:
        if is_of_optimizer(operator):
            gradients.update(data for data in operator.inputs if is_gradient(graph, data))
    # A gradient may be a view, such as a transpose; then its base is the gradient's memory.
    for data in list(gradients):
        while (base := graph.data[data].view_of) is not None:
            data = base
        gradients.add(data)
    kinds = []
    for node in graph.data:
        producer = None if node.producer is None else graph.operators[node.producer]
        if node.id in gradients:
            what = "gradients"
        elif node.id in results:
            what = "results"
        elif producer is not None and is_of_optimizer(producer):
            what = "updates"
        else:
            what = "cotangents" if node.role == "cotangent" else "activations"
        kinds.append(HELD.index(what))
    return kinds


def is_gradient(graph: Graph, data: int) -> bool:
    """Whether a value is computed in the backward pass proper, not by the optimiser."""
    producer = graph.data[data].producer
    if producer is None:
        return False
    operator = graph.operators[producer]
    return operator.phase == "backward" and not is_of_optimizer(operator)


def sources_of(graph: Graph) -> dict[str, int]:
    """Return the bytes of the sources by category."""
    accumulated, state = state_of(graph)
    found = dict.fromkeys(SOURCES, 0)
    for node in graph.data:
        if node.is_source:
            what = "other sources"
            if node.role == "parameter":
                what = "parameters"
            elif node.id in accumulated:
                what = "accumulated gradients"
            elif node.id in state:
                what = "optimizer state"
            found[what] += node.nbytes
    return found


def state_of(graph: Graph) -> tuple[set[int], set[int]]:
    """Return the sources that are accumulated gradients, and all that are a step's state.

    A step's graph takes all of the state, though that of one micro-batch updates only some of it.
    For another graph, the updated sources are taken for the state.
    """
    if len(graph.arguments) > 1 and isinstance(graph.arguments[1], dict):
        state = graph.arguments[1]
        if {"optimizer", "step"} <= set(state):
            return set(leaves(state.get("accumulated"))), set(leaves(state))
    return set(), set(updated_sources(graph))
