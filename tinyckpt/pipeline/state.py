"""What the devices of replicas hold of the training state, action by action, and exchange of it.

When all gradients of a step are complete, a device holds exactly what the formulas of ZeRO say: P
bytes of parameters, G of gradients and O of optimiser state, each of them or its share. On the way
there it holds more: a stage's whole gradients until they are scattered, a stage's whole parameters
while they are gathered. So ZeRO-2 and 3 have a peak above the formula by what one stage takes, and
smaller stages bring it down.

Not counted: copies that a collective is given and MPI makes, a gradient's product with 1/M while
it is added, and what the optimiser computes with.

Source: as for ``replicas``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyckpt.base.tree import leaves
from tinyckpt.base.units import size_text
from tinyckpt.core.graph import Spec
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import (
    ALL_REDUCE,
    BACKWARD,
    BACKWARD_WEIGHT,
    FREE_BACKWARD,
    FREE_FORWARD,
    GATHER_BACKWARD,
    GATHER_FORWARD,
    GATHER_UPDATED,
    REDUCE_SCATTER,
    UPDATE,
    Integers,
    Pipeline,
)
from tinyckpt.pipeline.replay import replay_pipeline, spans
from tinyckpt.pipeline.shares import Parameters, parameters_of, share_spec
from tinyckpt.planner.portfolio.table import table
from tinyckpt.training.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class StateTrace:
    """What the devices of a pipeline and its replicas hold; bytes, one number for each device.

    Attributes:
        pipeline: of all replicas.
        parameters, gradients, optimizer_state: when all gradients of a step are complete.
        peaks: the most that a device holds of all these and of activations.
        exchanged: what a device exchanges with its replicas in a step, as the paper counts: a
            gradient that is reduced and scattered and a parameter that is gathered once, a gradient
            that is all-reduced twice.
        sent: the shares that a device sends of it, in R - 1 turns of a ring: its own stays.
        held: of the state alone after every action, device after device.
    """

    pipeline: Pipeline
    parameters: tuple[int, ...]
    gradients: tuple[int, ...]
    optimizer_state: tuple[int, ...]
    peaks: tuple[int, ...]
    exchanged: tuple[int, ...]
    sent: tuple[int, ...]
    held: Integers = field(repr=False, compare=False)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of parameters, gradients and optimiser state, when all gradients are complete."""
        columns = zip(self.parameters, self.gradients, self.optimizer_state, strict=True)
        return tuple(map(sum, columns))

    def __str__(self) -> str:
        """Return a row for each device."""
        columns = self.parameters, self.gradients, self.optimizer_state, self.peaks, self.exchanged
        rows = [
            [str(device), *map(size_text, row)]
            for device, row in enumerate(zip(*columns, strict=True))
        ]
        header = [
            "device", "parameters", "gradients", "optimizer state", "peak of all", "exchanged",
        ]  # fmt: skip
        return table(header, rows)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the state by stage, whole and one share of it.

    Attributes:
        parameters, gathered: of the parameters that a stage reads; and of one share.
        gradients, scattered: of the gradients that it makes; and of one share.
        updated, gathered_updated: of the parameters that it updates; and of one share.
    """

    parameters: Integers
    gathered: Integers
    gradients: Integers
    scattered: Integers
    updated: Integers
    gathered_updated: Integers


def replay_state(
    pipeline: Pipeline, stages: Sequence[PlannedStage], optimizer: Optimizer
) -> StateTrace:
    """Check a pipeline, and return what its devices hold of parameters, gradients and the rest.

    Args:
        pipeline: of any number of replicas.
        stages: of one of them, planned.
        optimizer: whose state it is. The number of steps, which it may read, is not in it.

    Raises:
        ScheduleError: as ``replay_pipeline``.
        GraphError: if gradients were not taken with respect to the first argument alone.
    """
    trace = replay_pipeline(pipeline, None, [each.footprint for each in stages])
    known = parameters_of(stages)
    zero = pipeline.zero if pipeline.replicas > 1 else 0
    sizes = sizes_of(known, pipeline.replicas)
    shares = [pipeline.replicas if zero >= least else 1 for least in (3, 2, 1)]
    fixed = [fixed_bytes(pipeline, known, device, shares, optimizer)
             for device in range(pipeline.devices)]  # fmt: skip
    held, peaks, volumes = [], [], []
    for device, (own, (begin, end)) in enumerate(zip(fixed, spans(pipeline), strict=True)):
        kind, stage = pipeline.kind[begin:end], pipeline.stage[begin:end] % len(stages)
        change, most = changes(kind, stage, sizes, zero, pipeline.replicas)
        now = own[0] + own[2] + np.cumsum(change)
        lane = trace.lane(device)
        peaks.append(int(max((now - change + most + lane.during).max(), (now + lane.after).max())))
        held.append(now)
        volumes.append(volume(kind, stage, sizes, pipeline.replicas))
    parameters, gradients, state = zip(*fixed, strict=True)
    exchanged, sent = zip(*volumes, strict=True)
    return StateTrace(
        pipeline, parameters, gradients, state, tuple(peaks), exchanged, sent, np.concatenate(held)
    )


def total(specs: Iterable[Spec], replicas: int = 1) -> int:
    """Return the bytes of arrays, or of one share of each."""
    return sum(share_spec(spec, replicas).nbytes for spec in specs)


def sizes_of(known: Parameters, replicas: int) -> Sizes:
    """Return the bytes of every stage's state."""
    read = [[known.spec(data) for data in reads] for reads in known.reads]
    made = [[known.spec(data) for data in made] for made in known.makes]
    updated = [[known.spec(data) for data, _ in pairs] for pairs in known.updates]
    columns = [
        np.array([total(specs, parts) for specs in every], np.int64)
        for every in (read, made, updated)
        for parts in (1, replicas)
    ]
    return Sizes(*columns)


