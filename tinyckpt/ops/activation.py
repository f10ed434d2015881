"""Activations: tanh, sigmoid, relu, silu, gelu, with their first and second derivatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinyckpt.ops import kernels
from tinyckpt.ops.elementwise import (
    by_input,
    by_output,
    exp,
    mask_bytes,
    no_slope,
    outputs_bytes,
    unary,
    unary_vjp,
)
from tinyckpt.ops.primitive import apply

if TYPE_CHECKING:
    from tinyckpt.var import Var

# Second derivatives, as functions of what the first is a function of -----------------------------


def normal_density(x: Var) -> Var:
    return exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))


def gelu_tanh_slope(x: Var) -> Var:
    scale, cubic = kernels.GELU_SCALE, kernels.GELU_CUBIC
    t = tanh(scale * (x + cubic * x * x * x))
    first = scale * (1 + 3 * cubic * x * x)
    second = scale * 6 * cubic * x
    return (1 - t * t) * (first + 0.5 * x * (second - 2 * t * first * first))


def silu_slope(x: Var) -> Var:
    s = sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - 2 * s))


# The facts ---------------------------------------------------------------------------------------

TANH_VJP = unary_vjp("tanh_vjp", kernels.tanh_vjp, lambda y: -2 * y, flops=3)
SIGMOID_VJP = unary_vjp("sigmoid_vjp", kernels.sigmoid_vjp, lambda y: 1 - 2 * y, flops=3)
RELU_VJP = unary_vjp("relu_vjp", kernels.relu_vjp, no_slope, flops=1, workspace=mask_bytes)
SILU_VJP = unary_vjp("silu_vjp", kernels.silu_vjp, silu_slope, flops=9, workspace=outputs_bytes(1))
GELU_VJP = unary_vjp(
    "gelu_vjp",
    kernels.gelu_vjp,
    lambda x: normal_density(x) * (2 - x * x),
    flops=105,
    workspace=lambda inputs, outputs: 4 * outputs[0].nbytes + outputs[0].size,
)
GELU_TANH_VJP = unary_vjp(
    "gelu_tanh_vjp", kernels.gelu_tanh_vjp, gelu_tanh_slope, flops=15, workspace=outputs_bytes(2)
)

TANH = unary("tanh", kernels.tanh, by_output(TANH_VJP))
SIGMOID = unary("sigmoid", kernels.sigmoid, by_output(SIGMOID_VJP), flops=4)
RELU = unary("relu", kernels.relu, by_output(RELU_VJP))
SILU = unary("silu", kernels.silu, by_input(SILU_VJP), flops=5)
GELU = unary(
    "gelu", kernels.gelu, by_input(GELU_VJP), flops=98,
    workspace=lambda inputs, outputs: 4 * outputs[0].nbytes + outputs[0].size,
)  # fmt: skip
GELU_TANH = unary("gelu_tanh", kernels.gelu_tanh, by_input(GELU_TANH_VJP), flops=8)

# The functions -----------------------------------------------------------------------------------


def tanh(x: Any) -> Var:
    """Return the hyperbolic tangent of every element."""
    return apply(TANH, x)


def sigmoid(x: Any) -> Var:
    """Return ``1 / (1 + exp(-x))`` of every element, evaluated without overflow."""
    return apply(SIGMOID, x)


def relu(x: Any) -> Var:
    """Return ``max(x, 0)`` of every element; its derivative at 0 is taken as 0."""
    return apply(RELU, x)


def silu(x: Any) -> Var:
    """Return ``x sigmoid(x)`` of every element."""
    return apply(SILU, x)


def gelu(x: Any, approximate: bool = False) -> Var:
    """Return ``x P(N(0, 1) <= x)`` of every element, exactly or by the usual tanh formula.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.
    """
    return apply(GELU_TANH if approximate else GELU, x)
