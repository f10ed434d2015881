"""The machine of many devices, without arrays: whether a pipeline is legal, how long, how much.

Source: the bubble and what is in flight are as Narayanan et al. define them, arXiv 2104.04473.
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
from tinyckpt.pipeline.check_collectives import between_replicas
from tinyckpt.pipeline.checking import Positions, check_order
from tinyckpt.pipeline.clock import ActionTimes
from tinyckpt.pipeline.costs import (
    Footprint,
    Number,
    PipelineCosts,
    check_footprints,
    memory_tables,
)
from tinyckpt.pipeline.limits import check_bytes
from tinyckpt.pipeline.program import COLLECTIVES, RECOMPUTE, Integers, Pipeline


class TracedLane(NamedTuple):
    """What one device does, as columns with an entry for each of its actions.

    Attributes:
        kind, stage, micro_batch: as in a Pipeline.
        start, duration: in 1/``unit`` of the trace; see ``PipelineTrace.start``.
        during, after: what the device holds while the action runs, and from its end on.
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
    """What replaying a pipeline found.

    Attributes:
        pipeline, costs: of what, in units of what.
        makespan: when the last device is done; all begin at 0.
        busy: for each device how long it computes; messages and collectives are not in it.
        peaks: for each device the most that its micro-batches hold, in units of the footprints;
            with none given, how many micro-batches are in flight, as in ``in_flight``.
        starts: when each action begins, in 1/``unit``.
        unit: of the starts, and of the durations.
        durations: how long an action of each kind takes of its device in each stage; 0 for what
            replicas do together.
        memory: what an action of each kind in each stage adds to what its device holds while it
            runs, and what it leaves added.
        footprints: what a micro-batch holds in each stage; None if none were given.
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
        """The share of all devices' time in which they stand idle: 0 to 1."""
        if not self.makespan:
            return 0
        if isinstance(self.makespan, float):  # then rounding may make a little more than all of it
            shares = [float(busy) / self.makespan for busy in self.busy]
            return max(0.0, 1 - math.fsum(shares) / len(shares))
        return 1 - part(sum(self.busy), len(self.busy) * self.makespan)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """For each device how many micro-batches are in flight at most, counted by stage.

        A micro-batch that is in both stages of a device counts twice.
        """
        if self.footprints is None:
            return self.peaks
        stages = self.pipeline.stages
        return peaks_of(self.pipeline, memory_tables([Footprint()] * stages, [False] * stages))

    def start(self, device: int, step: int) -> Number:
        """Return when an action begins: the moment that its device turns to it.

        A recv begins when what it waits for is there, and a collective when it is over: from then
        on the device does something else.
        """
        return unscaled(self.starts[self.pipeline.first[device] + step], self.unit)

    def lane(self, device: int) -> TracedLane:
        """Return when one device does what, and what it holds meanwhile."""
        own = self.pipeline
        among = slice(own.first[device], own.first[device + 1])
        kind, stage = own.kind[among], own.stage[among]
        return TracedLane(
            kind,
            stage,
            own.micro_batch[among],
            self.starts[among],
            self.durations[kind, stage],
            *held_by(kind, stage, self.memory),
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
    """Check a pipeline, and return how long it takes and what its devices hold.

    It is legal if every stage does the forward and the backward of every micro-batch once, after
    what these need; if every recv has its send and every send its recv; if no parameters are read
    after their update; and if no devices wait for each other.

    >>> from tinyckpt.pipeline import gpipe, one_f_one_b
    >>> print(replay_pipeline(gpipe(4, 8)))
    gpipe, 4 devices, 8 micro-batches: makespan 33, bubble 27.3%, peaks 8 8 8 8
    >>> print(replay_pipeline(one_f_one_b(4, 8)))
    1f1b, 4 devices, 8 micro-batches: makespan 33, bubble 27.3%, peaks 4 3 2 1

    Args:
        pipeline: what to replay.
        costs: how long actions take; 1 for a forward and 2 for a backward if not given.
        footprints: what a micro-batch holds, of every stage or of all.

    Raises:
        ScheduleError: names the device and the step that is not legal, or waits for ever.
        OptionError: if there are not as many costs or footprints as stages, or if all of it is
            more than can be held.
    """
    check_held(pipeline)
    costs = costs or PipelineCosts()
    depth = pipeline.stages // pipeline.replicas
    durations, communication, unit = costs.scaled(depth, pipeline.micro_batches * pipeline.replicas)
    durations = np.tile(durations, pipeline.replicas)
    positions = Positions(pipeline)
    check_order(positions, between_replicas(positions))
    clock = ActionTimes(pipeline, positions, durations, communication)
    starts = clock.starts()
    own = clock.own
    busy = [own[begin:end].sum() for begin, end in spans(pipeline)]
    ends = [starts[end - 1] + own[end - 1] for begin, end in spans(pipeline) if end > begin]
    found = [*each_of(footprints, depth)] * pipeline.replicas
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


def spans(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Return for every device where its actions begin and end."""
    return list(pairwise(pipeline.first.tolist()))


def unscaled(amount: Any, unit: int | Fraction) -> Number:
    """Return an amount of 1/unit: a float, an integer, or a Fraction."""
    return float(amount) if isinstance(amount, float | np.floating) else part(int(amount), unit)


def part(amount: Number, whole: Number) -> Number:
    """Return a quotient: exact, and an integer if it is one, but for floats."""
    if isinstance(amount, float) or isinstance(whole, float):
        return amount / whole
    found = Fraction(amount) / Fraction(whole)
    return found.numerator if found.denominator == 1 else found


def each_of(footprints: Footprint | Sequence[Footprint] | None, stages: int) -> Sequence[Footprint]:
    """Return one footprint a stage."""
    if footprints is None or isinstance(footprints, Footprint):
        return [footprints or Footprint()] * stages
    if len(footprints) != stages:
        raise OptionError(f"{len(footprints)} footprints; the pipeline has {stages} stages")
    return footprints


def peaks_of(pipeline: Pipeline, tables: tuple[Integers, Integers]) -> tuple[int, ...]:
    """Return the most that each device holds, during an action or after one."""
    peaks = []
    for begin, end in spans(pipeline):
        held = held_by(pipeline.kind[begin:end], pipeline.stage[begin:end], tables)
        peaks.append(int(max(each.max(initial=0) for each in held)))
    return tuple(peaks)


def held_by(
    kind: Integers, stage: Integers, tables: tuple[Integers, Integers]
) -> tuple[Integers, Integers]:
    """Return what a device holds during each of its actions, and after each.

    Args:
        kind, stage: of its actions, in order.
        tables: what ``memory_tables`` returned.
    """
    during, left = (table[kind, stage] for table in tables)
    after = np.cumsum(left)
    return after - left + during, after
