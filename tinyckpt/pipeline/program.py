"""The pipeline IR: for every device a list of actions on (stage, micro-batch), stored as columns.

A model is cut into *stages*, a batch into *micro-batches*. Each device has one stage or several,
and runs its actions in order: the *forward* of a stage on a micro-batch, its *backward*, and,
between devices, *send* and *recv*. A send takes no time on its device; its message arrives after
the communication time, and a recv waits for it.

A pipeline of 1,024 stages and 4,096 micro-batches has 25 million actions. So they are stored as
arrays, one per field, nine bytes per action; ``Action`` is the readable form of one of them.

Send and recv are actions here and not steps of ``tinyckpt.core.schedule``: steps are about values
of one graph on one machine, and every consumer of a schedule (replay, execute, compile, all
pictures) would have to define them where there is no second machine. An action is about a whole
stage of one micro-batch; its inside is an ordinary schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyckpt.base.errors import OptionError

Integers = NDArray[Any]
Recompute = Literal["early", "late"]


class Kind(IntEnum):
    """The kind of an action, as the columns of a pipeline store it; see ``Action``."""

    FORWARD = 0
    RECOMPUTE = 1
    BACKWARD = 2
    BACKWARD_INPUT = 3
    BACKWARD_WEIGHT = 4
    UPDATE = 5
    SEND_ACTIVATION = 6
    RECV_ACTIVATION = 7
    SEND_COTANGENT = 8
    RECV_COTANGENT = 9
    ALL_REDUCE = 10
    REDUCE_SCATTER = 11
    GATHER_FORWARD = 12
    GATHER_BACKWARD = 13
    GATHER_UPDATED = 14
    FREE_FORWARD = 15
    FREE_BACKWARD = 16


KINDS = tuple(kind.name.lower() for kind in Kind)
# Collectives: all replicas of a device take part, in the same order.
COLLECTIVES = (
    Kind.ALL_REDUCE,
    Kind.REDUCE_SCATTER,
    Kind.GATHER_FORWARD,
    Kind.GATHER_BACKWARD,
    Kind.GATHER_UPDATED,
)
NOTHING = -1
# Letters in the text of a pipeline, which leaves out messages and updates.
LETTERS: dict[int, str] = {
    Kind.FORWARD: "F",
    Kind.RECOMPUTE: "R",
    Kind.BACKWARD: "B",
    Kind.BACKWARD_INPUT: "B",
    Kind.BACKWARD_WEIGHT: "W",
}

OF_THE_BATCH = ("update", "all_reduce", "gather_updated")


class Action(NamedTuple):
    """One action of a device.

    Attributes:
        kind: one of KINDS. ``backward`` is the whole backward; ``backward_input`` computes the
            cotangents that the previous stage waits for, ``backward_weight`` the gradients of the
            parameters, for which nothing waits. ``send_activation`` sends a stage's outputs to the
            next one, ``recv_activation`` waits for those of the previous one; ``send_cotangent``
            and ``recv_cotangent`` are their counterparts in the backward pass. ``update`` is once
            per batch. The rest is between the replicas of ``data_parallel``: gradients are
            averaged, whole (``all_reduce``) or by shard (``reduce_scatter``); parameters are
            gathered from their shards, for the forward, for the backward or after the update, and
            freed again.
        stage, micro_batch: indices, counted from 0.

    >>> str(Action("forward", 1, micro_batch=3))
    'forward of stage 1, micro-batch 3'
    """

    kind: str
    stage: int
    micro_batch: int = 0

    def __str__(self) -> str:
        of = "" if self.kind in OF_THE_BATCH else f", micro-batch {self.micro_batch}"
        return f"{self.kind.replace('_', ' ')} of stage {self.stage}{of}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline:
    """The actions of all devices, as columns; ``replay_pipeline`` checks whether they are legal.

    Attributes:
        name: for tables and errors.
        micro_batches: number of micro-batches of a batch, in each replica.
        device_of: for every stage its device.
        kind, stage, micro_batch: one entry per action, device after device.
        first: for every device the index of its first action; and at the end the total.
        replicas: number of data-parallel replicas, each with as many of the devices and of the
            stages: stage s of replica r is stage r S + s, device k is device r K + k, with S
            stages and K devices per replica. Each has its own micro-batches.
        zero: ZeRO stage, 0 to 3: how the replicas shard the training state; see ``data_parallel``.

    >>> from tinyckpt.pipeline import gpipe
    >>> pipeline = gpipe(2, 3)
    >>> pipeline.devices, pipeline.stages, len(pipeline)
    (2, 2, 26)
    >>> print(pipeline.actions(1)[0])
    recv activation of stage 1, micro-batch 0
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
    def replica_devices(self) -> int:
        """Number of devices of a replica."""
        return self.devices // self.replicas

    @property
    def replica_stages(self) -> int:
        """Number of stages of a replica."""
        return self.stages // self.replicas

    @property
    def zero_in_effect(self) -> int:
        """ZeRO stage, 0 with one replica, which has nothing to share."""
        return self.zero if self.replicas > 1 else 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """For every device the begin and the end of its actions."""
        return list(pairwise(self.first.tolist()))

    def stages_on(self, device: int) -> list[int]:
        """Return the stages of a device, ascending."""
        found: list[int] = np.flatnonzero(self.device_of == device).tolist()
        return found

    @property
    def folded(self) -> bool:
        """Whether devices have several stages: then micro-batches in flight count per stage."""
        return self.stages > self.devices

    @property
    def halves(self) -> bool:
        """Whether backwards are split into inputs and weights; ``halves`` of ``stages_of``."""
        return bool((self.kind == Kind.BACKWARD_INPUT).any())

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return (
            f"<Pipeline {self.name}, {self.devices} devices, {self.stages} stages, "
            f"{self.micro_batches} micro-batches, {len(self)} actions>"
        )

    def action(self, index: int) -> Action:
        """Return an action by its index among those of all devices."""
        kind, stage, micro_batch = self.kind[index], self.stage[index], self.micro_batch[index]
        return Action(KINDS[kind], int(stage), int(micro_batch))

    def actions(self, device: int) -> list[Action]:
        """Return the actions of one device, in order."""
        return [self.action(index) for index in range(self.first[device], self.first[device + 1])]

    def collective_numbers(self, places: Integers) -> Integers:
        """Return a number for each of some collectives, the same in all replicas.

        Args:
            places: their indices among the actions of all devices.
        """
        stage = self.stage[places] % self.replica_stages
        number = self.kind[places] * np.int64(self.stages) + stage
        found: Integers = number * self.micro_batches + self.micro_batch[places]
        return found

    def __str__(self) -> str:
        """Return one line per device: its forwards, backwards and recomputations in order.

        With several stages per device, the stage follows after a point: ``F3.1`` is the forward of
        micro-batch 3 in stage 1.
        """
        lines = []
        for device, (begin, end) in enumerate(self.ranges):
            words = [
                f"{LETTERS[int(self.kind[i])]}{self.micro_batch[i]}"
                + (f".{self.stage[i]}" if self.folded else "")
                for i in range(begin, end)
                if int(self.kind[i]) in LETTERS
            ]
            lines.append(f"device {device}: {' '.join(words)}")
        return "\n".join(lines)


