"""Static dependency check of a pipeline: data dependences, matched messages, no stale parameters.

Everything that needs no clock. Where an action depends on another one of the same device, or must
not follow an update, the two positions are compared for all micro-batches at once. A pipeline that
passes can fail in one way only: by a deadlock, a cycle of devices that wait for each other, which
``event_simulation`` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline.program import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    GATHER_BACKWARD,
    GATHER_FORWARD,
    KINDS,
    RECOMPUTE,
    RECV_ACTIVATION,
    RECV_COTANGENT,
    SEND_ACTIVATION,
    SEND_COTANGENT,
    UPDATE,
    Action,
    Integers,
    Pipeline,
)

ABSENT = -1
# (action, the action that it depends on) within one stage and micro-batch; BACKWARD as the second
# stands for the backward of inputs as well.
LOCAL = (
    (SEND_ACTIVATION, FORWARD),
    (RECOMPUTE, FORWARD),
    (BACKWARD, FORWARD),
    (BACKWARD_INPUT, FORWARD),
    (BACKWARD_WEIGHT, BACKWARD_INPUT),
    (SEND_COTANGENT, BACKWARD),
)
Complaint = tuple[int, int, str]  # device, step, message
Why = Callable[[int, int], str]  # from a stage and a micro-batch to the message


class ActionPositions:
    """The position of each action: its step on its device, by kind, stage and micro-batch.

    Attributes:
        of: an array (stages, micro-batches) for each kind; ABSENT where there is no such action.
            Arrays of kinds that the pipeline does not have share one element (broadcast).
        back: the step at which a backward begins: the whole one, or that of the inputs.
        remote_before, remote_after: whether a stage's neighbour is on another device, by stage.
        depth: number of stages of a replica.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.depth = pipeline.stages // pipeline.replicas
        self.of = [self.table(kind) for kind in range(len(KINDS))]
        self.back = np.maximum(self.of[BACKWARD], self.of[BACKWARD_INPUT])
        crosses = pipeline.device_of[1:] != pipeline.device_of[:-1]
        crosses[self.depth - 1 :: self.depth] = False  # replicas exchange no activations
        self.remote_before = np.append(False, crosses)
        self.remote_after = np.append(crosses, False)

    def table(self, kind: int) -> Integers:
        """Return the steps of one kind, refusing duplicates and actions on the wrong device."""
        own = self.pipeline
        found = np.flatnonzero(own.kind == kind)
        if not len(found):
            return np.broadcast_to(np.int32(ABSENT), (own.stages, own.micro_batches))
        stage, micro_batch = own.stage[found], own.micro_batch[found]
        device = np.searchsorted(own.first, found, side="right") - 1
        step = found - own.first[device]
        for number in np.flatnonzero(own.device_of[stage] != device)[:1]:
            self.fail(found[number], f"that stage is on device {own.device_of[stage[number]]}")
        table = np.full((own.stages, own.micro_batches), ABSENT, np.int32)
        table[stage, micro_batch] = step
        for number in np.flatnonzero(table[stage, micro_batch] != step)[:1]:
            self.fail(found[number], "it is done again later; each action is done once")
        return table

    def fail(self, index: int, why: str) -> None:
        """Raise the ScheduleError about one action."""
        device = int(np.searchsorted(self.pipeline.first, index, side="right")) - 1
        step = index - int(self.pipeline.first[device])
        raise ScheduleError(f"device {device}, step {step}: {self.pipeline.action(index)}: {why}")

    def end_of(self, stage: int) -> tuple[int, int]:
        """Return the device of a stage, and the number of its actions: the step after its last."""
        device = int(self.pipeline.device_of[stage])
        return device, int(self.pipeline.first[device + 1] - self.pipeline.first[device])

    def first_of(
        self, kind: int, wrong: Integers, why: Why, steps: Integers | None = None
    ) -> Iterator[Complaint]:
        """Yield the first, by device and step, of the actions of a kind that are marked wrong.

        Args:
            kind: of the actions.
            wrong: array (stages, micro-batches) that marks them.
            why: makes the message for a stage and a micro-batch.
            steps: array of the actions' steps; those of ``kind`` if not given.
        """
        stages, micro_batches = wrong.nonzero()
        if not len(stages):
            return
        positions = (self.of[kind] if steps is None else steps)[stages, micro_batches]
        devices = self.pipeline.device_of[stages]
        chosen = np.lexsort((positions, devices))[0]
        stage, micro_batch = int(stages[chosen]), int(micro_batches[chosen])
        text = f"{Action(KINDS[kind], stage, micro_batch)}: {why(stage, micro_batch)}"
        yield int(devices[chosen]), int(positions[chosen]), text


def check_order(positions: ActionPositions, more: Iterable[Complaint] = ()) -> None:
    """Raise a ScheduleError about the first illegal action, by device and step.

    Args:
        positions: of all actions.
        more: complaints of other checks.
    """
    complaints = [
        *dependence_violations(positions),
        *missing_inputs(positions),
        *unmatched_messages(positions),
        *incomplete_stages(positions),
        *stale_accesses(positions),
        *more,
    ]
    if complaints:
        device, step, what = min(complaints)
        raise ScheduleError(f"device {device}, step {step}: {what}")


