"""Small multilayer networks: for each, a loss function and specs of its arguments.

A network is shapes until ``arrays`` draws numbers for it, so that one too large for this machine
can still be planned, replayed and drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import fill, leaves, leaves_with_paths, map_leaves
from tinyckpt.core.autodiff import differentiate
from tinyckpt.core.graph import Spec, TrainingGraph
from tinyckpt.core.tracing import build, scope
from tinyckpt.networks.memory import check_memory
from tinyckpt.ops.activation import gelu, relu, sigmoid, tanh
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import concatenate

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu": gelu, "relu": relu, "sigmoid": sigmoid, "tanh": tanh,
}  # fmt: skip
# What a parameter of a name begins with: factors with 1, what is added with 0.
CONSTANTS = {"scale": 1.0, "shift": 0.0, "b": 0.0, "mean": 0.0, "variance": 1.0}
# The standard deviation of embeddings, as in BERT and GPT-2.
DEVIATIONS = {"tokens": 0.02, "positions": 0.02, "types": 0.02, "class": 0.02}


@dataclass(frozen=True, slots=True)
class Network:
    """A loss function with specs of its arguments; the first argument holds the parameters.

    Attributes:
        name: what pictures and tables call it.
        loss: ``loss(params, *inputs)`` -> a scalar.
        specs: the arguments' specs, in their nesting.
    """

    name: str
    loss: Callable[..., Any]
    specs: tuple[Any, ...]

    @property
    def parameter_count(self) -> int:
        """Number of elements of all parameters; no arrays are made to count them."""
        return sum(spec.size for spec in leaves(self.specs[0]))

    def graph(self) -> TrainingGraph:
        """Return the training graph."""
        return differentiate(build(self.loss, *self.specs, graph_name=self.name))

    def arrays(self, seed: int = 0) -> tuple[Any, ...]:
        """Return random arguments; see ``random_arrays``.

        Raises:
            BackendError: if they are larger than this machine's memory.
        """
        arrays: tuple[Any, ...] = random_arrays(self.specs, seed)
        return arrays


def random_arrays(specs: Any, seed: int = 0, needed: Container[int] | None = None) -> Any:
    """Return arrays in the nesting of the specs: parameters to begin training with, random data.

    Integers are 0. Other arrays are normal, but for those that ``CONSTANTS`` and ``DEVIATIONS``
    name: a leaf's name is the last key on the way to it. Arrays of two or more axes are scaled by
    1/sqrt(n), with n the numbers that go into one of a product: the last axis but one; and weights
    of convolutions by sqrt(2/n), where relu follows, which halves what comes in.

    Args:
        specs: what to draw.
        seed: of the generator.
        needed: the leaves that are wanted, by their place; those others show one zero, and the
            wanted ones have the same numbers as ever. All, if not given.

    Raises:
        BackendError: if they are larger than this machine's memory; before one is made.

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", arXiv 1502.01852, section 2.2.
    """
    generator = np.random.default_rng(seed)

    def draw(name: str, spec: Spec) -> Any:
        if not is_float(spec.dtype) or name in CONSTANTS:
            return np.full(spec.shape, CONSTANTS.get(name, 0), spec.dtype)
        return (deviation(name, spec.shape) * generator.normal(size=spec.shape)).astype(spec.dtype)

    pairs = list(leaves_with_paths(specs, ""))
    wanted = [spec for place, (_, spec) in enumerate(pairs) if needed is None or place in needed]
    check_memory("the arrays take", sum(spec.nbytes for spec in wanted))
    arrays = []
    for place, (path, spec) in enumerate(pairs):
        array = draw(name_of(path), spec)
        is_needed = needed is None or place in needed
        arrays.append(array if is_needed else np.broadcast_to(np.zeros((), spec.dtype), spec.shape))
    positions = iter(range(len(arrays)))
    return fill(map_leaves(lambda spec: next(positions), specs), arrays)


def name_of(path: str) -> str:
    """Return the last key on the way to a leaf: ``w`` of ``[0]['stages'][1]['w']``."""
    return path.rpartition("['")[2].partition("']")[0]


def deviation(name: str, shape: tuple[int, ...]) -> float:
    """Return the standard deviation of a parameter to begin training with; see above."""
    if name in DEVIATIONS:
        return DEVIATIONS[name]
    if name == "w" and len(shape) == 4:  # (outputs, inputs, height, width)
        return math.sqrt(2 / max(math.prod(shape[1:]), 1))
    return max(shape[-2], 1) ** -0.5 if len(shape) > 1 else 1.0


def positive(name: str, **sizes: int) -> None:
    """Raise a GraphError unless all sizes are integers of at least 1."""
    for size, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise GraphError(f"{name}: {size}={value!r}; it must be an integer")
        if value < 1:
            raise GraphError(f"{name}: {size}={value}; it must be at least 1")


def layer_specs(inputs: int, outputs: int, dtype: str) -> dict[str, Spec]:
    """Return the specs of one affine layer."""
    return {"w": Spec((inputs, outputs), dtype), "b": Spec(outputs, dtype)}


def mlp(
    layers: int, width: int, batch: int = 32, *,
    inputs: int | None = None, classes: int = 10, activation: str = "tanh", dtype: str = "float64",
) -> Network:  # fmt: skip
    """Return a classifier of ``layers`` hidden layers and an affine output layer.

    Its arguments are ``(params, x, labels)``: a list of ``{"w", "b"}``, floats of shape
    ``(batch, inputs)``, and integers of shape ``(batch,)``.
    """
    name = f"mlp:{layers}x{width}"
    positive(name, layers=layers, width=width, batch=batch, classes=classes)
    if activation not in ACTIVATIONS:
        raise GraphError(f"unknown activation {activation!r}; known are {', '.join(ACTIVATIONS)}")
    nonlinearity = ACTIVATIONS[activation]

    def loss(params: Any, x: Any, labels: Any) -> Any:
        h = x
        for index, layer in enumerate(params[:-1], start=1):
            with scope(f"layer{index}"):
                h = nonlinearity(h @ layer["w"] + layer["b"])
        with scope("output"):
            return cross_entropy(h @ params[-1]["w"] + params[-1]["b"], labels)

    widths = [width if inputs is None else inputs, *[width] * layers, classes]
    params = [layer_specs(a, b, dtype) for a, b in pairwise(widths)]
    return Network(name, loss, (params, Spec((batch, widths[0]), dtype), Spec(batch, "int64")))


def residual_mlp(blocks: int, width: int, batch: int = 32, *, dtype: str = "float64") -> Network:
    """Return blocks ``h + gelu(h w1 + b1) w2`` under a squared loss.

    Its arguments are ``(params, x, y)``; x and y have the shape ``(batch, width)``.
    """
    name = f"residual:{blocks}x{width}"
    positive(name, blocks=blocks, width=width, batch=batch)

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = x
        for index, block in enumerate(params, start=1):
            with scope(f"block{index}"):
                h = h + gelu(h @ block["w1"] + block["b1"]) @ block["w2"]
        with scope("loss"):
            return mean((h - y) ** 2)

    square = Spec((width, width), dtype)
    block = {"w1": square, "b1": Spec(width, dtype), "w2": square}
    data = Spec((batch, width), dtype)
    return Network(name, loss, ([block] * blocks, data, data))


def branching(depth: int = 3, width: int = 8, batch: int = 8, *, dtype: str = "float64") -> Network:
    """Return a small U-shaped net: ``depth`` layers down, as many up, each joined across.

    Its arguments are ``(params, x, y)``; x and y have the shape ``(batch, width)``.
    """
    name = f"branching:{depth}x{width}"
    positive(name, depth=depth, width=width, batch=batch)

    def loss(params: Any, x: Any, y: Any) -> Any:
        h, across = x, []
        for index, w in enumerate(params["down"], start=1):
            with scope(f"down{index}"):
                h = tanh(h @ w)
                across.append(h)
        for index, w in enumerate(params["up"], start=1):
            with scope(f"up{index}"):
                h = tanh(concatenate([h, across.pop()], axis=1) @ w)
        with scope("loss"):
            return mean((h - y) ** 2)

    down, up = Spec((width, width), dtype), Spec((2 * width, width), dtype)
    params = {"down": [down] * depth, "up": [up] * depth}
    data = Spec((batch, width), dtype)
    return Network(name, loss, (params, data, data))
