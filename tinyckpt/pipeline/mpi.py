"""A pipeline under MPI: one process a device, and replicas of all of them for data parallelism.

Rank r is device r mod K of replica r div K. Activations and cotangents go from rank to rank as
their bytes, in messages that do not wait; what replicas do together is done by MPI's own
all-reduce, reduce-scatter and all-gather.

Launchers end all ranks when one dies, but do not say which it was. So ``supervise`` starts the
program anew as a child of the process that the launcher knows: whatever kills the child, its parent
is there to name the rank, before the launcher hears of it; and when the launcher kills the parents
of the others, their children end, too.

Needs mpi4py and an MPI: ``pip install 'tinyckpt[mpi]'`` brings both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyckpt.errors import BackendError, OptionError
from tinyckpt.pipeline.holding import Exchange
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.replicas import data_parallel, replica_of
from tinyckpt.pipeline.running import PipelineResult, batches_of, check_together, gathered
from tinyckpt.pipeline.working import Message, Outcome, Program, device_program
from tinyckpt.training.optimizers import Optimizer

# Where launchers say which rank a process is: MPICH and Intel, Open MPI, PMIx, Slurm.
RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
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
    waits, says on stderr which rank was killed if the child was, and exits as the child did.
    """
    rank = launched_rank()
    if rank is None:
        return
    if LIFELINE in os.environ:
        threading.Thread(target=end_with_parent, daemon=True).start()
        return
    ours, theirs = os.pipe()  # nothing is ever written: it ends with the process that holds it
    os.set_inheritable(ours, True)
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, LIFELINE: str(ours)},
        close_fds=False,  # the launcher's own are among them
    )
    os.close(ours)
    code = child.wait()
    os.close(theirs)
    if code < 0:
        name = signal.Signals(-code).name
        print(
            f"tinyckpt: rank {rank} (process {child.pid}) was killed by {name}; "
            "the launcher ends the other ranks",
            file=sys.stderr,
            flush=True,
        )
    os._exit(code if code >= 0 else 128 - code)


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, even while it waits in MPI."""
    os.read(int(os.environ[LIFELINE]), 1)
    os._exit(1)


def run_pipeline_mpi(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    replicas: int = 1,
    optimizer: Optimizer | None = None,
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

    Returns:
        In rank 0 what ``run_pipeline`` returns; None elsewhere.

    Raises:
        OptionError: if there are not as many processes as devices times replicas, or not as many
            micro-batches as they take.
        ScheduleError, BackendError: as ``run_pipeline``, in the process that it is about; that one
            then ends all others.
    """
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
        channel = Channel(world.Split(number, device), own, stages)
        across = Across(mpi, world.Split(device, number))
        batch = batches_of(pipeline, batches, number)
        program = device_program(own, device, stages, batch, channel.post, number, optimizer)
        outcome = driven(program, channel.receive, across.exchange)
        channel.finish()
    except Exception as error:
        # The others wait for messages that will not come.
        print(f"tinyckpt: rank {rank} (device {device}): {error}", file=sys.stderr, flush=True)
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


class Channel:
    """Sends and receives the arrays of messages between the devices of one replica."""

    def __init__(
        self, communicator: Any, pipeline: Pipeline, stages: Sequence[PlannedStage]
    ) -> None:
        self.communicator, self.pipeline, self.stages = communicator, pipeline, stages
        self.underway: list[tuple[Any, Any]] = []

    def tag(self, message: Message) -> int:
        """Return a number that no other message has."""
        place = message.stage * self.pipeline.micro_batches + message.micro_batch
        return 2 * place + message.is_forward

    def post(self, message: Message, arrays: Sequence[Any]) -> None:
        """Send arrays, and do not wait; they are held until they have gone."""
        self.underway = [pair for pair in self.underway if not pair[0].Test()]
        for array in arrays:
            request = self.communicator.Isend(as_bytes(array), message.device, self.tag(message))
            self.underway.append((request, array))

    def receive(self, message: Message) -> list[Any]:
        """Wait for the arrays of a message; the graph says what they are."""
        stage = self.stages[message.stage].stage
        sender = message.stage + (-1 if message.is_forward else 1)
        device = int(self.pipeline.device_of[sender])
        arrays = []
        for data in stage.takes if message.is_forward else stage.takes_back:
            spec = stage.whole.data[data].spec
            array = np.empty(spec.shape, spec.dtype)
            self.communicator.Recv(as_bytes(array), device, self.tag(message))
            arrays.append(array)
        return arrays

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        for request, _ in self.underway:
            request.Wait()
        self.underway = []


def as_bytes(array: Any) -> Any:
    """Return the memory of an array in C order as bytes, of whatever dtype: MPI has not all."""
    return array.reshape(-1).view(np.uint8)


class Across:
    """Does with MPI's own collectives what the replicas of a device do together.

    Means are taken in float64, or float32 for it and what is smaller; so 16 bits do not overflow.
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        self.mpi, self.communicator = mpi, communicator

    def exchange(self, own: Exchange) -> list[Any]:
        """Return what this replica gets for what it brings."""
        collective = {
            "all_reduce": self.all_reduce,
            "reduce_scatter": self.reduce_scatter,
            "gather": self.gather,
        }[own.kind]
        return [collective(np.ascontiguousarray(array)) for array in own.arrays]

    def all_reduce(self, array: Any) -> Any:
        """Return the mean over replicas."""
        total = widened(array)
        self.communicator.Allreduce(self.mpi.IN_PLACE, total, op=self.mpi.SUM)
        return self.mean(total, array.dtype)

    def reduce_scatter(self, array: Any) -> Any:
        """Return this replica's share of the mean."""
        wide = widened(array)
        total = np.empty(array.size // self.communicator.Get_size(), wide.dtype)
        self.communicator.Reduce_scatter_block(wide, total, op=self.mpi.SUM)
        return self.mean(total, array.dtype)

    def gather(self, share: Any) -> Any:
        """Return the shares of all replicas, one behind the other."""
        flat = np.empty(share.size * self.communicator.Get_size(), share.dtype)
        self.communicator.Allgather(as_bytes(share), as_bytes(flat))
        return flat

    def mean(self, total: Any, dtype: Any) -> Any:
        """Return a sum as a mean, in the dtype that was asked for."""
        return (total / total.dtype.type(self.communicator.Get_size())).astype(dtype)


def widened(array: Any) -> Any:
    """Return a copy that can be added up."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)
