"""Normalisation primitives and their vjp rules, shared by batch, layer, group and RMS norm.

The public functions stand in ``normalization``. All are one computation, and share their kernels:
with statistics over some axes, ``y = (x - mean) rstd scale + shift``, ``rstd = 1 / sqrt(variance +
epsilon)``, with the biased variance. Mean and rstd are further outputs, of at least 32 bits
whatever ``x`` is: with ``x`` and scale all that the vjps read. RMSNorm has no mean. Scale and
shift are optional. There is one backward operator for the input and one for the scale; the shift's
is a plain ``sum``.
"""

from __future__ import annotations

import functools
import math
from functools import partial
from typing import Any, NamedTuple

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, apply_all, as_var
from tinyckpt.ops import kernels_normalization as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype
from tinyckpt.ops.elementwise import add, multiply, power, subtract
from tinyckpt.ops.reduce import mean as mean_over
from tinyckpt.ops.reduce import sum
from tinyckpt.ops.shape import broadcast_to, expand_dims

Positions = tuple[int, ...]

# Shape inference ----------------------------------------------------------------------------------


def remaining_axes(x: Any, axes: Positions) -> Positions:
    """Return the axes of ``x`` that are not among these."""
    return tuple(axis for axis in range(len(x.shape)) if axis not in axes)


def extents(x: Any, axes: Positions) -> tuple[int, ...]:
    """Return the lengths of ``x`` along axes."""
    return tuple(x.shape[axis] for axis in axes)


def infer_normalize(
    x: Spec, *parameters: Spec, axes: Positions, parameter_axes: Positions, **attrs: Any
) -> tuple[Spec, ...]:
    infer.require_float(x, *parameters)
    if x.size == 0:
        raise GraphError(f"{x} has no elements to normalise; give a batch of at least one")
    for word, parameter in zip(("scale", "shift"), parameters, strict=False):
        if parameter.dtype not in (x.dtype, wide(x.dtype)):
            raise GraphError(f"{word} is {parameter}; for {x} its dtype must be {x.dtype}")
        if parameter.shape != extents(x, parameter_axes):
            expected = Spec(extents(x, parameter_axes), parameter.dtype)
            raise GraphError(f"{word} is {parameter}; for {x} it must be {expected}")
    statistic = Spec(extents(x, remaining_axes(x, axes)), wide(x.dtype))
    return (x, *[statistic] * (1 + attrs["centred"]))


def infer_scale_vjp(x: Spec, *operands: Spec, parameter_axes: Positions, **attrs: Any) -> Any:
    return (Spec(extents(x, parameter_axes), operands[-2].dtype),)


# Bytes and FLOPs ----------------------------------------------------------------------------------


def widened_bytes(x: Spec) -> int:
    """Return the bytes of the 32-bit array in which a result of fewer bits is computed."""
    return 0 if x.dtype == wide(x.dtype) else Spec(x.shape, wide(x.dtype)).nbytes


def forward_workspace(
    inputs: Any, outputs: Any, axes: Positions, parameter_axes: Positions, **attrs: Any
) -> int:
    """Return the bytes of the wide result, and of the factor ``scale rstd`` of a batch norm.

    The factor is freed before a wide result is cast to the narrow dtype.
    """
    x, apart = inputs[0], len(inputs) > 1 and not set(axes) & set(parameter_axes)
    factor = outputs[-1].nbytes if apart else 0
    narrow = widened_bytes(x)
    return int(narrow + (max(0, factor - x.nbytes) if narrow else factor))


def input_vjp_workspace(
    inputs: Any, outputs: Any, axes: Positions, parameter_axes: Positions, centred: bool
) -> int:
    """Return the bytes of the wide result, and of ``scale g`` if that is an array of its own.

    Also the bytes of a mean, one at a time; the factor ``scale rstd`` of a batch norm is as large.
    They are freed before a wide result is cast to the narrow dtype.
    """
    x, statistic = inputs[0], inputs[-2]
    scaled = len(inputs) == 4 + centred
    apart = scaled and not set(axes) & set(parameter_axes)
    product = Spec(x.shape, statistic.dtype).nbytes if scaled and not apart else 0
    factor = statistic.nbytes if apart else 0
    narrow = widened_bytes(x)
    average = max(0, statistic.nbytes - x.nbytes) if narrow else statistic.nbytes
    return int(narrow + product + factor + average)


def scale_vjp_workspace(
    inputs: Any, outputs: Any, axes: Positions, parameter_axes: Positions, centred: bool
) -> int:
    """Return the bytes of the products that are summed, if any are."""
    x = inputs[0]
    return Spec(x.shape, wide(x.dtype)).nbytes if remaining_axes(x, parameter_axes) else 0


