"""All processes of a pipeline under MPI meet at rank 0: before they begin, and when they are done.

Before, each says what it was given, as digests, or why it cannot begin. What differs, or fails, is
then one sentence of rank 0, which ends all; and not messages that never come, or replicas that go
on with other parameters each, and no error at all.
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
from tinyckpt.pipeline.channel import wait
from tinyckpt.pipeline.device_program import DeviceState, Outcome
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.resuming import NOBODY, Resumed
from tinyckpt.pipeline.supervising import HEARD, say

Claims = Mapping[str, bytes]
TAG = 1
PIECES = ("gradients", "parameters", "state")  # of an outcome, each sent by itself


class Arrival:
    """A message from a rank that may not be there yet; ``Test`` as requests of MPI have it."""

    def __init__(self, world: Any, rank: int) -> None:
        self.world, self.rank = world, rank
        self.message: Any = None

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        """Whether it has arrived."""
        self.message = self.world.improbe(self.rank, TAG)
        return self.message is not None


def end_all(world: Any) -> NoReturn:
    """End all processes; this one, too, and without another word."""
    sleep(HEARD)
    world.Abort(1)
    os._exit(1)  # some MPIs return, and leave it to the launcher


class Rendezvous:
    """Where all processes meet."""

    def __init__(self, world: Any, devices: int, patience: float) -> None:
        self.world, self.devices, self.patience = world, devices, patience
        self.rank, self.size = int(world.Get_rank()), int(world.Get_size())

    def send(self, rank: int, value: Any, what: str) -> None:
        """Send anything, and wait until it has gone."""
        wait(self.world.isend(value, rank, TAG), self.patience, what)

    def receive(self, rank: int, what: str) -> Any:
        """Wait for what a rank sends."""
        arrival = Arrival(self.world, rank)
        wait(arrival, self.patience, what)
        return arrival.message.recv()

    def agree(self, claims: Claims, trouble: Exception | None) -> None:
        """Go on if all processes were given the same, and none is in trouble; else end all.

        Args:
            claims: what this process was given, as digests.
            trouble: why it cannot begin.
        """
        if trouble is not None and self.size == 1:
            raise trouble
        own = claims, None if trouble is None else str(trouble)
        if self.rank:
            self.send(0, own, "rank 0 to hear what this rank was given")
            self.receive(0, "rank 0 to find out whether all ranks were given the same")
            return
        others = range(1, self.size)
        every = [own, *(self.receive(k, f"rank {k}, which has not come so far") for k in others)]
        if found := disagreement(every, self.devices):
            say(found)
            end_all(self.world)
        for rank in others:
            self.send(rank, None, f"rank {rank} to hear that it may begin")

    def outcomes(self, own: Outcome) -> list[Outcome] | None:
        """Return in rank 0 what all have made; None elsewhere."""
        if self.rank:
            pieces = [(name, *item) for name in PIECES for item in getattr(own, name).items()]
            bare = replace(own, gradients={}, parameters={}, state={})
            for value in (bare, len(pieces), *pieces):  # one copy at a time
                self.send(0, value, "rank 0 to take what this rank made")
            return None
        found = [own]
        for rank in range(1, self.size):
            what = f"what rank {rank} made"
            other = self.receive(rank, what)
            for _ in range(self.receive(rank, what)):
                name, key, array = self.receive(rank, what)
                getattr(other, name)[key] = array
            found.append(other)
        return found


def disagreement(every: Sequence[tuple[Claims, str | None]], devices: int) -> str | None:
    """Return what is wrong with what ranks say they were given; None if nothing is.

    Args:
        every: for each rank its digests, and its trouble, if it has any.
        devices: of a replica.
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
        usual = Counter(said.values()).most_common(1)[0][0]  # the first rank's, of as many
        others = [rank for rank, digest in said.items() if digest != usual]
        if others:
            first = next(rank for rank, digest in said.items() if digest == usual)
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            return (
                f"rank {others[0]} (device {others[0] % devices}){more} was given other {key} than "
                f"rank {first}; all processes have to be called with the same arguments"
            )
    return None


def claims_of(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    worker: DeviceState,
    begin: Resumed | None,
) -> dict[str, bytes]:
    """Return digests of what a process was given, by what it is.

    Args:
        pipeline: of all replicas.
        stages: planned.
        worker: of this process, which has not begun.
        begin: where the optimiser goes on.
    """
    whole, optimizer = stages[0].stage.whole, worker.holding.optimizer
    name = "" if optimizer is None else optimizer.name
    found = {
        "stages": digest(texts_of(stages)),
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


def texts_of(stages: Sequence[PlannedStage]) -> Iterator[str]:
    """Return what tells stages, and their schedules, from others."""
    for each in stages:
        graph = each.stage.graph
        yield from (graph.name, str((each.stage.takes, each.stage.gives)))
        yield from (f"{operator.kind} {operator.inputs}" for operator in graph.operators)
        yield from (str(node.spec) for node in graph.data)
        for step in each.schedule.steps:
            yield str(step.operator if isinstance(step, Compute) else step)


def digest(parts: Any) -> bytes:
    """Return what tells texts and arrays from others."""
    found = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            found.update(f"{len(part)} {part}".encode())
        else:
            found.update(str((part.dtype, part.shape)).encode())
            found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return found.digest()
