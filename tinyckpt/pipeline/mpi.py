"""Pipeline and data parallelism under MPI (mpi4py): one process per device of every replica.

Rank r is device r mod K of replica r div K, for K devices per replica. Activations and cotangents
are sent from rank to rank as bytes, in nonblocking messages; collectives of replicas are MPI's own
all-reduce, reduce-scatter and all-gather.

Needs mpi4py and an MPI: ``pip install 'tinyckpt[mpi]'`` brings both.
"""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import sleep
from typing import Any

from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.pipeline.data_parallelism import data_parallel, replica_of
from tinyckpt.pipeline.device_executor import DeviceState, Message, Outcome, Program, device_program
from tinyckpt.pipeline.mpi_handshake import Rendezvous, argument_digests, end_all
from tinyckpt.pipeline.mpi_transport import DEFAULT_TIMEOUT, Channel, MpiCollectives
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.rank_supervisor import SUPERVISOR_DELAY, launched_rank, say
from tinyckpt.pipeline.run_in_process import (
    PipelineResult,
    batches_of,
    check_arguments,
    gather_outcomes,
    with_state,
)
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.pipeline.zero_state import CollectiveRequest
from tinyckpt.training.optimizers import Optimizer

LONGEST = 1e8  # seconds; the largest interval that a timer accepts on every platform


def get_mpi(patience: float = DEFAULT_TIMEOUT) -> Any:
    """Import and return mpi4py's module MPI, initialising MPI with a timeout.

    The first import initialises MPI, which waits for all ranks and runs no Python meanwhile: the
    timeout is an alarm signal that kills the process, and its parent reports why.

    Args:
        patience: the timeout in seconds.

    Raises:
        BackendError: if mpi4py is not installed, or finds no MPI.
    """
    # Windows has no SIGALRM; and where the program has installed a handler of its own, leave it.
    alarm = getattr(signal, "SIGALRM", None)
    is_free = alarm is not None and signal.getsignal(alarm) is signal.SIG_DFL
    if is_launched := is_free and launched_rank() is not None and "mpi4py.MPI" not in sys.modules:
        signal.setitimer(signal.ITIMER_REAL, min(max(patience, 1e-3), LONGEST))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BackendError(
            f"MPI is not available ({error}): pip install 'tinyckpt[mpi]' brings mpi4py and MPICH"
        ) from error
    finally:
        if is_launched:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return MPI


