"""A stage's schedule in parts: what it does at each of a pipeline's actions, and what that weighs.

The parts are stretches of the schedule's steps, so what was checked and counted of the whole holds
of them. The forward ends at the exchange. What comes then and reads nothing that came back, is the
recomputation, which a device can do while it waits. A backward's first half ends when all is there
that the stage before waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.costs import Costs, given
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Compute, Free, Schedule, Step
from tinyckpt.pipeline.costs import Footprint, Number, PipelineCosts
from tinyckpt.pipeline.program import RECOMPUTE, Pipeline
from tinyckpt.pipeline.stages import Stage
from tinyckpt.planner.portfolio.plan import plan

# The parts in order; a whole backward is the last two.
PARTS = ("forward", "recompute", "backward_input", "backward_weight")


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage with its schedule.

    Attributes:
        stage: what it is.
        schedule: of its graph.
        parts: the steps of each of PARTS. That which evaluates the exchange, near the end of the
            forward, is where what goes to the next stage is there.
        footprint: bytes of a micro-batch, what it takes from the stage before included; and what
            comes back from the stage after, from when its forward is over and something of it
            is done again.
        fixed_bytes: bytes of its parameters and of their gradients, whatever is in flight.
    """

    stage: Stage
    schedule: Schedule
    parts: tuple[tuple[Step, ...], ...] = field(repr=False)
    footprint: Footprint
    fixed_bytes: int

    def cost(self, part: str, costs: Costs) -> float:
        """Return what the steps of a part cost."""
        steps = self.parts[PARTS.index(part)]
        return sum(
            costs.operators[step.operator]
            for step in steps
            if isinstance(step, Compute) and step.operator != self.stage.exchange
        )


def plan_stages(
    stages: Sequence[Stage], policy: Any = "store_all", *, early: bool = False, **options: Any
) -> tuple[PlannedStage, ...]:
    """Return the stages, each planned by a policy, or within a budget, as ``tc.plan`` does it.

    Args:
        stages: what ``stages_of`` returned.
        policy: as for ``tc.plan``; or a list with one for each stage.
        early: whether the first recomputations of each stage come before all that reads what came
            back, so that a pipeline can do them while it waits. Where that does not fit the budget,
            they stay where they were.
        options: as for ``tc.plan``; a ``budget`` is of one micro-batch in one stage.

    Raises:
        ScheduleError, BudgetError: as ``tc.plan`` and ``tc.replay``.
    """
    policies = policy if isinstance(policy, list) else [policy] * len(stages)
    if len(policies) != len(stages):
        raise ScheduleError(f"{len(policies)} policies; there are {len(stages)} stages")
    return tuple(
        planned(stage, plan(stage.graph, own, **options), early)
        for stage, own in zip(stages, policies, strict=True)
    )


def planned(stage: Stage, schedule: Schedule, early: bool = False) -> PlannedStage:
    """Return a stage with a schedule of its graph, parted; ``early`` as for ``plan_stages``.

    Raises:
        ScheduleError: if the schedule is not legal, or moves values to the host.
    """
    if not {type(step) for step in schedule.steps} <= {Compute, Free}:
        raise ScheduleError(
            f"{stage.graph.name}: {schedule.policy} moves values to the host; a stage of a "
            "pipeline computes and frees only"
        )
    if early:
        schedule = recomputing_first(stage, schedule)
    steps, live = schedule.steps, list(replay(schedule).live_bytes)
    ends = part_ends(stage, steps)
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    parts = tuple(steps[begin:end] for begin, end in bounds)
    taken, back = stage.nbytes(stage.takes), stage.nbytes(stage.takes_back)
    # The replay counts what comes back from the exchange on; it is there when the forward is over.
    for position in range(turn_of(stage, steps), ends[0]):
        live[position] -= back
    during = [taken + max(live[begin:end], default=0) for begin, end in bounds]
    settled = settled_bytes(schedule)
    after = [taken + (settled[end - 1] if end else 0) for end in ends]
    footprint = Footprint(
        forward=during[0],
        held=after[0] - back,
        recompute=max(during[1], after[1]),
        recomputed=after[1],
        # Where no action is the recomputation, the backward has it in it; and where one is, that
        # was the peak already.
        backward=max(during[1:]),
        backward_input=max(during[1:3]),
        waiting=after[2],
        weight=max(during[3], after[2]),
    )
    own = [node for node in stage.graph.data if node.role == "parameter"]
    gradients = [stage.graph.data[data] for data in stage.graph.gradients]
    fixed = sum(node.nbytes for node in own) + sum(node.spec.nbytes for node in gradients)
    return PlannedStage(stage, schedule, parts, footprint, fixed)


