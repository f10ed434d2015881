"""A pipeline with arrays: the program of one device, and all of them in one process.

A device's program is a generator. It yields what it waits for, and is sent the arrays when they are
there: here from a dictionary, in ``mpi`` from another process. What is sent is a copy, as between
processes. Gradients are added up in the order of the device's backwards, each weighted by 1/M, as
gradient accumulation on one device does it: for a loss that is a mean over samples, they are those
of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.arguments import sources_of
from tinyckpt.errors import BackendError, OptionError
from tinyckpt.pipeline.parts import PARTS, PlannedStage, is_exchange
from tinyckpt.pipeline.program import Action, Pipeline
from tinyckpt.pipeline.replay import replay_pipeline
from tinyckpt.pipeline.stages import arrays_of
from tinyckpt.schedule import Compute, Free, Step
from tinyckpt.tree import leaves, map_leaves

Arrays = dict[int, Any]


class Message(NamedTuple):
    """What goes from one stage to another, of the same device or not.

    Attributes:
        device: to which it goes.
        is_forward: whether it holds activations, or cotangents.
        stage, micro_batch: for which.
    """

    device: int
    is_forward: bool
    stage: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a device has made, by the ids of the whole graph.

    Attributes:
        gradients: the mean over micro-batches.
        results: of each micro-batch.
    """

    gradients: Arrays
    results: list[Arrays]


class PipelineResult(NamedTuple):
    """What a batch returns.

    Attributes:
        values: the function's result for each micro-batch.
        gradients: their mean, in the nesting of what the gradient was taken with respect to.
    """

    values: list[Any]
    gradients: Any


Post = Callable[[Message, list[Any]], None]
Program = Generator[Message, list[Any], Outcome]


def device_program(
    pipeline: Pipeline,
    device: int,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    post: Post,
    reduce: Callable[[Any], Any] | None = None,
) -> Program:
    """Do what one device does in a pipeline.

    Args:
        pipeline: a legal one.
        device: which.
        stages: planned, all of them.
        batches: the arguments of the function for each micro-batch.
        post: called to send arrays to another device.
        reduce: called on each gradient when its stage is updated; returns the mean over replicas.

    Yields:
        The message that it waits for; wants its arrays sent.

    Returns:
        Its results and gradients.

    Raises:
        BackendError: if an operator fails; names device, action and operator.
    """
    worker = Worker(pipeline, device, stages, batches, post)
    for action in pipeline.actions(device):
        if action.kind.startswith("recv"):
            own = Message(device, "activation" in action.kind, action.stage, action.micro_batch)
            worker.arrived[own] = yield own
        elif action.kind.startswith("send"):
            worker.send(action)
        elif action.kind == "update":
            worker.update(action.stage, reduce)
        else:
            worker.work(action)
    return worker.outcome


