"""Small multilayer networks: for each, a loss function and specs of its arguments.

A network is shapes until ``arrays`` draws numbers for it, so that one too large for this machine
can still be planned, replayed and drawn.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tinyckpt.build import build, scope
from tinyckpt.differentiate import differentiate
from tinyckpt.errors import GraphError, TinyckptError
from tinyckpt.graph import Graph, Spec, TrainingGraph
from tinyckpt.networks.chain import chain
from tinyckpt.ops.activation import gelu, relu, sigmoid, tanh
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import concatenate
from tinyckpt.tree import map_leaves

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu": gelu, "relu": relu, "sigmoid": sigmoid, "tanh": tanh,
}  # fmt: skip


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

    def graph(self) -> TrainingGraph:
        """Return the training graph."""
        return differentiate(build(self.loss, *self.specs, graph_name=self.name))

    def arrays(self, seed: int = 0) -> tuple[Any, ...]:
        """Return random arguments; see ``random_arrays``."""
        arrays: tuple[Any, ...] = random_arrays(self.specs, seed)
        return arrays


def random_arrays(specs: Any, seed: int = 0) -> Any:
    """Return normal arrays in the nesting of the specs; integers are 0.

    Arrays of two or more axes are scaled by 1/sqrt of the last axis but one, so that products of
    them neither grow nor shrink.
    """
    generator = np.random.default_rng(seed)

    def draw(spec: Spec) -> Any:
        if spec.dtype.kind != "f":
            return np.zeros(spec.shape, spec.dtype)
        scale = spec.shape[-2] ** -0.5 if len(spec.shape) > 1 else 1.0
        return (scale * generator.normal(size=spec.shape)).astype(spec.dtype)

    return map_leaves(draw, specs)


def positive(name: str, **sizes: int) -> None:
    """Raise a GraphError unless all sizes are at least 1."""
    for size, value in sizes.items():
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


MOST_LAYERS = 1_000_000  # of a network named on the command line; more is a slip of the finger

# What NETWORK may be on the command line: name -> (form, what it is).
NETWORKS: dict[str, tuple[str, str]] = {
    "chain": ("chain:N", "the canonical chain of N layers"),
    "mlp": ("mlp:LAYERSxWIDTH", "a classifier with LAYERS hidden layers"),
    "residual": ("residual:BLOCKSxWIDTH", "a residual MLP"),
    "branching": ("branching:DEPTHxWIDTH", "a small U-shaped net"),
}
FACTORIES: dict[str, Callable[..., Network]] = {
    "mlp": mlp, "residual": residual_mlp, "branching": branching,
}  # fmt: skip


def network_from_text(text: str) -> tuple[Graph, tuple[Any, ...]]:
    """Return the training graph that a command line names, and specs of its arguments.

    Args:
        text: such as ``chain:16`` or ``mlp:8x256``; or ``path/to/file.py:function``, a function in
            that file that takes nothing and returns a Network.

    Raises:
        GraphError: if the text names nothing; lists what it may be.
    """
    name, _, sizes = text.partition(":")
    if ".py:" in text:
        network = network_of_file(*text.rsplit(":", 1))
        return network.graph(), network.specs
    if name not in NETWORKS:
        forms = ", ".join(form for form, _ in NETWORKS.values())
        raise GraphError(
            f"unknown network {text!r}; known are {forms} and path/to/file.py:function"
        )
    form = NETWORKS[name][0]
    count = form.count("x") + 1 if name != "chain" else 1
    numbers = sizes.split("x")
    if len(numbers) != count or not all(number.isdecimal() for number in numbers):
        raise GraphError(f"network {text!r} does not have the form {form}, such as {example(name)}")
    if int(numbers[0]) > MOST_LAYERS:
        raise GraphError(f"network {text!r}: more than {MOST_LAYERS:,} layers")
    if name == "chain":
        return chain(int(sizes)), (Spec((8, 8)),)
    network = FACTORIES[name](*map(int, numbers))
    return network.graph(), network.specs


def example(name: str) -> str:
    """Return an example of a network on the command line."""
    return f"{name}:16" if name == "chain" else f"{name}:4x32"


def network_of_file(path: str, function: str) -> Network:
    """Return the Network that a function in a Python file returns."""
    try:
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert spec is not None  # the path ends in .py
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = getattr(module, function, None)
        if not callable(made):
            raise GraphError(f"{path} has no function {function!r}")
        network = made()
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except SyntaxError as error:
        raise GraphError(f"{path} is not valid Python: {error}") from error
    except TinyckptError:
        raise
    except (
        Exception,
        SystemExit,
    ) as error:  # the file is the user's: whatever it raises is about the file
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise GraphError(f"{path}:{function}: {type(error).__name__}: {error} ({where})") from error
    if not isinstance(network, Network):
        raise GraphError(
            f"{path}:{function} returned a {type(network).__name__}; it must return a "
            "tc.networks.Network(name, loss, specs)"
        )
    return network
