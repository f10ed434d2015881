"""Store-all, but for a few stages of the forward half, which are evaluated again.

Where nearly all fits, the least that can be done is to drop what the backward half reads of some
stages, and to keep the separators that they begin with. That is little to gain where a separator is
as large as what is dropped. It is much where codes are kept: nothing in the backward half reads the
separators then, so that whoever plans by what is read has nothing to begin with, and goes back to
the arguments. Codes of what is evaluated again are the same bits, since chance is a seed.
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

STEPS = 16  # how many counts of stages are tried on the way to all of them, at least


@dataclass(frozen=True, slots=True)
class Stage:
    """What lies between two separators, as something to drop.

    Attributes:
        start: the separator that it begins with, by its data id.
        dropped: the values that the backward half reads of it.
        price: what evaluating it again costs, for each byte that is free until then.
    """

    start: int
    dropped: frozenset[int]
    price: float


def fewest_stages(graph: Graph, costs: Costs, budget: int, seconds: float) -> Schedule | None:
    """Return the schedule that evaluates the cheapest stages again, as few as the budget asks for.

    Args:
        graph: a training graph.
        costs: of its operators.
        budget: bytes.
        seconds: after which what has been found is the answer.

    Returns:
        The schedule; None if none was found within the budget.
    """
    clock = Clock(seconds)
    saved = frozenset(
        node.id
        for node in saved_values(graph)
        if node.producer is not None and node.producer < graph.forward_count
    )
    stages = sorted(stages_of(graph, costs, saved), key=lambda stage: (stage.price, stage.start))

    def fitting(chosen: Sequence[Stage]) -> Schedule | None:
        schedule = without(graph, costs, saved, chosen)
        return schedule if replay(schedule).peak_bytes <= budget else None

    # More stages are not always less memory: from all of them the one that is evaluated again may
    # hold more than the others free. So counts are tried from below, and halved between two.
    below, count, found = -1, 0, fitting(())
    while found is None and count < len(stages) and clock.left():
        below, count = count, min(2 * count + 1, count + 1 + len(stages) // STEPS, len(stages))
        found = fitting(stages[:count])
    while found is not None and below + 1 < count and clock.left():
        middle = (below + count) // 2
        fewer = fitting(stages[:middle])
        below, count, found = (middle, count, found) if fewer is None else (below, middle, fewer)
    chosen = stages[:count]
    for stage in reversed(chosen):  # the dearest first: those after it may be enough
        if found is None or not clock.left():
            break
        rest = [other for other in chosen if other is not stage]
        if (fewer := fitting(rest)) is not None:
            found, chosen = fewer, rest
    return found


def stages_of(graph: Graph, costs: Costs, saved: frozenset[int]) -> list[Stage]:
    """Return the stages of which something can be dropped that is more than what is kept for it."""
    line = separators(graph)
    begins = [producer_of(graph, data) + 1 for data in line]
    found = []
    for start, begin, end in zip(line, begins, [*begins[1:], graph.forward_count], strict=True):
        outputs = [data for op in graph.operators[begin:end] for data in op.outputs]
        dropped = saved.intersection(outputs).difference(line)
        gain = sum(graph.data[data].nbytes for data in dropped)
        gain -= 0 if start in saved else graph.data[start].nbytes
        if gain > 0:
            found.append(Stage(start, dropped, sum(costs.operators[begin:end]) / gain))
    return found


def without(graph: Graph, costs: Costs, saved: frozenset[int], stages: Sequence[Stage]) -> Schedule:
    """Return the schedule that keeps what store-all does, but for what some stages drop."""
    dropped = frozenset().union(*(stage.dropped for stage in stages))
    keep = (saved - dropped) | {stage.start for stage in stages}
    return plan(graph, "retain", costs=costs, keep=sorted(keep))
