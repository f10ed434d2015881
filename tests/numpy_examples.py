"""Examples of every NumPy name that works on traced values (``Var``), one call each.

``call(m, *arrays)`` is an ordinary use of the name in the module ``m``: NumPy itself, which gives
what is expected of arrays and answers for Vars, or tinyckpt where it has the name. These examples
drive the tests of values, derivatives and backends, and the table in docs/numpy.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyckpt.ops import elementwise_table

R = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def positive(*shape: int) -> Any:
    return R.uniform(0.5, 2.0, size=shape)


def inside(*shape: int) -> Any:
    return R.uniform(-0.8, 0.8, size=shape)


def apart(*shape: int) -> Any:
    """Return values 0.2 apart and 0.1 from 0: no step of a difference meets a kink or a tie."""
    count = math.prod(shape)
    return R.permutation((np.arange(count) - count // 2) * 0.2 + 0.1).reshape(shape)


@dataclass(frozen=True)
class Example:
    """One use of a name.

    Attributes:
        call: of the module and the arrays.
        args: the arrays.
        differs: how it differs from NumPy; empty if it does not.
        smooth: whether derivatives can be compared with differences: floats out of floats.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    differs: str = ""
    smooth: bool = True


def found(module: Any, name: str) -> Any:
    """Return what a module has by a dotted name, or None."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def unary(name: str, x: Any, smooth: bool = True) -> Example:
    return Example(lambda m, x: getattr(m, name)(x), (x,), smooth=smooth)


def binary(name: str, x: Any, y: Any, smooth: bool = True) -> Example:
    return Example(lambda m, x, y: getattr(m, name)(x, y), (x, y), smooth=smooth)


BITS, MORE_BITS = np.array([1, 6, 12]), np.array([3, 5, 2])
MASK, OTHER_MASK = np.array([True, False, True]), np.array([True, True, False])
ROWS = np.array([2, 0, 2])
HOLES = np.array([1.5, np.nan, -2.0, np.inf, -np.inf])
# No quotient is near an integer, where these functions jump.
DIVISIONS = np.array([7.3, -4.2, 5.1, -8.6, 2.9]), np.array([1.1, 0.8, 2.3, 1.9, 0.9])
A_TUPLE = "a tuple, not a list"
AS_BOOL = "a boolean value of the graph, not a Python bool"

# By the domain of a row, its one operand, or the second of two; by its dtypes, where they say more.
DRAWN: dict[str, Callable[..., Any]] = {
    "reals": normal,
    "positive": positive,
    "above 1": lambda *shape: 1 + positive(*shape),
    "inside": inside,
    "kinked": apart,
}
GIVEN: dict[str, tuple[Any, ...]] = {
    "quotients": DIVISIONS,
    "truth": (MASK, OTHER_MASK),
    "special": (np.append(HOLES, [-0.0, 0.0]),),
    "any": (np.array([1, 6, 12]), np.array([[1.0, 5.0, 20.0]])),  # equal, greater, less
    "bits": (BITS, MORE_BITS),
    "integers": (BITS, MORE_BITS),
}


def of_row(row: elementwise_table.Elementwise) -> Example:
    """Return the example of an elementwise function that NumPy has, too."""
    count = len(row.of.split(", "))
    given = GIVEN.get(row.domain) or GIVEN.get(row.dtypes)
    if given is None and row.domain == "kinked" and count == 2:
        given = apart(6), np.array([0.03])
    if given is None:
        draw = DRAWN[row.domain]
        given = (draw(6),) if count == 1 else (draw(2, 1), draw(3))  # both broadcast
    smooth = bool(row.slope or row.vjp)
    return Example(lambda m, *x: getattr(m, row.name)(*x), given[:count], smooth=smooth)


EXAMPLES: dict[str, Example] = {
    # Functions of a row, which NumPy has by the same name -----------------------------------------
    **{
        row.name: of_row(row)
        for row in elementwise_table.ROWS.values()
        if row.text and hasattr(np, row.name)
    },
    # Functions of one number ---------------------------------------------------------------------
    "around": Example(lambda m, x: np.around(x, 1), (normal(5),), smooth=False),
    "conjugate": unary("conjugate", normal(3)),
    "deg2rad": unary("deg2rad", normal(4)),
    "degrees": unary("degrees", normal(4)),
    "fabs": unary("fabs", apart(6)),
    "fix": unary("fix", apart(6)),
    "nan_to_num": Example(
        lambda m, x: m.nan_to_num(x, nan=2.0, posinf=9.0), (HOLES,), smooth=False
    ),
    "positive": unary("positive", normal(4)),
    "rad2deg": unary("rad2deg", normal(4)),
    "radians": unary("radians", normal(4)),
    "real": unary("real", normal(3)),
    "reciprocal": Example(
        lambda m, x: m.reciprocal(x), (positive(4),), differs="of integers, floats"
    ),
    "rint": unary("rint", np.array([0.2, -0.7, 1.3])),
    "round": Example(lambda m, x: m.round(x, 1), (normal(5),), smooth=False),
    "sinc": unary("sinc", apart(6)),
    "square": unary("square", normal(4)),
    # Functions of two ----------------------------------------------------------------------------
    "arctan2": binary("arctan2", normal(2, 3), normal(3)),
    "copysign": binary("copysign", apart(6), apart(6)),
    "fmax": binary("fmax", apart(6), np.zeros(1) + 0.03),
    "fmin": binary("fmin", apart(6), np.zeros(1) + 0.03),
    "heaviside": Example(lambda m, x: m.heaviside(x, 0.5), (apart(6),)),
    "isclose": binary("isclose", np.ones(3), np.array([1.0, 1.1, 1 + 1e-9]), smooth=False),
    "power": binary("power", positive(3), np.maximum(normal(2, 3), -0.9)),  # integers: none below 0
    # Reductions ----------------------------------------------------------------------------------
    "all": Example(lambda m, x: m.all(x, axis=0), (np.eye(3) + 1,), smooth=False),
    "allclose": Example(lambda m, x: m.allclose(x, x), (normal(3),), AS_BOOL, smooth=False),
    "amax": Example(lambda m, x: m.amax(x, axis=1), (apart(2, 3),)),
    "amin": Example(lambda m, x: m.amin(x, axis=1), (apart(2, 3),)),
    "any": Example(lambda m, x: m.any(x, axis=1), (np.eye(3),), smooth=False),
    "argmax": Example(lambda m, x: m.argmax(x, axis=1), (normal(2, 3),), smooth=False),
    "argmin": Example(lambda m, x: m.argmin(x, axis=0), (normal(2, 3),), smooth=False),
    "average": Example(
        lambda m, x, w: m.average(x, axis=1, weights=w), (normal(2, 3), positive(3))
    ),
    "count_nonzero": Example(lambda m, x: m.count_nonzero(x, axis=0), (np.eye(3),), smooth=False),
    "max": Example(lambda m, x: m.max(x, axis=0), (apart(2, 3),)),
    "mean": Example(lambda m, x: m.mean(x, axis=1), (normal(2, 3),)),
    "median": Example(lambda m, x: m.median(x, axis=1), (apart(2, 4),)),
    "min": Example(lambda m, x: m.min(x, axis=0), (apart(2, 3),)),
    "prod": Example(lambda m, x: m.prod(x, axis=1), (normal(2, 5),)),
    "ptp": Example(lambda m, x: m.ptp(x, axis=1), (apart(2, 3),)),
    "std": Example(lambda m, x: m.std(x, axis=0, ddof=1), (normal(4, 2),)),
    "sum": Example(lambda m, x: m.sum(x, axis=(0, 2)), (normal(2, 3, 2),)),
    "var": Example(lambda m, x: m.var(x, axis=1, ddof=1), (normal(2, 4),)),
    # Running sums and order ----------------------------------------------------------------------
    "argsort": Example(
        lambda m, x: m.argsort(x), (10 * apart(2, 4),), "equal elements stay in order", smooth=False
    ),
    "cumprod": Example(lambda m, x: m.cumprod(x, axis=1), (normal(2, 5),)),
    "cumsum": Example(lambda m, x: m.cumsum(x, axis=0), (normal(3, 2),)),
    "cumulative_prod": Example(lambda m, x: m.cumulative_prod(x, axis=0), (normal(3, 2),)),
    "cumulative_sum": Example(lambda m, x: m.cumulative_sum(x, axis=1), (normal(3, 2),)),
    "diff": Example(lambda m, x: m.diff(x, n=2, axis=0), (normal(4, 2),)),
    "sort": Example(lambda m, x: m.sort(x, axis=0), (apart(4, 2),)),
    # Products ------------------------------------------------------------------------------------
    "dot": binary("dot", normal(2, 3), normal(3, 4)),
    "einsum": Example(
        lambda m, x, y: m.einsum("bij,kj->bki", x, y), (normal(2, 3, 4), normal(2, 4)),
        "one or two operands; axes of one label have one extent",
    ),
    "inner": binary("inner", normal(2, 3), normal(4, 3)),
    "kron": binary("kron", normal(2, 2), normal(3)),
    "linalg.matmul": Example(lambda m, x, y: m.linalg.matmul(x, y), (normal(2, 3), normal(3, 2))),
    "linalg.matrix_norm": Example(lambda m, x: m.linalg.matrix_norm(x), (normal(2, 3),)),
    "linalg.norm": Example(
        lambda m, x: m.linalg.norm(x, axis=1), (normal(2, 3),),
        "no singular values: of matrices, ord is 'fro', 1, -1, inf or -inf",
    ),
    "linalg.outer": Example(lambda m, x, y: m.linalg.outer(x, y), (normal(2), normal(3))),
    "linalg.tensordot": Example(
        lambda m, x, y: m.linalg.tensordot(x, y, axes=1), (normal(2, 3), normal(3, 2))
    ),
    "linalg.trace": Example(lambda m, x: m.linalg.trace(x), (normal(2, 3, 3),)),
    "linalg.vecdot": Example(lambda m, x, y: m.linalg.vecdot(x, y), (normal(2, 3), normal(3))),
    "linalg.vector_norm": Example(lambda m, x: m.linalg.vector_norm(x, ord=3), (apart(4),)),
    "matmul": binary("matmul", normal(2, 3), normal(3, 2)),
    "matvec": binary("matvec", normal(2, 2, 3), normal(3)),
    "outer": binary("outer", normal(2), normal(3)),
    "tensordot": Example(
        lambda m, x, y: m.tensordot(x, y, axes=((0, 2), (1, 0))),
        (normal(2, 3, 2), normal(2, 2, 3)),
    ),
    "trace": Example(lambda m, x: m.trace(x, offset=1), (normal(2, 3),)),
    "vdot": binary("vdot", normal(2, 3), normal(3, 2)),
    "vecdot": binary("vecdot", normal(2, 3), normal(3)),
    "vecmat": binary("vecmat", normal(3), normal(2, 3, 2)),
    # Shapes --------------------------------------------------------------------------------------
    "array_split": Example(lambda m, x: m.array_split(x, 2), (normal(5),), A_TUPLE),
    "astype": Example(lambda m, x: m.astype(x, "float32"), (normal(3),), smooth=False),
    "atleast_1d": unary("atleast_1d", np.array(2.0)),
    "atleast_2d": unary("atleast_2d", normal(3)),
    "atleast_3d": unary("atleast_3d", normal(3)),
    "broadcast_arrays": binary("broadcast_arrays", normal(3), normal(2, 1)),
    "broadcast_to": Example(lambda m, x: m.broadcast_to(x, (2, 3)), (normal(3),)),
    "clip": Example(lambda m, x: m.clip(x, -0.33, 0.33), (apart(8),)),
    "column_stack": Example(lambda m, x, y: m.column_stack([x, y]), (normal(3), normal(3, 2))),
    "concat": Example(lambda m, x, y: m.concat([x, y], axis=1), (normal(2, 1), normal(2, 2))),
    "concatenate": Example(lambda m, x, y: m.concatenate([x, y]), (normal(2), normal(3))),
    "copy": Example(lambda m, x: m.copy(x), (normal(3),), "the value itself, which never changes"),
    "diag": Example(lambda m, x: m.diag(x, 1), (normal(3),)),
    "diagonal": Example(lambda m, x: m.diagonal(x, -1, 1, 2), (normal(2, 3, 3),)),
    "dsplit": Example(lambda m, x: m.dsplit(x, 2), (normal(2, 1, 4),), A_TUPLE),
    "dstack": Example(lambda m, x, y: m.dstack([x, y]), (normal(2, 3), normal(2, 3))),
    "empty_like": Example(
        lambda m, x: m.where(m.isfinite(x), x, m.empty_like(x)), (normal(3),), "zeros"
    ),
    "expand_dims": Example(lambda m, x: m.expand_dims(x, (0, 2)), (normal(3),)),
    "flip": Example(lambda m, x: m.flip(x, axis=1), (normal(2, 3),)),
    "fliplr": unary("fliplr", normal(2, 3)),
    "flipud": unary("flipud", normal(2, 3)),
    "full_like": Example(lambda m, x: m.full_like(x, 2.5) * x, (normal(3),)),
    "hsplit": Example(lambda m, x: m.hsplit(x, [1]), (normal(2, 3),), A_TUPLE),
    "hstack": Example(lambda m, x, y: m.hstack([x, y]), (normal(2, 1), normal(2, 3))),
    "linalg.diagonal": Example(lambda m, x: m.linalg.diagonal(x), (normal(2, 3, 3),)),
    "linalg.matrix_transpose": Example(lambda m, x: m.linalg.matrix_transpose(x), (normal(2, 3),)),
    "matrix_transpose": unary("matrix_transpose", normal(2, 3)),
    "moveaxis": Example(lambda m, x: m.moveaxis(x, 0, -1), (normal(2, 3, 2),)),
    "ones_like": Example(lambda m, x: m.ones_like(x) * x, (normal(3),)),
    "pad": Example(
        lambda m, x: m.pad(x, ((1, 0), (2, 1)), constant_values=1.5), (normal(2, 3),),
        "modes constant, edge, reflect, symmetric, wrap; one constant",
    ),
    "permute_dims": Example(lambda m, x: m.permute_dims(x, (2, 0, 1)), (normal(2, 3, 2),)),
    "ravel": unary("ravel", normal(2, 3)),
    "repeat": Example(lambda m, x: m.repeat(x, 2, axis=1), (normal(2, 3),)),
    "reshape": Example(lambda m, x: m.reshape(x, (3, -1)), (normal(2, 3),)),
    "roll": Example(lambda m, x: m.roll(x, (1, -2), axis=(0, 1)), (normal(2, 3),)),
    "rot90": unary("rot90", normal(2, 3)),
    "split": Example(lambda m, x: m.split(x, 2), (normal(4, 2),), A_TUPLE),
    "squeeze": unary("squeeze", normal(2, 1, 3)),
    "stack": Example(lambda m, x, y: m.stack([x, y], axis=1), (normal(3), normal(3))),
    "swapaxes": Example(lambda m, x: m.swapaxes(x, 0, 2), (normal(2, 3, 2),)),
    "take": Example(lambda m, x: m.take(x, [2, 0, 2, -1], axis=1), (normal(2, 3),)),
    "take_along_axis": Example(
        lambda m, x: m.take_along_axis(x, np.array([[2, 0], [1, -1]]), axis=1), (normal(2, 3),)
    ),
    "tile": Example(lambda m, x: m.tile(x, (2, 1, 2)), (normal(2, 3),)),
    "transpose": Example(lambda m, x: m.transpose(x, (1, 0, 2)), (normal(2, 3, 2),)),
    "tril": unary("tril", normal(3, 3)),
    "triu": Example(lambda m, x: m.triu(x, 1), (normal(3, 3),)),
    "unstack": Example(lambda m, x: m.unstack(x, axis=1), (normal(3, 2),)),
    "vsplit": Example(lambda m, x: m.vsplit(x, 2), (normal(4, 2),), A_TUPLE),
    "vstack": Example(lambda m, x, y: m.vstack([x, y]), (normal(3), normal(2, 3))),
    "where": Example(
        lambda m, x, y: m.where(x > 0, x, y), (apart(6), normal(6)), "with both choices only"
    ),
    "zeros_like": Example(lambda m, x: m.zeros_like(x) + x, (normal(3),)),
}  # fmt: skip

# NumPy's second names for what stands above.
ALIASES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_not": "invert",
    "bitwise_right_shift": "right_shift", "conj": "conjugate", "mod": "remainder", "pow": "power",
    "true_divide": "divide",
}  # fmt: skip
