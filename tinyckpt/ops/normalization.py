"""Batch, layer, group and RMS normalisation; batch norm at inference, and running statistics.

Running statistics are ordinary results: there are no hidden updates. The primitives stand in
``add_normalization``.

Sources: Ioffe and Szegedy, arXiv 1502.03167 (batch); Ba, Kiros and Hinton, arXiv 1607.06450
(layer); Wu and He, arXiv 1803.08494 (group); Zhang and Sennrich, arXiv 1910.07467 (RMS).
"""

from __future__ import annotations

import math
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.core.tracing import Var, as_var
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import power, sqrt
from tinyckpt.ops.normalization_primitives import (
    BATCH_NORM,
    GROUP_NORM,
    LAYER_NORM,
    RMS_NORM,
    Positions,
    add_normalization,
    aligned,
    remaining_axes,
)
from tinyckpt.ops.shape import reshape


@eager
def layer_norm(
    x: Any, scale: Any = None, shift: Any = None, *, axes: Any = -1, epsilon: float = 1e-5
) -> Var:
    """Layer normalisation: ``x`` with mean 0 and variance 1 over the axes, scaled and shifted.

    >>> import numpy as np, tinyckpt as tc
    >>> x = np.array([[1.0, 3.0], [2.0, 8.0]])
    >>> tc.run(tc.plan(tc.build(lambda x: tc.layer_norm(x, epsilon=0.0), x)), x).value
    array([[-1.,  1.],
           [-1.,  1.]])

    Args:
        x: floats of any shape.
        scale, shift: shaped like ``x`` along the axes, in ascending order; or None.
        axes: one axis or several, over which one mean is taken.
        epsilon: added to the variance, so that it is not 0.

    Raises:
        GraphError: if ``x`` has no elements, or scale or shift another shape or dtype.
    """
    x = as_var(x)
    positions = checked_positions("layer_norm", x, axes)
    return add_normalization(LAYER_NORM, x, scale, shift, positions, positions, epsilon)[0]


@eager
def rms_norm(x: Any, scale: Any = None, *, axes: Any = -1, epsilon: float = 1e-6) -> Var:
    """RMS normalisation, ``scale x / sqrt(mean(x^2) + epsilon)``: mean square 1 over the axes.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.rms_norm)(np.array([[3.0, 4.0]])).round(4)
    array([[0.8485, 1.1314]])

    Args:
        x: floats of any shape.
        scale: shaped like ``x`` along the axes, in ascending order; or None.
        axes: one axis or several, over which one mean square is taken.
        epsilon: added to the mean square, so that it is not 0.

    Raises:
        GraphError: if ``x`` has no elements, or the scale another shape or dtype.
    """
    x = as_var(x)
    positions = checked_positions("rms_norm", x, axes)
    return add_normalization(
        RMS_NORM, x, scale, None, positions, positions, epsilon, centred=False
    )[0]