class Lane(NamedTuple):
    """The actions of one device, as columns."""

    kind: Integers
    stage: Integers
    micro_batch: Integers


def concatenate_lanes(
    name: str, device_of: Integers, micro_batches: int, lanes: Sequence[Lane]
) -> Pipeline:
    """Concatenate the lanes of all devices into a pipeline."""
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
    """Insert sends, recvs, recomputations and updates between given forwards and backwards.

    Each send directly follows the action that computes its values, each recv directly precedes
    the action that reads them, and each stage is updated after all other actions of its device.

    Args:
        name: of the pipeline.
        device_of: for every stage its device.
        micro_batches: number of micro-batches of a batch.
        lanes: for every device its forwards and backwards, in order.
        recompute: whether the inside of a stage is recomputed before its backward: ``early``,
            while its device waits for the cotangent; ``late``, after that has arrived; None, if
            it is not.
    """
    if recompute not in (None, "early", "late"):
        raise OptionError(f"recompute={recompute!r}; expected None, 'early' or 'late'")
    complete = []
    last = len(device_of) - 1
    # The stages of all devices by one sort: a search per device would take quadratic time.
    by_device = np.argsort(device_of, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(device_of)).tolist()
    for device, (kind, stage, micro_batch) in enumerate(lanes):
        is_forward = kind == Kind.FORWARD
        is_backward = (kind == Kind.BACKWARD) | (kind == Kind.BACKWARD_INPUT)
        before = (stage > 0) & (device_of[stage - 1] != device)
        after = (stage < last) & (device_of[np.minimum(stage + 1, last)] != device)
        # One row per action, one column per action around it; NOTHING marks the absent ones.
        around = np.full((len(kind), 5), NOTHING, np.int8)
        around[is_forward & before, 0] = Kind.RECV_ACTIVATION
        if recompute == "early":
            around[is_backward, 0] = Kind.RECOMPUTE
        around[is_backward & after, 1] = Kind.RECV_COTANGENT
        if recompute == "late":
            around[is_backward, 2] = Kind.RECOMPUTE
        around[:, 3] = kind
        around[is_forward & after, 4] = Kind.SEND_ACTIVATION
        around[is_backward & before, 4] = Kind.SEND_COTANGENT
        rows, _ = (found := around != NOTHING).nonzero()
        own = by_device[ends[device - 1] if device else 0 : ends[device]]
        complete.append(
            Lane(
                np.append(around[found], np.full(len(own), Kind.UPDATE, np.int8)),
                np.append(stage[rows], own).astype(np.int32),
                np.append(micro_batch[rows], np.zeros(len(own), np.int32)).astype(np.int32),
            )
        )
    return concatenate_lanes(name, device_of, micro_batches, complete)
