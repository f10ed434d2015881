"""Benchmark models, framework-independent: each is written once over an adapter of a framework.

A model is parameters, an input and a sequence of stages, functions of one value: the units that one
would wrap in ``checkpoint``. The loss is half the squared norm of the last stage's output. The
adapters (dialects), each one framework's functions under common names, are in ``peers``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tinyckpt as tc

Stage = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A network at one size.

    Attributes:
        title: what the table calls it, with its size.
        stages: from (dialect, parameters) to the functions that follow each other.
        parameters: their specs, nested.
        x: the spec of the input.
        most: how many times as long as PyTorch's eager mode ``compile`` may take.
    """

    title: str
    stages: Callable[[Any, Any], list[Stage]]
    parameters: Any
    x: tc.Spec
    most: float

    def loss(self, dialect: Any, parameters: Any, x: Any) -> Any:
        """Return half the squared norm of the output."""
        h = x
        for stage in self.stages(dialect, parameters):
            h = stage(h)
        return dialect.half_squared_norm(h)


# A perceptron -------------------------------------------------------------------------------------


def perceptron(layers: int = 64, width: int = 256, batch: int = 64, stages: int = 8) -> Model:
    """Return an MLP of layers ``h = tanh(h w + b)``; stages have equally many layers."""
    layer = {"w": tc.Spec((width, width), "float32"), "b": tc.Spec(width, "float32")}
    each = layers // stages

    def parts(n: Any, parameters: Any) -> list[Stage]:
        return [
            partial(affine_layers, n, parameters[start : start + each])
            for start in range(0, layers, each)
        ]

    x = tc.Spec((batch, width), "float32")
    return Model(f"MLP {layers}x{width}, b={batch}", parts, [layer] * layers, x, 1.5)


def affine_layers(n: Any, layers: Any, h: Any) -> Any:
    """Apply a stage of layers to h."""
    for layer in layers:
        h = n.tanh(h @ layer["w"] + layer["b"])
    return h


# A block of GPT-2 ---------------------------------------------------------------------------------


def gpt_block(batch: int = 4, length: int = 256, width: int = 256, heads: int = 4) -> Model:
    """Return a pre-norm block: causal attention and a perceptron, each added to its input.

    The scores of attention are an array, in all dialects: the fused form is another algorithm.
    """
    norm = {"scale": tc.Spec(width, "float32"), "shift": tc.Spec(width, "float32")}
    parameters = {
        "norm1": norm, "joint": affine_specs(width, 3 * width), "out": affine_specs(width, width),
        "norm2": norm, "hidden": affine_specs(width, 4 * width),
        "back": affine_specs(4 * width, width),
    }  # fmt: skip

    def attend(n: Any, p: Any, h: Any) -> Any:
        joint = affine(n.layer_norm(h, p["norm1"]["scale"], p["norm1"]["shift"]), p["joint"])
        joint = n.reshape(joint, (batch, length, 3, heads, width // heads))
        query, key, value = n.thirds(n.transpose(joint, (2, 0, 3, 1, 4)))
        mixed = n.causal_attention(query, key, value)
        mixed = n.reshape(n.transpose(mixed, (0, 2, 1, 3)), (batch * length, width))
        return h + affine(mixed, p["out"])

    def perceive(n: Any, p: Any, h: Any) -> Any:
        hidden = affine(n.layer_norm(h, p["norm2"]["scale"], p["norm2"]["shift"]), p["hidden"])
        return h + affine(n.gelu(hidden), p["back"])

    return Model(
        f"GPT block, b={batch}, s={length}, h={width}, {heads} heads",
        lambda n, p: [partial(attend, n, p), partial(perceive, n, p)],
        parameters,
        tc.Spec((batch * length, width), "float32"),
        1.5,
    )


def affine_specs(inputs: int, outputs: int) -> dict[str, tc.Spec]:
    """Return the parameters of an affine layer."""
    return {"w": tc.Spec((inputs, outputs), "float32"), "b": tc.Spec(outputs, "float32")}


def affine(x: Any, layer: Any) -> Any:
    """Return ``x w + b``."""
    return x @ layer["w"] + layer["b"]


# A block of convolutions --------------------------------------------------------------------------


def conv_block(batch: int = 32, channels: int = 64, size: int = 28) -> Model:
    """Return ResNet's basic block: 3x3, norm, relu, 3x3, norm, the input added, relu."""
    layer = {
        "w": tc.Spec((channels, channels, 3, 3), "float32"),
        "scale": tc.Spec(channels, "float32"),
        "shift": tc.Spec(channels, "float32"),
    }

    def first(n: Any, p: Any, h: Any) -> Any:
        return h, n.relu(conv_norm(n, h, p[0]))

    def second(n: Any, p: Any, both: Any) -> Any:
        return n.relu(conv_norm(n, both[1], p[1]) + both[0])

    return Model(
        f"conv block, b={batch}, {channels} channels, {size}x{size}",
        lambda n, p: [partial(first, n, p), partial(second, n, p)],
        [layer, layer],
        tc.Spec((batch, channels, size, size), "float32"),
        2.5,
    )


def conv_norm(n: Any, x: Any, layer: Any, stride: int = 1) -> Any:
    """Return a convolution, padded by half of its size, and the batch norm after it."""
    return n.batch_norm(n.conv(x, layer["w"], stride), layer["scale"], layer["shift"])


# ResNet-18 ----------------------------------------------------------------------------------------


def resnet18(batch: int = 32, size: int = 32) -> Model:
    """Return the network of ``tc.networks.resnet(18)``; a stage of this model is one block."""
    network = tc.networks.resnet(18, batch, size, classes=10)
    parameters, images, _ = network.specs

    def parts(n: Any, p: Any) -> list[Stage]:
        blocks = [
            partial(residual, n, block, stride=2 if index == 0 and level > 0 else 1)
            for level, stage in enumerate(p["stages"])
            for index, block in enumerate(stage)
        ]
        return [
            lambda h: n.max_pool(n.relu(conv_norm(n, h, p["first"], 2))),
            *blocks,
            lambda h: affine(n.mean_of_pixels(h), p["affine"]),
        ]

    return Model(f"ResNet-18, b={batch}, {size}x{size}", parts, parameters, images, 1.5)


def residual(n: Any, block: Any, x: Any, stride: int) -> Any:
    """Return a basic block's result; where its size changes, x takes a convolution of 1x1."""
    h = n.relu(conv_norm(n, x, block["first"], stride))
    around = conv_norm(n, x, block["shortcut"], stride) if "shortcut" in block else x
    return n.relu(conv_norm(n, h, block["second"]) + around)