@eager
def group_norm(
    x: Any, groups: int, scale: Any = None, shift: Any = None, *, epsilon: float = 1e-5
) -> Var:
    """Group normalisation: every group of channels of every example with mean 0 and variance 1.

    The operator sees views of shape (N, groups, C / groups, rest): statistics are (N, groups).

    >>> import numpy as np, tinyckpt as tc
    >>> x = np.array([[1.0, 3.0, 2.0, 8.0]])
    >>> tc.jit(lambda x: tc.group_norm(x, 2, epsilon=0.0))(x)
    array([[-1.,  1., -1.,  1.]])

    Args:
        x: floats of shape (N, C, ...).
        groups: number of equal parts of the channels; 1 makes it a layer norm, C an instance norm.
        scale, shift: shape (C,), or None.
        epsilon: added to the variance.

    Raises:
        GraphError: if the groups do not divide the channels, or ``x``, scale or shift do not fit.
    """
    x = as_var(x)
    require_channels("group_norm", x)
    channels, count = x.shape[1], as_integer(groups)
    if count is None or count < 1 or channels % count:
        raise GraphError(
            f"group_norm: groups={groups!r} for {x.spec}; they must divide the {channels} channels"
        )
    parts = (count, channels // count)
    parameters = []
    for word, parameter in (("scale", scale), ("shift", shift)):
        given = None if parameter is None else as_var(parameter)
        if given is not None and given.shape != (channels,):
            raise GraphError(
                f"group_norm: {word} is {given.spec}; for {x.spec} its shape must be ({channels},)"
            )
        parameters.append(None if given is None else reshape(given, parts))
    scale, shift = parameters
    seen = reshape(x, (x.shape[0], *parts, math.prod(x.shape[2:])))
    return reshape(
        add_normalization(GROUP_NORM, seen, scale, shift, (2, 3), (1, 2), epsilon)[0], x.shape
    )


def checked_positions(name: str, x: Var, axes: Any) -> Positions:
    """Return the axes counted from the front; at least one."""
    positions = infer.checked_axes(axes, x.ndim)
    if not positions:
        raise GraphError(f"{name}: {x.spec} over the axes {axes!r}; expected at least one axis")
    return positions


@eager
def batch_norm(x: Any, scale: Any, shift: Any, *, epsilon: float = 1e-5) -> tuple[Var, Var, Var]:
    """Batch normalisation: every channel with mean 0 and variance 1 over the batch.

    Mean and variance are ordinary results, from which ``moved_statistics`` makes the running ones:
    there are no hidden updates, so that a recomputation cannot update them twice.

    >>> import numpy as np, tinyckpt as tc
    >>> x, scale, shift = np.array([[1.0, 2.0], [3.0, 8.0]]), np.ones(2), np.zeros(2)
    >>> y, mean, _ = tc.jit(lambda *a: tc.batch_norm(*a, epsilon=0.0))(x, scale, shift)
    >>> y.tolist(), mean.tolist()
    ([[-1.0, -1.0], [1.0, 1.0]], [2.0, 5.0])

    Args:
        x: floats of shape (N, C) or (N, C, H, W); in general, channels are axis 1.
        scale, shift: shape (C,).
        epsilon: added to the variance.

    Returns:
        y like ``x``; mean and biased variance of shape (C,), float32 at least. The variance is
        ``rstd ** -2 - epsilon``: right to a few units in the last place of variance + epsilon.

    Raises:
        GraphError: if there are no axes 0 and 1, no elements, or scale or shift do not fit.
    """
    x = as_var(x)
    require_channels("batch_norm", x)
    y, mean, rstd = add_normalization(
        BATCH_NORM, x, scale, shift, remaining_axes(x, (1,)), (1,), epsilon
    )
    return y, mean, power(rstd, -2) - float(epsilon)


def require_channels(name: str, x: Var) -> None:
    """Raise a GraphError unless there is a channel axis after the batch axis."""
    if x.ndim < 2:
        raise GraphError(f"{name}: {x.spec} has no channels; it must be (N, C) or (N, C, H, W)")


@eager
def batch_norm_inference(
    x: Any, scale: Any, shift: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5
) -> Var:
    """Batch normalisation at inference: ``x`` normalised by given statistics, channel by channel.

    >>> import numpy as np, tinyckpt as tc
    >>> one, zero = np.ones(1), np.zeros(1)
    >>> predict = tc.jit(lambda x, *a: tc.batch_norm_inference(x, *a, epsilon=0.0))
    >>> predict(np.array([[5.0], [9.0]]), one, zero, 5 * one, 4 * one)
    array([[0.],
           [2.]])

    Args:
        x: floats of shape (N, C) or (N, C, H, W).
        scale, shift, mean, variance: shape (C,).
        epsilon: added to the variance.
    """
    x = as_var(x)
    require_channels("batch_norm_inference", x)
    parameters = [as_var(parameter) for parameter in (scale, shift, mean, variance)]
    for word, parameter in zip(("scale", "shift", "mean", "variance"), parameters, strict=True):
        if parameter.shape != x.shape[1:2]:
            raise GraphError(
                f"batch_norm_inference: {word} is {parameter.spec}; for {x.spec} its shape must be "
                f"{x.shape[1:2]}, one per channel"
            )
    scale, shift, mean, variance = (aligned(parameter, x, (1,)) for parameter in parameters)
    y = (x - mean) * (scale / sqrt(variance + float(epsilon))) + shift
    return astype(y, x.dtype)


@eager
def moved_statistics(
    running_mean: Any,
    running_var: Any,
    mean: Any,
    variance: Any,
    count: int,
    momentum: float = 0.1,
) -> tuple[Var, Var]:
    """Update the running mean and variance by one batch: ``old + momentum (new - old)``.

    As in PyTorch the running variance is unbiased: the batch's is taken times count / (count - 1).

    >>> import numpy as np, tinyckpt as tc
    >>> zero, one = np.zeros(1), np.ones(1)
    >>> tc.jit(lambda *a: tc.moved_statistics(*a, count=2))(zero, one, one, one)
    (array([0.1]), array([1.1]))

    Args:
        running_mean, running_var: the running statistics before, shape (C,).
        mean, variance: of the batch, as ``batch_norm`` returns them.
        count: number of elements per channel: N, or N H W.
        momentum: weight of the new statistics, 0 to 1.

    Raises:
        GraphError: if the count is below 2, for which there is no unbiased variance.
    """
    elements = as_integer(count)
    if elements is None or elements < 2:
        raise GraphError(f"moved_statistics: count={count!r}; an unbiased variance takes 2 or more")
    if (
        isinstance(momentum, bool)
        or not isinstance(momentum, int | float)
        or not 0 <= momentum <= 1
    ):
        raise GraphError(
            f"moved_statistics: momentum={momentum!r}; it must be a number from 0 to 1"
        )
    old_mean, old_var, new_mean, new_var = map(as_var, (running_mean, running_var, mean, variance))
    share, unbiased = float(momentum), elements / (elements - 1)
    return (
        old_mean * (1 - share) + new_mean * share,
        old_var * (1 - share) + new_var * (share * unbiased),
    )
