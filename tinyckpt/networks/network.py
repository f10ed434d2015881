"""The ``Network`` type (a loss function with its argument shapes), He initialisation, and MLPs.

A network is shapes only until ``arrays`` allocates random parameters, so that a network too large
for this machine can still be planned, replayed and drawn. The networks here are the small ones: an
MLP, a residual MLP and a U-shaped one (``branching``).
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
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import INTEGERS, Spec
from tinyckpt.base.tree import leaves, leaves_with_paths, map_leaves
from tinyckpt.core.autodiff import differentiate
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.core.tracing import build, scope
from tinyckpt.networks.machine_memory import check_memory
from tinyckpt.ops.activation import gelu, relu, sigmoid, tanh
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import concatenate

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu": gelu, "relu": relu, "sigmoid": sigmoid, "tanh": tanh,
}  # fmt: skip
MOST_LAYERS = 20_000  # two million operators, if they are a transformer's; more is a typo
COUNTS_LAYERS = {"layers", "blocks", "depth"}
# Initial values of parameters by their names: scales are 1, biases and shifts 0.
CONSTANTS = {"scale": 1.0, "shift": 0.0, "b": 0.0, "mean": 0.0, "variance": 1.0}
# Standard deviations of embeddings by their names, as in BERT and GPT-2.
DEVIATIONS = {"tokens": 0.02, "positions": 0.02, "types": 0.02, "class": 0.02}


@dataclass(frozen=True, slots=True)
class Network:
    """A loss function with specs of its arguments; the first argument holds the parameters.

    Attributes:
        name: the network's name in pictures and tables.
        loss: ``loss(params, *inputs)`` -> a scalar.
        specs: the arguments' specs, nested as the arguments are.

    >>> import tinyckpt as tc
    >>> specs = tc.Spec((3, 2)), tc.Spec((4, 3))
    >>> network = Network("norm", lambda w, x: tc.mean((x @ w) ** 2), specs)
    >>> network.parameter_count, len(network.graph().operators)
    (6, 8)
    """

    name: str
    loss: Callable[..., Any]
    specs: tuple[Any, ...]

    @property
    def parameter_count(self) -> int:
        """Number of elements of all parameters; no arrays are allocated to count them."""
        return sum(spec.size for spec in leaves(self.specs[0]))

    def graph(self) -> TrainingGraph:
        """Return the training graph."""
        return differentiate(build(self.loss, *self.specs, graph_name=self.name))

    def arrays(self, seed: int = 0) -> tuple[Any, ...]:
        """Return randomly initialised parameters and random inputs; see ``random_arrays``.

        Raises:
            BackendError: if they are larger than this machine's memory.
        """
        arrays: tuple[Any, ...] = random_arrays(self.specs, seed)
        return arrays


def random_arrays(specs: Any, seed: int = 0, needed: Container[int] | None = None) -> Any:
    """Return randomly initialised parameters and random inputs, nested as their specs are.

    Integers are 0. Other arrays are normally distributed, except for the names in ``CONSTANTS`` and
    ``DEVIATIONS``, where a leaf's name is the last key of its path. Arrays of two or more axes have
    the standard deviation 1/sqrt(fan-in), the fan-in of a matrix being its last axis but one;
    weights of convolutions have sqrt(2/fan-in), since the relu after them halves the variance.

    Args:
        specs: of the arrays.
        seed: of the generator.
        needed: positions of the leaves to allocate, among all leaves; every other leaf is a
            broadcast view of one zero. The random numbers are the same whichever are needed. All,
            if not given.

    Raises:
        BackendError: if they are larger than this machine's memory; before any is allocated.

    >>> import tinyckpt as tc
    >>> arrays = random_arrays({"w": tc.Spec((2, 3)), "b": tc.Spec(3)})
    >>> arrays["w"].shape, arrays["b"].tolist()
    ((2, 3), [0.0, 0.0, 0.0])

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", arXiv 1502.01852, section 2.2.
    """
    if (number := as_integer(seed)) is None or number < 0:
        raise GraphError(f"seed={seed!r:.80}; it must be an integer of 0 or more")
    generator = np.random.default_rng(number)

    def draw(name: str, spec: Spec) -> Any:
        if not is_float(spec.dtype) or name in CONSTANTS:
            return np.full(spec.shape, CONSTANTS.get(name, 0), spec.dtype)
        return (deviation(name, spec.shape) * generator.normal(size=spec.shape)).astype(spec.dtype)

    pairs = list(leaves_with_paths(specs, ""))
    for path, spec in pairs:
        if not isinstance(spec, Spec):
            raise GraphError(f"specs{path}: expected a tc.Spec, got a {type(spec).__name__}")
    needed = range(len(pairs)) if needed is None else needed
    wanted = [spec for place, (_, spec) in enumerate(pairs) if place in needed]
    check_memory("the arrays take", sum(spec.nbytes for spec in wanted))
    arrays = []
    for place, (path, spec) in enumerate(pairs):
        array = draw(name_of(path), spec)
        if place not in needed:
            array = np.broadcast_to(np.zeros((), spec.dtype), spec.shape)
        arrays.append(array)
    queue = iter(arrays)
    return map_leaves(lambda spec: next(queue), specs)


def name_of(path: str) -> str:
    """Return the last key of a leaf's path: ``w`` of ``[0]['stages'][1]['w']``."""
    return path.rpartition("['")[2].partition("']")[0]


