"""Planning: from a graph and a policy, or a budget, to a schedule and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

from tinyckpt.analysis.bounds import cost_bound
from tinyckpt.analysis.chains import uniform_chain
from tinyckpt.cost import Costs, given, in_nodes
from tinyckpt.errors import BudgetError, ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.planning.budget import parse_budget
from tinyckpt.planning.points import Frontier, certificate_of
from tinyckpt.planning.portfolio import Progress
from tinyckpt.planning.portfolio import frontier as search
from tinyckpt.policies import POLICIES, Policy
from tinyckpt.replay import replay
from tinyckpt.schedule import Certificate, Compute, Fetch, Offload, Schedule
from tinyckpt.units import memory_text

PolicyLike = str | Policy | Callable[..., Schedule]
Budget = str | int | float


def plan(
    graph: Graph,
    policy: PolicyLike | None = None,
    *,
    budget: Budget | None = None,
    costs: Costs | None = None,
    **options: Any,
) -> Schedule:
    """Return the schedule that a policy makes of a graph, or the best that is known in a budget.

    With a budget and no policy, all planners that need no solver are tried at many settings (the
    policy ``optimal`` is asked for by name). The cheapest schedule of the frontier whose true peak
    is within the budget is returned, with a certificate: optimal, or how far from it at most. What
    is searched does not depend on the budget (see ``frontier``), so a larger budget never costs
    more, given the same time; for the same graph, a second budget is a look-up. Ctrl-C ends the
    search, not the program: what has been found by then is the answer.

    Args:
        graph: what ``differentiate`` returned; a graph without a backward half is evaluated once.
        policy: a name or entry of ``POLICIES``, or a function of your own,
            ``policy(graph, costs, **options)`` -> Schedule. Store-all, if there is no budget.
        budget: the peak to stay within: ``"64 MiB"``, bytes, ``"9 nodes"``, ``"50 %"`` or a float
            from 0 to 1 for a share of store-all's peak.
        costs: what evaluations cost and values weigh. If not given, the costs that the graph
            carries, or one an evaluation; and bytes.
        options: the policy's own, such as ``keep=...`` for ``retain``; without a policy, those of
            ``frontier``: ``time_limit`` in seconds, and ``progress``.

    Raises:
        ScheduleError: if the policy is unknown, refuses its options, or returns something illegal.
        BudgetError: if no schedule was found within the budget; with the smallest peak that was.
    """
    if not isinstance(graph, Graph):
        raise ScheduleError(f"expected a Graph, got a {type(graph).__name__}")
    costs = costs_of(graph, costs)
    if budget is None:
        return planned(graph, "store_all" if policy is None else policy, costs, options)
    limit, costs = parse_budget(graph, costs, budget)
    if policy is None:
        legal = ("time_limit", "progress")
        for option in options:
            if option not in legal:
                raise ScheduleError(
                    f"a plan without a policy has no option {option!r}; it has {', '.join(legal)}"
                )
        chain = uniform_chain(graph, costs)
        if chain is not None and limit >= 3 * chain[1]:
            # Nothing to search: Revolve is optimal at every budget.
            slots = min(limit // chain[1] - 2, chain[0])
            return certified(planned(graph, "revolve", costs, {"slots": slots}), costs, limit)
        return search(graph, costs, **options).schedule(limit)
    if callable(policy) and not takes_budget(policy):
        raise ScheduleError("the policy takes no budget; give it a keyword argument 'budget'")
    name = policy.name if isinstance(policy, Policy) else policy
    if isinstance(name, str) and name in POLICIES and "budget" not in options_of(POLICIES[name]):
        able = [p.name for p in POLICIES.values() if "budget" in options_of(p)]
        raise ScheduleError(
            f"{name} takes no budget; leave the policy out for the best of all, or take one of "
            f"{', '.join(able)}"
        )
    schedule = planned(graph, policy, costs, {**options, "budget": limit})
    peak, unit = peak_of(schedule, costs), costs.memory_unit
    if peak > limit:
        raise BudgetError(
            f"{schedule.policy} planned a peak of {memory_text(peak, unit)}, which is more than "
            f"the budget of {memory_text(limit, unit)}",
            peak,
        )
    return schedule if schedule.certificate else certified(schedule, costs, limit)


def costs_of(graph: Graph, costs: Costs | None) -> Costs:
    """Return the costs to plan with, after checking that they are the graph's."""
    if costs is None:
        return given(graph)
    if not isinstance(costs, Costs):
        raise ScheduleError(f"costs: expected tc.Costs, got a {type(costs).__name__}")
    lengths = len(costs.operators), len(costs.data), len(costs.workspace)
    if lengths != (len(graph.operators), len(graph.data), len(graph.operators)):
        raise ScheduleError(f"the costs are not those of {graph.name}: other numbers of nodes")
    return costs