def recomputing_first(stage: Stage, schedule: Schedule) -> Schedule:
    """Return the schedule with its first recomputations before all that reads what came back.

    A policy may do some of the backward half first, which needs nothing recomputed; but a device
    that waits for cotangents can recompute, and not do that.
    """
    graph = stage.graph
    order = [step.operator for step in schedule.steps if isinstance(step, Compute)]
    if stage.exchange is None or len(order) == len(set(order)):
        return schedule
    turn = order.index(stage.exchange) + 1
    is_forward = [graph.operators[index].phase == "forward" for index in order]
    if True not in is_forward[turn:]:
        return schedule
    begin = is_forward.index(True, turn)
    end = next((n for n in range(begin, len(order)) if not is_forward[n]), len(order))
    moved = [*order[:turn], *order[begin:end], *order[turn:begin], *order[end:]]
    made = schedule.policy, schedule.options, schedule.note, schedule.checkpoints
    found = from_order(graph, moved, *made)
    return found if is_within_budget(found, schedule) else schedule


def is_within_budget(found: Schedule, schedule: Schedule) -> bool:
    """Whether a schedule keeps the budget of another, if that had one.

    Its certificate says which; or else the other's peak is taken for it.
    """
    known = schedule.certificate
    if known is None and "budget" not in schedule.options:
        return True
    peak, old = replay(found), replay(schedule)
    if known is not None and known.memory_unit == "nodes":
        return peak.peak_nodes <= max(known.budget, old.peak_nodes)
    budget_size = 0 if known is None else known.budget
    return peak.peak_bytes <= max(budget_size, old.peak_bytes)


def turn_of(stage: Stage, steps: Sequence[Step]) -> int:
    """Return the place of the exchange; the end, if there is none."""
    places = (position for position, step in enumerate(steps) if is_exchange(stage, step))
    return next(places, len(steps))


def is_exchange(stage: Stage, step: Step) -> bool:
    """Whether a step evaluates the exchange."""
    return isinstance(step, Compute) and step.operator == stage.exchange


def part_ends(stage: Stage, steps: Sequence[Step]) -> tuple[int, int, int, int]:
    """Return behind which step each part ends."""
    graph = stage.graph
    back = set(stage.ids(stage.takes_back))
    forward = forward_end(stage, steps, back)
    recompute = forward
    while recompute < len(steps) and is_before_backward(graph, steps[recompute], back):
        recompute += 1
    awaited = {graph.data[data].producer for data in stage.ids(stage.gives_back)}
    # Results stay, so their producers are evaluated for the last time when they are made for good.
    inputs = last_where(steps, lambda step: evaluates(step, awaited))
    if not stage.gives_back:
        inputs = len(steps)
    return forward, recompute, max(inputs, recompute), len(steps)


def forward_end(stage: Stage, steps: Sequence[Step], back: set[int]) -> int:
    """Return where the forward ends: behind the exchange, and what is given up at once.

    In the last stage there is none: it ends with the first evaluations before the backward half.
    """
    if stage.exchange is not None:
        end = last_where(steps, lambda step: is_exchange(stage, step))
    else:
        end, met = 0, set()
        for position, step in enumerate(steps):
            if isinstance(step, Compute):
                if stage.graph.operators[step.operator].phase == "backward":
                    break
                if step.operator not in met:
                    met.add(step.operator)
                    end = position + 1
        gives = {stage.graph.data[data].producer for data in stage.ids(stage.gives)}
        end = max(end, last_where(steps, lambda step: evaluates(step, gives)))
    while end < len(steps):
        step = steps[end]
        if not isinstance(step, Free) or step.data in back:
            break
        end += 1
    return end


def is_before_backward(graph: Graph, step: Step, back: set[int]) -> bool:
    """Whether a step is of the forward half, and touches nothing that came back."""
    if isinstance(step, Compute):
        operator = graph.operators[step.operator]
        return operator.phase == "forward" and back.isdisjoint(operator.inputs)
    return isinstance(step, Free) and step.data not in back


def evaluates(step: Step, operators: Container[int | None]) -> bool:
    """Whether a step evaluates one of some operators."""
    return isinstance(step, Compute) and step.operator in operators


def last_where(steps: Sequence[Step], is_one: Callable[[Step], bool]) -> int:
    """Return the place behind the last step of which something holds; 0 if there is none."""
    found = (position for position in range(len(steps), 0, -1) if is_one(steps[position - 1]))
    return next(found, 0)


def settled_bytes(schedule: Schedule) -> list[int]:
    """Return what is held after every step, with no workspace."""
    trace = replay(schedule)
    return [sum(each) for each in zip(trace.activation, trace.cotangent, trace.output, strict=True)]


def pipeline_costs(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    costs_of: Callable[[Graph], Costs] = given,
    way: Number = 0,
) -> PipelineCosts:
    """Return what a pipeline's actions cost in these stages.

    Args:
        pipeline: where it has no recomputations of its own, they are part of the backwards.
        stages: planned, all of them.
        costs_of: from a graph to the costs of its operators, such as ``tc.cost.flops``.
        way: what it takes from a send until what was sent is there, in the same unit.
    """
    columns: dict[str, list[float]] = {part: [] for part in PARTS}
    apart = bool((pipeline.kind == RECOMPUTE).any())
    measure = ""
    for each in stages:
        costs = costs_of(each.stage.graph)
        measure = costs.unit
        for part, column in columns.items():
            column.append(each.cost(part, costs))
        if not apart:
            columns["backward_input"][-1] += columns["recompute"][-1]
    return PipelineCosts(**columns, communication=way, measure=measure)