def deviation(name: str, shape: tuple[int, ...]) -> float:
    """Return the standard deviation of a parameter's initial values; see ``random_arrays``."""
    if name in DEVIATIONS:
        return DEVIATIONS[name]
    if name == "w" and len(shape) == 4:  # (outputs, inputs, height, width)
        return math.sqrt(2 / max(math.prod(shape[1:]), 1))
    return max(shape[-2], 1) ** -0.5 if len(shape) > 1 else 1.0


def check_sizes(name: str, most_layers: int = MOST_LAYERS, **sizes: int) -> None:
    """Raise a GraphError unless sizes are integers of at least 1, and the layers can be built."""
    for size, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, INTEGERS):
            raise GraphError(f"{name}: {size}={value!r:.80}; it must be an integer")
        if value < 1:
            raise GraphError(f"{name}: {size}={value}; it must be at least 1")
        if size in COUNTS_LAYERS and value > most_layers:
            raise GraphError(f"{name}: {size}={value:,}; it must be at most {most_layers:,}")


def affine_specs(inputs: int, outputs: int, dtype: str) -> dict[str, Spec]:
    """Return the specs of one affine layer."""
    return {"w": Spec((inputs, outputs), dtype), "b": Spec(outputs, dtype)}


def mlp(
    layers: int, width: int, batch: int = 32, *,
    inputs: int | None = None, classes: int = 10, activation: str = "tanh", dtype: str = "float64",
) -> Network:  # fmt: skip
    """Build a multilayer perceptron: ``layers`` hidden layers and an affine output layer.

    A classifier under cross-entropy. Its arguments are ``(params, x, labels)``: a list of
    ``{"w", "b"}``, floats of shape ``(batch, inputs)``, and integers of shape ``(batch,)``.

    >>> mlp(4, 32).parameter_count
    4554
    """
    name = f"mlp:{layers}x{width}"
    check_sizes(name, layers=layers, width=width, batch=batch, classes=classes)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise GraphError(
            f"unknown activation {activation!r:.80}; known are {', '.join(ACTIVATIONS)}"
        )
    nonlinearity = ACTIVATIONS[activation]

    def loss(params: Any, x: Any, labels: Any) -> Any:
        h = x
        for index, layer in enumerate(params[:-1], start=1):
            with scope(f"layer{index}"):
                h = nonlinearity(h @ layer["w"] + layer["b"])
        with scope("output"):
            return cross_entropy(h @ params[-1]["w"] + params[-1]["b"], labels)

    widths = [width if inputs is None else inputs, *[width] * layers, classes]
    params = [affine_specs(a, b, dtype) for a, b in pairwise(widths)]
    return Network(name, loss, (params, Spec((batch, widths[0]), dtype), Spec(batch, "int64")))


def residual_mlp(blocks: int, width: int, batch: int = 32, *, dtype: str = "float64") -> Network:
    """Build a residual MLP: blocks ``h + gelu(h w1 + b1) w2`` under the mean squared error.

    Its arguments are ``(params, x, y)``; x and y have the shape ``(batch, width)``.

    >>> residual_mlp(4, 32).parameter_count
    8320
    """
    name = f"residual:{blocks}x{width}"
    check_sizes(name, blocks=blocks, width=width, batch=batch)

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
    """Build a small U-shaped MLP: ``depth`` layers down, as many up, with skip connections.

    Its arguments are ``(params, x, y)``; x and y have the shape ``(batch, width)``.

    >>> branching(3, 8).parameter_count
    576
    """
    name = f"branching:{depth}x{width}"
    check_sizes(name, depth=depth, width=width, batch=batch)

    def loss(params: Any, x: Any, y: Any) -> Any:
        h, skips = x, []
        for index, w in enumerate(params["down"], start=1):
            with scope(f"down{index}"):
                h = tanh(h @ w)
                skips.append(h)
        for index, w in enumerate(params["up"], start=1):
            with scope(f"up{index}"):
                h = tanh(concatenate([h, skips.pop()], axis=1) @ w)
        with scope("loss"):
            return mean((h - y) ** 2)

    down, up = Spec((width, width), dtype), Spec((2 * width, width), dtype)
    params = {"down": [down] * depth, "up": [up] * depth}
    data = Spec((batch, width), dtype)
    return Network(name, loss, (params, data, data))
