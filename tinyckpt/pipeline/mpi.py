"""A pipeline under MPI: one process a device, and replicas of all of them for data parallelism.

Rank r is device r mod K of replica r div K. Activations and cotangents go from rank to rank as
their bytes, in messages that do not wait; what replicas do together is done by MPI's own
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
from tinyckpt.pipeline.channel import PATIENCE, Across, Channel
from tinyckpt.pipeline.device_program import DeviceState, Message, Outcome, Program, device_program
from tinyckpt.pipeline.handshake import Rendezvous, claims_of, end_all
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.replicas import data_parallel, replica_of
from tinyckpt.pipeline.simulate import (
    PipelineResult,
    batches_of,
    check_together,
    gathered,
    going_on,
)
from tinyckpt.pipeline.supervising import BEHIND, launched_rank, say
from tinyckpt.pipeline.zero_state import Exchange
from tinyckpt.training.optimizers import Optimizer

LONGEST = 1e8  # seconds that a timer can be set to anywhere


def get_mpi(patience: float = PATIENCE) -> Any:
    """Return mpi4py's module MPI.

    The first time, MPI begins, and with that waits for all ranks. It runs no Python then: what ends
    the waiting is an alarm, which kills the process, and its parent says why.

    Args:
        patience: seconds to wait for the others.

    Raises:
        BackendError: if it is not installed, or finds no MPI.
    """
    # Windows has no such signal; and where somebody takes it, it is theirs.
    alarm = getattr(signal, "SIGALRM", None)
    is_free = alarm is not None and signal.getsignal(alarm) is signal.SIG_DFL
    if is_launched := is_free and launched_rank() is not None and "mpi4py.MPI" not in sys.modules:
        signal.setitimer(signal.ITIMER_REAL, min(max(patience, 1e-3), LONGEST))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BackendError(
            f"MPI is not there ({error}): pip install 'tinyckpt[mpi]' brings mpi4py and MPICH"
        ) from error
    finally:
        if is_launched:
            signal.setitimer(signal.ITIMER_REAL, 0)
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
    collect: bool = True,
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
        collect: whether rank 0 is to have gradients, or parameters and state, as a whole; or else
            values alone, so that no process holds more than its part.

    Returns:
        In rank 0 what ``run_pipeline`` returns; None elsewhere.

    Raises:
        OptionError: if the patience is no number of seconds; or in one process alone, what
            ``run_pipeline`` raises.

    What is wrong with several processes, none of them raises: rank 0 says it on stderr, if it is
    known before they begin, or else the rank that it is about, and ends all. Besides what
    ``run_pipeline`` raises that is a number of processes that does not fit, and arguments that are
    not the same in all, parameters above all.
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
        check_together(pipeline, stages, batches, optimizer)
        batches, begin = going_on(stages, batches, optimizer, state)
        worker = DeviceState(
            replica_of(pipeline, number), device, stages, batches_of(pipeline, batches, number),
            unsendable, number, optimizer, begin,
        )  # fmt: skip
        claims = claims_of(pipeline, stages, worker, begin)
    except Exception as error:
        trouble = error
    with ending_all(world, f"rank {meeting.rank}"):
        meeting.agree(claims, trouble)
    with ending_all(world, f"rank {meeting.rank} (device {device})"):
        channel = Channel(world.Split(number, device), worker.pipeline, stages, patience)
        across = Across(mpi, world.Split(device, number), patience)
        worker.post = channel.post
        outcome = driven(device_program(worker), channel.receive, across.exchange)
        channel.finish()
        outcomes = meeting.outcomes(needed_of(outcome, pipeline, number, collect))
    return None if outcomes is None else gathered(pipeline, stages, outcomes, optimizer, collect)


@contextmanager
def ending_all(world: Any, who: str) -> Iterator[None]:
    """Have an error end all processes, if there are several: the others wait for this one."""
    try:
        yield
    except Exception as error:
        if world.Get_size() > 1:
            if isinstance(error, get_mpi().Exception):
                sleep(BEHIND)  # most likely another rank has died, and its parent will say so
            say(f"{who}: {error}")
            end_all(world)
        raise


def unsendable(message: Message, arrays: list[Any]) -> None:
    """Stand for what sends, before there is a channel."""
    raise AssertionError(f"{message} before all have met")


def needed_of(outcome: Outcome, pipeline: Pipeline, number: int, collect: bool) -> Outcome:
    """Return what rank 0 needs of an outcome: of what all replicas have alike, the first one's."""
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
