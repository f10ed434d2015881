"""Elementwise functions by NumPy's names: exponential, trigonometric, hyperbolic, roots.

Most are rows of ``elementwise_table``; functions with options are written out. Integers
are cast to the floats in which NumPy computes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops.casting import astype, promote_to_float
from tinyckpt.ops.comparison import equal, greater
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import (
    PRIMITIVES,
    binary,
    multiply,
    sin,
    unary,
    where,
)

exp2 = unary("exp2")
expm1 = unary("expm1")
log2 = unary("log2")
log10 = unary("log10")
log1p = unary("log1p")
logaddexp = binary("logaddexp")
softplus = unary("softplus")
tan = unary("tan")
arcsin = unary("arcsin")
arccos = unary("arccos")
arctan = unary("arctan")
hypot = binary("hypot")
sinh = unary("sinh")
cosh = unary("cosh")
arcsinh = unary("arcsinh")
arccosh = unary("arccosh")
arctanh = unary("arctanh")
cbrt = unary("cbrt")
square = unary("square")
reciprocal = unary("reciprocal")
deg2rad = unary("deg2rad")
rad2deg = unary("rad2deg")


@eager
def arctan2(y: Any, x: Any) -> Var:
    """Angle of the point ``(x, y)``, from -pi to pi; the derivative at the origin is undefined.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.arctan2)(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    array([0.        , 1.57079633])
    """
    return apply(PRIMITIVES["arctan2"], *promote_to_float(np.arctan2, y, x))


@eager
def leaky_relu(x: Any, slope: float = 0.01) -> Var:
    """Leaky ReLU: ``x`` where it is positive, ``slope * x`` elsewhere; derivative ``slope`` at 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.leaky_relu)(np.array([-1.0, 2.0]))
    array([-0.01,  2.  ])

    Source: Maas, Hannun and Ng, "Rectifier nonlinearities improve neural network acoustic models",
    ICML 2013.
    """
    (x,) = promote_to_float(np.exp, x)
    return where(greater(x, 0), x, multiply(x, slope))


@eager
def elu(x: Any, alpha: float = 1.0) -> Var:
    """Exponential linear unit: ``x`` where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.elu)(np.array([-1.0, 2.0]))
    array([-0.63212056,  2.        ])

    Source: Clevert, Unterthiner and Hochreiter, "Fast and accurate deep network learning by
    exponential linear units", arXiv 1511.07289.
    """
    (x,) = promote_to_float(np.exp, x)
    # The branch that is not selected must not overflow: 0 times infinity would give a NaN gradient.
    positive = greater(x, 0)
    return where(positive, x, multiply(expm1(where(positive, 0, x)), alpha))


@eager
def sinc(x: Var) -> Var:
    """Normalised sinc, ``sin(pi x) / (pi x)``, and 1 at 0; its derivative at 0 is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sinc)(np.array([0.0, 0.5]))
    array([1.        , 0.63661977])
    """
    x = as_var(x)
    x = x if is_float(x.dtype) else astype(x, "float64")
    at_0 = equal(x, 0)
    turned = where(at_0, 1, x) * math.pi
    return where(at_0, 1, sin(turned) / turned)
