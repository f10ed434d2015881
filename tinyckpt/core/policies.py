"""The three textbook checkpointing policies: store-all, recompute-all and sqrt(n) segments.

A policy maps (graph, costs, options) to a schedule, by choosing an evaluation order that
``lowering`` completes with frees. ``Policy`` is the record that the policy table holds for each:
the planner and its optimality, complexity and source. Searching planners are in ``planner``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt

from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import (
    Cut,
    crossing_values,
    nothing_to_reverse,
    residual_operators,
    retaining_order,
    segmented_order,
    segments_note,
    separators,
    values_kept_at_cuts,
)
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once, from_order
from tinyckpt.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Policy:
    """A named rematerialization policy: (graph, costs, options) -> schedule.

    >>> import tinyckpt as tc
    >>> tc.POLICIES["sqrt_n"].source
    'Chen et al. 2016, arXiv 1604.06174'

    Attributes:
        name: its name in ``plan`` and on the command line.
        plan: ``plan(graph, costs, **options)`` -> Schedule.
        summary: a one-line description.
        optimality: the class of schedules or graphs for which its result is optimal, if any.
        complexity: asymptotic planning time, or number of evaluations.
        source: the paper, with a DOI or arXiv number, or where it is used.
    """

    name: str
    plan: Callable[..., Schedule]
    summary: str
    optimality: str
    complexity: str
    source: str


# --------------------------------------------------------------------------------------------------
# Store-all: evaluate every operator once, save all residuals. The default of every framework.


def plan_store_all(graph: Graph, costs: Costs) -> Schedule:
    """Evaluate in build order: minimal cost, all residuals in memory at once.

    On ``chain(n)``: 2n+1 evaluations, peak n+2 nodes.
    """
    order = range(len(graph.operators))
    return from_order(graph, order, "store_all", note="every operator is evaluated once")


STORE_ALL = Policy(
    "store_all",
    plan_store_all,
    "evaluate everything once, keep all that the backward pass reads",
    "the least cost there is, with all residuals in memory at once",
    "O(V + E)",
    "what every framework does unless told otherwise",
)


# --------------------------------------------------------------------------------------------------
# Recompute-all: save nothing; recompute the residuals of each backward operator from the sources.


def plan_recompute_all(graph: Graph, costs: Costs) -> Schedule:
    """Recompute from the sources for every backward operator: minimal memory on a chain.

    On ``chain(n)``: n(n+1)/2 + n + 1 evaluations, peak 3 nodes, and no schedule without offloading
    has fewer evaluations at that peak.
    """
    order = retaining_order(graph, (), reuse=False)
    note = f"{len(order) - len(graph.operators)} recomputations, nothing kept"
    note += " but what may not be evaluated twice" if graph.once else ""
    return from_order(graph, order, "recompute_all", note=note)


RECOMPUTE_ALL = Policy(
    "recompute_all",
    plan_recompute_all,
    "keep nothing, recompute from the sources for every backward operator",
    "optimal at its own peak on uniform chains, without offloading; else a heuristic",
    "O(n^2) evaluations on a chain",
    "the other extreme: O(1) memory on a chain",
)


# --------------------------------------------------------------------------------------------------
# sqrt(n): cut the forward pass into about sqrt(n) segments, save the values that cross the cuts.
#
# Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016,
# arXiv 1604.06174, section 3.2. The search over segment sizes for a budget is ``chen_budget``.


def plan_sqrt_n(
    graph: Graph, costs: Costs, *, segments: int | None = None, by: str = "count"
) -> Schedule:
    """Cut at equal distances, and save one value per cut where the graph has a separator.

    A stage is a forward operator whose outputs the backward pass reads. Cuts follow every
    sqrt(n)-th of the n stages, moved by up to half a segment to the nearest separator. Where there
    is none (a U-Net, dense connections), all values that cross the cut are saved. The last segment
    is saved whole: its backward pass comes first.

    On ``chain(k*k)``: 2n + 1 + (k-1)^2 evaluations, peak 2k+1 nodes.

    Args:
        graph: the training graph.
        costs: sizes of values, for cuts at equal distances in bytes.
        segments: number of segments; the square root of the number of stages if not given.
        by: ``count``: segments of equally many stages; ``bytes``: of equal memory, as counted by
            the costs.

    Raises:
        PolicyOptionError: if ``segments`` is not a positive integer, or ``by`` is neither.
    """
    if segments is not None and (type(segments) is not int or segments < 1):
        raise PolicyOptionError(
            f"sqrt_n: segments={segments!r}; there must be at least 1, an integer"
        )
    if by not in ("count", "bytes"):
        raise PolicyOptionError(f"sqrt_n: by={by!r}; expected 'count' or 'bytes'")
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "sqrt_n")
    stages = residual_operators(graph)
    count = min(segments or nearest_root(len(stages)), max(len(stages), 1))
    weights = [1] * len(stages) if by == "count" else memory_of(graph, costs, stages)
    cuts = place_cuts(graph, stages, count, weights)
    options: dict[str, int | str] = {} if segments is None else {"segments": segments}
    if by != "count":
        options["by"] = by
    note = segments_note(graph, len(stages), len(cuts) + 1, cuts)
    order = segmented_order(graph, cuts)
    return from_order(graph, order, "sqrt_n", options, note, values_kept_at_cuts(cuts))


def memory_of(graph: Graph, costs: Costs, stages: Sequence[int]) -> list[int]:
    """Return the memory of each stage's outputs."""
    return [sum(costs.data[data] for data in graph.operators[i].outputs) for i in stages]


