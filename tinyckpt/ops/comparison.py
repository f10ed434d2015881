"""Elementwise comparisons; the results are boolean and have no derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import apply
from tinyckpt.ops import kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.shape_inference import per_element

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

GREATER = Primitive("greater", kernels.greater, infer.comparison, flops=per_element(1))
GREATER_EQUAL = Primitive(
    "greater_equal", kernels.greater_equal, infer.comparison, flops=per_element(1)
)
LESS = Primitive("less", kernels.less, infer.comparison, flops=per_element(1))
LESS_EQUAL = Primitive("less_equal", kernels.less_equal, infer.comparison, flops=per_element(1))
EQUAL = Primitive("equal", kernels.equal, infer.comparison, flops=per_element(1))
NOT_EQUAL = Primitive("not_equal", kernels.not_equal, infer.comparison, flops=per_element(1))


def greater(x: Any, y: Any) -> Var:
    """Elementwise ``x > y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.greater)(np.array([1, 2]), np.array([2, 1]))
    array([False,  True])
    """
    return apply(GREATER, x, y)


def greater_equal(x: Any, y: Any) -> Var:
    """Elementwise ``x >= y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.greater_equal)(np.array([1, 2]), np.array([2, 2]))
    array([False,  True])
    """
    return apply(GREATER_EQUAL, x, y)


def less(x: Any, y: Any) -> Var:
    """Elementwise ``x < y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.less)(np.array([1, 2]), np.array([2, 1]))
    array([ True, False])
    """
    return apply(LESS, x, y)


def less_equal(x: Any, y: Any) -> Var:
    """Elementwise ``x <= y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.less_equal)(np.array([1, 2]), np.array([2, 2]))
    array([ True,  True])
    """
    return apply(LESS_EQUAL, x, y)


def equal(x: Any, y: Any) -> Var:
    """Elementwise ``x == y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.equal)(np.array([1, 2]), np.array([2, 2]))
    array([False,  True])
    """
    return apply(EQUAL, x, y)


def not_equal(x: Any, y: Any) -> Var:
    """Elementwise ``x != y``, boolean.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.not_equal)(np.array([1, 2]), np.array([2, 2]))
    array([ True, False])
    """
    return apply(NOT_EQUAL, x, y)
