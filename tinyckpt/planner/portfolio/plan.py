"""Planner entry points: plan by policy or budget, Pareto frontier, lower bound, certificate.

``plan``, and around it ``frontier`` (peak against cost), ``lower_bound`` and ``certify``. Requests
are checked here; ``resolve_policy`` runs one policy, ``search`` the portfolio of all, ``pareto``
answers a budget from the frontier it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from tinyckpt.base.deadline import NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, PolicyOptionError, ScheduleError, expect
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import counted, memory_text
from tinyckpt.codegen.in_place import InPlace, forward_in_place
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Fetch, Offload, Schedule, data_title
from tinyckpt.core.trace import Trace
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.budget import (
    is_total,
    parse_budget,
    with_sources,
    with_units,
)
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.cost_models import cost_of, given, in_nodes
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound
from tinyckpt.planner.model.plan_request import PlanRequest, reserved
from tinyckpt.planner.model.vectorised_lowering import lower
from tinyckpt.planner.portfolio.local_improvement import improved
from tinyckpt.planner.portfolio.pareto import Frontier, certificate_of
from tinyckpt.planner.portfolio.policies import POLICIES, Policy
from tinyckpt.planner.portfolio.resolve_policy import (
    PolicyFunction,
    PolicyLike,
    check_options,
    name_of,
    resolved,
    run_policy,
    takes,
)
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS, Progress, search_frontier
from tinyckpt.planner.portfolio.seeds import Seed, checked_seeds

Budget = str | int | float
# Part of the time limit for the frontier, if local search follows. Doubled: none is left for that.
SEARCH_SHARE = 0.5
NO_BACKWARD_PASS = "no backward pass"  # begins the note of such a schedule; a summary repeats it
NOT_IN_PLACE = "with nothing computed in place"  # what certificates are about
# Of a plan without a policy.
PORTFOLIO_OPTIONS = ("time_limit", "progress", "seeds", "order", "improve")


@short_traceback
def plan(
    graph: Graph,
    policy: PolicyLike | None = None,
    *,
    budget: Budget | None = None,
    costs: Costs | None = None,
    in_place: bool = False,
    **options: Any,
) -> Schedule:
    """Plan a schedule of a graph: by a policy, or the best one known within a memory budget.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(16)
    >>> tc.replay(tc.plan(graph, "sqrt_n")).summary()
    'sqrt_n on chain:16: 42 evaluations, 9 of them recomputations; peak 9 nodes, 4.5 KiB'
    >>> print(tc.plan(graph, budget="9 nodes").certificate)
    optimal: no schedule within 9 nodes costs less than 42 evaluations
    >>> def in_build_order(graph):
    ...     return [operator.name for operator in graph.operators]
    >>> tc.plan(graph, in_build_order)
    <Schedule in_build_order of chain:16, 65 steps>

    With a budget and no policy, all planners that need no solver are tried at many settings (the
    policy ``optimal`` has to be requested by name). The cheapest schedule of the frontier whose
    true peak is within the budget is returned, with a certificate: optimal, or an upper bound on
    its distance from the optimum.

    Such a plan never costs more than the result of any single policy that moves nothing to the
    host, by its default options, for the same budget, and never more than a plan for a smaller
    budget. Both hold because the search does not depend on the budget, and a policy that is
    requested by name for a budget answers from a part of the same search (see ``portfolio``). They
    hold once the search is complete, in any process, whatever was requested before. If the time
    limit cuts it, as in graphs of thousands of operators, the note says so; then dtr, blocks and
    greedy have been tried before anything else at the nearest level of memory below the budget, as
    far as the time went; ``improve`` evicts at this very budget, too. For the same graph, a second
    budget is a look-up, or no more than that. Ctrl-C ends the search, not the program: the best
    found by then is the answer.

    Args:
        graph: the result of ``differentiate``, or any other graph.
        policy: a name or entry of ``POLICIES``, or a function of your own, of ``(graph)`` or
            ``(graph, costs)`` and options by keyword. It returns the order in which operators are
            evaluated, by ids or names, or a Schedule. Store-all, if there is no budget.
        budget: the largest peak allowed: ``"64 MiB"``, bytes, ``"9 nodes"``, ``"50 %"`` or a float
            from 0 to 1 for a share of store-all's peak; ``"24 GiB total"`` counts the sources too.
        costs: of evaluations, and sizes of values. If not given, the costs that the graph carries,
            or 1 per evaluation; and bytes.
        in_place: whether elementwise operators overwrite an operand that is read for the last time
            (``codegen.in_place``): the cost is the same, and the peak no higher. The plan is made
            without, for the budget too, and operators are then computed in place where they can be.
        options: the policy's own, such as ``keep=...`` for ``retain``; without a policy, those of
            ``frontier``: ``time_limit`` in seconds, ``progress`` and ``seeds``; and ``order``:
            ``free``, or ``given`` for schedules whose first evaluations come in the graph's own
            order; and ``improve``: whether evictions and local search at this very budget go on
            from the best plan, in half of the time limit at least. What it finds is not part of the
            frontier, so that a plan for a smaller budget may be cheaper. All policies that search
            have a ``time_limit``, and return the best so far when it is up.

    Raises:
        PolicyOptionError: if the policy is unknown, or refuses its options; it is a ScheduleError.
        ScheduleError: if the policy returns an illegal schedule, or would return one that is too
            long.
        BudgetError: if no schedule was found within the budget; with the smallest peak that was.
    """
    is_in_place = checked_flag("in_place", in_place)
    schedule = planned(graph, policy, budget, costs, options)
    if not is_in_place:
        return schedule
    forwarded = forward_in_place(schedule)
    if schedule.certificate is None or forwarded is schedule:
        return forwarded
    return replace(forwarded, certificate=schedule.certificate.among(NOT_IN_PLACE))


def planned(
    graph: Graph,
    policy: PolicyLike | None,
    budget: Budget | None,
    costs: Costs | None,
    options: Mapping[str, Any],
) -> Schedule:
    """Plan a schedule with each result in memory of its own, as ``plan`` says."""
    expect(graph, Graph)
    costs = costs_of(graph, costs)
    if budget is None:
        chosen = "store_all" if policy is None else policy
        return noted_if_forward_only(run_policy(graph, chosen, costs, options))
    own = None if policy is None else budgeted(policy)
    if own is None:
        check_options("a plan without a policy", options, PORTFOLIO_OPTIONS)
    default = PORTFOLIO_SECONDS if own is None else inf
    deadline = Clock(checked_seconds(options.get("time_limit", default)))
    improves = own is None and checked_flag("improve", options.get("improve", False))
    seeds = checked_seeds(graph, options.get("seeds", ())) if own is None else ()
    in_order = own is None and is_given(options.get("order", "free"))
    amount, problem = parse_budget(graph, costs, budget, in_order)
    request = PlanRequest(graph, problem.costs, amount, deadline, seeds, problem)
    try:
        if own is None:
            best = best_within(request, options.get("progress"), improves)
            return noted_if_forward_only(best)
        return noted_if_forward_only(planned_by(own, request, options))
    except BudgetError as error:
        if is_total(budget):
            raise with_sources(error, graph, budget) from None
        raise with_units(error, budget, problem.costs) from None


def checked_flag(name: str, value: object) -> bool:
    """Return an option that is True or False.

    Raises:
        PolicyOptionError: if it is neither.
    """
    if not isinstance(value, bool):
        raise PolicyOptionError(f"{name}={value!r:.80}; expected True or False")
    return value


def is_given(order: object) -> bool:
    """Whether first evaluations have to come in the order that the graph gives.

    Raises:
        PolicyOptionError: if the option is neither ``free`` nor ``given``.
    """
    if order not in ("free", "given"):
        raise PolicyOptionError(f"order={order!r:.80}; expected 'free' or 'given'")
    return order == "given"


def noted_if_forward_only(schedule: Schedule) -> Schedule:
    """Begin the note of a schedule with "no backward pass" if its graph takes no derivative."""
    operators, forward_count = schedule.graph.operators, schedule.graph.forward_count
    # Operators of a nested derivative are part of the forward pass.
    derived = forward_count < len(operators) or any(op.adjoint_of is not None for op in operators)
    if derived or schedule.note.startswith(NO_BACKWARD_PASS):
        return schedule
    note = f"{NO_BACKWARD_PASS} (tc.differentiate adds it); {schedule.note}"
    return replace(schedule, note=note.removesuffix("; "))


def budgeted(policy: PolicyLike) -> Policy | PolicyFunction:
    """Look up a policy that takes a budget.

    Raises:
        PolicyOptionError: if it takes none.
    """
    own = resolved(policy)
    if takes(own, "budget"):
        return own
    able = [p.name for p in POLICIES.values() if takes(p, "budget")]
    cure = "give it a keyword argument 'budget'"
    if own in POLICIES.values():
        cure = "leave the policy out for the best of all, or take one of " + ", ".join(able)
    raise PolicyOptionError(f"the policy {name_of(own)} takes no budget; {cure}")


def planned_by(
    policy: Policy | PolicyFunction, request: PlanRequest, options: Mapping[str, Any]
) -> Schedule:
    """Return a policy's own schedule within a budget, certified.

    Raises:
        BudgetError: if the schedule exceeds the budget; and as ``run_policy``.
    """
    graph, costs, budget = request.graph, request.costs, request.budget_size
    seconds = None
    own = {**options, "budget": budget}
    if "time_limit" in options:
        seconds = request.deadline.seconds
        own["time_limit"] = max(0.0, request.deadline.left() - reserved(graph, seconds))
    schedule = run_policy(graph, policy, costs, own, seconds)
    peak, unit = peak_of(replay(schedule), costs), costs.memory_unit
    if peak > budget:
        raise BudgetError(
            f"{schedule.policy} planned a peak of {memory_text(peak, unit)}, which is more than "
            f"the budget of {memory_text(budget, unit)}",
            peak,
        )
    if schedule.certificate:
        return schedule
    return certified(schedule, request.problem, budget, request.deadline)


def best_within(request: PlanRequest, progress: Progress | None, improves: bool) -> Schedule:
    """Return the best schedule found within the budget of a request, certified.

    Args:
        request: it has a budget.
        progress: as of ``plan``.
        improves: whether local search goes on from the best of the frontier.
    """
    graph, costs, budget = request.graph, request.costs, request.budget_size
    chain = uniform_chain(graph, costs)
    if chain is None or budget < 3 * chain[1]:
        searched = request
        if improves:
            searched = replace(request, deadline=Clock(request.deadline.left() * SEARCH_SHARE))
        found = search_frontier(searched, progress)
        if improves and not found.complete and found.points[0].peak > budget:
            found = search_frontier(request, progress)  # nothing to go on from yet
        try:
            best = found.cheapest(budget, deadline=searched.deadline)
            return improved(best, request) if improves else best
        except BudgetError as error:
            text = f"{error}; {least_peak_text(found)}"
            raise BudgetError(text, error.smallest, error.proven) from None
    # Nothing to search: Revolve is optimal at every budget.
    schedule = run_policy(graph, "revolve", costs, {"budget": budget})
    return certified(schedule, request.problem, budget)


def least_peak_text(found: Frontier) -> str:
    """Say what is live at the smallest peak of a frontier: the gradients, or the largest values."""
    graph, costs, least = found.graph, found.costs, found.points[0]
    trace = replay(lower(graph, least.order.tolist(), least.policy))
    live = trace.resident_at(trace.peak_step)
    gradients = sum(costs.data[data] for data in live.intersection(leaves(graph.gradients)))
    if 2 * gradients >= least.peak:
        size = memory_text(gradients, costs.memory_unit)
        return f"the gradients alone are {size} of it: tc.train_step frees each once it is applied"
    largest = sorted(live, key=lambda data: (-costs.data[data], data))[:2]
    sizes = [memory_text(costs.data[data], costs.memory_unit) for data in largest]
    names = [data_title(graph, data) for data in largest]
    both = [f"{name} ({size})" for name, size in zip(names, sizes, strict=True)]
    return f"the largest of {counted(len(live), 'value')} there: {', '.join(both)}"


def costs_of(graph: Graph, costs: Costs | None, nodes: bool = False) -> Costs:
    """Return the costs to plan with, in nodes if so requested; checked to be the graph's."""
    own = given(graph) if costs is None else costs
    if not isinstance(own, Costs):
        raise ScheduleError(f"costs: expected tc.Costs, got a {type(own).__name__}")
    lengths = len(own.operators), len(own.data), len(own.workspace)
    if lengths != (len(graph.operators), len(graph.data), len(graph.operators)):
        raise ScheduleError(f"the costs are not those of {graph.name}: numbers of nodes differ")
    return in_nodes(own) if nodes else own


