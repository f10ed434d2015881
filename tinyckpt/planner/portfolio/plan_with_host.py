"""Planning with host memory: keep, recompute or offload each value, for the least known makespan.

Tried are the single-device schedules with values moved to the host (``offload_schedules``). Small
graphs are searched exactly too (A*, ``exact.offload_astar``), unless the incumbent meets the lower
bound: whether a graph is small is decided by its operators alone. Schedules that evaluate a
backward operator again are outside the exact search's class.

**More resources are never slower**: a larger budget, on the device or on the host, more bandwidth,
less latency, two engines instead of one. The best of a class only improves with them, and so does
the best of schedules that depend on none of them. This holds for plans that the time limit did not
cut short; a plan that it did cut says so in its note, and may then be slower than one for less.

Lower bound: a schedule with at most H bytes on the host can do without it on a device with H bytes
more, so its makespan is no less than the least on one device within budget + H. And a value on the
host at any time has been copied there before and is copied back after: at most bandwidth times half
the makespan.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import gcd, inf
from time import monotonic
from typing import Any

from tinyckpt.base.deadline import NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.quantities import LARGEST_COST
from tinyckpt.base.units import counted, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import EVALUATIONS, Offload, Schedule
from tinyckpt.planner.exact.offload_astar import OFFLOAD_SCOPE, OffloadSearch, is_searched
from tinyckpt.planner.exact.stage_astar import SearchLimitError
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.budget import is_total, parse_budget
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound, smallest_budget
from tinyckpt.planner.offload.link import Link, checked_link
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.offload_schedules import fastest_known
from tinyckpt.planner.portfolio.plan import Budget, costs_of
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS

MAX_EXACT_OPERATORS = 17  # operators: chain:8, in seconds
MAX_ASTAR_STATES = 1_000_000  # some 600 bytes each; chain:8 takes less than 100,000
SMALL_SECONDS = 180.0  # chain:8 takes up to 15, within 3 nodes; more where cores are shared
KNOWN_SHARE = 0.05  # of the time, for known schedules before the exact search
EXACT_SHARE = 0.5  # of the remaining time, for the exact search
HOST_BOUND_SHARE = 0.2


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
    bound = host_bound(graph, own, link, budget_size, host, Clock(HOST_BOUND_SHARE * seconds))
    least = smallest_budget(problem)
    if budget_size < least and not graph.once:
        raise BudgetError(
            f"no schedule of {graph.name} is within {size_text(budget_size)}; any needs at least "
            f"{size_text(least)}",
            least,
        )
    line, is_best, is_whole = fastest(graph, own, link, budget_size, host, clock, bound, is_small)
    cost = float(line.makespan)
    options: dict[str, Any] = {"budget": budget_size, "bandwidth": link.bandwidth}
    options |= {"latency": link.latency, "engines": link.engines}
    if host != inf:
        options["host_budget"] = host
    if cost <= bound:
        known = "optimal", cost, ""
    elif is_best:
        known = "optimal in its class", cost, OFFLOAD_SCOPE
    else:
        known = "heuristic", bound, ""
    status, below, scope = known
    certificate = Certificate(status, cost, below, budget_size, own.unit, own.memory_unit, scope)  # type: ignore[arg-type]
    cut = "" if is_whole or cost <= bound else "; the search was cut short, more time may find more"
    return replace(
        line.schedule,
        policy="plan_with_host",
        options=options,
        note=note_of(line) + cut,
        certificate=certificate,
    )


def fastest(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float,
    clock: Clock,
    bound: float,
    is_small: bool,
) -> tuple[Timeline, bool, bool]:
    """Return the fastest timeline found, whether it is optimal in its class, and if time sufficed.

    In most cases a known schedule meets the lower bound: then nothing is searched.
    """
    known = graph, costs, link, budget, host_budget
    line, is_whole = None, True
    if is_small:
        with suppress(BudgetError):
            line, _ = fastest_known(*known, Clock(KNOWN_SHARE * clock.left()))
        if line is not None and line.makespan <= bound:
            return line, True, True
        line, is_whole = astar_timeline(*known, EXACT_SHARE * clock.left())
        if line is not None and line.makespan <= bound:
            return line, True, True
    best, is_all = fastest_known(*known, clock, line)
    return best, is_whole and best is line, is_whole and is_all


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


def astar_timeline(
    graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float, seconds: float
) -> tuple[Timeline | None, bool]:
    """Run the exact search of a small graph: return its best timeline, and whether it ended."""
    search = OffloadSearch(graph, costs, link, budget, host_budget)
    try:
        is_whole = True
        search.cheapest(MAX_ASTAR_STATES, monotonic() + seconds)
    except SearchLimitError:
        is_whole = False
    steps = search.steps()
    if not steps:
        return None, is_whole
    schedule = Schedule(graph, tuple(steps), "plan_with_host")
    return timed(schedule, link, costs, budget=budget), is_whole


def host_bound(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float = inf,
    deadline: Clock = NO_DEADLINE,
) -> float:
    """Return a lower bound on the makespan of every schedule with a host.

    For every x, a schedule either stores less than x bytes on the host at all times, and costs no
    less than the best of a device with x more, or it stores x at some time, and takes 2 x /
    bandwidth.
    """
    within = device_bound(graph, costs, deadline)
    if link.bandwidth == 0:
        return within(budget)
    everything = sum(costs.data)
    most = everything if host_budget == inf else min(everything, int(host_budget))
    if link.bandwidth == inf:
        return within(budget + most)
    unit = gcd(*costs.data, *costs.workspace) or 1
    bandwidth = Fraction(link.bandwidth)
    # The bound holds for each x; it is largest where its two terms meet. Bisection, in units:
    low, high = 0, most // unit + 1
    while high - low > 1 and deadline.left():
        middle = (low + high) // 2
        on_device = within(budget + (middle - 1) * unit)
        if 2 * middle * unit < bandwidth * Fraction(min(on_device, LARGEST_COST)):
            low = middle
        else:
            high = middle
    on_device = within(budget + (high - 1) * unit)
    return min(on_device, float(2 * high * unit / bandwidth)) if high <= most // unit else on_device


def device_bound(graph: Graph, costs: Costs, deadline: Clock) -> Callable[[int], float]:
    """Return the function from a budget to the lower bound on cost on one device.

    It is called some twenty times: whether a graph is a chain is determined once.
    """
    chain = uniform_chain(graph, costs)
    if chain is None:
        return partial(cost_bound, problem_of(graph, costs), deadline=deadline)
    n, size = chain
    cost = costs.operators[0]
    return lambda budget: (
        fewest_evaluations(n, budget // size) * cost if budget // size >= 3 else inf
    )
