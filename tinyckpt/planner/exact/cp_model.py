"""CP-SAT model of rematerialization: a staged relaxation of all schedules, after Checkmate.

A schedule is cut into stages: each ends with the *first* evaluation of an operator, and what
follows the last of them is a stage of its own, in which a result may be recomputed. Boolean
variables say, for each stage, which operator is first evaluated at its end, which operators are
evaluated within it, and which values are resident at its end. Within a stage the model has
necessary conditions, but no order, and no number of evaluations of one operator:

- a value resident at the end was so before, or is made in the stage;
- a value read was resident before, or is made in the stage;
- values resident throughout the stage leave room for each evaluation in it.

So every legal schedule gives a solution of no higher cost, and the least cost of the model is a
lower bound for all schedules. The true cost of a stage is found by ``exact.stage_astar``; where it
is higher, ``add_cut`` adds a Benders cut. Which first evaluations end the stages: see
``exact.stage_order``.

One stage for each first evaluation is from Checkmate (Jain et al. 2020, arXiv 1910.02653), whose
stages have a fixed order inside and evaluate every operator once at most. Leaving both out, so that
the model bounds all schedules, is this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyckpt.base.errors import BackendError
from tinyckpt.planner.exact.reduced_graph import Reduced, as_set, members

# A solver variable, an expression of variables, or a constant.
Term = Any


def solver_module() -> Any:
    """Import OR-tools' CP-SAT.

    Raises:
        BackendError: if it is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise BackendError(
            "policy 'optimal' needs OR-tools, which is not installed: "
            "pip install 'tinyckpt[optimal]'"
        ) from error
    return cp_model


@dataclass(frozen=True, slots=True)
class Master:
    """A master problem and its variables; a stage that leaves no choice has constants instead.

    Attributes:
        model: of CP-SAT.
        reduced: the reduced graph.
        path: the operators whose first evaluations end stages, if those are not all.
        first: for each stage, by operator: whether its first evaluation ends the stage.
        again: for each stage, by operator: whether it is evaluated before the stage's end.
        held: for each stage, by value: whether it is resident during the evaluation at its end.
        extra: for each stage: the cost that cuts add.
        cost: the objective, to be minimised.
        cost_cap: upper limit of an extra and of the bound in a cut.
    """

    model: Any
    reduced: Reduced
    path: list[int] | None
    first: list[dict[int, Term]]
    again: list[dict[int, Term]]
    held: list[dict[int, Term]]
    extra: list[Term]
    cost: Term
    cost_cap: int

    @property
    def repeatable(self) -> int:
        """Return the operators that are evaluated before the end of some stage."""
        found = as_set(operator for stage in self.again for operator in stage)
        return ~self.reduced.once | found

    def spent(self, stage: int) -> Term:
        """Return the cost that the model assumes for a stage before its end."""
        cost = self.reduced.cost
        chosen = sum(cost[operator] * again for operator, again in self.again[stage].items())
        return chosen + self.extra[stage]


def is_never(term: Term) -> bool:
    """Whether a term is the constant 0."""
    return isinstance(term, int) and term == 0


def is_always(term: Term) -> bool:
    """Whether a term is the constant 1."""
    return isinstance(term, int) and term == 1


def assemble_master(
    model: Any, reduced: Reduced, path: list[int] | None, first: list[dict[int, Term]],
    again: list[dict[int, Term]], held: list[dict[int, Term]], base: int,
) -> Master:  # fmt: skip
    """Assemble the model: objective, and results required at the end; no stage constraints yet."""
    # No plan of interest costs as much; and sums of extras fit 64 bits, for 500 stages and more.
    cost_cap = 16 * sum(reduced.cost) + 1
    extra = [model.new_int_var(0, cost_cap, "") for _ in held]
    evaluated = sum(
        reduced.cost[operator] * chosen
        for stage in again
        for operator, chosen in stage.items()
        if reduced.cost[operator]
    )
    cost = base + evaluated + sum(extra)
    model.add(cost >= sum(reduced.cost))
    model.minimize(cost)
    for data in members(reduced.outputs):
        model.add(held[-1][data] == 1)
    return Master(model, reduced, path, first, again, held, extra, cost, cost_cap)


def add_stage(master: Master, stage: int, forced: bool = False) -> None:
    """Add the constraints of one stage.

    Args:
        master: the model.
        stage: its index.
        forced: whether first evaluations may be of no use by themselves.
    """
    throughout = add_arrivals(master, stage)
    add_room(master, stage, throughout)
    add_readiness(master, stage)
    add_use(master, stage, forced)


