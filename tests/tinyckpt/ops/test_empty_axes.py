"""Empty axes: moving, indexing and repeating match NumPy, or raise."""

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

SHAPES: list[tuple[int, ...]] = [
    (0,), (0, 3), (3, 0), (2, 0, 3), (0, 0), (1,), (), (1, 0), (3,), (2, 3), (1, 1),
]  # fmt: skip
PLACES: list[Any] = [
    0, -1, slice(None), slice(0, 0), slice(None, None, -1), slice(5, 9), slice(2, None, -2), None,
    [], [0], [-1, 0], np.zeros((0, 2), int), np.zeros((1, 1), int),
]  # fmt: skip


def uses() -> dict[str, Callable[[Any], Any]]:
    """Return calls of NumPy's functions, by name."""
    found: dict[str, Callable[[Any], Any]] = {}

    def add(name: str, **options: Any) -> None:
        function = getattr(np, name)
        text = ", ".join(f"{key}={value}" for key, value in options.items())
        found[f"{name}({text})"] = lambda x: function(x, **options)

    for axis in (-2, -1, 0, 1, None):
        for name in (
            "sum", "prod", "max", "mean", "all", "cumsum", "argmin", "sort", "argsort", "median",
            "squeeze", "flip",
        ):  # fmt: skip
            add(name, axis=axis)
        for repeats in (0, 2, [], [2], [1, 2], [0, 0, 0], [1, 0, 2]):
            add("repeat", repeats=repeats, axis=axis)
        add("roll", shift=1, axis=axis)
        for places in ([], [0], [[0, 0]], [-1]):
            add("take", indices=np.array(places, int), axis=axis)
        found[f"take_along_axis({axis})"] = lambda x, axis=axis: np.take_along_axis(
            x, np.zeros(x.shape, int), axis
        )
        found[f"concatenate({axis})"] = lambda x, axis=axis: np.concatenate([x, x], axis)
        if axis is not None:
            add("expand_dims", axis=axis)
            for sections in (1, 2, [0], [0, 0]):
                add("array_split", indices_or_sections=sections, axis=axis)
                add("split", indices_or_sections=sections, axis=axis)
            found[f"stack({axis})"] = lambda x, axis=axis: np.stack([x, x], axis)
            add("diagonal", offset=axis)
            add("tril", k=axis)
            add("rot90", k=axis)
    for shape in (-1, (0,), (-1, 3), (0, -1), (2, 0, -1), (), (0, 5), (6,)):
        add("reshape", shape=shape)
    for shape in ((0,), (2, 3), (0, 3), (2, 0, 3)):
        add("broadcast_to", shape=shape)
    for reps in (0, 2, (), (2, 0), (1, 2, 2)):
        add("tile", reps=reps)
    for width, mode in product((0, 1, (1, 0)), ("constant", "edge", "reflect", "wrap")):
        add("pad", pad_width=width, mode=mode)
    for place in PLACES:
        found[f"[{place}]"] = lambda x, place=place: x[place]
    for key in product(PLACES, PLACES):
        found[f"[{key}]"] = lambda x, key=key: x[key]
    for other in SHAPES:
        y = np.ones(other)
        for name in ("add", "matmul", "dot", "inner", "outer", "vecdot", "matvec", "vecmat"):
            found[f"{name} with {other}"] = lambda x, name=name, y=y: getattr(np, name)(x, y)
            found[f"{name} after {other}"] = lambda x, name=name, y=y: getattr(np, name)(y, x)
    return found


def several(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, list | tuple) else (result,)


def check(use: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """Compare values with NumPy's, and check the gradient of a weighted sum of them."""
    x = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape) + 0.5
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of means without elements
            expected: Any = several(use(x))
    except (ValueError, IndexError, TypeError):
        expected = None
    try:
        values = tc.jit(lambda x: several(use(x)))(x)
        weights = [np.random.default_rng(1).uniform(1, 2, value.shape) for value in values]

        def loss(x: Any) -> Any:
            parts = zip(several(use(x)), weights, strict=True)
            return sum((tc.sum(part * weight) for part, weight in parts), start=tc.sum(x) * 0.0)

        slope = tc.grad(loss)(x)
    except tc.GraphError:
        return
    except tc.BackendError as error:
        assert "made the first" in str(error)  # noqa: PT017
        return
    assert expected is not None, "NumPy refuses it"
    for value, own in zip(values, expected, strict=True):
        assert (value.shape, value.dtype) == (own.shape, own.dtype)
        np.testing.assert_array_equal(value, own)
    assert (slope.shape, slope.dtype) == (x.shape, x.dtype)


def test_repeat_of_empty_axis_with_no_counts_is_empty() -> None:
    for shape, axis in (((0,), 0), ((0,), None), ((2, 0), 1), ((0, 3), -2)):
        x = np.ones(shape)
        repeated = tc.jit(lambda x, axis=axis: tc.repeat(x, [], axis))(x)
        assert repeated.shape == np.repeat(x, np.zeros(0, int), axis).shape
        slope = tc.grad(lambda x, axis=axis: tc.sum(tc.repeat(x, [], axis)))(x)
        assert slope.shape == shape
    with pytest.raises(tc.GraphError, match=r"give one number of 0 or more, or 3"):
        tc.build(lambda x: tc.repeat(x, [], 0), tc.Spec(3))


def test_padding_empty_axis_with_own_elements_raises() -> None:
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        with pytest.raises(tc.GraphError, match=r"axis 1 of float64\[2,0\] has no elements"):
            tc.build(lambda x, mode=mode: tc.pad(x, 1, mode), tc.Spec((2, 0)))


def test_vector_products_raise_where_numpy_raises() -> None:
    for function, shapes in (
        (tc.vecdot, ((1,), (3,))), (tc.matvec, ((3,), (3,))), (tc.vecmat, ((3,), (3,))),
    ):  # fmt: skip
        with pytest.raises(tc.GraphError, match=r"float64\[3\]"):
            tc.build(function, *map(tc.Spec, shapes))


USES = uses()


@pytest.mark.parametrize("name", list(USES)[::40])
def test_selected_functions_on_empty_axes_match_numpy(name: str) -> None:
    for shape in SHAPES:
        check(USES[name], shape)


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_functions_on_empty_axes_match_numpy(part: int) -> None:
    for name in list(USES)[part::20]:
        for shape in SHAPES:
            try:
                check(USES[name], shape)
            except Exception as error:
                error.add_note(f"{name} of {shape}")
                raise
