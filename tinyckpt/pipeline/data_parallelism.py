"""Data parallelism and ZeRO-1, -2, -3: replicas of a pipeline, and placement of collectives.

Every replica runs the same actions on its own micro-batches, and gradients are averaged over them.
An operation of all replicas is a *collective* action, in the lanes of all replicas of a device and
in the same order, as MPI requires. It is one action, not the sends and recvs that it consists of:
those are MPI's choice and depend on the number of replicas; the memory and the volume do not.

- ``zero=0``: each stage's gradients are all-reduced before its update.
- ``zero=1`` shards the optimiser state: gradients are reduce-scattered before the update, each
  replica updates its shard of the parameters, and these are all-gathered.
- ``zero=2`` shards the gradients too: they are reduce-scattered after every backward, so only a
  shard accumulates over micro-batches.
- ``zero=3`` shards the parameters too: they are all-gathered before the forward and again before
  the backward (or the recomputation before it), and freed after each.

With P bytes of parameters and as many of gradients, a replica sends 2 P, 2 P, 2 P and 3 P in a step
of one micro-batch, as the paper counts; exactly it is (R - 1)/R of each P with R replicas, as the
replica's own shard stays.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
SC 2020, arXiv 1910.02054, sections 5 and 7. Not here: collectives that overlap with computation,
and keeping the last stage's parameters between its forward and its backward.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.program import NOTHING, Integers, Kind, Lane, Pipeline, concatenate_lanes
from tinyckpt.pipeline.simulator_memory_limit import MOST_BYTES, check_bytes

STAGES_OF_ZERO = range(4)


def data_parallel(pipeline: Pipeline, replicas: int, zero: int = 0) -> Pipeline:
    """Replicate a pipeline for data parallelism, and insert the collectives of a ZeRO stage.

    Pure data parallelism is that of a pipeline of one device; with several stages on it, ZeRO
    works stage by stage:

    >>> from tinyckpt.pipeline import interleaved, data_parallel
    >>> for action in data_parallel(interleaved(1, 1), 2, zero=3).actions(0)[:7]:
    ...     print(action)
    gather forward of stage 0, micro-batch 0
    forward of stage 0, micro-batch 0
    free forward of stage 0, micro-batch 0
    gather forward of stage 1, micro-batch 0
    forward of stage 1, micro-batch 0
    free forward of stage 1, micro-batch 0
    gather backward of stage 1, micro-batch 0

    Args:
        pipeline: the actions of each replica.
        replicas: their number; each has as many devices as the pipeline.
        zero: ZeRO stage: 0 shards nothing, 1 the optimiser state, 2 gradients too, 3 parameters
            too.

    Raises:
        OptionError: if a number is out of its range, or the actions exceed the memory limit.
    """
    if pipeline.replicas != 1:
        raise OptionError(f"{pipeline.name} has {pipeline.replicas} replicas already")
    if type(zero) is not int or zero not in STAGES_OF_ZERO:
        raise OptionError(f"zero={zero!r}; ZeRO has 1, 2 and 3, and 0 stands for none of it")
    if type(replicas) is not int or not 1 <= replicas <= MOST_BYTES:
        raise OptionError(
            f"{pipeline.name}: replicas={replicas!r:.80}; it must be an integer of 1 or more"
        )
    check_bytes(
        f"{pipeline.name} of {pipeline.stages:,} stages x {pipeline.micro_batches:,} micro batches "
        f"x {replicas:,} replicas",
        *sizes_with(pipeline, replicas, zero),
    )
    around = collectives_around(pipeline, zero if replicas > 1 else None)
    rows, _ = (found := around != NOTHING).nonzero()
    kind, stage, micro_batch = around[found], pipeline.stage[rows], pipeline.micro_batch[rows]
    ends = np.searchsorted(rows, pipeline.first)
    lanes = [
        Lane(kind[begin:end], (stage[begin:end] + number * pipeline.stages).astype(np.int32),
             micro_batch[begin:end])
        for number in range(replicas)
        for begin, end in pairwise(ends.tolist())
    ]  # fmt: skip
    device_of = [pipeline.device_of + number * pipeline.devices for number in range(replicas)]
    whole = concatenate_lanes(
        pipeline.name, np.concatenate(device_of).astype(np.int32), pipeline.micro_batches, lanes
    )
    return replace(whole, replicas=replicas, zero=zero)


def sizes_with(pipeline: Pipeline, replicas: int, zero: int) -> tuple[int, int, int, int, int]:
    """Return the counts of replicas of a pipeline, as arguments of ``check_bytes``."""
    places = pipeline.stages * pipeline.micro_batches
    meetings = (pipeline.stages, 2 * pipeline.stages, places + pipeline.stages, 3 * places)[zero]
    frees = 2 * places if zero == 3 else 0
    kinds = len(np.unique(pipeline.kind)) + (1, 2, 2, 5)[zero]
    actions = replicas * (len(pipeline) + meetings + frees)
    return actions, replicas * places, replicas * pipeline.stages, kinds, meetings


def collectives_around(pipeline: Pipeline, zero: int | None) -> Integers:
    """Return for every action a row: the collective before it, itself, and those after it.

    Args:
        pipeline: of one replica.
        zero: as for ``data_parallel``; None if there is one replica only.
    """
    kind = pipeline.kind
    around = np.full((len(kind), 4), NOTHING, np.int8)
    around[:, 1] = kind
    if zero is None:
        return around
    is_last = (kind == Kind.BACKWARD) | (kind == Kind.BACKWARD_WEIGHT)
    around[kind == Kind.UPDATE, 0] = {0: Kind.ALL_REDUCE, 1: Kind.REDUCE_SCATTER}.get(zero, NOTHING)
    if zero in (1, 2):
        around[kind == Kind.UPDATE, 2] = Kind.GATHER_UPDATED
    if zero >= 2:
        around[is_last, 3] = Kind.REDUCE_SCATTER
    if zero == 3:
        around[kind == Kind.FORWARD, 0] = Kind.GATHER_FORWARD
        around[kind == Kind.FORWARD, 2] = Kind.FREE_FORWARD
        is_first = kind == Kind.RECOMPUTE
        if not is_first.any():
            is_first = (kind == Kind.BACKWARD) | (kind == Kind.BACKWARD_INPUT)
        around[is_first, 0], around[is_last, 2] = Kind.GATHER_BACKWARD, Kind.FREE_BACKWARD
    return around


def replica_of(pipeline: Pipeline, number: int) -> Pipeline:
    """Extract one replica, its stages and devices renumbered from 0; it cannot be replayed."""
    devices, stages = pipeline.replica_devices, pipeline.replica_stages
    first = pipeline.first[number * devices : (number + 1) * devices + 1]
    begin, end = first[0], first[-1]
    return replace(
        pipeline,
        device_of=pipeline.device_of[:stages],
        kind=pipeline.kind[begin:end],
        stage=pipeline.stage[begin:end] - number * stages,
        micro_batch=pipeline.micro_batch[begin:end],
        first=first - begin,
    )
