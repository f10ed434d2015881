"""``tinyckpt pipe`` under a launcher of MPI: one rank of it, on random arrays."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tinyckpt.networks import random_arrays
from tinyckpt.pipeline import Pipeline, PlannedStage, rank_in, run_pipeline_mpi
from tinyckpt.pipeline.working import needed_by
from tinyckpt.tree import leaves


class Drawn(Sequence[Any]):
    """The arguments for each micro-batch, drawn when they are looked up, and once.

    Parameters are those of ``Network.arrays()``, and the n-th micro-batch has the seed n + 1: the
    same in every process, however many there are. What this process does not need is a view of one
    zero.
    """

    def __init__(self, specs: Any, count: int, needed: set[int]) -> None:
        """Take what there is to draw.

        Args:
            specs: of the arguments, the parameters first.
            count: of micro-batches, of all replicas.
            needed: leaves of the arguments that this process reads, by their place.
        """
        self.specs, self.size = tuple(specs), count
        behind = len(leaves(self.specs[0]))
        self.of_batch = {place - behind for place in needed if place >= behind}
        self.parameters = random_arrays(self.specs[0], needed=needed)
        self.known: dict[int, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> Any:
        if number not in self.known:
            seed = number + 1  # with 0, data would have the numbers of the parameters
            self.known[number] = random_arrays(self.specs[1:], seed, self.of_batch)
        return (self.parameters, *self.known[number])


def run_rank(
    pipeline: Pipeline, stages: tuple[PlannedStage, ...], specs: Any, patience: float
) -> int:
    """Run this process's device on random arrays; rank 0 says what came out."""
    _, device = rank_in(pipeline)
    own = [stages[k] for k in np.flatnonzero(pipeline.device_of == device).tolist()]
    ids, read = leaves(stages[0].stage.whole.arguments), needed_by(own)
    needed = {place for place, data in enumerate(ids) if data in read}
    batches = Drawn(specs, pipeline.micro_batches * pipeline.replicas, needed)
    begin = perf_counter()
    result = run_pipeline_mpi(pipeline, stages, batches, patience=patience)
    if result is not None:
        losses = [float(found[0]) for value in result.values if (found := leaves(value))]
        loss = f"loss {np.mean(losses):.12g}, " if losses else ""
        norm = np.sqrt(sum(float((array**2).sum()) for array in leaves(result.gradients)))
        print(
            f"{pipeline.name} of {stages[0].stage.whole.name}"
            f"{f', ZeRO-{pipeline.zero},' if pipeline.zero else ''} in "
            f"{pipeline.devices} processes: {loss}norm of the "
            f"gradient {norm:.12g}, {1000 * (perf_counter() - begin):.1f} ms"
        )
    return 0
