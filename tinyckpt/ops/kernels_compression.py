"""Kernels that compress what is parked, and read it back; the rules stand in ``kernels``.

Arrays are worked on in spans of whole groups, on every backend, so that what is held besides
arguments and results does not grow with them.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.base.dtypes import wide
from tinyckpt.ops.kernels_approximate import packed, unpacked
from tinyckpt.ops.parts import spans
from tinyckpt.ops.special import key_words, random_bits, random_key


def pieces(count, group):
    """Return from where to where spans go: many groups at once, and the last one if it is short."""
    whole = count // group * group
    return [*spans(whole, group), *([(whole, count)] if whole < count else [])]


def encode(xp, x, *seed, bits, group, key, number):
    if seed and seed[0].item() < 0:
        raise ValueError(f"the seed must be 0 or more, got {seed[0].item()}")
    words = key_words(xp, random_key(xp, seed[0], number) if seed else key, number)
    codes = xp.empty(-(-x.size * bits // 8), "uint8")
    lows, highs = (xp.empty(-(-x.size // group), x.dtype) for _ in "lh")
    for start, stop in pieces(x.size, group):
        rows = x[start:stop].reshape(-1, min(group, stop - start))
        low, high = (ends[start // group : -(-stop // group)] for ends in (lows, highs))
        range_of(xp, rows, low, high)
        flags = rounded(xp, rows, low, high, bits, words, start).reshape(-1)
        if len(flags) % 4:
            flags = xp.concatenate([flags, xp.zeros(-len(flags) % 4, "uint8")])
        own = codes[start * bits // 8 : -(-stop * bits // 8)]
        own[...] = packed(xp, flags, bits)[: len(own)]
        del flags  # before those of the next span are there
    return codes, lows, highs


def range_of(xp, rows, low, high):
    """Write the ends of every group to ``low`` and ``high``; NaN where one of them is not finite.

    The smallest of a group with a NaN is NaN, so that nothing that is not finite goes unseen.
    """
    low[...], high[...] = rows.min(axis=1), rows.max(axis=1)
    finite = xp.isfinite(low)
    finite &= xp.isfinite(high)
    for ends in (low, high):
        ends[...] = xp.where(finite, ends, xp.nan)


def rounded(xp, rows, low, high, bits, words, start):
    """Return where between its group's ends each element lies, in steps, rounded by chance.

    Up with a probability of what it is above the step below, and else down: so what is read back is
    x on average. Halves of numbers are taken, of which no difference overflows. 24 random bits are
    what float32 holds; their sum with the last step can round to a step more, hence the clamp.
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
    span = xp.where(span > 0, span, 1)  # of a group that is constant, or not finite
    place = rows.astype(exact)
    place *= 0.5
    place -= base
    place /= span
    place *= steps
    place += up
    xp.floor(place, out=place)
    xp.fmax(place, 0, out=place)  # NaN, too
    xp.minimum(place, steps, out=place)
    return place.astype("uint8")


def compressed(xp, x, codes, low, high, bits, group):
    return x[...]


def decode(xp, codes, low, high, bits, group, shape, dtype):
    out = xp.empty(shape, dtype)
    flat, exact = out.reshape(-1), wide(out.dtype)
    for start, stop in pieces(out.size, group):
        ends = slice(start // group, -(-stop // group))
        steps = unpacked(xp, codes[start * bits // 8 : -(-stop * bits // 8)], bits)
        place = steps[: stop - start].astype(exact).reshape(-1, min(group, stop - start))
        place /= 2**bits - 1
        flat[start:stop] = between(xp, low[ends], high[ends], place).reshape(-1)
        del steps, place
    return out


def between(xp, low, high, place):
    """Return what lies between both ends of each row: low at 0, high at 1; overwrites places.

    Both ends come back as they were, and nothing overflows, as low + (high - low) t would.
    """
    rest = 1 - place
    rest *= low[:, None]
    place *= high[:, None]
    place += rest
    return place
