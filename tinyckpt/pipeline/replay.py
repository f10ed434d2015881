"""Pipeline simulator without arrays: legality, makespan, bubble, and peak memory of each device.

A pipeline, the durations of its actions and the footprints of its stages go in; a ``PipelineTrace``
comes out, or an error that names the illegal action. ``check_dependencies`` tests dependences; no
arrays are computed, ``run_in_process`` does that.

Start times are found by event-driven simulation. Only a recv ever waits. So a device's clock at any
action is the clock at its last recv plus the durations since; and the clock at a recv is the
maximum of its device's own and of the arrival: the sender's clock when it sent, plus the
communication time. One number per recv is all that has to be found, each from two earlier ones:
every device advances until a message is missing, and again once that has been sent (a work list).
So time is linear in the number of actions. Devices left over in the end wait for each other in a
cycle: a deadlock, reported with the whole cycle.

A collective is a recv from all replicas: its clock is the maximum of their clocks plus its own
duration, during which the device computes nothing.

Source: the bubble and the micro-batches in flight are as defined by Narayanan et al.,
arXiv 2104.04473.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError, ScheduleError, expect
from tinyckpt.pipeline.check_dependencies import ActionPositions, check_order
from tinyckpt.pipeline.costs import (
    Footprint,
    Number,
    PipelineCosts,
    check_footprints,
    memory_tables,
)
from tinyckpt.pipeline.program import COLLECTIVES, Integers, Kind, Pipeline
from tinyckpt.pipeline.simulator_memory_limit import check_bytes

# In the place of the recv that a message depends on: the sender has waited for none before it
# (NOBODY), or the recv is a collective of all replicas (TOGETHER).
NOBODY = -1
TOGETHER = -2


class TracedLane(NamedTuple):
    """The timeline of one device, as columns with an entry for each of its actions.

    Attributes:
        kind, stage, micro_batch: as in a Pipeline.
        start, duration: in 1/``unit`` of the trace; see ``PipelineTrace.start``.
        during, after: memory of the device's micro-batches while the action runs, and after it.
    """

    kind: Integers
    stage: Integers
    micro_batch: Integers
    start: Any
    duration: Any
    during: Integers
    after: Integers


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PipelineTrace:
    """The timeline and the memory of all devices of a pipeline.

    Attributes:
        pipeline, costs: the pipeline, and the durations it was replayed with.
        makespan: the time at which the last device is done; all begin at 0.
        busy: for each device the time that it computes, without messages and collectives.
        peaks: for each device the peak memory of its micro-batches, in units of the footprints;
            with none given, the number of micro-batches in flight, as in ``in_flight``.
        starts: the start of each action, in 1/``unit``.
        unit: of the starts and the durations.
        durations: array (kinds, stages): time that an action takes on its device; 0 for
            collectives.
        memory: two arrays (kinds, stages): the change of the device's memory while an action
            runs, and after it.
        footprints: memory of a micro-batch in each stage; None if none were given.

    >>> from tinyckpt.pipeline import one_f_one_b, replay_pipeline
    >>> trace = replay_pipeline(one_f_one_b(2, 4))
    >>> trace.makespan, trace.busy, trace.bubble, trace.in_flight
    (15, (12, 12), Fraction(1, 5), (2, 1))
    """

    pipeline: Pipeline
    costs: PipelineCosts
    makespan: Number
    busy: tuple[Number, ...]
    peaks: tuple[int, ...]
    starts: Any = field(repr=False)
    unit: int | Fraction
    durations: Any = field(repr=False)
    memory: tuple[Integers, Integers] = field(repr=False)
    footprints: tuple[Footprint, ...] | None = field(repr=False)

    @property
    def bubble(self) -> Number:
        """The fraction of all devices' time in which they are idle: 0 to 1."""
        if not self.makespan:
            return 0
        if isinstance(self.makespan, float):  # rounding may make the shares exceed 1
            shares = [float(busy) / self.makespan for busy in self.busy]
            return max(0.0, 1 - math.fsum(shares) / len(shares))
        return 1 - exact_quotient(sum(self.busy), len(self.busy) * self.makespan)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """For each device the most micro-batches in flight, counted by stage.

        A micro-batch that is in two stages of a device counts twice.
        """
        if self.footprints is None:
            return self.peaks
        stages = self.pipeline.stages
        return peaks_of(self.pipeline, memory_tables([Footprint()] * stages, [False] * stages))

    def start(self, device: int, step: int) -> Number:
        """Return the start time of an action.

        A recv starts when its message has arrived, and a collective when it is over: until then
        the device waits.
        """
        return unscaled(self.starts[self.pipeline.first[device] + step], self.unit)

    def lane(self, device: int) -> TracedLane:
        """Return the timeline of one device, with its memory."""
        own = self.pipeline
        among = slice(own.first[device], own.first[device + 1])
        kind, stage = own.kind[among], own.stage[among]
        return TracedLane(
            kind,
            stage,
            own.micro_batch[among],
            self.starts[among],
            self.durations[kind, stage],
            *memory_timeline(kind, stage, self.memory),
        )

    def __repr__(self) -> str:
        return f"<PipelineTrace of {self.pipeline.name}, makespan {self.makespan}>"

    def __str__(self) -> str:
        return (
            f"{self.pipeline.name}, {self.pipeline.devices} devices, "
            f"{self.pipeline.micro_batches} micro-batches: makespan {self.makespan}, "
            f"bubble {float(self.bubble):.1%}, peaks {' '.join(map(str, self.peaks))}"
            f"{' by stage' if self.footprints is None and self.pipeline.folded else ''}"
        )


