"""Greedy: run in too little memory knowing the future; then take back what was not needed.

For graphs of any shape and size. Whenever there is no room, the resident value goes that is
cheapest to recompute for the memory and the time it frees: cost / (memory x distance^g), where the
distance is how many operators later it is read, and g weighs it. Then, dearest first, every
recomputation is struck out that the true peak can do without. Several g are tried, and two orders
of the backward half; the cheapest result is the plan.

A separator that no backward operator reads, such as the residual stream of a transformer, is worth
keeping for what can be recomputed from it. Every attempt is made with and without such anchors.

Eviction by next use is L. Belady's, "A study of replacement algorithms for a virtual-storage
computer", 1966; weighing by cost and size as in DTR, which does not know the future.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from tinyckpt.base.deadline import DEFAULT_SECONDS, ENDLESS, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import anchors_of
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order, kept_values
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.backward_order import frugal_sequence
from tinyckpt.planner.heuristics.budget_grid import (
    Candidate,
    Levels,
    first_that_fits,
    levels_of,
    nearest,
)
from tinyckpt.planner.heuristics.drop_recomputes import pruned
from tinyckpt.planner.heuristics.dtr import entangled_cost
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import Score, by_distance
from tinyckpt.planner.model.liveness import Problem

Setting = tuple[str, Score, Sequence[int], bool]
SETTINGS_BEFORE_GIVING_UP = 4  # settings to be tried before a level is given up
BISECTIONS = 5  # between the lowest level that has a plan and the one below
# A run is given up once it recomputes for so many times what the best plan of the level does.
# Pruning strikes out some 40 % of such runs, so none of them would end as the best. Without anchors
# the run of a transformer is 36,632 evaluations for 9,880 operators, 255,909 for 29,704.
HOPELESS = 4.0
FINEST = 64  # budgets, about, for which the best plan of a level is made to use the room above it


SCORES: dict[str, Score] = {
    "cost / (memory sqrt(distance))": by_distance(0.5),
    "cost / memory": by_distance(0.0),
    "cost / (memory distance)": by_distance(1.0),
    "entangled cost / memory": by_distance(0.0, entangled_cost),
    "entangled cost / (memory sqrt(distance))": by_distance(0.5, entangled_cost),
}


class GreedyPlans:
    """Greedy plans of one graph, at any level of memory.

    Attributes:
        problem, levels: what is planned, and for which budgets.
        settings: the ways to plan at a level, the more promising first: as many as there is time
            for, and where there are anchors at least one with and one without.
        has_plan: of levels that were tried, whether one was found.
    """

    def __init__(self, problem: Problem, levels: Levels, deadline: Clock = ENDLESS) -> None:
        self.problem, self.levels = problem, levels
        settings = settings_of(problem, deadline)
        modes = len({anchors for *_, anchors in settings})
        self.settings = settings[: max(levels.runs, modes)]
        self.has_plan: dict[int, bool] = {}

    def at(self, level: int, deadline: Clock = ENDLESS) -> Iterator[Candidate]:
        """Yield plans for the budget of a level, and for others between it and the next.

        Those use the room up to the next level; and if this is the lowest level that has a plan,
        some are for less.

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
        parts = FINEST // max(len(self.levels.budgets), 1)
        for part in range(1, parts + 1):
            deadline.check()
            roomy = pruned(problem, order, budget + (room - budget) * part // parts, deadline)
            yield self.candidate(label, roomy)
        if level and not self.is_feasible(level - 1, deadline):
            yield from self.lowest(self.levels.budgets[level - 1], budget, deadline)

    def plans(self, budget: int, deadline: Clock) -> Iterator[tuple[float, str, list[int]]]:
        """Yield costs, labels and orders within a budget, by as many settings as there is time for.

        Where none of the first few leads to a plan, others hardly ever do, and are left out.
        """
        has_plan = False
        for some in (
            self.settings[:SETTINGS_BEFORE_GIVING_UP],
            self.settings[SETTINGS_BEFORE_GIVING_UP:],
        ):
            for entry in greedy_orders(self.problem, budget, some, deadline):
                has_plan = True
                yield entry
            if not has_plan:
                return

    def lowest(self, low: int, high: int, deadline: Clock) -> Iterator[Candidate]:
        """Yield plans for the smallest budgets that have any, of those between two."""
        for _ in range(BISECTIONS):
            middle, has_plan = (low + high) // 2, False
            for _, label, order in self.plans(middle, deadline):
                has_plan = True
                yield self.candidate(label, order)
            low, high = (low, middle) if has_plan else (middle, high)

    def is_feasible(self, level: int, deadline: Clock) -> bool:
        """Whether there is a plan at a level."""
        if level not in self.has_plan:
            self.has_plan[level] = any(
                True for _ in self.plans(self.levels.budgets[level], deadline)
            )
        return self.has_plan[level]

    def candidate(self, label: str, order: list[int]) -> Candidate:
        """Return a plan with what is said of it."""
        recomputed = len(order) - len(self.problem.graph.operators)
        return Candidate("greedy", f"{recomputed} recomputations, evicted by {label}", order)


def sequences_of(problem: Problem, deadline: Clock = ENDLESS) -> list[list[int]]:
    """Return the orders of a graph's operators that planners begin with, each once."""
    stored, frugal = list(range(len(problem.graph.operators))), frugal_sequence(problem, deadline)
    return [frugal] if frugal == stored else [frugal, stored]


def settings_of(problem: Problem, deadline: Clock = ENDLESS) -> list[Setting]:
    """Return label, score, sequence, and whether with anchors: the more promising first."""
    modes = [False, True] if anchors_of(problem.graph) else [False]
    names, sequences = list(SCORES), sequences_of(problem, deadline)
    return [
        (f"{name}, with anchors" if anchors else name, SCORES[name], sequence, anchors)
        for some in (names[:3], names[3:])
        for sequence in sequences
        for name in some
        for anchors in modes
    ]


def greedy_orders(
    problem: Problem, budget: int, settings: Sequence[Setting], deadline: Clock = ENDLESS
) -> Iterator[tuple[float, str, list[int]]]:
    """Yield costs, labels and orders within the budget, for some settings; with anchors first.

    What gets hopelessly dearer than the best of those before is left out.
    """
    once = float(problem.cost.sum())
    dearest = inf
    for label, score, sequence, anchors in sorted(settings, key=lambda setting: not setting[3]):
        try:
            order = Eviction(problem, budget, score, sequence, anchors, deadline, dearest).run()
        except BudgetError:
            continue
        order = pruned(problem, order, budget, deadline)
        cost = problem.cost_of(order)
        dearest = min(dearest, once + HOPELESS * (cost - once))
        yield cost, label, order


def plan_greedy(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Evict with foresight, then strike out recomputations that are not needed.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible. What is planned is the
            nearest level of memory below (see ``levels``).
        time_limit: seconds after which the best so far is returned.

    Raises:
        BudgetError: if none of the attempts stays within the budget; with the smallest peak of
            those that do not.
        OutOfTimeError: if the time is up before there is any.
    """
    deadline = Clock(checked_seconds(time_limit))
    problem = Problem(graph, costs)
    levels = levels_of(problem, deadline)
    sweep = GreedyPlans(problem, levels, deadline)

    def planned(room: int) -> Candidate:
        for sequence in sequences_of(problem)[::-1]:
            if problem.peak(sequence) <= room:
                return Candidate("greedy", "nothing is evicted", sequence)
        return nearest(levels, room, lambda level: sweep.at(level, deadline), problem)

    best = first_that_fits(levels.highest, planned, budget)
    kept = kept_values(graph, best.order)
    return from_order(graph, best.order, "greedy", {}, best.detail, kept)


GREEDY = Policy(
    "greedy",
    plan_greedy,
    "evict with foresight by cost / (memory x distance), then undo what need not be",
    "a heuristic; the one to beat on large graphs",
    "up to 20 runs, each O(n k log n) with k operators evicted around a value",
    "Belady 1966 and Kirisame et al. 2021, with liveness checked exactly",
)
