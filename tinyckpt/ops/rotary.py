"""Rotary position embedding (RoPE): feature pairs rotated by angles proportional to position.

The product of a query at position m and a key at position n then depends on m - n alone. The
adjoint of a rotation is the rotation by the opposite angles. Nothing is saved: cosines and sines
are computed in the kernel, from integer positions.

Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding",
arXiv 2104.09864, section 3.2.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_attention as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.normalization_primitives import widened_bytes


def infer_rotary(x: Spec, *positions: Spec, **attrs: Any) -> tuple[Spec, ...]:
    infer.require_float(x)
    infer.require_integers(*positions)
    if len(x.shape) < 2 or x.shape[-1] % 2:
        raise GraphError(
            f"{x} must be (..., length, features), features even: they rotate in pairs"
        )
    for given in positions:
        if infer.broadcast_shape(given, Spec(x.shape[:-1])) != x.shape[:-1]:
            raise GraphError(
                f"positions {given} for {x}; they must broadcast to {x.shape[:-1]}, one per row "
                "of features"
            )
    return (x,)


def rotary_workspace(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return the workspace in bytes: cosines and sines, one per feature pair and position.

    Also products with half of the features; or the 32-bit array in which a result of fewer bits is
    computed, after the products are freed. The angles are freed before, and are smaller.
    """
    x, *positions = inputs
    rows = positions[0].size if positions else x.shape[-2]
    angles, itemsize = rows * (x.shape[-1] // 2), wide(x.dtype).itemsize
    return int(2 * angles * itemsize + (widened_bytes(x) or x.size // 2 * itemsize))


ROTARY: Primitive = Primitive(
    "rotary", kernels.rotary, infer_rotary, contiguous=True, takes_bfloat16=True,
    vjp=(
        lambda ct, ins, outs, sign, **attrs: apply(ROTARY, ct[0], *ins[1:], sign=-sign, **attrs),
        zero,
    ),
    # Four products and two sums for every pair.
    flops=lambda inputs, outputs, **attrs: 3 * inputs[0].size,
    workspace=rotary_workspace,
)  # fmt: skip


@eager
def rotary(
    x: Any, positions: Any = None, *, base: float = 10000.0, interleaved: bool = False
) -> Var:
    """Rotary position embedding (RoPE): rotates feature pairs by position-dependent angles.

    Pair i is rotated by ``position * base ** (-2 i / features)``.

    >>> import numpy as np, tinyckpt as tc
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> tc.run(tc.plan(tc.build(tc.rotary, x)), x).value.round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])

    Args:
        x: floats of shape (..., length, features), features even.
        positions: integers that broadcast to (..., length); 0 to length - 1 by default.
        base: the slowest pair rotates about ``base`` times slower than the first.
        interleaved: whether pairs are features 2 i and 2 i + 1, as in GPT-J; if not, features i and
            i + features / 2, as in LLaMA (``rotate_half``).

    Raises:
        GraphError: if features are odd, positions do not fit, or the base is not a number above 0.
    """
    if isinstance(base, bool) or not isinstance(base, int | float) or not base > 0:
        raise GraphError(f"rotary: base={base!r}; it must be a number above 0")
    if not isinstance(interleaved, bool):
        raise GraphError(f"rotary: interleaved={interleaved!r}; it must be True or False")
    given = [] if positions is None else [as_var(positions)]
    return apply(ROTARY, x, *given, base=float(base), interleaved=interleaved, sign=1.0)
