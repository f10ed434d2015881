"""Anytime portfolio search for the Pareto frontier: resumable, independent of the requested budget.

The tasks of the search are in ``candidates``. Which there are, and what they find, depends on the
graph and its costs alone: once all are done, so does the frontier, whatever was requested before,
in which process, and how often. The requested budget decides only which tasks come first; that
matters when the time limit cuts the search.

The searches of the last few graphs are cached, so that a second budget is a look-up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from threading import Lock, RLock

from tinyckpt.base.deadline import Clock, OutOfTimeError, Pace, checked_seconds
from tinyckpt.core.costs import Costs, cost_of_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import eliminate_dead_order
from tinyckpt.planner.heuristics.budget_grid import BudgetGrid, Candidate, build_budget_grid
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget
from tinyckpt.planner.portfolio.candidates import other_tasks, quick_tasks
from tinyckpt.planner.portfolio.pareto import Frontier, Point
from tinyckpt.planner.portfolio.seeds import Checked, points_given

Progress = Callable[[str, int], None]
PORTFOLIO_SECONDS = 6.0
# Share of the time for a plan that is reserved for its lower bound and the schedule itself.
BOUND_SHARE, MOST_BOUND_SHARE = 0.1, 0.25
BOUND_SECONDS = 3e-4  # per operator
FIRST_RANK = -1, 0  # before all tasks


class Search:
    """A search for the frontier; ``points`` are the non-dominated schedules found so far."""

    def __init__(self, graph: Graph, costs: Costs) -> None:
        self.graph, self.costs = graph, costs
        self.problem = Problem(graph, costs)
        self.points: list[Point] = []
        self.tried: set[str] = set()
        self.add(
            Candidate("store_all", "every operator once", range(len(graph.operators))), FIRST_RANK
        )
        self.needed = smallest_budget(self.problem)
        self.pace = Pace()
        self.tasks = quick_tasks(self.problem, self.pace)
        self.levels: BudgetGrid | None = None  # not computed yet, nor the tasks that need them
        self.done: set[int] = set()
        self.spent = 0.0
        self.lock = RLock()  # a progress callback may plan itself

    @property
    def complete(self) -> bool:
        """Whether all tasks are done."""
        return self.levels is not None and len(self.done) == len(self.tasks)

    def add(self, candidate: Candidate, rank: tuple[int, int]) -> None:
        """Add a schedule, unless it is dominated by a known one."""
        self.tried.add(candidate.policy)
        self.points = with_point(self.points, self.point(candidate, rank))

    def point(self, candidate: Candidate, rank: tuple[int, int]) -> Point:
        """Return a schedule as a point: peak and cost, after dead code elimination."""
        evaluated = eliminate_dead_order(self.problem.flat, candidate.order)
        peak, cost = self.problem.peak(evaluated), cost_of_order(evaluated.tolist(), self.costs)
        return Point(peak, cost, candidate.policy, candidate.detail, evaluated, rank)

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
        clock = Clock(seconds)
        if not self.lock.acquire(timeout=min(seconds, MAX_LOCK_SECONDS)):
            return self.frontier()
        try:
            # Time spent waiting for another thread does not count twice.
            known = (
                budget is None
                or budget < self.needed
                or (self.levels is not None and self.holds(budget))
            )
            left = max(0.0, seconds - self.spent if known else seconds)
            before = clock.spent()
            try:
                if budget is not None and self.levels is not None:
                    self.work_at(budget, Clock(clock.left()), progress)
                self.work(Clock(min(clock.left(), left)), progress, budget)
            except (KeyboardInterrupt, OutOfTimeError):
                pass  # anytime: return the points so far; the task starts anew on the next request
            finally:
                self.spent += clock.spent() - before
            return self.frontier()
        finally:
            self.lock.release()

    def work_at(self, budget: int, deadline: Clock, progress: Progress | None) -> None:
        """Do the remaining tasks that single policies would do for one budget alone.

        Raises:
            OutOfTimeError: when the time is up.
        """
        assert self.levels is not None
        for number, rank in self.first_for(self.levels, budget):
            if rank < 2 and self.tasks[number].level is not None:
                self.do(number, deadline, progress)

    def work(self, deadline: Clock, progress: Progress | None, budget: int | None) -> None:
        """Do the remaining tasks.

        Raises:
            OutOfTimeError: when the time is up.
        """
        if self.complete:
            return
        deadline.check()
        if self.levels is None:
            for number in self.left():
                self.do(number, deadline, progress)
            levels = build_budget_grid(self.problem, deadline)
            self.tasks += other_tasks(self.problem, levels, self.pace)
            self.levels = levels
        for number, _ in self.first_for(self.levels, budget):
            self.do(number, deadline, progress)

    def do(self, number: int, deadline: Clock, progress: Progress | None) -> None:
        """Do one task."""
        for place, candidate in enumerate(self.tasks[number].attempts(deadline)):
            self.add(candidate, (number, place))
            if progress is not None:
                progress(candidate.policy, len(self.points))
            deadline.check()
        self.done.add(number)

    def holds(self, budget: int) -> bool:
        """Whether a schedule within a budget has been found."""
        return any(point.peak <= budget for point in self.points)

    def left(self) -> list[int]:
        """Return the tasks that are not done."""
        return [number for number in range(len(self.tasks)) if number not in self.done]

    def first_for(self, levels: BudgetGrid, budget: int | None) -> list[tuple[int, int]]:
        """Return the remaining tasks with ranks, those of single policies for the budget first."""
        if budget is None:
            return [(number, self.tasks[number].rank) for number in self.left()]
        level = max(0, bisect_right(levels.budgets, budget) - 1)
        urgency = {number: self.tasks[number].urgency(level) for number in self.left()}
        return [(number, urgency[number][0]) for number in sorted(urgency, key=urgency.__getitem__)]

    def frontier(self) -> Frontier:
        """Return the frontier found so far."""
        points = tuple(sorted(self.points, key=lambda point: point.peak))
        tried = () if self.complete else tuple(sorted(self.tried))
        return Frontier(self.graph, self.costs, points, self.complete, tried)


def with_point(points: list[Point], point: Point) -> list[Point]:
    """Insert a point into a Pareto set, unless it is dominated; drop the points it dominates.

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
    return [*(p for p in points if p.peak < point.peak or p.cost < point.cost), point]


