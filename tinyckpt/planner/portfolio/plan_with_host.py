"""Planning with host memory: keep, recompute or offload each value, for the least known makespan.

From a graph to the plan, in this order:

1. *Single-device schedules*: a sample of the Pareto frontier that the portfolio finds. One for more
   memory than there is stores much, and recomputes little and cheaply.
2. *Offload candidates* (``offload_candidates``): those schedules with values moved to the host, and
   the plans that a dynamic program makes with a host in mind (``offload_dp``).
3. Each candidate is replayed, for its peaks, and simulated on the link, for its makespan
   (``simulate``). The fastest within the budgets is the plan.
4. Small graphs are searched exactly too (A*, ``exact.offload_astar``), unless the incumbent meets
   the lower bound: whether a graph is small is decided by its operators alone. Schedules that
   evaluate a backward operator again are outside the exact search's class.

**More resources are never slower**: a larger budget, on the device or on the host, more bandwidth,
less latency, two engines instead of one. The set of candidates depends on neither the budgets nor
the link, and each of them is no slower with more of either; so is the best of them, if all are
tried, and so is the best of a class. A plan that the time limit did cut short says so in its note,
and may then be slower than one for less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any

from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError, checked_seconds
from tinyckpt.base.errors import BudgetError, ScheduleError, expect
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.units import counted, memory_text, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Offload, Schedule
from tinyckpt.planner.exact.offload_astar import OFFLOAD_SCOPE, OffloadSearch, is_searched
from tinyckpt.planner.exact.stage_astar import SearchLimitError
from tinyckpt.planner.model.budget import is_total, parse_budget
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.link import Link, checked_link
from tinyckpt.planner.model.lower_bounds import smallest_budget
from tinyckpt.planner.model.makespan_bound import host_bound
from tinyckpt.planner.offload.offload_dp import priced_plans
from tinyckpt.planner.offload.offload_saved_values import PacedWork
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.offload_candidates import (
    OffloadCandidate,
    base_candidates,
    base_schedules,
    plan_candidates,
)
from tinyckpt.planner.portfolio.plan import Budget, costs_of
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS

# Operators of the largest graph that is searched by A*: those of chain:8, in seconds. Doubled, a
# search seldom ends: placements grow exponentially.
MAX_EXACT_OPERATORS = 17
# States that A* may visit, some 600 bytes each; chain:8 takes less than 100,000. Doubled: 1.2 GB.
MAX_ASTAR_STATES = 1_000_000
# Default seconds for a small graph; chain:8 takes up to 15, within 3 nodes, and more where cores
# are shared. Doubled: a slow machine proves the optimum, where it would not.
SMALL_SECONDS = 180.0
# Shares of the remaining time, for known schedules before A*, and for A*. Doubled, less is left for
# what comes after; neither matters to graphs that are not small.
KNOWN_SHARE, EXACT_SHARE = 0.05, 0.5
# Share of the time, for the lower bound. Doubled: tighter on large graphs, and fewer candidates.
HOST_BOUND_SHARE = 0.2
# Share of the time, for the portfolio search. Doubled: no time for candidates with a host.
PORTFOLIO_SHARE = 0.5
# Share of the rest, for making the plans of ``offload_dp``. Doubled: more plans, fewer are tried.
PRICED_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What to plan: a graph, the durations of its evaluations, a link, and the budgets in bytes."""

    graph: Graph
    costs: Costs
    link: Link
    budget: int
    host_budget: float = inf


