"""Candidate schedules of the planner portfolio: every policy on a grid of its settings.

Policies without a budget run at their default options; chain planners at all their settings; greedy
eviction and DTR at every level of memory; Rotor from its tables, and Rockmate's blocks from those
of each length; small graphs by A* over all resident sets; then greedy eviction with random weights
(random restarts). **A policy that is requested by name for a budget answers from these very
tasks**, so that the frontier of all of them is never more expensive than any single policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np

from tinyckpt.base.deadline import Clock, Pace, memoised
from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.cuts import (
    expected_length,
    nothing_to_reverse,
    residual_operators,
    segmented_order,
)
from tinyckpt.core.policies import place_cuts
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.chain_dp import chen_budget, rockmate_dp, rotor
from tinyckpt.planner.chain_dp.reversal import order_of
from tinyckpt.planner.chain_dp.revolve import geometric_grid, reversal, revolve_note, slot_grid
from tinyckpt.planner.exact.reduced_graph import reduce_problem
from tinyckpt.planner.exact.stage_astar import SearchLimitError, StageSearch
from tinyckpt.planner.heuristics import greedy
from tinyckpt.planner.heuristics.backward_order import least_growth_order
from tinyckpt.planner.heuristics.budget_grid import GRID_EVALUATIONS, BudgetGrid, Candidate
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.dtr import dtr_candidates
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import Score
from tinyckpt.planner.heuristics.greedy import SCORES
from tinyckpt.planner.model.chain_cuts import local_minimum_cuts
from tinyckpt.planner.model.chain_stages import Stages, stages
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import needed_operators, smallest_budget
from tinyckpt.planner.portfolio.forward_only import Attempts, forward_attempts
from tinyckpt.planner.portfolio.policies import POLICIES

# Policies that take no budget, the quickest of the good first: default options, and some others.
# The knapsack's budgets are spread over its range; the rules save what JAX's do without names.
DEFAULT_SETTINGS: tuple[tuple[str, dict[str, object]], ...] = (
    ("sqrt_n", {}),
    ("chen_recursive", {}),
    ("regions", {}),
    ("saveable", {}),
    ("saveable", {"rule": "dots_with_no_batch_dims_saveable"}),
    ("saveable", {"rule": "nothing_saveable"}),
    ("sqrt_n", {"by": "bytes"}),
    ("revolve", {}),
    ("knapsack", {}),
    ("knapsack", {"activation_memory_budget": 0.25}),
    ("knapsack", {"activation_memory_budget": 0.75}),
)
# Number of operators from which ``blocks`` and DTR come before greedy, whose runs take seconds.
# Doubled: graphs in between find plans for small budgets earlier, good ones later.
MIN_BLOCKS_FIRST = 1_000
# Part of the time left for a task of ``blocks`` where blocks do not repeat: their options may take
# longer than all the rest. Larger: less time for the others there.
DISTINCT_SHARE = 0.5
# Operators up to which each default policy takes under a second, so that all come first. Doubled:
# two seconds each.
LARGEST_QUICK = 5_000
# A* over all resident sets: most operators, number of budgets, most states. Doubled:
# exact plans for larger graphs, at more budgets; states grow exponentially with operators.
LARGEST_EXACT, EXACT_BUDGETS, EXACT_STATES = 32, 24, 1500
# Random restarts: rounds over the levels, and levels per round; in large graphs fewer rounds, down
# to none. Doubled: twice the restarts, in twice the time.
RESTARTS, RESTART_LEVELS = 8, 12
# Budgets at which Rotor's best plan drops recomputations. Doubled: plans nearer to each budget.
PRUNED_BUDGETS = 16


class Task(NamedTuple):
    """A part of the search: attempts, each of which yields a schedule.

    Attributes:
        attempts: yields candidates, given a clock; raises an OutOfTimeError when that has run down.
        rank: 0 for quick tasks that always pay, 1 for the work of a policy requested by name for a
            budget, 2 for refinements of that.
        level: of memory, if the task is about one.
    """

    attempts: Attempts
    rank: int
    level: int | None = None

    def urgency(self, wanted: int) -> tuple[int, int]:
        """Return the sort key of a task if one level is requested; ties keep their order."""
        if self.level is None:
            return self.rank, 0
        distance = abs(self.level - wanted)
        # The level above is tried if the level below has no plan.
        return (self.rank if self.level in (wanted, wanted + 1) else 2), distance


def quick_tasks(problem: Problem, pace: Pace) -> list[Task]:
    """Return the first tasks, which need no memory levels: the policies without a budget.

    In a large graph only the quickest of them run here, headed by the one that needs little memory.
    """
    sequence = Task(lambda clock: reordered_sequence(problem, clock), 0)
    if nothing_to_reverse(problem.graph):
        return [sequence]
    most = len(DEFAULT_SETTINGS) if len(problem.graph.operators) <= LARGEST_QUICK else 1
    first, *others = (
        Task(policy_attempt(problem, *policy, pace), 0) for policy in DEFAULT_SETTINGS[:most]
    )
    return [first, sequence, *others]


def other_tasks(problem: Problem, levels: BudgetGrid, pace: Pace) -> list[Task]:
    """Return the tasks after the quick ones, the most profitable first.

    Their analyses of the graph are lazy, done when the first of them runs: in a graph of 100,000
    operators that alone may exceed the time limit.
    """
    graph = problem.graph
    sweep = memoised(lambda clock: greedy.GreedyPlans(problem, levels, clock))
    # Planners that recompute forward values for a backward pass need one; the others do not.
    halves = not nothing_to_reverse(graph)

    def greedily(level: int) -> Attempts:
        return lambda clock: sweep(clock).at(level, clock)

    def online(level: int) -> Attempts:
        return lambda clock: dtr_candidates(problem, levels, level, deadline=clock)

    # In a forward-only graph the order matters more than what is kept.
    found = [] if halves else [Task(*attempt) for attempt in forward_attempts(problem, levels)]
    if halves and len(graph.operators) >= MIN_BLOCKS_FIRST:
        found += block_plans(problem, levels)
        found += at_levels(levels, online) + at_levels(levels, greedily)
    else:
        found += at_levels(levels, greedily, online)
        found += block_plans(problem, levels) if halves else []
    if halves:
        rotors = memoised(lambda clock: rotor.RotorPlans(problem, clock))
        if len(graph.operators) > LARGEST_QUICK:
            found += [
                Task(policy_attempt(problem, *policy, pace), 1) for policy in DEFAULT_SETTINGS[1:]
            ]
        found += [Task(attempts, 1) for attempts in chain_planners(problem)]
        found += [Task(rotor_plans(problem, rotors, share), 1) for share in rotor.HALVES]
    found.append(Task(lambda clock: astar_attempts(problem, levels, clock), 2))
    if halves:
        found.append(Task(policy_attempt(problem, "recompute_all", {}, pace), 2))
    rounds = min(RESTARTS, GRID_EVALUATIONS // (2 * RESTART_LEVELS * max(len(graph.operators), 1)))
    found += [Task(restart(problem, levels, sweep, number), 2) for number in range(rounds)]
    finer = rotor.FINER if halves else ()
    return found + [Task(rotor_plans(problem, rotors, share), 2) for share in finer]


def reordered_sequence(problem: Problem, clock: Clock) -> Iterator[Candidate]:
    """Yield the plan that evaluates every operator once, in the backward order of least memory."""
    detail = "every operator once, the backward pass reordered"
    yield Candidate("store_all", detail, least_growth_order(problem, clock))


def policy_attempt(problem: Problem, name: str, options: dict[str, object], pace: Pace) -> Attempts:
    """Return the attempt of a policy at given options; it yields none if its schedule is too long.

    Such policies check no clock: the time of earlier runs predicts whether there is time for
    another.
    """
    graph = problem.graph

    def attempts(clock: Clock) -> Iterator[Candidate]:
        is_long = name == "recompute_all"
        pace.check(clock, expected_length(graph) if is_long else len(graph.operators))
        before = clock.spent()
        try:
            schedule = POLICIES[name].plan(graph, problem.costs, **options)
        except ScheduleError:
            return
        order = [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
        pace.note(clock.spent() - before, len(order))
        yield Candidate(name, schedule.note, order)

    return attempts


def at_levels(levels: BudgetGrid, *policies: Callable[[int], Attempts]) -> list[Task]:
    """Return policies at each level of memory, coarse to fine over all levels."""
    return [
        Task(attempts(level), 1, level)
        for level in coarse_first(list(range(len(levels.budgets)))[::-1])
        for attempts in policies
    ]


def chain_planners(problem: Problem) -> Iterator[Attempts]:
    """Yield the attempts of the chain planners, each at a grid of its settings."""
    graph, costs, flat = problem.graph, problem.costs, problem.flat

    @cache
    def parts() -> Stages:
        return stages(flat, local_minimum_cuts(flat, costs))

    def revolved(clock: Clock) -> Iterator[Candidate]:
        with suppress(ScheduleError):  # too many values cross the cuts
            for slots in coarse_first(slot_grid(graph, len(parts()))):
                clock.check()
                order = order_of(parts(), reversal(len(parts()), slots))
                yield Candidate("revolve", revolve_note(len(parts()), slots), order)

    def segmented(clock: Clock) -> Iterator[Candidate]:
        read = residual_operators(graph)
        with suppress(ScheduleError):
            for segments in coarse_first(geometric_grid(len(read))[1:]):
                clock.check()
                cuts = place_cuts(graph, read, segments, [1] * len(read))
                detail = f"{counted(len(read), 'stage')} in {counted(segments, 'segment')}"
                yield Candidate("sqrt_n", detail, segmented_order(graph, cuts))

    def filled(clock: Clock) -> Iterator[Candidate]:
        with suppress(ScheduleError):
            for size, cuts in chen_budget.size_thresholds(flat, costs):
                clock.check()
                detail = f"segments of {memory_text(size, costs.memory_unit)}"
                yield Candidate("chen_budget", detail, segmented_order(graph, cuts))

    yield from (revolved, filled, segmented)


def rotor_plans(
    problem: Problem, made: Callable[[Clock], rotor.RotorPlans], share: int
) -> Attempts:
    """Return the plans of one of Rotor's tables, and the best of them pruned to a budget.

    Pruning drops recomputations that a budget has room to avoid.
    """

    def attempts(clock: Clock) -> Iterator[Candidate]:
        sweep, plans = made(clock), []
        for order, actions in sweep.plans(share, deadline=clock):
            plans.append((problem.cost_of(order), problem.peak(order), order))
            yield Candidate("rotor", sweep.note(actions), order)
        for step in range(1, PRUNED_BUDGETS):
            clock.check()
            budget = sweep.highest * step // PRUNED_BUDGETS // share
            fitting = [(cost, order) for cost, peak, order in plans if peak <= budget]
            if fitting:
                order = drop_redundant_recomputes(problem, min(fitting)[1], budget, clock)
                yield Candidate("rotor", f"{counted(len(sweep.parts), 'stage')}, pruned", order)

    return attempts


def block_plans(problem: Problem, levels: BudgetGrid) -> list[Task]:
    """Return the plans of each table of ``blocks``, as one task per interval of memory levels."""
    made = memoised(lambda clock: rockmate_dp.RockmatePlans(problem, clock))

    def attempts(which: int, half: bool, level: int) -> Attempts:
        low = levels.budgets[level] if level else 0
        high = inf if level + 1 == len(levels.budgets) else levels.budgets[level + 1]

        def plans(clock: Clock) -> Iterator[Candidate]:
            with suppress(ScheduleError):  # too many values cross the cuts
                sweep = made(clock)
                share = 1.0 if sweep.repeats(which, clock) else DISTINCT_SHARE
                yield from sweep.plans(which, half, Clock(share * clock.left()), low, high)

        return plans

    return [
        Task(attempts(which, half, level), 1, level)
        for level in coarse_first(list(range(len(levels.budgets)))[::-1])
        for which, half in rockmate_dp.SWEEPS
    ]


def astar_attempts(problem: Problem, levels: BudgetGrid, clock: Clock) -> Iterator[Candidate]:
    """Yield optimal schedules of a small graph, by A* where its states are few.

    From the smallest budget up, since less memory has fewer states: until one has too many.
    """
    if len(needed_operators(problem.graph)) > LARGEST_EXACT:
        return
    smallest = smallest_budget(problem)
    span = levels.highest - smallest
    budgets = {smallest + span * step // EXACT_BUDGETS for step in range(EXACT_BUDGETS)}
    for budget in sorted(budgets):
        clock.check()
        reduced, _ = reduce_problem(problem, budget)
        try:
            found = StageSearch(reduced, reduced.outputs).cheapest(0, None, EXACT_STATES)
        except SearchLimitError:
            return
        if found is not None:
            yield Candidate("optimal", "all states searched", reduced.original(found[1]))


def restart(
    problem: Problem, levels: BudgetGrid, made: Callable[[Clock], greedy.GreedyPlans], number: int
) -> Attempts:
    """Return a random restart: greedy eviction at some levels, with random weights per value."""

    def attempts(clock: Clock) -> Iterator[Candidate]:
        sweep, random = made(clock), Random(number)
        step = max(1, len(levels.budgets) // RESTART_LEVELS)
        for level in range(number % step, len(levels.budgets), step):
            score = random_score(random, len(problem.graph.data))
            _, _, sequence, anchors = sweep.settings[random.randrange(min(2, len(sweep.settings)))]
            if not sweep.is_feasible(level, clock):
                continue
            budget = levels.budgets[level]
            try:
                order = Eviction(problem, budget, score, sequence, anchors, clock).run()
            except BudgetError:
                continue
            detail = f"evicted with random weights, round {number + 1}"
            yield Candidate(
                "greedy", detail, drop_redundant_recomputes(problem, order, budget, clock)
            )

    return attempts


def random_score(random: Random, count: int) -> Score:
    """Return an eviction heuristic multiplied by a random weight for each of ``count`` values."""
    spread = random.choice((0.1, 0.3, 0.6, 1.0))
    weights = np.array([random.lognormvariate(0.0, spread) for _ in range(count)])
    score = SCORES[random.choice(list(SCORES))]
    return Score(score.cost, lambda run, data: score.divisor(run, data) / weights[data])


def coarse_first(numbers: Sequence[int]) -> list[int]:
    """Reorder numbers coarse to fine: every prefix is spread over the whole sequence.

    >>> coarse_first([1, 2, 3, 4, 5, 6, 7, 8, 9])
    [1, 9, 5, 3, 7, 2, 4, 6, 8]
    """
    places: dict[int, None] = {}
    for step in (8, 4, 2, 1):
        places.update(dict.fromkeys(range(0, len(numbers), step)))
    return [numbers[place] for place in places]
