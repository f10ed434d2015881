"""Classification of residuals under a schedule: kept, recomputed or offloaded, and their readers.

A schedule and costs come in; one record per residual and per recomputed operator goes out, for
``explain`` and the viewers. One pass over the steps and one over the graph: linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tinyckpt.base.display import spoken
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Free,
    Offload,
    Schedule,
    data_title,
    operator_title,
    recomputations,
    titled,
)


@dataclass(frozen=True, slots=True)
class Residual:
    """Fate of a residual: a forward value that the backward pass reads.

    Attributes:
        data: id of the value, described by ``name``, ``shape`` and ``nbytes`` (bytes).
        made_by: the operator that computes the value, with its scope.
        read_by: the backward operators that read the value.
        fate: ``kept`` from the first evaluation to the last reader, ``recomputed``, or
            ``offloaded`` to host memory and fetched again.
        evaluations: number of times the value is computed.
        extra_cost: cost of the evaluations after the first, in the unit of the costs.
        reason: the fate as a sentence.
    """

    data: int
    name: str
    shape: str
    nbytes: int
    made_by: str
    read_by: tuple[str, ...]
    fate: Literal["kept", "recomputed", "offloaded"]
    evaluations: int
    extra_cost: float
    reason: str


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Operator that is evaluated more than once.

    Attributes:
        operator: id of the operator, with its ``name``.
        times: number of recomputations: evaluations after the first.
        cost: cost of the recomputations, in the unit of the costs.
        needed_for: for each recomputation, the backward operator that follows it.
    """

    operator: int
    name: str
    times: int
    cost: float
    needed_for: tuple[str, ...]


def operator_words(graph: Graph, operator: int) -> str:
    """Return an operator's display title, which says "gradient of" where its name says vjp."""
    found = graph.operators[operator]
    if found.phase == "backward":
        return spoken(operator_title(graph, operator))
    if label := next(filter(None, (loss_label(graph, data) for data in found.outputs)), None):
        return titled(found.scope, [label], found.name)
    return operator_title(graph, operator)


def value_words(graph: Graph, data: int) -> str:
    """Return a value's display title, which says "gradient of" where its name says vjp.

    >>> import tinyckpt as tc
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(x)), tc.Spec(3)))
    >>> [value_words(graph, node.id) for node in graph.data if not node.is_source]
    ['tanh_1', 'loss (sum_1)', 'gradient of sum_1', 'gradient of tanh_1']
    """
    title, producer = data_title(graph, data), graph.data[data].producer
    if producer is None:
        return title
    found = graph.operators[producer]
    if label := loss_label(graph, data):
        return titled(found.scope, [label], graph.data[data].name)
    return spoken(title) if found.phase == "backward" else title


def loss_label(graph: Graph, data: int) -> str | None:
    """Return ``loss`` for the loss of a training graph that nobody named; otherwise None."""
    if graph.gradients is None or data != graph.outputs[0]:
        return None
    node = graph.data[data]
    if node.label or node.producer is None or graph.operators[node.producer].phase == "backward":
        return None
    automatic = re.fullmatch(rf"{re.escape(graph.operators[node.producer].kind)}_\d+", node.name)
    return "loss" if automatic else None


def residual_fates(schedule: Schedule, costs: Costs) -> tuple[Residual, ...]:
    """Classify each residual of a schedule as kept, recomputed or offloaded.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(3)
    >>> schedule = tc.plan(graph, "recompute_all")
    >>> [(r.name, r.fate) for r in residual_fates(schedule, tc.cost.evaluations(graph))]
    [('f1', 'recomputed'), ('f2', 'recomputed'), ('f3', 'kept')]
    """
    graph = schedule.graph
    checkpoints = frozenset(schedule.checkpoints)
    computed: dict[int, list[int]] = {}
    dropped: dict[int, list[int]] = {}
    moved: set[int] = set()
    for position, step in enumerate(schedule.steps):
        if isinstance(step, EVALUATIONS):
            for data in graph.operators[step.operator].outputs:
                computed.setdefault(data, []).append(position)
        elif isinstance(step, Free):
            dropped.setdefault(step.data, []).append(position)
        elif isinstance(step, Offload):
            moved.add(step.data)
    found = []
    for operator in graph.operators[: graph.forward_count]:
        for data in operator.outputs:
            node = graph.data[data]
            readers = [r for r in graph.consumers[data] if r >= graph.forward_count]
            if not readers or data not in computed:
                continue
            times = len(computed[data])
            first = spoken(graph.operators[readers[0]].name)
            extra = (times - 1) * costs.operators[operator.id]
            fate: Literal["kept", "recomputed", "offloaded"] = "kept"
            reason = f"kept for {first}"
            if data in checkpoints:
                reason += ", as a checkpoint"
            if operator.once:
                reason += f"; {operator.name} may not be evaluated twice"
            if data in moved:
                fate, reason = "offloaded", f"waits on the host for {first}"
            elif times > 1:
                fate = "recomputed"
                reason = (
                    f"freed at step {dropped[data][0]}, computed again at "
                    f"{'step' if times == 2 else 'steps'} "
                    f"{', '.join(map(str, computed[data][1:4]))}{', …' if times > 4 else ''}"
                )
            where = f"{operator.name} in {operator.scope}" if operator.scope else operator.name
            shape, names = str(node.spec), tuple(graph.operators[r].name for r in readers)
            name = node.label or node.name
            entry = (data, name, shape, node.nbytes, where, names, fate, times, extra, reason)
            found.append(Residual(*entry))
    return tuple(found)


def recomputed_operators(schedule: Schedule, costs: Costs) -> tuple[Recomputed, ...]:
    """Return the operators that are evaluated more than once, the most expensive first."""
    graph = schedule.graph
    waiting: list[int] = []
    needed_for: dict[int, list[str]] = {}
    for step, again in zip(schedule.steps, recomputations(schedule.steps), strict=True):
        if not isinstance(step, EVALUATIONS):
            continue
        if again:
            waiting.append(step.operator)
        elif step.operator >= graph.forward_count:
            for operator in waiting:
                needed_for.setdefault(operator, []).append(graph.operators[step.operator].name)
            waiting = []
    found = [
        Recomputed(
            operator,
            graph.operators[operator].name,
            len(targets),
            len(targets) * costs.operators[operator],
            tuple(targets),
        )
        for operator, targets in needed_for.items()
    ]
    return tuple(sorted(found, key=lambda entry: (-entry.cost, entry.operator)))
