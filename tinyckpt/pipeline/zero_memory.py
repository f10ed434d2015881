"""Memory and communication volume of ZeRO and data parallelism: bytes per device, by action.

When all gradients of a step are complete, a device stores exactly what the ZeRO formulas say: P
bytes of parameters, G of gradients and O of optimiser state, each whole or a shard. Before that it
stores more: a stage's whole gradients until they are reduce-scattered, a stage's whole parameters
while they are gathered. So the peaks of ZeRO-2 and ZeRO-3 exceed the formula by about one stage,
and smaller stages reduce them.

Not counted: copies that are made for a collective or by MPI, a gradient's product with 1/M while
it is accumulated, and temporaries of the optimiser.

Source: as for ``data_parallelism`` (Rajbhandari et al., SC 2020, arXiv 1910.02054).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tinyckpt.base.spec import Spec
from tinyckpt.base.text_table import table
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import size_text
from tinyckpt.pipeline.parameter_shards import Parameters, parameters_of, share_spec
from tinyckpt.pipeline.program import KINDS, Integers, Kind, Pipeline
from tinyckpt.pipeline.replay import replay_pipeline
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.training.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class StateTrace:
    """Training state on the devices of a pipeline and its replicas; bytes, one entry per device.

    Attributes:
        pipeline: of all replicas.
        parameters, gradients, optimizer_state: when all gradients of a step are complete.
        peaks: the peak of all three plus activations.
        exchanged: communication volume with the other replicas in a step, as the paper counts: a
            reduce-scattered gradient and a gathered parameter once, an all-reduced gradient twice.
        sent: the bytes of that which a device sends: R - 1 shards in a ring, its own stays.
        held: bytes of the state alone after every action, device after device.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import data_parallel, gpipe, partition, plan_stages, stages_of
    >>> graph = tc.networks.mlp(4, 8, batch=2).graph()
    >>> stages = plan_stages(stages_of(graph, partition(graph, 2)))
    >>> trace = replay_state(data_parallel(gpipe(2, 2), 2, zero=1), stages, tc.sgd(0.1))
    >>> trace.parameters, trace.exchanged
    ((1728, 1296, 1728, 1296), (3456, 2592, 3456, 2592))
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
        """Return a table with one row per device."""
        columns = self.parameters, self.gradients, self.optimizer_state, self.peaks, self.exchanged
        rows = [
            [str(device), *map(size_text, row)]
            for device, row in enumerate(zip(*columns, strict=True))
        ]
        header = [
            "device", "parameters", "gradients", "optimizer state", "peak of all", "exchanged",
        ]  # fmt: skip
        return table(header, rows)


def replay_state(
    pipeline: Pipeline, stages: Sequence[PlannedStage], optimizer: Optimizer
) -> StateTrace:
    """Check a pipeline, and account for parameters, gradients and optimiser state on its devices.

    Args:
        pipeline: of any number of replicas.
        stages: planned, of one replica.
        optimizer: its state counts; the number of steps, which it may read, does not.

    Raises:
        ScheduleError: as ``replay_pipeline``.
        GraphError: if gradients were not taken with respect to the first argument alone.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import data_parallel, gpipe, partition, plan_stages, stages_of
    >>> graph = tc.networks.mlp(4, 8, batch=2).graph()
    >>> stages = plan_stages(stages_of(graph, partition(graph, 1)))
    >>> for zero in range(4):
    ...     print(replay_state(data_parallel(gpipe(1, 1), 4, zero), stages, tc.adam(0.1)).nbytes)
    (12096, 12096, 12096, 12096)
    (7568, 7568, 7568, 7568)
    (5304, 5304, 5304, 5304)
    (3040, 3040, 3040, 3040)
    """
    trace = replay_pipeline(pipeline, None, [each.footprint for each in stages])
    known = parameters_of(stages)
    zero = pipeline.zero_in_effect
    tables = action_bytes(known, zero, pipeline.replicas)
    shares = [pipeline.replicas if zero >= least else 1 for least in (3, 2, 1)]
    fixed = [fixed_bytes(pipeline, known, device, shares, optimizer)
             for device in range(pipeline.devices)]  # fmt: skip
    held, peaks, volumes = [], [], []
    for device, (own, (begin, end)) in enumerate(zip(fixed, pipeline.ranges, strict=True)):
        places = pipeline.kind[begin:end], pipeline.stage[begin:end] % len(stages)
        change, most, *moved = (table[places] for table in tables[:4])
        first = first_of_stage(*places, FIRST_ALLOCATION[zero])
        change[first] += tables.first[places[1][first]]
        now = own[0] + own[2] + np.cumsum(change)
        lane = trace.lane(device)
        peaks.append(int(max((now - change + most + lane.during).max(), (now + lane.after).max())))
        held.append(now)
        volumes.append([int(each.sum()) for each in moved])
    parameters, gradients, state = zip(*fixed, strict=True)
    exchanged, sent = zip(*volumes, strict=True)
    return StateTrace(
        pipeline, parameters, gradients, state, tuple(peaks), exchanged, sent, np.concatenate(held)
    )