def dependence_violations(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield for each dependence within a stage the first action that comes before its input."""
    of = positions.of
    for kind, earlier in LOCAL:
        needed = positions.back if earlier == BACKWARD else of[earlier]
        wrong = (of[kind] != ABSENT) & ((needed == ABSENT) | (needed >= of[kind]))
        yield from positions.first_of(kind, wrong, needs(KINDS[earlier], needed))
    for kind in (BACKWARD, BACKWARD_INPUT):
        wrong = (of[kind] != ABSENT) & (of[RECOMPUTE] > of[kind])
        yield from positions.first_of(kind, wrong, needs("recompute", of[RECOMPUTE]))


def needs(what: str, needed: Integers) -> Why:
    """Return the message for an action whose dependence comes later, or is missing."""
    name = what.replace("_", " ")

    def why(stage: int, micro_batch: int) -> str:
        step = needed[stage, micro_batch]
        return f"needs the {name}, which {'is not there' if step < 0 else f'comes at step {step}'}"

    return why


def missing_inputs(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first forward and backward that precede the input from the neighbouring stage."""
    for kind, message, steps, remote, towards in (
        (FORWARD, RECV_ACTIVATION, positions.of[FORWARD], positions.remote_before, -1),
        (BACKWARD, RECV_COTANGENT, positions.back, positions.remote_after, 1),
    ):
        by_message = remote[:, None] & (steps != ABSENT)
        recv = positions.of[message]
        wrong = by_message & ((recv == ABSENT) | (recv >= steps))
        yield from positions.first_of(kind, wrong, needs(KINDS[message], recv), steps)
        neighbour = shifted_by_stage(steps, towards)
        wrong = ~by_message & (steps != ABSENT) & ((neighbour == ABSENT) | (neighbour >= steps))
        wrong[0 if towards < 0 else positions.depth - 1 :: positions.depth] = (
            False  # the model's ends
        )
        what = f"{KINDS[kind]} of stage {'before' if towards < 0 else 'after'} it"
        yield from positions.first_of(kind, wrong, needs(what, neighbour), steps)


def shifted_by_stage(table: Integers, towards: int) -> Integers:
    """Shift a table by one stage: every row becomes that of the stage before (-1) or after (1)."""
    found = np.full_like(table, ABSENT)
    if towards < 0:
        found[1:] = table[:-1]
    else:
        found[:-1] = table[1:]
    return found


def unmatched_messages(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first send of each kind without its recv, and the first recv without its send."""
    for kind, other, remote, towards in (
        (SEND_ACTIVATION, RECV_ACTIVATION, positions.remote_after, 1),
        (RECV_ACTIVATION, SEND_ACTIVATION, positions.remote_before, -1),
        (SEND_COTANGENT, RECV_COTANGENT, positions.remote_before, -1),
        (RECV_COTANGENT, SEND_COTANGENT, positions.remote_after, 1),
    ):
        is_there = positions.of[kind] != ABSENT
        what = f"its {KINDS[other].replace('_', ' ')} is missing on the device of its neighbour"
        wrong = (
            is_there & remote[:, None] & (shifted_by_stage(positions.of[other], towards) == ABSENT)
        )
        yield from positions.first_of(kind, wrong, says(what))
        wrong = is_there & ~remote[:, None]
        yield from positions.first_of(
            kind, wrong, says("its neighbouring stage is on no other device")
        )


def says(text: str) -> Why:
    """Return a message that does not depend on stage and micro-batch."""
    return lambda stage, micro_batch: text


def incomplete_stages(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first forward or backward that is missing, done twice, or not recomputed."""
    of = positions.of
    whole, halves = of[BACKWARD] != ABSENT, of[BACKWARD_INPUT] != ABSENT
    for kind, missing in (
        (FORWARD, of[FORWARD] == ABSENT),
        (BACKWARD, ~whole & ~halves),
        (BACKWARD_WEIGHT, halves & (of[BACKWARD_WEIGHT] == ABSENT)),
    ):
        for stage, micro_batch in np.argwhere(missing)[:1].tolist():
            action = Action(KINDS[kind], stage, micro_batch)
            yield *positions.end_of(stage), f"the device ends without the {action}"
    yield from positions.first_of(BACKWARD, whole & halves, says("it is done in halves as well"))
    is_recomputed = (of[RECOMPUTE] != ABSENT).any(axis=1)
    wrong = is_recomputed[:, None] & (of[RECOMPUTE] == ABSENT) & (positions.back != ABSENT)
    what = "it is not recomputed before, as others of its stage are"
    yield from positions.first_of(BACKWARD, wrong, says(what), positions.back)


def stale_accesses(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first stale action: a read of parameters, or a gradient, after the update."""
    update = positions.of[UPDATE].max(axis=1)
    is_updated = update != ABSENT
    if not is_updated.any():
        return
    for stage in np.flatnonzero(~is_updated)[:1].tolist():
        yield *positions.end_of(stage), f"the device ends without the update of stage {stage}"

    def too_late(stage: int, micro_batch: int) -> str:
        return f"its gradient comes after the update of the stage, at step {update[stage]}"

    def reads_new(stage: int, micro_batch: int) -> str:
        return (
            f"its parameters are stale: step {update[stage]} updated them, and a batch reads them "
            "as they were before"
        )

    readers = FORWARD, RECOMPUTE, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT
    for kind in (*readers, GATHER_FORWARD, GATHER_BACKWARD):
        wrong = is_updated[:, None] & (positions.of[kind] > update[:, None])
        yield from positions.first_of(
            kind, wrong, too_late if kind == BACKWARD_WEIGHT else reads_new
        )
