"""Optimal: the cheapest of all schedules within a budget, with a proof, for small graphs.

A staged relaxation of all schedules is solved by OR-tools' CP-SAT and made exact where it matters;
see ``exact.cp_model``, ``exact.stage_order``, ``exact.stage_astar`` and ``exact.benders``. It
begins with the best of the other policies and with ``bounds.flow_bound``, and searches the states
of the whole problem as far as these are few. First evaluations in build order come next: quickly
solved, and often as good as any. Then the model of a longest path, for a bound. Then the whole
model, in which the solver chooses the order of all first evaluations.

Optimal means: among all legal schedules as ``replay`` has them, in any order, with any number of
recomputations, nothing moved to the host. A chain of 16 layers or a network of some 30 operators
takes seconds; beyond, there may be only a better schedule and a better bound than before. What is
not proven is called heuristic, with the bound. Two operators that could be run side by side are a
choice of order here; symmetric parts of a graph are not exploited.

Sources: staged models as in Checkmate, Jain et al. 2020, arXiv 1910.02653, whose schedules evaluate
each operator at most once a stage, in build order; the relaxation over all schedules, the pricing
of stages by search and the cuts are this project's. CP-SAT: Perron, Didier and Gay, "The
CP-SAT-LP solver", 2023, doi:10.4230/LIPIcs.CP.2023.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import gcd, inf
from time import monotonic

from tinyckpt.base.deadline import Clock, OutOfTimeError, checked_seconds
from tinyckpt.base.errors import BudgetError, PolicyOptionError, ScheduleError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy, plan_sqrt_n
from tinyckpt.core.schedule import EVALUATIONS, Certificate, Schedule
from tinyckpt.planner.chain_dp.revolve import plan_revolve
from tinyckpt.planner.chain_dp.rotor import plan_rotor
from tinyckpt.planner.exact.benders import ExactSearch
from tinyckpt.planner.exact.cp_model import Master, solver_module
from tinyckpt.planner.exact.reduced_graph import LARGEST_TOTAL, Scale, reduce_problem, whole_costs
from tinyckpt.planner.exact.stage_order import longest_path, path_model, whole_model
from tinyckpt.planner.heuristics.backward_order import frugal_sequence
from tinyckpt.planner.heuristics.greedy import greedy_orders, settings_of
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import cost_bound, flow_bound, necessary, smallest_budget

BUILD_ORDER_SCOPE = "schedules whose first evaluations come in build order"
# Shares of the time that is left, for first evaluations in build order and for a longest path.
ORDERED_SHARE, PATH_SHARE = 1 / 6, 1 / 8
# To build a model takes about that long for every pair of operators; not worth it if time is short.
BUILD_SECONDS = 2e-4
# The total of the costs in the models. Where coefficients exceed 2^30, the presolve of CP-SAT 9.15
# was seen to lose solutions; this stays far from there.
LARGEST_SOLVED = 2**28
# Costs that are no whole numbers count as equal if they agree to seven digits.
TOLERANCE = 1e-7
MOST_OPERATORS = 5_000  # of which there are sets of all descendants: beyond, they take long to make
LEAST_SECONDS = 0.01  # for a second budget, where the first took all the time


class Inquiry:
    """What is asked, and what is known so far: of all schedules, or of those in build order.

    Attributes:
        problem, budget: the graph and its costs, and the largest peak allowed.
        build_order: whether first evaluations must come in build order.
        deadline: by ``time.monotonic``.
        orders: orders of evaluations that are within the budget.
        smallest: the smallest peak found, within the budget or not.
        bound: no schedule of the class costs less.
        infeasible: whether no schedule of the class is within the budget.
        rounds, cuts: how often a model was solved, and what it was told since.
    """

    def __init__(
        self, problem: Problem, budget: int, build_order: bool, deadline: float, clock: Clock
    ) -> None:
        self.problem, self.budget = problem, budget
        self.build_order, self.deadline = build_order, deadline
        self.needed = necessary(problem.graph)
        self.general_bound = flow_bound(problem.graph, problem.costs, budget, clock)
        self.bound = self.general_bound
        self.infeasible = self.bound == inf
        self.orders: list[list[int]] = []
        self.smallest: int | None = None
        self.rounds = self.cuts = 0

    def offer(self, order: Sequence[int]) -> bool:
        """Take an order, without what nothing depends on, if it is of the class and fits."""
        needed = set(self.needed)
        kept = [operator for operator in order if operator in needed]
        firsts = list(dict.fromkeys(kept))
        if self.build_order and firsts != sorted(firsts):
            return False
        peak = self.problem.peak(kept)
        self.smallest = peak if self.smallest is None else min(self.smallest, peak)
        if peak <= self.budget:
            self.orders.append(kept)
        return peak <= self.budget

    def best(self) -> list[int]:
        """Return the cheapest order."""
        return min(self.orders, key=self.problem.cost_of)

    def search(self, largest: int) -> tuple[ExactSearch, Scale]:
        """Return a search that knows what is known, and how it counts costs.

        Args:
            largest: total of the costs up to which they are not rounded.
        """
        reduced, scale = reduce_problem(self.problem, self.budget, largest)
        search = ExactSearch(
            reduced,
            lambda order: self.offer(reduced.original(order)),
            scale.whole_bound(self.bound),
            self.deadline,
        )
        for order in list(self.orders):
            search.know(reduced.own(order))
        return search, scale

    def learn(self, search: ExactSearch, scale: Scale) -> None:
        """Take over what a search has found out; its orders have been offered."""
        self.bound = max(self.bound, float(scale.bound(search.lower)))
        self.infeasible = search.infeasible
        self.rounds += search.rounds
        self.cuts += search.cuts


def plan_optimal(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = 60.0,
    order: str = "free",
) -> Schedule:
    """Find the cheapest schedule within the budget, and prove that it is, if time suffices.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the smallest that is found if that is too little.
        time_limit: seconds after which the best schedule so far is returned, with its bound. An
            interrupt (Ctrl-C) does the same at once.
        order: ``free`` for all schedules; ``build`` for those whose first evaluations come in build
            order, a smaller class that is searched faster.

    Raises:
        BackendError: if OR-tools is not installed.
        BudgetError: if no schedule is within the budget, or none is found in time.
        PolicyOptionError: if an option is not legal.
    """
    if order not in ("free", "build"):
        raise PolicyOptionError(f"optimal: order={order!r}; legal are 'free' and 'build'")
    if not checked_seconds(time_limit) > 0:
        raise PolicyOptionError(
            f"optimal: time_limit={time_limit!r}; it must be more than 0 seconds"
        )
    solver_module()
    clock = Clock(time_limit)
    problem = Problem(graph, costs)
    if budget is None:
        half = problem.peak(range(len(graph.operators))) // 2
        try:
            return plan_optimal(graph, costs, budget=half, time_limit=time_limit, order=order)
        except BudgetError as error:
            if error.smallest is None:
                raise
            budget, time_limit = error.smallest, max(clock.left(), LEAST_SECONDS)
    budget_size = budget
    chain = uniform_chain(graph, costs)
    if chain is not None and budget_size >= 3 * chain[1]:
        # Proven in closed form; Revolve attains it, and evaluates first in build order.
        schedule = plan_revolve(graph, costs, budget=budget_size)
        bound = cost_bound(graph, costs, budget_size)
        proven = Certificate("optimal", bound, bound, budget_size, costs.unit, costs.memory_unit)
        options = {"budget": budget_size, "time_limit": time_limit, "order": order}
        return replace(schedule, policy="optimal", options=options, certificate=proven)
    inquiry = Inquiry(problem, budget_size, order == "build", monotonic() + clock.left(), clock)
    try:
        for known in known_orders(problem, budget_size, clock):
            inquiry.offer(known)
        if not inquiry.infeasible:
            inquire(inquiry)
    except KeyboardInterrupt:
        if not inquiry.orders:
            raise
    if not inquiry.orders:
        raise budget_error(inquiry, time_limit)
    best = inquiry.best()
    return from_order(
        graph,
        best,
        "optimal",
        {"budget": budget_size, "time_limit": time_limit, "order": order},
        f"{len(best) - len(inquiry.needed)} recomputations; "
        f"{inquiry.rounds} models solved, {inquiry.cuts} cuts",
        certificate=certificate_of(inquiry, best),
    )


def known_orders(problem: Problem, budget: int, clock: Clock) -> Iterator[list[int]]:
    """Yield orders that other policies make in time, whether they are within the budget or not."""
    graph, costs = problem.graph, problem.costs
    stored = list(range(len(graph.operators)))
    sequence = frugal_sequence(problem, clock)
    yield stored
    yield sequence
    planners: list[Callable[[], Schedule]] = [
        lambda: plan_sqrt_n(graph, costs),
        lambda: plan_revolve(graph, costs, slots=1),
        lambda: plan_revolve(graph, costs, budget=budget, time_limit=clock.left()),
        lambda: plan_rotor(graph, costs, budget=budget, time_limit=clock.left()),
    ]
    for planner in planners:
        try:
            schedule = planner()
        except (BudgetError, ScheduleError, OutOfTimeError):
            continue
        yield [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
    try:
        for _, _, found in greedy_orders(problem, budget, settings_of(problem, clock), clock):
            yield found
    except OutOfTimeError:
        return


def inquire(inquiry: Inquiry) -> None:
    """Search until the optimum is proven or the time is up: first directly, then with models.

    In a graph too large for that, nothing is searched: the best that other policies make remains,
    with the bound that is known of any graph.
    """
    if len(inquiry.needed) > MOST_OPERATORS:
        return
    for largest, work in ((LARGEST_TOTAL, search_states), (LARGEST_SOLVED, solve_models)):
        search, scale = inquiry.search(largest)
        try:
            if not search.settled:
                work(search, inquiry.build_order)
        finally:  # an interrupt does not undo what is proven
            inquiry.learn(search, scale)
        if search.settled:
            return


def search_states(search: ExactSearch, build_order: bool) -> None:
    """Search the states of the whole problem, if they are few; they know of no order."""
    if not build_order:
        search.directly()


def solve_models(search: ExactSearch, build_order: bool) -> None:
    """Solve model after model, each knowing what the one before has found."""
    reduced = search.reduced
    count = len(reduced.operators)
    in_order = range(count)
    path = longest_path(reduced)

    def attempt(build: Callable[[], Master], share: float, everything: bool = True) -> None:
        remaining = search.deadline - monotonic()
        if not search.settled and remaining > BUILD_SECONDS * count**2:
            search.run(build(), share * remaining, everything)

    if build_order or len(path) == count:  # where there is but one order, one model does
        attempt(lambda: whole_model(reduced, in_order), 1.0)
        return
    attempt(lambda: whole_model(reduced, in_order), ORDERED_SHARE, everything=False)
    attempt(lambda: path_model(reduced, path), PATH_SHARE)
    attempt(lambda: whole_model(reduced, None), 1.0)


def certificate_of(inquiry: Inquiry, order: list[int]) -> Certificate:
    """Return what is proven of the cost of an order."""
    problem = inquiry.problem
    cost = problem.cost_of(order)
    exact = whole_costs([problem.costs.operators[i] for i in inquiry.needed], LARGEST_TOTAL)[
        1
    ].exact
    tolerance = 1.0 if exact else 1 + TOLERANCE
    status, scope = "heuristic", ""
    # A bound on a class is none on all schedules.
    bound = inquiry.general_bound if inquiry.build_order else inquiry.bound
    if cost <= bound * tolerance:
        status = "optimal"
    elif cost <= inquiry.bound * tolerance:
        status, scope, bound = "optimal in its class", BUILD_ORDER_SCOPE, inquiry.bound
    return Certificate(
        status,  # type: ignore[arg-type]
        cost,
        min(cost, bound),
        inquiry.budget,
        problem.costs.unit,
        problem.costs.memory_unit,
        scope,
        len(problem.graph.once),
    )


def budget_error(inquiry: Inquiry, time_limit: float) -> BudgetError:
    """Return the error that says what is known of feasible budgets."""
    problem, smallest = inquiry.problem, inquiry.smallest
    unit = problem.costs.memory_unit
    what = f"no schedule of {problem.graph.name}"
    if inquiry.build_order:
        what += " whose first evaluations come in build order"
    if inquiry.infeasible:
        text = f"{what} is within {memory_text(inquiry.budget, unit)}, which is proven"
    else:
        text = f"{what} within {memory_text(inquiry.budget, unit)} was found in {time_limit:g} s"
    if smallest is None:
        return BudgetError(text)
    least = smallest_budget(problem, inquiry.needed)
    if inquiry.infeasible and not inquiry.build_order:
        step = gcd(*problem.size.tolist(), *problem.workspace.tolist()) or 1
        least = max(least, (inquiry.budget // step + 1) * step)
    text += f"; the smallest peak found is {memory_text(smallest, unit)}"
    if smallest <= least:
        text += ", and proven to be the smallest there is"
    return BudgetError(text, smallest, smallest <= least)


OPTIMAL = Policy(
    "optimal",
    plan_optimal,
    "the cheapest of all schedules, proven by a solver, for small graphs",
    "optimal over all schedules, where the solver (extra `optimal`) ends in time; else a bound",
    "exponential; some 30 operators in seconds",
    "staged as in Jain et al. 2020, arXiv 1910.02653; the relaxation and cuts are our own",
)
