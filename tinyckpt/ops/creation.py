"""Array creation inside a traced function: fills (zeros, ones) are operators, ranges are constants.

A constant is a source: always resident, and not charged to a schedule. An array filled with one
number is computed when it is needed, like any other value, and may be recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyckpt.base.spec import checked_dtype
from tinyckpt.core.tracing import Var, as_var
from tinyckpt.ops.casting import astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.shape import broadcast_to, extents_of, full


@eager
def zeros(shape: int | Sequence[int], dtype: Any = "float64") -> Var:
    """Return a new array of zeros.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.zeros(3))()
    array([0., 0., 0.])
    """
    return full_of(shape, 0, dtype)


@eager
def ones(shape: int | Sequence[int], dtype: Any = "float64") -> Var:
    """Return a new array of ones.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.ones((1, 2)))()
    array([[1., 1.]])
    """
    return full_of(shape, 1, dtype)


def full_of(shape: int | Sequence[int], value: Any, dtype: Any) -> Var:
    """Return a new array filled with one number, given in its own dtype."""
    resolved = checked_dtype(dtype)
    return full(extents_of(shape), resolved.type(value).item(), resolved)


@eager
def zeros_like(x: Var, dtype: Any = None, shape: Any = None) -> Var:
    """Return zeros in the shape and dtype of ``x`` by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.zeros_like)(np.array([1, 2]))
    array([0, 0])
    """
    return full_like(x, 0, dtype, shape)


@eager
def ones_like(x: Var, dtype: Any = None, shape: Any = None) -> Var:
    """Return ones in the shape and dtype of ``x`` by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.ones_like)(np.array([1, 2]))
    array([1, 1])
    """
    return full_like(x, 1, dtype, shape)


@eager
def full_like(x: Var, fill_value: Any, dtype: Any = None, shape: Any = None) -> Var:
    """Return an array filled with one value, in the shape and dtype of ``x`` by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.full_like(x, 7))(np.array([1, 2]))
    array([7, 7])
    """
    x = as_var(x)
    extents = x.shape if shape is None else extents_of(shape)
    resolved = x.dtype if dtype is None else checked_dtype(dtype)
    if hasattr(fill_value, "node") or np.ndim(fill_value):
        return broadcast_to(astype(as_var(fill_value), resolved), extents)
    return full_of(extents, fill_value, resolved)


@eager
def copy(x: Var) -> Var:
    """Return ``x`` itself: values are immutable, so that a copy would only cost memory.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.copy(x) + 1)(np.array([1, 2]))
    array([2, 3])
    """
    return as_var(x)


@eager
def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Var:
    """Return the numbers from ``start`` to ``stop`` (from 0 to ``start``), a constant.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.arange(2, 5))()
    array([2, 3, 4])
    """
    if stop is None:
        return as_var(np.arange(0, start, step, dtype=dtype))
    return as_var(np.arange(start, stop, step, dtype=dtype))


@eager
def linspace(start: float, stop: float, num: int = 50, dtype: Any = None) -> Var:
    """Return ``num`` evenly spaced numbers, both endpoints included, a constant.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.linspace(0, 1, 3))()
    array([0. , 0.5, 1. ])
    """
    return as_var(np.linspace(start, stop, num, dtype=dtype))


@eager
def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = "float64") -> Var:
    """Return a matrix of zeros with ones on its ``k``-th diagonal, a constant.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.eye(2))()
    array([[1., 0.],
           [0., 1.]])
    """
    return as_var(np.eye(rows, columns, k, dtype=checked_dtype(dtype)))


@eager
def tri(rows: int, columns: int | None = None, k: int = 0, dtype: Any = "float64") -> Var:
    """Return ones on and below the ``k``-th diagonal, and zeros above, a constant.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.tri(2))()
    array([[1., 0.],
           [1., 1.]])
    """
    return as_var(np.tri(rows, columns, k, dtype=checked_dtype(dtype)))
