"""Pipeline and data parallelism under MPI (mpi4py): one process per device of every replica.

Rank r is device r mod K of replica r div K, for K devices per replica. Activations and cotangents
are sent from rank to rank as bytes, in nonblocking messages; collectives of replicas are MPI's own
all-reduce, reduce-scatter and all-gather. A waiting process polls its request with a pause in
between and gives up after a timeout: otherwise one hanging process would block all others for ever.
Between polls it yields the processor, which MPI's blocking wait does not.

Needs mpi4py and an MPI: ``pip install 'tinyckpt[mpi]'`` brings both.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, NoReturn

import numpy as np

from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.pipeline.data_parallelism import data_parallel, replica_of
from tinyckpt.pipeline.device_executor import DeviceState, Message, Outcome, Program, device_program
from tinyckpt.pipeline.mpi_handshake import Claims, argument_digests, disagreement
from tinyckpt.pipeline.parameter_shards import parameters_of
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.rank_supervisor import STDERR_DELAY, SUPERVISOR_DELAY, launched_rank, say
from tinyckpt.pipeline.run_in_process import (
    MicroBatches,
    PipelineResult,
    check_arguments,
    gather_outcomes,
)
from tinyckpt.pipeline.save_and_resume import checked_state
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.pipeline.zero_state import CollectiveRequest, sum_dtype
from tinyckpt.training.optimizers import Optimizer

DEFAULT_TIMEOUT = 600.0  # default timeout in seconds; no single action should take as long
AT_ONCE, PAUSE = 100, 1e-4  # polls without a pause, and then the seconds between two polls
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
    devices = pipeline.replica_devices
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
    ranks, claims, trouble = Ranks(get_mpi(patience), patience), {}, None
    who = f"rank {ranks.world.Get_rank()}"
    try:
        if replicas != 1:
            pipeline = data_parallel(pipeline, replicas)
        number, device = rank_in(pipeline)
        if 2 * len(stages) * pipeline.micro_batches > ranks.world.Get_attr(ranks.mpi.TAG_UB):
            raise OptionError(f"{pipeline.name} has more messages than this MPI has tags")
        check_arguments(pipeline, stages, batches, optimizer)
        begin = None if state is None else checked_state(state, optimizer, parameters_of(stages))
        worker = DeviceState(
            replica_of(pipeline, number), device, stages,
            MicroBatches(pipeline, batches, number, state),
            ranks.post, number, optimizer, begin,
        )  # fmt: skip
        claims = argument_digests(pipeline, stages, worker, begin)
    except Exception as error:
        if ranks.world.Get_size() == 1:
            raise
        trouble = str(error)
    with ending_all(ranks.world, who):
        ranks.agree(claims, trouble, pipeline.replica_devices)
    with ending_all(ranks.world, f"{who} (device {device})"):
        ranks.split(worker, number)
        outcome = drive(device_program(worker), ranks.deliver)
        outcomes = ranks.gather(part_to_gather(outcome, pipeline, number, collect))
    return (
        None
        if outcomes is None
        else gather_outcomes(pipeline, stages, outcomes, optimizer, collect)
    )


class Ranks:
    """All ranks, seen from one: they agree before the run, exchange arrays in it, gather after it.

    Attributes:
        mpi, world: mpi4py's module, and its communicator of all ranks.
        patience: the timeout of each request in seconds.
        worker: this rank's device; its replica's stages say what it receives, and from where.
        replica, replicas: communicators of the devices of this rank's replica, and of the replicas
            of its device; a rank in them is a device, or a replica.
        underway: sends that have not completed, each with the array that it reads.
    """

    def __init__(self, mpi: Any, patience: float) -> None:
        self.mpi, self.world, self.patience = mpi, mpi.COMM_WORLD, patience
        self.underway: list[tuple[Any, Any]] = []

    def agree(self, claims: Claims, trouble: str | None, devices: int) -> None:
        """Return if all ranks have the same arguments and none has failed; else abort all ranks.

        Args:
            claims: digests of this rank's arguments.
            trouble: the error because of which it cannot start.
            devices: number of devices of a replica.
        """
        wait(self.world.Ibarrier(), self.patience, "all ranks to compare their arguments")
        found = disagreement(self.world.allgather((claims, trouble)), devices)
        if found is not None:
            if self.world.Get_rank() == 0:
                say(found)
                end_all(self.world)
            self.world.Barrier()  # until rank 0 aborts all

    def split(self, worker: DeviceState, number: int) -> None:
        """Form the communicators of a device of a replica."""
        self.worker = worker
        self.replica = self.world.Split(number, worker.device)
        self.replicas = self.world.Split(worker.device, number)

    def tag(self, message: Message) -> int:
        """Return the MPI tag of a message, unique among all messages."""
        place = message.stage * self.worker.pipeline.micro_batches + message.micro_batch
        return 2 * place + message.is_forward

    def post(self, message: Message, arrays: Sequence[Any]) -> None:
        """Start nonblocking sends of arrays, kept alive until the sends complete."""
        self.underway = [pair for pair in self.underway if not pair[0].Test()]
        for array in arrays:
            request = self.replica.Isend(as_bytes(array), message.device, self.tag(message))
            self.underway.append((request, array))

    def receive(self, message: Message) -> list[Any]:
        """Receive the arrays of a message; the graph gives their shapes and dtypes."""
        stage = self.worker.stages[message.stage].stage
        sender = message.stage + (-1 if message.is_forward else 1)
        device = int(self.worker.pipeline.device_of[sender])
        what = "activations" if message.is_forward else "cotangents"
        what += f" of stage {sender}, micro-batch {message.micro_batch}, from device {device}"
        arrays = []
        for data in stage.takes if message.is_forward else stage.takes_back:
            spec = stage.whole.data[data].spec
            array = np.empty(spec.shape, spec.dtype)
            request = self.replica.Irecv(as_bytes(array), device, self.tag(message))
            wait(request, self.patience, f"the {what}")
            arrays.append(array)
        return arrays

    def deliver(self, wanted: Message | CollectiveRequest) -> list[Any]:
        """Return the arrays of a message, or the results of a collective of the replicas."""
        if isinstance(wanted, Message):
            return self.receive(wanted)
        return [self.collective(wanted.kind, np.ascontiguousarray(each)) for each in wanted.arrays]

    def collective(self, kind: str, array: Any) -> Any:
        """Return the mean over replicas, this replica's shard of it, or all shards concatenated."""
        among, count = self.replicas, self.replicas.Get_size()
        others = ", ".join(str(k) for k in range(count) if k != among.Get_rank())
        what = f"a collective of replica {among.Get_rank()} with {others}"
        if kind == "gather":
            found = np.empty(array.size * count, array.dtype)
            wait(among.Iallgather(as_bytes(array), as_bytes(found)), self.patience, what)
            return found
        own = array.astype(sum_dtype(array.dtype))
        if kind == "all_reduce":
            total, begin = np.empty_like(own), among.Iallreduce
        else:
            total, begin = np.empty(own.size // count, own.dtype), among.Ireduce_scatter_block
        wait(begin(own, total, op=self.mpi.SUM), self.patience, what)
        return (total / total.dtype.type(count)).astype(array.dtype)

    def gather(self, own: Outcome) -> list[Outcome] | None:
        """Complete all sends, and gather the outcomes of all ranks at rank 0; None elsewhere."""
        from mpi4py.util import pkl5  # sends arrays beside the pickle, without copies

        for request, _ in self.underway:
            wait(request, self.patience, "the receivers of its messages")
        wait(self.world.Ibarrier(), self.patience, "the results of all ranks")
        found: list[Outcome] | None = pkl5.Intracomm(self.world).gather(own)
        return found


def wait(request: Any, patience: float, what: str) -> None:
    """Wait for a nonblocking MPI request, with a timeout.

    Args:
        request: the request to complete.
        patience: the timeout in seconds.
        what: description of the request, for the error.

    Raises:
        BackendError: if the request takes longer than the timeout.
    """
    for _ in range(AT_ONCE):
        if request.Test():
            return
    begin = monotonic()
    while not request.Test():
        if monotonic() - begin > patience:
            raise BackendError(
                f"waited {patience:g} s for {what}: that process hangs, or waits itself; increase "
                "patience if an action may take that long"
            )
        sleep(PAUSE)


def as_bytes(array: Any) -> Any:
    """Return a C-contiguous array's memory as bytes: MPI lacks datatypes for some dtypes."""
    return array.reshape(-1).view(np.uint8)


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


def end_all(world: Any) -> NoReturn:
    """Abort all ranks, this one included."""
    sleep(STDERR_DELAY)
    world.Abort(1)
    os._exit(1)  # in some MPIs Abort returns, and leaves the rest to the launcher


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


def drive(program: Program, deliver: Callable[[Message | CollectiveRequest], Any]) -> Outcome:
    """Drive a device's coroutine to its end: send it the arrays of each request that it yields."""
    try:
        wanted = next(program)
        while True:
            wanted = program.send(deliver(wanted))
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
