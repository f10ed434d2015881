"""Optimal rematerialization by constraint programming: a schedule of least cost, with a proof.

For small graphs. A staged relaxation of all schedules is solved by OR-tools' CP-SAT and made exact
by Benders cuts where it matters; see ``exact.cp_model``, ``exact.stage_order``,
``exact.stage_astar`` and ``exact.benders``. The search starts from the best of the other policies
(upper bound) and from ``lower_bounds.flow_bound`` (lower bound), and runs A* over the resident sets
of the whole problem as far as these are few. The first master has first evaluations in build order:
quickly solved, and often as good as any. Then the master of a longest path, for a bound. Then the
full master, in which the solver chooses the order of all first evaluations.

Optimal means: among all legal schedules as ``replay`` has them, in any order, with any number of
recomputations, nothing moved to the host. A chain of 16 layers or a network of some 30 operators
takes seconds; beyond, there may be only a better schedule and a better bound than before. A result
that is not proven is called heuristic, with the bound. The order of two independent operators
counts as a choice here; symmetric parts of a graph are not exploited.

Sources: staged models as in Checkmate, Jain et al. 2020, arXiv 1910.02653, whose schedules evaluate
each operator at most once per stage, in build order; the relaxation over all schedules, the pricing
of stages by search and the cuts are this project's. CP-SAT: Perron, Didier and Gay, "The CP-SAT-LP
solver", 2023, doi:10.4230/LIPIcs.CP.2023.3.
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
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.planner.chain_dp.revolve import plan_revolve
from tinyckpt.planner.chain_dp.rotor import plan_rotor
from tinyckpt.planner.exact.benders import ExactSearch
from tinyckpt.planner.exact.cp_model import Master, solver_module
from tinyckpt.planner.exact.reduced_graph import LARGEST_TOTAL, Scale, integer_costs, reduce_problem
from tinyckpt.planner.exact.stage_order import longest_path, path_model, whole_model
from tinyckpt.planner.heuristics.backward_order import least_growth_order
from tinyckpt.planner.heuristics.greedy import greedy_orders, greedy_settings
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.lower_bounds import (
    cost_bound,
    flow_bound,
    needed_operators,
    smallest_budget,
)
from tinyckpt.planner.model.vectorised_lowering import checkpoints_of_order

BUILD_ORDER_SCOPE = "schedules whose first evaluations come in build order"
# Shares of the remaining time: first evaluations in build order, and along a longest path. Doubled:
# better schedules to start from, less time to prove them optimal.
ORDERED_SHARE, PATH_SHARE = 1 / 6, 1 / 8
# Seconds to build a model, per pair of operators; it is not built if less is left. Doubled: larger
# graphs keep what the heuristics found.
BUILD_SECONDS = 2e-4
# The total of the costs in the models. Where coefficients exceed 2^30, the presolve of CP-SAT 9.15
# was seen to lose solutions; this stays far below. Doubled: costs are rounded half as much.
LARGEST_SOLVED = 2**28
# Relative difference below which costs that are not integers count as equal; doubled: a little less
# strictly.
TOLERANCE = 1e-7
# Operators beyond which nothing is searched: the bit sets of all descendants take their square in
# bits, 3 MB here; doubled: 12 MB, and four times the time to build them.
MAX_SEARCHED_OPERATORS = 5_000
# Seconds for the second budget, if the first took all the time; doubled: as many more at most.
MIN_SECONDS = 0.01


class ProofState:
    """A planning problem with its incumbents and bounds, over all schedules or a class.

    The class, if any, is that of schedules whose first evaluations come in build order.

    Attributes:
        problem, budget: the graph and its costs, and the largest peak allowed.
        build_order: whether first evaluations must come in build order.
        deadline: by ``time.monotonic``.
        orders: orders of evaluations that are within the budget.
        smallest: the smallest peak found, within the budget or not.
        bound: lower bound: no schedule of the class costs less.
        infeasible: whether no schedule of the class is within the budget.
        rounds, cuts: number of master problems solved, and of cuts added.
    """

    def __init__(
        self, problem: Problem, budget: int, build_order: bool, deadline: float, clock: Clock
    ) -> None:
        self.problem, self.budget = problem, budget
        self.build_order, self.deadline = build_order, deadline
        self.needed = needed_operators(problem.graph)
        self.general_bound = flow_bound(problem, budget, clock)
        self.bound = self.general_bound
        self.infeasible = self.bound == inf
        self.orders: list[list[int]] = []
        self.smallest: int | None = None
        self.rounds = self.cuts = 0

    def offer(self, order: Sequence[int]) -> bool:
        """Accept an order, without its dead operators, if it is of the class and within budget."""
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
        """Return an exact search with all known orders and bounds, and its scale of costs.

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
        """Take over the bound and the counts of a search; its orders have been offered."""
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
        costs: of evaluations, and sizes of values.
        budget: the largest peak allowed, in the memory unit of the costs; if not given, half of
            store-all's peak, or the smallest that is found if that is too little.
        time_limit: seconds after which the best schedule so far is returned, with its bound. An
            interrupt (Ctrl-C) does the same at once.
        order: ``free`` for all schedules; ``build`` for those whose first evaluations come in build
            order, a smaller class that is searched faster.

    Raises:
        BackendError: if OR-tools is not installed.
        BudgetError: if no schedule is within the budget, or none is found in time.
        PolicyOptionError: if an option is invalid.
    """
    if order not in ("free", "build"):
        raise PolicyOptionError(f"optimal: order={order!r}; expected 'free' or 'build'")
    if not checked_seconds(time_limit) > 0:
        raise PolicyOptionError(
            f"optimal: time_limit={time_limit!r}; it must be more than 0 seconds"
        )
    solver_module()
    clock = Clock(time_limit)
    problem = problem_of(graph, costs)
    if budget is None:
        half = problem.peak(range(len(graph.operators))) // 2
        try:
            return plan_optimal(graph, costs, budget=half, time_limit=time_limit, order=order)
        except BudgetError as error:
            if error.smallest is None:
                raise
            budget, time_limit = error.smallest, max(clock.left(), MIN_SECONDS)
    budget_size = budget
    chain = uniform_chain(graph, costs)
    if chain is not None and budget_size >= 3 * chain[1]:
        # The closed form proves it; Revolve attains it, with first evaluations in build order.
        schedule = plan_revolve(graph, costs, budget=budget_size)
        bound = cost_bound(problem, budget_size)
        proven = Certificate("optimal", bound, bound, budget_size, costs.unit, costs.memory_unit)
        options = {"budget": budget_size, "time_limit": time_limit, "order": order}
        return replace(schedule, policy="optimal", options=options, certificate=proven)
    proof = ProofState(problem, budget_size, order == "build", monotonic() + clock.left(), clock)
    try:
        for known in incumbent_orders(problem, budget_size, clock):
            proof.offer(known)
        if not proof.infeasible:
            prove(proof)
    except KeyboardInterrupt:
        if not proof.orders:
            raise
    if not proof.orders:
        raise budget_error(proof, time_limit)
    best = proof.best()
    return from_order(
        graph,
        best,
        "optimal",
        {"budget": budget_size, "time_limit": time_limit, "order": order},
        f"{len(best) - len(proof.needed)} recomputations; "
        f"{proof.rounds} models solved, {proof.cuts} cuts",
        checkpoints_of_order(graph, best),
        proven_certificate(proof, best),
    )


def incumbent_orders(problem: Problem, budget: int, clock: Clock) -> Iterator[list[int]]:
    """Yield the orders of other policies, as many as time allows, within the budget or not."""
    graph, costs = problem.graph, problem.costs
    stored = list(range(len(graph.operators)))
    sequence = least_growth_order(problem, clock)
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
        for _, _, found in greedy_orders(problem, budget, greedy_settings(problem, clock), clock):
            yield found
    except OutOfTimeError:
        return


def prove(proof: ProofState) -> None:
    """Search until the optimum is proven or the time is up: first by A*, then by master problems.

    A graph too large for that is not searched: the best order of the other policies remains, with
    the lower bound that holds for any graph.
    """
    if len(proof.needed) > MAX_SEARCHED_OPERATORS:
        return
    for largest, work in ((LARGEST_TOTAL, search_states), (LARGEST_SOLVED, solve_models)):
        search, scale = proof.search(largest)
        try:
            if not search.settled:
                work(search, proof.build_order)
        finally:  # keep what is proven, even on an interrupt
            proof.learn(search, scale)
        if search.settled:
            return


def search_states(search: ExactSearch, build_order: bool) -> None:
    """Run A* over the resident sets of the whole problem, unless build order is required.

    It does not know of an order, and gives up where the states are many.
    """
    if not build_order:
        search.directly()


def solve_models(search: ExactSearch, build_order: bool) -> None:
    """Solve one master after another, each from the incumbent and bound of the one before."""
    reduced = search.reduced
    count = len(reduced.operators)
    in_order = range(count)
    path = longest_path(reduced)

    def attempt(build: Callable[[], Master], share: float, everything: bool = True) -> None:
        remaining = search.deadline - monotonic()
        if not search.settled and remaining > BUILD_SECONDS * count**2:
            search.run(build(), share * remaining, everything)

    if build_order or len(path) == count:  # only one order: one model suffices
        attempt(lambda: whole_model(reduced, in_order), 1.0)
        return
    attempt(lambda: whole_model(reduced, in_order), ORDERED_SHARE, everything=False)
    attempt(lambda: path_model(reduced, path), PATH_SHARE)
    attempt(lambda: whole_model(reduced, None), 1.0)


def proven_certificate(proof: ProofState, order: list[int]) -> Certificate:
    """Return the certificate of an order: what is proven of its cost."""
    problem = proof.problem
    cost = problem.cost_of(order)
    _, scale = integer_costs([problem.costs.operators[i] for i in proof.needed], LARGEST_TOTAL)
    tolerance = 1.0 if scale.exact else 1 + TOLERANCE
    status, scope = "heuristic", ""
    # A lower bound for a class does not hold for all schedules.
    bound = proof.general_bound if proof.build_order else proof.bound
    if cost <= bound * tolerance:
        status = "optimal"
    elif cost <= proof.bound * tolerance:
        status, scope, bound = "optimal in its class", BUILD_ORDER_SCOPE, proof.bound
    return Certificate(
        status,  # type: ignore[arg-type]
        cost,
        min(cost, bound),
        proof.budget,
        problem.costs.unit,
        problem.costs.memory_unit,
        scope,
        len(problem.graph.once),
    )


def budget_error(proof: ProofState, time_limit: float) -> BudgetError:
    """Return the error that says what is known of feasible budgets."""
    problem, smallest = proof.problem, proof.smallest
    unit = problem.costs.memory_unit
    what = f"no schedule of {problem.graph.name}"
    if proof.build_order:
        what += " whose first evaluations come in build order"
    if proof.infeasible:
        text = f"{what} is within {memory_text(proof.budget, unit)}, which is proven"
    else:
        text = f"{what} within {memory_text(proof.budget, unit)} was found in {time_limit:g} s"
    if smallest is None:
        return BudgetError(text)
    least = smallest_budget(problem)
    if proof.infeasible and not proof.build_order:
        step = gcd(*problem.size.tolist(), *problem.workspace.tolist()) or 1
        least = max(least, (proof.budget // step + 1) * step)
    text += f"; the smallest peak found is {memory_text(smallest, unit)}"
    if smallest <= least:
        text += ", and proven to be the smallest there is"
    return BudgetError(text, smallest, smallest <= least)


OPTIMAL = Policy(
    "optimal",
    plan_optimal,
    "the cheapest of all schedules, proven by a solver, for small graphs",
    "optimal over all schedules without offloading, where the solver (extra `optimal`) ends in "
    "time; else a bound",
    "exponential; some 30 operators in seconds",
    "staged as in Jain et al. 2020, arXiv 1910.02653; the relaxation and cuts are our own",
)
