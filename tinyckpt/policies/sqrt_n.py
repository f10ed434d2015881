"""sqrt(n): cut the forward half into about sqrt(n) segments, keep what crosses between them.

Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016,
arXiv 1604.06174, section 3.2, by count of stages. The values of the last segment are kept as well,
since the backward sweep begins there: recomputing them would save nothing.

Not here: segments balanced by bytes or by cost, and the search over segment counts for a budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from tinyckpt.cost import Costs
from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.policies.lowering import from_order
from tinyckpt.policies.policy import Policy
from tinyckpt.policies.retain import last_target_of, retaining_order, some_names
from tinyckpt.schedule import Schedule
from tinyckpt.separators import separators


def plan_sqrt_n(graph: Graph, costs: Costs, *, segments: int | None = None) -> Schedule:
    """Cut at equal distances; keep one value at each cut where the graph has one to cut at.

    A stage is a forward operator whose results the backward half reads. Cuts lie behind every
    sqrt(n)-th of the n stages, moved by up to half a segment to the nearest separator. Where there
    is none (a U-Net, dense connections), all values that cross the cut are kept.

    On ``chain(k*k)``: 2n + 1 + (k-1)^2 evaluations, peak 2k+1 nodes, and no schedule with that peak
    has fewer evaluations.

    Args:
        graph: the training graph.
        costs: not used; stages are counted.
        segments: how many segments; the square root of the number of stages if not given.

    Raises:
        ScheduleError: if ``segments`` is not an integer of 1 or more.
    """
    if segments is not None and (type(segments) is not int or segments < 1):
        raise ScheduleError(f"sqrt_n: segments={segments!r}; there must be at least 1, an integer")
    if graph.forward_count in (0, len(graph.operators)):
        note = "no backward half: every operator is evaluated once"
        return from_order(graph, range(len(graph.operators)), "sqrt_n", note=note)
    last_target = last_target_of(graph)
    stages = [
        operator.id
        for operator in graph.operators[: graph.forward_count]
        if any(last_target[data] >= 0 for data in operator.outputs)
    ]
    count = min(segments or nearest_root(len(stages)), max(len(stages), 1))
    cuts = place_cuts(graph, stages, count)
    checkpoints = sorted({data for cut in cuts for data in cut.kept})
    last_cut = cuts[-1].after if cuts else -1
    # The last segment stays resident.
    kept = set(checkpoints).union(
        node.id
        for node in graph.data
        if node.producer is not None
        and last_cut < node.producer < graph.forward_count
        and last_target[node.id] >= 0
    )
    order = retaining_order(graph, kept, reuse=True)
    options = {} if segments is None else {"segments": segments}
    note = note_of(graph, len(stages), count, cuts, checkpoints)
    return from_order(graph, order, "sqrt_n", options, note, checkpoints)


@dataclass(frozen=True, slots=True)
class Cut:
    """A place between two segments: behind an operator, with the values to keep there."""

    after: int
    kept: tuple[int, ...]
    at_separator: bool


def place_cuts(graph: Graph, stages: list[int], count: int) -> list[Cut]:
    """Return the cuts between ``count`` segments of about equally many stages."""
    separator_of = {}
    for data in separators(graph):
        producer = graph.data[data].producer
        assert producer is not None  # sources separate nothing
        separator_of[producer] = data
    reach = len(stages) // (2 * count)
    cuts: list[Cut] = []
    earliest = 0
    for part in range(1, count):
        target = round(part * len(stages) / count) - 1
        nearby = sorted(range(-reach, reach + 1), key=lambda offset: (abs(offset), offset))
        for place in (target + offset for offset in nearby):
            if earliest <= place < len(stages) - 1 and stages[place] in separator_of:
                cuts.append(Cut(stages[place], (separator_of[stages[place]],), True))
                break
        else:
            place = max(target, earliest)
            cuts.append(Cut(stages[place], crossing(graph, stages[place]), False))
        earliest = place + 1
    return cuts


def crossing(graph: Graph, last: int) -> tuple[int, ...]:
    """Return the values that an operator up to ``last`` makes and a later forward one reads."""
    return tuple(
        data
        for operator in graph.operators[: last + 1]
        for data in operator.outputs
        if any(last < reader < graph.forward_count for reader in graph.consumers[data])
    )


def nearest_root(count: int) -> int:
    """Return the integer nearest to the square root, and at least 1."""
    root = isqrt(count)
    return max(1, root + 1 if count - root * root > root else root)


def note_of(
    graph: Graph, stages: int, segments: int, cuts: list[Cut], checkpoints: list[int]
) -> str:
    """Return what was done, in a sentence."""
    note = f"{counted(stages, 'stage')} in {counted(segments, 'segment')}"
    several = sum(not cut.at_separator for cut in cuts)
    if several:
        note += f"; no separator near {several} of {counted(len(cuts), 'cut')}"
    if checkpoints:
        note += f"; kept {some_names([graph.data[data] for data in checkpoints])}"
    return note


def counted(count: int, what: str) -> str:
    """Return a count with its noun."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


SQRT_N = Policy(
    "sqrt_n",
    plan_sqrt_n,
    "cut into about sqrt(n) segments, keep what crosses, recompute each segment once",
    "Chen et al. 2016, arXiv 1604.06174",
)
