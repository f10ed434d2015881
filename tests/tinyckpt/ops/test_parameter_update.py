"""Optimiser arithmetic: values against the formulae, and no workspace beyond the declared one."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tinyckpt.core.graph import Graph
from tinyckpt.ops import parameter_update as updating
from tinyckpt.ops.parameter_update import (
    adam_step,
    descend,
    moving_average,
    moving_square,
    moving_sum,
)

R = np.random.default_rng(3)
P, G = R.normal(size=(300, 500)), R.normal(size=(300, 500))
V = G * G
C = np.array(0.5)


def adam(p: Any, m: Any, v: Any, rate: Any, decay: float = 0.0) -> Any:
    return adam_step(p, m, v, rate, (rate + 0.25, rate + 0.5), 1e-8, decay)


def adam_expected(p: Any, m: Any, v: Any, rate: Any, decay: float = 0.0) -> Any:
    step = (m / (rate + 0.25)) / (np.sqrt(v / (rate + 0.5)) + 1e-8)
    return p - rate * step - rate * decay * p


CASES = {
    "descend": (descend, lambda x, d, r: x - r * d, (P, G, C)),
    "moving_sum": (
        lambda old, new: moving_sum(old, new, 0.9), lambda old, new: 0.9 * old + new, (P, G),
    ),
    "moving_average": (
        lambda old, new: moving_average(old, new, 0.9),
        lambda old, new: 0.9 * old + 0.1 * new,
        (P, G),
    ),
    "moving_square": (
        lambda old, new: moving_square(old, new, 0.9),
        lambda old, new: 0.9 * old + 0.1 * new**2,
        (V, G),
    ),
    "adam_step": (adam, adam_expected, (P, G, V, C)),
    "adam_step with decay": (
        lambda *args: adam(*args, decay=0.1), lambda *args: adam_expected(*args, decay=0.1),
        (P, G, V, C),
    ),
}  # fmt: skip


def test_every_optimiser_primitive_has_a_case() -> None:
    own = {name for name, value in vars(updating).items() if type(value) is tc.Primitive}
    assert {name.lower() for name in own} - {"write_over"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_optimiser_primitive_equals_formula(name: str) -> None:
    function, expected, args = CASES[name]
    schedule = tc.plan(tc.build(function, *args))
    result = tc.run(schedule, *args)
    np.testing.assert_allclose(result.value, expected(*args), rtol=1e-9, atol=1e-12)  # type: ignore[operator]
    other = tc.run(schedule, *args, backend=strict.BACKEND).value
    np.testing.assert_array_equal(strict.BACKEND.to_host(other), result.value)


@pytest.mark.parametrize("name", CASES)
def test_optimiser_primitive_stays_within_declared_workspace(name: str) -> None:
    function, _, args = CASES[name]
    graph = tc.build(function, *args)
    program = tc.compile(tc.plan(graph))
    program(*args)
    tracemalloc.start()
    program(*args)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    predicted = tc.replay(program.schedule).peak_bytes
    assert predicted - 200 <= peak <= predicted + 4000


def test_mismatched_shapes_and_dtypes_raise() -> None:
    with pytest.raises(tc.GraphError, match="has neither the shape of"):
        build_descend(tc.Spec(3), tc.Spec(2))
    with pytest.raises(tc.GraphError, match="needs one dtype"):
        build_descend(tc.Spec(3), tc.Spec(3, "float32"))


def build_descend(x: tc.Spec, direction: tc.Spec) -> Graph:
    return tc.build(lambda x, d: descend(x, d, 0.5), x, direction)  # type: ignore[arg-type]
