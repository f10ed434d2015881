"""Budget grid: the memory budgets at which heuristics plan, a function of the graph only.

A planner that runs within a budget (greedy, dtr) may by chance find a cheaper plan in less memory
than in more. The portfolio must be monotone in the budget. So such a planner never plans for the
requested budget, but for the nearest grid level below, and the portfolio plans at all levels. Its
best plan within a budget then never costs more than the planner's own for that budget, nor more
than its own best within a smaller one: it has compared both.

In a small graph the levels are the peaks of probing runs, thinned if they are too many; in a large
one they are spread over the range of feasible memory, and a plan found at one level is extended to
use the memory up to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import gcd
from typing import NamedTuple, TypeVar

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.planner.heuristics.backward_order import least_growth_order
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import by_distance
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget

# Operator evaluations of all eviction runs of a search: a run takes some 20 microseconds per
# operator, so these take a second or two. Larger: more levels and more settings per level, slower.
GRID_EVALUATIONS = 60_000
# Levels: more of them waste less memory between budget and level, with fewer settings tried at
# each, since GRID_EVALUATIONS is shared among them.
MAX_LEVELS, MIN_LEVELS = 32, 8
# Exponent of the spacing of levels, without a unit. The marginal cost of memory rises as memory
# shrinks, so low levels are closer together; larger: closer still.
DENSITY = 1.5
# Operators up to which the levels are the peaks of probing runs. Larger: fitted levels for larger
# graphs, after more probing.
LARGEST_PROBED = 200
SHARE_STEPS = 20  # shares of store-all's peak among the levels, k / 20; larger: a finer grid
# Relative distance below which two levels are merged; larger: fewer levels.
MERGE_RATIO = 1 / 256
PROBES = (by_distance(0.5), by_distance(0.0))  # eviction heuristics of the probing runs


T = TypeVar("T")


class Candidate(NamedTuple):
    """Candidate plan: an order of evaluations, with the policy that found it and its options."""

    policy: str
    detail: str
    order: Sequence[int]


class BudgetGrid(NamedTuple):
    """Grid of budgets, ascending, all below store-all's peak.

    Attributes:
        budgets: the budget of each level, in the memory unit of the costs.
        runs: number of settings that there is time to try at each level.
        highest: store-all's peak.
    """

    budgets: tuple[int, ...]
    runs: int
    highest: int

    def room(self, level: int) -> int:
        """Return the largest budget for which a level is the nearest below."""
        above = self.budgets[level + 1 :]
        return (above[0] if above else self.highest) - 1


def build_budget_grid(problem: Problem, deadline: Clock = NO_DEADLINE) -> BudgetGrid:
    """Build the budget grid of a graph, from its smallest budget up to store-all's peak.

    Raises:
        OutOfTimeError: if the deadline has passed.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(6)
    >>> grid = build_budget_grid(Problem(graph, tc.cost.evaluations(graph)))
    >>> [budget // 512 for budget in grid.budgets]
    [3, 4, 5, 6, 7]
    """
    graph = problem.graph
    size = max(len(graph.operators), 1)
    highest = problem.peak(range(len(graph.operators)))
    lowest = smallest_budget(problem)
    most = min(max(GRID_EVALUATIONS // (4 * size), MIN_LEVELS), MAX_LEVELS)
    # All peaks are multiples of this unit.
    unit = gcd(*problem.size.tolist(), *problem.workspace.tolist()) or 1
    count = (highest - lowest) // unit
    if count <= most:
        budgets = set(range(lowest, highest, unit))
    else:
        steps = (int(count * (step / most) ** DENSITY) for step in range(most))
        budgets = {lowest + step * unit for step in steps}
    if size <= LARGEST_PROBED and count > most:
        budgets = {
            lowest,
            *probed_peaks(problem, lowest, highest, GRID_EVALUATIONS // (6 * size), deadline),
        }
        # Round shares are common requests, and a level useless to one score may serve another.
        shares = (highest * part // SHARE_STEPS for part in range(1, SHARE_STEPS))
        budgets.update(share for share in shares if share > lowest)
    return BudgetGrid(
        tuple(sorted(budgets)), max(1, GRID_EVALUATIONS // (size * max(len(budgets), 1))), highest
    )


def probed_peaks(
    problem: Problem, lowest: int, highest: int, most: int, deadline: Clock
) -> list[int]:
    """Return the peaks of probing runs, at most ``most`` of them.

    A run within a budget is the same within any smaller budget down to its own peak, so each run is
    followed by one with just less memory.
    """
    found = set()
    sequence = least_growth_order(problem, deadline)
    for score in PROBES:
        budget = highest - 1
        while budget >= lowest:
            run = Eviction(problem, budget, score, sequence, deadline=deadline)
            try:
                run.run()
            except BudgetError:
                break  # smaller budgets are taken to be infeasible too
            found.add(run.highest)
            # Peaks that differ by less are merged below; there may be thousands of them.
            budget = min(run.highest - 1, int(run.highest * (1 - MERGE_RATIO)))
    # Of peaks closer than MERGE_RATIO the largest represents all.
    apart: list[int] = []
    for amount in sorted(found, reverse=True):
        if not apart or amount < apart[-1] * (1 - MERGE_RATIO):
            apart.append(amount)
    return evenly_spaced(apart, most)


def cheapest_within(
    problem: Problem, budget: int, candidates: Iterable[Candidate]
) -> tuple[Candidate | None, int | None]:
    """Return the cheapest candidate within a budget, and the smallest peak of all candidates.

    Each is None if there is none. An anytime search: at the deadline the best so far is returned.

    Raises:
        OutOfTimeError: if the deadline passed before a candidate within the budget was found.
    """
    best: tuple[float, str, Candidate] | None = None
    smallest: int | None = None
    try:
        for candidate in candidates:
            peak = problem.peak(candidate.order)
            smallest = peak if smallest is None else min(smallest, peak)
            if peak <= budget:
                found = problem.cost_of(candidate.order), candidate.detail, candidate
                best = found if best is None or found[:2] < best[:2] else best
    except OutOfTimeError:
        if best is None:
            raise
        detail = f"{best[2].detail}; cut short by the time limit"
        return best[2]._replace(detail=detail), smallest
    return (None if best is None else best[2]), smallest


def plan_at_nearest_level(
    levels: BudgetGrid,
    budget: int,
    at_level: Callable[[int], Iterable[Candidate]],
    problem: Problem,
) -> Candidate:
    """Return the cheapest candidate within a budget from the nearest level below it.

    If there is none, from the levels above, whose plans may need less than their budget.

    Raises:
        BudgetError: if there is none either; with the smallest peak of the next level that has a
            plan.
        OutOfTimeError: if the deadline passed before a candidate was found.
    """
    below = bisect_right(levels.budgets, budget) - 1
    smallest: int | None = None
    for level in range(max(below, 0), len(levels.budgets)):
        best, smallest = cheapest_within(problem, budget, at_level(level))
        if best is not None:
            return best
        if smallest is not None:
            break
    least, unit = levels.highest if smallest is None else smallest, problem.costs.memory_unit
    raise BudgetError(
        f"no plan was found within {memory_text(budget, unit)}; the smallest peak found is "
        f"{memory_text(least, unit)}",
        least,
    )


def first_feasible(peak: int, plan: Callable[[int], Candidate], budget: int | None) -> Candidate:
    """Plan for a budget; if none is given, for half of a peak or the next feasible tenth of it."""
    tenths = [peak * tenth // 10 for tenth in range(5, 11)]
    for room in tenths if budget is None else [budget]:
        try:
            return plan(room)
        except BudgetError:
            if budget is not None or room == peak:
                raise
    raise AssertionError("store-all is within its own peak")


def evenly_spaced(numbers: Sequence[T], most: int) -> list[T]:
    """Subsample evenly to at most ``most`` items, the first and the last among them.

    >>> evenly_spaced(range(11), 3)
    [0, 5, 10]
    """
    if len(numbers) <= most:
        return list(numbers)
    places = np.linspace(0, len(numbers) - 1, most).round().astype(int)
    return [numbers[place] for place in dict.fromkeys(places.tolist())]
