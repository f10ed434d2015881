"""Dropout with a counter-based random generator: the mask is recomputed, bit for bit, never saved.

Randomness is a seed and a counter. A recomputed dropout generates the same mask, on every backend,
without saving the mask or a generator's state. The seed is an attribute where it is a number when
the function is traced, and an input of the operator where it is data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply
from tinyckpt.ops import kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.shape_inference import per_element
from tinyckpt.ops.special_functions import random_key

SEED_BITS = 64  # width of the generator's key


def mask_workspace(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return the workspace of mask generation: three uint64 per element, before the result."""
    return 24 * int(outputs[0].size) - int(outputs[0].nbytes)


def infer_seeded(x: Spec, seed: Spec, rate: float) -> tuple[Spec, ...]:
    """Infer a dropout whose seed is data."""
    if seed.shape != () or seed.dtype.kind not in "iu":
        raise GraphError(f"the seed must be one integer, got {seed}")
    infer.require_float(x)
    return (x,)


# Linear in x with a diagonal Jacobian: each is its own adjoint, with the mask generated again.
DROPOUT: Primitive = Primitive(
    "dropout",
    kernels.dropout,
    infer.same_spec_as(0),
    vjp=(lambda ct, ins, outs, rate, key: apply(DROPOUT, ct[0], rate=rate, key=key),),
    flops=per_element(2),
    workspace=mask_workspace,
    contiguous=None,
)
SEEDED_DROPOUT: Primitive = Primitive(
    "seeded_dropout",
    kernels.seeded_dropout,
    infer_seeded,
    vjp=(lambda ct, ins, outs, rate: apply(SEEDED_DROPOUT, ct[0], ins[1], rate=rate), zero),
    flops=per_element(2),
    workspace=mask_workspace,
    contiguous=None,
)


def stream_key(seed: int, number: int = 0) -> int:
    """Return the generator's key for a seed and a stream number."""
    return int(random_key(np, np.array(seed, np.uint64), number)[0])


def checked_seed(what: str, seed: Any) -> int | None:
    """Return a seed that is a number as an integer; None for a seed that is data.

    Raises:
        GraphError: if it is neither, or out of the generator's range of seeds.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        if not hasattr(seed, "dtype") or isinstance(seed, np.generic):
            raise GraphError(
                f"{what}: seed {seed!r:.80} must be an integer, or an argument that is one"
            )
        return None
    bits = int(seed).bit_length()  # the seed may have too many digits to print
    if seed < 0:
        shown = f"one of {bits:,} bits" if bits > 64 else f"{seed}"
        raise GraphError(f"{what}: the seed must be 0 or more, got {shown}")
    if bits > SEED_BITS:
        raise GraphError(f"{what}: the seed must be less than 2**64, got one of {bits:,} bits")
    return int(seed)


def check_rate(rate: Any) -> None:
    """Raise a GraphError unless a rate of dropout is a number of at least 0 and less than 1."""
    if not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise GraphError(f"dropout: rate {rate!r:.80} must be at least 0 and less than 1")


@eager
def dropout(x: Any, rate: float, seed: Any) -> Var:
    """Dropout: each element zeroed with probability ``rate``, the others scaled up to compensate.

    Args:
        x: floats of any shape.
        rate: probability of dropping, 0 <= rate < 1.
        seed: a nonnegative integer less than 2**64. The same seed gives the same mask, whether it
            is a number or data: give every layer its own, and take a new one in each training
            step as an argument of the function, such as ``layers * step + layer``.

    Raises:
        GraphError: if the rate or the seed is invalid. A negative seed that is data is detected at
            run time: that is a BackendError.

    >>> import numpy as np, tinyckpt as tc
    >>> step = tc.value_and_grad(lambda x, seed: tc.sum(tc.dropout(x, 0.5, seed)))
    >>> [step(np.ones(6), seed)[1].tolist() for seed in (1, 2)]
    [[0.0, 2.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0, 0.0, 2.0]]
    """
    check_rate(rate)
    known = checked_seed("dropout", seed)
    if known is not None:
        return apply(DROPOUT, x, rate=float(rate), key=stream_key(known))
    return apply(SEEDED_DROPOUT, x, seed, rate=float(rate))
