"""Activation functions: tanh, sigmoid, ReLU, SiLU and GELU, from the rows of ``elementwise_table``.

A derivative is one primitive, ``*_vjp``, a function of the input or of the output; its own
derivative is composed of ordinary operators.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.core.tracing import Var, apply
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import PRIMITIVES, unary

tanh = unary("tanh")
sigmoid = unary("sigmoid")
log_sigmoid = unary("log_sigmoid")
relu = unary("relu")
silu = unary("silu")


@eager
def gelu(x: Any, approximate: bool = False) -> Var:
    """Gaussian error linear unit, ``x P(N(0, 1) <= x)``, exact or by the usual tanh approximation.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.gelu)(np.array([-1.0, 0.0, 1.0]))
    array([-0.15865525,  0.        ,  0.84134475])

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.
    """
    return apply(PRIMITIVES["gelu_tanh" if approximate else "gelu"], x)