def rank_in(pipeline: Pipeline) -> tuple[int, int]:
    """Return the replica that this process belongs to, and its device within the replica.

    Raises:
        OptionError: if there are not as many processes as devices of all replicas.
        BackendError: if MPI is not available.

    >>> from tinyckpt.pipeline import data_parallel, gpipe, rank_in
    >>> rank_in(data_parallel(gpipe(2, 4), 2))  # doctest: +SKIP
    (0, 1)
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
    patience: float = DEFAULT_TIMEOUT,
    state: Any = None,
    collect: bool = True,
) -> PipelineResult | None:
    """Run one device of a pipeline in each MPI process (SPMD); all pass the same arguments.

    Args:
        pipeline: the actions of each device.
        stages: planned, as many as the pipeline has.
        batches: the function's arguments for each micro-batch, of all replicas: the first M are
            those of replica 0, the next M those of replica 1. Any sequence: a process looks up its
            own micro-batches only, each of them once, so it need not have those of others.
        replicas: number of replicas, if the pipeline is that of one; nothing is sharded between
            them then, see ``data_parallel``.
        optimizer: as for ``run_pipeline``.
        patience: timeout in seconds for another process, after which all are aborted.
        state: as for ``run_pipeline``; each process is given all of it, and keeps its part.
        collect: whether rank 0 gathers whole gradients, or parameters and state; if not, only
            values, so that no process stores more than its part.

    Returns:
        In rank 0 the result of ``run_pipeline``; None elsewhere.

    Raises:
        OptionError: if the patience is not a positive number of seconds; in a run of one process,
            everything that ``run_pipeline`` raises.

    With several processes, no error is raised: rank 0 prints it to stderr if it is known before
    the start, else the rank that failed does, and all ranks are aborted. These errors include those
    of ``run_pipeline``, a wrong number of processes, and arguments that differ between processes,
    parameters in particular.

    >>> from tinyckpt.pipeline import gpipe, run_pipeline_mpi
    >>> result = run_pipeline_mpi(gpipe(2, 4), stages, batches)  # doctest: +SKIP
    """
    if not 0 < patience < math.inf:
        raise OptionError(f"patience={patience!r:.80}; it must be a number of seconds above 0")
    mpi = get_mpi(patience)
    world = mpi.COMM_WORLD
    meeting = Rendezvous(world, pipeline.devices // pipeline.replicas, patience)
    claims, trouble = {}, None
    try:
        if replicas != 1:
            pipeline = data_parallel(pipeline, replicas)
        number, device = rank_in(pipeline)
        if 2 * len(stages) * pipeline.micro_batches > world.Get_attr(mpi.TAG_UB):
            raise OptionError(f"{pipeline.name} has more messages than this MPI has tags")
        check_arguments(pipeline, stages, batches, optimizer)
        batches, begin = with_state(stages, batches, optimizer, state)
        worker = DeviceState(
            replica_of(pipeline, number), device, stages, batches_of(pipeline, batches, number),
            no_channel, number, optimizer, begin,
        )  # fmt: skip
        claims = argument_digests(pipeline, stages, worker, begin)
    except Exception as error:
        trouble = error
    with ending_all(world, f"rank {meeting.rank}"):
        meeting.agree(claims, trouble)
    with ending_all(world, f"rank {meeting.rank} (device {device})"):
        channel = Channel(world.Split(number, device), worker.pipeline, stages, patience)
        across = MpiCollectives(mpi, world.Split(device, number), patience)
        worker.post = channel.post
        outcome = drive(device_program(worker), channel.receive, across.exchange)
        channel.finish()
        outcomes = meeting.outcomes(part_to_gather(outcome, pipeline, number, collect))
    return (
        None
        if outcomes is None
        else gather_outcomes(pipeline, stages, outcomes, optimizer, collect)
    )


@contextmanager
def ending_all(world: Any, who: str) -> Iterator[None]:
    """Abort all ranks on an error, if there are several: the others wait for this one."""
    try:
        yield
    except Exception as error:
        if world.Get_size() > 1:
            if isinstance(error, get_mpi().Exception):
                sleep(
                    SUPERVISOR_DELAY
                )  # most likely another rank has died, and its parent reports that
            say(f"{who}: {error}")
            end_all(world)
        raise


def no_channel(message: Message, arrays: list[Any]) -> None:
    """Fail as the sender of a device that has no channel yet."""
    raise AssertionError(f"{message} before all have met")


def part_to_gather(outcome: Outcome, pipeline: Pipeline, number: int, collect: bool) -> Outcome:
    """Return the part of an outcome that rank 0 needs: replicated arrays from replica 0 only."""
    if not collect:
        return replace(outcome, gradients={}, state={}, parameters={})
    if number == 0:
        return outcome
    zero = pipeline.zero
    return replace(
        outcome,
        gradients=outcome.gradients if zero else {},
        state=outcome.state if zero else {},
        parameters=outcome.parameters if zero == 3 else {},
    )


def drive(
    program: Program,
    receive: Callable[[Message], list[Any]],
    exchange: Callable[[CollectiveRequest], list[Any]],
) -> Outcome:
    """Drive a device's coroutine to its end: send it each message or collective it waits for."""
    try:
        wanted = next(program)
        while True:
            wanted = program.send(
                receive(wanted) if isinstance(wanted, Message) else exchange(wanted)
            )
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
