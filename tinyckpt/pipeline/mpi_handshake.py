"""Startup check that all MPI ranks have the same arguments, by digests (BLAKE2b).

Before the run, ranks exchange digests of their arguments, or the reason why they cannot start. A
difference or a failure then is one message from rank 0, which aborts all ranks. Without it, it
would be a message that never arrives; or replicas that train different parameters, and no error at
all. The exchange itself is in ``mpi``; this needs no MPI.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from tinyckpt.base.tree import leaves
from tinyckpt.pipeline.device_executor import DeviceState
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.save_and_resume import NOBODY, Resumed
from tinyckpt.pipeline.stage_schedules import PlannedStage

Claims = Mapping[str, bytes]


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
        "stages": digest(
            text
            for each in stages
            for text in (str(each.stage.graph), str(each.stage.gives), repr(each.schedule.steps))
        ),
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