def frontier(
    graph: Graph,
    costs: Costs | None = None,
    *,
    nodes: bool = False,
    time_limit: float = 6.0,
    progress: Progress | None = None,
) -> Frontier:
    """Return peak against cost of the best schedules that all planners but the solver find.

    ``print`` shows the table; ``.points`` are the data; ``.schedule(budget)`` is one of them.
    Interrupted by Ctrl-C, the search returns what it has.

    Args:
        graph: the training graph.
        costs: as in ``plan``.
        nodes: whether memory is counted in values instead of bytes.
        time_limit: seconds after which the search ends, those spent on the same graph before
            included: asking again is a look-up, unless it is with more time.
        progress: called as ``progress(policy, points)`` after every attempt.
    """
    if not isinstance(graph, Graph):
        raise ScheduleError(f"expected a Graph, got a {type(graph).__name__}")
    resolved = costs_of(graph, costs)
    return search(graph, in_nodes(resolved) if nodes else resolved, time_limit, progress)


def lower_bound(graph: Graph, budget: Budget, costs: Costs | None = None) -> float:
    """Return a cost that no schedule within the budget is below; infinite if there is none.

    Args:
        graph: any graph.
        budget: as in ``plan``.
        costs: as in ``plan``.
    """
    limit, costs = parse_budget(graph, costs_of(graph, costs), budget)
    return cost_bound(graph, costs, limit)


def certify(schedule: Schedule, costs: Costs | None = None, *, nodes: bool = False) -> Certificate:
    """Return how far from the optimum at its own peak a schedule is, at most.

    Args:
        schedule: a legal schedule, from any policy.
        costs: as in ``plan``.
        nodes: whether memory is counted in values instead of bytes.

    Raises:
        ScheduleError: if the schedule is not legal, or moves values to the host.
    """
    resolved = costs_of(schedule.graph, costs)
    resolved = in_nodes(resolved) if nodes else resolved
    certificate = certified(schedule, resolved, peak_of(schedule, resolved)).certificate
    if certificate is None:
        raise ScheduleError(
            "a schedule that moves values to the host has no certificate: bounds are known here "
            "for schedules on one device only"
        )
    return certificate


def peak_of(schedule: Schedule, costs: Costs) -> int:
    """Return the replayed peak in the memory unit of the costs."""
    trace = replay(schedule)
    return trace.peak_nodes if costs.memory_unit == "nodes" else trace.peak_bytes


def cost_of(schedule: Schedule, costs: Costs) -> float:
    """Return the cost of all evaluations."""
    return sum(
        costs.operators[step.operator] for step in schedule.steps if isinstance(step, Compute)
    )


def certified(schedule: Schedule, costs: Costs, budget: int) -> Schedule:
    """Return the schedule with a certificate for a budget; without one if it uses the host."""
    if any(isinstance(step, Offload | Fetch) for step in schedule.steps):
        return schedule
    certificate = certificate_of(schedule.graph, costs, cost_of(schedule, costs), budget)
    return replace(schedule, certificate=certificate)


def takes_budget(policy: Callable[..., Schedule]) -> bool:
    """Whether a function of the user's can be called with ``budget=...``."""
    parameters = signature(policy).parameters
    return "budget" in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def options_of(policy: Policy) -> dict[str, Any]:
    """Return the options of a policy with their defaults."""
    return policy.plan.__kwdefaults__ or {}


def planned(graph: Graph, policy: PolicyLike, costs: Costs, options: Mapping[str, Any]) -> Schedule:
    """Return the schedule that one policy makes."""
    if callable(policy):
        schedule = policy(graph, costs, **options)
        if not isinstance(schedule, Schedule):
            raise ScheduleError(
                f"the policy returned a {type(schedule).__name__}; return a Schedule, such as "
                "tc.from_order(graph, [operator ids])"
            )
        if schedule.graph is not graph:
            raise ScheduleError("the policy returned a schedule of another graph")
        replay(schedule)
        return schedule
    name = policy.name if isinstance(policy, Policy) else policy
    if not isinstance(name, str) or name not in POLICIES:
        raise ScheduleError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
    planner = POLICIES[name].plan
    legal = options_of(POLICIES[name])
    for option in options:
        if option not in legal:
            raise ScheduleError(
                f"{name} has no option {option!r}; it has {', '.join(legal) or 'none'}"
            )
    return planner(graph, costs, **options)
