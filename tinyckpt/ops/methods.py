"""The methods of a traced value: infix operators, indexing, NumPy's methods and its protocols.

``Var`` itself knows a shape and a dtype. ``install``, called once by ``ops``, adds the methods of
the table below to the class, so that ``x @ w + b`` and ``x.sum(axis=0)`` add operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import Var
from tinyckpt.ops import (
    casting,
    comparison,
    elementwise,
    indexing,
    linalg,
    logic,
    manipulation,
    numpy_protocols,
    rounding,
    shape,
)
from tinyckpt.ops.foreign_names import VAR_NAMES


def reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a binary function as the method for an operand on the right: ``__radd__``."""
    return lambda self, other: function(other, self)


def numpy_method(name: str) -> Callable[..., Any]:
    """Return the NumPy function of this name as a method, dispatched through the protocols."""
    function = getattr(np, name)

    def method(self: Var, *args: Any, **options: Any) -> Any:
        if isinstance(function, np.ufunc):
            return numpy_protocols.call_ufunc(function, "__call__", (self, *args), options)
        return numpy_protocols.call_function(function, (self, *args), options)

    method.__name__, method.__doc__ = name, f"Return what ``np.{name}`` of it is."
    return method


def reshape(self: Var, *extents: Any, order: str = "C") -> Var:
    """Return a view in another shape; one extent may be -1."""
    if order not in ("C", "A"):
        raise GraphError(f"reshape: order={order!r}; arrays are in C order: transpose first")
    return shape.reshape(self, extents[0] if len(extents) == 1 else extents)


def transpose(self: Var, *axes: Any) -> Var:
    """Return a view with its axes permuted."""
    if len(axes) == 1 and not isinstance(axes[0], int):
        (axes,) = axes
    return shape.transpose(self, axes or None)


def astype(self: Var, dtype: Any, *, copy: bool = True) -> Var:
    """Cast to another dtype; ``copy`` is ignored, since values are immutable."""
    return casting.astype(self, dtype)


def negative(self: Var) -> Var:
    """Return the negative: a plain function, since some libraries detect numeric types by it."""
    return elementwise.negative(self)


