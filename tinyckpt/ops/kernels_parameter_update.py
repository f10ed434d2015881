"""Kernels of in-place updates and of the fused Adam step.

``write_over`` is the one kernel that writes to an argument. It notifies an observer, such as a
training step, before and after.

The rules for all kernels are in ``kernels``.
"""

from contextvars import ContextVar
from typing import Any

# mypy: disable-error-code="no-untyped-def,no-untyped-call"


WRITES: ContextVar[Any] = ContextVar("WRITES", default=None)  # has begin(source) and end(source)


def write_over(xp, source, value):
    writes = WRITES.get()
    if writes is None:
        source[...] = value
        return source
    writes.begin(source)
    source[...] = value
    writes.end(source)
    return source


DECAY_BLOCK = 2**16  # elements of parameters whose decay is computed at a time (workspace)


def adam_step(xp, x, mean, square, rate, first, second, epsilon, weight_decay):
    # In C order, whatever the arguments' is: flat slices of it are written below.
    out = xp.empty(square.shape, square.dtype)
    xp.divide(square, second, out=out)
    xp.sqrt(out, out=out)
    out += epsilon
    xp.divide(mean, out, out=out)
    out *= rate / first
    xp.subtract(x, out, out=out)
    if weight_decay:
        flat, old, share = out.reshape(-1), x.reshape(-1), rate * weight_decay
        for begin in range(0, flat.size, DECAY_BLOCK):
            part = slice(begin, begin + DECAY_BLOCK)
            flat[part] -= share * old[part]
    return out
