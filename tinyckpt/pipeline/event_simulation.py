"""Event-driven simulation of a pipeline: the start time of each action, and deadlock detection.

Only a recv ever waits. So a device's clock at any action is the clock at its last recv plus the
durations since; and the clock at a recv is the maximum of its device's own and of the arrival: the
sender's clock when it sent, plus the communication time. One number per recv is all that has to be
found, each from two earlier ones: every device advances until a message is missing, and again once
that has been sent (a work list). So time is linear in the number of actions. Devices left over in
the end wait for each other in a cycle: a deadlock, reported with the whole cycle.

A collective is a recv from all replicas: its clock is the maximum of their clocks plus its own
duration, during which the device computes nothing.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline.check_dependencies import ActionPositions
from tinyckpt.pipeline.program import (
    COLLECTIVES,
    RECV_ACTIVATION,
    RECV_COTANGENT,
    SEND_ACTIVATION,
    SEND_COTANGENT,
    Integers,
    Pipeline,
)

# In the place of the recv that a message depends on: the sender has waited for none before it
# (NOBODY), or the recv is a collective of all replicas (TOGETHER).
NOBODY = -1
TOGETHER = -2


class Collective(NamedTuple):
    """A collective of replicas during the simulation.

    Attributes:
        devices, clocks: the devices that have arrived, and their clocks then.
        over: its end, once all have arrived: a list of one number.
    """

    devices: list[int]
    clocks: list[Any]
    over: list[Any]


class ActionTimes:
    """The start times of all actions, from durations and communication times.

    Attributes:
        durations: array (kinds, stages); 0 for COLLECTIVES, which are waited for.
        own: time that each action takes on its device.
        since: prefix sum of ``own`` on each device: its clock if it never waited.
        together: duration of each kind of COLLECTIVES, by stage.
        recvs: indices of the recvs, collectives included, among all actions.
        ahead: for every action the number of recvs up to it, those of all devices before included.
        first_recv: for every device the number of recvs before its own, and the total at the end.
    """

    def __init__(
        self, pipeline: Pipeline, positions: ActionPositions, durations: Any, communication: Any
    ) -> None:
        self.pipeline, self.positions, self.communication = pipeline, positions, communication
        self.durations = durations.copy()
        self.together = durations[list(COLLECTIVES)]
        self.durations[list(COLLECTIVES)] = 0
        self.own = self.durations[pipeline.kind, pipeline.stage]
        # Device by device: in one prefix sum of floats, the large clock of one device would round
        # off the small durations of the next.
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
        """Return the start of each action: the clock at its last recv plus the durations since."""
        shift = self.shifts()
        starts = self.since.copy()
        counts = np.diff(self.pipeline.first)
        after_any = self.ahead > np.repeat(np.array(self.first_recv[:-1]), counts)
        starts[after_any] += shift[self.ahead[after_any] - 1]
        return starts

    def senders(self) -> tuple[Integers, Integers]:
        """Return for every recv the device that sends, and the index of the send."""
        own = self.pipeline
        is_activation = own.kind[self.recvs] == RECV_ACTIVATION
        # A collective has no sender and gets any valid one, until ``mark_together`` overwrites it.
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
        """Return for each recv the delay of everything after it, relative to no waiting at all."""
        device, send = self.senders()
        # Without waiting, the message arrives this long after its receiver is ready for it.
        lag = self.since[send] + self.own[send] + self.communication - self.since[self.recvs]
        latest = self.ahead[send] - 1
        latest[latest < np.array(self.first_recv)[device]] = NOBODY
        self.mark_together(latest, lag, device)
        shift = np.zeros(len(self.recvs), self.own.dtype)
        columns: list[Any] = [shift, latest, lag, device]
        # Memoryviews: reading single numbers is faster than from arrays.
        self.settle(*[memoryview(column) for column in columns])
        return shift

    def mark_together(self, latest: Any, lag: Any, sender: Any) -> None:
        """Fill in the columns of ``settle`` for collectives."""
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
        """Fill in the shifts with a work list of devices, each advanced until a message is missing.

        Args:
            shift: the delay of every recv; the result, written in place.
            latest: for every recv the sender's last recv before it sent; or NOBODY; or TOGETHER
                for a collective.
            lag: for every recv the least delay beyond the sender's; for a collective its own
                start without any waiting.
            sender: the device that sends; for a collective an id that its replicas share.
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
        """Return the duration of a collective."""
        index = self.recvs[recv]
        kind, stage = self.pipeline.kind[index], self.pipeline.stage[index]
        return self.together[COLLECTIVES.index(kind), stage].item()

    def awaited(self, device: int, upto: list[int], latest: Any, sender: Any) -> int:
        """Return the device that a blocked device waits for."""
        own = self.pipeline
        recv, devices = upto[device], own.devices // own.replicas
        if latest[recv] != TOGETHER:
            return int(sender[recv])
        # Every replica has this collective, as was checked: one of them is blocked before it.
        others = range(device % devices, own.devices, devices)
        return next(other for other in others if sender[upto[other]] != sender[recv])

    def refuse(self, upto: list[int], ends: list[int], latest: Any, sender: Any) -> None:
        """Raise the ScheduleError about a deadlock: find the cycle of devices, and name it."""
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
