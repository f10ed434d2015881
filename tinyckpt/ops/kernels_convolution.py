"""Convolution kernels by im2col and matrix multiplication, block by block.

A block is some images, or some rows of windows of one image. Its *columns* are the pixels that the
windows see: one column per window, one line per channel and kernel tap. The convolution is the
weight times the columns; its adjoints are the two other products among the three, with the columns
scattered back to their pixels (col2im), or summed over the blocks. With stride 1 the input's
adjoint is itself a convolution, by the flipped weight; and columns are made for one row of the
kernel alone: the columns of its next row are the same ones from one row further down, a view. The
convolution is then a sum of products, one per row.

Taps that see padding in every window are left out, as if the kernel were smaller. Float16 is
multiplied and accumulated in float32, and rounded when it leaves a block.

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006; here in blocks, so that columns take at most BLOCK_BYTES, or one row of windows.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.ops.sliding_windows import (
    convolution_blocks,
    flipped_padding,
    is_gathered,
    is_pointwise,
    row_products,
    transposed_counts,
    trim_kernel,
    window_counts,
    window_overlaps,
)


def blocks_with_buffers(xp, plan, dtype, image, attrs):
    """Yield the blocks of a plan with their buffers: (images, rows, overlaps, columns, sums).

    All blocks use the memory of the first, which is the largest. ``overlaps`` are the overlaps of
    windows and pixels (see ``sliding_windows.window_overlaps``). A block with the same windows as
    the previous one has no borders among them: the padding in its columns is 0 already.
    """
    memories, before = None, None
    overlaps: list[Any] = []
    for images, rows, seen, *shapes in plan:
        sizes = [math.prod(shape) for shape in shapes]
        memories = memories or [xp.empty(size, dtype) for size in sizes]
        columns, sums = (
            memory[:size].reshape(shape)
            for memory, size, shape in zip(memories, sizes, shapes, strict=True)
        )
        if (rows, shapes) == before:
            overlaps = [(*overlap, []) for *overlap, _ in overlaps]
        else:
            windows = seen, slice(0, columns.shape[5])
            overlaps = list(window_overlaps(columns.shape[1:3], windows, image, *attrs))
        yield images, rows, overlaps, columns, sums
        before = rows, shapes


def by_group(array, groups):
    """Return one matrix per group: the leading axis is split, the others are flattened."""
    return array.reshape(groups, array.shape[0] // groups, -1)


def columns_by_group(columns, groups):
    """Return the columns as one matrix per group."""
    return columns.reshape(groups, math.prod(columns.shape[:3]) // groups, -1)


def columns_by_kernel_row(columns, groups, rows, count, apart):
    """Return the columns of each of ``count`` rows of a kernel, as matrices: views of one array."""
    starts = [row * apart for row in range(count)]
    return [columns_by_group(columns[..., at : at + rows, :], groups) for at in starts]


def split_weight(weight, groups, taps=(slice(None), slice(None))):
    """Return the view (groups, filters per group, depth, height, width) of a weight's taps."""
    return weight.reshape(groups, -1, *weight.shape[1:])[(..., *taps)]


