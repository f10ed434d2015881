"""The handle that a traced function computes with: a shape and a dtype, and no numbers.

Arithmetic on a Var, and NumPy's functions of it, add operators to the graph being built. Whatever
would need numbers (``if``, ``float``, iteration, writes in place) is refused, with what to write
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import DataNode, Spec
from tinyckpt.ops import (
    arrangement,
    casting,
    comparison,
    elementwise,
    indexing,
    linalg,
    logic,
    protocols,
    rounding,
    shape,
)

if TYPE_CHECKING:
    from tinyckpt.core.builder import Builder


Binary = Callable[[Any, Any], "Var"]


def infix(function: Binary) -> tuple[Binary, Binary]:
    """Return a function of two operands as the methods that Python calls for either of them."""
    return function, lambda self, other: function(other, self)


def numpys(name: str) -> Callable[..., Any]:
    """Return NumPy's function of a name as a method."""
    function = getattr(np, name)

    def method(self: Var, *args: Any, **options: Any) -> Any:
        if isinstance(function, np.ufunc):
            return protocols.call_ufunc(function, "__call__", (self, *args), options)
        return protocols.call_function(function, (self, *args), options)

    method.__name__, method.__doc__ = name, f"Return what ``np.{name}`` of it is."
    return method


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

    @property
    def mT(self) -> Var:  # noqa: N802  # as NumPy calls it
        """The view with its last two axes exchanged."""
        return arrangement.matrix_transpose(self)

    @property
    def real(self) -> Var:
        """Itself: there are no complex numbers here."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this shape and dtype."""
        return self.node.spec.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def reshape(self, *extents: Any, order: str = "C") -> Var:
        """Return a view in another shape; one extent may be -1."""
        if order not in ("C", "A"):
            raise GraphError(f"reshape: order={order!r}; arrays are in C order: transpose first")
        return shape.reshape(self, extents[0] if len(extents) == 1 else extents)

    def transpose(self, *axes: Any) -> Var:
        """Return a view with its axes permuted."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            (axes,) = axes
        return shape.transpose(self, axes or None)

    def astype(self, dtype: Any, *, copy: bool = True) -> Var:
        """Return it in another dtype; whether values that never change are copied is all one."""
        return casting.astype(self, dtype)

    # Methods that NumPy has as functions, too: the same arguments, and the same refusals.
    all, any = numpys("all"), numpys("any")
    argmax, argmin, argsort = numpys("argmax"), numpys("argmin"), numpys("argsort")
    clip, repeat, round = numpys("clip"), numpys("repeat"), numpys("round")
    conj = conjugate = numpys("conjugate")
    copy, ravel, squeeze = numpys("copy"), numpys("ravel"), numpys("squeeze")
    cumprod, cumsum = numpys("cumprod"), numpys("cumsum")
    diagonal, swapaxes, trace = numpys("diagonal"), numpys("swapaxes"), numpys("trace")
    dot, take = numpys("dot"), numpys("take")
    flatten = ravel
    max, min, ptp = numpys("max"), numpys("min"), numpys("ptp")
    mean, std, var = numpys("mean"), numpys("std"), numpys("var")
    prod, sum = numpys("prod"), numpys("sum")

    def __repr__(self) -> str:
        return f"Var({self.node})"

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Var:
        return indexing.getitem(self, key)

    # What stands between two operands, and the same with the array on the right.
    __add__, __radd__ = infix(elementwise.add)
    __sub__, __rsub__ = infix(elementwise.subtract)
    __mul__, __rmul__ = infix(elementwise.multiply)
    __truediv__, __rtruediv__ = infix(elementwise.divide)
    __floordiv__, __rfloordiv__ = infix(rounding.floor_divide)
    __mod__, __rmod__ = infix(rounding.remainder)
    __and__, __rand__ = infix(logic.bitwise_and)
    __or__, __ror__ = infix(logic.bitwise_or)
    __xor__, __rxor__ = infix(logic.bitwise_xor)
    __lshift__, __rlshift__ = infix(logic.left_shift)
    __rshift__, __rrshift__ = infix(logic.right_shift)
    __pow__ = elementwise.power
    __matmul__ = linalg.matmul
    __gt__ = comparison.greater
    __ge__ = comparison.greater_equal
    __lt__ = comparison.less
    __le__ = comparison.less_equal
    __abs__ = elementwise.absolute
    __invert__ = logic.invert
    __round__ = rounding.round

    def __neg__(self) -> Var:  # a function in the open: others' types are found by it
        return elementwise.negative(self)

    def __pos__(self) -> Var:
        return self

    def __divmod__(self, other: Any) -> tuple[Var, Var]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Var, Var]:
        return other // self, other % self

    def __rpow__(self, base: Any) -> Var:
        return elementwise.power(self.builder.as_var(base, self.dtype), self)

    def __rmatmul__(self, other: Any) -> Var:
        return linalg.matmul(self.builder.as_var(other, self.dtype), self)

    def __eq__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return comparison.equal(self, other)

    def __ne__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return comparison.not_equal(self, other)

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
        self._refuse(
            "conversion to an array",
            "join Vars with tc.stack or tc.concatenate; docs/numpy.md lists what works on a Var",
        )

    def item(self, *args: Any) -> Any:
        """Refuse: a number that is taken out of the graph would stay as it is for ever."""
        self._refuse("item()", "keep it a Var, or return it and take the number from the result")

    def tolist(self) -> Any:
        """Refuse, as ``item``."""
        self._refuse("tolist()", "return it and take the numbers from the result")

    def nonzero(self) -> Any:
        """Refuse: the shape of the result is not known."""
        self._refuse("nonzero()", "use tc.where(x != 0, one, other)")

    def sort(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: NumPy's method works in place."""
        self._refuse("sort() in place", "values never change; use tc.sort")

    def fill(self, value: Any) -> Any:
        """Refuse: a write in place."""
        self._refuse("fill() in place", "values never change; use tc.full_like")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return protocols.call_function(function, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An array on the left of an infix operator arrives here, too: array + Var.
        return protocols.call_ufunc(ufunc, method, inputs, kwargs)
