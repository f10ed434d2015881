"""check_gradient accepts correct derivatives and names wrong rules."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.ops.cases import CASES

X, W = np.random.default_rng(0).normal(size=(2, 3, 3))


def scaled(*rules: Any, name: str = "scaled") -> tc.Primitive:
    """Return y = x^2 s with the vjp rules given."""
    return tc.Primitive(name, lambda xp, x, s: x * x * s, infer=lambda x, s: (x,), vjp=rules)


def of_x(cotangents: Any, inputs: Any, outputs: Any) -> Any:
    return cotangents[0] * 2 * inputs[0] * inputs[1]


def of_s(cotangents: Any, inputs: Any, outputs: Any) -> Any:
    return cotangents[0] * inputs[0] * inputs[0]


def layered(primitive: tc.Primitive) -> Any:
    def layer(params: Any, x: Any) -> Any:
        h = tc.tanh(x @ params["w"])
        return tc.sum(tc.sin(tc.apply(primitive, h, params["s"])) ** 2)

    return layer


ARGUMENTS = ({"w": W, "s": np.abs(X) + 0.5}, X)


@pytest.mark.parametrize(
    "name",
    [
        "matmul", "gelu", "softmax", "cross_entropy", "dropout by data", "prod with three zeros",
        "index rows", "where", "max axis", "split", "tanh 0-d", "attention, causal",
        "fused attention", "conv2d with all options", "batch_norm variance",
    ],
)  # fmt: skip
def test_correct_gradients_are_accepted(name: str) -> None:
    function, args = CASES[name]
    tc.check_gradient(function, *args, order=3 if name == "gelu" else 2)


def test_integer_arguments_and_nested_results_are_accepted() -> None:
    def function(batch: Any, labels: Any, number: Any) -> Any:
        loss = tc.cross_entropy(batch["x"], labels)
        return {"loss": loss * number, "right": tc.argmax(batch["x"], 1) == labels, "x": [loss**2]}

    tc.check_gradient(function, {"x": X}, np.array([0, 2, 1]), 3.0)


def test_correct_rule_among_others_is_accepted() -> None:
    tc.check_gradient(layered(scaled(of_x, of_s)), *ARGUMENTS)


@pytest.mark.parametrize(
    ("rules", "position"),
    [
        ((lambda c, i, o: c[0], of_s), "0 (tanh_1)"),  # dL/dy, which is of the same shape
        ((lambda c, i, o: c[0] * i[0] * i[1], of_s), "0 (tanh_1)"),
        ((lambda c, i, o: -of_x(c, i, o), of_s), "0 (tanh_1)"),
        ((lambda c, i, o: of_x(c, i, o) * (1 + 1e-5), of_s), "0 (tanh_1)"),
        ((lambda c, i, o: None, of_s), "0 (tanh_1)"),
        ((of_x, lambda c, i, o: c[0] * i[0]), "1 (params['s'])"),
    ],
)
def test_wrong_vjp_rule_is_named(rules: Any, position: str) -> None:
    with pytest.raises(tc.GraphError) as caught:
        tc.check_gradient(layered(scaled(*rules)), *ARGUMENTS, order=1)
    start = f"scaled_1: the vjp rule of scaled for argument {position} gives a slope of "
    assert str(caught.value).startswith(start)
    assert "where differences of its values give" in str(caught.value)


def test_wrong_second_derivative_is_named() -> None:
    # The slope as an operator of its own, whose adjoint forgets the 2.
    slope = tc.Primitive(
        "slope", lambda xp, ct, x: 2 * ct * x, infer=lambda ct, x: (x,),
        vjp=(lambda c, i, o: 2 * c[0] * i[1], lambda c, i, o: c[0] * i[0]),
    )  # fmt: skip
    square = tc.Primitive(
        "square", lambda xp, x: x * x, infer=lambda x: (x,),
        vjp=(lambda c, i, o: tc.apply(slope, c[0], i[0]),),
    )  # fmt: skip
    tc.check_gradient(lambda x: tc.apply(square, x), X, order=1)
    with pytest.raises(
        tc.GraphError,
        match=r"^derivative 2: square_1_vjp: the vjp rule of slope for argument 1 \(x\) gives",
    ):
        tc.check_gradient(lambda x: tc.apply(square, x), X)


def test_unread_outputs_need_no_rule() -> None:
    # Of its two outputs the second has no derivative, and says so.
    both = tc.Primitive(
        "both", lambda xp, x: (x * x, x * 3), infer=lambda x: (x, x), vjp=(refusing,)
    )
    with pytest.raises(tc.GraphError, match=r"both_1: the vjp rule of both for argument 0 \(sin_1"):
        tc.check_gradient(lambda x: tc.apply_all(both, tc.sin(x))[0], X)


def refusing(cotangents: Any, inputs: Any, outputs: Any) -> Any:
    if cotangents[1] is not None:
        raise tc.GraphError("no derivative")
    return cotangents[0] * inputs[0]


def test_error_near_a_kink_mentions_kinks() -> None:
    with pytest.raises(tc.GraphError, match=r"of relu for argument 0 .* near a kink, such as relu"):
        tc.check_gradient(tc.relu, np.zeros(3))


def test_any_memory_layout_is_accepted() -> None:
    params = {key: array.T for key, array in ARGUMENTS[0].items()}
    tc.check_gradient(layered(scaled(of_x, of_s)), params, X.T)
    with pytest.raises(tc.GraphError, match="the vjp rule of scaled for argument 0"):
        tc.check_gradient(layered(scaled(of_s, of_s)), params, np.broadcast_to(1.0, (3, 3)))


def test_uncheckable_functions_are_refused() -> None:
    with pytest.raises(tc.GraphError, match=r"params\['w'\] is float32, not float64"):
        tc.check_gradient(lambda params: params["w"], {"w": np.ones(2, np.float32)})
    with pytest.raises(tc.GraphError, match="labels has no argument of float64 to vary"):
        tc.check_gradient(labels, np.arange(3))
    with pytest.raises(tc.GraphError, match="returns no floating-point array"):
        tc.check_gradient(lambda x: x > 0, X)
    for order in (0, 11, 10**30, 1.5):
        with pytest.raises(tc.OptionError, match="it must be an integer from 1 to 10"):
            tc.check_gradient(tc.tanh, X, order=order)  # type: ignore[arg-type]
    with pytest.raises(tc.GraphError, match="no vjp rule for its argument 1"):
        tc.check_gradient(layered(scaled(of_x)), *ARGUMENTS)
    with pytest.raises(tc.GraphError, match="its values are not finite there; use other arg"):
        tc.check_gradient(tc.tanh, X * np.nan)


def labels(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (lambda xp, x: (x * 2).astype("float32"), r"float32\[3\]"),
        (lambda xp, x: (x * 2)[:, None], r"float64\[3,1\]"),
        (lambda xp, x: (x * 2).sum(), r"float64\[\]"),
    ],
)
def test_kernel_that_contradicts_its_infer_rule_is_named(kernel: Any, found: str) -> None:
    twice = tc.Primitive("twice", kernel, lambda x: (x,), vjp=(lambda ct, *_: ct[0] * 2,))
    match = rf"twice_1: the kernel of twice returns {found}, where its infer rule says float64\[3\]"
    with pytest.raises(tc.GraphError, match=match):
        tc.check_gradient(lambda x: tc.sum(tc.apply(twice, x)), np.array([1.0, 2.0, 3.0]))
