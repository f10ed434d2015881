"""Keep, recompute or move: the fastest schedule known with a host beside the device.

Small graphs are searched exactly (``exact.hosted``). In others, what the portfolio finds for more
memory than there is is tried with as many of its values on the host as it takes: those that are
read last leave first. Which schedules are tried depends on neither budget nor bandwidth, and each
comes earlier with more of both (``transfers.clock``); so does the best of them.

The bound: whoever holds at most H bytes on the host does without it in so much more memory, so no
schedule is below what none is on a device of budget + H. And what is on the host at some time has
been copied there before and is copied back after: at most bandwidth times half the makespan.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, gcd, inf
from time import monotonic
from typing import Any

from tinyckpt.analysis.bounds import cost_bound, necessary, smallest_budget
from tinyckpt.analysis.limits import ENDLESS, Clock, checked_seconds
from tinyckpt.analysis.liveness import Problem
from tinyckpt.cost import LARGEST_COST, Costs
from tinyckpt.errors import BudgetError, ScheduleError
from tinyckpt.exact.hosted import SCOPE, HostSearch, is_searched
from tinyckpt.exact.search import SearchLimitError
from tinyckpt.graph import Graph
from tinyckpt.orders.lowering import from_order, offloading
from tinyckpt.planning.budget import parse_budget
from tinyckpt.planning.plan import Budget, costs_of
from tinyckpt.planning.portfolio import DEFAULT_SECONDS
from tinyckpt.planning.portfolio import frontier as search
from tinyckpt.replay import replay
from tinyckpt.schedule import Certificate, Fetch, Offload, Schedule
from tinyckpt.transfers.clock import Timeline, timed
from tinyckpt.transfers.link import Link
from tinyckpt.transfers.placing import fetched_early, idle_copies, movable_values
from tinyckpt.units import counted, memory_text, size_text

MOST_SEARCHED = 17  # operators: chain:8, in seconds
STATES = 200_000
SEARCH_SHARE = 0.5  # of the time, for the exact search, or for the portfolio's
BOUND_SHARE = 0.2
POINTS = 12  # of the frontier, whose schedules are tried with a host, and whose peaks are


def plan_with_host(
    graph: Graph,
    link: Link,
    *,
    budget: Budget,
    host_budget: Budget | None = None,
    costs: Costs | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Return the schedule of the least makespan that is known: what to keep, recompute and move.

    Without bandwidth it is a schedule on one device; where it is infinite, nothing is recomputed.

    Args:
        graph: the training graph.
        link: between the device and the host.
        budget: of the device, as in ``plan``, in bytes; values on their way to the host count.
        host_budget: of the host; without limit if not given.
        costs: the duration of each evaluation; if not given, as in ``plan``.
        time_limit: seconds for the search, and for what is tried where it does not end in half of
            them, or the graph is too large.

    Returns:
        A schedule whose certificate is about its makespan, ``timed(schedule, link, budget=...)``.

    Raises:
        BudgetError: if nothing was found within the budgets.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(4)
    >>> for bandwidth in (0, 256, 512):
    ...     link = tc.Link(bandwidth, engines=1)
    ...     schedule = tc.plan_with_host(graph, link, budget=3 * 512)
    ...     print(schedule.note)
    15 evaluations, 6 of them recomputations; 0 values moved; 0 stalled
    15 evaluations, 6 of them recomputations; 0 values moved; 0 stalled
    9 evaluations, 0 of them recomputations; 3 values moved; 3 stalled
    """
    own = costs_of(graph, costs)
    limit, own = parse_budget(graph, own, budget)
    host = inf if host_budget is None else parse_budget(graph, own, host_budget)[0]
    if own.memory_unit != "bytes":
        raise ScheduleError("plan_with_host: what is moved is counted in bytes; so is the budget")
    seconds = checked_seconds(time_limit)
    bound = host_bound(graph, own, link, limit, host, Clock(BOUND_SHARE * seconds))
    found: tuple[Schedule, bool] | None = None
    if len(graph.operators) <= MOST_SEARCHED and is_searched(graph, own):
        found = searched(graph, own, link, limit, host, Clock(SEARCH_SHARE * seconds))
    if found is None:
        found = tried(graph, own, link, limit, host, seconds), False
    schedule, is_best = found
    line = timed(schedule, link, own, budget=limit)
    cost = float(line.makespan)
    options: dict[str, Any] = {"budget": limit, "bandwidth": link.bandwidth}
    options |= {"latency": link.latency, "engines": link.engines}
    if host != inf:
        options["host_budget"] = host
    if cost <= bound:
        known = "optimal", cost, ""
    elif is_best:
        known = "optimal in its class", cost, SCOPE
    else:
        known = "heuristic", bound, ""
    status, below, scope = known
    certificate = Certificate(status, cost, below, limit, own.unit, own.memory_unit, scope)  # type: ignore[arg-type]
    return replace(
        schedule,
        policy="plan_with_host",
        options=options,
        note=note_of(line),
        certificate=certificate,
    )


