"""Kernels of gather and scatter-add, sorting, arg-reductions, scans and logsumexp.

The rules for kernels stand in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.ops.kernels import require_in_range

# ``most`` bounds the multiplicity of an index: with 1, the adjoint may write instead of adding.


def take(xp, x, indices, axis, most):
    return xp.take(x, indices, axis=axis)


def take_vjp(xp, g, indices, shape, axis, most):
    # Scatter-add: cotangents of equal indices are summed. With unique indices, writing is enough.
    out = xp.zeros(shape, g.dtype)
    before = (slice(None),) * axis
    if most <= 1:
        out[(*before, indices)] = g
        return out
    # Sort by index, then reduce each run of equal ones (segmented sum). No two threads of a GPU
    # add to one element in a nondeterministic order: the result is bitwise reproducible, unlike
    # that of ``add.at``.
    indices = xp.where(indices < 0, indices + shape[axis], indices)
    order = xp.argsort(indices, kind="stable")
    indices = indices[order]
    sorted_g = g[(*before, order)]
    del order
    first = xp.ones(indices.shape, bool)
    first[1:] = indices[1:] != indices[:-1]
    starts = xp.flatnonzero(first)
    del first
    indices = indices[starts]
    out[(*before, indices)] = xp.add.reduceat(sorted_g, starts, axis=axis)
    return out


def embedding(xp, table, ids):
    require_in_range("ids", ids, len(table))
    return xp.take(table, ids, axis=0)


def flat_index(xp, *indices, extents, shape):
    # The index into the flattened array (ravel_multi_index); ``take`` rejects indices out of range,
    # and counts negative ones from the end.
    out = xp.zeros(shape, "int64")
    for index, extent in zip(indices, extents, strict=True):
        out *= extent
        out += xp.take(xp.arange(extent), index)
    return out


def pad(xp, x, shape, key, value):
    out = xp.full(shape, value, x.dtype)
    out[key] = x
    return out


def argmax(xp, x, axis):
    return x.argmax(axis=axis)


def argmin(xp, x, axis):
    return x.argmin(axis=axis)


def argsort(xp, x, axis):
    return xp.argsort(x, axis=axis, kind="stable")


def min_(xp, x, axes, keepdims):
    return x.min(axis=axes, keepdims=keepdims)


def any_(xp, x, axes, keepdims):
    return x.any(axis=axes, keepdims=keepdims)


def all_(xp, x, axes, keepdims):
    return x.all(axis=axes, keepdims=keepdims)


def cumsum(xp, x, axis, reverse):
    return xp.flip(xp.cumsum(xp.flip(x, axis), axis), axis) if reverse else xp.cumsum(x, axis)


def logsumexp(xp, x, axes, keepdims):
    largest = xp.max(x, axis=axes, keepdims=True)
    # Where the maximum is infinite, nothing is subtracted: inf - inf would be NaN.
    largest = xp.where(xp.isfinite(largest), largest, 0)
    shifted = xp.asarray(xp.subtract(x, largest))
    xp.exp(shifted, out=shifted)
    out = xp.asarray(xp.log(xp.sum(shifted, axis=axes, keepdims=True)))
    out += largest
    return out if keepdims else out.squeeze(axis=axes)


def logsumexp_vjp(xp, x, y, g, axes, keepdims):
    # g times the softmax, exp(x - y).
    out = xp.asarray(xp.subtract(x, y if keepdims else xp.expand_dims(y, axes)))
    xp.exp(out, out=out)
    out *= g if keepdims else xp.expand_dims(g, axes)
    return out
