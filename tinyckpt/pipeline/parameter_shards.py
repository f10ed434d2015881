"""Parameter sharding for ZeRO: each stage's parameters, as flat, padded shards of arrays.

A stage *updates* the parameters whose gradients it computes, and *reads* those that its operators
take; nearly always the same. A shard is a contiguous piece of the flattened array, of equal length
on every replica: the array is padded with zeros at its end. Sharded updates are right only for
optimisers that are elementwise, which ``check_by_element`` tests on their graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.core.tracing import build
from tinyckpt.ops.elementwise import ELEMENTWISE
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.training.optimizers import Optimizer

# Elementwise operators, those of optimisers included.
BY_ELEMENT = {*ELEMENTWISE, "adam_step", "descend", "moving_average", "moving_square", "moving_sum"}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of all stages, by data ids of the whole graph.

    Attributes:
        whole: the graph that the stages were cut from.
        updates: for every stage the (parameter, gradient) pairs whose gradient it computes.
        makes: for every stage the gradients that it computes, each once.
        reads: for every stage the parameters that it reads.
    """

    whole: TrainingGraph
    updates: tuple[tuple[tuple[int, int], ...], ...]
    makes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]

    def of_device(self, pipeline: Pipeline, device: int) -> list[int]:
        """Return the parameters that a device of a replica reads or updates."""
        own = pipeline.stages_on(device)
        found = {data for stage in own for data in self.reads[stage]}
        found.update(data for stage in own for data, _ in self.updates[stage])
        return sorted(found)

    def spec(self, data: int) -> Spec:
        """Return the shape and dtype of a value."""
        return self.whole.data[data].spec


def parameters_of(stages: Sequence[PlannedStage]) -> Parameters:
    """Return the parameters that each stage reads and updates.

    Raises:
        GraphError: if gradients were not taken with respect to the first argument alone.
    """
    whole = stages[0].stage.whole
    parameters, gradients = leaves(whole.arguments[0]), leaves(whole.gradients)
    every = [node.id for node in whole.data if node.role == "parameter"]
    if sorted(parameters) != every or len(parameters) != len(gradients):
        raise GraphError(
            f"{whole.name}: an optimiser updates the first argument; take the gradient with "
            "respect to that, and to nothing else"
        )
    pairs = list(zip(parameters, gradients, strict=True))
    updates = [tuple(pair for pair in pairs if pair[1] in own.stage.outputs) for own in stages]
    reads = [tuple(data for data in parameters if data in own.stage.local) for own in stages]
    makes = [tuple(dict.fromkeys(gradient for _, gradient in own)) for own in updates]
    return Parameters(whole, tuple(updates), tuple(makes), tuple(reads))


def share_spec(spec: Spec, replicas: int) -> Spec:
    """Return the spec of an array's shard; with one replica, of the flat array.

    >>> share_spec(Spec((3, 5), "float32"), 4)
    Spec(shape=(4,), dtype=dtype('float32'))
    """
    return Spec((-(-prod(spec.shape) // replicas),), spec.dtype)


def padded(array: Any, replicas: int) -> Any:
    """Return a flat copy of an array, zero-padded to a multiple of the replicas."""
    found = np.zeros(-(-array.size // replicas) * replicas, array.dtype)
    found[: array.size] = array.reshape(-1)
    return found


def share_of(array: Any, replicas: int, number: int) -> Any:
    """Return a copy of an array's shard for one replica."""
    flat = padded(array, replicas)
    size = flat.size // replicas
    return flat[number * size : (number + 1) * size].copy()


def whole_of(flat: Any, spec: Spec) -> Any:
    """Restore an array from its concatenated shards: drop the padding, and reshape."""
    return flat[: prod(spec.shape)].reshape(spec.shape)


def update_of(optimizer: Optimizer) -> Any:
    """Return an optimiser's update of flat arrays as a function to be traced."""

    def update(gradients: Any, state: Any, parameters: Any, step: Any) -> Any:
        if (dtype := optimizer.gradient_dtype) is not None:
            gradients = map_leaves(lambda g: g.astype(dtype), gradients)
        return optimizer.update(gradients, state, parameters, step)

    return update


def check_by_element(optimizer: Optimizer, parameters: Parameters) -> None:
    """Raise an OptionError unless an optimiser is elementwise, so that shards update separately."""
    specs = [share_spec(parameters.spec(data), 1) for data in leaves(parameters.whole.arguments[0])]
    state = optimizer.init(specs)
    graph: Graph = build(update_of(optimizer), specs, state, specs, Spec((), "int64"))
    for operator in graph.operators:
        shapes = [graph.data[data].spec.shape for data in (*operator.inputs, *operator.outputs)]
        if operator.kind not in BY_ELEMENT and any(shapes):
            raise OptionError(
                f"{optimizer.name}: {operator.name} looks across elements, and a replica has only "
                "a shard of them; expected an elementwise optimiser"
            )
