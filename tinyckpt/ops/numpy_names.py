"""Dispatch tables from NumPy function names to operators, with advice for unsupported functions.

``numpy_protocols`` looks up the function here when NumPy dispatches to a Var. The tables are
complete: there is no other registration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyckpt.core.tracing import as_var
from tinyckpt.ops import (
    casting,
    contraction,
    creation,
    elementwise,
    elementwise_functions,
    indexing,
    linalg,
    logic,
    manipulation,
    reduce,
    rounding,
    shape,
    statistics,
)


def by_name(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return functions by their names, which NumPy has, too."""
    return {function.__name__: function for function in functions}


UFUNCS: dict[str, Callable[..., Any]] = {
    # The rows of the table of elementwise functions that are ufuncs of NumPy's.
    **{
        name: function
        for name, function in elementwise.FUNCTIONS.items()
        if isinstance(getattr(np, name, None), np.ufunc)
    },
    **by_name(
        elementwise_functions.arctan2, rounding.copysign, rounding.heaviside, linalg.matmul,
        contraction.matvec, elementwise.power, contraction.vecdot, contraction.vecmat,
    ),
    "conjugate": as_var,
    "degrees": elementwise_functions.rad2deg,
    "fabs": lambda x: elementwise.absolute(casting.promote_to_float(np.fabs, x)[0]),
    "positive": as_var,
    "radians": elementwise_functions.deg2rad,
    "rint": lambda x: rounding.round(casting.promote_to_float(np.rint, x)[0]),
}  # fmt: skip

# A ufunc's methods ``reduce`` and ``accumulate``, both along axis 0 by default.
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": reduce.sum,
    "logical_and": logic.all,
    "logical_or": logic.any,
    "maximum": reduce.max,
    "minimum": reduce.min,
    "multiply": statistics.prod,
}
ACCUMULATIONS: dict[str, Callable[..., Any]] = {
    "add": statistics.cumsum,
    "multiply": statistics.cumprod,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **by_name(
        casting.astype,
        contraction.dot, contraction.einsum, contraction.inner, contraction.kron,
        contraction.outer, contraction.tensordot, contraction.vdot,
        creation.copy, creation.full_like, creation.ones_like, creation.zeros_like,
        elementwise.where,
        elementwise_functions.sinc,
        indexing.argmax, indexing.argmin, indexing.argsort, indexing.sort, indexing.take,
        indexing.take_along_axis,
        logic.all, logic.any, logic.count_nonzero, logic.isclose,
        manipulation.array_split, manipulation.atleast_1d, manipulation.atleast_2d,
        manipulation.atleast_3d, manipulation.broadcast_arrays, manipulation.column_stack,
        manipulation.diag, manipulation.diagonal, manipulation.dstack, manipulation.flip,
        manipulation.fliplr, manipulation.flipud, manipulation.hstack,
        manipulation.matrix_transpose, manipulation.moveaxis, manipulation.pad,
        manipulation.ravel, manipulation.repeat, manipulation.roll, manipulation.rot90,
        manipulation.squeeze, manipulation.swapaxes, manipulation.tile, manipulation.tril,
        manipulation.triu, manipulation.unstack, manipulation.vstack,
        reduce.max, reduce.mean, reduce.min, reduce.sum,
        rounding.clip, rounding.nan_to_num, rounding.round,
        shape.broadcast_to, shape.concatenate, shape.expand_dims, shape.reshape,
        shape.split, shape.stack, shape.transpose,
        statistics.average, statistics.cumprod, statistics.cumsum, statistics.diff,
        statistics.median, statistics.prod, statistics.ptp, statistics.std, statistics.var,
    ),
    "allclose": lambda a, b, rtol=1e-5, atol=1e-8: logic.all(logic.isclose(a, b, rtol, atol)),
    "amax": reduce.max,
    "amin": reduce.min,
    "around": rounding.round,
    "concat": shape.concatenate,
    "cumulative_prod": statistics.cumprod,
    "cumulative_sum": statistics.cumsum,
    "dsplit": lambda ary, sections: shape.split(ary, sections, 2),
    "empty_like": creation.zeros_like,
    "fix": rounding.trunc,
    "hsplit": lambda ary, sections: shape.split(ary, sections, int(as_var(ary).ndim > 1)),
    "iscomplexobj": lambda x: False,
    "isrealobj": lambda x: True,
    "linalg.diagonal": lambda x, offset=0: manipulation.diagonal(x, offset, -2, -1),
    "linalg.matmul": linalg.matmul,
    "linalg.matrix_norm": linalg.matrix_norm,
    "linalg.matrix_transpose": manipulation.matrix_transpose,
    "linalg.norm": linalg.norm,
    "linalg.outer": contraction.outer,
    "linalg.tensordot": contraction.tensordot,
    "linalg.trace": lambda x, offset=0: contraction.matrix_trace(x, offset, -2, -1),
    "linalg.vecdot": contraction.vecdot,
    "linalg.vector_norm": linalg.vector_norm,
    "ndim": lambda a: as_var(a).ndim,
    "permute_dims": shape.transpose,
    "real": as_var,
    "shape": lambda a: as_var(a).shape,
    "size": lambda a: as_var(a).size,
    "trace": contraction.matrix_trace,
    "vsplit": lambda ary, sections: shape.split(ary, sections, 0),
}  # fmt: skip