@short_traceback
def frontier(
    graph: Graph,
    costs: Costs | None = None,
    *,
    nodes: bool = False,
    time_limit: float = PORTFOLIO_SECONDS,
    progress: Progress | None = None,
    seeds: Iterable[Seed] = (),
) -> Frontier:
    """Search the frontier of peak memory against cost, over all planners but the solver.

    >>> import tinyckpt as tc
    >>> found = tc.frontier(tc.networks.chain(4), nodes=True)
    >>> [(point.peak, point.cost) for point in found.points]
    [(3, 15.0), (4, 11.0), (5, 10.0), (6, 9.0)]
    >>> found.schedule(5)
    <Schedule sqrt_n of chain:4, 19 steps>

    ``print`` shows the table; ``.points`` are the data; ``.schedule(budget)`` is one of them.
    Interrupted by Ctrl-C, the search returns what it has found so far.

    Args:
        graph: the training graph.
        costs: as in ``plan``.
        nodes: whether memory is counted in values instead of bytes.
        time_limit: seconds after which the search ends, those spent on the same graph before
            included: a repeated request is a look-up, unless it has more time.
        progress: called as ``progress(policy, points)`` after every attempt.
        seeds: schedules of the graph, or sets of forward values to save, each as in ``retain``: the
            saved values of another tool, for example, or an earlier plan. The frontier is then no
            more expensive than they are at their own peaks; of sets, than as many as there is time
            for.
    """
    expect(graph, Graph)
    own = costs_of(graph, costs, nodes)
    deadline = Clock(checked_seconds(time_limit))
    checked = checked_seeds(graph, seeds)
    request = PlanRequest(graph, own, None, deadline, checked, problem_of(graph, own))
    return search_frontier(request, progress)


