"""Fake CuPy: an array module over NumPy's memory that refuses to mix with NumPy arrays.

Import it as ``xp``, or pass ``BACKEND`` where a backend's name goes. Its arrays keep CuPy's rules:

- a NumPy array beside one of these is a TypeError: in arithmetic, as an argument of a function, as
  an index, on the right of an assignment, as ``out``;
- NumPy's own functions, ``np.asarray`` among them, refuse these arrays;
- every result is an array, zero-dimensional if need be, never a scalar;
- the way in is ``asarray`` and ``array``, which copy; the way out ``asnumpy``, ``get``, ``item``
  and ``tolist``; and, with a stream, ``get`` and ``set``.

It is stricter than CuPy where CuPy copies to the host and back without a word: ``float``, ``int``
and ``bool`` of an array, ``np.sin`` of one, and NumPy arrays as indices are refused.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from tests import streams as cuda  # noqa: F401  # as cupy.cuda
from tinyckpt.core.backend import Backend

ATTRIBUTES = ("dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides")
WITHOUT_OUT = {"min"}
METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum",
    "diagonal", "dot", "fill", "flatten", "max", "mean", "min", "nonzero", "prod", "ravel",
    "repeat", "reshape", "round", "sort", "squeeze", "std", "sum", "swapaxes", "take", "trace",
    "transpose", "var", "view",
)  # fmt: skip
VIEWS = ("T", "mT", "real", "imag")
BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul",
    "and", "or", "xor", "lshift", "rshift",
)  # fmt: skip
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
UNARY = ("neg", "pos", "abs", "invert")


class ndarray:  # noqa: N801  # as the modules that it stands in for call it
    """An array whose numbers only this module's functions reach.

    Attributes:
        base: the array whose memory this one shows, or None if that is its own.
    """

    __slots__ = ("_numbers", "base")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def __init__(self, numbers: Any, base: ndarray | None = None) -> None:
        self._numbers, self.base = numbers, base

    def __repr__(self) -> str:
        return f"strict.ndarray({self.dtype}, shape={self.shape})"

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return computed(operator.getitem, self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        computed(operator.setitem, self, key, value)

    def get(self, stream: Any = None, out: Any = None, blocking: bool = True) -> Any:
        """Return a copy in NumPy's memory; with a stream, let it be made there."""
        if stream is None:
            return self._numbers.copy()
        assert not blocking
        assert self._numbers.flags.c_contiguous
        assert (out.shape, out.dtype) == (self.shape, self.dtype)
        return stream.copy(lambda: self._numbers, lambda: out)

    def set(self, arr: Any, stream: Any) -> None:
        """Let a copy of NumPy's array be made in a stream."""
        assert self._numbers.flags.c_contiguous
        assert (arr.shape, arr.dtype) == (self.shape, self.dtype)
        stream.copy(lambda: arr, lambda: self._numbers)

    def item(self) -> Any:
        """Return the only element as a Python number."""
        return self._numbers.item()

    def tolist(self) -> Any:
        """Return the elements as Python numbers."""
        return self._numbers.tolist()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "a host copy that nobody asked for: use .item(), .get() or asnumpy() where one is meant"
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __array__ = __array_function__ = _refuse


def with_methods() -> None:
    """Give the class what CuPy's arrays have, each by NumPy's method of the same name."""
    for name in ATTRIBUTES:
        setattr(ndarray, name, property(operator.attrgetter(f"_numbers.{name}")))
    for name in VIEWS:
        setattr(ndarray, name, property(method(operator.attrgetter(name))))
    for name in METHODS:
        setattr(ndarray, name, method(getattr(np.ndarray, name)))
    for name in UNARY:
        setattr(ndarray, f"__{name}__", method(getattr(operator, f"__{name}__")))
    for name in COMPARISONS:
        setattr(ndarray, f"__{name}__", infix(getattr(operator, f"__{name}__")))
    for name in BINARY:
        function = getattr(operator, f"__{name}__")
        setattr(ndarray, f"__{name}__", infix(function))
        setattr(ndarray, f"__r{name}__", infix(lambda x, y, function=function: function(y, x)))
        setattr(ndarray, f"__i{name}__", infix(getattr(operator, f"__i{name}__")))


