"""Pipeline simulator without arrays: legality, makespan, bubble, and peak memory of each device.

A pipeline, the durations of its actions and the footprints of its stages go in; a ``PipelineTrace``
comes out, or an error that names the illegal action. ``check_dependencies`` tests dependences,
``event_simulation`` finds start times; no arrays are computed, ``run_in_process`` does that.

Source: the bubble and the micro-batches in flight are as defined by Narayanan et al.,
arXiv 2104.04473.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.check_collectives import collective_complaints
from tinyckpt.pipeline.check_dependencies import ActionPositions, check_order
from tinyckpt.pipeline.costs import (
    Footprint,
    Number,
    PipelineCosts,
    check_footprints,
    memory_tables,
)
from tinyckpt.pipeline.event_simulation import ActionTimes
from tinyckpt.pipeline.program import COLLECTIVES, RECOMPUTE, Integers, Pipeline
from tinyckpt.pipeline.simulator_memory_limit import check_bytes


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
        ScheduleError: names the device and the step that is illegal, or waits for ever.
        OptionError: if there are not as many costs or footprints as stages, or if the replay
            would exceed the memory limit.
    """
    check_held(pipeline)
    costs = costs or PipelineCosts()
    depth = pipeline.stages // pipeline.replicas
    durations, communication, unit = costs.scaled(depth, pipeline.micro_batches * pipeline.replicas)
    durations = np.tile(durations, pipeline.replicas)
    positions = ActionPositions(pipeline)
    check_order(positions, collective_complaints(positions))
    clock = ActionTimes(pipeline, positions, durations, communication)
    starts = clock.starts()
    own = clock.own
    busy = [own[begin:end].sum() for begin, end in device_ranges(pipeline)]
    ends = [starts[end - 1] + own[end - 1] for begin, end in device_ranges(pipeline) if end > begin]
    found = [*footprint_per_stage(footprints, depth)] * pipeline.replicas
    check_footprints(found, pipeline.micro_batches)
    is_recomputed = np.zeros(pipeline.stages, bool)
    is_recomputed[pipeline.stage[pipeline.kind == RECOMPUTE]] = True
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


def device_ranges(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Return for every device the begin and end of its actions."""
    return list(pairwise(pipeline.first.tolist()))


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
    for begin, end in device_ranges(pipeline):
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
