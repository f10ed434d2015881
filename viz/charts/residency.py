"""Data of a space-time diagram: live intervals (residency) of values, and evaluations, by row.

A trace comes in; rows, marks and bars go out. Time is counted in evaluations: the k-th lasts from k
to k + 1, and a value freed between two of them is freed at the boundary. A row is a forward
operator with its backward operators; in large graphs it is a scope, or a run of operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, recomputations
from tinyckpt.planner.model.value_fates import loss_label

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph, Operator
    from tinyckpt.core.trace import Trace

NO_SCOPE = "(no scope)"
OTHERS = "loss"  # the row of backward operators that belong to no forward one


class EvaluationKind(IntEnum):
    """Kind of an evaluation; where several share a place, the larger one is shown."""

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTATION = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """One evaluation.

    Attributes:
        row: position in ``ResidencyRows.rows``.
        at: number of evaluations before.
        kind: forward, backward or recomputation.
    """

    row: int
    at: int
    kind: EvaluationKind


@dataclass(frozen=True, slots=True)
class Bar:
    """Live interval of one forward value, from its evaluation until it is freed or offloaded.

    Attributes:
        row: position in ``ResidencyRows.rows``.
        begin, end: in evaluations.
        recomputed: whether it comes from a recomputation.
        on_host: whether it is in host memory, and not on the device.
        data: id of the value.
    """

    row: int
    begin: int
    end: int
    recomputed: bool
    on_host: bool
    data: int


@dataclass(frozen=True, slots=True)
class ResidencyRows:
    """A trace as rows, marks and bars.

    Attributes:
        rows: the name of each row.
        marks: all evaluations, in order.
        bars: all live intervals of forward values, by their end.
        evaluations: the length of the time axis.
    """

    rows: tuple[str, ...]
    marks: tuple[Mark, ...]
    bars: tuple[Bar, ...]
    evaluations: int


def ledger_of(trace: Trace, most_rows: int) -> ResidencyRows:
    """Return the rows of a trace, at most ``most_rows``, the row of the loss not counted."""
    graph = trace.graph
    names, row_of = rows_of(graph, most_rows)
    marks: list[Mark] = []
    times = [0] * len(graph.operators)
    for step in trace.steps:
        if isinstance(step, EVALUATIONS):
            operator = graph.operators[step.operator]
            times[step.operator] += 1
            marks.append(Mark(row_of[step.operator], len(marks), kind_of(operator, times)))
    bars = tuple(bars_of(trace, row_of))
    return ResidencyRows(tuple(names), tuple(marks), bars, len(marks))


def kind_of(operator: Operator, times: Sequence[int]) -> EvaluationKind:
    """Return the kind of an evaluation, given how often each operator has been evaluated by now."""
    if times[operator.id] > 1:
        return EvaluationKind.RECOMPUTATION
    return EvaluationKind.BACKWARD if operator.phase == "backward" else EvaluationKind.FORWARD


def bars_of(trace: Trace, row_of: Sequence[int]) -> Iterator[Bar]:
    """Yield a bar per live interval of a forward value, on the device or on the host."""
    graph = trace.graph
    since: dict[int, tuple[int, bool, bool]] = {}  # begin, recomputed, on the host
    now = 0

    def ended(data: int) -> Iterator[Bar]:
        producer = graph.data[data].producer
        begin, recomputed, on_host = since.pop(data)
        if producer is not None and now > begin:
            yield Bar(row_of[producer], begin, now, recomputed, on_host, data)

    for step, again in zip(trace.steps, recomputations(trace.steps), strict=True):
        if isinstance(step, EVALUATIONS):
            if graph.operators[step.operator].phase == "forward":
                for data in graph.operators[step.operator].outputs:
                    since[data] = (now, again, False)
            now += 1
        elif step.data in since:
            recomputed = since[step.data][1]
            yield from ended(step.data)
            if isinstance(step, Offload | Fetch):
                since[step.data] = (now, recomputed, isinstance(step, Offload))
    for data in list(since):
        yield from ended(data)


def rows_of(graph: Graph, most: int) -> tuple[list[str], list[int]]:
    """Return the names of the rows, and for each operator its row.

    Each forward operator has a row, if there are at most ``most``. Else each scope has one, as deep
    as possible; and where there are no scopes, or too many, adjacent operators share one.
    """
    forward = graph.operators[: graph.forward_count]
    keys = names_of(graph, forward)
    if len(forward) > most:
        keys = scopes_of(forward, most) or runs_of(forward, most)
    place = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    rows = [place[key] for key in keys]
    names = list(place)
    others = OTHERS if OTHERS not in place else f"({OTHERS})"
    for operator in graph.operators[len(forward) :]:
        mirror = operator.adjoint_of
        if mirror is None or mirror >= len(forward):
            if len(names) == len(place):
                names.append(others)
            rows.append(len(place))
        else:
            rows.append(rows[mirror])
    return names, rows


def names_of(graph: Graph, operators: Sequence[Operator]) -> list[str]:
    """Return the name of each operator, unique: the user's where there is one."""
    names: dict[str, None] = {}
    for operator in operators:
        labels = (graph.data[data].label or loss_label(graph, data) for data in operator.outputs)
        name = next(filter(None, labels), operator.name)
        names[name if name not in names else f"{name} ({operator.name})"] = None
    return list(names)


def scopes_of(operators: Sequence[Operator], most: int) -> list[str] | None:
    """Return each operator's scope, as deep as ``most`` different ones allow; None if none do."""
    deepest = max(operator.scope.count("/") + 1 for operator in operators)
    for depth in range(deepest, 0, -1):
        keys = ["/".join(operator.scope.split("/")[:depth]) or NO_SCOPE for operator in operators]
        if 1 < len(set(keys)) <= most:
            return keys
    return None


def runs_of(operators: Sequence[Operator], most: int) -> list[str]:
    """Return for each operator the name of its run of adjacent ones; runs have equal length."""
    length = -(-len(operators) // most)
    keys = []
    for operator in operators:
        begin = operator.id // length * length
        last = operators[min(begin + length, len(operators)) - 1]
        keys.append(f"{operators[begin].name} to {last.name}")
    return keys
