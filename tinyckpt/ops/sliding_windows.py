"""Sliding-window geometry of convolution and pooling: output sizes, overlaps, block plans.

Integers and slices alone. Kernels walk the blocks, and workspaces are counted from the same block
plan, so that it is decided in one place. Values have the layout NCHW: images, channels, height,
width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec

# Bytes of a block's buffers together. Larger buffers are evicted from the caches between being
# written and being read; smaller ones make matrix products too small for BLAS to be fast.
BLOCK_BYTES = 8 * 2**20
# Windows in one image from which on a matrix product per image is about as fast as one for several
# images: it then saves a copy of the result.
WIDE = 128
Pair = tuple[int, int]
Slices = tuple[slice, slice]
Shape = tuple[int, ...]
Block = tuple[slice, slice, Pair]


# Sizes --------------------------------------------------------------------------------------------


def pair(value: Any, name: str, what: str) -> Pair:
    """Return a size as (height, width); one integer is both.

    ``name`` is the size's name, and ``what`` the operator that it was given to, for the message.

    Raises:
        GraphError: if it is neither an integer nor two of them.
    """
    number = as_integer(value)
    if number is not None:
        return number, number
    numbers = tuple(map(as_integer, value)) if isinstance(value, list | tuple) else ()
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise GraphError(
            f"{what}: {name}={value!r}: give an integer, or a pair (height, width) of them"
        )
    return numbers[0], numbers[1]


def dilated_extent(kernel: int, dilation: int) -> int:
    """Return the extent of a dilated kernel, in pixels."""
    return dilation * (kernel - 1) + 1


def window_counts(
    image: Sequence[int], kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)
) -> Pair:
    """Return the number of window positions: the height and width of the output.

    Raises:
        GraphError: if a size is out of range, or the window does not fit.
    """
    require_sizes(kernel, stride, padding, dilation)
    reach = dilated_extent(kernel[0], dilation[0]), dilated_extent(kernel[1], dilation[1])
    padded = image[0] + 2 * padding[0], image[1] + 2 * padding[1]
    if reach[0] > padded[0] or reach[1] > padded[1]:
        raise GraphError(
            f"a kernel of {kernel[0]} by {kernel[1]} with dilation {dilation} reaches over "
            f"{reach[0]} by {reach[1]} pixels and does not fit an image of {image[0]} by "
            f"{image[1]} with padding {padding}: at most {padded[0]} by {padded[1]}"
        )
    return (padded[0] - reach[0]) // stride[0] + 1, (padded[1] - reach[1]) // stride[1] + 1


def require_sizes(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> None:
    """Raise a GraphError if a size is out of range."""
    for name, sizes, least in (
        ("kernel", kernel, 1), ("stride", stride, 1), ("dilation", dilation, 1),
        ("padding", padding, 0),
    ):  # fmt: skip
        if min(sizes) < least:
            raise GraphError(f"{name}={sizes} must be at least {least}")


def transposed_counts(
    windows: Sequence[int],
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    dilation: Pair,
) -> Pair:
    """Return the height and width of a transposed convolution's output.

    Raises:
        GraphError: if a size is out of range, or the padding leaves no pixel of the image.
    """
    require_sizes(kernel, stride, padding, dilation)
    extents = []
    for axis in (0, 1):
        extra, most = output_padding[axis], max(stride[axis], dilation[axis]) - 1
        if not 0 <= extra <= most:
            raise GraphError(
                f"output_padding={output_padding} must be less than the stride {stride} or the "
                f"dilation {dilation}: expected 0 to {most} on axis {axis + 2}"
            )
        whole = (windows[axis] - 1) * stride[axis] + dilated_extent(kernel[axis], dilation[axis])
        if whole - 2 * padding[axis] + extra < 1:
            raise GraphError(
                f"padding={padding} leaves nothing of the {whole + extra} pixels on axis "
                f"{axis + 2}; expected 0 to {(whole + extra - 1) // 2}"
            )
        extents.append(whole - 2 * padding[axis] + extra)
    return extents[0], extents[1]


def require_images(spec: Spec, name: str) -> None:
    """Raise a GraphError unless the spec is of images, with no axis empty."""
    if len(spec.shape) != 4:
        raise GraphError(
            f"{name} must have 4 axes (images, channels, height, width), got {spec}; give it the "
            "missing ones with x.reshape(...)"
        )
    for extent, axis in zip(spec.shape, ("images", "channels", "rows", "columns"), strict=True):
        if extent == 0:
            raise GraphError(f"{name} has no {axis}: it is {spec}; expected at least 1")


# Windows and pixels -------------------------------------------------------------------------------


def overlap(windows: slice, first: int, stride: int, extent: int) -> Slices:
    """Return the windows that meet a pixel, and the pixels that they meet, along one axis.

    Window w of ``windows`` meets pixel ``first + w * stride``, if that is one of the
    ``extent`` pixels. Windows are counted from the first of ``windows``.
    """
    low = max(windows.start, -(first // stride))
    high = min(windows.stop, (extent - 1 - first) // stride + 1)
    if high <= low:
        return slice(0, 0), slice(0, 0)
    pixels = slice(first + low * stride, first + (high - 1) * stride + 1, stride)
    return slice(low - windows.start, high - windows.start), pixels


def borders_of(inside: Slices, counts: Pair) -> list[Slices]:
    """Return the nonempty borders around a rectangle of windows.

    Above and below at full width, left and right of the rectangle in between.
    """
    (rows, columns), (height, width) = inside, counts
    borders = [
        (slice(0, rows.start), slice(0, width)),
        (slice(rows.stop, height), slice(0, width)),
        (rows, slice(0, columns.start)),
        (rows, slice(columns.stop, width)),
    ]
    return [border for border in borders if all(part.stop > part.start for part in border)]


def window_overlaps(
    kernel: Pair,
    windows: Slices,
    image: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair = (1, 1),
) -> Iterator[tuple[int, int, Slices, Slices, list[Slices]]]:
    """Yield for every tap of the kernel the overlap of windows and pixels there.

    Each is (row within the window, column within the window, windows, pixels, windows that meet the
    padding instead); the windows are counted from the first of ``windows``.
    """
    counts = windows[0].stop - windows[0].start, windows[1].stop - windows[1].start
    for i in range(kernel[0]):
        rows = overlap(windows[0], i * dilation[0] - padding[0], stride[0], image[0])
        for j in range(kernel[1]):
            columns = overlap(windows[1], j * dilation[1] - padding[1], stride[1], image[1])
            inside = rows[0], columns[0]
            yield i, j, inside, (rows[1], columns[1]), borders_of(inside, counts)


# Blocks -------------------------------------------------------------------------------------------


def blocks(
    images: int, rows: int, row_bytes: int, most: int, fixed_bytes: int = 0
) -> Iterator[Block]:
    """Yield blocks of images and rows of windows that cover all, none larger than the first.

    A block has whole images, ``most`` of them, where one fits into ``BLOCK_BYTES``, else rows of
    one image, and at least one of them. ``row_bytes`` are the bytes of buffers per row of one
    image, ``fixed_bytes`` those independent of the number of rows. Each block is (images,
    rows, counts of both).
    """
    fitting = max(1, (BLOCK_BYTES - fixed_bytes) // row_bytes)
    for part in even_parts(images, max(1, min(fitting // rows, most))):
        for band in even_parts(rows, min(fitting, rows)):
            yield part, band, (part.stop - part.start, band.stop - band.start)


def even_parts(extent: int, most: int) -> Iterator[slice]:
    """Yield slices that cover an extent, none longer than ``most`` or than the first."""
    count = math.ceil(extent / most)
    length = math.ceil(extent / count)
    for start in range(0, extent, length):
        yield slice(start, min(start + length, extent))


# Convolutions as products of matrices -------------------------------------------------------------


def trim_kernel(
    kernel: Pair, windows: Pair, image: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Slices, Pair, Pair]:
    """Return the rows and columns of a kernel that meet a pixel; their counts; their padding.

    The others see padding alone in every window, as all taps but the middle one do in an image of
    one pixel. The padding is negative where the part's first tap is beyond the first pixel.
    """
    parts, extents, margins = [], [], []
    for axis in (0, 1):
        seen_taps = [
            tap
            for tap in range(kernel[axis])
            if overlap(
                slice(0, windows[axis]),
                tap * dilation[axis] - padding[axis],
                stride[axis],
                image[axis],
            )[0].stop
        ] or [0]
        parts.append(slice(seen_taps[0], seen_taps[-1] + 1))
        extents.append(seen_taps[-1] + 1 - seen_taps[0])
        margins.append(padding[axis] - seen_taps[0] * dilation[axis])
    return (parts[0], parts[1]), (extents[0], extents[1]), (margins[0], margins[1])


def row_products(
    y_shape: Shape, weight_shape: Shape, stride: Pair, dilation: Pair, dtype: Any
) -> tuple[int, int]:
    """Return the number of products whose sum a convolution is, and the rows between their columns.

    With stride 1 in height, a row of the kernel sees what the row above sees, further down: columns
    for one row of it are enough, and a product is made for each. They take a fraction of the time
    and memory to fill. It does not pay in small images: to rearrange the weight takes longer than
    to fill their columns.
    """
    if stride[0] == 1 and sums_in_place(y_shape, dtype):
        return weight_shape[2], dilation[0]
    return 1, 0


def is_pointwise(
    x_shape: Shape, kernel: Shape, y_shape: Shape, stride: Pair, padding: Pair, dtype: Any
) -> bool:
    """Whether a convolution is a matrix product without im2col: each window is one pixel."""
    return (
        kernel == (1, 1)
        and padding == (0, 0)
        and x_shape[2:] == y_shape[2:]
        and all(step == 1 or count == 1 for step, count in zip(stride, y_shape[2:], strict=True))
        and wide(dtype) == dtype
    )


def is_gathered(y_shape: Shape, weight_shape: Shape, stride: Pair, groups: int) -> bool:
    """Whether the input's cotangent is computed as a convolution of y's cotangent, by gathering.

    That is possible with stride 1. It has y's columns, not x's, and writing an element into a
    column takes half of the time of adding it to a pixel. But the weight is flipped first, which
    takes longer where it has about as many elements as the columns.
    """
    filters, depth = weight_shape[:2]
    count = y_shape[0] * math.prod(y_shape[2:])
    return stride == (1, 1) and filters <= groups * min(2 * depth, count // 2)


def flipped_padding(kernel: Pair, padding: Pair, dilation: Pair) -> Pair:
    """Return the padding of that convolution; negative where it crops y's cotangent."""
    return (
        dilated_extent(kernel[0], dilation[0]) - 1 - padding[0],
        dilated_extent(kernel[1], dilation[1]) - 1 - padding[1],
    )