def note_of(line: Timeline) -> str:
    """Return what a plan did, in a sentence."""
    trace = replay(line.schedule)
    count = sum(isinstance(step, Offload) for step in line.schedule.steps)
    return (
        f"{trace.evaluations} evaluations, {trace.recomputations} of them recomputations; "
        f"{counted(count, 'value')} moved; {float(line.stalled):.6g} stalled"
    )


def searched(
    graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float, clock: Clock
) -> tuple[Schedule, bool] | None:
    """Return the best schedule of a small graph; None if the search is too long.

    Raises:
        BudgetError: if no schedule of the class is within the budgets.
    """
    try:
        best = HostSearch(graph, costs, link, budget, host_budget).cheapest(
            STATES, monotonic() + clock.left()
        )
    except SearchLimitError:
        return None
    if best is None:
        least = smallest_budget(Problem(graph, costs), necessary(graph))
        raise BudgetError(
            f"no schedule of {graph.name} is within {size_text(budget)}, of those that evaluate "
            f"backward operators once; any needs {size_text(least)}",
            max(least, budget + 1),
        )
    return Schedule(graph, tuple(best[1]), "plan_with_host"), True


def tried(
    graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float, seconds: float
) -> Schedule:
    """Return the fastest of the portfolio's schedules with and without values on the host.

    Raises:
        BudgetError: if none is within the budgets.
    """
    clock = Clock(seconds)
    points = search(graph, costs, SEARCH_SHARE * seconds).points
    chosen = points[:: ceil(len(points) / POINTS)]
    chosen = chosen if points[-1] in chosen else (*chosen, points[-1])
    best: tuple[Fraction, Schedule] | None = None
    smallest = points[0].peak
    movable = set(movable_values(graph)) if link.bandwidth else set()
    for point in points:
        stored = from_order(graph, point.order.tolist(), point.policy)
        goals = [other.peak for other in chosen if other.peak < point.peak]
        for goal in [point.peak, *(goals if point in chosen else ())]:
            if best is not None and clock.left() == 0:
                return best[1]
            schedule = moved_within(stored, movable, goal, costs)
            if schedule is None:
                continue
            trace = replay(schedule)
            smallest = min(smallest, trace.peak_bytes)
            if trace.peak_bytes > budget or max(trace.host, default=0) > host_budget:
                continue
            makespan = timed(schedule, link, costs, budget=budget).makespan
            if best is None or makespan < best[0]:
                best = makespan, schedule
    if best is None:
        raise BudgetError(
            f"nothing was found within {memory_text(budget, costs.memory_unit)}; the smallest peak "
            f"that was found is {memory_text(smallest, costs.memory_unit)}",
            smallest,
        )
    return best[1]


def moved_within(stored: Schedule, movable: set[int], budget: int, costs: Costs) -> Schedule | None:
    """Return the schedule with as few values on the host as it takes; None if all are too few.

    Those that are read last leave first.
    """
    if replay(stored).peak_bytes <= budget:
        return stored
    everything = offloading(stored, movable)
    returns = [step.data for step in everything.steps if isinstance(step, Fetch)]
    idle = idle_copies(everything)
    order = [data for data in reversed(returns) if data not in idle]
    low, high = 0, len(order) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if replay(offloading(stored, set(order[:middle]))).peak_bytes <= budget:
            high = middle
        else:
            low = middle
    if high > len(order):
        return None
    return fetched_early(offloading(stored, set(order[:high])), costs, None, budget)


def host_bound(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float = inf,
    limit: Clock = ENDLESS,
) -> float:
    """Return a makespan that no schedule with a host is below.

    For every x, a schedule holds less than x bytes on the host at all times, and is no cheaper than
    those of the device with x more, or it holds x at some time, and takes 2 x / bandwidth.
    """
    if link.bandwidth == 0:
        return cost_bound(graph, costs, budget, limit)
    everything = sum(costs.data)
    most = everything if host_budget == inf else min(everything, int(host_budget))
    if link.bandwidth == inf:
        return cost_bound(graph, costs, budget + most, limit)
    unit = gcd(*costs.data, *costs.workspace) or 1
    bandwidth = Fraction(link.bandwidth)
    # The bound holds for each x; the best is where the two are alike. In units:
    low, high = 0, most // unit + 1
    while high - low > 1:
        middle = (low + high) // 2
        without = cost_bound(graph, costs, budget + (middle - 1) * unit, limit)
        if 2 * middle * unit < bandwidth * Fraction(min(without, LARGEST_COST)):
            low = middle
        else:
            high = middle
    without = cost_bound(graph, costs, budget + (high - 1) * unit, limit)
    return min(without, float(2 * high * unit / bandwidth)) if high <= most // unit else without
