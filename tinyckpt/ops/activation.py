"""Activation functions (tanh, sigmoid, ReLU, SiLU, GELU), with their first and second derivatives.

A derivative is one primitive, ``*_vjp``, a function of the input or of the output; its own
derivative is composed of ordinary operators.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.core.tracing import apply
from tinyckpt.ops import kernels_activation as kernels
from tinyckpt.ops.casting import promote_to_float
from tinyckpt.ops.elementwise import (
    exp,
    mask_bytes,
    outputs_bytes,
    unary,
    unary_vjp,
    vjp_from_input,
    vjp_from_output,
    zero_slope,
)

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

# Second derivatives, as functions of the residual that the first reads ----------------------------


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


# The primitives -----------------------------------------------------------------------------------
# FLOPs: one per arithmetic operation or elementary function on an element, as in the kernel.

# The normal distribution: 3 for each of 27 coefficients of Clenshaw's recurrence, 5 before and 4
# after it; 13 for the density, and 6 from there to the result.
CDF_FLOPS = 3 * 27 + 5 + 4 + 13 + 6

TANH_VJP = unary_vjp("tanh_vjp", kernels.tanh_vjp, lambda y: -2 * y, flops=3)
SIGMOID_VJP = unary_vjp("sigmoid_vjp", kernels.sigmoid_vjp, lambda y: 1 - 2 * y, flops=3)
LOG_SIGMOID_VJP = unary_vjp("log_sigmoid_vjp", kernels.log_sigmoid_vjp, lambda y: -exp(y), flops=3)
RELU_VJP = unary_vjp("relu_vjp", kernels.relu_vjp, zero_slope, flops=1, workspace=mask_bytes)
SILU_VJP = unary_vjp(
    "silu_vjp", kernels.silu_vjp, silu_slope, flops=20,
    # 1 + exp(-|x|), the derivative's other factor, and the mask that selects its numerator.
    workspace=lambda inputs, outputs: 2 * outputs[0].nbytes + outputs[0].size,
)  # fmt: skip
GELU_VJP = unary_vjp(
    "gelu_vjp",
    kernels.gelu_vjp,
    lambda x: normal_density(x) * (2 - x * x),
    # The density once more, and 4 to combine both. It needs four arrays, too, after those of the
    # distribution are freed.
    flops=CDF_FLOPS + 13 + 4,
    workspace=outputs_bytes(4),
)
GELU_TANH_VJP = unary_vjp(
    "gelu_tanh_vjp", kernels.gelu_tanh_vjp, gelu_tanh_slope, flops=14,
    workspace=outputs_bytes(1),  # the tanh
)  # fmt: skip

TANH = unary("tanh", kernels.tanh, vjp_from_output(TANH_VJP))
SIGMOID = unary(
    "sigmoid", kernels.sigmoid, vjp_from_output(SIGMOID_VJP), flops=7,
    # 1 + exp(-|x|), and the mask that selects the numerator.
    workspace=lambda inputs, outputs: outputs[0].nbytes + outputs[0].size,
)  # fmt: skip
LOG_SIGMOID = unary(
    "log_sigmoid", kernels.log_sigmoid, vjp_from_output(LOG_SIGMOID_VJP), flops=6,
    workspace=outputs_bytes(1),  # min(x, 0)
)  # fmt: skip
RELU = unary("relu", kernels.relu, vjp_from_output(RELU_VJP))
SILU = unary(
    "silu", kernels.silu, vjp_from_input(SILU_VJP), flops=9,
    workspace=outputs_bytes(1),  # the factor for the far negative tail
)  # fmt: skip
GELU = unary(
    "gelu", kernels.gelu, vjp_from_input(GELU_VJP), flops=CDF_FLOPS + 1,
    workspace=outputs_bytes(4),  # two for the recurrence and two for the density
)  # fmt: skip
GELU_TANH = unary("gelu_tanh", kernels.gelu_tanh, vjp_from_input(GELU_TANH_VJP), flops=8)

# The functions ------------------------------------------------------------------------------------


def tanh(x: Any) -> Var:
    """Hyperbolic tangent of every element; its derivative reads the output.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.tanh)(np.array([0.0, 1.0]))
    array([0.        , 0.76159416])
    """
    return apply(TANH, *promote_to_float(np.tanh, x))


def sigmoid(x: Any) -> Var:
    """Logistic sigmoid, ``1 / (1 + exp(-x))``, of every element, evaluated without overflow.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sigmoid)(np.array([-1000.0, 0.0, 1.0]))
    array([0.        , 0.5       , 0.73105858])
    """
    return apply(SIGMOID, x)


def log_sigmoid(x: Any) -> Var:
    """Logarithm of the sigmoid of every element, exact in both tails.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.log_sigmoid)(np.array([-1000.0, 0.0]))
    array([-1.00000000e+03, -6.93147181e-01])
    """
    return apply(LOG_SIGMOID, x)


def relu(x: Any) -> Var:
    """Rectified linear unit, ``max(x, 0)``, of every element; its derivative at 0 is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.relu(x)))(np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 1.])
    """
    return apply(RELU, x)


def silu(x: Any) -> Var:
    """Sigmoid linear unit (SiLU, swish), ``x sigmoid(x)``, of every element.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.silu)(np.array([-1.0, 0.0, 1.0]))
    array([-0.26894142,  0.        ,  0.73105858])
    """
    return apply(SILU, x)


def gelu(x: Any, approximate: bool = False) -> Var:
    """Gaussian error linear unit, ``x P(N(0, 1) <= x)``, exact or by the usual tanh approximation.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.gelu)(np.array([-1.0, 0.0, 1.0]))
    array([-0.15865525,  0.        ,  0.84134475])

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.
    """
    return apply(GELU_TANH if approximate else GELU, x)
