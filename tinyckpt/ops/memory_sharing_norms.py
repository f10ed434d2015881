"""Memory-sharing normalisation (MS-LayerNorm, MS-RMSNorm): only the output is saved for backward.

They are norms without scale and shift. ``layer_norm`` and ``rms_norm`` save their input for the
backward pass, and the product that reads the norm saves the norm's output: two values of one size.
``ms_layer_norm`` and ``ms_rms_norm`` compute the same, and save their output, which is saved anyway
if a matrix product reads it, and one number per row. That shares nothing if no other operator saves
the output: a scale between the norm and the product has to be folded into the product's weights
(see ``tc.rewrite``).

The derivatives are exact, for any epsilon: with y = (x - mean) r and r = 1/sqrt(variance + epsilon)
the cotangent of x is ``r (g - mean(g) - y mean(g y))``, and without a mean ``r (g - y mean(g y))``.
In 16 bits y has been rounded once, which the input of a plain norm has not.

Source: Yang et al., arXiv 2406.16282, section 5 (MS-BP).
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, apply_all, as_var
from tinyckpt.ops import kernels_normalization as kernels
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import add, multiply, power, subtract
from tinyckpt.ops.normalization import checked_positions
from tinyckpt.ops.normalization_primitives import (
    checked_epsilon,
    extents,
    forward_flops,
    infer_normalize,
    input_vjp_workspace,
    widened_bytes,
)
from tinyckpt.ops.reduce import mean, sum
from tinyckpt.ops.shape import expand_dims


def infer_ms(x: Spec, axes: Any, **attrs: Any) -> tuple[Spec, ...]:
    y, *_, rstd = infer_normalize(x, axes=axes, parameter_axes=axes, **attrs)
    return (y, rstd)


def vjp_ms(ct: Any, ins: Any, outs: Any, axes: Any, epsilon: float, centred: bool) -> Var:
    """Return the input's cotangent: by y, and by rstd where an operator reads it."""
    y, rstd = outs
    parts = []
    if ct[0] is not None:
        parts.append(apply(MS_NORM_VJP, y, rstd, ct[0], axes=axes, centred=centred))
    if ct[1] is not None:  # rstd' = -rstd^2 y / count
        slope = ct[1] * power(rstd, 2) * (-1 / math.prod(extents(y, axes)))
        parts.append(multiply(as_float32_if_bfloat16(y), expand_dims(slope, axes)))
    return functools.reduce(add, map(as_float32_if_bfloat16, parts)) if len(parts) > 1 else parts[0]


def vjp_by_output(ct: Any, ins: Any, outs: Any, axes: Any, centred: bool) -> Var:
    # The cotangent of y in F = r (g - mean(g) - y mean(g y)): -r (c mean(g y) + g mean(c y)).
    y, rstd, g = ins
    c, g, y = (astype(value, rstd.dtype) for value in (ct[0], g, y))
    by_g, by_c = (mean(multiply(value, y), axes, keepdims=True) for value in (g, c))
    return -multiply(expand_dims(rstd, axes), add(multiply(c, by_g), multiply(g, by_c)))


def vjp_by_rstd(ct: Any, ins: Any, outs: Any, axes: Any, centred: bool) -> Var:
    # F is r times a rest: the cotangent of r is the sum of c times that rest.
    y, rstd, g = ins
    c, g, y = (astype(value, rstd.dtype) for value in (ct[0], g, y))
    rest = subtract(g, multiply(y, mean(multiply(g, y), axes, keepdims=True)))
    rest = subtract(rest, mean(g, axes, keepdims=True)) if centred else rest
    return sum(multiply(c, rest), axes)


def ms_vjp_flops(inputs: Any, outputs: Any, axes: Any, centred: bool) -> int:
    """Count 2 FLOPs per element for the mean of g y, 3 for r (g - y b), and 2 for a mean."""
    return int(inputs[0].size * (7 if centred else 5))


