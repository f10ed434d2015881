"""Type casts (``astype`` as an operator) and NumPy's promotion of integers to floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_bfloat16, is_float
from tinyckpt.base.spec import Spec, checked_dtype
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, active_builder, apply, as_var
from tinyckpt.ops import kernels
from tinyckpt.ops.eager import eager

PYTHON_NUMBERS = (bool, int, float)


def vjp_cast(ct: Any, ins: Any, outs: Any, dtype: Any) -> Var:
    return astype(ct[0], ins[0].dtype)


CAST = Primitive(
    "cast", kernels.cast, lambda x, dtype: (Spec(x.shape, dtype),),
    vjp=(vjp_cast,),
    takes_bfloat16=True,
)  # fmt: skip


def promote_to_float(function: np.ufunc, *operands: Any) -> list[Any]:
    """Promote integer operands to the floats in which NumPy's function computes.

    Floats stay as they are, and so do Python's numbers next to floats: they take the array's dtype.
    """
    floats = False
    for operand in operands:
        node = getattr(operand, "node", None)
        if node is not None and is_float(node.spec.dtype):
            floats = True
        elif type(operand) not in PYTHON_NUMBERS:
            break
    else:
        if floats:
            return list(operands)
    builder = active_builder(function.__name__)
    plain = [type(operand) in PYTHON_NUMBERS for operand in operands]
    operands = tuple(o if own else as_var(o) for o, own in zip(operands, plain, strict=True))
    kinds = [
        o.dtype if not own else np.dtype(bool) if type(o) is bool else type(o)
        for o, own in zip(operands, plain, strict=True)
    ]
    computed_in = function.resolve_dtypes((*kinds, None))
    return [
        builder.as_var(o, dtype) if own else o if is_float(o.dtype) else astype(o, dtype)
        for o, own, dtype in zip(operands, plain, computed_in, strict=False)
    ]


@eager
def astype(x: Any, dtype: Any) -> Var:
    """Cast ``x`` to another dtype; ``x`` itself if it has that dtype.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.astype(x, "float32"))(np.array([1, 2]))
    array([1., 2.], dtype=float32)
    """
    resolved = checked_dtype(dtype)
    x = as_var(x)
    return x if x.dtype == resolved else apply(CAST, x, dtype=resolved.name)


def as_float32_if_bfloat16(x: Var) -> Var:
    """Cast a bfloat16 value to float32, in which it can be accumulated; return others unchanged."""
    return astype(x, "float32") if is_bfloat16(x.dtype) else x
