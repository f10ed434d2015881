"""Calls: static arguments, keywords, jit without gradients, nested derivatives."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.ops.cases import CASES, scalar_of
from tinyckpt.documents.verifier import check_graph

P, X = {"w": np.linspace(-1, 1, 9).reshape(3, 3)}, np.linspace(0, 1, 6).reshape(2, 3)


def loss(p: Any, x: Any, train: Any = False, *, scale: Any) -> Any:
    h = tc.tanh(x @ p["w"])
    if train:
        h = tc.dropout(h, 0.5, seed=1)
    return tc.sum(h**2) * scale


def test_static_arguments_and_keywords() -> None:
    step = tc.value_and_grad(loss, "sqrt_n", static=("train",))
    dropped, whole = (tc.value_and_grad(partial(loss, train=t, scale=2.0)) for t in (True, False))
    for given in ({"train": True, "scale": 2.0}, {"scale": 2.0, "train": True, "x": X}):
        args = (P,) if "x" in given else (P, X)
        value, gradients = step(*args, **given)
        assert value == dropped(P, X)[0]
        assert np.array_equal(gradients["w"], dropped(P, X)[1]["w"])
    assert step(P, X, True, scale=2.0)[0] == dropped(P, X)[0]
    assert step(P, X, scale=2.0)[0] == step(P, X, False, scale=2.0)[0] == whole(P, X)[0]
    assert tc.grad(loss, static="train")(P, X, train=True, scale=2.0)["w"].shape == (3, 3)


@pytest.mark.parametrize("make", [tc.build, tc.grad, tc.value_and_grad, tc.jit, tc.check_gradient])
def test_value_given_for_a_function_is_refused(make: Any) -> None:
    with pytest.raises(tc.GraphError, match="expected a function, got a float; give the function"):
        make(3.0) if make in (tc.build, tc.check_gradient) else make(3.0)(X)


def test_program_cache_distinguishes_static_values() -> None:
    met = []

    def function(x: Any, mode: Any) -> Any:
        met.append(mode)
        return tc.sum(x * 2.0)

    step = tc.value_and_grad(function, static="mode")
    modes = [1, 1.0, True, 0.0, -0.0, (1, 2), (1, True), "a", None, np.float32, float("nan")]
    for _ in range(2):
        for mode in modes:
            assert step(X, mode)[0] == step(X, mode=mode)[0]
    assert [repr(mode) for mode in met[: len(modes)]] == [repr(mode) for mode in modes]
    assert len(met) == len(modes)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: tc.grad(loss, static="trian")(P, X, scale=1.0), r"no parameter 'trian' \(did you"),
        (lambda: tc.grad(loss, static="train")(P, X, [1], scale=1.0), "hashable, and a list is no"),
        (lambda: tc.grad(loss, static="train")(P, X, X, scale=1.0), "an array cannot be static"),
        (lambda: tc.grad(loss, static="p")(P, X, scale=1.0), "p: a static .* a dict is not"),
        (lambda: tc.grad(loss, static="train", wrt=2)(P, X, 1, scale=1.0), "argument 2 is static"),
        (lambda: tc.grad(loss, wrt=4)(P, X, scale=1.0), "wrt=4: loss has 3 positional arguments"),
        (lambda: tc.grad(loss, static=5)(P, X, scale=1.0), "static=5: expected names"),
        (lambda: tc.grad(loss, static=(1,))(P, X, scale=1.0), r"static=\(1,\): expected names"),
        (lambda: tc.jit(lambda x, y: x)(X), r"<lambda>\(x, y\): missing a required argument: 'y'"),
        (lambda: tc.build(lambda x: x, X, X), r"<lambda>\(x\): too many positional arguments"),
        (lambda: tc.jit(lambda x: x)(tc.Spec(3)), "a tc.Spec, which has no numbers"),
        (lambda: tc.grad(loss)(P, x=X), r"loss\(p, x, train=False.*missing .* argument: 'scale'"),
        (lambda: tc.grad(loss)(P, X, scale=1.0, z=1), "unexpected keyword argument 'z'"),
        (lambda: tc.grad(loss)(P, X, "yes", scale=1.0), r"train: expected .*str.*static=\("),
        (lambda: tc.build(loss, P, X, "yes", scale=1.0), r"train: expected .*str.*static=\("),
        (lambda: tc.jit(loss)({"w": object()}, X, scale=1.0), r"p\['w'\]: expected .* a object"),
    ],
)
def test_invalid_calls_raise_graph_error(call: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        call()


def test_failing_kernel_in_program_names_its_operator() -> None:
    def classify(p: Any, labels: Any) -> Any:
        return tc.mean(tc.cross_entropy(tc.tanh(p), labels))

    def dropped(p: Any, seed: Any) -> Any:
        return tc.sum(tc.dropout(p, 0.5, seed))

    for function, data, match in (
        (classify, np.array([0, 3, 1]), r"cross_entropy_1 of .* labels must be 0 to 2, got 0 to 3"),
        (dropped, -1, r"seeded_dropout_1 of .* must be 0 or more, got -1"),
    ):
        for called in (tc.value_and_grad(function, "sqrt_n"), tc.jit(function)):
            with pytest.raises(tc.BackendError, match=rf"step \d+: {match}"):
                called(P["w"], data)


def test_wrt_counts_static_arguments_too() -> None:
    def function(mode: str, x: Any, y: Any) -> Any:
        return tc.sum(x * y)

    assert tc.grad(function, wrt=1, static="mode")("a", 2.0, 3.0) == 3.0
    assert tc.grad(function, wrt=(2, 1), static="mode")("a", 2.0, y=3.0) == (2.0, 3.0)


def test_graph_arguments_follow_parameter_order() -> None:
    graph = tc.build(loss, P, scale=tc.Spec(()), x=X, train=True, static="train")
    assert [graph.data[i].name for i in (0, 1, 2)] == ["p['w']", "x", "scale"]
    result = tc.run(tc.plan(tc.differentiate(graph)), P, X, 2.0)
    assert result.value == tc.value_and_grad(partial(loss, train=True, scale=2.0))(P, X)[0]


def test_jit_accepts_any_nesting_of_arrays() -> None:
    def model(params: Any, x: Any, depth: int = 2) -> Any:
        h, all_h = x, []
        for _ in range(depth):
            h = tc.tanh(h @ params["w"])
            all_h.append(h)
        return {"all": all_h, "last": (h, None), "mean": tc.mean(h), "x": x}

    for policy in (None, "recompute_all"):
        predict = tc.jit(model, policy, static="depth")
        found = predict(P, X, depth=3)
        expected = X
        for h in found["all"]:
            expected = np.tanh(expected @ P["w"])
            np.testing.assert_allclose(h, expected, rtol=1e-15)
        assert found["last"][1] is None
        assert np.array_equal(found["last"][0], found["all"][2])
        assert len(predict(P, x=X)["all"]) == 2
        found["x"][...] = 7.0  # a copy: what is returned is the caller's
        assert X.max() == 1.0


def test_function_is_traced_once_per_shape() -> None:
    calls = []
    square = tc.jit(lambda x: calls.append(x) or x * x)
    assert [float(square(v)) for v in (2.0, 3.0)] == [4.0, 9.0]
    assert square(np.ones(2)).tolist() == [1.0, 1.0]
    assert len(calls) == 2


def test_nested_grad_computes_higher_derivatives() -> None:
    def cube(x: Any) -> Any:
        return x**3

    assert float(tc.grad(tc.grad(cube))(2.0)) == 12.0
    assert float(tc.grad(tc.grad(tc.grad(cube)))(2.0)) == 6.0
    assert float(tc.jit(tc.grad(tc.jit(cube)), "recompute_all")(3.0)) == 27.0
    assert tc.value_and_grad(tc.grad(cube))(2.0) == (12.0, 12.0)
    x, v = np.array([0.3, 0.5, 0.7]), np.array([1.0, -1.0, 2.0])

    def along(x: Any) -> Any:
        return tc.sum(tc.grad(lambda z: tc.sum(tc.sin(z) * z))(x) * v)

    np.testing.assert_allclose(tc.grad(along)(x), (2 * np.cos(x) - x * np.sin(x)) * v)
    with pytest.raises(tc.GraphError, match="only a floating-point scalar has a gradient"):
        tc.grad(tc.grad(lambda x: tc.sum(cube(x))))(x)


def test_captured_values_are_constant_in_nested_derivatives() -> None:
    # d/dz (z x) at z = x is x, whose derivative is 1: and not 2, as that of x x would be.
    x = np.array([2.0, 5.0])
    twice = tc.grad(lambda x: tc.sum(tc.grad(lambda z: tc.sum(z * x))(x)))
    assert twice(x).tolist() == [1.0, 1.0]
    kept: list[Any] = []

    def leaking(x: Any) -> Any:
        def inner(z: Any) -> Any:
            kept.append(tc.name(z, "inner"))
            return tc.sum(z * z)

        return tc.sum(tc.grad(inner)(x) * kept[-1])  # 2 x x, whose derivative is 4 x

    assert tc.grad(leaking)(x).tolist() == [8.0, 20.0]
    graph = tc.build(leaking, x)
    check_graph(graph)
    assert [node.label for node in graph.data if node.label] == ["inner"]


def test_failing_nested_derivative_leaves_no_stand_ins() -> None:
    def catching(x: Any) -> Any:
        kept: list[Any] = []

        def inner(z: Any) -> Any:
            kept.extend([z, z * 2.0])
            return kept  # no loss

        with pytest.raises(tc.GraphError, match="returns 2 values in place of the loss"):
            tc.grad(inner)(x)
        return tc.sum(kept[0] * kept[1])

    assert tc.grad(catching)(np.ones(3)).tolist() == [4.0, 4.0, 4.0]


def test_nested_value_and_grad_returns_auxiliary_results() -> None:
    def function(p: Any, x: Any) -> Any:
        def inner(p: Any, x: Any) -> Any:
            return tc.sum((x @ p["w"]) ** 2), (x.T, p)

        (value, (view, same)), gradients = tc.value_and_grad(inner, wrt=(0, 1))(p, x)
        return value, view, same, gradients

    graph = tc.build(function, P, X)
    check_graph(graph)
    assert sum(node.is_source for node in graph.data) == 3  # p, x and the 1.0 of the seed
    value, view, same, (for_p, for_x) = tc.jit(function)(P, X)
    expected = tc.value_and_grad(lambda p, x: tc.sum((x @ p["w"]) ** 2), wrt=(0, 1))(P, X)
    assert value == expected[0]
    assert np.array_equal(view, X.T)
    assert np.array_equal(same["w"], P["w"])
    assert np.array_equal(for_p["w"], expected[1][0]["w"])
    assert np.array_equal(for_x, expected[1][1])


@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "recompute_all", "greedy"])
def test_gradient_penalty_is_equal_under_every_policy(policy: str) -> None:
    def penalised(p: Any, x: Any) -> Any:
        value, slope = tc.value_and_grad(lambda x: tc.sum(tc.tanh(x @ p["w"]) ** 2))(x)
        return value + tc.sum(slope**2)

    value, gradient = tc.value_and_grad(penalised, policy)(P, X)
    known, same = tc.value_and_grad(penalised)(P, X)
    assert value == known
    assert np.array_equal(gradient["w"], same["w"])


@pytest.mark.sampled(80)
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_nested_grad_equals_gradients_for_every_operator(name: str) -> None:
    function, args = CASES[name]
    projected, every = scalar_of(function), tuple(range(len(args)))

    def nested(*variables: Any) -> Any:
        value, slopes = tc.value_and_grad(projected, wrt=every)(*variables)
        return value + sum(tc.sum(slope**2) for slope in slopes)

    def flat(*variables: Any) -> Any:
        value = projected(*variables)
        return value + sum(tc.sum(slope**2) for slope in tc.gradients(value, list(variables)))

    check_graph(tc.differentiate(tc.build(nested, *args), every))
    value, slopes = tc.value_and_grad(nested, "sqrt_n", wrt=every)(*args)
    known, expected = tc.value_and_grad(flat, wrt=every)(*args)
    assert value == known
    for slope, other in zip(slopes, expected, strict=True):
        assert np.array_equal(slope, other)
