"""The executor of one pipeline device, as a coroutine: its actions in order, on NumPy arrays.

A generator that yields each message or collective that it waits for, and is sent the arrays when
they have arrived: in ``run_in_process`` from a dictionary, in ``mpi`` from other processes. Sent
arrays are copies, as between processes. Gradients accumulate in the order of the device's
backwards, each weighted by 1/M for M micro-batches, as gradient accumulation on one device does it:
for a loss that is a mean over samples, they are the gradients of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import BackendError
from tinyckpt.base.tree import leaves
from tinyckpt.core.backend import bind_sources
from tinyckpt.core.schedule import Compute, Free, Step
from tinyckpt.pipeline.program import COLLECTIVES, KINDS, Action, Pipeline
from tinyckpt.pipeline.save_and_resume import Resumed, Slot
from tinyckpt.pipeline.stage_schedules import PARTS, PlannedStage
from tinyckpt.pipeline.stages import arrays_of
from tinyckpt.pipeline.zero_state import CollectiveRequest, ZeroState
from tinyckpt.training.optimizers import Optimizer

Arrays = dict[int, Any]
TOGETHER = {KINDS[kind] for kind in COLLECTIVES}


class Message(NamedTuple):
    """The key of a message from one stage to the next, on the same device or not.

    Attributes:
        device: the receiver.
        is_forward: True for activations, False for cotangents.
        stage, micro_batch: of the receiving action.
    """

    device: int
    is_forward: bool
    stage: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a device, by data ids of the whole graph.

    Attributes:
        gradients: the mean over micro-batches and replicas; a flat shard where gradients are
            sharded over replicas (ZeRO); empty if an optimiser has consumed them.
        results: of each micro-batch.
        parameters: after the last update; flat, a shard where they are sharded.
        state: of the optimiser, likewise.
        steps: number of optimiser steps taken, earlier ones included.
    """

    gradients: Arrays
    results: list[Arrays]
    parameters: Arrays
    state: dict[Slot, Any]
    steps: int


Post = Callable[[Message, list[Any]], None]
Program = Generator[Message | CollectiveRequest, list[Any], Outcome]


