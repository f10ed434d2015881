"""Shape and dtype inference shared by the operator families, with checks and a FLOP rule."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec

Infer = Callable[..., tuple[Spec, ...]]


def format_specs(specs: Sequence[Spec]) -> str:
    """Format specs for an error message."""
    return " and ".join(map(str, specs))


def require_float(*specs: Spec) -> None:
    """Raise a GraphError unless every spec is floating-point."""
    for spec in specs:
        if not is_float(spec.dtype):
            raise GraphError(
                f"needs floating-point arrays, got {format_specs(specs)}; "
                "convert with x.astype('float64') or pass a float array"
            )


def require_integers(*specs: Spec) -> None:
    """Raise a GraphError unless every spec is of integers."""
    for spec in specs:
        if spec.dtype.kind not in "iu":
            raise GraphError(
                f"needs integers, got {format_specs(specs)}; convert with x.astype('int64')"
            )


def require_same_dtype(*specs: Spec) -> None:
    """Raise a GraphError unless all specs have one dtype."""
    if len({spec.dtype for spec in specs}) > 1:
        raise GraphError(
            f"needs one dtype, got {format_specs(specs)}; convert one of them with x.astype(...)"
        )


def broadcast_shape(*specs: Spec) -> tuple[int, ...]:
    """Return the shape by NumPy's broadcasting rules, or raise a GraphError."""
    try:
        return np.broadcast_shapes(*(spec.shape for spec in specs))
    except ValueError as error:
        raise GraphError(
            f"shapes {format_specs(specs)} do not broadcast: aligned from the right, extents must "
            "be equal or 1"
        ) from error


def float_elementwise(*specs: Spec, **attrs: Any) -> tuple[Spec, ...]:
    """Infer broadcasting arithmetic over floats."""
    require_float(*specs)
    if all(spec == specs[0] for spec in specs[1:]):
        return specs[:1]
    return (Spec(broadcast_shape(*specs), np.result_type(*(spec.dtype for spec in specs))),)


def elementwise(*specs: Spec, **attrs: Any) -> tuple[Spec, ...]:
    """Infer broadcasting arithmetic over numbers."""
    dtype = np.result_type(*(spec.dtype for spec in specs))
    if dtype == np.bool_:
        raise GraphError(
            f"needs numbers, got {format_specs(specs)}; convert with x.astype('float64')"
        )
    if all(spec == specs[0] for spec in specs[1:]):
        return specs[:1]
    return (Spec(broadcast_shape(*specs), dtype),)


def comparison(*specs: Spec, **attrs: Any) -> tuple[Spec, ...]:
    """Infer a broadcasting comparison: booleans."""
    return (Spec(broadcast_shape(*specs), "bool"),)


def bits(*specs: Spec) -> tuple[Spec, ...]:
    """Infer bitwise operators on integers and booleans."""
    dtype = np.result_type(*(spec.dtype for spec in specs))
    if dtype.kind not in "biu":
        raise GraphError(
            f"needs integers or booleans, got {format_specs(specs)}; compare first, as in x > 0"
        )
    return (Spec(broadcast_shape(*specs), dtype),)


def shift(x: Spec, y: Spec) -> tuple[Spec, ...]:
    """Infer a shift of integers."""
    require_integers(x, y)
    return bits(x, y)


def same_spec_as(position: int) -> Infer:
    """Return an inference rule: the output's spec is that of one input; floats only."""

    def infer(*specs: Spec, **attrs: Any) -> tuple[Spec, ...]:
        require_float(*specs)
        return (specs[position],)

    return infer


def checked_axis(axis: Any, ndim: int) -> int:
    """Return the axis counted from the front, or raise a GraphError."""
    position = as_integer(axis)
    if position is None or not -ndim <= position < ndim:
        raise GraphError(
            f"axis {axis!r} is out of range for {ndim} axes: expected {-ndim} to {ndim - 1}"
        )
    return position % ndim


def checked_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes counted from the front, ascending; None means all of them."""
    if axes is None:
        return tuple(range(ndim))
    several = isinstance(axes, list | tuple) or (isinstance(axes, np.ndarray) and axes.ndim > 0)
    sequence = tuple(axes) if several else (axes,)
    result = tuple(sorted(checked_axis(axis, ndim) for axis in sequence))
    if len(set(result)) < len(result):
        raise GraphError(f"axes {axes!r} name an axis twice")
    return result


def per_element(count: int) -> Callable[..., int]:
    """FLOP rule: ``count`` operations per element of the first output."""
    return lambda inputs, outputs, **attrs: count * outputs[0].size