def call_function(self: Var, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Dispatch a function of NumPy that was called with this value."""
    return numpy_protocols.call_function(function, args, kwargs)


def call_ufunc(self: Var, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Dispatch a ufunc; also called for an array on the left of an infix operator."""
    return numpy_protocols.call_ufunc(ufunc, method, inputs, kwargs)


def refusal(use: str, instead: str) -> Callable[..., NoReturn]:
    """Return the method of a use that needs numbers: it raises, and names the alternative."""

    def refuse(self: Var, *args: Any, **kwargs: Any) -> NoReturn:
        raise GraphError(
            f"{use} of {self.node.name} ({self.spec}): while a function is traced, its values have "
            f"shapes but no numbers; {instead}"
        )

    refuse.__doc__ = f"Refuse {use}: {instead}."
    return refuse


def truth_value(self: Var) -> NoReturn:
    """Refuse to say whether it is true; of a bool among the arguments, say how it is static."""
    use = "use tc.where(condition, x, y) in place of if and while"
    if self.dtype == np.bool_ and self.node.role == "input" and not self.shape:
        use = f"name a flag that is no array, static=({self.node.name!r},); or {use}"
    refusal("the truth value", use)(self)


def formatted(self: Var, spec: str) -> str:
    """Return its text in an f-string; refuse a number format, as in ``f"{loss:.3f}"``."""
    if spec:
        refusal(f"the format {spec!r}", "print the result instead, outside of the function")(self)
    return str(self)


def itself(self: Var, *memo: Any) -> Var:
    """Return the value itself as its copy, deep or not: values never change."""
    return self


def missing_attribute(self: Var, name: str) -> NoReturn:
    """Say what to write in place of an attribute of PyTorch's tensors or JAX's arrays."""
    instead = VAR_NAMES.get(name, "")
    if not instead and name.removesuffix("_") in elementwise.FUNCTIONS:
        instead = f"use the result of tc.{name.removesuffix('_')}"
    elif not instead and name.endswith("_") and not name.startswith("_"):
        instead = "values never change: use the result, as of x + y"
    text = f"{type(self).__name__!r} object has no attribute {name!r}"
    raise AttributeError(f"{text}; {instead}" if instead else text)


OUTSIDE = "keep it a Var, or compute the number outside of the function"
REFUSED: Mapping[str, Callable[..., NoReturn]] = {
    "__bool__": truth_value,
    "__float__": refusal("float()", OUTSIDE),
    "__int__": refusal("int()", OUTSIDE),
    "__index__": refusal("int()", OUTSIDE),
    "__iter__": refusal("iteration", "loop over tc.unstack(x), or over range(len(x)) and index"),
    "__setitem__": refusal(
        "a write in place",
        "values never change; build a new one, as h = tc.where(mask, value, h), or join its parts "
        "with tc.concatenate",
    ),
    "__array__": refusal(
        "conversion to an array",
        "join Vars with tc.stack or tc.concatenate; docs/numpy.md lists what works on a Var",
    ),
    "item": refusal("item()", "keep it a Var, or return it and take the number from the result"),
    "tolist": refusal("tolist()", "return it and take the numbers from the result"),
    "nonzero": refusal("nonzero()", "use tc.where(x != 0, one, other)"),
    "sort": refusal("sort() in place", "values never change; use tc.sort"),
    "fill": refusal("fill() in place", "values never change; use tc.full_like"),
}
INFIX: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
    "floordiv": rounding.floor_divide,
    "mod": rounding.remainder,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.left_shift,
    "rshift": logic.right_shift,
}
METHODS: Mapping[str, Any] = {
    **REFUSED,
    "__format__": formatted,
    "__copy__": itself,
    "__deepcopy__": itself,
    **{f"__{name}__": function for name, function in INFIX.items()},
    **{f"__r{name}__": reflected(function) for name, function in INFIX.items()},
    "__pow__": elementwise.power,
    "__rpow__": lambda self, base: elementwise.power(self.builder.as_var(base, self.dtype), self),
    "__matmul__": linalg.matmul,
    "__rmatmul__": lambda self, other: linalg.matmul(self.builder.as_var(other, self.dtype), self),
    "__divmod__": lambda self, other: (self // other, self % other),
    "__rdivmod__": lambda self, other: (other // self, other % self),
    "__gt__": comparison.greater,
    "__ge__": comparison.greater_equal,
    "__lt__": comparison.less,
    "__le__": comparison.less_equal,
    "__eq__": comparison.equal,  # elementwise, as in NumPy
    "__ne__": comparison.not_equal,
    "__neg__": negative,
    "__pos__": lambda self: self,
    "__abs__": elementwise.absolute,
    "__invert__": logic.invert,
    "__round__": rounding.round,
    "__getitem__": indexing.getitem,
    "__getattr__": missing_attribute,
    "__array_function__": call_function,
    "__array_ufunc__": call_ufunc,
    "T": property(shape.transpose, doc="The view with its axes reversed."),
    "mT": property(manipulation.matrix_transpose, doc="The view with its last axes exchanged."),
    "real": property(lambda self: self, doc="The value itself: there are no complex dtypes."),
    "size": property(lambda self: self.spec.size, doc="Number of elements."),
    "nbytes": property(lambda self: self.spec.nbytes, doc="Bytes of a dense array like it."),
    "itemsize": property(lambda self: self.dtype.itemsize, doc="Bytes of one element."),
    "reshape": reshape,
    "transpose": transpose,
    "astype": astype,
    # Methods that NumPy also has as functions: same arguments, same errors.
    **{
        name: numpy_method(name)
        for name in (
            "all", "any", "argmax", "argmin", "argsort", "clip", "copy", "cumprod", "cumsum",
            "diagonal", "dot", "max", "mean", "min", "prod", "ptp", "ravel", "repeat", "round",
            "squeeze", "std", "sum", "swapaxes", "take", "trace", "var",
        )
    },
    "conj": numpy_method("conjugate"),
    "conjugate": numpy_method("conjugate"),
    "flatten": numpy_method("ravel"),
}  # fmt: skip


def install() -> None:
    """Add the methods to ``Var``."""
    for name, method in METHODS.items():
        setattr(Var, name, method)
