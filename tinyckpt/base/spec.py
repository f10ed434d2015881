"""Abstract arrays: shape and dtype without contents, and the dtypes that are supported."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Tree, leaves

DTYPES = (
    "float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "bfloat16",
)  # fmt: skip
INTEGERS = (int, np.integer)


@dataclass(frozen=True, slots=True)
class Spec:
    """An abstract array: shape and dtype without contents (as ``jax.ShapeDtypeStruct``).

    >>> Spec((128, 64), "float32").nbytes
    32768
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: int | tuple[int, ...], dtype: Any = "float64") -> None:
        extents = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        for n in extents:
            if not isinstance(n, INTEGERS) or n < 0:
                raise GraphError(f"shape {shape!r}: every dimension must be a non-negative integer")
        object.__setattr__(self, "shape", tuple(map(int, extents)))
        object.__setattr__(self, "dtype", checked_dtype(dtype))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this shape and dtype."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype, or raise a GraphError that lists the supported dtypes."""
    try:
        if isinstance(dtype, str) and dtype == "bfloat16":
            import_module("ml_dtypes")  # registers the name with NumPy
        resolved: np.dtype[Any] = np.dtype(dtype)
    except ImportError as error:
        raise GraphError(f"{dtype} needs ml_dtypes: pip install 'tinyckpt[bfloat16]'") from error
    except (TypeError, ValueError, SyntaxError) as error:
        raise GraphError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}") from error
    if not is_supported(resolved):
        raise GraphError(f"unsupported dtype {resolved}; expected one of {', '.join(DTYPES)}")
    return resolved


@cache  # NumPy composes the name of a dtype in Python; each value of a graph has one
def is_supported(dtype: np.dtype[Any]) -> bool:
    """Return whether values may have a dtype: one of ``DTYPES``, in this machine's byte order."""
    return dtype.name in DTYPES and dtype.isnative


def weak_float(tree: Tree) -> np.dtype[Any]:
    """Return the dtype that Python floats among the arguments take: that of the floating arrays.

    This is weak promotion (NEP 50): a learning rate of 0.5 next to float32 parameters is a float32;
    float64 where there is no floating array. Python integers stay int64: they may be seeds or
    labels.
    """
    dtypes = {getattr(leaf, "dtype", None) for leaf in leaves(tree)}
    floats = [dtype for dtype in dtypes if isinstance(dtype, np.dtype) and dtype.kind == "f"]
    return np.result_type(*floats) if floats else np.dtype("float64")


def unmasked(array: Any) -> Any:
    """Return an array as it is; refuse one with a mask, which NumPy's conversions drop silently."""
    is_plain = type(array) is np.ndarray or not isinstance(array, np.ndarray)
    if not is_plain and hasattr(array, "mask"):
        raise GraphError(
            "a masked array, whose mask would be dropped: pass x.filled(value), or its .data and "
            ".mask, and use tc.where"
        )
    return array


def spec_of(path: str, leaf: Any, weak: Any = "float64") -> Spec:
    """Return the spec of one argument, or raise a GraphError that names it.

    Args:
        path: expression of the argument, for the error.
        leaf: array, number or Spec.
        weak: the dtype of a Python float.
    """
    if isinstance(leaf, Spec):
        return leaf
    if type(leaf) is float:
        return Spec((), weak)
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        if not isinstance(leaf, bool | int | float | np.generic):
            raise GraphError(
                f"{path}: expected an array, a number or a tc.Spec, got a {type(leaf).__name__}; "
                "name any other argument in static=(...)"
            )
        leaf = np.asarray(leaf)
    try:
        return Spec(tuple(leaf.shape), unmasked(leaf).dtype)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