def replay_pipeline(
    pipeline: Pipeline,
    costs: PipelineCosts | None = None,
    footprints: Footprint | Sequence[Footprint] | None = None,
) -> PipelineTrace:
    """Check a pipeline, and simulate its timeline and the memory of its devices.

    It is legal if every stage runs the forward and the backward of every micro-batch once, after
    the actions that they depend on; if sends and recvs match one to one; if no parameter is read
    after its update; and if there is no deadlock.

    >>> from tinyckpt.pipeline import gpipe, one_f_one_b
    >>> print(replay_pipeline(gpipe(4, 8)))
    gpipe, 4 devices, 8 micro-batches: makespan 33, bubble 27.3%, peaks 8 8 8 8
    >>> print(replay_pipeline(one_f_one_b(4, 8)))
    1f1b, 4 devices, 8 micro-batches: makespan 33, bubble 27.3%, peaks 4 3 2 1

    Args:
        pipeline: of one replica or several.
        costs: durations of actions; 1 for a forward and 2 for a backward if not given.
        footprints: memory of a micro-batch: one for all stages, or one per stage.

    Raises:
        ScheduleError: names the device and the step that is illegal, or waits for ever; or says
            that there is no pipeline.
        OptionError: if there are not as many costs or footprints as stages, if the costs are
            none, or if the replay would exceed the memory limit.
    """
    expect(pipeline, Pipeline)
    if costs is not None and not isinstance(costs, PipelineCosts):
        raise OptionError(f"costs={costs!r:.80}; expected tinyckpt.pipeline.PipelineCosts(...)")
    check_held(pipeline)
    costs = costs or PipelineCosts()
    depth = pipeline.replica_stages
    durations, communication, unit = costs.scaled(depth, pipeline.micro_batches * pipeline.replicas)
    durations = np.tile(durations, pipeline.replicas)
    positions = ActionPositions(pipeline)
    check_order(positions)
    clock = ActionTimes(pipeline, positions, durations, communication)
    starts = clock.starts()
    own = clock.own
    busy = [own[begin:end].sum() for begin, end in pipeline.ranges]
    ends = [starts[end - 1] + own[end - 1] for begin, end in pipeline.ranges if end > begin]
    found = [*footprint_per_stage(footprints, depth)] * pipeline.replicas
    check_footprints(found, pipeline.micro_batches)
    is_recomputed = np.zeros(pipeline.stages, bool)
    is_recomputed[pipeline.stage[pipeline.kind == Kind.RECOMPUTE]] = True
    memory = memory_tables(found, is_recomputed.tolist())
    return PipelineTrace(
        pipeline,
        costs,
        unscaled(max(ends, default=0), unit),
        tuple(unscaled(each, unit) for each in busy),
        peaks_of(pipeline, memory),
        starts,
        unit,
        clock.durations,
        memory,
        None if footprints is None else tuple(found),
    )


