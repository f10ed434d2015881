"""When each action of a pipeline begins.

Only a recv ever waits. So a device's clock at any action is the clock at its last recv and the
durations since; and the clock at a recv is the later of its device's own, and of the sender's when
it sent, with the way. One number for each recv is all there is to find, each from two earlier ones:
devices are taken as far as they get, and again when what they wait for has been sent. So time is
linear in the number of actions; if devices are left over, they wait for each other.

What replicas do together is a recv from all of them: its clock is the latest of theirs, and what it
takes; in which the device computes nothing.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline.checking import Positions
from tinyckpt.pipeline.program import (
    COLLECTIVES,
    RECV_ACTIVATION,
    RECV_COTANGENT,
    SEND_ACTIVATION,
    SEND_COTANGENT,
    Integers,
    Pipeline,
)

NOBODY = -1
TOGETHER = -2


class Collective(NamedTuple):
    """What replicas do together, while a clock is found for it.

    Attributes:
        devices, clocks: who is there, and since when.
        over: when it is over, once it is known.
    """

    devices: list[int]
    clocks: list[Any]
    over: list[Any]


class ActionTimes:
    """Finds when each action begins.

    Attributes:
        durations: of each kind in each stage; nothing for COLLECTIVES, which are waited for.
        own: how long each action takes of its device.
        since: for every action the durations before it on its device.
        together: how long each kind of COLLECTIVES takes, by stage.
        recvs: where they are among all actions, those from all replicas with them.
        ahead: for every action how many recvs there are up to it, on all devices before as well.
    """

    def __init__(
        self, pipeline: Pipeline, positions: Positions, durations: Any, communication: Any
    ) -> None:
        self.pipeline, self.positions, self.communication = pipeline, positions, communication
        self.durations = durations.copy()
        self.together = durations[list(COLLECTIVES)]
        self.durations[list(COLLECTIVES)] = 0
        self.own = self.durations[pipeline.kind, pipeline.stage]
        # Device by device: of floats, what one takes would round off what the next does.
        self.since = np.zeros_like(self.own)
        for begin, end in pairwise(pipeline.first.tolist()):
            self.since[begin + 1 : end] = np.cumsum(self.own[begin:end])[:-1]
        is_recv = (pipeline.kind == RECV_ACTIVATION) | (pipeline.kind == RECV_COTANGENT)
        if pipeline.replicas > 1:
            is_recv |= np.isin(pipeline.kind, COLLECTIVES)
        self.ahead = np.cumsum(is_recv, dtype=np.int64)
        self.recvs = np.flatnonzero(is_recv)
        before = np.append(0, self.ahead)[pipeline.first]
        self.first_recv: list[int] = before.tolist()

    def starts(self) -> Any:
        """Return when each action begins: the clock at the recv before it, and what came since."""
        shift = self.shifts()
        starts = self.since.copy()
        counts = np.diff(self.pipeline.first)
        after_any = self.ahead > np.repeat(np.array(self.first_recv[:-1]), counts)
        starts[after_any] += shift[self.ahead[after_any] - 1]
        return starts

    def senders(self) -> tuple[Integers, Integers]:
        """Return for every recv the device that sends, and where the send is among all actions."""
        own = self.pipeline
        is_activation = own.kind[self.recvs] == RECV_ACTIVATION
        # What is together has no sender, and gets one that there is, until ``shifts`` marks it.
        stage = np.clip(own.stage[self.recvs] + np.where(is_activation, -1, 1), 0, own.stages - 1)
        micro_batch = own.micro_batch[self.recvs]
        of = self.positions.of
        step = np.where(
            is_activation,
            of[SEND_ACTIVATION][stage, micro_batch],
            of[SEND_COTANGENT][stage, micro_batch],
        )
        device = own.device_of[stage]
        return device, own.first[device] + step

    def shifts(self) -> Any:
        """Return by how much what comes after each recv is later than without any waiting."""
        device, send = self.senders()
        # Without waiting, that long after this recv's turn the message arrives.
        lag = self.since[send] + self.own[send] + self.communication - self.since[self.recvs]
        latest = self.ahead[send] - 1
        latest[latest < np.array(self.first_recv)[device]] = NOBODY
        self.mark_together(latest, lag, device)
        shift = np.zeros(len(self.recvs), self.own.dtype)
        columns: list[Any] = [shift, latest, lag, device]
        # As memory: one number at a time is read faster so than from arrays.
        self.settle(*[memoryview(column) for column in columns])
        return shift

    def mark_together(self, latest: Any, lag: Any, sender: Any) -> None:
        """Write into the columns of ``settle`` what they are for recvs from all replicas."""
        own = self.pipeline
        if own.replicas == 1:
            return
        kind, stage = own.kind[self.recvs], own.stage[self.recvs] % (own.stages // own.replicas)
        found = np.isin(kind, COLLECTIVES)
        latest[found] = TOGETHER
        lag[found] = self.since[self.recvs[found]]
        number = (kind * np.int64(own.stages) + stage) * own.micro_batches
        sender[found] = (number + own.micro_batch[self.recvs])[found]

    def settle(self, shift: Any, latest: Any, lag: Any, sender: Any) -> None:
        """Find the shifts, in place, from recv to recv.

        Args:
            shift: to be found.
            latest: for every recv the last one of the sender before it sent; or NOBODY, or
                TOGETHER if it is from all replicas.
            lag: how much later than the sender's shift this one is at least; or its own turn
                without any waiting, if it is from all replicas.
            sender: the device that sends; or a number that replicas have in common.
        """
        ends = self.first_recv[1:]
        upto = self.first_recv[:-1]
        clocks = [0] * self.pipeline.devices
        waiting: dict[int, list[int]] = {}
        meetings: dict[int, Collective] = {}
        ready = deque(range(self.pipeline.devices))
        while ready:
            device = ready.popleft()
            clock, end = clocks[device], ends[device]
            for recv in range(upto[device], end):
                need = latest[recv]
                if need == NOBODY:
                    arrival = lag[recv]
                elif need == TOGETHER:
                    met = meetings.setdefault(sender[recv], Collective([], [], []))
                    if not met.over:
                        met.devices.append(device)
                        met.clocks.append(clock + lag[recv])
                        if len(met.devices) < self.pipeline.replicas:
                            upto[device] = recv
                            break
                        met.over.append(max(met.clocks) + self.taken_by(recv))
                        ready.extend(met.devices[:-1])
                    arrival = met.over[0] - lag[recv]
                elif need < (recv if sender[recv] == device else upto[sender[recv]]):
                    arrival = shift[need] + lag[recv]
                else:
                    waiting.setdefault(need, []).append(device)
                    upto[device] = recv
                    break
                clock = max(clock, arrival)
                shift[recv] = clock
                if recv in waiting:
                    ready.extend(waiting.pop(recv))
            else:
                upto[device] = end
            clocks[device] = clock
        if upto != ends:
            self.refuse(upto, ends, latest, sender)

    def taken_by(self, recv: int) -> Any:
        """Return how long something takes that replicas do together."""
        index = self.recvs[recv]
        kind, stage = self.pipeline.kind[index], self.pipeline.stage[index]
        return self.together[COLLECTIVES.index(kind), stage].item()

    def awaited(self, device: int, upto: list[int], latest: Any, sender: Any) -> int:
        """Return a device that another one waits for."""
        own = self.pipeline
        recv, devices = upto[device], own.devices // own.replicas
        if latest[recv] != TOGETHER:
            return int(sender[recv])
        # All replicas get there, or their collectives were refused: one is held up before it.
        others = range(device % devices, own.devices, devices)
        return next(other for other in others if sender[upto[other]] != sender[recv])

    def refuse(self, upto: list[int], ends: list[int], latest: Any, sender: Any) -> None:
        """Raise the ScheduleError about devices that wait for each other."""
        device = next(device for device, end in enumerate(ends) if upto[device] < end)
        met: list[int] = []
        while device not in met:
            met.append(device)
            device = self.awaited(device, upto, latest, sender)
        circle = met[met.index(device) :]
        least = circle.index(min(circle))
        texts = []
        for device in circle[least:] + circle[:least]:
            index = int(self.recvs[upto[device]])
            step = index - int(self.pipeline.first[device])
            texts.append(f"device {device}, step {step}: {self.pipeline.action(index)}")
        waits = "".join(f", waits for {text}" for text in texts[1:])
        raise ScheduleError(f"{texts[0]}: a deadlock{waits}, waits for it")