class Worker:
    """What one device holds while it works.

    Attributes:
        values: arrays by the stage's own ids, by stage and micro-batch, while that is in flight.
        arrived: what other stages sent and no action has used yet.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        device: int,
        stages: Sequence[PlannedStage],
        batches: Sequence[tuple[Any, ...]],
        post: Post,
    ) -> None:
        self.pipeline, self.device, self.stages, self.post = pipeline, device, stages, post
        whole = stages[0].stage.whole
        self.sources = [sources_of(whole, batch) for batch in batches]
        self.gradients, self.results = set(leaves(whole.gradients)), set(leaves(whole.results))
        self.values: dict[tuple[int, int], Arrays] = {}
        self.arrived: dict[Message, list[Any]] = {}
        self.recomputed: set[tuple[int, int]] = set()
        self.outcome = Outcome({}, [{} for _ in batches])
        own = np.flatnonzero(pipeline.device_of == device).tolist()
        self.kernels = {stage: kernels_of(stages[stage]) for stage in own}

    def work(self, action: Action) -> None:
        """Do the parts of a stage's schedule that belong to an action."""
        own, place = self.stages[action.stage].stage, (action.stage, action.micro_batch)
        if action.kind == "forward":
            self.values[place] = arrays_of(own, self.sources[action.micro_batch])
            self.accept(action, True)
            self.evaluate(action, "forward")
            if own.exchange is None:
                self.hand_over(action, True)
        elif action.kind == "recompute":
            self.recomputed.add(place)
            self.evaluate(action, "recompute")
        elif action.kind != "backward_weight":
            self.accept(action, False)
            if place not in self.recomputed:
                self.evaluate(action, "recompute")
            self.evaluate(action, "backward_input")
            self.hand_over(action, False)
        if action.kind in ("backward", "backward_weight"):
            self.evaluate(action, "backward_weight")
            self.finish(action)

    def accept(self, action: Action, is_forward: bool) -> None:
        """Take what the stage beside this one made."""
        own = self.stages[action.stage].stage
        taken = own.takes if is_forward else own.takes_back
        if action.stage == (0 if is_forward else len(self.stages) - 1):
            return
        message = Message(self.device, is_forward, action.stage, action.micro_batch)
        arrays = self.arrived.pop(message)
        place = action.stage, action.micro_batch
        self.values[place].update(zip(own.ids(taken), arrays, strict=True))

    def outgoing(self, action: Action, is_forward: bool) -> tuple[Message | None, list[Any]]:
        """Return what the stage beside this one takes; no message if there is no stage."""
        own = self.stages[action.stage].stage
        stage = action.stage + (1 if is_forward else -1)
        if not 0 <= stage < len(self.stages):
            return None, []
        values = self.values[action.stage, action.micro_batch]
        to = int(self.pipeline.device_of[stage])
        arrays = [values[data] for data in own.ids(own.gives if is_forward else own.gives_back)]
        return Message(to, is_forward, stage, action.micro_batch), arrays

    def hand_over(self, action: Action, is_forward: bool) -> None:
        """Give what was made to a stage of the same device; and for another, hold it until sent."""
        message, arrays = self.outgoing(action, is_forward)
        if message is not None:
            self.arrived[message] = arrays

    def send(self, action: Action) -> None:
        """Send what a stage made to another device."""
        is_forward = action.kind == "send_activation"
        stage = action.stage + (1 if is_forward else -1)
        to = int(self.pipeline.device_of[stage])
        message = Message(to, is_forward, stage, action.micro_batch)
        # Copies in C order, as they come out of any channel.
        self.post(message, [np.array(array, order="C") for array in self.arrived.pop(message)])

    def evaluate(self, action: Action, part: str) -> None:
        """Do the steps of one part of a stage's schedule."""
        own = self.stages[action.stage]
        values, kernels = self.values[action.stage, action.micro_batch], self.kernels[action.stage]
        for step in own.parts[PARTS.index(part)]:
            if is_exchange(own.stage, step):
                self.hand_over(action, True)
                continue
            try:
                do(own, step, kernels, values)
            except Exception as error:
                name = own.stage.graph.operators[step.operator].name  # type: ignore[union-attr]
                raise BackendError(
                    f"device {self.device}: {action}: {name} failed: {error}"
                ) from error

    def finish(self, action: Action) -> None:
        """Add what a micro-batch gave to the results, and give up all else of it."""
        own = self.stages[action.stage].stage
        values = self.values.pop((action.stage, action.micro_batch))
        self.recomputed.discard((action.stage, action.micro_batch))
        share = 1.0 / self.pipeline.micro_batches
        for data, local in zip(own.outputs, own.ids(own.outputs), strict=True):
            array = values[local]
            if data in self.results:
                self.outcome.results[action.micro_batch][data] = array
            if data not in self.gradients:
                continue
            part = array * array.dtype.type(share)
            sum_of = self.outcome.gradients
            sum_of[data] = sum_of[data] + part if data in sum_of else part

    def update(self, stage: int, reduce: Callable[[Any], Any] | None) -> None:
        """Have the gradients of a stage, which are complete, reduced over all replicas."""
        if reduce is not None:
            for data in self.stages[stage].stage.outputs:
                if data in self.gradients:
                    self.outcome.gradients[data] = reduce(self.outcome.gradients[data])


