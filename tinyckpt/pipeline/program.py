"""A pipeline: for every device a list of actions on (stage, micro-batch).

A model is cut into *stages*, a batch into *micro-batches*. Each device holds one stage, or several,
and does its actions in order, one after another: the *forward* of a stage on a micro-batch, its
*backward*, and, between devices, *send* and *recv*. A send takes no time of its device, and what it
sends is underway for as long as the costs say; a recv waits until it is there.

One pipeline of 1,024 stages and 4,096 micro-batches has 25 million actions. So they are held as
columns, nine bytes an action, and ``Action`` is what one of them looks like to a reader.

These Send and Recv stand here and not among the steps of ``tinyckpt.schedule``: those are about
values of one graph on one machine, and every reader of a schedule (replay, execute, compile, all
pictures) would have to say what they do where there is no second one. An action is about a whole
stage of one micro-batch; what it does inside of the stage is an ordinary schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyckpt.base.errors import OptionError

Integers = NDArray[Any]
Recompute = Literal["early", "late"]

KINDS = (
    "forward", "recompute", "backward", "backward_input", "backward_weight", "update",
    "send_activation", "recv_activation", "send_cotangent", "recv_cotangent",
    "all_reduce", "reduce_scatter", "gather_forward", "gather_backward", "gather_updated",
    "free_forward", "free_backward",
)  # fmt: skip
(
    FORWARD, RECOMPUTE, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UPDATE,
    SEND_ACTIVATION, RECV_ACTIVATION, SEND_COTANGENT, RECV_COTANGENT,
    ALL_REDUCE, REDUCE_SCATTER, GATHER_FORWARD, GATHER_BACKWARD, GATHER_UPDATED,
    FREE_FORWARD, FREE_BACKWARD,
) = range(len(KINDS))  # fmt: skip
# What all replicas of a device do at the same time, or none of them.
COLLECTIVES = (ALL_REDUCE, REDUCE_SCATTER, GATHER_FORWARD, GATHER_BACKWARD, GATHER_UPDATED)
NOTHING = -1
# In the text of a pipeline; messages and updates are left out of it.
LETTERS = {FORWARD: "F", RECOMPUTE: "R", BACKWARD: "B", BACKWARD_INPUT: "B", BACKWARD_WEIGHT: "W"}

OF_THE_BATCH = ("update", "all_reduce", "gather_updated")


class Action(NamedTuple):
    """One thing that a device does.

    Attributes:
        kind: one of KINDS. ``backward`` is all of it; ``backward_input`` makes what the stage
            before waits for, and ``backward_weight`` the gradients of the parameters, for which
            nobody waits. ``send_activation`` sends what the stage made to the next,
            ``recv_activation`` waits for what the one before made; ``send_cotangent`` and
            ``recv_cotangent`` are the same on the way back. ``update`` is about all micro-batches.
            The rest is between the replicas of ``data_parallel``: gradients are averaged, with all
            of it on each (``all_reduce``) or a share (``reduce_scatter``); parameters are gathered
            from their shares, for the forward, for the backward or for good, and freed again.
        stage, micro_batch: which; both are counted from 0.
    """

    kind: str
    stage: int
    micro_batch: int = 0

    def __str__(self) -> str:
        of = "" if self.kind in OF_THE_BATCH else f", micro-batch {self.micro_batch}"
        return f"{self.kind.replace('_', ' ')} of stage {self.stage}{of}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline:
    """The actions of all devices; whether they are legal is what ``replay_pipeline`` finds out.

    Attributes:
        name: what tables and errors call it.
        micro_batches: how many a batch is parted into.
        device_of: for every stage the device that holds it.
        kind, stage, micro_batch: one entry an action, device after device.
        first: for every device where its actions begin; and, behind them, where all end.
        replicas: how many there are of the whole pipeline, each with as many of the devices and
            of the stages: stage s of replica r is stage r S + s, device k is device r K + k. Each
            has its own micro-batches.
        zero: how the replicas share out the training state, 0 to 3; see ``data_parallel``.
    """

    name: str
    micro_batches: int
    device_of: Integers
    kind: Integers
    stage: Integers
    micro_batch: Integers
    first: Integers
    replicas: int = 1
    zero: int = 0

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.first) - 1

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.device_of)

    @property
    def folded(self) -> bool:
        """Whether devices hold several stages: then what is in flight is counted by stage."""
        return self.stages > self.devices

    @property
    def halves(self) -> bool:
        """Whether backwards are in two halves; ``stages_of`` wants to know it."""
        return bool((self.kind == BACKWARD_INPUT).any())

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return (
            f"<Pipeline {self.name}, {self.devices} devices, {self.stages} stages, "
            f"{self.micro_batches} micro-batches, {len(self)} actions>"
        )

    def action(self, index: int) -> Action:
        """Return an action by its place among those of all devices."""
        kind, stage, micro_batch = self.kind[index], self.stage[index], self.micro_batch[index]
        return Action(KINDS[kind], int(stage), int(micro_batch))

    def actions(self, device: int) -> list[Action]:
        """Return what one device does, in order."""
        return [self.action(index) for index in range(self.first[device], self.first[device + 1])]

    def __str__(self) -> str:
        """Return one line a device: its forwards, backwards and recomputations in order.

        With several stages a device, the stage stands behind a point: ``F3.1`` is the forward of
        micro-batch 3 in stage 1.
        """
        lines = []
        for device in range(self.devices):
            words = [
                f"{LETTERS[int(self.kind[i])]}{self.micro_batch[i]}"
                + (f".{self.stage[i]}" if self.stages > self.devices else "")
                for i in range(self.first[device], self.first[device + 1])
                if int(self.kind[i]) in LETTERS
            ]
            lines.append(f"device {device}: {' '.join(words)}")
        return "\n".join(lines)


class Lane(NamedTuple):
    """The actions of one device, as columns."""

    kind: Integers
    stage: Integers
    micro_batch: Integers


def joined(name: str, device_of: Integers, micro_batches: int, lanes: Sequence[Lane]) -> Pipeline:
    """Return the pipeline of some lanes."""
    first = np.cumsum([0, *(len(lane.kind) for lane in lanes)], dtype=np.int64)
    kind, stage, micro_batch = (np.concatenate(column) for column in zip(*lanes, strict=True))
    return Pipeline(name, micro_batches, device_of, kind, stage, micro_batch, first)


def with_messages(
    name: str,
    device_of: Integers,
    micro_batches: int,
    lanes: Iterable[Lane],
    recompute: Recompute | None = None,
) -> Pipeline:
    """Return the pipeline whose devices do what is given, with all that belongs between.

    Sends stand right after what makes their values, recvs right before what reads them, and each
    stage is updated when its device has done everything else.

    Args:
        name: what tables call it.
        device_of: for every stage the device that holds it.
        micro_batches: how many a batch is parted into.
        lanes: for every device its forwards and backwards, in order.
        recompute: whether the inside of a stage is computed again before its backward: ``early``,
            while its device waits for the cotangent; or ``late``, when that is there.
    """
    if recompute not in (None, "early", "late"):
        raise OptionError(f"recompute={recompute!r}; legal are None, 'early' and 'late'")
    complete = []
    last = len(device_of) - 1
    # Each device's stages, found at once: one by one, very many devices would take their square.
    by_device = np.argsort(device_of, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(device_of)).tolist()
    for device, (kind, stage, micro_batch) in enumerate(lanes):
        is_forward = kind == FORWARD
        is_backward = (kind == BACKWARD) | (kind == BACKWARD_INPUT)
        before = (stage > 0) & (device_of[stage - 1] != device)
        after = (stage < last) & (device_of[np.minimum(stage + 1, last)] != device)
        # Each action with what belongs before and after it, in columns; NOTHING is left out.
        around = np.full((len(kind), 5), NOTHING, np.int8)
        around[is_forward & before, 0] = RECV_ACTIVATION
        if recompute == "early":
            around[is_backward, 0] = RECOMPUTE
        around[is_backward & after, 1] = RECV_COTANGENT
        if recompute == "late":
            around[is_backward, 2] = RECOMPUTE
        around[:, 3] = kind
        around[is_forward & after, 4] = SEND_ACTIVATION
        around[is_backward & before, 4] = SEND_COTANGENT
        rows, _ = (found := around != NOTHING).nonzero()
        own = by_device[ends[device - 1] if device else 0 : ends[device]]
        complete.append(
            Lane(
                np.append(around[found], np.full(len(own), UPDATE, np.int8)),
                np.append(stage[rows], own).astype(np.int32),
                np.append(micro_batch[rows], np.zeros(len(own), np.int32)).astype(np.int32),
            )
        )
    return joined(name, device_of, micro_batches, complete)
