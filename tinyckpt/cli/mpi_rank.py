"""``tinyckpt pipe`` under an MPI launcher: one rank of the pipeline, on random arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.networks import random_arrays
from tinyckpt.networks.machine_memory import check_memory
from tinyckpt.pipeline import (
    Pipeline,
    PipelineResult,
    PlannedStage,
    replay_state,
    run_pipeline_mpi,
)
from tinyckpt.pipeline.device_executor import needed_by
from tinyckpt.pipeline.mpi import get_mpi
from tinyckpt.training import Optimizer, sgd

# Launchers' variables for the number of ranks on this machine: MPICH, Open MPI.
LOCAL_NAMES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
MOST_BATCHES = 10_000_000  # micro-batches of all steps: each has results, about 100 bytes


class RandomMicroBatches(Sequence[Any]):
    """Lazy sequence of each micro-batch's arguments, generated at the first access and memoised.

    Parameters are those of ``Network.arrays()``, and the n-th micro-batch has the seed n + 1: the
    same in every process, whatever their number, and in every step. Arrays that this process does
    not read are views of one zero.
    """

    def __init__(
        self,
        specs: Any,
        pipeline: Pipeline,
        stages: Sequence[PlannedStage],
        place: tuple[int, int],
        steps: int = 1,
        lasting: bool = True,
    ) -> None:
        """Store the specs and the pipeline; nothing is generated yet.

        Args:
            specs: of the arguments, the parameters first.
            pipeline: of all replicas.
            stages: of one replica.
            place: replica and device of this process.
            steps: training steps, each with the same batch.
            lasting: whether every micro-batch has the parameters; otherwise only the first has
                them, and the process keeps its shard.
        """
        self.specs, self.lasting = tuple(specs), lasting
        self.batch = pipeline.micro_batches * pipeline.replicas
        self.total, self.first = self.batch * steps, place[0] * pipeline.micro_batches
        # Positions of the leaves of the arguments that this process reads.
        read = needed_by(stages[k] for k in pipeline.stages_on(place[1]))
        ids = leaves(stages[0].stage.whole.arguments)
        self.needed = {position for position, data in enumerate(ids) if data in read}
        self.known: dict[int, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return self.total

    @cached_property
    def parameters(self) -> Any:
        """The parameters, memoised."""
        return random_arrays(self.specs[0], needed=self.needed)

    def __getitem__(self, number: Any) -> Any:
        if self.lasting:
            parameters = self.parameters
        elif number == self.first:
            parameters = random_arrays(self.specs[0], needed=self.needed)
        else:
            parameters = map_leaves(
                lambda spec: np.broadcast_to(np.zeros((), spec.dtype), spec.shape), self.specs[0]
            )
        place = number % self.batch
        if place not in self.known:
            first = len(leaves(self.specs[0]))  # the first leaf that is data
            own = {leaf - first for leaf in self.needed if leaf >= first}
            # Seed 0 is the parameters': data with it would repeat their random numbers.
            self.known[place] = random_arrays(self.specs[1:], place + 1, own)
        return (parameters, *self.known[place])


def run_rank(
    pipeline: Pipeline,
    stages: tuple[PlannedStage, ...],
    specs: Any,
    optimizer: Optimizer | None,
    steps: int,
    patience: float,
) -> int:
    """Execute this process's device on random arrays; rank 0 prints the result.

    Raises:
        OptionError: if there are too many steps.
        BackendError: if this machine has too little memory.
    """
    count = pipeline.micro_batches * pipeline.replicas
    if steps * count > MOST_BATCHES:
        raise OptionError(
            f"{steps:,} steps of {count:,} micro-batches; at most {MOST_BATCHES:,} micro-batches "
            "total"
        )
    processes = processes_here(os.environ)
    needed = processes * estimate(pipeline, stages, optimizer)
    check_memory(f"{processes} of the pipeline's processes take about", needed)
    lasting = optimizer is None and pipeline.zero < 3
    # ``run_pipeline_mpi`` refuses a wrong number of processes, once for all ranks.
    rank = int(get_mpi(patience).COMM_WORLD.Get_rank())
    place = divmod(rank, pipeline.replica_devices)
    batches = RandomMicroBatches(specs, pipeline, stages, place, steps, lasting)
    begin = perf_counter()
    result = run_pipeline_mpi(
        pipeline, stages, batches, 1, optimizer, patience, collect=optimizer is None
    )
    if result is not None:
        name = "" if optimizer is None else optimizer.name
        what = f"{pipeline.name} of {stages[0].stage.whole.name}"
        zero = f", ZeRO-{pipeline.zero}," if pipeline.zero else ""
        head = f"{what}{zero} in {pipeline.devices} process{'es' * (pipeline.devices > 1)}"
        print(f"{head}: {report(result, count, name)}, {1000 * (perf_counter() - begin):.1f} ms")
    return 0


def report(result: PipelineResult, count: int, optimizer: str) -> str:
    """Format the result of a run: losses by step, or loss and gradient norm.

    Args:
        result: of all steps.
        count: micro-batches per step.
        optimizer: its name; empty if there is none.
    """
    losses = [float(found[0]) for value in result.values if (found := leaves(value))]
    means = [np.mean(losses[k : k + count]) for k in range(0, len(losses), count)]
    if not optimizer:
        norm = np.sqrt(sum(float((array**2).sum()) for array in leaves(result.gradients)))
        loss = f"loss {means[0]:.12g}, " if means else ""
        return f"{loss}norm of the gradient {norm:.12g}; no optimizer"
    lines = [f"step {number}: loss {mean:.12g}" for number, mean in enumerate(means, 1)]
    return "\n".join(
        [f"trained by {optimizer}", *lines, f"{len(means)} step{'s' * (len(means) > 1)}"]
    )


# Memory -------------------------------------------------------------------------------------------


def estimate(
    pipeline: Pipeline, stages: Sequence[PlannedStage], optimizer: Optimizer | None
) -> int:
    """Return the largest memory of a process, in bytes: its simulated peak plus its arguments."""
    whole = stages[0].stage.whole
    try:
        counted = max(replay_state(pipeline, stages, optimizer or sgd(0.0)).peaks)
    except GraphError:  # a graph without parameter arguments, which still has gradients
        counted = max(each.footprint.backward + each.fixed_bytes for each in stages)
    most = 0
    for device in range(pipeline.replica_devices):
        own = pipeline.stages_on(device)
        read = needed_by(stages[k] for k in own)
        of_batch = {data for data in leaves(whole.arguments[1:]) if data in read}
        of_parameters = {data for data in leaves(whole.arguments[0]) if data in read}
        most = max(
            most,
            sum(whole.data[data].nbytes for data in of_parameters)
            + pipeline.micro_batches * sum(whole.data[data].nbytes for data in of_batch),
        )
    return counted + most


def processes_here(environment: Mapping[str, str]) -> int:
    """Return the number of this machine's processes by the launcher's variables; 1 without."""
    numbers = [environment.get(name, "") for name in LOCAL_NAMES]
    return next((int(text) for text in numbers if text.isdecimal()), 1)
