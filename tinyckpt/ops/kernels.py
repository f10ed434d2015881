"""What every operator does to arrays: one pure function of (xp, arrays, attributes) each.

``xp`` is NumPy or CuPy; no other arrays are used, so that both run the same lines. Three rules hold
for every kernel, and the tests check them:

- it never writes to an argument (but for ``write_over``, which is there for that), and returns
  fresh memory unless its primitive says ``alias``;
- what it holds besides arguments and results is the ``workspace`` that its primitive declares:
  hence the in-place arithmetic, which also leaves nothing to NumPy's elision of temporaries;
- ``xp.asarray`` stands where arithmetic on 0-d arrays would return a scalar, which cannot be
  written to in place.

A kernel of one ``return`` is written out as an expression by ``compile``; others are called.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math

from tinyckpt.ops.parts import parts
from tinyckpt.ops.special import normal_cdf, random_bits, random_key, times_normal_bell

# Elementwise ------------------------------------------------------------------------------------


def add(xp, x, y):
    return x + y


def subtract(xp, x, y):
    return x - y


def multiply(xp, x, y):
    return x * y


def divide(xp, x, y):
    return x / y


def divide_vjp(xp, y, quotient, g):
    out = xp.asarray(g * quotient)
    out /= y
    xp.negative(out, out=out)
    return out


def negative(xp, x):
    return -x


def power(xp, x, exponent):
    return x**exponent


def power_vjp(xp, x, g, exponent):
    out = xp.asarray(x ** (exponent - 1))
    out *= exponent
    out *= g
    return out


def exp(xp, x):
    return xp.exp(x)


def log(xp, x):
    return xp.log(x)


def sqrt(xp, x):
    return xp.sqrt(x)


def sqrt_vjp(xp, y, g):
    out = xp.asarray(0.5 * g)
    out /= y
    return out


def sin(xp, x):
    return xp.sin(x)


def sin_vjp(xp, x, g):
    out = xp.asarray(xp.cos(x))
    out *= g
    return out


def cos(xp, x):
    return xp.cos(x)


def cos_vjp(xp, x, g):
    out = xp.asarray(xp.sin(x))
    out *= g
    xp.negative(out, out=out)
    return out


def absolute(xp, x):
    return xp.absolute(x)


def absolute_vjp(xp, x, g):
    out = xp.asarray(xp.sign(x))
    out *= g
    return out


def tanh(xp, x):
    return xp.tanh(x)


def tanh_vjp(xp, y, g):
    out = xp.asarray(y * y)
    xp.subtract(1, out, out=out)
    out *= g
    return out


def sigmoid(xp, x):
    # e / (1 + e) below zero and 1 / (1 + e) above, with e = exp(-|x|): nothing overflows, and
    # nothing cancels, as 1 + tanh(x/2) does in the negative tail.
    out = xp.asarray(xp.absolute(x))
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    total = xp.asarray(out + 1)
    xp.maximum(out, x >= 0, out=out)
    out /= total
    return out


def sigmoid_vjp(xp, y, g):
    out = xp.asarray(1 - y)
    out *= y
    out *= g
    return out


def relu(xp, x):
    return xp.maximum(x, 0)


def keep_chosen(xp, values, chosen, out):
    """Write the chosen values into ``out``, and 0 elsewhere; ``chosen`` is overwritten.

    By their bits: a product with 0 would leave NaN where infinity is not chosen, and to pick by a
    mask takes NumPy several times as long where the mask changes often.
    """
    bits = f"int{8 * values.dtype.itemsize}"
    mask = chosen.view("int8")
    xp.negative(mask, out=mask)  # all bits of -1 are set, and those of every wider -1
    xp.bitwise_and(values.view(bits), mask, out=out.view(bits))


def relu_vjp(xp, y, g):
    out = xp.empty_like(g)
    keep_chosen(xp, g, xp.asarray(y > 0), out=out)
    return out


def log_sigmoid(xp, x):
    # min(x, 0) - log(1 + exp(-|x|)): both terms have one sign.
    out = xp.asarray(xp.absolute(x))
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    xp.log1p(out, out=out)
    xp.subtract(xp.minimum(x, 0), out, out=out)
    return out


def log_sigmoid_vjp(xp, y, g):
    # 1 - sigmoid = 1 - exp(y): of the output, and exact where y is close to 0.
    out = xp.asarray(xp.expm1(y))
    out *= g
    xp.negative(out, out=out)
    return out


# The least integer whose exponential is a normal number, by bytes of the dtype. Below it exp loses
# digits, and a product with x would show that: there exp(x) is taken as exp(least) exp(x - least),
# of which the second factor comes last. The difference is exact.
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
    # d/dx x s = s (1 + x (1 - s)), where 1 - s is not a difference: e / (1 + e) above zero.
    least = LEAST_EXPONENT[x.dtype.itemsize]
    out = xp.asarray(xp.absolute(x))
    xp.negative(out, out=out)
    xp.maximum(out, least, out=out)
    xp.exp(out, out=out)
    spare = xp.asarray(xp.maximum(out, x < 0))
    spare *= xp.minimum(x, -least)
    total = xp.asarray(out + 1)
    xp.maximum(out, x >= 0, out=out)
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
    times_normal_bell(xp, x, density, spare)
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
    # (1 + t) (1 / 2 + (1 - t) x u' / 2), which needs no third array.
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
        xp.subtract(1, t, out=t)
        out *= t
        out += 0.5
        xp.subtract(2, t, out=t)
        out *= t
        out *= g[part]
    return slopes


def maximum(xp, x, y):
    return xp.maximum(x, y)


def minimum(xp, x, y):
    return xp.minimum(x, y)


def larger_vjp(xp, x, y, g):
    # g where x > y, half of it where they tie, nothing where x < y.
    out = xp.asarray(xp.where(x > y, g, 0))
    out += xp.where(x >= y, g, 0)
    out *= 0.5
    return out


def where(xp, condition, x, y):
    return xp.where(condition, x, y)


def greater(xp, x, y):
    return x > y


def greater_equal(xp, x, y):
    return x >= y


def less(xp, x, y):
    return x < y


def less_equal(xp, x, y):
    return x <= y


def equal(xp, x, y):
    return x == y


def not_equal(xp, x, y):
    return x != y


def cast(xp, x, dtype):
    return x.astype(dtype)


# Linear algebra ---------------------------------------------------------------------------------


def matmul(xp, x, y, transpose_x, transpose_y):
    return (x.mT if transpose_x else x) @ (y.mT if transpose_y else y)


# Reductions -------------------------------------------------------------------------------------


def sum_(xp, x, axes, keepdims):
    return x.sum(axis=axes, keepdims=keepdims)


def sum_vjp(xp, g, shape, axes, keepdims):
    return xp.broadcast_to(g if keepdims else xp.expand_dims(g, axes), shape)


def max_(xp, x, axes, keepdims):
    return x.max(axis=axes, keepdims=keepdims)


def max_vjp(xp, x, y, g, axes, keepdims):
    # The maximum's cotangent, shared equally among the elements that attain it.
    if not keepdims:
        y = xp.expand_dims(y, axes)
        g = xp.expand_dims(g, axes)
    attained = x == y
    share = g / attained.sum(axis=axes, keepdims=True, dtype=g.dtype)
    return xp.where(attained, share, 0)


def unbroadcast(xp, g, shape, axes):
    return g.sum(axis=axes).reshape(shape)


# Shape ------------------------------------------------------------------------------------------


def reshape(xp, x, shape):
    return x.reshape(shape)


def transpose(xp, x, axes):
    return x.transpose(axes)


def broadcast_to(xp, x, shape):
    return xp.broadcast_to(x, shape)


def index(xp, x, key):
    return x[key]


def index_vjp(xp, g, shape, key):
    out = xp.zeros(shape, g.dtype)
    out[key] = g
    return out


def concatenate(xp, *arrays, axis):
    return xp.concatenate(arrays, axis=axis)


def split(xp, x, boundaries, axis):
    return tuple(xp.split(x, boundaries, axis=axis))


def contiguous(xp, x):
    return xp.array(x, order="C", copy=True)


def full(xp, shape, value, dtype):
    return xp.full(shape, value, dtype)


# Neural networks --------------------------------------------------------------------------------


def refuse_outside(what, places, extent):
    """Raise a ValueError unless all places are 0 to extent - 1; it says which is not, and where."""
    lowest, highest = (places.min().item(), places.max().item()) if places.size else (0, 0)
    if not 0 <= lowest <= highest < max(extent, 1):
        rest = ((places < 0) | (places >= extent)).reshape(-1).argmax().item()
        first = places.reshape(-1)[rest].item()
        position: tuple[int, ...] = ()
        for length in reversed(places.shape):
            rest, along = divmod(rest, length)
            position = (along, *position)
        raise ValueError(
            f"{what} must be 0 to {extent - 1}, got {lowest} to {highest}; the first that is not "
            f"is {first}, element {list(position)}"
        )


def one_hot(xp, labels, classes, dtype):
    return (labels[..., None] == xp.arange(classes)).astype(dtype)


def softmax(xp, x, axis):
    out = xp.asarray(x - x.max(axis=axis, keepdims=True))
    xp.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def softmax_vjp(xp, y, g, axis):
    out = xp.asarray(g * y)
    total = out.sum(axis=axis, keepdims=True)
    xp.subtract(g, total, out=out)
    out *= y
    return out


def log_softmax(xp, x, axis):
    out = xp.asarray(x - x.max(axis=axis, keepdims=True))
    out -= xp.log(xp.exp(out).sum(axis=axis, keepdims=True))
    return out


def log_softmax_vjp(xp, y, g, axis):
    out = xp.asarray(xp.exp(y))
    out *= g.sum(axis=axis, keepdims=True)
    xp.subtract(g, out, out=out)
    return out


def cross_entropy(xp, logits, labels):
    # Everything is counted from the largest logit, so that a shift of all logits changes nothing.
    # The second result, log sum exp(logits - largest), is what the backward needs besides inputs.
    classes = logits.shape[-1]
    refuse_outside("labels", labels, classes)
    # C-contiguous, whatever the logits are: its elements are picked by their places in memory.
    shifted = xp.empty(logits.shape, logits.dtype)
    xp.subtract(logits, logits.max(axis=-1, keepdims=True), out=shifted)
    places = xp.arange(0, shifted.size, classes)
    places += labels.reshape(-1)
    losses = xp.take(shifted, places).reshape(labels.shape)
    del places
    xp.exp(shifted, out=shifted)
    spread = xp.asarray(shifted.sum(axis=-1))
    xp.log(spread, out=spread)
    xp.subtract(spread, losses, out=losses)
    return losses, spread


def cross_entropy_vjp(xp, logits, labels, spread, g):
    out = xp.asarray(logits - logits.max(axis=-1, keepdims=True))
    out -= spread[..., None]
    xp.exp(out, out=out)
    out -= labels[..., None] == xp.arange(logits.shape[-1])
    out *= g[..., None]
    return out


def half_squared_norm(xp, x):
    return 0.5 * (x * x).sum()


def half_squared_norm_vjp(xp, x, g):
    return g * x


# Randomness -------------------------------------------------------------------------------------


def dropout(xp, x, rate, key):
    return masked(xp, x, rate, xp.uint64(key))


def seeded_dropout(xp, x, seed, rate):
    if seed.item() < 0:
        raise ValueError(f"the seed of a dropout must be 0 or more, got {seed.item()}")
    return masked(xp, x, rate, random_key(xp, seed))


def masked(xp, x, rate, key):
    bits = random_bits(xp, x.size, key).reshape(x.shape)
    keep = bits >= xp.uint64(round(rate * 2**32))
    out = xp.asarray(x * keep)
    out *= 1 / (1 - rate)
    return out