def place_cuts(
    graph: Graph, stages: Sequence[int], count: int, weights: Sequence[int]
) -> list[Cut]:
    """Place the cuts between ``count`` segments of about equal weight, at separators in reach."""
    separator_at = separators_after(graph, stages)
    reach = len(stages) // (2 * count)
    places: list[int] = []
    for share in equal_shares(weights, count):
        earliest = places[-1] + 1 if places else 0
        nearby = sorted(range(-reach, reach + 1), key=lambda offset: (abs(offset), offset))
        for place in (share + offset for offset in nearby):
            if earliest <= place < len(stages) - 1 and place in separator_at:
                break
        else:
            place = max(share, earliest)
        if place < len(stages):
            places.append(place)
    elsewhere = [stages[place] for place in places if place not in separator_at]
    crossing = dict(zip(elsewhere, crossing_values(graph, elsewhere), strict=True))
    return [
        Cut(separator_at[place][0], (separator_at[place][1],), True)
        if place in separator_at
        else Cut(stages[place], crossing[stages[place]], False)
        for place in places
    ]


def separators_after(graph: Graph, stages: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return, by stage position, (producer, separator) of the separator that follows a stage.

    It is the stage's own separator; or else the last one before the next stage, such as the sum
    of a residual stream that no backward operator reads.
    """
    found: dict[int, tuple[int, int]] = {}
    for data in separators(graph):
        producer = graph.data[data].producer
        assert producer is not None  # sources separate nothing
        place = bisect_right(stages, producer) - 1
        if place >= 0 and (place not in found or found[place][0] != stages[place]):
            found[place] = producer, data
    return found


def equal_shares(weights: Sequence[int], count: int) -> list[int]:
    """Return the places in the stages after which cumulative weight is nearest to equal shares."""
    reached = [0, *accumulate(weights)]
    found = []
    for part in range(1, count):
        share = part * reached[-1] / count
        index = bisect_left(reached, share, 1)
        weight = weights[index - 1]
        within = (share - reached[index - 1]) / weight if weight else 0.0  # all weights are 0
        found.append(max(round(index - 1 + within) - 1, 0))
    return found


def nearest_root(count: int) -> int:
    """Return the integer nearest to the square root, at least 1."""
    root = isqrt(count)
    return max(1, root + 1 if count - root * root > root else root)


SQRT_N = Policy(
    "sqrt_n",
    plan_sqrt_n,
    "cut into about sqrt(n) segments, keep what crosses, recompute all but the last once",
    "optimal at its own peak on uniform chains of k^2 layers, without offloading; else a heuristic",
    "about O(V + E); O(V) more for each cut that has no separator near",
    "Chen et al. 2016, arXiv 1604.06174",
)
