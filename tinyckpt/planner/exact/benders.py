"""Logic-based Benders decomposition: solve the CP-SAT master, price its stages by A*, add cuts.

Each round asks CP-SAT for the least cost of the relaxation, which is a lower bound, and for a
solution. The stages of the solution are priced one by one by ``exact.stage_astar`` (the
subproblems). If every stage costs what the master assumed, the evaluations found are an optimal
schedule. If a stage costs more, a cut raises its cost for every stage between such resident sets,
and the next round begins.

The choice of CP-SAT's subsolvers matters: its default portfolio proves next to nothing here. Two
full searches that take their bounds from the linear relaxation do: ``reduced_costs`` for a start,
then ``core``, which closes the last few evaluations of the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from threading import Event, Thread
from time import monotonic
from typing import Any, Literal

from tinyckpt.planner.exact.cp_model import Master, add_cut, is_always, is_never, solver_module
from tinyckpt.planner.exact.reduced_graph import Reduced, as_set, members
from tinyckpt.planner.exact.stage_astar import SearchLimitError, StageSearch, lift

# Pairs of CP-SAT's full searches, each with its share of the time before the next pair's turn.
# Doubled: the first pair, which is better at small models only, has twice the time.
SUBSOLVERS = ((("reduced_costs", "max_lp"), 0.07), (("core", "max_lp"), 1.0))
# A* states to price a stage with the operators of the master's solution, and with any operators.
# Doubled: more stages are priced exactly, each in up to twice the time; the others are cut off as
# unknown, which costs iterations.
CHOSEN_STATES, ANY_STATES = 50_000, 15_000
# Units of cost by which CP-SAT's bound, a float, may exceed the integer that it stands for.
# Doubled: nothing changes, up to a half.
FLOAT_SLACK = 1e-3
# A* states before any master is built: about a second. Doubled: small graphs are solved without a
# solver, large ones begin later.
DIRECT_STATES = 20_000


@dataclass(frozen=True, slots=True)
class ModelStage:
    """One stage of a master solution: sets, and the cost of ``again`` that the master assumes."""

    first: int | None
    again: int
    held: int
    assumed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A solver's answer: status, lower bound on the cost, and the stages of a solution, if any."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    bound: int
    stages: tuple[ModelStage, ...] = ()


class ExactSearch:
    """The state of a search for the cheapest schedule.

    Attributes:
        order: the best order of evaluations so far, of the reduced operators; None if there is
            none.
        cost: its cost, as an integer: the upper bound.
        lower: the lower bound: no schedule costs less.
        infeasible: whether no schedule is within the budget.
        rounds, cuts: number of master problems solved, and of cuts added.
    """

    def __init__(
        self, reduced: Reduced, fits: Callable[[list[int]], bool], lower: int, deadline: float
    ) -> None:
        self.reduced, self.fits, self.deadline = reduced, fits, deadline
        self.order: list[int] | None = None
        self.cost = 0
        self.lower = max(lower, sum(reduced.cost))
        self.infeasible = False
        self.rounds = self.cuts = 0

    @property
    def settled(self) -> bool:
        """Whether the optimum, or infeasibility, is proven."""
        return self.infeasible or (self.order is not None and self.lower >= self.cost)

    def know(self, order: list[int]) -> None:
        """Accept an order that is within the budget as the incumbent, if it is the best so far."""
        cost = sum(self.reduced.cost[operator] for operator in order)
        if self.order is None or cost < self.cost:
            self.order, self.cost = order, cost

    def offer(self, order: list[int]) -> None:
        """Accept an order as the incumbent, if it is within the true budget and the best so far."""
        order = self.reduced.legal(order)
        if self.fits(order):
            self.know(order)

    def directly(self) -> None:
        """Run A* over the resident sets of the whole problem as one stage, if these are few."""
        search = StageSearch(self.reduced, self.reduced.outputs)
        bound = None if self.order is None else self.cost
        try:
            found = search.cheapest(0, bound, DIRECT_STATES, self.deadline)
        except SearchLimitError:
            return
        assert found is not None or self.order is None, "a known schedule is cut off"
        if found is None:
            self.infeasible = True
        else:
            self.lower = max(self.lower, found[0])
            self.offer(found[1])

    def run(self, master: Master, seconds: float, everything: bool = True) -> None:
        """Iterate on one master until the optimum is proven, the time is up, or no cut is found.

        Args:
            master: the master problem; cuts are added to it.
            seconds: time limit for this master.
            everything: whether the master is a relaxation of all schedules in question, so that its
                bound counts.
        """
        deadline = min(self.deadline, monotonic() + seconds)
        begin, phase = monotonic(), 0
        if everything:
            master.model.add(master.cost >= self.lower)
        while not self.settled and monotonic() < deadline:
            names, share = SUBSOLVERS[phase]
            seconds_left = min(deadline - monotonic(), share * (deadline - begin))
            answer = solved(self.hinted(master), names, seconds_left)
            self.rounds += 1
            if not self.note(master, answer, everything):
                return
            proven = answer.status == "optimal"
            is_last_phase = phase + 1 == len(SUBSOLVERS)
            cuts = self.realise(master, answer.stages, deadline) if answer.stages else 0
            self.cuts += cuts
            if not cuts and (proven or is_last_phase):
                return
            phase += not proven and not is_last_phase

    def hinted(self, master: Master) -> Master:
        """Return the master, bounded from above by the incumbent and warm-started with it."""
        if self.order is not None:
            master.model.add(master.cost <= self.cost)
            hint(master, self.order)
        return master

    def note(self, master: Master, answer: Answer, everything: bool) -> bool:
        """Update the bound from an answer; return whether the master has more to tell."""
        if answer.status == "infeasible":
            # The incumbent is feasible in every relaxation of all schedules.
            assert not everything or self.order is None, "a known schedule is cut off"
            self.infeasible = everything
            return False
        if everything and answer.bound > self.lower:
            self.lower = answer.bound
            master.model.add(master.cost >= self.lower)
        return True

    def realise(self, master: Master, stages: Sequence[ModelStage], deadline: float) -> int:
        """Price the stages of a solution, cut where they cost more; return the number of cuts."""
        order: list[int] | None = []
        before = cuts = 0
        for stage in stages:
            made = self.reduced.makes_set[stage.first] if stage.first is not None else 0
            try:
                path, is_cut = self.price(master, before, stage.held & ~made, stage, deadline)
            except SearchLimitError:
                return cuts
            cuts += is_cut
            if path is None and not is_cut:
                return cuts
            if path is None or order is None:
                order = None
            else:
                order += path if stage.first is None else [*path, stage.first]
            before = stage.held
        if order is not None:
            self.offer(order)
        return cuts

    def price(
        self, master: Master, start: int, goal: int, stage: ModelStage, deadline: float
    ) -> tuple[list[int] | None, bool]:
        """Price a stage: return its evaluations, None if unknown, and whether a cut was added.

        Raises:
            SearchLimitError: if the stage can be neither priced nor cut.
        """
        refuted = False
        try:
            chosen = StageSearch(self.reduced, goal, stage.again)
            found = chosen.cheapest(start, stage.assumed, CHOSEN_STATES, deadline)
            if found is not None:
                return found[1], False
            refuted = True
            anything = StageSearch(self.reduced, goal, master.repeatable)
            found = anything.cheapest(start, None, ANY_STATES, deadline)
        except SearchLimitError:
            if not refuted or monotonic() > deadline:
                raise
            # Too large to price. The chosen operators do not suffice: the stage costs more, or
            # needs others.
            add_cut(master, start, goal, stage.assumed + 1, stage.again)
            return None, True
        if found is not None and found[0] <= stage.assumed:
            return found[1], False
        bound = None if found is None else found[0]
        if bound is not None and stage.assumed >= master.cost_cap:
            raise SearchLimitError
        lifted = lift(self.reduced, start, goal, bound, deadline, master.repeatable)
        add_cut(master, *lifted, bound)
        return (None if found is None else found[1]), True


def solved(master: Master, subsolvers: Sequence[str], seconds: float) -> Answer:
    """Solve a master by CP-SAT with one worker per subsolver, within a time limit."""
    cp_model = solver_module()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = len(subsolvers)
    solver.parameters.subsolvers.extend(subsolvers)
    # LNS finds nothing that the hint and the searches do not, and warns of its own failures.
    solver.parameters.use_lns = False
    # Let Python handle interrupts.
    solver.parameters.catch_sigint_signal = False
    status = interruptible(solver, master.model)
    if status == cp_model.INFEASIBLE:
        return Answer("infeasible", 0)
    assert status != cp_model.MODEL_INVALID, master.model.validate()
    # The bound is a float near an integer: subtract its rounding error before rounding up.
    bound = solver.best_objective_bound
    least = ceil(bound - FLOAT_SLACK - abs(bound) * 2.0**-50)
    if status == cp_model.UNKNOWN:
        return Answer("unknown", least)
    stages = tuple(stage_of(master, solver, stage) for stage in range(len(master.held)))
    if status == cp_model.OPTIMAL:
        return Answer("optimal", round(solver.objective_value), stages)
    return Answer("feasible", least, stages)


def interruptible(solver: Any, model: Any) -> Any:
    """Solve in a thread, so that Ctrl-C ends it: the solver itself would block Python's signals.

    Raises:
        KeyboardInterrupt: when the solver has stopped.
    """
    result: list[Any] = []
    done = Event()

    def work() -> None:
        try:
            result.append(solver.solve(model))
        finally:
            done.set()

    # An event: an interrupted Thread.join marks the thread as finished (Python 3.11).
    Thread(target=work).start()
    try:
        while not done.wait(0.05):
            pass
    except KeyboardInterrupt:
        solver.stop_search()
        done.wait()
        raise
    return result[0]


def stage_of(master: Master, solver: Any, stage: int) -> ModelStage:
    """Return one stage of the solution in a solver."""

    def chosen(terms: dict[int, Any]) -> int:
        return as_set(
            index
            for index, term in terms.items()
            if (term if isinstance(term, int) else solver.value(term))
        )

    first = members(chosen(master.first[stage]))
    again = chosen(master.again[stage])
    assumed = sum(master.reduced.cost[operator] for operator in members(again))
    assumed += solver.value(master.extra[stage])
    return ModelStage(first[0] if first else None, again, chosen(master.held[stage]), assumed)


def hint(master: Master, order: Sequence[int]) -> None:
    """Warm-start the model with a schedule, unless its first evaluations violate the order."""
    stages = stages_of_order(master, order)
    for stage, (first, _, _) in enumerate(stages):
        allowed = master.first[stage]
        if first is not None and is_never(allowed.get(first, 0)):
            return
    master.model.clear_hints()
    for stage, (chosen, evaluated, resident) in enumerate(stages):
        for operator, term in master.first[stage].items():
            if not is_always(term):
                master.model.add_hint(term, operator == chosen)
        for operator, term in master.again[stage].items():
            master.model.add_hint(term, evaluated >> operator & 1)
        for data, term in master.held[stage].items():
            master.model.add_hint(term, resident >> data & 1)


def stages_of_order(master: Master, order: Sequence[int]) -> list[tuple[int | None, int, int]]:
    """Split an order into stages: first evaluation, evaluations before it, resident set at the end.

    Values stay resident until the last reader before they are recomputed (liveness).
    """
    reduced = master.reduced
    wanted, during = reduced.outputs, [0] * len(order)
    for position in range(len(order) - 1, -1, -1):
        operator = order[position]
        wanted |= reduced.reads_set[operator]
        during[position] = with_roots(reduced, wanted | reduced.makes_set[operator])
        wanted &= ~reduced.makes_set[operator]
    ends = set(range(len(reduced.operators)) if master.path is None else master.path)
    stages: list[tuple[int | None, int, int]] = []
    evaluated = 0
    for position, operator in enumerate(order):
        if operator in ends:
            ends.discard(operator)
            stages.append((operator, evaluated, during[position]))
            evaluated = 0
        else:
            evaluated |= 1 << operator
    return [*stages, (None, evaluated, reduced.outputs)]


def with_roots(reduced: Reduced, values: int) -> int:
    """Return a set of values with the roots of the views in it."""
    return values | as_set(root for view, root in reduced.root.items() if values >> view & 1)
