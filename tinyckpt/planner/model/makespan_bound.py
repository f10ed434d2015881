"""Lower bound on the makespan of schedules with a host, from bounds on the cost on one device.

A schedule with at most H bytes on the host can do without it on a device with H bytes more, so its
makespan is no less than the least cost on one device within budget + H (``lower_bounds``). And a
value on the host at any time has been copied there before and is copied back after: at most
bandwidth times half the makespan.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import gcd, inf

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.base.quantities import LARGEST_COST
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.link import Link
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound


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
    uniform = uniform_chain(graph, costs)
    if uniform is None:
        return partial(cost_bound, problem_of(graph, costs), deadline=deadline)
    n, size = uniform
    cost = costs.operators[0]
    return lambda budget: (
        fewest_evaluations(n, budget // size) * cost if budget // size >= 3 else inf
    )