def check_held(pipeline: Pipeline) -> None:
    """Raise an OptionError if replaying a pipeline takes too much memory."""
    together = np.count_nonzero(np.isin(pipeline.kind, COLLECTIVES))
    cells = pipeline.stages * pipeline.micro_batches
    check_bytes(
        f"{pipeline.name} of {pipeline.stages:,} stages x {pipeline.micro_batches:,} micro batches",
        len(pipeline), cells, pipeline.stages, len(np.unique(pipeline.kind)),
        int(together) // pipeline.replicas,
    )  # fmt: skip


def unscaled(amount: Any, unit: int | Fraction) -> Number:
    """Convert an amount of 1/unit to a float, an integer, or a Fraction."""
    return (
        float(amount)
        if isinstance(amount, float | np.floating)
        else exact_quotient(int(amount), unit)
    )


def exact_quotient(amount: Number, whole: Number) -> Number:
    """Return a quotient: exact, and an integer if it is one; of floats a float."""
    if isinstance(amount, float) or isinstance(whole, float):
        return amount / whole
    found = Fraction(amount) / Fraction(whole)
    return found.numerator if found.denominator == 1 else found


def footprint_per_stage(
    footprints: Footprint | Sequence[Footprint] | None, stages: int
) -> Sequence[Footprint]:
    """Return one footprint per stage."""
    if footprints is None or isinstance(footprints, Footprint):
        return [footprints or Footprint()] * stages
    if len(footprints) != stages:
        raise OptionError(f"{len(footprints)} footprints; the pipeline has {stages} stages")
    return footprints


def peaks_of(pipeline: Pipeline, tables: tuple[Integers, Integers]) -> tuple[int, ...]:
    """Return the peak memory of each device, during an action or after one."""
    peaks = []
    for begin, end in pipeline.ranges:
        held = memory_timeline(pipeline.kind[begin:end], pipeline.stage[begin:end], tables)
        peaks.append(int(max(each.max(initial=0) for each in held)))
    return tuple(peaks)


def memory_timeline(
    kind: Integers, stage: Integers, tables: tuple[Integers, Integers]
) -> tuple[Integers, Integers]:
    """Return a device's memory during each of its actions, and after each.

    Args:
        kind, stage: of its actions, in order.
        tables: the result of ``memory_tables``.
    """
    during, left = (table[kind, stage] for table in tables)
    after = np.cumsum(left)
    return after - left + during, after


# Start times -------------------------------------------------------------------------------------


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
        durations: array (kinds, stages), modified: 0 for COLLECTIVES, which are waited for.
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
        self.durations = durations
        self.together = durations[list(COLLECTIVES)]
        self.durations[list(COLLECTIVES)] = 0
        self.own = self.durations[pipeline.kind, pipeline.stage]
        # Device by device: in one prefix sum of floats, the large clock of one device would round
        # off the small durations of the next.
        self.since = np.zeros_like(self.own)
        for begin, end in pipeline.ranges:
            self.since[begin + 1 : end] = np.cumsum(self.own[begin:end])[:-1]
        is_recv = (pipeline.kind == Kind.RECV_ACTIVATION) | (pipeline.kind == Kind.RECV_COTANGENT)
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
        is_activation = own.kind[self.recvs] == Kind.RECV_ACTIVATION
        # A collective has no sender and gets any valid one, until ``mark_together`` overwrites it.
        stage = np.clip(own.stage[self.recvs] + np.where(is_activation, -1, 1), 0, own.stages - 1)
        micro_batch = own.micro_batch[self.recvs]
        of = self.positions.of
        step = np.where(
            is_activation,
            of[Kind.SEND_ACTIVATION][stage, micro_batch],
            of[Kind.SEND_COTANGENT][stage, micro_batch],
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
        found = np.isin(own.kind[self.recvs], COLLECTIVES)
        latest[found] = TOGETHER
        lag[found] = self.since[self.recvs[found]]
        sender[found] = own.collective_numbers(self.recvs[found])

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
        recv, devices = upto[device], own.replica_devices
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
