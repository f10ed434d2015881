"""Destination-passing style: kernels that write into preallocated outputs and workspace.

A kernel gets an array library, ``xp``, and allocates by its functions. In its first evaluation
(``Recorded``) these allocate as ever, and it is noted which arrays were made, when each of them was
dropped, and which are the results. Later evaluations (``Placed``) hand the same functions ``out=``:
results are written where the values belong, temporaries into the operator's workspace. It works
for kernels that allocate the same arrays in the same order whenever shapes are the same, as those
of ``ops.kernels*`` do.

Source: Shaikhha, Fitzgibbon, Vytiniotis and Peyton Jones, "Destination-passing style for efficient
memory management", FHPC 2017, doi:10.1145/3122948.3122949.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Array = Any
TEMPORARY_ALIGNMENT = 16  # bytes; with more, temporaries need more than kernels declare


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in its memory: shape, dtype, and its axes from the largest stride down."""

    shape: tuple[int, ...]
    dtype: Any
    axes: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of an array of this layout."""
        size = self.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return int(size)

    def view(self, memory: Array) -> Array:
        """Return the beginning of a buffer of bytes as an array of this layout."""
        flat = memory[: self.nbytes].view(self.dtype)
        order = self.axes
        array = flat.reshape([self.shape[axis] for axis in order])
        return array.transpose([order.index(axis) for axis in range(len(order))])


def layout_of(array: Array) -> Layout | None:
    """Return the layout of an array, or None if it does not cover its memory once."""
    extents = zip(array.strides, array.shape, range(array.ndim), strict=True)
    # Axes of one element may stand anywhere: their strides say nothing.
    order = sorted(extents, key=lambda each: (-each[0], each[2]))
    expected = array.itemsize
    for stride, extent, _ in reversed(order):
        if extent > 1 and stride != expected:
            return None
        expected *= extent
    return Layout(array.shape, array.dtype, tuple([axis for _, _, axis in order]))


# --------------------------------------------------------------------------------------------------
# Functions that allocate their result.


def fill_where(xp: Any, out: Array, condition: Array, x: Any, y: Any) -> Array:
    """``where``, which has no ``out``."""
    xp.copyto(out, y)
    xp.copyto(out, x, where=condition)
    return out


def fill_range(xp: Any, out: Array, *bounds: int, dtype: Any = None) -> Array:
    """``arange`` of integers."""
    start, step = bounds[0] if len(bounds) > 1 else 0, bounds[2] if len(bounds) > 2 else 1
    if out.size:
        out.fill(step)
        out[0] = start
        xp.cumsum(out, out=out)
    return out


def fill_with(xp: Any, out: Array, value: Any) -> Array:
    """Write one value everywhere."""
    out.fill(value)
    return out


def fill_copy(xp: Any, out: Array, value: Any, **options: Any) -> Array:
    """``array``: a copy, converted."""
    xp.copyto(out, value, casting="unsafe")
    return out


# By name: what writes the function's result into ``out``; ufuncs have ``out=`` all of them.
FILLED: dict[str, Callable[..., Array]] = {
    "empty": lambda xp, out, *args, **options: out,
    "empty_like": lambda xp, out, *args, **options: out,
    "zeros": lambda xp, out, *args, **options: fill_with(xp, out, 0),
    "zeros_like": lambda xp, out, *args, **options: fill_with(xp, out, 0),
    "ones": lambda xp, out, *args, **options: fill_with(xp, out, 1),
    "full": lambda xp, out, shape, value, *args: fill_with(xp, out, value),
    "where": fill_where,
    "arange": fill_range,
    "array": fill_copy,
}
WITH_OUT = {"sum", "max", "min", "mean", "prod", "cumsum", "concatenate", "argmax"}
FAULTY_IN_CUPY = {"min"}  # with ``out`` it raises a TypeError, up to version 14.2 at least


WORKSPACE = -1  # the region of an operator's workspace; others are its results, by position


class Place(NamedTuple):
    """Where a temporary stands: in the workspace or in a result's memory, at an offset in bytes."""

    region: int
    offset: int


class Library:
    """A stand-in for ``xp`` whose allocating functions are wrapped; the rest is xp's own.

    Attributes:
        wrapped: from a function's name, and the function, to what kernels call.
    """

    def __init__(self, xp: Any, wrapped: Callable[[str, Any], Any]) -> None:
        self.xp, self.wrapped = xp, wrapped

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.xp, name)
        has_out = name in (WITH_OUT if self.xp is np else WITH_OUT - FAULTY_IN_CUPY)
        if has_out or name in FILLED or isinstance(value, self.xp.ufunc):
            value = self.wrapped(name, value)
        setattr(self, name, value)  # found directly from now on
        return value


