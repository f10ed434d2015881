"""A pipeline under MPI: one process a device, and replicas of all of them for data parallelism.

Rank r is device r mod K of replica r div K. Activations and cotangents go from rank to rank as
their bytes, in messages that do not wait; what replicas do together is done by MPI's own
all-reduce, reduce-scatter and all-gather.

Launchers end all ranks when one dies, but do not say which it was; and not even that, if it dies
before all have met in MPI and does so with an exit code. So ``supervise`` starts the program anew
as a child of the process that the launcher knows: whatever kills the child, its parent is there to
name the rank, and then ends by a signal, which every launcher understands. When that kills the
parents of the others, their children end, too. A rank that does not end but hangs is waited for
only so long: see ``channel``.

Needs mpi4py and an MPI: ``pip install 'tinyckpt[mpi]'`` brings both.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tinyckpt.errors import BackendError, OptionError
from tinyckpt.pipeline.channel import PATIENCE, Across, Channel
from tinyckpt.pipeline.holding import Exchange
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.replicas import data_parallel, replica_of
from tinyckpt.pipeline.running import PipelineResult, batches_of, check_together, gathered
from tinyckpt.pipeline.working import Message, Outcome, Program, device_program
from tinyckpt.training.optimizers import Optimizer

# Where launchers say which rank a process is: MPICH and Intel, Open MPI, PMIx, Slurm.
RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
STDERR = 2
LIFELINE = "TINYCKPT_LIFELINE"  # the file descriptor that ends when the parent does


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


def launched_rank() -> str | None:
    """Return the rank that a launcher gave this process; None if none started it."""
    return next((os.environ[name] for name in RANK_NAMES if name in os.environ), None)


def supervise() -> None:
    """Let a parent watch over this process, if a launcher started it; call it before all else.

    It returns in the child, and at once where there is no launcher. The parent never returns: it
    waits, says on stderr which rank was killed or stopped if the child was, and has the launcher
    end the other ranks if the child did not end well.
    """
    rank = launched_rank()
    if rank is None:
        return
    if LIFELINE in os.environ:
        die_with_parent()
        return
    ours, theirs = os.pipe()  # nothing is ever written: it ends with the process that holds it
    os.set_inheritable(ours, True)
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, LIFELINE: str(ours)},
        close_fds=False,  # the launcher's own are among them
    )
    os.close(ours)
    code = ended(child.pid, rank)
    os.close(theirs)
    if code == 0:
        os._exit(0)
    what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    say(f"rank {rank} (process {child.pid}) {what}; the launcher ends the other ranks")
    os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    """Write a line on stderr that no other rank's is mixed up with."""
    os.write(STDERR, f"tinyckpt: {text}\n".encode())


def ended(process: int, rank: str) -> int:
    """Wait for a child to end, and return its exit code; that of a signal is negative."""
    while True:
        _, status = os.waitpid(process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        name = signal.Signals(os.WSTOPSIG(status)).name
        say(f"rank {rank} (process {process}) was stopped by {name}; the others wait for it")


def die_with_parent() -> None:
    """Have this process end as soon as its parent has, even while it waits in MPI."""
    if sys.platform == "linux":
        # A stopped process runs no thread, but the kernel ends it. 1 is PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the parent has ended, and end this process."""
    os.read(int(os.environ[LIFELINE]), 1)
    os._exit(1)


def run_pipeline_mpi(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    replicas: int = 1,
    optimizer: Optimizer | None = None,
    patience: float = PATIENCE,
) -> PipelineResult | None:
    """Run one device of a pipeline in each process; all call it with the same arguments.

    Args:
        pipeline: what each device does.
        stages: planned, as many as the pipeline has.
        batches: the arguments of the function for each micro-batch, of all replicas: the first M
            are for replica 0, the next for replica 1.
        replicas: how many pipelines run side by side, if the pipeline is that of one; they share
            nothing then, see ``data_parallel``.
        optimizer: as for ``run_pipeline``.
        patience: seconds to wait for another process before all are ended.

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
    rank, size = world.Get_rank(), world.Get_size()
    if replicas != 1:
        pipeline = data_parallel(pipeline, replicas)
    devices = pipeline.devices // pipeline.replicas
    if size != pipeline.devices:
        raise OptionError(
            f"{pipeline.name} has {devices} devices and {pipeline.micro_batches} micro-batches; "
            f"with {pipeline.replicas} replicas that takes {pipeline.devices} processes and "
            f"{pipeline.micro_batches * pipeline.replicas} micro-batches; there are {size} and "
            f"{len(batches)}"
        )
    if 2 * len(stages) * pipeline.micro_batches > world.Get_attr(mpi.TAG_UB):
        raise OptionError(f"{pipeline.name} has more messages than this MPI has tags")
    number, device = divmod(rank, devices)
    try:
        check_together(pipeline, stages, batches, optimizer)
        own = replica_of(pipeline, number)
        channel = Channel(world.Split(number, device), own, stages, patience)
        across = Across(mpi, world.Split(device, number), patience)
        batch = batches_of(pipeline, batches, number)
        program = device_program(own, device, stages, batch, channel.post, number, optimizer)
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
    return gathered(pipeline, stages, outcomes, optimizer is not None)


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