def infix(function: Callable[..., Any]) -> Callable[[ndarray, Any], Any]:
    """Return NumPy's function of two operands as a method; a list is no operand."""

    def method(self: ndarray, other: Any) -> Any:
        if isinstance(other, list | tuple):
            raise TypeError(f"Unsupported type {type(other)}")
        return computed(function, self, other)

    return method


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's function as a method of the arrays."""
    return lambda self, *args, **kwargs: computed(function, self, *args, **kwargs)


def computed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call NumPy's function with the numbers behind the arrays; return what it makes as arrays."""
    if "out" in kwargs and getattr(function, "__name__", "") in WITHOUT_OUT:
        raise TypeError(f"{function.__name__} fails in CuPy where there is an out")
    met: list[ndarray] = []
    plain = [numbers_of(argument, met) for argument in args]
    options = {key: numbers_of(value, met) for key, value in kwargs.items()}
    with np.errstate(all="ignore"):  # a GPU does not warn
        return arrays_of(function(*plain, **options), met)


def numbers_of(argument: Any, met: list[ndarray]) -> Any:
    """Return an argument as NumPy takes it, and note the arrays in it; NumPy's own are refused."""
    if isinstance(argument, ndarray):
        met.append(argument)
        return argument._numbers
    if isinstance(argument, np.ndarray):
        raise TypeError(f"Unsupported type {type(argument)}")
    if isinstance(argument, list | tuple):
        return type(argument)(numbers_of(item, met) for item in argument)
    return argument


def arrays_of(result: Any, met: list[ndarray]) -> Any:
    """Return a result as arrays; a view has as its base the argument whose memory it shows."""
    if isinstance(result, list | tuple):
        return type(result)(arrays_of(item, met) for item in result)
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    root = owner(result)
    for array in met:
        if array._numbers is result:
            return array
    for array in met:
        if owner(array._numbers) is root:
            return ndarray(result, array if array.base is None else array.base)
    return ndarray(result, None if root is result else ndarray(root))


def owner(numbers: Any) -> Any:
    """Return the NumPy array at the end of the ``base`` chain."""
    while isinstance(numbers.base, np.ndarray):
        numbers = numbers.base
    return numbers


with_methods()

# The module --------------------------------------------------------------------------------------


class Function:
    """NumPy's function of a name, and its methods such as ``reduce``, for these arrays."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self._function, np.ufunc) and any(isinstance(x, list | tuple) for x in args):
            raise TypeError(f"{self._function.__name__}: a list is no operand")
        return computed(self._function, *args, **kwargs)

    def __getattr__(self, name: str) -> Function:
        return Function(getattr(self._function, name))


def __getattr__(name: str) -> Any:
    """Return what NumPy calls by that name: types and numbers as they are, functions refusing."""
    found = getattr(np, name)
    return Function(found) if callable(found) and not isinstance(found, type) else found


def asarray(a: Any, dtype: Any = None, order: Any = None) -> ndarray:
    """Return an array as one of these: itself if it is one, else a copy."""
    if isinstance(a, ndarray) and (dtype is None or a.dtype == dtype):
        return a
    return array(a, dtype, order=order)


def empty(shape: Any, dtype: Any = float) -> ndarray:
    """Return an array of garbage, which is never what happened to be there."""
    numbers = np.empty(shape, dtype)
    numbers.reshape(-1).view("uint8")[:] = 0xFF
    return ndarray(numbers)


def array(a: Any, dtype: Any = None, copy: bool = True, order: Any = "K") -> ndarray:
    """Return a copy as one of these arrays."""
    return ndarray(np.array(numbers_of(a, []) if isinstance(a, ndarray | list | tuple) else a,
                            dtype, copy=True, order=order))  # fmt: skip


def asnumpy(a: ndarray) -> Any:
    """Return a copy in NumPy's memory."""
    return a.get()


BACKEND = Backend("tests.strict", sys.modules[__name__], asnumpy, asarray, lambda: None)
