"""Shared adjoints: one backward operator gives several cotangents, and each rule finds it again."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.ops.shared_adjoints import apply_shared


def both(xp: Any, x: Any, y: Any, g: Any, factor: float) -> Any:
    return factor * y * g, factor * x * g


def rule(position: int) -> Any:
    return lambda ct, ins, outs, factor: apply_shared(BOTH, *ins, ct[0], factor=factor)[position]


BOTH = tc.Primitive("both", both, lambda x, y, g, factor: (x, y))
SCALED = tc.Primitive(
    "scaled", lambda xp, x, y, factor: factor * x * y, lambda x, y, factor: (x,),
    vjp=(rule(0), rule(1)),
)  # fmt: skip


def scaled(x: Any, y: Any, factor: float = 2.0) -> Any:
    return tc.apply(SCALED, x, y, factor=factor)


def shared(loss: Any, *wrt: int) -> int:
    """Check the gradients' values, and count the operators that compute them."""
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 4.0])
    graph = tc.differentiate(tc.build(loss, x, y), wrt)
    separate = [tc.grad(plain(loss), wrt=position)(x, y) for position in wrt]
    for found, expected in zip(tc.run(tc.plan(graph), x, y).gradients, separate, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    return sum(operator.kind == "both" for operator in graph.operators)


def plain(loss: Any) -> Any:
    """Return the loss with an ordinary product in the place of the primitive."""
    return lambda x, y: loss(x, y, lambda x, y, factor=2.0: factor * x * y)


@pytest.mark.parametrize("wrt", [(0,), (1,), (0, 1)])
def test_shared_adjoint_computes_one_or_both_gradients(wrt: tuple[int, ...]) -> None:
    assert shared(lambda x, y, f=scaled: tc.sum(f(x, y)), *wrt) == 1


def test_repeated_operand_shares_adjoint() -> None:
    assert shared(lambda x, y, f=scaled: tc.sum(f(x, x) * y), 0, 1) == 1


def test_operators_with_different_operands_or_attributes_do_not_share_adjoint() -> None:
    assert shared(lambda x, y, f=scaled: tc.sum(f(x, y) * f(y, x)), 0, 1) == 2
    assert shared(lambda x, y, f=scaled: tc.sum(f(x, y) + f(x, y, 3.0)), 0, 1) == 2
    # The same operands and cotangent, of two operators: each has an adjoint of its own.
    assert shared(lambda x, y, f=scaled: tc.sum(f(x, y) + f(x, y)), 0, 1) == 2


def test_shared_adjoint_belongs_to_its_forward_operator() -> None:
    graph = tc.build(lambda x, y: tc.sum(scaled(x, y) + scaled(x, y)), np.ones(2), np.ones(2))
    operators = tc.differentiate(graph, (0, 1)).operators
    adjoints = [o.adjoint_of for o in operators if o.kind == "both"]
    assert [operators[i].name for i in adjoints if i is not None] == ["scaled_2", "scaled_1"]


@pytest.mark.parametrize("convolution", [tc.conv2d, tc.conv_transpose2d])
def test_convolution_adjoints_share_one_contiguous_copy(convolution: Any) -> None:
    generator = np.random.default_rng(0)
    x, across = generator.normal(size=(2, 2, 3, 4, 4))
    w = generator.normal(size=(3, 3, 1, 1))

    def loss(x: Any, w: Any) -> Any:
        # The cotangent of a part of what is joined is a view with gaps.
        joined = tc.concatenate([across, convolution(x, w)], axis=1)
        return tc.sum(joined**3)

    graph = tc.differentiate(tc.build(loss, x, w), (0, 1))
    assert [operator.kind for operator in graph.operators].count("contiguous") == 1