def forward_flops(inputs: Any, outputs: Any, centred: bool, **attrs: Any) -> int:
    """Count 1 FLOP for the mean, 3 for the variance, 2 for n, 1 each for scale and shift.

    Per element, with n = (x - mean) rstd. Without a mean: 2 for the mean square, 1 for n.
    """
    return int(inputs[0].size * ((6 if centred else 3) + len(inputs) - 1))


def input_vjp_flops(
    inputs: Any, outputs: Any, axes: Positions, parameter_axes: Positions, centred: bool
) -> int:
    """Count 2 FLOPs for n, 2 for the mean of g n, 3 for rstd (g - n b); 2 more with a mean.

    Per element. The mean takes 1 in its sum and 1 in the difference. A scale takes 1 where it
    varies among the elements of one mean; where it does not, it is a factor of rstd.
    """
    scaled = len(inputs) == 4 + centred and bool(set(axes) & set(parameter_axes))
    return int(inputs[0].size * ((9 if centred else 6) + scaled))


def scale_vjp_flops(inputs: Any, outputs: Any, centred: bool, **attrs: Any) -> int:
    """Count 2 FLOPs per element for n, or 1 without a mean; 2 for the sum of g n."""
    return int(inputs[0].size * (4 if centred else 3))


# The vjp rules ------------------------------------------------------------------------------------


def deviation(x: Var, mean: Var | None, axes: Positions) -> Var:
    """Return ``x - mean``, in the statistics' dtype."""
    x = astype(x, wide(x.dtype))
    return x if mean is None else subtract(x, expand_dims(mean, axes))


def aligned(parameter: Var, x: Var, parameter_axes: Positions) -> Var:
    """Return a parameter with an axis of length 1 wherever it does not vary."""
    return expand_dims(parameter, remaining_axes(x, parameter_axes))


def vjp_input(name: str, ct: Any, ins: Any, outs: Any, epsilon: float, **attrs: Any) -> Var:
    """Return the input's cotangent: by y, and by mean and rstd where an operator reads them."""
    x, axes = ins[0], attrs["axes"]
    *mean, rstd = outs[1:]
    count = math.prod(extents(x, axes))
    parts = []
    if ct[0] is not None:
        operands = (x, *ins[1:2], *mean, rstd, ct[0])
        parts.append(apply(FAMILIES[name].input_vjp, *operands, **attrs))
    if mean and ct[1] is not None:
        parts.append(broadcast_to(expand_dims(ct[1] * (1 / count), axes), x.shape))
    if ct[-1] is not None:  # rstd' = -rstd^3 (x - mean) / count
        slope = ct[-1] * power(rstd, 3) * (-1 / count)
        deviations = deviation(x, mean[0] if mean else None, axes)
        parts.append(multiply(deviations, expand_dims(slope, axes)))
    return (
        parts[0] if len(parts) == 1 else functools.reduce(add, map(as_float32_if_bfloat16, parts))
    )


def vjp_scale(name: str, ct: Any, ins: Any, outs: Any, epsilon: float, **attrs: Any) -> Var | None:
    if ct[0] is None:
        return None
    return apply(FAMILIES[name].scale_vjp, ins[0], *outs[1:], ct[0], **attrs)


def vjp_shift(ct: Any, ins: Any, outs: Any, parameter_axes: Positions, **attrs: Any) -> Var | None:
    rest = remaining_axes(ins[0], parameter_axes)
    return sum(as_float32_if_bfloat16(ct[0]), rest) if ct[0] is not None and rest else ct[0]


