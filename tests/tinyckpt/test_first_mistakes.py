"""A beginner's first mistakes: each gets an answer, or a message that says what to do instead."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

W, X = np.linspace(-1, 1, 6).reshape(3, 2), np.linspace(0, 1, 12).reshape(4, 3)


def loss(w: Any, x: Any) -> Any:
    return tc.sum(tc.tanh(x @ w) ** 2)


def refused(function: Callable[..., Any], *args: Any, match: str) -> str:
    """Call a function that must raise an error of tinyckpt; return its text."""
    with pytest.raises(tc.TinyckptError, match=match) as caught:
        function(*args)
    return str(caught.value)


# Operators called on arrays, outside of a trace ---------------------------------------------------

NOT_EAGER = {"assign", "compressed", "once"}  # they mark a graph


def test_operator_on_an_array_returns_an_array() -> None:
    found = tc.tanh(np.ones(3))
    assert type(found) is np.ndarray
    assert np.array_equal(found, np.tanh(np.ones(3)))
    assert tc.tanh(1.0) == np.tanh(1.0)
    assert [part.shape for part in tc.split(np.ones((4, 2)), 2)] == [(2, 2), (2, 2)]
    assert tc.zeros((2, 3)).shape == (2, 3)


def test_every_public_operator_is_eager() -> None:
    operators = [
        name
        for name in tc.__all__
        if isinstance(function := getattr(tc, name), FunctionType)
        and function.__module__.startswith("tinyckpt.ops.")
    ]
    assert len(operators) > 150
    plain = {name for name in operators if not hasattr(getattr(tc, name), "__wrapped__")}
    assert plain == NOT_EAGER
    assert tc.linalg.norm(np.array([3.0, 4.0])) == 5.0


def test_function_over_operators_gives_the_same_numbers_eager_and_traced() -> None:
    assert loss(W, X) == tc.jit(loss)(W, X)
    block = tc.checkpoint(lambda x: tc.softmax(tc.name(x, "x") @ W))
    assert np.array_equal(block(X), tc.jit(block)(X))


def test_result_of_an_eager_call_never_aliases_its_argument() -> None:
    x = np.zeros((2, 3))
    for result in (tc.reshape(x, (3, 2)), tc.atleast_1d(x), tc.broadcast_to(x, (2, 2, 3))):
        result[...] = 1
    assert not x.any()


def test_primitive_of_ones_own_is_computed_at_once() -> None:
    square = tc.Primitive("my_square", lambda xp, x: x * x, lambda x: (x,))
    assert tc.apply(square, np.array([2.0, 3.0])).tolist() == [4.0, 9.0]


def test_eager_operators_raise_the_errors_of_traced_ones() -> None:
    refused(tc.matmul, X, X, match=r"matmul: float64\[4,3\] @ float64\[4,3\]")
    variables: list[Any] = []
    tc.build(lambda x: variables.append(x) or x * 2, X)
    refused(tc.tanh, variables[0], match="belongs to another build")
