"""Kernels that quantise saved activations with stochastic rounding, and dequantise them.

Arrays are processed in spans of whole groups, on every backend, so that the workspace does not grow
with them. The rules for kernels stand in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.base.dtypes import wide
from tinyckpt.ops.cache_blocking import spans
from tinyckpt.ops.kernels_approximate_activations import pack_bits, unpack_bits
from tinyckpt.ops.special_functions import key_words, random_bits, random_key


def group_spans(count, group):
    """Return the (start, stop) of spans: many whole groups each, and a short last group."""
    whole = count // group * group
    return [*spans(whole, group), *([(whole, count)] if whole < count else [])]


def encode(xp, x, *seed, bits, group, key, number):
    if seed and seed[0].item() < 0:
        raise ValueError(f"the seed must be 0 or more, got {seed[0].item()}")
    words = key_words(xp, random_key(xp, seed[0], number) if seed else key, number)
    codes = xp.empty(-(-x.size * bits // 8), "uint8")
    lows, highs = (xp.empty(-(-x.size // group), x.dtype) for _ in range(2))
    for start, stop in group_spans(x.size, group):
        rows = x[start:stop].reshape(-1, min(group, stop - start))
        low, high = (ends[start // group : -(-stop // group)] for ends in (lows, highs))
        group_range(xp, rows, low, high)
        flags = quantise(xp, rows, low, high, bits, words, start).reshape(-1)
        if len(flags) % 4:
            flags = xp.concatenate([flags, xp.zeros(-len(flags) % 4, "uint8")])
        own = codes[start * bits // 8 : -(-stop * bits // 8)]
        own[...] = pack_bits(xp, flags, bits)[: len(own)]
        del flags  # before the next span's are allocated
    return codes, lows, highs


def group_range(xp, rows, low, high):
    """Write the minimum and maximum of every group to ``low`` and ``high``; NaN if not finite.

    The minimum of a group with a NaN is NaN, so that every non-finite value is detected.
    """
    low[...], high[...] = rows.min(axis=1), rows.max(axis=1)
    finite = xp.isfinite(low)
    finite &= xp.isfinite(high)
    for ends in (low, high):
        ends[...] = xp.where(finite, ends, xp.nan)


def quantise(xp, rows, low, high, bits, words, start):
    """Quantise with stochastic rounding: each element's position in its group's range, in steps.

    Up with a probability equal to the distance from the step below, else down: so the decoded value
    is x in expectation. Numbers are halved first, so that no difference overflows. 24 random bits
    are what float32 represents exactly; their sum with the last step can round to one step more,
    hence the clamp.
    """
    exact, steps = wide(rows.dtype), 2**bits - 1
    noise = random_bits(xp, rows.size, words, start)
    noise >>= xp.uint64(8)
    up = noise.astype(exact).reshape(rows.shape)
    del noise
    up *= 2.0**-24
    base = low.astype(exact)[:, None]
    base *= 0.5
    span = high.astype(exact)[:, None]
    span *= 0.5
    span -= base
    span = xp.where(span > 0, span, 1)  # the range is 0 (a constant group) or NaN
    position = rows.astype(exact)
    position *= 0.5
    position -= base
    position /= span
    position *= steps
    position += up
    xp.floor(position, out=position)
    xp.fmax(position, 0, out=position)  # maps NaN to 0, too
    xp.minimum(position, steps, out=position)
    return position.astype("uint8")


def compressed(xp, x, codes, low, high, bits, group):
    return x[...]


def decode(xp, codes, low, high, bits, group, shape, dtype):
    out = xp.empty(shape, dtype)
    flat, exact = out.reshape(-1), wide(out.dtype)
    for start, stop in group_spans(out.size, group):
        ends = slice(start // group, -(-stop // group))
        steps = unpack_bits(xp, codes[start * bits // 8 : -(-stop * bits // 8)], bits)
        position = steps[: stop - start].astype(exact).reshape(-1, min(group, stop - start))
        position /= 2**bits - 1
        flat[start:stop] = dequantise(xp, low[ends], high[ends], position).reshape(-1)
        del steps, position
    return out


def dequantise(xp, low, high, position):
    """Interpolate between both ends of each row: low at 0, high at 1; overwrites ``position``.

    Both ends are reproduced exactly, and nothing overflows, as low + (high - low) t would.
    """
    rest = 1 - position
    rest *= low[:, None]
    position *= high[:, None]
    position += rest
    return position
