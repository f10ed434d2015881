"""The tasks of the portfolio: what every policy makes of a graph, at settings no budget decides.

The planners that take no budget, as they are; those for chains at all their settings; greedy and
dtr at all levels of memory; Rotor from its two tables, and blocks from those of each length; all
states of a small graph; the greedy planner with random weights. **A policy that is asked by its
name for a budget answers from one of these very tasks**, so that the frontier of all of them is
never dearer than any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np

from tinyckpt.base.deadline import Clock, Pace, made_once
from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.cuts import expected_length
from tinyckpt.core.policies import place_cuts
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.chain_dp import chen_budget, rotor
from tinyckpt.planner.chain_dp import rockmate_dp as blocks
from tinyckpt.planner.chain_dp.chen_recursive import recursive_actions
from tinyckpt.planner.chain_dp.reversal import nothing_to_reverse, order_of
from tinyckpt.planner.chain_dp.revolve import noted, reversal, slots_tried, steps_up_to
from tinyckpt.planner.chain_dp.segments import read_on_the_way_back, segmented_order
from tinyckpt.planner.exact.reduced_graph import reduce_problem
from tinyckpt.planner.exact.stage_astar import SearchLimitError, StageSearch
from tinyckpt.planner.heuristics import greedy
from tinyckpt.planner.heuristics.backward_order import frugal_sequence
from tinyckpt.planner.heuristics.budget_grid import GRID_EVALUATIONS, Candidate, Levels
from tinyckpt.planner.heuristics.drop_recomputes import pruned
from tinyckpt.planner.heuristics.dtr import dtr_at
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import Score
from tinyckpt.planner.heuristics.greedy import SCORES
from tinyckpt.planner.model.chain_stages import Stages, cheap_cuts, stages
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import necessary, smallest_budget
from tinyckpt.planner.portfolio.forward_only import forward_attempts
from tinyckpt.planner.portfolio.policies import POLICIES

# Policies that take no budget, the quickest of the good first: what they make by default, and with
# some options. The shares of the knapsack spread over all of it; the rules save what JAX's do
# without names.
AS_THEY_ARE: tuple[tuple[str, dict[str, object]], ...] = (
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
# Operators from which ``blocks`` comes before greedy, whose runs take seconds there.
FEWEST_BLOCKS_FIRST = 1_000
LARGEST_QUICK = 5_000  # operators, up to which each of them takes a fraction of a second
RECURSIONS = (2, 3, 5, 8)
# Of graphs so small, all states are searched at so many budgets, while they are not more than that.
LARGEST_EXACT, EXACT_BUDGETS, EXACT_STATES, EXACT_FAILURES = 32, 24, 1500, 2
# Rounds over the levels with random weights; in large graphs fewer, down to none.
RESTARTS, RESTART_LEVELS = 8, 12
PRUNED_BUDGETS = 16  # at which Rotor's best is made to use what room there is

Attempts = Callable[[Clock], Iterator[Candidate]]


class Task(NamedTuple):
    """A part of the search: attempts, each a schedule.

    Attributes:
        attempts: yields them, given a clock; it raises an OutOfTimeError when that has run down.
        rank: 0 for what is quick and always worth it, 1 for what a policy does when it is asked
            by its name for a budget, 2 for what refines that.
        level: of memory, if the task is about one.
    """

    attempts: Attempts
    rank: int
    level: int | None = None

    def urgency(self, wanted: int) -> tuple[int, int]:
        """Return what tasks are sorted by if one level is asked for; ties stay as they were."""
        if self.level is None:
            return self.rank, 0
        distance = abs(self.level - wanted)
        # The level above is what is tried if the one below has nothing.
        return (self.rank if self.level in (wanted, wanted + 1) else 2), distance


def quick_tasks(problem: Problem, pace: Pace) -> list[Task]:
    """Return the tasks to begin with, which need no levels: the planners that take no budget.

    In a large graph only the quickest of them are, before all the one that needs little memory.
    """
    found = [Task(lambda clock: iter(reordered_sequence(problem, clock)), 0)]
    if not nothing_to_reverse(problem.graph):
        quick = AS_THEY_ARE if len(problem.graph.operators) <= LARGEST_QUICK else AS_THEY_ARE[:1]
        tasks = [Task(as_it_is(problem, *policy, pace), 0) for policy in quick]
        found = [tasks[0], *found, *tasks[1:]]
    return found


def other_tasks(problem: Problem, levels: Levels, pace: Pace) -> list[Task]:
    """Return the tasks that follow the quick ones, what pays most first.

    What they need to know of the graph is found out when the first of them is done: in a graph of
    100,000 operators that alone may take longer than there is.
    """
    graph = problem.graph
    sweep = made_once(lambda clock: greedy.GreedyPlans(problem, levels, clock))
    # What keeps and recomputes forward values for a backward half needs one; the others do not.
    halves = not nothing_to_reverse(graph)
    # In a graph without two halves orders matter more than what is kept.
    found = [] if halves else [Task(*attempt) for attempt in forward_attempts(problem, levels)]
    found += at_levels(problem, levels, sweep)
    if halves:
        by_blocks = block_plans(problem, levels)
        is_large = len(graph.operators) >= FEWEST_BLOCKS_FIRST
        found = [*by_blocks, *found] if is_large else [*found, *by_blocks]
        rotors = made_once(lambda clock: rotor.RotorPlans(problem, clock))
        if len(graph.operators) > LARGEST_QUICK:
            found += [Task(as_it_is(problem, *policy, pace), 1) for policy in AS_THEY_ARE[1:]]
        found += [Task(attempts, 1) for attempts in chain_planners(problem)]
        found += [Task(rotor_plans(problem, rotors, share), 1) for share in rotor.HALVES]
    found.append(Task(lambda clock: all_states(problem, levels, clock), 2))
    if halves:
        found.append(Task(as_it_is(problem, "recompute_all", {}, pace), 2))
    rounds = min(RESTARTS, GRID_EVALUATIONS // (2 * RESTART_LEVELS * max(len(graph.operators), 1)))
    found += [Task(restart(problem, levels, sweep, number), 2) for number in range(rounds)]
    finer = rotor.FINER if halves else ()
    return found + [Task(rotor_plans(problem, rotors, share), 2) for share in finer]


def reordered_sequence(problem: Problem, clock: Clock) -> list[Candidate]:
    """Return the plan that evaluates everything once, memory growing least on the way back."""
    detail = "every operator once, the backward half reordered"
    return [Candidate("store_all", detail, frugal_sequence(problem, clock))]


def as_it_is(problem: Problem, name: str, options: dict[str, object], pace: Pace) -> Attempts:
    """Return the attempt that a policy makes of its own; none if its schedule is too long.

    Such policies look at no clock: what they took so far tells whether there is time for another.
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


