"""First and second derivatives of every primitive, by finite differences."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.numpy_examples import EXAMPLES
from tests.tinyckpt.ops.cases import CASES, graphs_of_all_cases, scalar_of
from tinyckpt.documents.verifier import check_graph
from tinyckpt.ops import PRIMITIVES
from tinyckpt.ops import parameter_update as updating


def check_gradient(function: Callable[..., Any], args: tuple[Any, ...], rtol: float) -> None:
    """Compare the gradient with central differences along a random direction."""
    wrt = tuple(range(len(args)))
    _, gradients = tc.value_and_grad(function, wrt=wrt)(*args)
    generator = np.random.default_rng(2)
    directions = [generator.normal(size=np.shape(arg)) for arg in args]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    # Fourth-order central differences: truncation and rounding both near 1e-10 in float64.
    h = 1e-3
    graph = tc.build(function, *args)
    value = tc.compile(tc.plan(graph))
    numeric = 0.0
    for steps, weight in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12)):
        moved = [arg + steps * h * d for arg, d in zip(args, directions, strict=True)]
        numeric += weight * float(value(*moved)[0]) / h
    assert slope == pytest.approx(numeric, rel=rtol, abs=rtol), (
        f"{graph.name}: along a random direction the vjp rules give {slope}, differences {numeric}"
    )


@pytest.mark.parametrize("name", CASES)
def test_first_derivative_matches_finite_differences(name: str) -> None:
    function, args = CASES[name]
    check_gradient(scalar_of(function), args, 1e-6)


@pytest.mark.sampled(120)
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_second_derivative_matches_finite_differences(name: str) -> None:
    function, args = CASES[name]
    projected = scalar_of(function)

    def gradient_norm(*variables: Any) -> Any:
        gradients = tc.gradients(projected(*variables), list(variables))
        generator = np.random.default_rng(3)
        return sum(tc.sum(g * generator.normal(size=g.shape)) for g in gradients)

    check_gradient(gradient_norm, args, 1e-5)


@pytest.mark.long
def test_second_derivative_graphs_are_well_formed() -> None:
    for graph in graphs_of_all_cases():
        check_graph(graph)


@pytest.mark.long
def test_cases_cover_every_primitive() -> None:
    reached = {operator.kind for graph in graphs_of_all_cases() for operator in graph.operators}
    for name, example in EXAMPLES.items():
        if name in np.__all__:
            graph = tc.build(partial(example.call, np), *example.args)
            reached |= {operator.kind for operator in graph.operators}
    # Optimiser arithmetic has no derivatives: test_updating.py.
    optimizers = {primitive.name for primitive in vars(updating).values()
                  if type(primitive) is tc.Primitive}  # fmt: skip
    # Compressed values have no second derivatives: test_compression.py.
    assert set(PRIMITIVES) - reached == optimizers | {"encode", "decode", "compressed"}
