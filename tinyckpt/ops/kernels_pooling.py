"""Kernels of max and average pooling and their vjps.

They loop over the taps (positions within the window), each for all windows of a block at once. The
tap at (row, column) has the number ``row * width + column``.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math

from tinyckpt.base.dtypes import wide
from tinyckpt.ops.kernels_activation import select_by_bits
from tinyckpt.ops.sliding_windows import (
    pixels_per_window,
    pool_blocks,
    window_counts,
    window_overlaps,
)


def pooling_blocks(xp, plan, *dtypes):
    """Yield the blocks of a plan with a buffer of each dtype: (images, rows, *buffers).

    All blocks use the memory of the first, which is the largest.
    """
    memories = None
    for images, rows, shape in plan:
        size = math.prod(shape)
        memories = memories or [xp.empty(size, dtype) for dtype in dtypes]
        yield images, rows, *(memory[:size].reshape(shape) for memory in memories)


def tap_overlaps(x_shape, y_shape, kernel, rows, stride, padding):
    """Return (number within the window, windows, pixels) for a block, one tap after another."""
    windows = rows, slice(0, y_shape[3])
    return [
        (i * kernel[1] + j, (..., *inside), (slice(0, x_shape[1]), *pixels))
        for i, j, inside, pixels, _ in window_overlaps(
            kernel, windows, x_shape[2:], stride, padding
        )
    ]


def max_pool(xp, x, kernel, stride, padding):
    counts = window_counts(x.shape[2:], kernel, stride, padding)
    y = xp.empty((*x.shape[:2], *counts), x.dtype)
    indices = xp.empty(y.shape, "uint8")
    last = kernel[0] * kernel[1] - 1
    plan = pool_blocks(x.shape, y.shape, x.dtype.itemsize)
    for images, rows, largest, nan in pooling_blocks(xp, plan, "bool", "bool"):
        values, codes = y[images, :, rows], indices[images, :, rows]
        values[...] = -math.inf
        codes[...] = 0
        # From the last tap to the first, each one not below all later ones becomes the maximum, and
        # so does each NaN. Its code, the number counted from the last tap, is then the largest so
        # far: so the maximum of the codes is the argmax.
        for number, inside, pixels in reversed(
            tap_overlaps(x.shape, y.shape, kernel, rows, stride, padding)
        ):
            pixel, value, larger = x[(images, *pixels)], values[inside], largest[inside]
            xp.greater_equal(pixel, value, out=larger)
            xp.not_equal(pixel, pixel, out=nan[inside])
            xp.logical_or(larger, nan[inside], out=larger)
            code = larger.view("uint8")
            code *= last - number
            xp.maximum(codes[inside], code, out=codes[inside])
            xp.maximum(value, pixel, out=value)
        xp.subtract(last, codes, out=codes)
    return y, indices


def max_pool_vjp(xp, indices, g, shape, kernel, stride, padding):
    x = xp.zeros(shape, g.dtype)
    plan = pool_blocks(shape, g.shape, g.dtype.itemsize)
    for images, rows, chosen, share in pooling_blocks(xp, plan, "bool", g.dtype):
        of_block, cotangent = indices[images, :, rows], g[images, :, rows]
        for number, inside, pixels in tap_overlaps(shape, g.shape, kernel, rows, stride, padding):
            xp.equal(of_block[inside], number, out=chosen[inside])
            select_by_bits(xp, cotangent[inside], chosen[inside], share[inside])
            target = x[(images, *pixels)]
            target += share[inside]
    return x


def max_pool_take(xp, indices, x, kernel, stride, padding):
    y = xp.empty(indices.shape, x.dtype)
    plan = pool_blocks(x.shape, y.shape, x.dtype.itemsize)
    for images, rows, chosen in pooling_blocks(xp, plan, "bool"):
        of_block, values = indices[images, :, rows], y[images, :, rows]
        for number, inside, pixels in tap_overlaps(x.shape, y.shape, kernel, rows, stride, padding):
            xp.equal(of_block[inside], number, out=chosen[inside])
            xp.copyto(values[inside], x[(images, *pixels)], where=chosen[inside])
    return y


def window_sizes(xp, shape, kernel, rows, columns, stride, padding, count_include_pad, dtype):
    """Return the divisor of every window's mean: one number, or an array of pixel counts."""
    if count_include_pad:
        return kernel[0] * kernel[1]
    heights = pixels_per_window(rows, shape[2], kernel[0], stride[0], padding[0])
    widths = pixels_per_window(slice(0, columns), shape[3], kernel[1], stride[1], padding[1])
    return xp.asarray(heights, dtype)[:, None] * xp.asarray(widths, dtype)


def avg_pool(xp, x, kernel, stride, padding, count_include_pad):
    counts = window_counts(x.shape[2:], kernel, stride, padding)
    y = xp.empty((*x.shape[:2], *counts), x.dtype)
    working = wide(x.dtype)
    plan = pool_blocks(x.shape, y.shape, x.dtype.itemsize)
    for images, rows, sums in pooling_blocks(xp, plan, working):
        sums[...] = 0
        for _, inside, pixels in tap_overlaps(x.shape, y.shape, kernel, rows, stride, padding):
            target = sums[inside]
            target += x[(images, *pixels)]
        sums /= window_sizes(
            xp, x.shape, kernel, rows, counts[1], stride, padding, count_include_pad, working
        )
        y[images, :, rows] = sums
    return y


def avg_pool_vjp(xp, g, shape, kernel, stride, padding, count_include_pad):
    x = xp.zeros(shape, g.dtype)
    working = wide(g.dtype)
    plan = pool_blocks(shape, g.shape, g.dtype.itemsize)
    for images, rows, shares in pooling_blocks(xp, plan, working):
        shares[...] = g[images, :, rows]
        shares /= window_sizes(
            xp, shape, kernel, rows, g.shape[3], stride, padding, count_include_pad, working
        )
        for _, inside, pixels in tap_overlaps(shape, g.shape, kernel, rows, stride, padding):
            target = x[(images, *pixels)]
            target += shares[inside]
    return x
