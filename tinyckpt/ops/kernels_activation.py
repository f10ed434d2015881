"""Kernels of the activation functions and of derivatives that no expression gives in place.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math

from tinyckpt.ops.cache_blocking import parts
from tinyckpt.ops.special_functions import multiply_by_normal_density, normal_cdf


def sigmoid(xp, x):
    # e / (1 + e) below zero and 1 / (1 + e) above, with e = exp(-|x|): no overflow, and no
    # cancellation, unlike 1 + tanh(x/2) in the negative tail.
    out = xp.asarray(xp.absolute(x))
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    total = xp.asarray(xp.add(out, 1))
    xp.maximum(out, xp.greater_equal(x, 0), out=out)
    out /= total
    return out


def select_by_bits(xp, values, chosen, out):
    """Write the chosen values into ``out``, and 0 elsewhere; ``chosen`` is overwritten.

    By a bit mask: a product with 0 would give NaN where an infinity is not chosen, and boolean
    indexing takes NumPy several times as long where the mask changes often.
    """
    bits = f"int{8 * values.dtype.itemsize}"
    mask = chosen.view("int8")
    xp.negative(mask, out=mask)  # -1 has all bits set, in every width
    xp.bitwise_and(values.view(bits), mask, out=out.view(bits))


def relu_vjp(xp, y, g, out=None):
    out = xp.empty_like(g) if out is None else out
    select_by_bits(xp, g, xp.asarray(xp.greater(y, 0)), out=out)
    return out


def softplus(xp, x):
    # log(exp(x) + exp(0)): NumPy's logaddexp neither overflows nor loses the tail.
    return xp.logaddexp(x, 0)


def softplus_vjp(xp, x, g):
    # g / (1 + exp(-x)), with e = exp(-|x|) on either side, which cannot overflow.
    e = xp.asarray(xp.absolute(x))
    xp.negative(e, out=e)
    xp.exp(e, out=e)
    out = xp.asarray(xp.where(xp.greater_equal(x, 0), 1, e))
    e += 1
    out /= e
    out *= g
    return out


# The least integer whose exponential is a normal number, by bytes of the dtype. Below it exp is
# subnormal and loses digits, and so would its product with x: there exp(x) is computed as
# exp(least) exp(x - least), with the second factor applied last. The difference is exact.
LEAST_EXPONENT = {2: -9, 4: -87, 8: -708}


def silu(xp, x):
    # x / (1 + exp(-x)): one rounding less than x times the sigmoid.
    least = LEAST_EXPONENT[x.dtype.itemsize]
    out = xp.asarray(xp.maximum(x, least))
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    out += 1
    xp.divide(x, out, out=out)
    rest = xp.asarray(xp.subtract(x, least))
    xp.minimum(rest, 0, out=rest)
    xp.exp(rest, out=rest)
    out *= rest
    return out


def silu_vjp(xp, x, g):
    # d/dx x s = s (1 + x (1 - s)), with 1 - s free of cancellation: e / (1 + e) above zero.
    least = LEAST_EXPONENT[x.dtype.itemsize]
    out = xp.asarray(xp.absolute(x))
    xp.negative(out, out=out)
    xp.maximum(out, least, out=out)
    xp.exp(out, out=out)
    spare = xp.asarray(xp.maximum(out, xp.less(x, 0)))
    spare *= xp.minimum(x, -least)
    total = xp.asarray(xp.add(out, 1))
    xp.maximum(out, xp.greater_equal(x, 0), out=out)
    spare /= total
    spare += 1
    out *= spare
    out /= total
    out *= g
    xp.subtract(x, least, out=spare)
    xp.minimum(spare, 0, out=spare)
    xp.exp(spare, out=spare)
    out *= spare
    return out


def gelu(xp, x):
    out = xp.asarray(normal_cdf(xp, x))
    out *= x
    return out


def gelu_vjp(xp, x, g):
    # d/dx x cdf(x) = cdf(x) + x pdf(x).
    out = xp.asarray(normal_cdf(xp, x))
    density, spare = xp.zeros_like(out), xp.empty_like(out)
    multiply_by_normal_density(xp, x, density, spare)
    density *= 1 / math.sqrt(2 * math.pi)
    density *= x
    out += density
    out *= g
    return out


GELU_SCALE = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715


def gelu_tanh(xp, x):
    y = xp.empty_like(x)
    for part in parts(xp, x.shape):
        x_part, out = x[part], y[part]
        xp.multiply(x_part, x_part, out=out)
        out *= GELU_SCALE * GELU_CUBIC
        out += GELU_SCALE
        out *= x_part
        xp.tanh(out, out=out)
        out += 1
        out *= 0.5
        out *= x_part
    return y


def gelu_tanh_vjp(xp, x, g):
    # With u = scale (x + cubic x^3) and t = tanh u: (1 + t) / 2 + x (1 - t^2) u' / 2, taken as
    # (1 + t) (1 / 2 + (1 - t) x u' / 2), which needs no third array. Beyond 10, 1 + t or 1 - t is 0
    # in all dtypes, and x u' / 2 is more than 57: it is clamped at 100, and so is never infinite.
    slopes, tanhs = xp.empty_like(x), xp.empty_like(x)
    for part in parts(xp, x.shape):
        x_part, out, t = x[part], slopes[part], tanhs[part]
        xp.multiply(x_part, x_part, out=out)
        xp.multiply(out, GELU_SCALE * GELU_CUBIC, out=t)
        t += GELU_SCALE
        t *= x_part
        xp.tanh(t, out=t)
        out *= 1.5 * GELU_SCALE * GELU_CUBIC
        out += 0.5 * GELU_SCALE
        out *= x_part
        xp.minimum(out, 100, out=out)
        xp.maximum(out, -100, out=out)
        xp.subtract(1, t, out=t)
        out *= t
        out += 0.5
        xp.subtract(2, t, out=t)
        out *= t
        out *= g[part]
    return slopes


def larger_vjp(xp, x, y, g):
    # g where x > y, half of it in a tie, 0 where x < y.
    out = xp.asarray(xp.where(xp.greater(x, y), g, 0))
    out += xp.where(xp.greater_equal(x, y), g, 0)
    out *= 0.5
    return out


def arctan2_vjp(xp, x, y, g):
    # g y / (x^2 + y^2), divided twice by the hypotenuse, so that nothing overflows.
    out = xp.asarray(xp.hypot(x, y))
    scaled = xp.asarray(xp.divide(y, out))
    xp.divide(scaled, out, out=out)
    out *= g
    return out
