"""Recomputation in pipeline stages: plan each stage, split its schedule into F, R, B, W actions.

A policy plans the graph of a stage; the schedule is split into consecutive parts: forward,
recomputation, backward of inputs, backward of weights. Being slices of one checked schedule, they
need no check of their own. The forward ends at the exchange. The steps after it that read no
received cotangent are the recomputation, which a device can run while it waits. The backward of
inputs ends when all cotangents for the previous stage are computed; the rest is that of weights.
Out come the memory footprint of each action, and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Compute, Free, Schedule, Step
from tinyckpt.pipeline.costs import Footprint, Number, PipelineCosts
from tinyckpt.pipeline.program import Kind, Pipeline
from tinyckpt.pipeline.stages import Stage
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.portfolio.plan import plan

# The parts in order; a whole backward consists of the last two.
PARTS = ("forward", "recompute", "backward_input", "backward_weight")


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage with its schedule.

    Attributes:
        stage: the stage, with its graph.
        schedule: of the stage's graph.
        parts: the steps of each of PARTS. The step that evaluates the exchange, near the end of
            the forward, marks the point where all values for the next stage are computed.
        footprint: bytes of a micro-batch. Values received from the previous stage are included;
            cotangents received from the next one are, from the first action after the forward.
        fixed_bytes: bytes of parameters and their gradients, independent of what is in flight.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import partition, plan_stages, stages_of
    >>> graph = tc.networks.chain(8)
    >>> first, second = plan_stages(stages_of(graph, partition(graph, 2)))
    >>> [len(part) for part in first.parts], first.footprint.held, first.fixed_bytes
    ([5, 0, 12, 0], 2048, 1024)
    """

    stage: Stage
    schedule: Schedule
    parts: tuple[tuple[Step, ...], ...] = field(repr=False)
    footprint: Footprint
    fixed_bytes: int

    def cost(self, part: str, costs: Costs) -> float:
        """Return the total cost of a part's evaluations."""
        steps = self.parts[PARTS.index(part)]
        return sum(
            costs.operators[step.operator]
            for step in steps
            if isinstance(step, Compute) and step.operator != self.stage.exchange
        )


def plan_stages(
    stages: Sequence[Stage], policy: Any = "store_all", *, early: bool = False, **options: Any
) -> tuple[PlannedStage, ...]:
    """Plan every stage by a policy, or within a budget, as ``tc.plan`` does.

    Args:
        stages: the result of ``stages_of``.
        policy: as for ``tc.plan``; or a list with one policy per stage.
        early: whether each stage's first recomputations move before every read of a received
            cotangent, so that a device can run them while it waits for it. Where that exceeds the
            budget, they stay in place.
        options: as for ``tc.plan``; a ``budget`` is that of one micro-batch in one stage.

    Raises:
        ScheduleError, BudgetError: as ``tc.plan`` and ``tc.replay``.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import partition, plan_stages, stages_of
    >>> graph = tc.networks.chain(8)
    >>> stages = stages_of(graph, partition(graph, 2))
    >>> [planned.footprint.held for planned in plan_stages(stages)]
    [2048, 2560]
    >>> [planned.footprint.held for planned in plan_stages(stages, "sqrt_n")]
    [1536, 2048]
    """
    policies = policy if isinstance(policy, list) else [policy] * len(stages)
    if len(policies) != len(stages):
        raise ScheduleError(f"{len(policies)} policies; there are {len(stages)} stages")
    return tuple(
        planned(stage, plan(stage.graph, own, **options), early)
        for stage, own in zip(stages, policies, strict=True)
    )


def planned(stage: Stage, schedule: Schedule, early: bool = False) -> PlannedStage:
    """Split a stage's schedule into parts, and measure the footprint of each action by replay.

    Args:
        stage: the stage.
        schedule: of its graph.
        early: as for ``plan_stages``.

    Raises:
        ScheduleError: if the schedule is not legal, or offloads values to the host.
    """
    if not {type(step) for step in schedule.steps} <= {Compute, Free}:
        raise ScheduleError(
            f"{stage.graph.name}: {schedule.policy} offloads values to the host; a stage of a "
            "pipeline computes and frees only"
        )
    if early:
        schedule = recompute_early(stage, schedule)
    trace, steps = replay(schedule), schedule.steps
    live = list(trace.live_bytes)
    ends = part_ends(stage, steps)
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    parts = tuple(steps[begin:end] for begin, end in bounds)
    taken, back = stage.nbytes(stage.takes), stage.nbytes(stage.takes_back)
    # Replay counts the received cotangents from the exchange on; they arrive after the forward.
    exchanged = last_evaluations(steps).get(stage.exchange, len(steps) + 1)
    for position in range(exchanged - 1, ends[0]):
        live[position] -= back
    during = [taken + max(live[begin:end], default=0) for begin, end in bounds]
    # After a step, what is live without workspace.
    counted = zip(trace.activation, trace.cotangent, trace.output, strict=True)
    settled = [0, *map(sum, counted)]
    after = [taken + settled[end] for end in ends]
    footprint = Footprint(
        forward=during[0],
        held=after[0] - back,
        recompute=max(during[1], after[1]),
        recomputed=after[1],
        # Without a recompute action, the backward includes the recomputation; with one, its peak
        # has been counted already.
        backward=max(during[1:]),
        backward_input=max(during[1:3]),
        waiting=after[2],
        weight=max(during[3], after[2]),
    )
    own = [node for node in stage.graph.data if node.role == "parameter"]
    gradients = [stage.graph.data[data] for data in stage.graph.gradients]
    fixed = sum(node.nbytes for node in own) + sum(node.spec.nbytes for node in gradients)
    return PlannedStage(stage, schedule, parts, footprint, fixed)