@short_traceback
def lower_bound(graph: Graph, budget: Budget, costs: Costs | None = None) -> float:
    """Return a lower bound on the cost of every schedule within a budget; infinite if none exists.

    >>> import tinyckpt as tc
    >>> tc.lower_bound(tc.networks.chain(4), "4 nodes")
    11

    Args:
        graph: any graph.
        budget: as in ``plan``.
        costs: as in ``plan``.
    """
    expect(graph, Graph)
    amount, problem = parse_budget(graph, costs_of(graph, costs), budget)
    return cost_bound(problem, amount)


@short_traceback
def certify(schedule: Schedule, costs: Costs | None = None, *, nodes: bool = False) -> Certificate:
    """Certify a schedule: the proven upper bound on its distance from the optimum at its own peak.

    >>> import tinyckpt as tc
    >>> print(tc.certify(tc.plan(tc.networks.chain(4), "sqrt_n"), nodes=True))
    optimal: no schedule within 5 nodes costs less than 10 evaluations

    Args:
        schedule: a legal schedule, from any policy.
        costs: as in ``plan``.
        nodes: whether memory is counted in values instead of bytes.

    Raises:
        ScheduleError: if the schedule is illegal, moves values to the host, or computes in place.
    """
    expect(schedule, Schedule)
    own = costs_of(schedule.graph, costs, nodes)
    peak, problem = peak_of(replay(schedule), own), problem_of(schedule.graph, own)
    certificate: Certificate | None = certified(schedule, problem, peak).certificate
    if certificate is None:
        raise ScheduleError(
            f"a schedule that {unbounded(schedule)} has no certificate: bounds are known here for "
            "schedules on one device only, with nothing computed in place"
        )
    return certificate


def peak_of(trace: Trace, costs: Costs) -> int:
    """Return the peak in the memory unit of the costs."""
    return trace.peak_nodes if costs.memory_unit == "nodes" else trace.peak_bytes


def certified(
    schedule: Schedule, problem: Problem, budget: int, deadline: Clock = NO_DEADLINE
) -> Schedule:
    """Return the schedule with a certificate for a budget; without one if no bound is known."""
    if unbounded(schedule):
        return schedule
    cost = cost_of(schedule, problem.costs)
    certificate = certificate_of(problem, cost, budget, deadline)
    return replace(schedule, certificate=certificate)


def unbounded(schedule: Schedule) -> str:
    """Return what a schedule does that no bound here allows for, in words; empty if nothing."""
    if any(isinstance(step, Offload | Fetch) for step in schedule.steps):
        return "moves values to the host"
    computes = any(isinstance(step, InPlace) for step in schedule.steps)
    return "computes in place" if computes else ""