def total_bytes(specs: Iterable[Spec], replicas: int = 1) -> int:
    """Return the total bytes of arrays, or of one shard of each."""
    return sum(share_spec(spec, replicas).nbytes for spec in specs)


def fixed_bytes(
    pipeline: Pipeline, known: Parameters, device: int, shares: Sequence[int], optimizer: Optimizer
) -> tuple[int, int, int]:
    """Return a device's bytes of parameters, gradients and optimiser state at the end of a step.

    Args:
        pipeline: of all replicas.
        known: its parameters.
        device: index among the devices of all replicas.
        shares: number of shards of each of the three.
        optimizer: of the state.
    """
    own = device % pipeline.replica_devices
    held, stages = known.of_device(pipeline, own), pipeline.stages_on(own)
    made = {data for stage in stages for data in known.makes[stage]}
    updated = [data for stage in stages for data, _ in known.updates[stage]]
    state = optimizer.init([share_spec(known.spec(data), shares[2]) for data in updated])
    return (
        total_bytes(map(known.spec, held), shares[0]),
        total_bytes(map(known.spec, made), shares[1]),
        sum(spec.nbytes for spec in leaves(state)),
    )


class ActionBytes(NamedTuple):
    """The bytes of each action in each stage, as arrays (kinds, stages).

    Attributes:
        change: of the device's state after the action.
        during: of the state while it runs, beyond what was there before.
        exchanged, sent: communication volume as the paper counts, and the bytes sent.
        first: array (stages): the change by the first action of FIRST_ALLOCATION in each stage.
    """

    change: Integers
    during: Integers
    exchanged: Integers
    sent: Integers
    first: Integers


# By ZeRO stage, the actions of which a stage's first allocates the gradients that accumulate.
FIRST_ALLOCATION = (
    *[(Kind.BACKWARD, Kind.BACKWARD_WEIGHT)] * 2, *[(Kind.REDUCE_SCATTER,)] * 2,
)  # fmt: skip


def action_bytes(known: Parameters, zero: int, replicas: int) -> ActionBytes:
    """Return the bytes of each action: of parameters read, and of gradients made, by stage."""
    updates = [[data for data, _ in pairs] for pairs in known.updates]
    (read, read_share), (made, share), (updated, updated_share) = (
        [
            np.array([total_bytes(map(known.spec, ids), parts) for ids in every], np.int64)
            for parts in (1, replicas)
        ]
        for every in (known.reads, known.makes, updates)
    )
    change, during, exchanged, sent = np.zeros((4, len(KINDS), len(read)), np.int64)
    for kind, whole, part in (
        (Kind.ALL_REDUCE, 2 * made, 2 * share),
        (Kind.REDUCE_SCATTER, made, share),
        (Kind.GATHER_FORWARD, read, read_share),
        (Kind.GATHER_BACKWARD, read, read_share),
        (Kind.GATHER_UPDATED, updated, updated_share),
    ):
        exchanged[kind], sent[kind] = whole, (replicas - 1) * part
    if zero >= 2:
        change[[Kind.BACKWARD, Kind.BACKWARD_WEIGHT]] = made
    change[Kind.REDUCE_SCATTER] = -made if zero >= 2 else share - made
    change[Kind.UPDATE] = -(share if zero else made)
    # All shards, padding included, in addition to the device's own.
    change[[Kind.GATHER_FORWARD, Kind.GATHER_BACKWARD]] = replicas * read_share
    change[[Kind.FREE_FORWARD, Kind.FREE_BACKWARD]] = -replicas * read_share
    # A reduce-scatter writes to memory of its own; its input is freed afterwards.
    during[Kind.REDUCE_SCATTER] = share
    during = np.maximum(during, change)
    # While a backward runs, its gradients are part of its stage's footprint.
    during[[Kind.BACKWARD, Kind.BACKWARD_WEIGHT]] = 0
    return ActionBytes(change, during, exchanged, sent, share if zero >= 2 else made)


def first_of_stage(kind: Integers, stage: Integers, kinds: Sequence[int]) -> Integers:
    """Return the position of each stage's first action of one of some kinds."""
    places = np.flatnonzero(np.isin(kind, kinds))
    _, first = np.unique(stage[places], return_index=True)
    return places[first]
