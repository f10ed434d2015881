"""Kernels of elementwise functions, rounding and logic.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math

# Exponentials and logarithms ----------------------------------------------------------------------


def exp2(xp, x):
    return xp.exp2(x)


def exp2_vjp(xp, y, g):
    out = xp.asarray(y * math.log(2))
    out *= g
    return out


def expm1(xp, x):
    return xp.expm1(x)


def expm1_vjp(xp, x, g):
    # From x: 1 + expm1(x) loses all digits of exp(x) where that is small.
    out = xp.asarray(xp.exp(x))
    out *= g
    return out


def log2(xp, x):
    return xp.log2(x)


def log10(xp, x):
    return xp.log10(x)


def logarithm_vjp(xp, x, g, base):
    out = xp.asarray(g / x)
    out /= math.log(base)
    return out


def log1p(xp, x):
    return xp.log1p(x)


def log1p_vjp(xp, x, g):
    out = xp.asarray(1 + x)
    xp.divide(g, out, out=out)
    return out


def logaddexp(xp, x, y):
    return xp.logaddexp(x, y)


def softplus(xp, x):
    # log(exp(x) + exp(0)): NumPy's logaddexp neither overflows nor loses the tail.
    return xp.logaddexp(x, 0)


def softplus_vjp(xp, x, g):
    # g / (1 + exp(-x)), with e = exp(-|x|) on either side, which cannot overflow.
    e = xp.asarray(xp.absolute(x))
    xp.negative(e, out=e)
    xp.exp(e, out=e)
    out = xp.asarray(xp.where(x >= 0, 1, e))
    e += 1
    out /= e
    out *= g
    return out


# Trigonometry -------------------------------------------------------------------------------------


def tan(xp, x):
    return xp.tan(x)


def tan_vjp(xp, y, g):
    out = xp.asarray(y * y)
    out += 1
    out *= g
    return out


def arcsin(xp, x):
    return xp.arcsin(x)


def arcsin_vjp(xp, x, g):
    # 1 - x^2 as (1 - x) (1 + x), which keeps its digits near the ends.
    out = xp.asarray(1 - x)
    out *= 1 + x
    xp.sqrt(out, out=out)
    xp.divide(g, out, out=out)
    return out


def arccos(xp, x):
    return xp.arccos(x)


def arccos_vjp(xp, x, g):
    out = xp.asarray(arcsin_vjp(xp, x, g))
    xp.negative(out, out=out)
    return out


def arctan(xp, x):
    return xp.arctan(x)


def arctan_vjp(xp, x, g):
    out = xp.asarray(x * x)
    out += 1
    xp.divide(g, out, out=out)
    return out


def arctan2(xp, y, x):
    return xp.arctan2(y, x)


def arctan2_vjp(xp, this, other, g):
    # g other / (this^2 + other^2), divided twice by the hypotenuse, so that nothing overflows.
    out = xp.asarray(xp.hypot(this, other))
    scaled = xp.asarray(other / out)
    xp.divide(scaled, out, out=out)
    out *= g
    return out


def hypot(xp, x, y):
    return xp.hypot(x, y)


def hypot_vjp(xp, this, distance, g):
    out = xp.asarray(this / distance)
    out *= g
    return out


# Hyperbolic functions -----------------------------------------------------------------------------


def sinh(xp, x):
    return xp.sinh(x)


def sinh_vjp(xp, x, g):
    out = xp.asarray(xp.cosh(x))
    out *= g
    return out


def cosh(xp, x):
    return xp.cosh(x)


def cosh_vjp(xp, x, g):
    out = xp.asarray(xp.sinh(x))
    out *= g
    return out


def arcsinh(xp, x):
    return xp.arcsinh(x)


def arcsinh_vjp(xp, x, g):
    out = xp.asarray(xp.hypot(x, xp.ones((), x.dtype)))
    xp.divide(g, out, out=out)
    return out


def arccosh(xp, x):
    return xp.arccosh(x)


def arccosh_vjp(xp, x, g):
    # sqrt(x^2 - 1) as sqrt(x - 1) sqrt(x + 1): no overflow, and all digits near 1.
    out = xp.asarray(x - 1)
    xp.sqrt(out, out=out)
    other = xp.asarray(x + 1)
    xp.sqrt(other, out=other)
    out *= other
    xp.divide(g, out, out=out)
    return out


def arctanh(xp, x):
    return xp.arctanh(x)


def arctanh_vjp(xp, x, g):
    out = xp.asarray(1 - x)
    out *= 1 + x
    xp.divide(g, out, out=out)
    return out


# Powers -------------------------------------------------------------------------------------------


def cbrt(xp, x):
    return xp.cbrt(x)


def cbrt_vjp(xp, y, g):
    out = xp.asarray(y * y)
    out *= 3
    xp.divide(g, out, out=out)
    return out


def powers(xp, x, y):
    return x**y


# Rounding and remainders --------------------------------------------------------------------------


def sign(xp, x):
    return xp.sign(x)


def floor(xp, x):
    return xp.floor(x)


def ceil(xp, x):
    return xp.ceil(x)


def trunc(xp, x):
    return xp.trunc(x)


def round_(xp, x, decimals):
    return xp.round(x, decimals)


def floor_divide(xp, x, y):
    return x // y


def remainder(xp, x, y):
    return x % y


def fmod(xp, x, y):
    return xp.fmod(x, y)


# Logic --------------------------------------------------------------------------------------------


def logical_and(xp, x, y):
    return xp.logical_and(x, y)


def logical_or(xp, x, y):
    return xp.logical_or(x, y)


def logical_xor(xp, x, y):
    return xp.logical_xor(x, y)


def logical_not(xp, x):
    return xp.logical_not(x)


def bitwise_and(xp, x, y):
    return x & y


def bitwise_or(xp, x, y):
    return x | y


def bitwise_xor(xp, x, y):
    return x ^ y


def invert(xp, x):
    return ~x


def left_shift(xp, x, y):
    return x << y


def right_shift(xp, x, y):
    return x >> y


def isnan(xp, x):
    return xp.isnan(x)


def isinf(xp, x):
    return xp.isinf(x)


def isfinite(xp, x):
    return xp.isfinite(x)


def signbit(xp, x):
    return xp.signbit(x)
