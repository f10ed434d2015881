"""The handle that a traced function computes with: a shape and a dtype, and no numbers.

Arithmetic on a Var adds operators to the graph being built. Whatever would need numbers (``if``,
``float``, iteration, NumPy's functions, writes in place) is refused, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tinyckpt.errors import GraphError
from tinyckpt.graph import DataNode, Spec
from tinyckpt.ops import elementwise, linalg, reduce, shape

if TYPE_CHECKING:
    from tinyckpt.builder import Builder

UFUNC_METHODS = {
    "add": "__add__",
    "subtract": "__sub__",
    "multiply": "__mul__",
    "divide": "__truediv__",
    "power": "__pow__",
    "matmul": "__matmul__",
    "greater": "__gt__",
    "greater_equal": "__ge__",
    "less": "__lt__",
    "less_equal": "__le__",
    "equal": "__eq__",
    "not_equal": "__ne__",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var:
    """A value in the graph being built: a shape and a dtype, with operators, and no numbers."""

    node: DataNode
    builder: Builder

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self.node.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of all axes."""
        return self.node.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype."""
        return self.node.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.node.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.node.spec.size

    @property
    def T(self) -> Var:  # noqa: N802  # as NumPy calls it
        """The view with its axes reversed."""
        return shape.transpose(self)

    def reshape(self, *extents: Any) -> Var:
        """Return a view in another shape; one extent may be -1."""
        return shape.reshape(self, extents[0] if len(extents) == 1 else extents)

    def transpose(self, *axes: Any) -> Var:
        """Return a view with its axes permuted."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            (axes,) = axes
        return shape.transpose(self, axes or None)

    def astype(self, dtype: Any) -> Var:
        """Return it in another dtype."""
        return elementwise.astype(self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the sum over axes."""
        return reduce.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the mean over axes."""
        return reduce.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the maximum over axes."""
        return reduce.max(self, axis, keepdims)

    def __repr__(self) -> str:
        return f"Var({self.node})"

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Var:
        return shape.index(self, key)

    def __add__(self, other: Any) -> Var:
        return elementwise.add(self, other)

    def __radd__(self, other: Any) -> Var:
        return elementwise.add(other, self)

    def __sub__(self, other: Any) -> Var:
        return elementwise.subtract(self, other)

    def __rsub__(self, other: Any) -> Var:
        return elementwise.subtract(other, self)

    def __mul__(self, other: Any) -> Var:
        return elementwise.multiply(self, other)

    def __rmul__(self, other: Any) -> Var:
        return elementwise.multiply(other, self)

    def __truediv__(self, other: Any) -> Var:
        return elementwise.divide(self, other)

    def __rtruediv__(self, other: Any) -> Var:
        return elementwise.divide(other, self)

    def __pow__(self, exponent: Any) -> Var:
        return elementwise.power(self, exponent)

    def __rpow__(self, base: Any) -> Var:
        return elementwise.power(self.builder.as_var(base, self.dtype), self)

    def __matmul__(self, other: Any) -> Var:
        return linalg.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Var:
        return linalg.matmul(self.builder.as_var(other, self.dtype), self)

    def __neg__(self) -> Var:
        return elementwise.negative(self)

    def __abs__(self) -> Var:
        return elementwise.absolute(self)

    def __gt__(self, other: Any) -> Var:
        return elementwise.greater(self, other)

    def __ge__(self, other: Any) -> Var:
        return elementwise.greater_equal(self, other)

    def __lt__(self, other: Any) -> Var:
        return elementwise.less(self, other)

    def __le__(self, other: Any) -> Var:
        return elementwise.less_equal(self, other)

    def __eq__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return elementwise.equal(self, other)

    def __ne__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return elementwise.not_equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def _refuse(self, use: str, instead: str) -> NoReturn:
        raise GraphError(
            f"{use} of {self.node.name} ({self.spec}): while a function is traced, its values have "
            f"shapes but no numbers; {instead}"
        )

    def __bool__(self) -> bool:
        self._refuse("the truth value", "use tc.where(condition, x, y) in place of if and while")

    def __float__(self) -> float:
        self._refuse("float()", "keep it a Var, or compute the number outside of the function")

    def __int__(self) -> int:
        self._refuse("int()", "keep it a Var, or compute the number outside of the function")

    __index__ = __int__

    def __iter__(self) -> Iterator[Any]:
        self._refuse("iteration", "loop over range(len(x)) and index, or use tc.split")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse("a write in place", "values never change; build a new one, as with tc.where")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("conversion to an array", "use the operators of tinyckpt, such as tc.tanh")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self._refuse(
            f"np.{function.__name__}", f"use tc.{function.__name__} or another operator of tinyckpt"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An array on the left of an infix operator arrives here: array + Var.
        name = UFUNC_METHODS.get(ufunc.__name__)
        if name is None or method != "__call__" or kwargs:
            self._refuse(f"np.{ufunc.__name__}", f"use tc.{ufunc.__name__}, if there is one")
        left, right = inputs
        return getattr(self.builder.as_var(left, self.dtype), name)(right)