MS_NORM_VJP: Primitive = Primitive(
    "ms_norm_vjp",  # (y, rstd, g) -> the cotangent of x; in g it is its own transpose
    kernels.ms_normalize_vjp,
    lambda y, rstd, g, **attrs: (y,),
    vjp=(
        vjp_by_output,
        vjp_by_rstd,
        lambda ct, ins, outs, **attrs: apply(MS_NORM_VJP, ins[0], ins[1], ct[0], **attrs),
    ),
    flops=ms_vjp_flops,
    workspace=lambda inputs, outputs, axes, centred: input_vjp_workspace(
        inputs, outputs, axes, (), centred
    ),
    contiguous=True,
    takes_bfloat16=True,
)


def ms_norm(name: str) -> Primitive:
    """Make the primitive of one norm: the kernels are the same for both."""
    return Primitive(
        name,  # x -> (y, rstd)
        kernels.ms_normalize,
        infer_ms,
        vjp=(vjp_ms,),
        flops=forward_flops,
        # For 16 bits the result before the cast; the mean, which is not an output.
        workspace=lambda inputs, outputs, axes, epsilon, centred: (
            widened_bytes(inputs[0]) + (outputs[1].nbytes if centred else 0)
        ),
        contiguous=True,
        takes_bfloat16=True,
    )


MS_LAYER_NORM = ms_norm("ms_layer_norm")
MS_RMS_NORM = ms_norm("ms_rms_norm")


@eager
def ms_layer_norm(x: Any, *, axes: Any = -1, epsilon: float = 1e-5) -> Var:
    """Memory-sharing layer norm: ``layer_norm(x)`` to the last bit, differentiated from its output.

    >>> import tinyckpt as tc
    >>> from tinyckpt.planner.model.saved_values import saved_values
    >>> def saved(norm):
    ...     loss = tc.build(lambda w, x: tc.sum(norm(2 * x) @ w), tc.Spec((3, 2)), tc.Spec((5, 3)))
    ...     return [str(node) for node in saved_values(tc.differentiate(loss, (0, 1)))]
    >>> saved(tc.layer_norm)[:2]
    ['multiply_1: float64[5,3]', 'layer_norm_1.0: float64[5,3]']
    >>> saved(tc.ms_layer_norm)
    ['ms_layer_norm_1.0: float64[5,3]', 'ms_layer_norm_1.1: float64[5]']

    Args:
        x: floats of any shape.
        axes: one axis or several, over which one mean is taken.
        epsilon: added to the variance, so that it is not 0.

    Raises:
        GraphError: if ``x`` has no elements.

    Source: Yang et al., arXiv 2406.16282, section 5 (MS-LayerNorm).
    """
    return add_ms_norm(MS_LAYER_NORM, x, axes, epsilon, centred=True)


@eager
def ms_rms_norm(x: Any, *, axes: Any = -1, epsilon: float = 1e-6) -> Var:
    """Memory-sharing RMS norm: ``rms_norm(x)`` to the last bit, differentiated from its output.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.ms_rms_norm)(np.array([[3.0, 4.0]])).round(4)
    array([[0.8485, 1.1314]])

    Args:
        x: floats of any shape.
        axes: one axis or several, over which one mean square is taken.
        epsilon: added to the mean square, so that it is not 0.

    Raises:
        GraphError: if ``x`` has no elements.

    Source: Yang et al., arXiv 2406.16282, section 5 (MS-RMSNorm).
    """
    return add_ms_norm(MS_RMS_NORM, x, axes, epsilon, centred=False)


def add_ms_norm(primitive: Primitive, x: Any, axes: Any, epsilon: Any, centred: bool) -> Var:
    """Add the operator, and return the normalised value."""
    x = as_var(x)
    positions = checked_positions(primitive.name, x, axes)
    epsilon = checked_epsilon(primitive.name, epsilon)
    return apply_all(primitive, x, axes=positions, epsilon=epsilon, centred=centred)[0]