def sums_in_place(y_shape: Shape, dtype: Any) -> bool:
    """Whether a convolution's sums are computed in y's own memory, image by image.

    Else they are in a buffer: of several images together, so that products are wide enough for
    BLAS to be fast, or in another dtype than y.
    """
    return math.prod(y_shape[2:]) >= WIDE and wide(dtype) == dtype


def convolution_blocks(
    y_shape: Shape, weight_shape: Shape, groups: int, dtype: Any, count: int = 1, apart: int = 0
) -> Iterator[tuple[slice, slice, slice, Shape, Shape]]:
    """Yield the blocks of a convolution, the largest first, with the shapes of their buffers.

    Each is (images, rows, rows of the columns, the columns' shape, the shape of its part of y or
    y's cotangent); that part has no buffer, and no elements here, where sums are computed in place.
    ``count`` and ``apart`` are those of ``row_products``: columns for one row of the kernel have
    the additional rows of windows that its other rows see.
    """
    filters, depth, height, width = weight_shape
    images, _, rows, columns = y_shape
    lines, direct = (groups * depth, height // count, width), sums_in_place(y_shape, dtype)
    summed, added = 0 if direct else filters, filters if count > 1 else 0
    line_bytes = columns * wide(dtype).itemsize
    row_bytes = (math.prod(lines) + summed + added) * line_bytes
    fixed_bytes = math.prod(lines) * (count - 1) * apart * line_bytes
    for part, band, counts in blocks(images, rows, row_bytes, 1 if direct else images, fixed_bytes):
        pixels_per_window = counts[0], counts[1] + (count - 1) * apart
        bands = slice(band.start, band.start + pixels_per_window[1])
        yield part, band, bands, (*lines, *pixels_per_window, columns), (summed, *counts, columns)


# Pooling ------------------------------------------------------------------------------------------


def pool_blocks(
    x_shape: Sequence[int], y_shape: Sequence[int], itemsize: int
) -> Iterator[tuple[slice, slice, Shape]]:
    """Yield the blocks of a pooling, the largest first: (images, rows, shape of y's part).

    A block's inputs and outputs, not its buffers alone, must fit ``BLOCK_BYTES``: it is traversed
    once for every tap of the kernel.
    """
    images, channels, rows, columns = y_shape
    pixels = math.ceil(math.prod(x_shape[1:]) / rows)
    row_bytes = (pixels + 2 * channels * columns) * itemsize
    for part, band, (count, bands) in blocks(images, rows, row_bytes, images):
        yield part, band, (count, channels, bands, columns)


def pixels_per_window(
    windows: slice, extent: int, kernel: int, stride: int, padding: int
) -> list[int]:
    """Return the number of pixels, without padding, in each window along one axis."""
    starts = range(windows.start * stride - padding, windows.stop * stride - padding, stride)
    return [min(start + kernel, extent) - max(start, 0) for start in starts]
