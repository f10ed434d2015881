"""The search for the frontier: the portfolio of policies, at settings that no budget decides.

First the planners for chains at all their settings; then, at a fixed grid of budgets, the greedy
planner by several scores; Rotor at all levels of memory; the greedy planner with random weights.
The searches of the last few graphs are kept, so that a second budget is a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isnan
from random import Random
from time import perf_counter

import numpy as np

from tinyckpt.analysis.bounds import necessary, smallest_budget
from tinyckpt.analysis.chains import advances
from tinyckpt.analysis.liveness import Problem
from tinyckpt.analysis.stages import cheap_cuts, stages, useful_cuts
from tinyckpt.cost import Costs
from tinyckpt.errors import BudgetError, ScheduleError
from tinyckpt.exact.reduced import reduce_problem
from tinyckpt.exact.search import SearchLimitError, StageSearch
from tinyckpt.graph import Graph
from tinyckpt.orders.backward import frugal_program, reordered, translated
from tinyckpt.orders.eviction import Eviction, Score, anchors_of
from tinyckpt.orders.lowering import without_dead
from tinyckpt.orders.retaining import retaining_order
from tinyckpt.orders.reversal import nothing_to_reverse, order_of
from tinyckpt.orders.segments import segmented_order, stages_of
from tinyckpt.planning.points import Frontier, Point
from tinyckpt.policies import chen_budget, rotor
from tinyckpt.policies.chen_recursive import recursive_actions
from tinyckpt.policies.greedy import SCORES, pruned
from tinyckpt.policies.revolve import revolve_actions
from tinyckpt.policies.sqrt_n import place_cuts
from tinyckpt.units import counted, memory_text

# Budgets that plans are made for, as shares of store-all's peak; the coarse ones first.
GRID = [k / 16 for k in (8, 12, 4, 10, 6, 14, 2, 7, 9, 5, 11, 3, 13, 15)]
FINE_GRID = [k / 32 for k in range(31, 2, -2)]
LARGEST_EVICTED = 6000  # operators; beyond, running with eviction takes minutes
LONGEST = 600_000  # advances of a plan by Revolve; few slots on a long chain need more
LARGEST_QUADRATIC = 400  # forward operators up to which recompute-all is tried
ROTOR_STAGES, ROTOR_LEVELS = 200, 256
MAIN_SCORES, OTHER_SCORES = list(SCORES)[:3], list(SCORES)[3:]
# Of graphs so small, all states are searched at so many budgets, while they are not more than that.
LARGEST_EXACT, EXACT_BUDGETS, EXACT_STATES, EXACT_FAILURES = 32, 24, 1500, 2
RESTARTS = 8  # rounds over the grid with random weights
Progress = Callable[[str, int], None]


class Search:
    """A search for the frontier; ``points`` holds what it has found so far."""

    def __init__(self, graph: Graph, costs: Costs) -> None:
        self.graph, self.costs = graph, costs
        self.problem = Problem(graph, costs)
        self.stored = list(range(len(graph.operators)))
        self.points: list[Point] = []
        self.add("store_all", "every operator once", self.stored)
        self.largest = self.points[0].peak
        self.smallest = smallest_budget(self.problem, necessary(graph))
        self.remaining = self.attempts()
        self.spent, self.complete = 0.0, False

    def add(self, policy: str, detail: str, order: list[int]) -> None:
        """Note a schedule, unless another one is no dearer and has no higher peak."""
        evaluated = np.asarray(without_dead(self.graph, order), np.int64)
        peak, cost = self.problem.peak(evaluated), self.problem.cost_of(evaluated)
        if any(point.peak <= peak and point.cost <= cost for point in self.points):
            return
        self.points = [p for p in self.points if p.peak < peak or p.cost < cost]
        self.points.append(Point(peak, cost, policy, detail, evaluated))

    def run(self, time_limit: float, progress: Progress | None = None) -> Frontier:
        """Search until all is tried, the time is up, or someone interrupts.

        A search that its time limit cut goes on where it was, if it is given more.
        """
        begin = perf_counter() - self.spent
        try:
            while not self.complete and perf_counter() - begin < time_limit:
                attempt = next(self.remaining, None)
                if attempt is None:
                    self.complete = True
                    break
                self.add(*attempt)
                if progress is not None:
                    progress(attempt[0], len(self.points))
        except KeyboardInterrupt:
            self.remaining = self.attempts()  # an interrupted generator is at its end
        self.spent = max(self.spent, perf_counter() - begin)
        points = tuple(sorted(self.points, key=lambda point: point.peak))
        return Frontier(self.graph, self.costs, points, self.complete)

    def attempts(self) -> Iterator[tuple[str, str, list[int]]]:
        """Yield schedules: policy, detail, order of evaluations; what pays most first."""
        if nothing_to_reverse(self.graph):
            return
        program = frugal_program(self.problem)
        yield "store_all", "every operator once, the backward half reordered", program
        yield from self.chains()
        if len(self.stored) > LARGEST_EVICTED:
            return
        # With anchors or without: what is better at the first budget comes first at the others.
        modes = [False, True] if anchors_of(self.problem) else [False]
        modes.sort(key=lambda anchors: self.greedy_cost(program, anchors))
        first, *other = modes
        yield from self.evictions(GRID, MAIN_SCORES[:1], program, first)
        yield from self.rotors(program)
        yield from self.evictions(GRID, MAIN_SCORES[1:], program, first)
        yield from self.exact()
        yield from self.restarts(program, first)
        yield from self.evictions(FINE_GRID, MAIN_SCORES, program, first)
        yield from self.evictions(GRID, MAIN_SCORES, self.stored, first)
        yield from self.evictions(GRID, OTHER_SCORES, program, first)
        for anchors in other:
            yield from self.evictions(GRID, MAIN_SCORES, program, anchors)

    def greedy_cost(self, program: list[int], anchors: bool) -> float:
        """Return the cost of a greedy plan at the first budget of the grid that has one."""
        for budget in self.budgets(GRID):
            for name in MAIN_SCORES:
                try:
                    run = Eviction(self.problem, budget, SCORES[name], program, anchors)
                    return self.problem.cost_of(run.run())
                except BudgetError:
                    continue
        return inf

    def chains(self) -> Iterator[tuple[str, str, list[int]]]:
        """Yield what the planners for chains make, at every setting worth trying."""
        graph, costs = self.graph, self.costs
        flat = self.problem.flat
        parts = stages(flat, cheap_cuts(flat, costs))
        for slots in coarse_first(steps_up_to(len(parts))):
            if advances(len(parts), slots) > LONGEST:
                continue
            order = order_of(parts, revolve_actions(len(parts), slots))
            detail = f"{len(parts)} stages from {counted(slots, 'slot')}"
            yield "revolve", detail, order
        read = stages_of(graph)
        for segments in coarse_first(steps_up_to(len(read))[1:]):
            cuts = place_cuts(flat, read, segments, [1] * len(read))
            order = segmented_order(graph, cuts)
            yield "sqrt_n", f"{len(read)} stages in {segments} segments", order
        for size, cuts in chen_budget.candidates(flat, costs):
            detail = f"segments of {memory_text(size, costs.memory_unit)}"
            yield "chen_budget", detail, segmented_order(graph, cuts)
        for k in (1, 2, 3, 5, 8):
            order = order_of(parts, recursive_actions(len(parts), k))
            yield "chen_recursive", f"{k} kept at every level", order
        if graph.forward_count <= LARGEST_QUADRATIC:
            yield "recompute_all", "nothing kept", retaining_order(graph, (), reuse=False)

    def exact(self) -> Iterator[tuple[str, str, list[int]]]:
        """Yield the cheapest schedules of a small graph, where its states are few enough to see.

        From the smallest budget up, since less memory has fewer states.
        """
        if len(necessary(self.graph)) > LARGEST_EXACT:
            return
        span, failures = self.largest - self.smallest, 0
        budgets = {self.smallest + span * step // EXACT_BUDGETS for step in range(EXACT_BUDGETS)}
        for budget in sorted(budgets):
            reduced, _ = reduce_problem(self.problem, budget)
            try:
                found = StageSearch(reduced, reduced.outputs).cheapest(0, None, EXACT_STATES)
            except SearchLimitError:
                failures += 1
                if failures == EXACT_FAILURES:
                    return
                continue
            if found is not None:
                yield "optimal", "all states searched", reduced.original(found[1])

    def budgets(self, shares: list[float]) -> list[int]:
        """Return the budgets of some shares, as far as they may be feasible."""
        return [b for b in (int(share * self.largest) for share in shares) if b >= self.smallest]

    def evictions(
        self, shares: list[float], scores: list[str], program: list[int], anchors: bool
    ) -> Iterator[tuple[str, str, list[int]]]:
        """Yield greedy plans at some budgets, by some scores."""
        for budget in self.budgets(shares):
            for name in scores:
                detail = f"evicted by {name}{', with anchors' if anchors else ''}"
                for order in self.evicted(budget, SCORES[name], program, anchors):
                    yield "greedy", detail, order

    def evicted(
        self, budget: int, score: Score, program: list[int], anchors: bool
    ) -> Iterator[list[int]]:
        """Yield one greedy plan, if it fits; pruned, if it may then be of use."""
        try:
            order = Eviction(self.problem, budget, score, program, anchors).run()
        except BudgetError:
            return
        known = min((p.cost for p in self.points if p.peak <= budget), default=inf)
        if self.problem.cost_of(order) <= 1.2 * known:
            order = pruned(self.problem, order, budget)
        yield order

    def rotors(self, program: list[int]) -> Iterator[tuple[str, str, list[int]]]:
        """Yield Rotor's plans for all levels of memory, and at the grid without what is spare."""
        graph = reordered(self.graph, program)
        costs = Costs(
            tuple(self.costs.operators[index] for index in program),
            self.costs.data,
            tuple(self.costs.workspace[index] for index in program),
            self.costs.unit,
            self.costs.memory_unit,
        )
        problem = Problem(graph, costs)
        parts = stages(problem.flat, useful_cuts(problem.flat, costs, ROTOR_STAGES))
        found = []
        for order, _ in rotor.candidates(problem, parts, self.largest, ROTOR_LEVELS):
            plan = translated(order, program)
            found.append((self.problem.peak(plan), plan))
            yield "rotor", f"{len(parts)} stages", plan
        for budget in self.budgets(GRID):
            fitting = [(self.problem.cost_of(plan), plan) for peak, plan in found if peak <= budget]
            if fitting:
                yield (
                    "rotor",
                    f"{len(parts)} stages, pruned",
                    pruned(self.problem, min(fitting)[1], budget),
                )

    def restarts(self, program: list[int], anchored: bool) -> Iterator[tuple[str, str, list[int]]]:
        """Yield greedy plans whose scores are multiplied by random weights, one a value."""
        random = Random(0)
        for number in range(RESTARTS):
            for budget in self.budgets(GRID):
                score = random_score(random, len(self.graph.data))
                for order in self.evicted(budget, score, program, anchored):
                    yield "greedy", f"evicted with random weights, round {number + 1}", order

    def at(self, budget: int) -> Iterator[tuple[str, str, list[int]]]:
        """Yield plans for one budget, without end: what a long search for one plan is made of."""
        random = Random(0)
        programs = (frugal_program(self.problem), self.stored)
        for program in programs:
            for name, score in SCORES.items():
                for anchors in (False, True):
                    for order in self.evicted(budget, score, program, anchors):
                        yield "greedy", f"evicted by {name}", order
        while True:
            score, anchors = random_score(random, len(self.graph.data)), random.random() < 0.5
            for order in self.evicted(budget, score, programs[0], anchors):
                yield "greedy", "evicted with random weights", order