@short_traceback
def plan_with_host(
    graph: Graph,
    link: Link,
    *,
    budget: Budget,
    host_budget: Budget | None = None,
    costs: Costs | None = None,
    time_limit: float | None = None,
) -> Schedule:
    """Plan a schedule of the least known makespan: which values to keep, recompute and move.

    Without bandwidth it is a schedule on one device; where it is infinite, nothing is recomputed.

    Args:
        graph: the training graph.
        link: between the device and the host.
        budget: of the device, as in ``plan``, in bytes; values on their way to the host count.
        host_budget: of the host; without limit if not given.
        costs: the duration of each evaluation; if not given, as in ``plan``.
        time_limit: total seconds, of which half go to the search of a small graph. The best found
            by then is the answer. If not given, as in ``plan``, and 180 for a small graph, whose
            search is to end.

    Returns:
        A schedule whose certificate is about its makespan, ``timed(schedule, link, budget=...)``.

    Raises:
        BudgetError: if nothing was found within the budgets.
        ScheduleError: if the link is invalid, or memory is not counted in bytes.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(4)
    >>> for bandwidth in (0, 256, 512):
    ...     link = tc.Link(bandwidth, engines=1)
    ...     schedule = tc.plan_with_host(graph, link, budget=3 * 512)
    ...     print(schedule.note)
    15 evaluations, 6 of them recomputations; 0 values moved; 0 stalled
    12 evaluations, 3 of them recomputations; 1 value moved; 3 stalled
    10 evaluations, 1 of them recomputations; 2 values moved; 2 stalled
    """
    expect(graph, Graph)
    link, own = checked_link(link), costs_of(graph, costs)
    budget_size, problem = parse_budget(graph, own, budget)
    own = problem.costs
    host = inf if host_budget is None else host_bytes(graph, own, host_budget)
    if own.memory_unit != "bytes":
        raise ScheduleError(
            "plan_with_host: memory must be counted in bytes; give the budget in bytes"
        )
    is_small = len(graph.operators) <= MAX_EXACT_OPERATORS and is_searched(graph, own)
    default = SMALL_SECONDS if is_small else PORTFOLIO_SECONDS
    seconds = checked_seconds(default if time_limit is None else time_limit)
    clock = Clock(seconds)
    request = HostRequest(graph, own, link, budget_size, host)
    bound = host_bound(graph, own, link, budget_size, host, Clock(HOST_BOUND_SHARE * seconds))
    least = smallest_budget(problem)
    if budget_size < least and not graph.once:
        raise BudgetError(
            f"no schedule of {graph.name} is within {size_text(budget_size)}; any needs at least "
            f"{size_text(least)}",
            least,
        )
    line, is_best, is_whole = fastest(request, clock, bound, is_small)
    options: dict[str, Any] = {"budget": budget_size, "bandwidth": link.bandwidth}
    options |= {"latency": link.latency, "engines": link.engines}
    if host != inf:
        options["host_budget"] = host
    certificate = makespan_certificate(request, float(line.makespan), bound, is_best)
    is_done = is_whole or certificate.status == "optimal"
    cut = "" if is_done else "; the search was cut short, more time may find more"
    return replace(
        line.schedule,
        policy="plan_with_host",
        options=options,
        note=note_of(line) + cut,
        certificate=certificate,
    )


def makespan_certificate(
    request: HostRequest, makespan: float, bound: float, is_best: bool
) -> Certificate:
    """Return the certificate of a makespan, given a lower bound, or the optimum of its class."""
    costs = request.costs
    facts = request.budget, costs.unit, costs.memory_unit
    if makespan <= bound:
        return Certificate("optimal", makespan, makespan, *facts)
    if is_best:
        return Certificate("optimal in its class", makespan, makespan, *facts, OFFLOAD_SCOPE)
    return Certificate("heuristic", makespan, bound, *facts)


def host_bytes(graph: Graph, costs: Costs, budget: Budget) -> int:
    """Return a budget of the host in bytes."""
    budget_size, problem = parse_budget(graph, costs, budget)
    if problem.costs.memory_unit != "bytes" or is_total(budget):
        raise BudgetError(
            f"host_budget={budget!r:.80}: expected bytes, such as '4 GiB', or a share of "
            "store-all's peak"
        )
    return budget_size


def note_of(line: Timeline) -> str:
    """Return the note of a plan: evaluations, moved values and stalls."""
    steps = line.schedule.steps
    count = sum(isinstance(step, Offload) for step in steps)
    evaluated = [step.operator for step in steps if isinstance(step, EVALUATIONS)]
    again = len(evaluated) - len(set(evaluated))
    return (
        f"{len(evaluated)} evaluations, {again} of them recomputations; "
        f"{counted(count, 'value')} moved; {float(line.stalled):.6g} stalled"
    )


def fastest(
    request: HostRequest, clock: Clock, bound: float, is_small: bool
) -> tuple[Timeline, bool, bool]:
    """Return the fastest timeline found, whether it is optimal in its class, and if time sufficed.

    In most cases a known schedule meets the lower bound: then nothing is searched.
    """
    line, is_whole = None, True
    if is_small:
        with suppress(BudgetError):
            line, _ = fastest_known(request, Clock(KNOWN_SHARE * clock.left()))
        if line is not None and line.makespan <= bound:
            return line, True, True
        line, is_whole = astar_timeline(request, EXACT_SHARE * clock.left())
        if line is not None and line.makespan <= bound:
            return line, True, True
    best, is_all = fastest_known(request, clock, line)
    return best, is_whole and best is line, is_whole and is_all


