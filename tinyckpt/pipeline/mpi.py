"""A pipeline under MPI: one process a device, and replicas of all of them for data parallelism.

Rank r is device r mod K of replica r div K. Activations and cotangents go from rank to rank as
their bytes, in messages that do not wait; when a stage is updated, its gradients are averaged over
the replicas by MPI's own all-reduce.

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
from functools import partial
from typing import Any

import numpy as np

from tinyckpt.errors import BackendError, OptionError
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.running import (
    Message,
    Outcome,
    PipelineResult,
    check_together,
    device_program,
    gathered,
)

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
) -> PipelineResult | None:
    """Run one device of a pipeline in each process; all call it with the same arguments.

    Args:
        pipeline: what each device does.
        stages: planned, as many as the pipeline has.
        batches: the arguments of the function for each micro-batch, of all replicas: the first M
            are for replica 0, the next for replica 1.
        replicas: how many pipelines run side by side.

    Returns:
        In rank 0 the values of all micro-batches and the mean of their gradients; None elsewhere.

    Raises:
        OptionError: if there are not as many processes as devices times replicas, or not as many
            micro-batches as they take.
        ScheduleError, BackendError: as ``run_pipeline``, in the process that it is about; that one
            then ends all others.
    """
    mpi = get_mpi()
    world = mpi.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    devices, count = pipeline.devices, pipeline.micro_batches
    if size != devices * replicas or len(batches) != count * replicas:
        raise OptionError(
            f"{pipeline.name} has {devices} devices and {count} micro-batches; with "
            f"{replicas} replicas that takes {devices * replicas} processes and "
            f"{count * replicas} micro-batches; there are {size} and {len(batches)}"
        )
    if 2 * pipeline.stages * count > world.Get_attr(mpi.TAG_UB):
        raise OptionError(f"{pipeline.name} has more messages than this MPI has tags")
    replica, device = divmod(rank, devices)
    own = batches[replica * count : (replica + 1) * count]
    try:
        check_together(pipeline, stages, own)
        channel = Channel(world.Split(replica, device), pipeline, stages)
        across = world.Split(device, replica)
        reduce = partial(mean_over, across, mpi) if replicas > 1 else None
        program = device_program(pipeline, device, stages, own, channel.post, reduce)
        outcome = driven(program, channel.receive)
        channel.finish()
    except Exception as error:
        # The others wait for messages that will not come.
        print(f"tinyckpt: rank {rank} (device {device}): {error}", file=sys.stderr, flush=True)
        world.Abort(1)
        raise
    outcomes: list[Outcome] | None = world.gather(outcome)
    if outcomes is None:
        return None
    found = [
        gathered(stages, outcomes[begin : begin + devices]) for begin in range(0, size, devices)
    ]
    return PipelineResult([value for each in found for value in each.values], found[0].gradients)


def driven(program: Any, receive: Callable[[Message], list[Any]]) -> Outcome:
    """Run a device's program to its end, giving it each message that it waits for."""
    try:
        wanted = next(program)
        while True:
            wanted = program.send(receive(wanted))
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


def mean_over(communicator: Any, mpi: Any, array: Any) -> Any:
    """Return the mean of an array over the processes of a communicator.

    In float64, or float32 for it and what is smaller; so 16 bits do not overflow in the sum.
    """
    wide = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    total = np.empty_like(wide)
    communicator.Allreduce(wide, total, op=mpi.SUM)
    return (total / communicator.Get_size()).astype(array.dtype)
