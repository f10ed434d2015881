"""Who holds which parameters, and which share of an array is whose.

A stage *updates* the parameters whose gradients it makes, and *reads* those that its operators
take; nearly always the same. A share is a stretch of the flat array, as long on every replica: the
last ones are padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tinyckpt.approx.following import ELEMENTWISE
from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.graph import Graph, Spec, TrainingGraph
from tinyckpt.core.tracing import build
from tinyckpt.pipeline.parts import PlannedStage
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.training.optimizers import Optimizer

# What optimisers do to an element of their state, and the same element of others.
BY_ELEMENT = {*ELEMENTWISE, "adam_step", "descend", "moving_average", "moving_square", "moving_sum"}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of stages, by their ids in the whole graph.

    Attributes:
        whole: the graph that the stages were cut from.
        updates: for every stage pairs of a parameter and its gradient, which the stage makes.
        makes: for every stage the gradients that it makes, each once.
        reads: for every stage the parameters that it reads.
    """

    whole: TrainingGraph
    updates: tuple[tuple[tuple[int, int], ...], ...]
    makes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]

    def of_device(self, pipeline: Pipeline, device: int) -> list[int]:
        """Return the parameters that a device of a replica has to do with."""
        own = [k for k in range(len(self.reads)) if pipeline.device_of[k] == device]
        found = {data for stage in own for data in self.reads[stage]}
        found.update(data for stage in own for data, _ in self.updates[stage])
        return sorted(found)

    def spec(self, data: int) -> Spec:
        """Return the shape and dtype of a value."""
        return self.whole.data[data].spec


def parameters_of(stages: Sequence[PlannedStage]) -> Parameters:
    """Return who updates and who reads the parameters.

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
    """Return what a share of an array is; of one replica, the flat array.

    >>> share_spec(Spec((3, 5), "float32"), 4)
    Spec(shape=(4,), dtype=dtype('float32'))
    """
    return Spec((-(-prod(spec.shape) // replicas),), spec.dtype)


def padded(array: Any, replicas: int) -> Any:
    """Return a flat copy of an array, with zeros behind it so that all shares are as long."""
    found = np.zeros(-(-array.size // replicas) * replicas, array.dtype)
    found[: array.size] = array.reshape(-1)
    return found


def share_of(array: Any, replicas: int, number: int) -> Any:
    """Return the share of a replica; a copy."""
    flat = padded(array, replicas)
    size = flat.size // replicas
    return flat[number * size : (number + 1) * size].copy()


def whole_of(flat: Any, spec: Spec) -> Any:
    """Return the array whose shares stand one behind the other."""
    return flat[: prod(spec.shape)].reshape(spec.shape)


def update_of(optimizer: Optimizer) -> Any:
    """Return what an optimiser does to some flat arrays, as a function to be traced."""

    def update(gradients: Any, state: Any, parameters: Any, step: Any) -> Any:
        if (dtype := optimizer.gradient_dtype) is not None:
            gradients = map_leaves(lambda g: g.astype(dtype), gradients)
        return optimizer.update(gradients, state, parameters, step)

    return update


def check_by_element(optimizer: Optimizer, parameters: Parameters) -> None:
    """Raise an OptionError if a share cannot be updated without the others."""
    specs = [share_spec(parameters.spec(data), 1) for data in leaves(parameters.whole.arguments[0])]
    state = optimizer.init(specs)
    graph: Graph = build(update_of(optimizer), specs, state, specs, Spec((), "int64"))
    for operator in graph.operators:
        shapes = [graph.data[data].spec.shape for data in (*operator.inputs, *operator.outputs)]
        if operator.kind not in BY_ELEMENT and any(shapes):
            raise OptionError(
                f"{optimizer.name}: {operator.name} looks across elements, and a replica has a "
                "share of them; an optimiser is legal here if it takes each element by itself"
            )
