"""Kernels of the operators: pure functions on NumPy or CuPy arrays, and the rules for all kernels.

``xp`` is NumPy or CuPy; no other arrays are used, so that both run the same lines. Three rules hold
for every kernel, and the tests check them:

- it never writes to an argument (except ``write_over``, whose purpose that is), and returns fresh
  memory unless its primitive says ``alias``;
- its temporaries are the ``workspace`` that its primitive declares: hence the in-place arithmetic,
  which also leaves nothing to NumPy's elision of temporaries;
- ``xp.asarray`` stands where arithmetic on 0-d arrays would return a scalar, which cannot be
  written to in place.

A kernel with one ``return`` is inlined as an expression by ``compile``; others are called. So such
a kernel has no docstring.

This file: arithmetic, matmul, reductions, views, softmax and losses, dropout.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.ops.special_functions import key_words, random_bits, random_key

# Elementwise --------------------------------------------------------------------------------------


def where(xp, condition, x, y):
    return xp.where(condition, x, y)


def cast(xp, x, dtype):
    return x.astype(dtype)


# Linear algebra -----------------------------------------------------------------------------------


def matmul(xp, x, y, transpose_x, transpose_y):
    return (x.mT if transpose_x else x) @ (y.mT if transpose_y else y)


# Reductions ---------------------------------------------------------------------------------------


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
    attained = xp.equal(x, y)
    share = xp.divide(g, xp.sum(attained, axis=axes, keepdims=True, dtype=g.dtype))
    return xp.where(attained, share, 0)


def unbroadcast(xp, g, shape, axes):
    return g.sum(axis=axes).reshape(shape)


# Shape --------------------------------------------------------------------------------------------


def reshape(xp, x, shape):
    return x.reshape(shape)


def stop_gradient(xp, x):
    return x[...]


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


# Neural networks ----------------------------------------------------------------------------------


def require_in_range(what, indices, extent):
    """Raise a ValueError unless all indices are 0 to extent - 1; it names the first invalid one."""
    lowest, highest = (indices.min().item(), indices.max().item()) if indices.size else (0, 0)
    if not 0 <= lowest <= highest < max(extent, 1):
        rest = ((indices < 0) | (indices >= extent)).reshape(-1).argmax().item()
        first = indices.reshape(-1)[rest].item()
        position: tuple[int, ...] = ()
        for length in reversed(indices.shape):
            rest, along = divmod(rest, length)
            position = (along, *position)
        raise ValueError(
            f"{what} must be 0 to {extent - 1}, got {lowest} to {highest}; the first out of "
            f"range is {first}, element {list(position)}"
        )


def one_hot(xp, labels, classes, dtype):
    return (labels[..., None] == xp.arange(classes)).astype(dtype)


def softmax(xp, x, axis):
    out = xp.asarray(xp.subtract(x, xp.max(x, axis=axis, keepdims=True)))
    xp.exp(out, out=out)
    out /= xp.sum(out, axis=axis, keepdims=True)
    return out


def softmax_vjp(xp, y, g, axis):
    out = xp.asarray(xp.multiply(g, y))
    total = xp.sum(out, axis=axis, keepdims=True)
    xp.subtract(g, total, out=out)
    out *= y
    return out


def log_softmax(xp, x, axis):
    out = xp.asarray(xp.subtract(x, xp.max(x, axis=axis, keepdims=True)))
    out -= xp.log(xp.sum(xp.exp(out), axis=axis, keepdims=True))
    return out


def log_softmax_vjp(xp, y, g, axis):
    out = xp.asarray(xp.exp(y))
    out *= xp.sum(g, axis=axis, keepdims=True)
    xp.subtract(g, out, out=out)
    return out


def cross_entropy(xp, logits, labels):
    # Logits are taken relative to their maximum, so that a shift of all logits changes nothing.
    # The second result, log sum exp(logits - max), is saved for the backward pass, like the inputs.
    classes = logits.shape[-1]
    require_in_range("labels", labels, classes)
    # C-contiguous, whatever the logits' layout: its elements are gathered by flat index.
    shifted = xp.empty(logits.shape, logits.dtype)
    xp.subtract(logits, xp.max(logits, axis=-1, keepdims=True), out=shifted)
    flat_indices = xp.arange(0, shifted.size, classes)
    flat_indices += labels.reshape(-1)
    losses = xp.take(shifted, flat_indices).reshape(labels.shape)
    del flat_indices
    xp.exp(shifted, out=shifted)
    spread = xp.asarray(xp.sum(shifted, axis=-1))
    xp.log(spread, out=spread)
    xp.subtract(spread, losses, out=losses)
    return losses, spread


def cross_entropy_vjp(xp, logits, labels, spread, g):
    out = xp.asarray(xp.subtract(logits, xp.max(logits, axis=-1, keepdims=True)))
    out -= spread[..., None]
    xp.exp(out, out=out)
    out -= xp.equal(labels[..., None], xp.arange(logits.shape[-1]))
    out *= g[..., None]
    return out


def half_squared_norm(xp, x):
    return xp.multiply(0.5, xp.sum(xp.multiply(x, x)))


def half_squared_norm_vjp(xp, x, g):
    return g * x


# Randomness ---------------------------------------------------------------------------------------


def dropout(xp, x, rate, key):
    return apply_dropout_mask(xp, x, rate, key)


def seeded_dropout(xp, x, seed, rate):
    if seed.item() < 0:
        raise ValueError(f"the seed of a dropout must be 0 or more, got {seed.item()}")
    return apply_dropout_mask(xp, x, rate, random_key(xp, seed))


def apply_dropout_mask(xp, x, rate, key):
    bits = random_bits(xp, x.size, key_words(xp, key)).reshape(x.shape)
    keep = xp.greater_equal(bits, xp.uint64(round(rate * 2**32)))
    out = xp.asarray(xp.multiply(x, keep))
    out *= 1 / (1 - rate)
    return out