def at_levels(
    problem: Problem, levels: Levels, sweep: Callable[[Clock], greedy.GreedyPlans]
) -> list[Task]:
    """Return what greedy and dtr do at each level, any beginning spread over all levels."""

    def greedily(level: int) -> Attempts:
        return lambda clock: sweep(clock).at(level, clock)

    def online(level: int) -> Attempts:
        return lambda clock: dtr_at(problem, levels, level, deadline=clock)

    return [
        Task(attempts(level), 1, level)
        for level in coarse_first(list(range(len(levels.budgets)))[::-1])
        for attempts in (greedily, online)
    ]


def chain_planners(problem: Problem) -> Iterator[Attempts]:
    """Yield what the planners for chains make, at every setting worth trying."""
    graph, costs, flat = problem.graph, problem.costs, problem.flat

    @cache
    def parts() -> Stages:
        return stages(flat, cheap_cuts(flat, costs))

    def revolved(clock: Clock) -> Iterator[Candidate]:
        with suppress(ScheduleError):  # too much crosses the cuts to go through stage by stage
            for slots in coarse_first(slots_tried(graph, len(parts()))):
                clock.check()
                order = order_of(parts(), reversal(len(parts()), slots))
                yield Candidate("revolve", noted(len(parts()), slots), order)

    def segmented(clock: Clock) -> Iterator[Candidate]:
        read = read_on_the_way_back(graph)
        with suppress(ScheduleError):
            for segments in coarse_first(steps_up_to(len(read))[1:]):
                clock.check()
                cuts = place_cuts(flat, read, segments, [1] * len(read))
                detail = f"{counted(len(read), 'stage')} in {counted(segments, 'segment')}"
                yield Candidate("sqrt_n", detail, segmented_order(graph, cuts))

    def filled(clock: Clock) -> Iterator[Candidate]:
        with suppress(ScheduleError):
            for size, cuts in chen_budget.candidates(flat, costs):
                clock.check()
                detail = f"segments of {memory_text(size, costs.memory_unit)}"
                yield Candidate("chen_budget", detail, segmented_order(graph, cuts))

    def recursive(clock: Clock) -> Iterator[Candidate]:
        with suppress(ScheduleError):
            for k in RECURSIONS:
                clock.check()
                order = order_of(parts(), recursive_actions(len(parts()), k))
                yield Candidate("chen_recursive", f"{k} kept at every level", order)

    yield from (revolved, filled, segmented, recursive)


