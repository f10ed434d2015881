"""Startup check that all MPI ranks have the same arguments, by digests; gathering of results.

Before the run, each rank sends digests (BLAKE2b) of its arguments, or the reason why it cannot
start. A difference or a failure then is one message from rank 0, which aborts all ranks. Without
the handshake it would be a message that never arrives; or replicas that train different parameters,
and no error at all. After the run, rank 0 gathers the results of all ranks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from time import sleep
from typing import Any, NoReturn

import numpy as np

from tinyckpt.base.tree import leaves
from tinyckpt.core.schedule import Compute
from tinyckpt.pipeline.device_executor import DeviceState, Outcome
from tinyckpt.pipeline.mpi_transport import wait
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.rank_supervisor import STDERR_DELAY, say
from tinyckpt.pipeline.save_and_resume import NOBODY, Resumed
from tinyckpt.pipeline.stage_schedules import PlannedStage

Claims = Mapping[str, bytes]
TAG = 1
PIECES = (
    "gradients",
    "parameters",
    "state",
)  # fields of an Outcome whose arrays are sent one by one


class Arrival:
    """A probe for a message that may not have arrived, with ``Test`` like a request of MPI."""

    def __init__(self, world: Any, rank: int) -> None:
        self.world, self.rank = world, rank
        self.message: Any = None

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        """Whether the message has arrived."""
        self.message = self.world.improbe(self.rank, TAG)
        return self.message is not None


def end_all(world: Any) -> NoReturn:
    """Abort all ranks, this one included."""
    sleep(STDERR_DELAY)
    world.Abort(1)
    os._exit(1)  # in some MPIs Abort returns, and leaves the rest to the launcher


class Rendezvous:
    """Rank 0 as coordinator of all ranks: agreement before the run, gathering after it."""

    def __init__(self, world: Any, devices: int, patience: float) -> None:
        self.world, self.devices, self.patience = world, devices, patience
        self.rank, self.size = int(world.Get_rank()), int(world.Get_size())

    def send(self, rank: int, value: Any, what: str) -> None:
        """Send a picklable value, and wait for the send to complete."""
        wait(self.world.isend(value, rank, TAG), self.patience, what)

    def receive(self, rank: int, what: str) -> Any:
        """Receive a value from a rank."""
        arrival = Arrival(self.world, rank)
        wait(arrival, self.patience, what)
        return arrival.message.recv()

    def agree(self, claims: Claims, trouble: Exception | None) -> None:
        """Return if all ranks have the same arguments and none has failed; else abort all ranks.

        Args:
            claims: digests of this rank's arguments.
            trouble: the error because of which it cannot start.
        """
        if trouble is not None and self.size == 1:
            raise trouble
        own = claims, None if trouble is None else str(trouble)
        if self.rank:
            self.send(0, own, "rank 0 to receive the digests of this rank")
            self.receive(0, "rank 0 to compare the arguments of all ranks")
            return
        others = range(1, self.size)
        every = [own, *(self.receive(k, f"rank {k}, which has not arrived") for k in others)]
        if found := disagreement(every, self.devices):
            say(found)
            end_all(self.world)
        for rank in others:
            self.send(rank, None, f"rank {rank} to receive the start signal")

    def outcomes(self, own: Outcome) -> list[Outcome] | None:
        """Gather the outcomes of all ranks at rank 0; return None elsewhere."""
        if self.rank:
            pieces = [(name, *item) for name in PIECES for item in getattr(own, name).items()]
            bare = replace(own, gradients={}, parameters={}, state={})
            for value in (bare, len(pieces), *pieces):  # pickles one array at a time
                self.send(0, value, "rank 0 to receive the results of this rank")
            return None
        found = [own]
        for rank in range(1, self.size):
            what = f"the results of rank {rank}"
            other = self.receive(rank, what)
            for _ in range(self.receive(rank, what)):
                name, key, array = self.receive(rank, what)
                getattr(other, name)[key] = array
            found.append(other)
        return found


def disagreement(every: Sequence[tuple[Claims, str | None]], devices: int) -> str | None:
    """Return the error message about failed ranks or differing arguments; None if all agree.

    Differing arguments are found by majority: the rank named is one that disagrees with most.

    Args:
        every: for each rank its digests, and its error message or None.
        devices: number of devices of a replica.
    """
    troubles = {rank: text for rank, (_, text) in enumerate(every) if text is not None}
    if len(troubles) == len(every) and len(set(troubles.values())) == 1:
        return troubles[0]
    if troubles:
        rank, text = next(iter(troubles.items()))
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        return f"rank {rank} (device {rank % devices}){more}: {text}"
    for key in dict.fromkeys(key for claims, _ in every for key in claims):
        said = {rank: claims[key] for rank, (claims, _) in enumerate(every) if key in claims}
        usual = Counter(said.values()).most_common(1)[0][0]  # in a tie, that of the first rank
        others = [rank for rank, digest in said.items() if digest != usual]
        if others:
            first = next(rank for rank, digest in said.items() if digest == usual)
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            return (
                f"rank {others[0]} (device {others[0] % devices}){more} was given other {key} than "
                f"rank {first}; all processes must be called with the same arguments"
            )
    return None


def argument_digests(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    worker: DeviceState,
    begin: Resumed | None,
) -> dict[str, bytes]:
    """Return digests of a rank's arguments, by their description.

    Args:
        pipeline: of all replicas.
        stages: planned.
        worker: this rank's device, which has not started.
        begin: the optimiser state to resume from.
    """
    whole, optimizer = stages[0].stage.whole, worker.holding.optimizer
    name = "" if optimizer is None else optimizer.name
    found = {
        "stages": digest(serialised(stages)),
        "actions": digest([pipeline.kind, pipeline.stage, pipeline.micro_batch, pipeline.first]),
        "numbers of micro-batches": digest([str((pipeline.micro_batches, len(worker.batches)))]),
        "optimizers": digest([name]),
    }
    ids = set(leaves(whole.arguments[0]))
    parameters = {data: array for data, array in worker.sources[0].items() if data in ids}
    for data, array in parameters.items():
        found[f"numbers in {whole.data[data].name}"] = digest([array])
    if begin is not None:
        found["numbers of steps taken"] = digest([str(begin.step)])
        for slot, array in begin.arrays.items():
            of = "" if slot.data == NOBODY else f" of {whole.data[slot.data].name}"
            if slot.data == NOBODY or slot.data in parameters:
                found[f"numbers in the optimizer's state{of}, array {slot.number}"] = digest(
                    [array]
                )
    return found


def serialised(stages: Sequence[PlannedStage]) -> Iterator[str]:
    """Yield a text serialisation of stages and their schedules, for a digest."""
    for each in stages:
        graph = each.stage.graph
        yield from (graph.name, str((each.stage.takes, each.stage.gives)))
        yield from (f"{operator.kind} {operator.inputs}" for operator in graph.operators)
        yield from (str(node.spec) for node in graph.data)
        for step in each.schedule.steps:
            yield str(step.operator if isinstance(step, Compute) else step)


def digest(parts: Any) -> bytes:
    """Return the BLAKE2b digest of texts and arrays, shapes and dtypes included."""
    found = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            found.update(f"{len(part)} {part}".encode())
        else:
            found.update(str((part.dtype, part.shape)).encode())
            found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return found.digest()
