"""Static check of a pipeline: data dependences, matched messages, no stale parameters, collectives.

Everything that needs no clock. Where an action depends on another one of the same device, or must
not follow an update, the two positions are compared for all micro-batches at once. A pipeline that
passes can fail in one way only: by a deadlock, a cycle of devices that wait for each other, which
``replay`` finds.

A collective has no partner to look up: MPI matches collectives in the order in which replicas reach
them. So the replicas of a device must issue the same ones in the same order (or they deadlock).
Their place within a replica is checked for each replica by itself: gradients are reduced after
their last backward and before the update, parameters are gathered before they are read and freed
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline.program import COLLECTIVES, KINDS, NOTHING, Action, Integers, Kind, Pipeline

ABSENT = -1
# (action, the action that it depends on) within one stage and micro-batch; BACKWARD as the second
# stands for the backward of inputs as well.
LOCAL = (
    (Kind.SEND_ACTIVATION, Kind.FORWARD),
    (Kind.RECOMPUTE, Kind.FORWARD),
    (Kind.BACKWARD, Kind.FORWARD),
    (Kind.BACKWARD_INPUT, Kind.FORWARD),
    (Kind.BACKWARD_WEIGHT, Kind.BACKWARD_INPUT),
    (Kind.SEND_COTANGENT, Kind.BACKWARD),
)
# The actions that read a stage's parameters, or compute their gradient.
READERS = (Kind.FORWARD, Kind.RECOMPUTE, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT,
           Kind.GATHER_FORWARD, Kind.GATHER_BACKWARD)  # fmt: skip
# The collectives and frees that each ZeRO stage (0 to 3) has.
LEGAL = (
    (Kind.ALL_REDUCE,),
    (Kind.REDUCE_SCATTER, Kind.GATHER_UPDATED),
    (Kind.REDUCE_SCATTER, Kind.GATHER_UPDATED),
    (Kind.REDUCE_SCATTER, Kind.GATHER_FORWARD, Kind.FREE_FORWARD, Kind.GATHER_BACKWARD,
     Kind.FREE_BACKWARD),
)  # fmt: skip
Complaint = tuple[int, int, str]  # device, step, message
Why = str | Callable[[int, int], str]  # a message; or one that depends on stage and micro-batch


class ActionPositions:
    """The position of each action: its step on its device, by kind, stage and micro-batch.

    Attributes:
        of: an array (stages, micro-batches) for each kind; ABSENT where there is no such action.
            Arrays of kinds that the pipeline does not have share one element (broadcast).
        back: the step at which a backward begins: the whole one, or that of the inputs.
        done: the step at which a backward is complete: the whole one, or that of the weights.
        remote_before, remote_after: whether a stage's neighbour is on another device, by stage.
        depth: number of stages of a replica.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.depth = pipeline.replica_stages
        self.of = [self.table(kind) for kind in range(len(KINDS))]
        self.back = np.maximum(self.of[Kind.BACKWARD], self.of[Kind.BACKWARD_INPUT])
        self.done = np.maximum(self.of[Kind.BACKWARD], self.of[Kind.BACKWARD_WEIGHT])
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

    def first_of(
        self, kind: int, wrong: Integers, why: Why, steps: Integers | None = None
    ) -> Iterator[Complaint]:
        """Yield the first, by device and step, of the actions of a kind that are marked wrong.

        Args:
            kind: of the actions.
            wrong: array (stages, micro-batches) that marks them.
            why: the message.
            steps: array of the actions' steps; those of ``kind`` if not given.
        """
        stages, micro_batches = wrong.nonzero()
        if not len(stages):
            return
        positions = (self.of[kind] if steps is None else steps)[stages, micro_batches]
        devices = self.pipeline.device_of[stages]
        chosen = np.lexsort((positions, devices))[0]
        stage, micro_batch = int(stages[chosen]), int(micro_batches[chosen])
        text = why if isinstance(why, str) else why(stage, micro_batch)
        named = f"{Action(KINDS[kind], stage, micro_batch)}: {text}"
        yield int(devices[chosen]), int(positions[chosen]), named

    def after(
        self,
        kind: int,
        what: str,
        needed: Integers,
        steps: Integers | None = None,
        *,
        required: bool = True,
    ) -> Iterator[Complaint]:
        """Yield the first action of a kind that comes before an action that it depends on.

        Args:
            kind: of the action.
            what: name of the action that it depends on.
            needed: array of the steps of that one.
            steps: as for ``first_of``; ABSENT where nothing depends on it.
            required: whether it is illegal as well that the needed action is absent.
        """
        own = self.of[kind] if steps is None else steps
        wrong = (own != ABSENT) & (needed > own)
        if required:
            wrong |= (own != ABSENT) & (needed == ABSENT)
        name = what.replace("_", " ")

        def why(stage: int, micro_batch: int) -> str:
            at = needed[stage, micro_batch]
            return f"needs the {name}, which {'is not there' if at < 0 else f'comes at step {at}'}"

        yield from self.first_of(kind, wrong, why, own)

    def missing(self, kind: int, wrong: Integers) -> Iterator[Complaint]:
        """Yield the first action of a kind that is missing from its device.

        Args:
            kind: of the missing actions.
            wrong: array (stages, micro-batches) that marks them.
        """
        own = self.pipeline
        for stage, micro_batch in np.argwhere(wrong)[:1].tolist():
            device = int(own.device_of[stage])
            end = int(own.first[device + 1] - own.first[device])
            yield (
                device,
                end,
                f"the device ends without the {Action(KINDS[kind], stage, micro_batch)}",
            )