def fixed_bytes(
    pipeline: Pipeline, known: Parameters, device: int, shares: Sequence[int], optimizer: Optimizer
) -> tuple[int, int, int]:
    """Return what a device holds of parameters, gradients and state when all are there.

    Args:
        pipeline: of all replicas.
        known: its parameters.
        device: of all replicas.
        shares: into how many shares the three go.
        optimizer: whose state it is.
    """
    own = device % (pipeline.devices // pipeline.replicas)
    held = known.of_device(pipeline, own)
    stages = [k for k in range(len(known.reads)) if pipeline.device_of[k] == own]
    made = {data for stage in stages for data in known.makes[stage]}
    updated = [data for stage in stages for data, _ in known.updates[stage]]
    state = optimizer.init([share_spec(known.spec(data), shares[2]) for data in updated])
    return (
        total(map(known.spec, held), shares[0]),
        total(map(known.spec, made), shares[1]),
        sum(spec.nbytes for spec in leaves(state)),
    )


def changes(
    kind: Integers, stage: Integers, sizes: Sizes, zero: int, replicas: int
) -> tuple[Integers, Integers]:
    """Return by how much each action of a device changes what it holds; and while it runs."""
    change, extra = np.zeros(len(kind), np.int64), np.zeros(len(kind), np.int64)
    is_last = (kind == BACKWARD) | (kind == BACKWARD_WEIGHT)
    is_scatter, is_update = kind == REDUCE_SCATTER, kind == UPDATE
    whole, share = sizes.gradients[stage], sizes.scattered[stage]
    if zero < 2:
        change[first_of_stage(is_last, stage)] += whole[first_of_stage(is_last, stage)]
        change[is_scatter] -= (whole - share)[is_scatter]
    else:
        change[is_last] += whole[is_last]
        change[is_scatter] -= whole[is_scatter]
        change[first_of_stage(is_scatter, stage)] += share[first_of_stage(is_scatter, stage)]
    # What is scattered comes into memory of its own, and what was is given up then.
    extra[is_scatter] = share[is_scatter]
    change[is_update] -= (share if zero else whole)[is_update]
    for gather, free in ((GATHER_FORWARD, FREE_FORWARD), (GATHER_BACKWARD, FREE_BACKWARD)):
        # All shares, padded as they are, besides the device's own.
        change[kind == gather] += replicas * sizes.gathered[stage[kind == gather]]
        change[kind == free] -= replicas * sizes.gathered[stage[kind == free]]
    # While a backward runs, what it makes is part of its stage's footprint.
    return change, np.where(is_last, 0, np.maximum(extra, change))


def first_of_stage(chosen: Integers, stage: Integers) -> Integers:
    """Return where each stage has its first of some actions."""
    places = np.flatnonzero(chosen)
    _, first = np.unique(stage[places], return_index=True)
    return places[first]


def volume(kind: Integers, stage: Integers, sizes: Sizes, replicas: int) -> tuple[int, int]:
    """Return what a device exchanges in a step, as the paper counts; and what it sends of it."""
    exchanged = sent = 0
    for what, whole, share in (
        (ALL_REDUCE, 2 * sizes.gradients, 2 * sizes.scattered),
        (REDUCE_SCATTER, sizes.gradients, sizes.scattered),
        (GATHER_FORWARD, sizes.parameters, sizes.gathered),
        (GATHER_BACKWARD, sizes.parameters, sizes.gathered),
        (GATHER_UPDATED, sizes.updated, sizes.gathered_updated),
    ):
        own = stage[kind == what]
        exchanged += int(whole[own].sum())
        sent += int(share[own].sum()) * (replicas - 1)
    return exchanged, sent
