"""Greedy offline eviction (Belady with costs), then redundant recomputation elimination.

For graphs of any shape and size. When memory is full, the resident value with the lowest cost /
(memory x distance^g) is evicted, where the distance is the number of operators until its next use,
and g weighs it. Then recomputations are dropped, the most expensive first, as far as the exact peak
allows (``drop_recomputes``). Several g are tried, and two orders of the backward pass; the cheapest
result is the plan.

A separator that no backward operator reads, such as the residual stream of a transformer, may be
worth keeping as a checkpoint. Every attempt is made with and without such anchors.

Eviction by next use is L. Belady's, "A study of replacement algorithms for a virtual-storage
computer", 1966; weighting by cost and size as in DTR, which does not know the future.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from tinyckpt.base.deadline import DEFAULT_SECONDS, NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.backward_order import least_growth_order
from tinyckpt.planner.heuristics.budget_grid import (
    BudgetGrid,
    Candidate,
    build_budget_grid,
    first_feasible,
    plan_at_nearest_level,
)
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.dtr import entangled_cost
from tinyckpt.planner.heuristics.eviction import Eviction, unread_separators
from tinyckpt.planner.heuristics.eviction_heuristics import Score, by_distance
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.vectorised_lowering import lower

Setting = tuple[str, Score, Sequence[int], bool]
# Bisection steps between the lowest feasible level and the one below; each halves the gap to the
# smallest feasible budget, for up to as many runs as there are settings.
BISECTIONS = 5
# A run is given up once its recomputation cost is this multiple of the best plan's at the level.
# Dropping redundant recomputations removes some 40 % of such runs, so none of them would become the
# best. Without anchors the run of a transformer is 36,632 evaluations for 9,880 operators, 255,909
# for 29,704. Larger: fewer runs are given up, more slowly.
MAX_RECOMPUTE_RATIO = 4.0
# Budgets, shared among the levels, for which the best plan of a level is extended into the memory
# up to the next level. Larger: a finer frontier, more slowly.
GAP_BUDGETS = 64


SCORES: dict[str, Score] = {
    "cost / (memory sqrt(distance))": by_distance(0.5),
    "cost / memory": by_distance(0.0),
    "cost / (memory distance)": by_distance(1.0),
    "entangled cost / memory": by_distance(0.0, entangled_cost),
    "entangled cost / (memory sqrt(distance))": by_distance(0.5, entangled_cost),
}


class GreedyPlans:
    """Greedy plans of one problem, at every level of a budget grid.

    Attributes:
        problem, levels: the problem, and the budget grid.
        settings: the settings tried at each level, the most promising first: as many as there is
            time for, and where there are anchors at least one with and one without.
        has_plan: for each level tried, whether a plan was found.
    """

    def __init__(self, problem: Problem, levels: BudgetGrid, deadline: Clock = NO_DEADLINE) -> None:
        self.problem, self.levels = problem, levels
        settings = greedy_settings(problem, deadline)
        modes = len({anchors for *_, anchors in settings})
        self.settings = settings[: max(levels.runs, modes)]
        self.has_plan: dict[int, bool] = {}

    def at(self, level: int, deadline: Clock = NO_DEADLINE) -> Iterator[Candidate]:
        """Yield plans for the budget of a level, and for budgets between it and the next level.

        The latter use the memory up to the next level. At the lowest feasible level, plans for
        smaller budgets follow.

        Raises:
            OutOfTimeError: if the deadline has passed.
        """
        budget, problem = self.levels.budgets[level], self.problem
        found: list[tuple[float, str, list[int]]] = []
        for entry in self.plans(budget, deadline):
            found.append(entry)
            self.has_plan[level] = True
            yield self.candidate(*entry[1:])
        if not found:
            self.has_plan[level] = False
            return
        _, label, order = min(found)
        room = self.levels.room(level)
        parts = GAP_BUDGETS // max(len(self.levels.budgets), 1)
        for part in range(1, parts + 1):
            deadline.check()
            roomy = drop_redundant_recomputes(
                problem, order, budget + (room - budget) * part // parts, deadline
            )
            yield self.candidate(label, roomy)
        if level and not self.is_feasible(level - 1, deadline):
            yield from self.lowest(self.levels.budgets[level - 1], budget, deadline)

    def plans(self, budget: int, deadline: Clock) -> Iterator[tuple[float, str, list[int]]]:
        """Yield cost, label and order of plans within a budget, one per successful setting."""
        return greedy_orders(self.problem, budget, self.settings, deadline)

    def lowest(self, low: int, high: int, deadline: Clock) -> Iterator[Candidate]:
        """Yield plans for the smallest feasible budgets between two, by bisection."""
        for _ in range(BISECTIONS):
            middle, has_plan = (low + high) // 2, False
            for _, label, order in self.plans(middle, deadline):
                has_plan = True
                yield self.candidate(label, order)
            low, high = (low, middle) if has_plan else (middle, high)

    def is_feasible(self, level: int, deadline: Clock) -> bool:
        """Whether greedy finds a plan at a level. Memoised."""
        if level not in self.has_plan:
            self.has_plan[level] = any(
                True for _ in self.plans(self.levels.budgets[level], deadline)
            )
        return self.has_plan[level]

    def candidate(self, label: str, order: list[int]) -> Candidate:
        """Describe a plan: its recomputations and the score that evicted."""
        recomputed = len(order) - len(self.problem.graph.operators)
        again = counted(recomputed, "recomputation")
        return Candidate("greedy", f"{again}, evicted by {label}", order)


def initial_sequences(problem: Problem, deadline: Clock = NO_DEADLINE) -> list[list[int]]:
    """Return the initial sequences: memory-frugal order and build order, if they differ."""
    stored = list(range(len(problem.graph.operators)))
    frugal = least_growth_order(problem, deadline)
    return [frugal] if frugal == stored else [frugal, stored]


def greedy_settings(problem: Problem, deadline: Clock = NO_DEADLINE) -> list[Setting]:
    """Enumerate the settings (label, score, sequence, with anchors), the most promising first."""
    modes = [False, True] if unread_separators(problem.graph) else [False]
    names, sequences = list(SCORES), initial_sequences(problem, deadline)
    return [
        (f"{name}, with anchors" if anchors else name, SCORES[name], sequence, anchors)
        for some in (names[:3], names[3:])
        for sequence in sequences
        for name in some
        for anchors in modes
    ]


def greedy_orders(
    problem: Problem, budget: int, settings: Sequence[Setting], deadline: Clock = NO_DEADLINE
) -> Iterator[tuple[float, str, list[int]]]:
    """Yield cost, label and order within the budget, one per setting; with anchors first.

    Runs that become far more expensive than the best before are given up and yield nothing.
    """
    once = float(problem.cost.sum())
    cost_limit = inf
    for label, score, sequence, anchors in sorted(settings, key=lambda setting: not setting[3]):
        try:
            order = Eviction(problem, budget, score, sequence, anchors, deadline, cost_limit).run()
        except BudgetError:
            continue
        order = drop_redundant_recomputes(problem, order, budget, deadline)
        cost = problem.cost_of(order)
        cost_limit = min(cost_limit, once + MAX_RECOMPUTE_RATIO * (cost - once))
        yield cost, label, order


def plan_greedy(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Evict by next use, cost and size, then drop redundant recomputations.

    Args:
        graph: the training graph.
        costs: costs of evaluations and sizes of values.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next feasible tenth of it. The plan is for the nearest level of
            the budget grid below (see ``budget_grid``).
        time_limit: seconds after which the best plan so far is returned.

    Raises:
        BudgetError: if no attempt stays within the budget; with the smallest peak found.
        OutOfTimeError: if the time limit passed before a plan was found.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(16)
    >>> trace = tc.replay(tc.plan(graph, "greedy", budget="9 nodes"))
    >>> trace.peak_nodes, trace.evaluations
    (9, 42)
    """
    deadline = Clock(checked_seconds(time_limit))
    problem = problem_of(graph, costs)
    levels = build_budget_grid(problem, deadline)
    sweep = GreedyPlans(problem, levels, deadline)

    def planned(room: int) -> Candidate:
        for sequence in initial_sequences(problem)[::-1]:
            if problem.peak(sequence) <= room:
                return Candidate("greedy", "nothing is evicted", sequence)
        return plan_at_nearest_level(levels, room, lambda level: sweep.at(level, deadline), problem)

    best = first_feasible(levels.highest, planned, budget)
    return lower(graph, best.order, "greedy", {}, best.detail)


GREEDY = Policy(
    "greedy",
    plan_greedy,
    "evict by next use, cost / (memory x distance); then drop redundant recomputations",
    "a heuristic; the one to beat on large graphs",
    "up to 20 runs, each O(n k log n) with k operators evicted around a value",
    "Belady 1966 and Kirisame et al. 2021, with liveness checked exactly",
)