def check_order(positions: ActionPositions) -> None:
    """Raise a ScheduleError about the first illegal action, by device and step."""
    complaints = [
        *dependence_violations(positions),
        *unmatched_messages(positions),
        *incomplete_stages(positions),
        *stale_accesses(positions),
        *collective_complaints(positions),
    ]
    if complaints:
        device, step, what = min(complaints)
        raise ScheduleError(f"device {device}, step {step}: {what}")


def dependence_violations(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield for each dependence within a stage the first action that comes before its input."""
    of = positions.of
    for kind, earlier in LOCAL:
        needed = positions.back if earlier == Kind.BACKWARD else of[earlier]
        yield from positions.after(kind, KINDS[earlier], needed)
    for kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT):
        yield from positions.after(kind, "recompute", of[Kind.RECOMPUTE], required=False)


def unmatched_messages(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield for each direction the first read without its input, and sends and recvs without both.

    The input comes by a recv if the neighbouring stage is on another device; else the neighbour's
    own forward or backward comes before it.
    """
    of, before, after = positions.of, positions.remote_before, positions.remote_after
    for kind, steps, send, recv, giver, taker, towards in (
        (
            Kind.FORWARD,
            of[Kind.FORWARD],
            Kind.SEND_ACTIVATION,
            Kind.RECV_ACTIVATION,
            after,
            before,
            -1,
        ),
        (Kind.BACKWARD, positions.back, Kind.SEND_COTANGENT, Kind.RECV_COTANGENT, before, after, 1),
    ):
        by_message = np.where(taker[:, None], steps, ABSENT)
        yield from positions.after(kind, KINDS[recv], of[recv], by_message)
        local = np.where(taker[:, None], ABSENT, steps)
        local[0 if towards < 0 else positions.depth - 1 :: positions.depth] = ABSENT
        what = f"{KINDS[kind]} of stage {'before' if towards < 0 else 'after'} it"
        yield from positions.after(kind, what, shifted_by_stage(steps, towards), local)
        for own, other, remote, to in ((send, recv, giver, -towards), (recv, send, taker, towards)):
            is_there = of[own] != ABSENT
            wrong = is_there & remote[:, None] & (shifted_by_stage(of[other], to) == ABSENT)
            what = f"its {KINDS[other].replace('_', ' ')} is missing on the device of its neighbour"
            yield from positions.first_of(own, wrong, what)
            what = "its neighbouring stage is on no other device"
            yield from positions.first_of(own, is_there & ~remote[:, None], what)


def shifted_by_stage(table: Integers, towards: int) -> Integers:
    """Shift a table by one stage: every row becomes that of the stage before (-1) or after (1)."""
    found = np.full_like(table, ABSENT)
    if towards < 0:
        found[1:] = table[:-1]
    else:
        found[:-1] = table[1:]
    return found


def incomplete_stages(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first forward or backward that is missing, done twice, or not recomputed."""
    of = positions.of
    whole, halves = of[Kind.BACKWARD] != ABSENT, of[Kind.BACKWARD_INPUT] != ABSENT
    yield from positions.missing(Kind.FORWARD, of[Kind.FORWARD] == ABSENT)
    yield from positions.missing(Kind.BACKWARD, ~whole & ~halves)
    yield from positions.missing(
        Kind.BACKWARD_WEIGHT, halves & (of[Kind.BACKWARD_WEIGHT] == ABSENT)
    )
    yield from positions.first_of(Kind.BACKWARD, whole & halves, "it is done in halves as well")
    is_recomputed = (of[Kind.RECOMPUTE] != ABSENT).any(axis=1)
    wrong = is_recomputed[:, None] & (of[Kind.RECOMPUTE] == ABSENT) & (positions.back != ABSENT)
    what = "it is not recomputed before, as others of its stage are"
    yield from positions.first_of(Kind.BACKWARD, wrong, what, positions.back)


def stale_accesses(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first stale action: a read of parameters, or a gradient, after the update."""
    update = positions.of[Kind.UPDATE].max(axis=1, keepdims=True)
    is_updated = update != ABSENT
    if not is_updated.any():
        return
    yield from positions.missing(Kind.UPDATE, ~is_updated)

    def too_late(stage: int, micro_batch: int) -> str:
        return f"its gradient comes after the update of the stage, at step {update[stage, 0]}"

    def reads_new(stage: int, micro_batch: int) -> str:
        return (
            f"its parameters are stale: step {update[stage, 0]} updated them, and a batch reads "
            "them as they were before"
        )

    for kind in READERS:
        wrong = is_updated & (positions.of[kind] > update)
        why = too_late if kind == Kind.BACKWARD_WEIGHT else reads_new
        yield from positions.first_of(kind, wrong, why)


def collective_complaints(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first mismatched, misplaced or missing collectives of a pipeline's replicas."""
    own = positions.pipeline
    legal = LEGAL[own.zero] if own.replicas > 1 else ()
    why = f"there is none with {own.replicas} replicas and zero={own.zero}"
    for kind in (*COLLECTIVES, Kind.FREE_FORWARD, Kind.FREE_BACKWARD):
        if kind not in legal:
            yield from positions.first_of(kind, positions.of[kind] != ABSENT, why)
    if own.replicas > 1:
        yield from mismatched_collectives(positions)
        yield from unreduced_gradients(positions)
        if own.zero == 3:
            yield from ungathered_parameters(positions)


def mismatched_collectives(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield where the collectives of a device's replica first differ from those of replica 0."""
    own = positions.pipeline
    devices = own.replica_devices
    is_together = np.isin(own.kind, COLLECTIVES)
    rows = [begin + np.flatnonzero(is_together[begin:end]) for begin, end in own.ranges]
    # A number for each collective, the same in all replicas, and one for the end of the device.
    numbers = [np.append(own.collective_numbers(each), NOTHING) for each in rows]

    def described(device: int, at: int) -> str:
        if at == len(rows[device]):
            return f"device {device} ends"
        step = rows[device][at] - own.first[device]
        return f"device {device} does its {own.action(rows[device][at])} at step {step}"

    for device in range(devices, own.devices):
        ours, theirs = numbers[device], numbers[device % devices]
        count = min(len(ours), len(theirs))
        for at in np.flatnonzero(ours[:count] != theirs[:count])[:1].tolist():
            here = int(np.append(rows[device], own.first[device + 1])[at] - own.first[device])
            yield (
                device,
                here,
                (
                    f"replicas have different collectives: {described(device, at)}, and "
                    f"{described(device % devices, at)}"
                ),
            )


def unreduced_gradients(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield reductions of incomplete gradients, updates before a reduction, and missing ones."""
    of, done, zero = positions.of, positions.done, positions.pipeline.zero
    kind = Kind.ALL_REDUCE if zero == 0 else Kind.REDUCE_SCATTER
    reduced, update, gathered = of[kind], of[Kind.UPDATE][:, :1], of[Kind.GATHER_UPDATED][:, :1]
    if zero < 2:
        # Once per batch, after the last backward.
        again = reduced != ABSENT
        again[:, 0] = False
        yield from positions.first_of(
            kind, again, "it is done once per batch, as that of micro-batch 0"
        )
        done, reduced = done.max(axis=1, keepdims=True), reduced[:, :1]
    wrong = (reduced != ABSENT) & (reduced < done)
    yield from positions.first_of(
        kind, wrong, lambda s, m: f"its gradients are not complete before step {done[s, m]}"
    )
    yield from positions.missing(kind, (done != ABSENT) & (reduced == ABSENT))
    yield from positions.missing(Kind.UPDATE, update == ABSENT)
    last = reduced.max(axis=1, keepdims=True)
    yield from positions.after(Kind.UPDATE, KINDS[kind], last, update, required=False)
    if zero in (1, 2):
        yield from positions.missing(Kind.GATHER_UPDATED, gathered == ABSENT)
        yield from positions.after(Kind.GATHER_UPDATED, "update", update, gathered, required=False)


def ungathered_parameters(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield reads of parameters that are not gathered, and gathered parameters never freed."""
    of = positions.of
    again = np.where(of[Kind.RECOMPUTE] != ABSENT, of[Kind.RECOMPUTE], positions.back)
    again_kind = Kind.RECOMPUTE if (of[Kind.RECOMPUTE] != ABSENT).any() else Kind.BACKWARD
    for kind, steps, gather, free, last in (
        (Kind.FORWARD, of[Kind.FORWARD], Kind.GATHER_FORWARD, Kind.FREE_FORWARD, of[Kind.FORWARD]),
        (again_kind, again, Kind.GATHER_BACKWARD, Kind.FREE_BACKWARD, positions.done),
    ):
        yield from positions.after(kind, KINDS[gather], of[gather], steps)
        yield from positions.after(free, KINDS[kind], last, required=False)
        yield from positions.missing(free, (steps != ABSENT) & (of[free] == ABSENT))