def random_score(random: Random, count: int) -> Score:
    """Return a score that is multiplied by a random weight for each of ``count`` values."""
    spread = random.choice((0.1, 0.3, 0.6, 1.0))
    weights = [random.lognormvariate(0.0, spread) for _ in range(count)]
    score = SCORES[random.choice(list(SCORES))]
    weights_of = np.array(weights)
    return Score(score.cost, lambda run, data: score.divisor(run, data) / weights_of[data])


def steps_up_to(count: int) -> list[int]:
    """Return numbers from 1 to ``count``: all of the small ones, fewer and fewer of the large."""
    numbers = []
    number = 1
    while number < count:
        numbers.append(number)
        number = max(number + 1, round(number * 1.08))
    return [*numbers, max(count, 1)]


def coarse_first(numbers: list[int]) -> list[int]:
    """Return the numbers in an order in which any beginning is spread over all of them.

    >>> coarse_first([1, 2, 3, 4, 5, 6, 7, 8, 9])
    [1, 9, 5, 3, 7, 2, 4, 6, 8]
    """
    places: dict[int, None] = {}
    for step in (8, 4, 2, 1):
        places.update(dict.fromkeys(range(0, len(numbers), step)))
    return [numbers[place] for place in places]


# Searches by graph and costs, the latest last: a second budget for the same graph is a look-up, and
# is monotone with the first even if the time limit cut the search.
_known: list[Search] = []
MOST_KNOWN = 4


def frontier(
    graph: Graph,
    costs: Costs,
    time_limit: float = 6.0,
    progress: Progress | None = None,
) -> Frontier:
    """Return the frontier that the portfolio finds.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        time_limit: seconds after which the search returns what it has, those spent on the same
            graph and costs before included.
        progress: called as ``progress(policy, points)`` after every attempt.
    """
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or time_limit < 0:
        raise ScheduleError(f"time_limit={time_limit!r}; it must be a number of seconds, 0 or more")
    if isnan(time_limit):
        raise ScheduleError("time_limit is NaN; it must be a number of seconds, 0 or more")
    for search in _known:
        if search.graph is graph and search.costs == costs:
            return search.run(time_limit, progress)
    search = Search(graph, costs)
    _known.append(search)
    del _known[:-MOST_KNOWN]
    return search.run(time_limit, progress)
