"""Convolutions of images as matrix products, block by block; the rules are those of ``kernels``.

A block is some images, or some rows of windows of one image. Its *columns* are what the windows
see: one column for every window, one line for every channel and place within the window. The
convolution is the weight times the columns; its adjoints are the two other products among the
three, with the columns added back to the pixels that they came from, or summed over the blocks.
Where windows move by single pixels, the image's adjoint is a convolution, by the turned weight.

Float16 is multiplied and added up in float32, and rounded when it leaves a block.

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006; here in blocks, so that columns take at most BLOCK_BYTES, or one row of windows.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math
from typing import Any

from tinyckpt.ops.dtypes import wide
from tinyckpt.ops.windows import (
    convolution_blocks,
    is_gathered,
    is_product,
    meetings,
    transposed_counts,
    turned_padding,
    window_counts,
)


def buffered(xp, plan, dtype, image, attrs):
    """Yield the blocks of a plan with their buffers: (images, rows, places, columns, sums).

    All blocks use the memory of the first, which is the largest. ``places`` are the meetings of
    windows and pixels. A block that has the windows of the one before has no borders among them:
    what its columns see of the padding is 0 already.
    """
    memories, before = None, None
    places: list[Any] = []
    for images, rows, *shapes in plan:
        sizes = [math.prod(shape) for shape in shapes]
        memories = memories or [xp.empty(size, dtype) for size in sizes]
        columns, sums = (
            memory[:size].reshape(shape)
            for memory, size, shape in zip(memories, sizes, shapes, strict=True)
        )
        if (rows, shapes) == before:
            places = [(*place, []) for *place, _ in places]
        else:
            windows = rows, slice(0, columns.shape[5])
            places = list(meetings(columns.shape[1:3], windows, image, *attrs))
        yield images, rows, places, columns, sums
        before = rows, shapes


def by_group(array, groups):
    """Return one matrix for every group: the leading axis is split, the others are flattened."""
    return array.reshape(groups, array.shape[0] // groups, -1)


def columns_by_group(columns, groups):
    """Return the columns as one matrix for every group."""
    return columns.reshape(groups, math.prod(columns.shape[:3]) // groups, -1)


def by_image(array, groups):
    """Return one matrix for every image and group: the pixels of a channel in one line."""
    return array.reshape(array.shape[0], groups, array.shape[1] // groups, -1)


def fill_columns(columns, x, images, places):
    """Write into ``columns`` what the windows of a block see; the padding is 0.

    ``columns`` has the axes (channels, row and column within the window, images, rows, columns).
    """
    for i, j, inside, pixels, borders in places:
        target = columns[:, i, j]
        for border in borders:
            target[(..., *border)] = 0
        target[(..., *inside)] = x[(images, slice(None), *pixels)].transpose(1, 0, 2, 3)


def add_columns(columns, x, images, places):
    """Add the columns of a block to the pixels of ``x``: the adjoint of ``fill_columns``."""
    for i, j, inside, pixels, _ in places:
        target = x[(images, slice(None), *pixels)]
        target += columns[:, i, j][(..., *inside)].transpose(1, 0, 2, 3)


def part_of(y, images, rows):
    """Return a view of a block's part of y, or y's cotangent, with the channels first."""
    return y[images, :, rows].transpose(1, 0, 2, 3)


def in_buffer(part, sums):
    """Return a block's part of y's cotangent in the buffer for it, or itself if there is none."""
    if sums.size == 0:
        return part
    sums[...] = part
    return sums


def convolve(xp, x, weight, bias, y, groups, attrs):
    """Write into ``y`` what as many windows as it has places for see, times the weight."""
    working = wide(x.dtype)
    plan = convolution_blocks(y.shape, weight.shape, groups, x.dtype)
    matrix = by_group(weight.astype(working, copy=False), groups)
    for images, rows, places, columns, sums in buffered(xp, plan, working, x.shape[2:], attrs):
        fill_columns(columns, x, images, places)
        part = part_of(y, images, rows)
        sums = sums if sums.size else part
        xp.matmul(matrix, columns_by_group(columns, groups), out=by_group(sums, groups))
        if bias:
            sums += bias[0].reshape(-1, 1, 1, 1)
        if sums is not part:
            part[...] = sums


def turned(xp, weight, groups, dtype):
    """Return the weight turned upside down, filters and channels of each group exchanged."""
    filters, depth, height, width = weight.shape
    out = xp.empty((groups * depth, filters // groups, height, width), dtype)
    parts = weight.reshape(groups, -1, depth, height, width)[..., ::-1, ::-1]
    out.reshape(groups, depth, -1, height, width)[...] = parts.transpose(0, 2, 1, 3, 4)
    return out


def conv2d(xp, x, weight, *bias, stride, padding, dilation, groups):
    counts = window_counts(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    y = xp.empty((x.shape[0], weight.shape[0], *counts), x.dtype)
    if is_product(x.shape, weight.shape, y.shape, padding, x.dtype):
        xp.matmul(by_group(weight, groups), by_image(x, groups), out=by_image(y, groups))
        if bias:
            y += bias[0].reshape(-1, 1, 1)
    else:
        convolve(xp, x, weight, bias, y, groups, (stride, padding, dilation))
    return y


def conv2d_input_vjp(xp, weight, g, shape, stride, padding, dilation, groups):
    # With one filter a group, as in depthwise convolutions, each product is of a column and a row:
    # NumPy's matmul takes 2 to 7 times as long for that as multiplication does.
    product = xp.multiply if weight.shape[0] == groups else xp.matmul
    working = wide(g.dtype)
    if is_product(shape, weight.shape, g.shape, padding, g.dtype):
        x = xp.empty(shape, g.dtype)
        product(by_group(weight, groups).mT, by_image(g, groups), out=by_image(x, groups))
        return x
    if is_gathered(weight.shape, stride, groups):
        x = xp.empty(shape, g.dtype)
        margin = turned_padding(weight.shape[2:], padding, dilation)
        weight = turned(xp, weight, groups, working)
        convolve(xp, g, weight, (), x, groups, (stride, margin, dilation))
        return x
    x = xp.zeros(shape, g.dtype)
    plan = convolution_blocks(g.shape, weight.shape, groups, g.dtype)
    matrix = by_group(weight.astype(working, copy=False), groups).mT
    attrs = stride, padding, dilation
    for images, rows, places, columns, sums in buffered(xp, plan, working, shape[2:], attrs):
        sums = in_buffer(part_of(g, images, rows), sums)
        product(matrix, by_group(sums, groups), out=columns_by_group(columns, groups))
        add_columns(columns, x, images, places)
    return x


def conv2d_weight_vjp(xp, x, g, shape, stride, padding, dilation, groups):
    working = wide(x.dtype)
    plan = convolution_blocks(g.shape, shape, groups, x.dtype)
    total, product = xp.zeros(shape, working), xp.empty(shape, working)
    attrs = stride, padding, dilation
    for images, rows, places, columns, sums in buffered(xp, plan, working, x.shape[2:], attrs):
        fill_columns(columns, x, images, places)
        sums = in_buffer(part_of(g, images, rows), sums)
        xp.matmul(
            by_group(sums, groups),
            columns_by_group(columns, groups).mT,
            out=by_group(product, groups),
        )
        total += product
    return total.astype(x.dtype, copy=False)


def conv_transpose2d(xp, x, weight, *bias, stride, padding, output_padding, dilation, groups):
    counts = transposed_counts(
        x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation
    )
    shape = x.shape[0], groups * weight.shape[1], *counts
    y = conv2d_input_vjp(xp, weight, x, shape, stride, padding, dilation, groups)
    if bias:
        y += bias[0].reshape(-1, 1, 1)
    return y