UNKNOWN_SHAPE = "the shape of its result depends on the data; use tc.where"
ARRAY_ALONE = "compute it from an array, outside of the function"
SINGULAR = "there are no matrix decompositions here; compute it outside of the function"
# The replacement for each unsupported function.
REPLACEMENTS: dict[str, str] = {
    "append": "use tc.concatenate",
    "argpartition": "use tc.argsort",
    "argwhere": UNKNOWN_SHAPE,
    "array_equal": "use tc.all(tc.equal(x, y))",
    "block": "use tc.concatenate or tc.stack",
    "choose": "use tc.where or tc.take_along_axis",
    "compress": UNKNOWN_SHAPE,
    "copyto": "values are immutable; use tc.where",
    "cross": "write it out over x[..., 0], x[..., 1] and x[..., 2]",
    "divmod": "use tc.floor_divide and tc.remainder",
    "extract": UNKNOWN_SHAPE,
    "fill_diagonal": "values are immutable; use tc.where with tc.eye",
    "flatnonzero": UNKNOWN_SHAPE,
    "float_power": "use tc.power(tc.astype(x, 'float64'), y)",
    "frexp": ARRAY_ALONE,
    "gradient": "use tc.diff",
    "insert": "use tc.concatenate",
    "interp": ARRAY_ALONE,
    "linalg.cholesky": SINGULAR,
    "linalg.cond": SINGULAR,
    "linalg.det": SINGULAR,
    "linalg.eig": SINGULAR,
    "linalg.eigh": SINGULAR,
    "linalg.eigvals": SINGULAR,
    "linalg.eigvalsh": SINGULAR,
    "linalg.inv": SINGULAR,
    "linalg.lstsq": SINGULAR,
    "linalg.matrix_power": "multiply with @, as often as needed",
    "linalg.multi_dot": "multiply with @, small results first",
    "linalg.pinv": SINGULAR,
    "linalg.qr": SINGULAR,
    "linalg.slogdet": SINGULAR,
    "linalg.solve": SINGULAR,
    "linalg.svd": SINGULAR,
    "linalg.svdvals": SINGULAR,
    "modf": "use tc.trunc(x) and x - tc.trunc(x)",
    "nanmax": "use tc.max(tc.where(tc.isnan(x), -np.inf, x))",
    "nanmean": "use tc.where(tc.isnan(x), 0.0, x) in sums, and count with tc.isnan",
    "nanmin": "use tc.min(tc.where(tc.isnan(x), np.inf, x))",
    "nansum": "use tc.sum(tc.where(tc.isnan(x), 0.0, x))",
    "nonzero": UNKNOWN_SHAPE,
    "partition": "use tc.sort",
    "piecewise": "use tc.where",
    "place": "values are immutable; use tc.where",
    "put": "values are immutable; use tc.where",
    "put_along_axis": "values are immutable; use tc.where",
    "putmask": "values are immutable; use tc.where",
    "rollaxis": "use tc.moveaxis",
    "select": "use nested tc.where",
    "unique": UNKNOWN_SHAPE,
}