def vjp_input_vjp(name: str, position: int) -> Any:
    """Return the rule of ``input_vjp`` for one of (x[, scale][, mean], rstd, g).

    That is F = rstd (h - mean(h) - n mean(h n)) with h = scale g, n = (x - mean) rstd; in h it is
    symmetric. Mean and rstd count as independent operands.
    """

    def rule(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
        axes, along, centred = attrs["axes"], attrs["parameter_axes"], attrs["centred"]
        x, *rest, rstd, g = ins
        m = rest[-1] if centred else None
        scale = [astype(s, rstd.dtype) for s in rest[: len(rest) - centred]]
        c, g = astype(ct[0], rstd.dtype), astype(g, rstd.dtype)
        means = () if m is None else (m,)
        if position == len(ins) - 1 or (scale and position == 1):
            h = astype(apply(FAMILIES[name].input_vjp, x, *means, rstd, ct[0], **attrs), c.dtype)
            if position == 1 and scale:
                return sum_if_axes(multiply(g, h), remaining_axes(x, along))
            return multiply(h, aligned(scale[0], x, along)) if scale else h
        h = multiply(g, aligned(scale[0], x, along)) if scale else g
        spread, d = expand_dims(rstd, axes), deviation(x, m, axes)
        n = multiply(d, spread)
        b, e = (mean_over(multiply(v, n), axes, keepdims=True) for v in (h, c))
        by_n = -multiply(spread, add(multiply(c, b), multiply(h, e)))
        if position == 0:
            return multiply(by_n, spread)
        if position == len(ins) - 2:
            rest = subtract(h, multiply(n, b))
            rest = subtract(rest, mean_over(h, axes, keepdims=True)) if centred else rest
            return sum(add(multiply(c, rest), multiply(by_n, d)), axes)
        return -multiply(sum(by_n, axes), rstd)

    return rule


def sum_if_axes(x: Var, axes: Positions) -> Var:
    """Return the sum over axes; ``x`` itself if there are none."""
    return sum(x, axes) if axes else x


def vjp_scale_vjp(position: int) -> Any:
    """Return the rule of ``scale_vjp``, the sum of g n, for one of (x[, mean], rstd, g)."""

    def rule(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
        axes, (x, *mean, rstd, g) = attrs["axes"], ins
        d, spread = deviation(x, mean[0] if mean else None, axes), expand_dims(rstd, axes)
        g = astype(g, rstd.dtype)
        c = aligned(ct[0], x, attrs["parameter_axes"])
        if position == len(ins) - 1:
            return multiply(c, multiply(d, spread))
        by_n = multiply(c, g)
        if position == 0:
            return multiply(by_n, spread)
        if position == len(ins) - 2:
            return sum(multiply(by_n, d), axes)
        return -multiply(sum(by_n, axes), rstd)

    return rule


# The primitives -----------------------------------------------------------------------------------


class Family(NamedTuple):
    """One normalisation and its adjoints."""

    forward: Primitive
    input_vjp: Primitive
    scale_vjp: Primitive


def family(name: str) -> Family:
    """Make the primitives of a normalisation: the kernels are the same for all."""
    return Family(
        Primitive(
            name,  # (x[, scale[, shift]]) -> (y[, mean], rstd)
            kernels.normalize,
            infer_normalize,
            vjp=(partial(vjp_input, name), partial(vjp_scale, name), vjp_shift),
            flops=forward_flops,
            workspace=forward_workspace,
            contiguous=True,
            takes_bfloat16=True,
        ),
        Primitive(
            f"{name}_input_vjp",  # (x[, scale][, mean], rstd, g) -> the cotangent of x
            kernels.normalize_input_vjp,
            lambda x, *operands, **attrs: (x,),
            vjp=partial(vjp_input_vjp, name),
            flops=input_vjp_flops,
            workspace=input_vjp_workspace,
            contiguous=True,
            takes_bfloat16=True,
        ),
        Primitive(
            f"{name}_scale_vjp",  # (x[, mean], rstd, g) -> the sum of g n for each of the scale
            kernels.normalize_scale_vjp,
            infer_scale_vjp,
            vjp=vjp_scale_vjp,
            flops=scale_vjp_flops,
            workspace=scale_vjp_workspace,
            contiguous=True,
            takes_bfloat16=True,
        ),
    )


BATCH_NORM, BATCH_NORM_INPUT_VJP, BATCH_NORM_SCALE_VJP = BATCH = family("batch_norm")
LAYER_NORM, LAYER_NORM_INPUT_VJP, LAYER_NORM_SCALE_VJP = LAYER = family("layer_norm")
GROUP_NORM, GROUP_NORM_INPUT_VJP, GROUP_NORM_SCALE_VJP = GROUP = family("group_norm")
RMS_NORM, RMS_NORM_INPUT_VJP, RMS_NORM_SCALE_VJP = RMS = family("rms_norm")
FAMILIES = {"batch_norm": BATCH, "layer_norm": LAYER, "group_norm": GROUP, "rms_norm": RMS}

# Adding one ---------------------------------------------------------------------------------------


def add_normalization(
    primitive: Primitive,
    x: Var,
    scale: Any,
    shift: Any,
    axes: Positions,
    parameter_axes: Positions,
    epsilon: float,
    centred: bool = True,
) -> tuple[Var, ...]:
    """Add the operator; a shift without a scale is added afterwards."""
    parameters = [] if scale is None else [scale] if shift is None else [scale, shift]
    y, *statistics = apply_all(
        primitive,
        x,
        *parameters,
        axes=axes,
        parameter_axes=parameter_axes,
        epsilon=checked_epsilon(primitive.name, epsilon),
        centred=centred,
    )
    if scale is None and shift is not None:
        added = as_float32_if_bfloat16(aligned(as_var(shift), x, parameter_axes))
        y = astype(add(as_float32_if_bfloat16(y), added), x.dtype)
    return (y, *statistics)


def checked_epsilon(name: str, epsilon: Any) -> float:
    """Return the epsilon of a variance as a float, or raise a GraphError."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not epsilon >= 0:
        raise GraphError(f"{name}: epsilon={epsilon!r}; it must be a number of 0 or more")
    return float(epsilon)