def add_arrivals(master: Master, stage: int) -> dict[int, Term]:
    """Constrain where values come from; return for each whether it is resident throughout."""
    model, producer = master.model, master.reduced.producer
    before = master.held[stage - 1] if stage else {}
    throughout = {}
    for data, held in master.held[stage].items():
        first = master.first[stage].get(producer[data], 0)
        made = first + master.again[stage].get(producer[data], 0)
        model.add(held <= before.get(data, 0) + made)
        if not is_never(first):
            model.add(held >= first)
        if not is_always(first):
            throughout[data] = model.new_bool_var("")
            model.add(throughout[data] >= held - made)
    for view, root in master.reduced.root.items():
        if view in master.held[stage]:
            model.add(master.held[stage][view] <= master.held[stage].get(root, 0))
    return throughout


def add_room(master: Master, stage: int, throughout: dict[int, Term]) -> None:
    """Add the memory constraints: at the stage's end, and for each evaluation before."""
    model, reduced = master.model, master.reduced
    size, workspace = reduced.size, reduced.workspace
    model.add(
        sum(size[data] * held for data, held in master.held[stage].items() if size[data])
        + sum(workspace[operator] * first for operator, first in master.first[stage].items())
        <= reduced.budget
    )
    kept = model.new_int_var(0, reduced.budget, "")
    model.add(kept == sum(size[data] * term for data, term in throughout.items() if size[data]))
    for operator, again in master.again[stage].items():
        touched = {*reduced.reads[operator], *reduced.makes[operator]}
        own = sum(size[data] * throughout[data] for data in touched if data in throughout)
        need = sum(size[data] for data in touched) + workspace[operator]
        model.add(kept - own + need * again <= reduced.budget)


def add_readiness(master: Master, stage: int) -> None:
    """Constrain inputs: resident from the stage before, or made in this one."""
    model, reduced = master.model, master.reduced
    before = master.held[stage - 1] if stage else {}
    again = master.again[stage]
    for operator, first in master.first[stage].items():
        for data in reduced.reads[operator]:
            model.add(first <= master.held[stage].get(data, 0))
            model.add(first <= before.get(data, 0) + again.get(reduced.producer[data], 0))
    for operator, chosen in again.items():
        for data in reduced.reads[operator]:
            model.add(chosen <= before.get(data, 0) + again.get(reduced.producer[data], 0))


def add_use(master: Master, stage: int, forced: bool) -> None:
    """Exclude useless evaluations and residency (dominance): no optimal cost is lost.

    An operator evaluated again may have had its output resident when the stage began: read, freed
    to make room, and recomputed within the stage. So that is not excluded.
    """
    model, reduced = master.model, master.reduced
    first, again, held = master.first[stage], master.again[stage], master.held[stage]
    for operator, chosen in again.items():
        if len(reduced.makes[operator]) == 1:
            data = reduced.makes[operator][0]
            readers = sum(again.get(reader, 0) for reader in reduced.readers[data])
            model.add(chosen <= held.get(data, 0) + readers)
    is_last = stage == len(master.held) - 1
    for data, term in held.items():
        if is_last and reduced.outputs >> data & 1:
            continue
        operator = reduced.producer[data]
        uses = sum(first.get(reader, 0) for reader in reduced.readers[data])
        # An operator of several outputs also makes outputs that have no reader now.
        if forced or len(reduced.makes[operator]) > 1:
            uses += first.get(operator, 0)
        if len(reduced.makes[operator]) > 1:
            uses += again.get(operator, 0)
        if not is_last:
            uses += master.held[stage + 1].get(data, 0)
            uses += sum(master.again[stage + 1].get(reader, 0) for reader in reduced.readers[data])
        model.add(term <= uses)


def add_cut(
    master: Master, start: int, goal: int, bound: int | None, chosen: int | None = None
) -> None:
    """Add the Benders cut: to get from within ``start`` to all of ``goal`` costs ``bound``.

    No stage does so for less. The goal is what is resident when all evaluations but the one at the
    stage's end are over.

    Args:
        master: the model.
        start, goal: sets of values.
        bound: a cost; None if the goal cannot be reached at all.
        chosen: the set of operators for which the cut holds; None for all.
    """
    model, producer = master.model, master.reduced.producer
    for stage, held in enumerate(master.held):
        if not all(data in held for data in members(goal)):
            continue
        # A value made by the stage's last evaluation is resident then, but not part of a goal.
        makers = [master.first[stage].get(producer[data], 0) for data in members(goal)]
        if any(is_always(maker) for maker in makers):
            continue
        before = master.held[stage - 1] if stage else {}
        # Literals under which the cut does not apply.
        off = [term for data, term in before.items() if not start >> data & 1]
        off += [~held[data] for data in members(goal)]
        off += [maker for maker in makers if not is_never(maker)]
        if chosen is not None:
            again = master.again[stage].items()
            off += [term for operator, term in again if not chosen >> operator & 1]
        if bound is None:
            model.add_bool_or(off)
        else:
            on = model.new_bool_var("")
            model.add_bool_or([*off, on])
            least = min(bound, master.cost_cap)
            model.add(master.spent(stage) >= least).only_enforce_if(on)
