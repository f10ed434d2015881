"""Operators with randomness, which is an attribute: a seed, and a generator that counts.

A recomputed dropout draws the very mask it drew before, bit for bit and on every backend, without
keeping the mask or a generator's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.errors import GraphError
from tinyckpt.ops import infer, kernels
from tinyckpt.ops.primitive import Primitive, apply, per_element

if TYPE_CHECKING:
    from tinyckpt.var import Var

DROPOUT: Primitive = Primitive(
    "dropout",
    kernels.dropout,
    infer.like(0),
    # Linear in x with a diagonal Jacobian: its own adjoint, with the same mask drawn again.
    vjp=(lambda ct, ins, outs, rate, key: apply(DROPOUT, ct[0], rate=rate, key=key),),
    flops=per_element(2),
    # Three uint64 an element while the bits are drawn.
    workspace=lambda inputs, outputs, rate, key: 24 * outputs[0].size - outputs[0].nbytes,
    contiguous=None,
)


def dropout_key(seed: int) -> int:
    """Return an odd 64-bit key with well mixed bits: the splitmix64 finaliser of the seed.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    doi:10.1145/2660193.2660195.
    """
    mask = 2**64 - 1
    z = (seed + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) | 1


def dropout(x: Any, rate: float, seed: int) -> Var:
    """Return ``x`` with each element zeroed with probability ``rate``, the others scaled up.

    Args:
        x: floats of any shape.
        rate: probability of dropping, 0 <= rate < 1.
        seed: the same seed draws the same mask; give every layer and every training step its own.
    """
    if not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise GraphError(f"dropout: rate {rate!r} must be at least 0 and less than 1")
    if not isinstance(seed, int | np.integer):
        raise GraphError(f"dropout: seed {seed!r} must be an integer")
    return apply(DROPOUT, x, rate=float(rate), key=dropout_key(int(seed)))
