"""Anytime portfolio search for the Pareto frontier: resumable, independent of the requested budget.

The tasks of the search are in ``candidates``. Which there are, and what they find, depends on the
graph and its costs alone: once all are done, so does the frontier, whatever was requested before,
in which process, and how often. The requested budget decides only which tasks come first; that
matters when the time limit cuts the search.

A ``Search`` can be resumed. Those of the latest few graphs are kept, so that a second budget for a
graph is a look-up for callers that hold no ``Frontier``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import TIMEOUT_MAX, RLock

import numpy as np

from tinyckpt.base.deadline import Clock, OutOfTimeError, Pace
from tinyckpt.base.dtypes import Integers
from tinyckpt.planner.heuristics.budget_grid import BudgetGrid, Candidate, build_budget_grid
from tinyckpt.planner.model.cost_models import cost_of_order
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget
from tinyckpt.planner.model.plan_request import PlanRequest
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_order
from tinyckpt.planner.portfolio.candidates import other_tasks, quick_tasks
from tinyckpt.planner.portfolio.pareto import Frontier, Point
from tinyckpt.planner.portfolio.seeds import seed_points

Progress = Callable[[str, int], None]
# Seconds of a plan without a time limit. Doubled: graphs of thousands of operators get plans that
# are cheaper by up to some per cent; small ones are done before.
PORTFOLIO_SECONDS = 6.0
FIRST_RANK = -1, 0  # before all tasks
# Searches that are kept, each with its schedules; doubled: twice as many graphs planned in turn.
MAX_SEARCHES = 4


class Search:
    """A search for the frontier; ``points`` are the non-dominated schedules found so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.points: list[Point] = []
        self.tried: set[str] = set()
        once = range(len(problem.graph.operators))
        self.add(Candidate("store_all", "every operator once", once), FIRST_RANK)
        self.needed = smallest_budget(problem)
        self.pace = Pace()
        self.tasks = quick_tasks(problem, self.pace)
        self.levels: BudgetGrid | None = None  # not computed yet, nor the tasks that need them
        self.done: set[int] = set()
        self.spent = 0.0
        self.lock = RLock()  # reentrant: a progress callback may plan itself

    @property
    def complete(self) -> bool:
        """Whether all tasks are done."""
        return self.levels is not None and len(self.done) == len(self.tasks)

    def add(self, candidate: Candidate, rank: tuple[int, int]) -> None:
        """Add a schedule, unless it is dominated by a known one or in an excluded order."""
        self.tried.add(candidate.policy)
        point = self.point(candidate, rank)
        if self.admits(point):
            self.points = with_point(self.points, point)

    def admits(self, point: Point) -> bool:
        """Whether first evaluations come in build order, or need not."""
        return not self.problem.in_order or is_in_order(point.order)

    def point(self, candidate: Candidate, rank: tuple[int, int]) -> Point:
        """Return a schedule as a point: peak and cost, after dead code elimination."""
        order = eliminate_dead_order(self.problem.flat, candidate.order, self.problem.in_order)
        cost = cost_of_order(order.tolist(), self.problem.costs)
        peak = self.problem.peak(order)
        return Point(peak, cost, candidate.policy, candidate.detail, order, rank)

    def run(
        self, seconds: float, progress: Progress | None = None, budget: int | None = None
    ) -> Frontier:
        """Search until all tasks are done, the time is up, or the user interrupts.

        A search that its time limit cut resumes where it was, if it is given more. Only one thread
        searches at a time; others wait for its results, for as long as they have time.

        Args:
            seconds: the time limit. Time spent on this search before counts, but not against the
                work that single policies would do for this very budget, nor before that can be
                known, nor if nothing that was found by then is within a budget that may be
                feasible.
            progress: called as ``progress(policy, points)`` after every attempt.
            budget: the requested one: the tasks nearest to it come first.
        """
        clock, lock = Clock(seconds), self.lock
        if lock.acquire(timeout=min(seconds, TIMEOUT_MAX)):
            try:
                self.resume(clock, progress, budget)
            except (KeyboardInterrupt, OutOfTimeError):
                pass  # anytime: return the points so far; the task starts anew on the next request
            finally:
                lock.release()
        return self.frontier()

    def resume(self, clock: Clock, progress: Progress | None, budget: int | None) -> None:
        """Do the remaining tasks, as ``run`` does, once no other thread does.

        Raises:
            OutOfTimeError: when the time is up.
        """
        # Time spent waiting for another thread does not count twice.
        known = (
            budget is None
            or budget < self.needed
            or (self.levels is not None and self.has_plan_within(budget))
        )
        left = max(0.0, clock.seconds - self.spent if known else clock.seconds)
        before = clock.spent()
        try:
            if budget is not None and self.levels is not None:
                # What single policies would do for this budget alone, in any case.
                for number, rank in self.first_for(self.levels, budget):
                    if rank < 2 and self.tasks[number].level is not None:
                        self.do(number, clock, progress)
            self.work(Clock(min(clock.left(), left)), progress, budget)
        finally:
            self.spent += clock.spent() - before

    def work(self, deadline: Clock, progress: Progress | None, budget: int | None) -> None:
        """Do the remaining tasks.

        Raises:
            OutOfTimeError: when the time is up.
        """
        if self.levels is None:
            for number in self.undone():
                self.do(number, deadline, progress)
            levels = build_budget_grid(self.problem, deadline)
            self.tasks += other_tasks(self.problem, levels, self.pace)
            self.levels = levels
        for number, _ in self.first_for(self.levels, budget):
            self.do(number, deadline, progress)

    def do(self, number: int, deadline: Clock, progress: Progress | None) -> None:
        """Do one task, unless it would take longer than there is time: others may not.

        Raises:
            OutOfTimeError: when the time is up.
        """
        deadline.check()
        with suppress(OutOfTimeError):
            for place, candidate in enumerate(self.tasks[number].attempts(deadline)):
                self.add(candidate, (number, place))
                if progress is not None:
                    progress(candidate.policy, len(self.points))
                deadline.check()
            self.done.add(number)
        deadline.check()

    def has_plan_within(self, budget: int) -> bool:
        """Whether a schedule within a budget has been found."""
        return any(point.peak <= budget for point in self.points)

    def undone(self) -> list[int]:
        """Return the tasks that are not done."""
        return [number for number in range(len(self.tasks)) if number not in self.done]

    def first_for(self, levels: BudgetGrid, budget: int | None) -> list[tuple[int, int]]:
        """Return the remaining tasks with ranks, those of single policies for the budget first."""
        if budget is None:
            return [(number, self.tasks[number].rank) for number in self.undone()]
        level = max(0, bisect_right(levels.budgets, budget) - 1)
        urgency = {number: self.tasks[number].urgency(level) for number in self.undone()}
        return [(number, urgency[number][0]) for number in sorted(urgency, key=urgency.__getitem__)]

    def frontier(self) -> Frontier:
        """Return the frontier found so far."""
        tried = () if self.complete else tuple(sorted(self.tried))
        problem = self.problem
        return Frontier(problem.graph, problem.costs, tuple(self.points), self.complete, tried)


