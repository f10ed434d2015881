"""Levels: the budgets that planners plan for, which the graph decides and not who asks.

A planner that runs within a budget (greedy, dtr) may by chance do better in less memory than in
more. The portfolio must not. So such a planner is never asked about the budget itself, but about
the nearest of some levels below, and the portfolio asks about all levels. Then its best within a
budget is never dearer than what the planner finds for it, nor than its own best within less: it has
seen both.

In a small graph the levels are what runs take that have just enough memory, as far as they are not
too many; in a large one they are spread over all memory, and what is found at one is made to use
the room up to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import gcd
from typing import NamedTuple, TypeVar

import numpy as np

from tinyckpt.base.deadline import ENDLESS, Clock, OutOfTimeError
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.planner.heuristics.backward_order import frugal_sequence
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import by_distance
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import necessary, smallest_budget

# Runs over a graph, times its operators, that a search may take: a run takes some 20 microseconds
# an operator, so that these take a second or two. There are at most so many levels, and at least so
# few; what is left over for each goes into more ways to plan at it.
GRID_EVALUATIONS = 60_000
MOST_LEVELS, FEWEST_LEVELS = 32, 8
# Less memory costs more and more: the levels are the closer, the lower.
DENSITY = 1.5
# Operators up to which the levels are what runs of these scores take; these are about as many.
LARGEST_PROBED = 200
FAILURES = 8  # runs that fail one after another, after which there are taken to be no more
SHARES = 20
ALIKE = 1 / 256  # levels so near to each other are one
PROBES = (by_distance(0.5), by_distance(0.0))


T = TypeVar("T")


class Candidate(NamedTuple):
    """An order of evaluations, and who made it: the policy, and with which options."""

    policy: str
    detail: str
    order: Sequence[int]


class Levels(NamedTuple):
    """Budgets, ascending, all below what storing everything takes.

    Attributes:
        budgets: of each level.
        runs: ways to plan that there is time for at each.
        highest: store-all's peak.
    """

    budgets: tuple[int, ...]
    runs: int
    highest: int

    def room(self, level: int) -> int:
        """Return the largest budget that a level is the nearest for."""
        above = self.budgets[level + 1 :]
        return (above[0] if above else self.highest) - 1


def levels_of(problem: Problem, deadline: Clock = ENDLESS) -> Levels:
    """Return the levels of a graph: from what an operator takes to what storing all takes.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    graph = problem.graph
    size = max(len(graph.operators), 1)
    highest = problem.peak(range(len(graph.operators)))
    lowest = smallest_budget(problem, necessary(graph))
    most = min(max(GRID_EVALUATIONS // (4 * size), FEWEST_LEVELS), MOST_LEVELS)
    # All peaks are whole numbers of this.
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
            *just_enough(problem, lowest, highest, GRID_EVALUATIONS // (6 * size), deadline),
        }
        # People ask for such shares, and what one score has no use for another may have.
        shares = (highest * part // SHARES for part in range(1, SHARES))
        budgets.update(share for share in shares if share > lowest)
    return Levels(
        tuple(sorted(budgets)), max(1, GRID_EVALUATIONS // (size * max(len(budgets), 1))), highest
    )


def just_enough(
    problem: Problem, lowest: int, highest: int, most: int, deadline: Clock
) -> list[int]:
    """Return what runs take that have just enough memory, thinned to at most so many.

    A run within a budget would be the same within any down to what it took.
    """
    found = set()
    sequence = frugal_sequence(problem, deadline)
    for score in PROBES:
        budget, failures = highest - 1, 0
        while budget >= lowest and failures < FAILURES:
            run = Eviction(problem, budget, score, sequence, deadline=deadline)
            failures += 1
            with suppress(BudgetError):
                run.run()
                found.add(run.highest)
                failures = 0
            # What takes nearly as much is left out below; there may be thousands of them.
            budget = min(run.highest - 1, int(run.highest * (1 - ALIKE)))
    # Those that are nearly alike stand for each other; the largest of them is as good as all.
    apart: list[int] = []
    for amount in sorted(found, reverse=True):
        if not apart or amount < apart[-1] * (1 - ALIKE):
            apart.append(amount)
    return thinned(apart, most)


def cheapest(
    problem: Problem, budget: int, candidates: Iterable[Candidate]
) -> tuple[Candidate | None, int | None]:
    """Return the cheapest candidate within a budget, and the smallest peak of any; None if none.

    What has been found when the time is up is good enough.

    Raises:
        OutOfTimeError: if the time was up before one was found.
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


def nearest(
    levels: Levels, budget: int, at_level: Callable[[int], Iterable[Candidate]], problem: Problem
) -> Candidate:
    """Return the cheapest candidate within a budget of those at the nearest level below it.

    If there is none, of those at the level above that need less than it allows.

    Raises:
        BudgetError: if there is none either; with the smallest peak of the next level that has any.
        OutOfTimeError: if the time was up before one was found.
    """
    below = bisect_right(levels.budgets, budget) - 1
    smallest: int | None = None
    for level in range(max(below, 0), len(levels.budgets)):
        best, smallest = cheapest(problem, budget, at_level(level))
        if best is not None:
            return best
        if smallest is not None:
            break
    raise nothing_within(problem, levels, budget, smallest)


def nothing_within(
    problem: Problem, levels: Levels, budget: int, smallest: int | None
) -> BudgetError:
    """Return the error that names the smallest peak that was found, store-all's if none was."""
    unit = problem.costs.memory_unit
    least = levels.highest if smallest is None else smallest
    return BudgetError(
        f"nothing was found within {memory_text(budget, unit)}; the smallest peak that was found "
        f"is {memory_text(least, unit)}",
        least,
    )


def tenths(peak: int) -> list[int]:
    """Return budgets to try where none is given: from half of a peak up to all of it."""
    return [peak * tenth // 10 for tenth in range(5, 11)]


def first_that_fits(peak: int, plan: Callable[[int], Candidate], budget: int | None) -> Candidate:
    """Return what is planned for a budget; if none is given, for the first tenth that will do."""
    for room in tenths(peak) if budget is None else [budget]:
        try:
            return plan(room)
        except BudgetError:
            if budget is not None or room == peak:
                raise
    raise AssertionError("store-all is within its own peak")


def thinned(numbers: Sequence[T], most: int) -> list[T]:
    """Return at most so many, the first and the last among them, and the others evenly spread."""
    if len(numbers) <= most:
        return list(numbers)
    places = np.linspace(0, len(numbers) - 1, most).round().astype(int)
    return [numbers[place] for place in dict.fromkeys(places.tolist())]
