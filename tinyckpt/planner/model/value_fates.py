"""What becomes of values: which are kept, which are computed again, and what for.

One pass over the steps and one over the graph, so that a schedule of 100,000 steps takes moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinyckpt.core.costs import Costs
from tinyckpt.core.schedule import EVALUATIONS, Free, Offload, Schedule, recomputations


@dataclass(frozen=True, slots=True)
class Residual:
    """What became of a forward value that the backward half reads.

    Attributes:
        data: its id; ``name``, ``shape`` and ``nbytes`` say what it is.
        made_by: the operator that computes it, with its scope.
        read_by: the backward operators that read it.
        fate: ``kept`` from its first evaluation to its last reader, ``recomputed``, or
            ``offloaded`` to the host's memory and fetched again.
        evaluations: how often it is computed.
        extra_cost: what the evaluations after the first cost, in the unit of the costs.
        reason: the same as a sentence.
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
    """An operator that is evaluated more than once.

    Attributes:
        operator: its id, and its ``name``.
        times: evaluations after the first.
        cost: of those, in the unit of the costs.
        needed_for: the backward operators that follow each of them.
    """

    operator: int
    name: str
    times: int
    cost: float
    needed_for: tuple[str, ...]


def residuals_of(schedule: Schedule, costs: Costs) -> tuple[Residual, ...]:
    """Return what becomes of each forward value that the backward half reads."""
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
            first = graph.operators[readers[0]].name
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


def recomputed_of(schedule: Schedule, costs: Costs) -> tuple[Recomputed, ...]:
    """Return the operators that are evaluated more than once, dearest first."""
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