class Recorded:
    """The record of a first evaluation: every array that is allocated, and when it is dropped.

    Attributes:
        library: the xp of the kernel.
        layouts: of the arrays allocated so far; None for one that does not cover its memory once.
        born, died: counts of allocations at which each was made and dropped.
    """

    def __init__(self, xp: Any) -> None:
        self.library = Library(xp, self.wrapped)
        self.begin()

    def begin(self) -> None:
        """Forget the last kernel's allocations."""
        self.layouts: list[Layout | None] = []
        self.born: list[int] = []
        self.died: dict[int, int] = {}
        self.numbers: dict[int, int] = {}  # by id() of the arrays that live
        self.kept: list[Array] = []
        self.events = 0

    def wrapped(self, name: str, function: Any) -> Any:
        """Return a function of xp whose result is noted."""

        def allocate(*args: Any, out: Any = None, **options: Any) -> Any:
            if out is not None:
                return function(*args, out=out, **options)
            return self.note(function(*args, **options))

        return allocate

    def note(self, result: Any) -> Any:
        """Note an array that a kernel has made; a scalar becomes an array."""
        array = self.library.xp.asarray(result)
        number, self.events = len(self.layouts), self.events + 1
        self.layouts.append(layout_of(array))
        self.born.append(self.events)
        self.numbers[id(array)] = number
        # Of this kernel's lists: the array may outlive it as a value.
        try:
            weakref.finalize(array, self.drop, self.died, self.numbers, id(array), number)
        except TypeError:  # no weak references: kept, since another array might get its id()
            self.kept.append(array)
        return array

    def drop(self, died: dict[int, int], numbers: dict[int, int], key: int, number: int) -> None:
        """Note that an array was dropped."""
        if died is self.died:
            self.events += 1
            died[number] = self.events
            numbers.pop(key, None)

    def number_of(self, array: Array) -> int | None:
        """Return the number of the allocation whose memory a result covers, or None."""
        nbytes = array.nbytes
        while array is not None:
            if id(array) in self.numbers and array.nbytes == nbytes:
                return self.numbers[id(array)]
            array = getattr(array, "base", None)
        return None

    def temporaries(self, numbers: Sequence[int | None], workspace: int) -> dict[int, Place]:
        """Return a place for each temporary that has one: first fit by decreasing size.

        Before a result is made, temporaries may use its memory: the workspace that a kernel
        declares is what it needs beyond its results at its peak.

        Args:
            numbers: for each result its allocation, or None.
            workspace: bytes.
        """
        end = self.events + 1
        spans = [(born, self.died.get(each, end)) for each, born in enumerate(self.born)]
        # By region: bytes, and (start, stop, born, died) of what is placed.
        sizes = {WORKSPACE: -(-workspace // TEMPORARY_ALIGNMENT) * TEMPORARY_ALIGNMENT}
        taken: dict[int, list[tuple[int, int, int, int]]] = {WORKSPACE: []}
        for region, number in enumerate(numbers):
            layout = None if number is None else self.layouts[number]
            if number is not None and layout is not None:
                sizes[region] = layout.nbytes
                taken[region] = [(0, layout.nbytes, spans[number][0], end)]
        places = {}
        others = [each for each in range(len(spans)) if each not in numbers]
        bytes_of = {each: layout.nbytes for each in others if (layout := self.layouts[each])}
        for each in sorted(bytes_of, key=lambda each: -bytes_of[each]):
            (born, died), nbytes = spans[each], bytes_of[each]
            for region in taken:
                start = 0
                for low, high, first, last in sorted(taken[region]):
                    if first < died and born < last and low < start + nbytes and start < high:
                        start = -(-high // TEMPORARY_ALIGNMENT) * TEMPORARY_ALIGNMENT
                if start + nbytes <= sizes[region]:
                    taken[region].append((start, start + nbytes, born, died))
                    places[each] = Place(region, start)
                    break
        return places


class Placed:
    """The allocations of every later evaluation of one kernel: views made beforehand.

    Attributes:
        library: the xp of the kernel.
        places: a view for each allocation, in order; None for one that is allocated as ever.
    """

    def __init__(self, xp: Any, places: Sequence[Array | None]) -> None:
        self.library = Library(xp, self.wrapped)
        self.places, self.next = [*places], 0

    def wrapped(self, name: str, function: Any) -> Any:
        """Return a function of xp that writes into the next place."""
        xp = self.library.xp
        fill = partial(FILLED[name], xp) if name in FILLED else None

        def place(*args: Any, out: Any = None, **options: Any) -> Any:
            if out is None:
                number, self.next = self.next, self.next + 1
                out = self.places[number]
                if out is None:
                    return xp.asarray(function(*args, **options))
                if fill is not None:
                    return fill(out, *args, **options)
            return function(*args, out=out, **options)

        return place


class PlacedKernel:
    """A kernel whose results stand at fixed places: call it with operands and attributes.

    Attributes:
        kernel: ``kernel(xp, *operands, **attrs)``.
        xp: the array library.
        placed: the places of what it allocates; None for a kernel that allocates as it pleases.
        outs: for each result, where it is copied to; None for one that is in its place, or new.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        xp: Any,
        placed: Placed | None,
        outs: tuple[Any, ...],
    ) -> None:
        self.kernel, self.placed, self.outs = kernel, placed, outs
        self.xp = placed.library if placed else xp

    def __call__(self, *operands: Any, **attrs: Any) -> Any:
        if self.placed is not None:
            self.placed.next = 0
        results = self.kernel(self.xp, *operands, **attrs)
        outs = self.outs
        if len(outs) == 1:
            if outs[0] is not None and results is not outs[0]:
                outs[0][...] = results
            return results
        for out, result in zip(outs, results, strict=True):
            if out is not None and result is not out:
                out[...] = result
        return results
