"""Kernels of batch, layer, group and RMS normalisation and their vjps.

Statistics, and everything computed with them, have at least 32 bits, whatever ``x`` is; results are
C-contiguous, in the dtype of ``x``. Two sets of axes define the variant: statistics are taken over
``axes``; scale and shift vary along ``parameter_axes``. With ``centred`` the mean is subtracted,
and stands before ``rstd`` among the operands; without it (RMSNorm), there is none.

A pass over memory that seems redundant saves an array: ``x - mean`` is recomputed after its squares
have overwritten it.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from tinyckpt.base.dtypes import wide


def aligned(xp, parameter, ndim, parameter_axes):
    """Return a view of a parameter that broadcasts to arrays with ``ndim`` axes."""
    return xp.expand_dims(
        parameter, tuple(axis for axis in range(ndim) if axis not in parameter_axes)
    )


def deviations(xp, x, mean, axes, out):
    """Write ``x - mean`` to ``out``, or ``x`` if there is no mean."""
    if mean is None:
        out[...] = x
    else:
        xp.subtract(x, xp.expand_dims(mean, axes), out=out)


def normalize(xp, x, *parameters, axes, parameter_axes, epsilon, centred):
    exact = wide(x.dtype)
    mean = xp.asarray(xp.mean(x, axis=axes, dtype=exact)) if centred else None
    y = xp.empty(x.shape, exact)
    deviations(xp, x, mean, axes, out=y)
    y *= y
    rstd = xp.asarray(xp.mean(y, axis=axes))
    rstd += epsilon
    xp.sqrt(rstd, out=rstd)
    xp.divide(1, rstd, out=rstd)
    deviations(xp, x, mean, axes, out=y)
    factor = xp.expand_dims(rstd, axes)
    if parameters:
        scale = aligned(xp, parameters[0], x.ndim, parameter_axes)
        if set(axes) & set(parameter_axes):
            y *= factor
            factor = scale
        else:  # one number for all elements of a mean
            factor = xp.multiply(factor, scale, dtype=exact)
    y *= factor
    del factor
    if len(parameters) == 2:
        y += aligned(xp, parameters[1], x.ndim, parameter_axes)
    y = y.astype(x.dtype, copy=False)
    return (y, mean, rstd) if centred else (y, rstd)


def normalize_input_vjp(xp, x, *operands, axes, parameter_axes, centred):
    # With n = (x - mean) rstd and h = scale g: rstd (h - mean(h) - n mean(h n)). Where the scale is
    # one number for all elements of a mean, it is a factor of the whole, and h is g.
    *rest, rstd, g = operands
    mean = rest[-1] if centred else None
    scale = rest[: len(rest) - centred]
    exact = rstd.dtype
    factor = xp.expand_dims(rstd, axes)
    if scale:
        scale = aligned(xp, scale[0], x.ndim, parameter_axes)
        if set(axes) & set(parameter_axes):
            g = xp.multiply(g, scale, dtype=exact)
        else:
            factor = xp.multiply(factor, scale, dtype=exact)
    out = xp.empty(x.shape, exact)
    deviations(xp, x, mean, axes, out=out)
    out *= g
    slope = xp.mean(out, axis=axes, keepdims=True)
    slope *= xp.expand_dims(rstd, axes)
    slope *= xp.expand_dims(rstd, axes)  # one rstd per n
    deviations(xp, x, mean, axes, out=out)
    out *= slope
    del slope
    if centred:
        out += xp.mean(g, axis=axes, keepdims=True, dtype=exact)
    xp.subtract(g, out, out=out)
    out *= factor
    return out.astype(x.dtype, copy=False)


def normalize_scale_vjp(xp, x, *operands, axes, parameter_axes, centred):
    # The sum of g n, with n = (x - mean) rstd.
    *mean, rstd, g = operands
    product = xp.empty(x.shape, rstd.dtype)
    deviations(xp, x, mean[0] if centred else None, axes, out=product)
    product *= g
    others = tuple(axis for axis in range(x.ndim) if axis not in parameter_axes)
    if others == tuple(axes):  # rstd is constant over the summed elements: a factor
        total = xp.sum(product, axis=others)
        total *= rstd
        return total
    product *= xp.expand_dims(rstd, axes)
    return xp.sum(product, axis=others) if others else product


def ms_normalize(xp, x, axes, epsilon, centred):
    y, *_, rstd = normalize(xp, x, axes=axes, parameter_axes=(), epsilon=epsilon, centred=centred)
    return y, rstd


def ms_normalize_vjp(xp, y, rstd, g, axes, centred):
    # rstd (g - mean(g) - y mean(g y)): normalize_input_vjp as a function of the output.
    out = xp.empty(y.shape, rstd.dtype)
    out[...] = y
    out *= g
    slope = xp.mean(out, axis=axes, keepdims=True)
    xp.multiply(y, slope, out=out)
    del slope
    if centred:
        out += xp.mean(g, axis=axes, keepdims=True, dtype=rstd.dtype)
    xp.subtract(g, out, out=out)
    out *= xp.expand_dims(rstd, axes)
    return out.astype(y.dtype, copy=False)
