"""Greedy recomputation of the fewest chain stages: store-all, but for a few of the forward pass.

Where nearly everything fits, the smallest change is to drop the saved values of some stages, and
to save the separators at their starts instead. That gains little where a separator is as large as
the dropped values. It gains much where saved values are compressed codes: then nothing in the
backward pass reads the separators, so a planner that saves only values that are read has no
checkpoint to recompute from, and goes back to the arguments. Recomputed codes are bitwise the
same, since stochastic rounding is seeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyckpt.base.deadline import Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.saved_values import saved_values
from tinyckpt.planner.portfolio.plan import plan

STEPS = 16  # the number of stages tried grows by at most 1/16 of all stages, and by doubling


@dataclass(frozen=True, slots=True)
class DroppableStage:
    """A chain stage, between two separators, as a candidate for recomputation.

    Attributes:
        start: data id of the separator that it starts from.
        dropped: its saved values.
        price: cost of recomputing it per byte freed meanwhile.
    """

    start: int
    dropped: frozenset[int]
    price: float


def fewest_stages(graph: Graph, costs: Costs, budget: int, seconds: float) -> Schedule | None:
    """Greedy recomputation of the cheapest stages per byte, as few as the budget requires.

    Args:
        graph: a training graph.
        costs: of its operators.
        budget: bytes.
        seconds: time limit, after which the best schedule so far is returned.

    Returns:
        The schedule; None if none was found within the budget.
    """
    clock = Clock(seconds)
    saved = frozenset(
        node.id
        for node in saved_values(graph)
        if node.producer is not None and node.producer < graph.forward_count
    )
    stages = sorted(
        droppable_stages(graph, costs, saved), key=lambda stage: (stage.price, stage.start)
    )

    def fitting(chosen: Sequence[DroppableStage]) -> Schedule | None:
        schedule = dropped_stages_schedule(graph, costs, saved, chosen)
        return schedule if replay(schedule).peak_bytes <= budget else None

    # Memory is not monotone in the number of stages: recomputing one stage may need more than
    # dropping the others frees. So counts grow from below, and the last interval is bisected.
    below, count, found = -1, 0, fitting(())
    while found is None and count < len(stages) and clock.left():
        below, count = count, min(2 * count + 1, count + 1 + len(stages) // STEPS, len(stages))
        found = fitting(stages[:count])
    while found is not None and below + 1 < count and clock.left():
        middle = (below + count) // 2
        fewer = fitting(stages[:middle])
        below, count, found = (middle, count, found) if fewer is None else (below, middle, fewer)
    chosen = stages[:count]
    for stage in reversed(chosen):  # the most expensive first: the cheaper ones may suffice
        if found is None or not clock.left():
            break
        rest = [other for other in chosen if other is not stage]
        if (fewer := fitting(rest)) is not None:
            found, chosen = fewer, rest
    return found


def droppable_stages(graph: Graph, costs: Costs, saved: frozenset[int]) -> list[DroppableStage]:
    """Return the stages whose dropped values are larger than the checkpoint saved for them."""
    line = separators(graph)
    begins = [producer_of(graph, data) + 1 for data in line]
    found = []
    for start, begin, end in zip(line, begins, [*begins[1:], graph.forward_count], strict=True):
        outputs = [data for op in graph.operators[begin:end] for data in op.outputs]
        dropped = saved.intersection(outputs).difference(line)
        gain = sum(graph.data[data].nbytes for data in dropped)
        gain -= 0 if start in saved else graph.data[start].nbytes
        if gain > 0:
            found.append(DroppableStage(start, dropped, sum(costs.operators[begin:end]) / gain))
    return found


def dropped_stages_schedule(
    graph: Graph, costs: Costs, saved: frozenset[int], stages: Sequence[DroppableStage]
) -> Schedule:
    """Return the store-all schedule with some stages dropped and recomputed."""
    dropped = frozenset().union(*(stage.dropped for stage in stages))
    keep = (saved - dropped) | {stage.start for stage in stages}
    return plan(graph, "retain", costs=costs, keep=sorted(keep))