def device_program(worker: DeviceState) -> Program:
    """Run the actions of one device, for as many training steps as there are batches.

    Yields:
        The message or the collective that it waits for; expects its arrays from ``send``.

    Returns:
        The device's results and gradients.

    Raises:
        BackendError: if an operator fails; names device, action and operator.
    """
    actions, holding = worker.pipeline.actions(worker.device), worker.holding
    worker.leave_parameters()
    for _ in range(len(worker.batches) // worker.pipeline.micro_batches):
        for action in actions:
            if action.kind.startswith("recv"):
                own = worker.message(action.stage, action.micro_batch, "activation" in action.kind)
                worker.arrived[own] = yield own
            elif action.kind in TOGETHER:
                holding.received(action, (yield holding.offered(action)))
            else:
                worker.do(action)
        worker.next_step()
    return Outcome(
        holding.gradients, worker.results, holding.shares(), holding.state_arrays(),
        holding.before + holding.steps,
    )  # fmt: skip


class DeviceState:
    """The memory of one device while it runs: values in flight, messages, training state.

    Attributes:
        values: arrays by the stage's own ids, for each (stage, micro-batch) in flight.
        arrived: received messages that no action has used yet.
        recomputed: the (stage, micro-batch) pairs in flight whose recomputation is done.
        results: of each micro-batch, of all steps.
        sources: the arguments that the device needs, for each micro-batch of a step.
        holding: the device's part of the training state.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        device: int,
        stages: Sequence[PlannedStage],
        batches: Sequence[tuple[Any, ...]],
        post: Post,
        number: int = 0,
        optimizer: Optimizer | None = None,
        begin: Resumed | None = None,
    ) -> None:
        """Allocate the device's part of the training state, and look up its arguments.

        Args:
            pipeline: of one replica; it must be legal.
            device: index within the replica.
            stages: all planned stages.
            batches: the function's arguments for each micro-batch, of one step or several.
            post: called to send arrays to another device.
            number: index of the replica.
            optimizer: updates the parameters; None to return gradients instead.
            begin: the optimiser state to resume from.
        """
        self.pipeline, self.device, self.stages, self.post = pipeline, device, stages, post
        whole = stages[0].stage.whole
        self.of_gradients, self.of_results = map(set, map(leaves, (whole.gradients, whole.results)))
        own = pipeline.stages_on(device)
        self.batches, self.needed = batches, needed_by([stages[k] for k in own])
        self.sources = self.arguments(0)
        self.values: dict[tuple[int, int], Arrays] = {}
        self.arrived: dict[Message, list[Any]] = {}
        self.recomputed: set[tuple[int, int]] = set()
        self.results: list[Arrays] = [{} for _ in range(len(batches))]
        self.holding = ZeroState(
            pipeline, device, stages, number, self.sources[0], optimizer, begin
        )
        self.kernels = {stage: kernels_of(stages[stage]) for stage in own}

    def arguments(self, step: int) -> list[Arrays]:
        """Return the arguments that the device needs in a step, for each micro-batch."""
        whole, count = self.stages[0].stage.whole, self.pipeline.micro_batches
        return [
            {
                data: array
                for data, array in bind_sources(whole, self.batches[number]).items()
                if data in self.needed
            }
            for number in range(step * count, (step + 1) * count)
        ]

    def leave_parameters(self) -> None:
        """Drop the parameters from the arguments, if the device has its own copy of them."""
        for own in self.sources:
            for data in self.holding.parameters:
                own.pop(data, None)

    def next_step(self) -> None:
        """Take the arguments of the next step, if there is one."""
        self.holding.steps += 1
        if self.holding.steps * self.pipeline.micro_batches < len(self.batches):
            self.sources = []  # freed first: the arguments of two steps need not fit
            self.sources = self.arguments(self.holding.steps)
            self.leave_parameters()

    def do(self, action: Action) -> None:
        """Run an action that does not wait: a send, an update, a free, or computation."""
        if action.kind.startswith("send"):
            self.send(action)
        elif action.kind == "update":
            self.holding.update(action.stage)
        elif action.kind.startswith("free"):
            self.holding.free(action, self.values.get((action.stage, action.micro_batch), {}))
        else:
            self.work(action)

    def number(self, action: Action) -> int:
        """Return the index of an action's micro-batch among those of all steps."""
        return self.holding.steps * self.pipeline.micro_batches + action.micro_batch

    def work(self, action: Action) -> None:
        """Run the parts of a stage's schedule that belong to a forward, recompute or backward."""
        own, place = self.stages[action.stage].stage, (action.stage, action.micro_batch)
        if action.kind == "forward":
            self.values[place] = arrays_of(own, self.sources[action.micro_batch])
        self.values[place].update(self.holding.read(*place))
        if action.kind == "forward":
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
        """Move the arrays received from the neighbouring stage into the values in flight."""
        stage, place = self.stages[action.stage].stage, (action.stage, action.micro_batch)
        if action.stage != (0 if is_forward else len(self.stages) - 1):
            taken = stage.ids(stage.takes if is_forward else stage.takes_back)
            arrays = self.arrived.pop(self.message(*place, is_forward))
            self.values[place].update(zip(taken, arrays, strict=True))

    def message(self, stage: int, micro_batch: int, is_forward: bool) -> Message:
        """Return the message that a stage receives."""
        return Message(int(self.pipeline.device_of[stage]), is_forward, stage, micro_batch)

    def hand_over(self, action: Action, is_forward: bool) -> None:
        """Pass arrays on to a stage of the same device; buffer those for another until the send."""
        own, to = self.stages[action.stage].stage, action.stage + (1 if is_forward else -1)
        if 0 <= to < len(self.stages):
            values = self.values[action.stage, action.micro_batch]
            given = own.ids(own.gives if is_forward else own.gives_back)
            self.arrived[self.message(to, action.micro_batch, is_forward)] = [
                self.holding.detached(values[data]) for data in given
            ]

    def send(self, action: Action) -> None:
        """Send a stage's activations or cotangents to another device."""
        is_forward = action.kind == "send_activation"
        to = action.stage + (1 if is_forward else -1)
        message = self.message(to, action.micro_batch, is_forward)
        # C-contiguous copies, as a receiver of any transport allocates them.
        self.post(message, [np.array(array, order="C") for array in self.arrived.pop(message)])

    def evaluate(self, action: Action, part: str) -> None:
        """Run the steps of one part of a stage's schedule."""
        own = self.stages[action.stage]
        values, kernels = self.values[action.stage, action.micro_batch], self.kernels[action.stage]
        for step in own.parts[PARTS.index(part)]:
            if isinstance(step, Compute) and step.operator == own.stage.exchange:
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
        """Retire a micro-batch: keep its results, accumulate its gradients, free the rest."""
        own = self.stages[action.stage].stage
        values = self.values.pop((action.stage, action.micro_batch))
        self.recomputed.discard((action.stage, action.micro_batch))
        share = 1.0 / self.pipeline.micro_batches
        for data, local in zip(own.outputs, own.ids(own.outputs), strict=True):
            array = values.pop(local)
            if data in self.of_results:
                self.results[self.number(action)][data] = array
            if data in self.of_gradients:
                self.holding.add(action.stage, data, array * array.dtype.type(share))


def needed_by(stages: Iterable[PlannedStage]) -> set[int]:
    """Return the data ids of the arguments that stages read or update, in the whole graph."""
    found: set[int] = set()
    for each in stages:
        own, whole = each.stage, each.stage.whole
        found.update(data for data in own.local if whole.data[data].is_source)
        if own.outputs and len(leaves(whole.gradients)) == len(leaves(whole.arguments[0])):
            pairs = zip(leaves(whole.arguments[0]), leaves(whole.gradients), strict=True)
            found.update(data for data, gradient in pairs if gradient in own.outputs)
    return found


def kernels_of(planned: PlannedStage) -> list[Callable[..., Any] | None]:
    """Return the NumPy kernel of each operator of a stage; None for the exchange."""
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
    """Run one step of a stage's schedule: free a value, or evaluate an operator."""
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