def is_in_order(order: Integers) -> bool:
    """Whether the first evaluations of operators come in build order.

    >>> is_in_order(np.array([0, 1, 0, 2])), is_in_order(np.array([0, 2, 0, 1]))
    (True, False)
    """
    first = np.unique(order, return_index=True)[1]
    return bool((np.diff(first) > 0).all())


def with_point(points: list[Point], point: Point) -> list[Point]:
    """Insert a point into a Pareto set, by peak, unless dominated; drop the points it dominates.

    Of two equal points the one of the lower rank stays, so that the order in which they were found
    does not matter.
    """
    for other in points:
        is_equal = (other.peak, other.cost) == (point.peak, point.cost)
        if (
            other.peak <= point.peak
            and other.cost <= point.cost
            and (not is_equal or other.rank <= point.rank)
        ):
            return points
    below = [other for other in points if other.peak < point.peak]
    return [*below, point, *(other for other in points if other.cost < point.cost)]


# Searches by problem, the latest last.
_latest: dict[Problem, Search] = {}


def search_of(problem: Problem) -> Search:
    """Return the search of a problem: one of the latest few, or a new one.

    Without a lock: each step is one atomic operation of a dict.
    """
    search = _latest.get(problem) or _latest.setdefault(problem, Search(problem))
    for oldest in list(_latest)[:-MAX_SEARCHES]:
        _latest.pop(oldest, None)
    return search


def renew_locks() -> None:
    """Unlock all searches in a forked process, which lacks the thread that held a lock."""
    for search in _latest.values():
        search.lock = RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=renew_locks)


def search_frontier(request: PlanRequest, progress: Progress | None = None) -> Frontier:
    """Search the frontier with the portfolio.

    Args:
        request: its deadline counts time spent on the same graph and costs before. The tasks that
            matter to its budget come first. Its seeds are among the candidates, as far as there is
            time, so that the frontier is no more expensive than they are.
        progress: called as ``progress(policy, points)`` after every attempt.
    """
    search = search_of(request.problem)
    given = seed_points(request.graph, request.seeds, search.point, request.deadline)
    found = search.run(request.seconds_to_search(), progress, request.budget)
    points = list(found.points)
    for point in filter(search.admits, given):
        points = with_point(points, point)  # not of the search: other requests do not depend on it
    return replace(found, points=tuple(points))
