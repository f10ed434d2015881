"""A pipeline under MPI: one process a device, and replicas of all of them for data parallelism.

Rank r is device r mod K of replica r div K. Activations and cotangents go from rank to rank as
their bytes, in messages that do not wait; what replicas do together is done by MPI's own
all-reduce, reduce-scatter and all-gather.

Needs mpi4py and an MPI: ``pip install 'tinyckpt[mpi]'`` brings both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyckpt.errors import BackendError, OptionError
from tinyckpt.pipeline.channel import PATIENCE, Across, Channel
from tinyckpt.pipeline.holding import Exchange
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.replicas import data_parallel, replica_of
from tinyckpt.pipeline.running import PipelineResult, batches_of, check_together, gathered, going_on
from tinyckpt.pipeline.supervising import say
from tinyckpt.pipeline.working import Message, Outcome, Program, device_program
from tinyckpt.training.optimizers import Optimizer


def get_mpi() -> Any:
    """Return mpi4py's module MPI.

    Raises:
        BackendError: if it is not installed, or finds no MPI.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BackendError(
            f"MPI is not there ({error}): pip install 'tinyckpt[mpi]' brings mpi4py and MPICH"
        ) from error
    return MPI


def rank_in(pipeline: Pipeline) -> tuple[int, int]:
    """Return which replica this process belongs to, and which of its devices it is.

    Raises:
        OptionError: if there are not as many processes as devices of all replicas.
        BackendError: if there is no MPI.
    """
    world = get_mpi().COMM_WORLD
    rank, size = int(world.Get_rank()), int(world.Get_size())
    devices = pipeline.devices // pipeline.replicas
    if size != pipeline.devices:
        replicas = "" if pipeline.replicas == 1 else f" in {pipeline.replicas} replicas"
        raise OptionError(
            f"{pipeline.name} on {devices} devices{replicas} takes {pipeline.devices} processes; "
            f"there are {size}"
            + (", if the launcher is of the MPI that mpi4py was built for" if size == 1 else "")
        )
    return rank // devices, rank % devices


def run_pipeline_mpi(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    replicas: int = 1,
    optimizer: Optimizer | None = None,
    patience: float = PATIENCE,
    state: Any = None,
) -> PipelineResult | None:
    """Run one device of a pipeline in each process; all call it with the same arguments.

    Args:
        pipeline: what each device does.
        stages: planned, as many as the pipeline has.
        batches: the arguments of the function for each micro-batch, of all replicas: the first M
            are for replica 0, the next for replica 1. Any sequence: a process looks up its own, and
            each of them once, so it need not have those of others.
        replicas: how many pipelines run side by side, if the pipeline is that of one; they share
            nothing then, see ``data_parallel``.
        optimizer: as for ``run_pipeline``.
        patience: seconds to wait for another process before all are ended.
        state: as for ``run_pipeline``; each process is given all of it, and keeps its part.

    Returns:
        In rank 0 what ``run_pipeline`` returns; None elsewhere.

    Raises:
        OptionError: if there are not as many processes as devices times replicas, or not as many
            micro-batches as they take.
        ScheduleError, BackendError: as ``run_pipeline``, in the process that it is about, or if it
            waited too long; that one then ends all others.
    """
    if not 0 < patience < math.inf:
        raise OptionError(f"patience={patience!r:.80}; it must be a number of seconds above 0")
    mpi = get_mpi()
    world = mpi.COMM_WORLD
    rank = world.Get_rank()
    if replicas != 1:
        pipeline = data_parallel(pipeline, replicas)
    number, device = rank_in(pipeline)
    if 2 * len(stages) * pipeline.micro_batches > world.Get_attr(mpi.TAG_UB):
        raise OptionError(f"{pipeline.name} has more messages than this MPI has tags")
    try:
        check_together(pipeline, stages, batches, optimizer)
        batches, begin = going_on(stages, batches, optimizer, state)
        own = replica_of(pipeline, number)
        channel = Channel(world.Split(number, device), own, stages, patience)
        across = Across(mpi, world.Split(device, number), patience)
        batch = batches_of(pipeline, batches, number)
        program = device_program(own, device, stages, batch, channel.post, number, optimizer, begin)
        outcome = driven(program, channel.receive, across.exchange)
        channel.finish()
    except Exception as error:
        # The others wait for messages that will not come.
        say(f"rank {rank} (device {device}): {error}")
        world.Abort(1)
        raise
    outcomes: list[Outcome] | None = world.gather(outcome)
    if outcomes is None:
        return None
    return gathered(pipeline, stages, outcomes, optimizer)


def driven(
    program: Program,
    receive: Callable[[Message], list[Any]],
    exchange: Callable[[Exchange], list[Any]],
) -> Outcome:
    """Run a device's program to its end, giving it each message that it waits for."""
    try:
        wanted = next(program)
        while True:
            wanted = program.send(
                receive(wanted) if isinstance(wanted, Message) else exchange(wanted)
            )
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