def fastest_known(
    request: HostRequest, clock: Clock, best: Timeline | None = None
) -> tuple[Timeline, bool]:
    """Return the fastest known schedule, with or without values on the host.

    Args:
        request: what to plan.
        clock: of the time; at least one schedule is tried in any case.
        best: another schedule within the budgets, if one is known: the first incumbent.

    Returns:
        Its timeline, and whether nothing was left out for lack of time.

    Raises:
        BudgetError: if nothing was found within the budgets.
    """
    graph, costs, budget = request.graph, request.costs, request.budget
    within, bases, is_whole = base_schedules(graph, costs, budget, PORTFOLIO_SHARE * clock.left())
    paced = PacedWork(clock, len(graph.operators))
    found = Incumbent(request, best, bases[0].peak, is_whole)
    if within is not None:
        work = paced if best is not None else replace(paced, clock=NO_DEADLINE)
        with suppress(OutOfTimeError):
            stored = work.run(within.evaluations, within.make)
            found.take(work.run(within.evaluations, found.timeline, stored))
    if request.link.bandwidth:
        candidates = base_candidates(graph, costs, bases, budget)
        found.try_each(chain(candidates, dp_candidates(found, clock)), paced)
    if found.best is None:
        cut = "" if found.is_whole else " in the time given; give it more (time_limit=...)"
        raise BudgetError(
            f"nothing was found within {memory_text(budget, costs.memory_unit)}{cut}; the smallest "
            f"peak that was found is {memory_text(found.smallest, costs.memory_unit)}",
            found.smallest,
        )
    return found.best, found.is_whole


def astar_timeline(request: HostRequest, seconds: float) -> tuple[Timeline | None, bool]:
    """Run the exact search of a small graph: return its best timeline, and whether it ended."""
    search = OffloadSearch(
        request.graph, request.costs, request.link, request.budget, request.host_budget
    )
    try:
        is_whole = True
        search.cheapest(MAX_ASTAR_STATES, monotonic() + seconds)
    except SearchLimitError:
        is_whole = False
    steps = search.steps()
    if not steps:
        return None, is_whole
    schedule = Schedule(request.graph, tuple(steps), "plan_with_host")
    return timed(schedule, request.link, request.costs, budget=request.budget), is_whole


@dataclass(slots=True)
class Incumbent:
    """The incumbent of a search with a host: the fastest of the candidates tried so far.

    Attributes:
        request: what to plan.
        best: the fastest timeline within the budgets, if there is one.
        smallest: the smallest peak of all candidates tried, within the budgets or not.
        is_whole: whether nothing was left out for lack of time.
    """

    request: HostRequest
    best: Timeline | None
    smallest: int
    is_whole: bool

    @property
    def makespan(self) -> float | Fraction:
        """The makespan of the fastest; infinite if there is none."""
        return inf if self.best is None else self.best.makespan

    def try_each(self, candidates: Iterable[OffloadCandidate], paced: PacedWork) -> None:
        """Make and time the candidates that may be faster than the incumbent, while time lasts."""
        for candidate in candidates:
            if candidate.cost >= self.makespan:
                continue
            must = self.best is None and candidate.is_last_resort
            try:
                work = replace(paced, clock=NO_DEADLINE) if must else paced
                self.take(self.line_within(candidate, work))
            except OutOfTimeError:
                self.is_whole = False
                if self.best is not None and paced.clock.left() == 0:
                    break

    def line_within(self, candidate: OffloadCandidate, work: PacedWork) -> Timeline | None:
        """Make and time a candidate; None if it is not within the budgets."""
        schedule = candidate.make(work)
        if schedule is None:
            return None
        trace = work.run(candidate.evaluations, replay, schedule)
        self.smallest = min(self.smallest, trace.peak_bytes)
        host = max(trace.host, default=0)
        if trace.peak_bytes > self.request.budget or host > self.request.host_budget:
            return None
        # With its copies it has nearly twice as many steps.
        return work.run(2 * candidate.evaluations, self.timeline, schedule)

    def timeline(self, schedule: Schedule) -> Timeline:
        """Simulate a schedule within the budget."""
        return timed(schedule, self.request.link, self.request.costs, budget=self.request.budget)

    def take(self, line: Timeline | None) -> None:
        """Accept a timeline as the incumbent if it is the fastest."""
        if line is not None and line.makespan < self.makespan:
            self.best = line


def dp_candidates(found: Incumbent, clock: Clock) -> Iterator[OffloadCandidate]:
    """Yield the plans of ``offload_dp``, the cheapest first, as far as there is time to make them.

    If there is not, the incumbent is told that something was left out.
    """
    graph, costs, budget = found.request.graph, found.request.costs, found.request.budget
    plans = []
    try:
        for plan in priced_plans(graph, costs, Clock(PRICED_SHARE * clock.left())):
            plans.append(plan)
    except OutOfTimeError:
        found.is_whole = False
    for plan in sorted(plans, key=attrgetter("cost")):
        yield from plan_candidates(graph, costs, plan, budget)