def rotor_plans(
    problem: Problem, made: Callable[[Clock], rotor.RotorPlans], share: int
) -> Attempts:
    """Return what Rotor makes of one of its tables, and the same without what is spare."""

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
                order = pruned(problem, min(fitting)[1], budget, clock)
                yield Candidate("rotor", f"{counted(len(sweep.parts), 'stage')}, pruned", order)

    return attempts


def block_plans(problem: Problem, levels: Levels) -> list[Task]:
    """Return what ``blocks`` makes of each of its tables, from a level of memory to the next."""
    made = made_once(lambda clock: blocks.RockmatePlans(problem, clock))

    def attempts(which: int, half: bool, level: int) -> Attempts:
        low = levels.budgets[level] if level else 0
        high = inf if level + 1 == len(levels.budgets) else levels.budgets[level + 1]

        def plans(clock: Clock) -> Iterator[Candidate]:
            with suppress(ScheduleError):  # too much crosses the cuts
                yield from made(clock).plans(which, half, clock, low, high)

        return plans

    return [
        Task(attempts(which, half, level), 1, level)
        for level in coarse_first(list(range(len(levels.budgets)))[::-1])
        for which, half in blocks.SWEEPS
    ]


def all_states(problem: Problem, levels: Levels, clock: Clock) -> Iterator[Candidate]:
    """Yield the cheapest schedules of a small graph, where its states are few enough to see.

    From the smallest budget up, since less memory has fewer states.
    """
    needed = necessary(problem.graph)
    if len(needed) > LARGEST_EXACT:
        return
    smallest = smallest_budget(problem, needed)
    span, failures = levels.highest - smallest, 0
    budgets = {smallest + span * step // EXACT_BUDGETS for step in range(EXACT_BUDGETS)}
    for budget in sorted(budgets):
        clock.check()
        reduced, _ = reduce_problem(problem, budget)
        try:
            found = StageSearch(reduced, reduced.outputs).cheapest(0, None, EXACT_STATES)
        except SearchLimitError:
            failures += 1
            if failures == EXACT_FAILURES:
                return
            continue
        if found is not None:
            yield Candidate("optimal", "all states searched", reduced.original(found[1]))


def restart(
    problem: Problem, levels: Levels, made: Callable[[Clock], greedy.GreedyPlans], number: int
) -> Attempts:
    """Return a round over the levels with scores multiplied by random weights, one a value."""

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
            yield Candidate("greedy", detail, pruned(problem, order, budget, clock))

    return attempts


def random_score(random: Random, count: int) -> Score:
    """Return a score that is multiplied by a random weight for each of ``count`` values."""
    spread = random.choice((0.1, 0.3, 0.6, 1.0))
    weights = np.array([random.lognormvariate(0.0, spread) for _ in range(count)])
    score = SCORES[random.choice(list(SCORES))]
    return Score(score.cost, lambda run, data: score.divisor(run, data) / weights[data])


def endlessly(problem: Problem, budget: int) -> Iterator[Candidate]:
    """Yield plans for one budget, without end: what a long search for one plan is made of."""
    settings = greedy.settings_of(problem)
    for _, label, order in greedy.greedy_orders(problem, budget, settings):
        yield Candidate("greedy", f"evicted by {label}", order)
    random = Random(0)
    while True:
        score = random_score(random, len(problem.graph.data))
        _, _, sequence, anchors = random.choice(settings)
        try:
            order = Eviction(problem, budget, score, sequence, anchors).run()
        except BudgetError:
            continue
        yield Candidate("greedy", "evicted with random weights", pruned(problem, order, budget))


def coarse_first(numbers: Sequence[int]) -> list[int]:
    """Return the numbers in an order in which any beginning is spread over all of them.

    >>> coarse_first([1, 2, 3, 4, 5, 6, 7, 8, 9])
    [1, 9, 5, 3, 7, 2, 4, 6, 8]
    """
    places: dict[int, None] = {}
    for step in (8, 4, 2, 1):
        places.update(dict.fromkeys(range(0, len(numbers), step)))
    return [numbers[place] for place in places]