def recompute_early(stage: Stage, schedule: Schedule) -> Schedule:
    """Move a schedule's first run of recomputations before every read of a received cotangent.

    A policy may place backward operators first that need nothing recomputed; but a device that
    waits for cotangents can recompute, and cannot run those.
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
    """Whether a schedule stays within the budget of the one it was made from.

    The budget is that of the original's certificate; without one, the original's peak. A schedule
    planned without a budget has no limit.
    """
    known: Certificate | None = schedule.certificate
    if known is None and "budget" not in schedule.options:
        return True
    peak, old = replay(found), replay(schedule)
    if known is not None and known.memory_unit == "nodes":
        return peak.peak_nodes <= max(known.budget, old.peak_nodes)
    budget_size = 0 if known is None else known.budget
    return peak.peak_bytes <= max(budget_size, old.peak_bytes)


def part_ends(stage: Stage, steps: Sequence[Step]) -> tuple[int, int, int, int]:
    """Return the end of each part, as a position among the steps."""
    graph = stage.graph
    back = set(stage.ids(stage.takes_back))
    forward = forward_end(stage, steps, back)
    recompute = forward
    while recompute < len(steps) and is_before_backward(graph, steps[recompute], back):
        recompute += 1
    # Results are never freed, so the last evaluation of their producers is the final one.
    inputs = end_of_producers(stage, steps, stage.gives_back) if stage.gives_back else len(steps)
    return forward, recompute, max(inputs, recompute), len(steps)


def forward_end(stage: Stage, steps: Sequence[Step], back: set[int]) -> int:
    """Return the end of the forward: after the exchange and the frees that follow it.

    The last stage has no exchange: its forward ends after the first evaluation of the last
    operator that precedes the backward pass.
    """
    if stage.exchange is not None:
        end = last_evaluations(steps)[stage.exchange]
    else:
        end, met = 0, set()
        for position, step in enumerate(steps):
            if isinstance(step, Compute):
                if stage.graph.operators[step.operator].phase == "backward":
                    break
                if step.operator not in met:
                    met.add(step.operator)
                    end = position + 1
        end = max(end, end_of_producers(stage, steps, stage.gives))
    while end < len(steps):
        step = steps[end]
        if not isinstance(step, Free) or step.data in back:
            break
        end += 1
    return end


def is_before_backward(graph: Graph, step: Step, back: set[int]) -> bool:
    """Whether a step is of the forward pass, and touches no received cotangent."""
    if isinstance(step, Compute):
        operator = graph.operators[step.operator]
        return operator.phase == "forward" and back.isdisjoint(operator.inputs)
    return isinstance(step, Free) and step.data not in back


def last_evaluations(steps: Sequence[Step]) -> dict[int | None, int]:
    """Return for every operator the position after the step that evaluates it last."""
    places = enumerate(steps, 1)
    return {step.operator: place for place, step in places if isinstance(step, Compute)}


def end_of_producers(stage: Stage, steps: Sequence[Step], values: Iterable[int]) -> int:
    """Return the position after the last step that computes some values of the whole graph."""
    last, data = last_evaluations(steps), stage.graph.data
    return max((last.get(data[own].producer, 0) for own in stage.ids(values)), default=0)


def pipeline_costs(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    costs_of: Callable[[Graph], Costs] = given,
    way: Number = 0,
) -> PipelineCosts:
    """Derive the durations of a pipeline's actions from the operator costs of its stages.

    Args:
        pipeline: if it has no recompute actions, recomputation counts with the backwards.
        stages: all planned stages.
        costs_of: from a graph to the costs of its operators, such as ``tc.cost.flops``.
        way: communication time from a send until the message has arrived, in the same unit.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import gpipe, partition, plan_stages, stages_of
    >>> graph = tc.networks.chain(8)
    >>> stages = plan_stages(stages_of(graph, partition(graph, 2)))
    >>> pipeline_costs(gpipe(2, 4), stages).forward
    [4, 4]
    """
    columns: dict[str, list[float]] = {part: [] for part in PARTS}
    apart = bool((pipeline.kind == Kind.RECOMPUTE).any())
    measure = ""
    for each in stages:
        costs = costs_of(each.stage.graph)
        measure = costs.unit
        for part, column in columns.items():
            column.append(each.cost(part, costs))
        if not apart:
            columns["backward_input"][-1] += columns["recompute"][-1]
    return PipelineCosts(**columns, communication=way, measure=measure)
