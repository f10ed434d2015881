"""Special functions that NumPy lacks: the normal CDF, and a counter-based random bit generator.

Written as kernels: over ``xp``, in place on memory of their own.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math
from typing import Any

# log(erfc(z) exp(z^2) / t) with t = 2 / (2 + z) is smooth on 0 < t <= 1, the image of z >= 0; these
# are its Chebyshev coefficients there, computed at 60 digits and truncated below 1e-17, so that
# the formula adds nothing to the rounding of exp in float64.
ERFC_CHEBYSHEV = (
    -1.3026537197817094342,
    0.6419697923564902603,
    0.019476473204185836312,
    -0.0095615147868086316419,
    -0.0009465953444820368663,
    0.00036683949785276145187,
    4.2523324806907771645e-5,
    -2.0278578112534243154e-5,
    -1.6242900046470255135e-6,
    1.3036558355805232018e-6,
    1.5626441722066143178e-8,
    -8.5238095914926542525e-8,
    6.5290544390988514964e-9,
    5.0593434955514689418e-9,
    -9.9136415649303308674e-10,
    -2.2736512229318358557e-10,
    9.646791102015526802e-11,
    2.3940380830391147447e-12,
    -6.8860275264975533984e-12,
    8.9448792730907257167e-13,
    3.1309213993429580783e-13,
    -1.1270822361367252366e-13,
    3.8109052551892320552e-16,
    7.1060976136092369878e-15,
    -1.5230282014571043043e-15,
    -9.4574945712912340005e-17,
    1.2102371892242789923e-16,
    -2.8166630877471769718e-17,
)

FLAT = 40.0  # exp(-40^2 / 2) is 0 in float64, and 16 times 40 is exact in float16
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, odd: splitmix64's step


def normal_cdf(xp, x):
    """Cumulative normal distribution, erfc(-x / sqrt 2) / 2, by Clenshaw's recurrence."""
    ty = xp.asarray(xp.absolute(x))
    ty *= 0.5 / math.sqrt(2)
    ty += 1
    xp.divide(4, ty, out=ty)
    ty -= 2
    d, dd, spare = xp.zeros_like(ty), xp.zeros_like(ty), xp.zeros_like(ty)
    for coefficient in reversed(ERFC_CHEBYSHEV[1:]):
        xp.multiply(ty, d, out=spare)
        spare -= dd
        spare += coefficient
        d, dd, spare = spare, d, dd
    d *= ty
    d += ERFC_CHEBYSHEV[0]
    d *= 0.5
    d -= dd
    del dd
    multiply_by_normal_density(xp, x, exponent=d, spare=spare)
    ty += 2
    ty *= 0.125
    d *= ty
    del ty
    xp.subtract(1, d, out=spare)
    return xp.where(xp.greater_equal(x, 0), spare, d)


def multiply_by_normal_density(xp, x, exponent, spare):
    """Replace the exponent by ``exp(exponent - x^2 / 2)``; ``spare`` is overwritten.

    Rounding x^2 would cost as many digits as the exponent is large. So x = h + r with h a multiple
    of 1/16, whose square is exact, and exp(-h^2 / 2) is a factor of its own. From FLAT on it is 0,
    and so is the product: x is clamped there, before 16 x overflows.
    """
    xp.minimum(x, FLAT, out=spare)
    xp.maximum(spare, -FLAT, out=spare)
    h = xp.asarray(xp.multiply(spare, 16))
    xp.rint(h, out=h)
    h /= 16
    # (x^2 - h^2) / 2 = r (r / 2 + h)
    spare -= h
    rest = xp.asarray(xp.multiply(spare, 0.5))
    rest += h
    rest *= spare
    exponent -= rest
    xp.exp(exponent, out=exponent)
    h *= h
    h *= -0.5
    xp.exp(h, out=h)
    exponent *= h


def random_key(xp: Any, seed: Any, number: int = 0) -> Any:
    """Mix a seed to 64 bits: splitmix64's output for this seed, after ``number`` others.

    Input and output are arrays of one element, since only array arithmetic wraps around without a
    warning, and on a GPU the key stays there.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    doi:10.1145/2660193.2660195.
    """
    z = seed.reshape(1).astype(xp.uint64)
    z = z + xp.uint64((number + 1) * GOLDEN % 2**64)
    z = (z ^ (z >> xp.uint64(30))) * xp.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> xp.uint64(27))) * xp.uint64(0x94D049BB133111EB)
    return z ^ (z >> xp.uint64(31))


def key_words(xp: Any, key: Any, number: int = 0) -> tuple[Any, Any]:
    """Return the two words of the generator: an odd multiplier, and an addend.

    No two pairs of a seed and a number have the same words: the last bit of the addend is the
    key's, the multiplier has its other bits; the key is a bijection of seed + (number + 1) GOLDEN,
    and the rest of the addend is 2 number GOLDEN, which distinguishes numbers below 2^63.

    Args:
        xp: the arrays' module.
        key: from ``random_key``: an integer, or an array of one element.
        number: as it was given to ``random_key``.
    """
    increment = 2 * number * GOLDEN
    if isinstance(key, int):
        return xp.uint64(key | 1), xp.uint64((key + increment) % 2**64)
    return key | xp.uint64(1), key + xp.uint64(increment % 2**64)


def random_bits(xp, count, words, start=0):
    """Return ``count`` random 32-bit integers (as uint64) by Widynski's counter-based generator.

    A counter in, bits out, no state: a recomputation gets the same bits, on any backend. The words
    are those of ``key_words``; the counters begin at ``start``. In the paper both words are one
    key.

    Source: B. Widynski, "Squares: a fast counter-based RNG", arXiv 2004.06278, four rounds.
    """
    key, added = words
    y = xp.arange(start, start + count, dtype=xp.uint64)
    y *= key
    x = xp.array(y)
    swapped = xp.empty_like(x)
    for offset in (None, added, None):
        x *= x
        x += y
        if offset is not None:
            x += offset
        xp.left_shift(x, xp.uint64(32), out=swapped)
        x >>= xp.uint64(32)
        x |= swapped
    x *= x
    x += y
    x += added
    x >>= xp.uint64(32)
    return x