# Cache of searches by graph and costs, the latest last.
_cached: list[Search] = []
_guard = Lock()
MAX_CACHED_SEARCHES = 4
MAX_LOCK_SECONDS = 1e6  # seconds; a lock accepts no infinite timeout


def search_of(graph: Graph, costs: Costs) -> Search:
    """Return the cached search for a graph and costs, or a new one."""
    with _guard:
        for search in _cached:
            if search.graph is graph and search.costs == costs:
                return search
        search = Search(graph, costs)
        _cached.append(search)
        del _cached[:-MAX_CACHED_SEARCHES]
        return search


def frontier(
    graph: Graph,
    costs: Costs,
    time_limit: float = PORTFOLIO_SECONDS,
    progress: Progress | None = None,
    budget: int | None = None,
    seeds: Iterable[Checked] = (),
) -> Frontier:
    """Search the frontier with the portfolio.

    Args:
        graph: the training graph.
        costs: of evaluations, and sizes of values.
        time_limit: seconds after which the search returns what it has, those spent on the same
            graph and costs before included.
        progress: called as ``progress(policy, points)`` after every attempt.
        budget: the requested one, if any: tasks that matter to it come first.
        seeds: schedules, and sets of forward values to save exactly. They are among the candidates,
            as far as there is time, so that the frontier is no more expensive than they are.
    """
    clock = Clock(checked_seconds(time_limit))
    search = search_of(graph, costs)
    given = points_given(graph, tuple(seeds), search.point, clock)
    reserve = reserved(graph, time_limit) if budget is not None else 0.0
    found = search.run(max(0.0, clock.left() - reserve), progress, budget)
    points = list(found.points)
    for point in given:  # not added to the cached search: other requests must not depend on seeds
        points = with_point(points, point)
    return replace(found, points=tuple(sorted(points, key=lambda point: point.peak)))


def reserved(graph: Graph, seconds: float) -> float:
    """Return the part of a plan's time limit reserved for the schedule itself and its lower bound.

    Both take some such time on a graph of thousands of operators. An infinite time limit needs no
    reserve.
    """
    if seconds == inf:
        return 0.0
    wanted = min(BOUND_SECONDS * len(graph.operators), MOST_BOUND_SHARE * seconds)
    return max(BOUND_SHARE * seconds, wanted)
