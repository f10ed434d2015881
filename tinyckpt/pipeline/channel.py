"""How the processes of a pipeline under MPI talk to each other, and how long they wait.

A process that waits asks again and again, with a pause, and gives up after some time: one that
hangs would otherwise keep all others for ever. Between its questions it leaves the processor to
others, which MPI's own waiting does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np

from tinyckpt.base.errors import BackendError
from tinyckpt.pipeline.device_program import Message
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.zero_state import Exchange

PATIENCE = 600.0  # seconds that no single action should take
AT_ONCE, PAUSE = 100, 1e-4  # questions without a pause, and then the seconds between two


def wait(request: Any, patience: float, what: str) -> None:
    """Wait for a request of MPI.

    Args:
        request: for what.
        patience: seconds.
        what: it is, for the error.

    Raises:
        BackendError: if it takes longer.
    """
    for _ in range(AT_ONCE):
        if request.Test():
            return
    begin = monotonic()
    while not request.Test():
        if monotonic() - begin > patience:
            raise BackendError(
                f"waited {patience:g} s for {what}: that process hangs, or waits itself; be more "
                "patient if an action may take that long"
            )
        sleep(PAUSE)


class Channel:
    """Sends and receives the arrays of messages between the devices of one replica."""

    def __init__(
        self,
        communicator: Any,
        pipeline: Pipeline,
        stages: Sequence[PlannedStage],
        patience: float = PATIENCE,
    ) -> None:
        self.communicator, self.pipeline, self.stages = communicator, pipeline, stages
        self.patience = patience
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
            request = self.communicator.Irecv(as_bytes(array), device, self.tag(message))
            what = "activations" if message.is_forward else "cotangents"
            wait(
                request, self.patience, f"the {what} of stage {sender}, micro-batch "
                f"{message.micro_batch}, from device {device}",
            )  # fmt: skip
            arrays.append(array)
        return arrays

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        for request, _ in self.underway:
            wait(request, self.patience, "others to take what was sent to them")
        self.underway = []


def as_bytes(array: Any) -> Any:
    """Return the memory of an array in C order as bytes, of whatever dtype: MPI has not all."""
    return array.reshape(-1).view(np.uint8)


class Across:
    """Does with MPI's own collectives what the replicas of a device do together.

    Means are taken in float64, or float32 for it and what is smaller; so 16 bits do not overflow.
    """

    def __init__(self, mpi: Any, communicator: Any, patience: float = PATIENCE) -> None:
        self.mpi, self.communicator, self.patience = mpi, communicator, patience

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
        self.met(self.communicator.Iallreduce(self.mpi.IN_PLACE, total, op=self.mpi.SUM))
        return self.mean(total, array.dtype)

    def reduce_scatter(self, array: Any) -> Any:
        """Return this replica's share of the mean."""
        wide = widened(array)
        total = np.empty(array.size // self.communicator.Get_size(), wide.dtype)
        self.met(self.communicator.Ireduce_scatter_block(wide, total, op=self.mpi.SUM))
        return self.mean(total, array.dtype)

    def gather(self, share: Any) -> Any:
        """Return the shares of all replicas, one behind the other."""
        flat = np.empty(share.size * self.communicator.Get_size(), share.dtype)
        self.met(self.communicator.Iallgather(as_bytes(share), as_bytes(flat)))
        return flat

    def met(self, request: Any) -> None:
        """Wait for a collective to end."""
        own, count = self.communicator.Get_rank(), self.communicator.Get_size()
        others = ", ".join(str(number) for number in range(count) if number != own)
        wait(request, self.patience, f"what replica {own} does together with {others}")

    def mean(self, total: Any, dtype: Any) -> Any:
        """Return a sum as a mean, in the dtype that was asked for."""
        return (total / total.dtype.type(self.communicator.Get_size())).astype(dtype)


def widened(array: Any) -> Any:
    """Return a copy that can be added up."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)