def kernels_of(planned: PlannedStage) -> list[Callable[..., Any] | None]:
    """Return the kernel of each operator of a stage; the exchange has none."""
    kernels: list[Callable[..., Any] | None] = []
    for operator in planned.stage.graph.operators:
        if operator.primitive is not None:
            kernels.append(partial(operator.primitive.forward, np, **operator.attrs))
        elif operator.id == planned.stage.exchange:
            kernels.append(None)
        else:
            raise BackendError(
                f"{operator.name} is abstract: it has a size and a cost but no kernel; it can be "
                "planned and replayed, not executed"
            )
    return kernels


def do(
    planned: PlannedStage, step: Step, kernels: Sequence[Callable[..., Any] | None], values: Arrays
) -> None:
    """Do one step of a stage's schedule."""
    if isinstance(step, Free):
        del values[step.data]
        return
    assert isinstance(step, Compute)
    operator, kernel = planned.stage.graph.operators[step.operator], kernels[step.operator]
    assert kernel is not None
    made = kernel(*[values[data] for data in operator.inputs])
    arrays = made if isinstance(made, tuple | list) else (made,)
    for data, array in zip(operator.outputs, arrays, strict=True):
        values[data] = np.asarray(array)


def check_together(
    pipeline: Pipeline, stages: Sequence[PlannedStage], batches: Sequence[tuple[Any, ...]]
) -> None:
    """Raise an error unless a pipeline is legal and about these stages and micro-batches."""
    if len(stages) != pipeline.stages or len(batches) != pipeline.micro_batches:
        raise OptionError(
            f"{pipeline.name} is about {pipeline.stages} stages and {pipeline.micro_batches} "
            f"micro-batches; there are {len(stages)} and {len(batches)}"
        )
    replay_pipeline(pipeline)


def run_pipeline(
    pipeline: Pipeline, stages: Sequence[PlannedStage], batches: Sequence[tuple[Any, ...]]
) -> PipelineResult:
    """Run all devices of a pipeline in this process, in turns.

    Args:
        pipeline: what each device does.
        stages: planned, as many as the pipeline has.
        batches: the arguments of the function for each micro-batch; parameters are the same in all.

    Raises:
        ScheduleError: if the pipeline is not legal.
        OptionError: if it is about other numbers of stages or micro-batches.
        GraphError: if an argument has another shape or dtype than the graph was built for.
        BackendError: if an operator fails.
    """
    check_together(pipeline, stages, batches)
    sent: dict[Message, list[Any]] = {}
    programs = [
        device_program(pipeline, device, stages, batches, sent.__setitem__)
        for device in range(pipeline.devices)
    ]
    outcomes: dict[int, Outcome] = {}
    wanted: dict[int, Message | None] = dict.fromkeys(range(pipeline.devices))
    while wanted:
        # What was replayed does not stop: at least one of them has its message.
        for device, message in list(wanted.items()):
            if message is not None and message not in sent:
                continue
            try:
                wanted[device] = programs[device].send(
                    None if message is None else sent.pop(message)  # type: ignore[arg-type]
                )
            except StopIteration as end:
                outcomes[device] = end.value
                del wanted[device]
    return gathered(stages, list(outcomes.values()))


def gathered(stages: Sequence[PlannedStage], outcomes: Sequence[Outcome]) -> PipelineResult:
    """Return what all devices made, in the function's nesting."""
    whole = stages[0].stage.whole
    gradients = {data: array for each in outcomes for data, array in each.gradients.items()}
    batches = [
        {data: array for results in every for data, array in results.items()}
        for every in zip(*(each.results for each in outcomes), strict=True)
    ]
    values = [map_leaves(partial(dict.__getitem__, batch), whole.results) for batch in batches]
    return PipelineResult(values, map_leaves(partial(dict.__getitem__, gradients), whole.gradients))
