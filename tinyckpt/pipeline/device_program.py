"""The program of one device, with arrays.

It is a generator. It yields what it waits for, and is sent the arrays when they are there: in
``running`` from a dictionary, in ``mpi`` from other processes. What is sent is a copy, as between
processes. Gradients are added up in the order of the device's backwards, each weighted by 1/M, as
gradient accumulation on one device does it: for a loss that is a mean over samples, they are those
of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import BackendError
from tinyckpt.base.tree import leaves
from tinyckpt.core.backend import sources_of
from tinyckpt.core.schedule import Compute, Free, Step
from tinyckpt.pipeline.parts import PARTS, PlannedStage, is_exchange
from tinyckpt.pipeline.program import COLLECTIVES, KINDS, Action, Pipeline
from tinyckpt.pipeline.resuming import Resumed, Slot
from tinyckpt.pipeline.stages import arrays_of
from tinyckpt.pipeline.zero_state import Exchange, Holding
from tinyckpt.training.optimizers import Optimizer

Arrays = dict[int, Any]
TOGETHER = {KINDS[kind] for kind in COLLECTIVES}


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
        gradients: the mean over micro-batches and replicas; flat, and this replica's share of it,
            where replicas share gradients out; empty, if an optimiser has used them up.
        results: of each micro-batch.
        parameters: after the last update: flat, and this replica's share where there are shares.
        state: of the optimiser, in the same way.
        steps: how many were taken, those before included.
    """

    gradients: Arrays
    results: list[Arrays]
    parameters: Arrays
    state: dict[Slot, Any]
    steps: int


Post = Callable[[Message, list[Any]], None]
Program = Generator[Message | Exchange, list[Any], Outcome]


def device_program(worker: DeviceState) -> Program:
    """Do what one device does in a pipeline, step after step.

    Yields:
        The message or the exchange that it waits for; wants its arrays sent.

    Returns:
        Its results and gradients.

    Raises:
        BackendError: if an operator fails; names device, action and operator.
    """
    actions, holding = worker.pipeline.actions(worker.device), worker.holding
    worker.leave_parameters()
    for _ in range(len(worker.batches) // worker.pipeline.micro_batches):
        for action in actions:
            if action.kind.startswith("recv"):
                is_forward = "activation" in action.kind
                own = Message(worker.device, is_forward, action.stage, action.micro_batch)
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
    """What one device holds while it works.

    Attributes:
        values: arrays by the stage's own ids, by stage and micro-batch, while that is in flight.
        arrived: what other stages sent and no action has used yet.
        results: of each micro-batch, of all steps.
        sources: what the device needs of the arguments, for each micro-batch of a step.
        holding: of the training state.
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
        """Take the device's part.

        Args:
            pipeline: that of one replica, of a legal one.
            device: which, in it.
            stages: planned, all of them.
            batches: the arguments of the function for each micro-batch, of one step or of several.
            post: called to send arrays to another device.
            number: of the replica.
            optimizer: what updates parameters, if they are to be updated.
            begin: the optimiser's state to go on from.
        """
        self.pipeline, self.device, self.stages, self.post = pipeline, device, stages, post
        whole = stages[0].stage.whole
        self.of_gradients, self.of_results = (
            set(leaves(whole.gradients)),
            set(leaves(whole.results)),
        )
        own = np.flatnonzero(pipeline.device_of == device).tolist()
        self.batches, self.needed = batches, needed_by([stages[k] for k in own])
        self.sources = self.arguments(0)
        self.values: dict[tuple[int, int], Arrays] = {}
        self.arrived: dict[Message, list[Any]] = {}
        self.recomputed: set[tuple[int, int]] = set()
        self.results: list[Arrays] = [{} for _ in range(len(batches))]
        self.holding = Holding(pipeline, device, stages, number, self.sources[0], optimizer, begin)
        self.kernels = {stage: kernels_of(stages[stage]) for stage in own}

    def arguments(self, step: int) -> list[Arrays]:
        """Return what the device needs of the arguments of a step, for each micro-batch."""
        whole, count = self.stages[0].stage.whole, self.pipeline.micro_batches
        return [
            {
                data: array
                for data, array in sources_of(whole, self.batches[number]).items()
                if data in self.needed
            }
            for number in range(step * count, (step + 1) * count)
        ]

    def leave_parameters(self) -> None:
        """Forget the parameters among the arguments, if the device holds them itself."""
        for own in self.sources:
            for data in self.holding.parameters:
                own.pop(data, None)

    def next_step(self) -> None:
        """Take the arguments of the next step, if there is one."""
        self.holding.steps += 1
        if self.holding.steps * self.pipeline.micro_batches < len(self.batches):
            self.sources = []  # given up first: those of two steps need not fit
            self.sources = self.arguments(self.holding.steps)
            self.leave_parameters()

    def do(self, action: Action) -> None:
        """Do an action that waits for nobody."""
        if action.kind.startswith("send"):
            self.send(action)
        elif action.kind == "update":
            self.holding.update(action.stage)
        elif action.kind.startswith("free"):
            self.holding.free(action, self.values.get((action.stage, action.micro_batch), {}))
        else:
            self.work(action)

    def number(self, action: Action) -> int:
        """Return the micro-batch of an action among those of all steps."""
        return self.holding.steps * self.pipeline.micro_batches + action.micro_batch

    def work(self, action: Action) -> None:
        """Do the parts of a stage's schedule that belong to an action."""
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
            self.arrived[message] = [self.holding.detached(array) for array in arrays]

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
            array = values.pop(local)
            if data in self.of_results:
                self.results[self.number(action)][data] = array
            if data in self.of_gradients:
                self.holding.add(action.stage, data, array * array.dtype.type(share))


def needed_by(stages: Iterable[PlannedStage]) -> set[int]:
    """Return the arguments that stages read, or update, by their ids in the whole graph."""
    found: set[int] = set()
    for each in stages:
        own, whole = each.stage, each.stage.whole
        found.update(data for data in own.local if whole.data[data].is_source)
        if own.outputs and len(leaves(whole.gradients)) == len(leaves(whole.arguments[0])):
            pairs = zip(leaves(whole.arguments[0]), leaves(whole.gradients), strict=True)
            found.update(data for data, gradient in pairs if gradient in own.outputs)
    return found


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
