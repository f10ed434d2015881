"""MPI transport of a pipeline: nonblocking send and receive, and collectives, with timeouts.

``Channel`` moves activations and cotangents between the devices of one replica; ``MpiCollectives``
averages gradients and gathers parameters over the replicas of one device. A waiting process polls
its request with a pause in between and gives up after a timeout: otherwise one hanging process
would block all others for ever. Between polls it yields the processor, which MPI's blocking wait
does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np

from tinyckpt.base.errors import BackendError
from tinyckpt.pipeline.device_executor import Message
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.pipeline.zero_state import CollectiveRequest

DEFAULT_TIMEOUT = 600.0  # default timeout in seconds; no single action should take as long
AT_ONCE, PAUSE = 100, 1e-4  # polls without a pause, and then the seconds between two polls


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


class Channel:
    """Point-to-point messages between the devices of one replica.

    Attributes:
        communicator: MPI's, of the replica; a rank in it is a device.
        pipeline, stages: say which device holds a stage, and the shapes of what it receives.
        patience: the timeout of each request in seconds.
        underway: sends that have not completed, each with the array that it reads.
    """

    def __init__(
        self,
        communicator: Any,
        pipeline: Pipeline,
        stages: Sequence[PlannedStage],
        patience: float = DEFAULT_TIMEOUT,
    ) -> None:
        self.communicator, self.pipeline, self.stages = communicator, pipeline, stages
        self.patience = patience
        self.underway: list[tuple[Any, Any]] = []

    def tag(self, message: Message) -> int:
        """Return the MPI tag of a message, unique among all messages."""
        place = message.stage * self.pipeline.micro_batches + message.micro_batch
        return 2 * place + message.is_forward

    def post(self, message: Message, arrays: Sequence[Any]) -> None:
        """Start nonblocking sends of arrays, kept alive until the sends complete."""
        self.underway = [pair for pair in self.underway if not pair[0].Test()]
        for array in arrays:
            request = self.communicator.Isend(as_bytes(array), message.device, self.tag(message))
            self.underway.append((request, array))

    def receive(self, message: Message) -> list[Any]:
        """Receive the arrays of a message; the graph gives their shapes and dtypes."""
        stage = self.stages[message.stage].stage
        sender = message.stage + (-1 if message.is_forward else 1)
        device = int(self.pipeline.device_of[sender])
        arrays = []
        for data in stage.takes if message.is_forward else stage.takes_back:
            spec = stage.whole.data[data].spec
            array = np.empty(spec.shape, spec.dtype)
            request = self.communicator.Irecv(as_bytes(array), device, self.tag(message))
            what = "activations" if message.is_forward else "cotangents"
            wait(
                request, self.patience, f"the {what} of stage {sender}, micro-batch "
                f"{message.micro_batch}, from device {device}",
            )  # fmt: skip
            arrays.append(array)
        return arrays

    def finish(self) -> None:
        """Wait until every send has completed."""
        for request, _ in self.underway:
            wait(request, self.patience, "the receivers of its messages")
        self.underway = []


def as_bytes(array: Any) -> Any:
    """Return a C-contiguous array's memory as bytes: MPI lacks datatypes for some dtypes."""
    return array.reshape(-1).view(np.uint8)


class MpiCollectives:
    """Collectives between the replicas of a device, as MPI's own.

    Means accumulate in float64 for float64 arrays, and in float32 for all others, so that sums of
    16-bit floats do not overflow.
    """

    def __init__(self, mpi: Any, communicator: Any, patience: float = DEFAULT_TIMEOUT) -> None:
        self.mpi, self.communicator, self.patience = mpi, communicator, patience

    def exchange(self, own: CollectiveRequest) -> list[Any]:
        """Run a collective on this replica's arrays, and return its results."""
        collective = {
            "all_reduce": self.all_reduce,
            "reduce_scatter": self.reduce_scatter,
            "gather": self.gather,
        }[own.kind]
        return [collective(np.ascontiguousarray(array)) for array in own.arrays]

    def all_reduce(self, array: Any) -> Any:
        """Return the mean over replicas (all-reduce)."""
        total = in_sum_dtype(array)
        self.met(self.communicator.Iallreduce(self.mpi.IN_PLACE, total, op=self.mpi.SUM))
        return self.mean(total, array.dtype)

    def reduce_scatter(self, array: Any) -> Any:
        """Return this replica's shard of the mean (reduce-scatter)."""
        wide = in_sum_dtype(array)
        total = np.empty(array.size // self.communicator.Get_size(), wide.dtype)
        self.met(self.communicator.Ireduce_scatter_block(wide, total, op=self.mpi.SUM))
        return self.mean(total, array.dtype)

    def gather(self, share: Any) -> Any:
        """Return the concatenated shards of all replicas (all-gather)."""
        flat = np.empty(share.size * self.communicator.Get_size(), share.dtype)
        self.met(self.communicator.Iallgather(as_bytes(share), as_bytes(flat)))
        return flat

    def met(self, request: Any) -> None:
        """Wait for a collective to complete."""
        own, count = self.communicator.Get_rank(), self.communicator.Get_size()
        others = ", ".join(str(number) for number in range(count) if number != own)
        wait(request, self.patience, f"a collective of replica {own} with {others}")

    def mean(self, total: Any, dtype: Any) -> Any:
        """Divide a sum by the number of replicas, and cast it to the requested dtype."""
        return (total / total.dtype.type(self.communicator.Get_size())).astype(dtype)


def in_sum_dtype(array: Any) -> Any:
    """Return a copy in the dtype that sums accumulate in: float64 or float32."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)