def weight_matrices(xp, weight, count, dtype, copied):
    """Return (count, groups, filters per group, lines): matrices of the rows of a split weight.

    One matrix has all rows if ``count`` is 1. It is then a view, unless it is to be ``copied`` or
    ``dtype`` is not the weight's.
    """
    groups, filters, depth, height, width = weight.shape
    if count == 1 and not copied:
        return weight.astype(dtype, copy=False).reshape(1, groups, filters, -1)
    out = xp.empty((count, groups, filters, depth, height // count, width), dtype)
    parts = weight.reshape(groups, filters, depth, count, height // count, width)
    out[...] = parts.transpose(3, 0, 1, 2, 4, 5)
    return out.reshape(count, groups, filters, -1)


def by_image(array, groups):
    """Return one matrix per image and group: the pixels of a channel in one line."""
    return array.reshape(array.shape[0], groups, array.shape[1] // groups, -1)


def im2col(columns, x, images, overlaps):
    """im2col: write the pixels of a block's windows into ``columns``; the padding is 0.

    ``columns`` has the axes (channels, row and column within the window, images, rows, columns).
    """
    for i, j, inside, pixels, borders in overlaps:
        target = columns[:, i, j]
        for border in borders:
            target[(..., *border)] = 0
        target[(..., *inside)] = x[(images, slice(None), *pixels)].transpose(1, 0, 2, 3)


def col2im(columns, x, images, overlaps):
    """col2im: add the columns of a block to the pixels of ``x``, as ``im2col``'s adjoint."""
    for i, j, inside, pixels, _ in overlaps:
        target = x[(images, slice(None), *pixels)]
        target += columns[:, i, j][(..., *inside)].transpose(1, 0, 2, 3)


def block_view(y, images, rows):
    """Return a view of a block's part of y, or y's cotangent, with the channels first."""
    return y[images, :, rows].transpose(1, 0, 2, 3)


def copy_to_buffer(part, sums):
    """Copy a block's part of y's cotangent into its buffer; the part itself if there is none."""
    if sums.size == 0:
        return part
    sums[...] = part
    return sums


def convolve(xp, x, weight, bias, y, attrs, copied):
    """Write into ``y`` the products of its windows with a split weight."""
    stride, _, dilation = attrs
    groups, share, depth, *kernel = weight.shape
    shape, exact = (groups * share, depth, *kernel), wide(x.dtype)
    count, apart = row_products(y.shape, shape, stride, dilation, x.dtype)
    plan = convolution_blocks(y.shape, shape, groups, x.dtype, count, apart)
    matrices = weight_matrices(xp, weight, count, exact, copied)
    more: Any = None
    for images, rows, overlaps, columns, sums in blocks_with_buffers(
        xp, plan, exact, x.shape[2:], attrs
    ):
        im2col(columns, x, images, overlaps)
        part = block_view(y, images, rows)
        sums = sums if sums.size else part
        seen = columns_by_kernel_row(columns, groups, part.shape[2], count, apart)
        xp.matmul(matrices[0], seen[0], out=by_group(sums, groups))
        if count > 1 and more is None:
            more = xp.empty(part.shape, exact)
        for matrix, lines in zip(matrices[1:], seen[1:], strict=True):
            further = more[:, :, : part.shape[2]]
            xp.matmul(matrix, lines, out=by_group(further, groups))
            sums += further
        if bias:
            sums += bias[0].reshape(-1, 1, 1, 1)
        if sums is not part:
            part[...] = sums


def conv2d(xp, x, weight, *bias, stride, padding, dilation, groups):
    counts = window_counts(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    y = xp.empty((x.shape[0], weight.shape[0], *counts), x.dtype)
    whole, image = weight.shape[2:], x.shape[2:]
    taps, kernel, padding = trim_kernel(whole, counts, image, stride, padding, dilation)
    weight, copied = split_weight(weight, groups, taps), kernel != whole
    if is_pointwise(x.shape, kernel, y.shape, stride, padding, x.dtype):
        matrix = weight_matrices(xp, weight, 1, x.dtype, copied)[0]
        xp.matmul(matrix, by_image(x, groups), out=by_image(y, groups))
        if bias:
            y += bias[0].reshape(-1, 1, 1)
    else:
        convolve(xp, x, weight, bias, y, (stride, padding, dilation), copied)
    return y


def conv2d_input_vjp(xp, weight, g, shape, stride, padding, dilation, groups):
    # With one filter per group (depthwise convolution) each product is an outer product: NumPy's
    # matmul takes 2 to 7 times as long for that as multiplication does.
    product = xp.multiply if weight.shape[0] == groups else xp.matmul
    exact, whole = wide(g.dtype), weight.shape[2:]
    taps, kernel, padding = trim_kernel(whole, g.shape[2:], shape[2:], stride, padding, dilation)
    weight, copied = split_weight(weight, groups, taps), kernel != whole
    if is_pointwise(shape, kernel, g.shape, stride, padding, g.dtype):
        x = xp.empty(shape, g.dtype)
        matrix = weight_matrices(xp, weight, 1, g.dtype, copied)[0]
        product(matrix.mT, by_image(g, groups), out=by_image(x, groups))
        return x
    trimmed = (g.shape[1], *weight.shape[2:])
    if is_gathered(g.shape, trimmed, stride, groups):
        # The flipped weight, with filters and channels of each group exchanged.
        x = xp.empty(shape, g.dtype)
        margin = flipped_padding(kernel, padding, dilation)
        turned = weight[..., ::-1, ::-1].transpose(0, 2, 1, 3, 4)
        convolve(xp, g, turned, (), x, (stride, margin, dilation), True)
        return x
    x = xp.zeros(shape, g.dtype)
    # Columns for the whole kernel, scattered to the pixels one tap after another (col2im).
    plan = convolution_blocks(g.shape, trimmed, groups, g.dtype)
    matrix = weight_matrices(xp, weight, 1, exact, copied)[0].mT
    attrs = stride, padding, dilation
    for images, rows, overlaps, columns, sums in blocks_with_buffers(
        xp, plan, exact, shape[2:], attrs
    ):
        sums = copy_to_buffer(block_view(g, images, rows), sums)
        product(matrix, by_group(sums, groups), out=columns_by_group(columns, groups))
        col2im(columns, x, images, overlaps)
    return x


def conv2d_weight_vjp(xp, x, g, shape, stride, padding, dilation, groups):
    exact = wide(x.dtype)
    whole, image = shape[2:], x.shape[2:]
    taps, kernel, padding = trim_kernel(whole, g.shape[2:], image, stride, padding, dilation)
    trimmed = (*shape[:2], *kernel)
    count, apart = row_products(g.shape, trimmed, stride, dilation, x.dtype)
    plan = convolution_blocks(g.shape, trimmed, groups, x.dtype, count, apart)
    filters, lines = shape[0] // groups, shape[1] * math.prod(kernel) // count
    # Several products are computed transposed: BLAS is faster that way.
    matrix = (groups, lines, filters) if count > 1 else (groups, filters, lines)
    total = xp.empty((count, *matrix), exact)
    product: Any = None
    blocks = blocks_with_buffers(xp, plan, exact, image, (stride, padding, dilation))
    for number, (images, rows, overlaps, columns, sums) in enumerate(blocks):
        im2col(columns, x, images, overlaps)
        part = block_view(g, images, rows)
        sums = by_group(copy_to_buffer(part, sums), groups)
        if number and product is None:
            product = xp.empty(matrix, exact)
        for into, seen in zip(
            total, columns_by_kernel_row(columns, groups, part.shape[2], count, apart), strict=True
        ):
            left, right = (seen, sums.mT) if count > 1 else (sums, seen.mT)
            xp.matmul(left, right, out=product if number else into)
            if number:
                into += product
    if count == 1 and kernel == whole and exact == x.dtype:
        return total.reshape(shape)
    out = xp.empty(shape, x.dtype) if kernel == whole else xp.zeros(shape, x.dtype)
    target = split_weight(out, groups, taps)
    if count > 1:
        total = total.reshape(count, groups, shape[1], kernel[1], filters)
        target[...] = total.transpose(1, 4, 2, 0, 3)
    else:
        target[...] = total.reshape(target.shape)
    return out


def conv_transpose2d(xp, x, weight, *bias, stride, padding, output_padding, dilation, groups):
    counts = transposed_counts(
        x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation
    )
    shape = x.shape[0], groups * weight.shape[1], *counts
    y = conv2d_input_vjp(xp, weight, x, shape, stride, padding, dilation, groups)
    if bias:
        y += bias[0].reshape(-1, 1, 1)
    return y
