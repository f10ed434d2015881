"""Iterated local search at the requested budget: ruin and recreate from the best schedule known.

A certified schedule comes in; one that costs no more, within the same budget, goes out. First,
values are saved by the knapsack at more settings than the frontier has, and evicted within this
very budget, as DTR and greedy do at the levels of the frontier; the cheapest schedule is where the
rounds begin. Each round drops recomputations, those of a random
window or a random share of all, and repairs the order by moves until it is within the budget
(``heuristics.local_search``); the order that results is kept if it costs no more. How random the
moves are changes from round to round: always the best ones lead to the same local optimum. The
rounds end with the time limit, at a cost that is proven optimal, or after MAX_VAIN_ROUNDS rounds
without a gain.

The frontier of ``search`` does not depend on the requested budget; what is found here does. So it
is no point of the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.cuts import nothing_to_reverse
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.dtr import HEURISTICS
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.greedy import SCORES
from tinyckpt.planner.heuristics.knapsack import plan_knapsack
from tinyckpt.planner.heuristics.local_search import LocalSearch
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.plan_request import PlanRequest, reserved
from tinyckpt.planner.model.vectorised_lowering import lower
from tinyckpt.planner.portfolio.candidates import LARGEST_QUICK

# Rounds without a gain after which the search ends. Doubled: some plans are cheaper by less than a
# thousandth, in up to twice the time.
MAX_VAIN_ROUNDS = 3_000
# Random choices of each round. Trials: of one move, the random weights choose it; of more, what it
# gains. Noise: largest deviation of the weights from 1. Shares: of recomputations that are dropped.
ROUND_TRIALS, ROUND_NOISE = (1, 2, 8), (0.1, 0.3, 0.6, 0.9)
DROPPED_SHARES = (0.15, 0.3, 0.6, 1.0)
# Settings of the knapsack, and seconds that one may take, as it looks at no clock: it is left out
# where less is left. More settings: plans nearer to the budget.
KNAPSACKS, LONGEST_KNAPSACK = 8, 1.0
# Evictions at the requested budget, by the policy that has the score. More: other places to begin.
EVICTIONS = (("dtr", HEURISTICS["dtr"]), *(("greedy", score) for score in SCORES.values()))


def improved(schedule: Schedule, request: PlanRequest) -> Schedule:
    """Return the schedule, or a cheaper one that local search finds in the request's time.

    Args:
        schedule: within the request's budget, certified, without steps that use the host.
        request: its deadline ends the search.
    """
    problem, budget, certificate = request.problem, request.budget_size, schedule.certificate
    if problem.graph.updates:
        return schedule  # updates come last in any order, which local search does not model
    bound = certificate.lower_bound
    best = evaluations(schedule)
    known = cost = problem.cost_of(best)
    policy, left = schedule.policy, request.deadline.left()
    clock, since = Clock(max(0.0, left - 0.1 * reserved(problem.graph, left))), 0
    with suppress(OutOfTimeError, KeyboardInterrupt):  # anytime: the best so far
        for name, start in starts(request, clock):
            if cost <= bound:
                break
            with suppress(BudgetError, ScheduleError):
                order = start()
                if problem.peak(order) > budget:
                    continue
                order = drop_redundant_recomputes(problem, order, budget, clock)
                if (new := problem.cost_of(order)) < cost:
                    best, cost, policy = order, new, name
        search, random = LocalSearch(problem, budget, deadline=clock), Random(0)
        while cost > bound and since < MAX_VAIN_ROUNDS:
            clock.check()
            since += 1
            search.trials = random.choice(ROUND_TRIALS)
            noise, share = random.choice(ROUND_NOISE), random.choice(DROPPED_SHARES)
            if random.random() < 0.5:
                repaired = search.shaken(best, noise)
            else:
                repaired = search.thinned(best, share, noise)
            if repaired is None:
                continue
            repaired = drop_redundant_recomputes(problem, repaired, budget, clock)
            if (new := problem.cost_of(repaired)) <= cost:
                since = 0 if new < cost else since
                best, cost = repaired, new
    if cost == known:
        return schedule
    repeated = counted(len(best) - len(set(best)), "recomputation")
    costs = request.costs
    note = (
        f"{repeated}, after local search; peak {memory_text(problem.peak(best), costs.memory_unit)}"
    )
    options = schedule.options if policy == schedule.policy else {}
    found = lower(request.graph, best, policy, options, note)
    certificate = Certificate.lazy(
        lambda: bound, cost, budget, costs.unit, costs.memory_unit, len(request.graph.once)
    )
    return replace(found, certificate=certificate)


def starts(request: PlanRequest, clock: Clock) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """Yield where local search may begin: names of policies, and what makes their orders."""
    is_quick = len(request.graph.operators) <= LARGEST_QUICK
    if is_quick and not nothing_to_reverse(request.graph):
        for part in range(KNAPSACKS):
            if clock.left() < LONGEST_KNAPSACK:
                break
            yield "knapsack", partial(saved_by_knapsack, request, part / KNAPSACKS)
    for name, score in EVICTIONS:
        yield name, Eviction(request.problem, request.budget_size, score, deadline=clock).run


def saved_by_knapsack(request: PlanRequest, share: float) -> list[int]:
    """Return the knapsack's order at a share of the saved memory."""
    return evaluations(plan_knapsack(request.graph, request.costs, activation_memory_budget=share))


def evaluations(schedule: Schedule) -> list[int]:
    """Return the operators that a schedule evaluates, in its order."""
    return [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
