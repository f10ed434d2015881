"""Tracing and differentiation: legal functions work, others raise an error with the cure."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

X = tc.Spec((2, 3))


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    h = x
    for layer in params:
        h = tc.tanh(h @ layer["w"] + layer["b"])
    return tc.mean((h - y) ** 2)


PARAMS = [{"w": tc.Spec((3, 3)), "b": tc.Spec(3)}]


def test_printed_graph_reads_as_program() -> None:
    graph = tc.differentiate(tc.build(mlp_loss, PARAMS, X, X))
    assert str(graph) == (
        "mlp_loss: 13 operators, 19 data nodes\n"
        "  matmul_1 = matmul(x, params[0]['w'])   float64[2,3]\n"
        "  add_1 = add(matmul_1, params[0]['b'])   float64[2,3]\n"
        "  tanh_1 = tanh(add_1)   float64[2,3]\n"
        "  subtract_1 = subtract(tanh_1, y)   float64[2,3]\n"
        "  power_1 = power(subtract_1)   float64[2,3]\n"
        "  sum_1 = sum(power_1)   float64[]\n"
        "  divide_1 = divide(sum_1, 6.0)   float64[]\n"
        "backward:\n"
        "  divide_1_vjp = divide(1.0, 6.0)   float64[]\n"
        "  sum_1_vjp = sum_vjp(divide_1_vjp)   float64[2,3]\n"
        "  power_1_vjp = power_vjp(subtract_1, sum_1_vjp)   float64[2,3]\n"
        "  tanh_1_vjp = tanh_vjp(tanh_1, power_1_vjp)   float64[2,3]\n"
        "  add_1_vjp = unbroadcast(tanh_1_vjp)   float64[3]\n"
        "  matmul_1_vjp = matmul(x, tanh_1_vjp)   float64[3,3]"
    )


def test_graph_roles_and_consumers() -> None:
    graph = tc.differentiate(tc.build(mlp_loss, PARAMS, X, X))
    by_name = {node.name: node for node in graph.data}
    assert by_name["params[0]['w']"].role == "parameter"
    assert by_name["y"].role == "input"
    assert by_name["6.0"].role == "constant"
    assert by_name["tanh_1"].role == "activation"
    assert by_name["tanh_1_vjp"].role == "cotangent"
    readers = graph.consumers[by_name["tanh_1"].id]
    assert [graph.operators[i].name for i in readers] == ["subtract_1", "tanh_1_vjp"]
    assert graph.operators[graph.forward_count].name == "divide_1_vjp"
    assert [graph.data[i].name for i in graph.outputs] == [
        "divide_1",
        "matmul_1_vjp",
        "add_1_vjp",
    ]


def test_scopes_nest_and_names_label() -> None:
    def function(x: Any) -> Any:
        with tc.scope("outer"), tc.scope("inner"):
            x = tc.name(tc.tanh(x), "hidden")
        return tc.sum(x)

    graph = tc.differentiate(tc.build(function, X))
    assert [operator.scope for operator in graph.operators] == [
        "outer/inner",
        "",
        "",
        "outer/inner",
    ]
    assert [node.label for node in graph.data if node.label] == ["hidden"]


def test_dead_code_is_eliminated_and_unused_arguments_stay() -> None:
    def function(x: Any, unused: Any) -> Any:
        tc.exp(x)
        return tc.sum(x)

    graph = tc.build(function, X, X)
    assert [operator.kind for operator in graph.operators] == ["sum"]
    assert [node.name for node in graph.data] == ["x", "unused", "sum_1"]


Pair = namedtuple("Pair", "left right")  # what users have


def test_arguments_and_results_keep_their_nesting() -> None:
    def function(p: Any, x: Any) -> Any:
        loss = tc.sum(p.left * x["a"][0]) + tc.sum(p.right)
        return loss, {"h": [p.left * 2.0], "none": None}

    p, x = Pair(np.ones(3), np.full(2, 2.0)), {"a": (np.arange(3.0),)}
    schedule = tc.plan(tc.differentiate(tc.build(function, p, x)), "recompute_all")
    for value, gradients in (
        tc.compile(schedule)(p, x),
        (lambda result: (result.value, result.gradients))(tc.run(schedule, p, x)),
    ):
        assert float(value[0]) == 7.0
        assert value[1]["h"][0].tolist() == [2.0, 2.0, 2.0]
        assert value[1]["none"] is None
        assert isinstance(gradients, Pair)
        assert gradients.left.tolist() == [0.0, 1.0, 2.0]
        assert gradients.right.tolist() == [1.0, 1.0]


def test_gradient_of_unused_parameter_is_zero() -> None:
    gradients = tc.grad(lambda p, x: tc.sum(x * p["used"]))(
        {"used": np.ones(2), "unused": np.ones((2, 3), "float32")}, np.ones(2)
    )
    assert gradients["unused"].dtype == np.float32
    assert np.array_equal(gradients["unused"], np.zeros((2, 3)))


def test_gradient_of_identity_loss_is_one() -> None:
    value, gradient = tc.value_and_grad(lambda x: x)(np.array(3.0))
    assert (float(value), float(gradient)) == (3.0, 1.0)


def test_gradients_of_intermediate_values() -> None:
    def function(x: Any) -> Any:
        h = tc.exp(x)
        loss = tc.sum(h * h)
        return tc.gradients(loss, {"h": h, "x": x})

    x = np.array([0.5, 1.0])
    found = tc.run(tc.plan(tc.build(function, x)), x).value
    np.testing.assert_allclose(found["h"], 2 * np.exp(x))
    np.testing.assert_allclose(found["x"], 2 * np.exp(2 * x))


def test_third_derivative_of_sin_under_every_policy() -> None:
    def function(x: Any) -> Any:
        first = tc.gradients(tc.sum(tc.sin(x)), x)
        second = tc.gradients(tc.sum(first), x)
        return tc.sum(second)

    x = np.array([0.3, 1.1])
    graph = tc.differentiate(tc.build(function, x))
    for policy in ("store_all", "recompute_all", "sqrt_n"):
        result = tc.run(tc.plan(graph, policy), x)
        np.testing.assert_allclose(result.gradients, -np.cos(x))


def test_python_numbers_are_weakly_typed() -> None:
    x = np.ones(3, "float32")
    value, gradient = tc.value_and_grad(lambda x: tc.mean(2 * x + 1.5) / 3)(x)
    assert value.dtype == gradient.dtype == np.float32


def test_numpy_scalars_keep_dtype_and_python_numbers_take_arrays() -> None:
    x = np.ones(2, "float32")
    graph = tc.build(lambda x: [x * np.float64(2), x * 2.0], x)
    masked = tc.build(lambda c: [tc.where(c, np.zeros(2, "float32"), 1.5)], tc.Spec(2, "bool"))
    found = [g.data[i].spec.dtype.name for g in (graph, masked) for i in g.outputs]
    assert found == ["float64", "float32", "float32"]


def test_numpy_array_as_left_operand() -> None:
    weights = np.array([[1.0, 2.0]])
    x = np.array([3.0, 4.0])
    value = tc.run(tc.plan(tc.build(lambda x: weights @ x + np.ones(1) * 2.0 * x, x)), x).value
    assert value.tolist() == [17.0, 19.0]


def check(function: Any, *args: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.differentiate(tc.build(function, *args))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x if x > 0 else -x, r"truth value of greater_1.*use tc\.where"),
        (lambda x: float(x.sum()), r"float\(\) of sum_1"),
        (lambda x: [row for row in x], r"iteration of x.*tc\.unstack"),  # noqa: C416
        (lambda x: np.asarray(x), "conversion to an array of x"),
        (lambda x: np.modf(x), r"np\.modf: use tc\.trunc"),
        (lambda x: np.append(x, x), r"np\.append: use tc\.concatenate"),
        (lambda x: x.__setitem__(0, 1.0), "a write in place of x"),
        (lambda x: tc.sum(x @ x), r"matmul: float64\[2,3\] @ float64\[2,3\]: the last extent"),
        (lambda x: tc.sum(x + np.ones(2)), r"add: shapes .* do not broadcast"),
        (
            lambda x: tc.sigmoid(x.astype("int64")),
            r"sigmoid: needs floating-point arrays, got int64",
        ),
        (lambda x: x.astype("complex128"), "unsupported dtype complex128; expected one of float16"),
        (lambda x: x.reshape(4, 2), r"reshape: float64\[2,3\] has 6 elements"),
        (lambda x: x.sum(axis=2), "axis 2 is out of range for 2 axes"),
        (lambda x: x[5], "out of bounds"),
        (lambda x: x["a"], "expected integers, slices, None, Ellipsis or arrays of integers"),
        (lambda x: tc.where(x, x, x), "the condition must be bool"),
        (lambda x: tc.concatenate([x, x[0]]), "must agree on every axis"),
        (lambda x: tc.split(x, 2, axis=1), "3 elements do not divide into 2"),
        (lambda x: tc.dropout(x, 1.5, seed=0), "rate 1.5 must be at least 0"),
        (lambda x: tc.cross_entropy(x, x[:, 0]), "labels must be integers"),
        (lambda x: tc.tanh(x), "the loss tanh_1 is float64.*only a floating-point scalar"),
        (lambda x: None, "returned nothing"),
        (lambda x: "text", "returned a str"),
        (lambda x: tc.sum(x * [1.0]), "an operand is a list"),
    ],
)
def test_illegal_function_raises_graph_error(function: Any, match: str) -> None:
    check(function, X, match=match)


@pytest.mark.parametrize("name", [5, None, b"x"])
def test_names_must_be_strings(name: Any) -> None:
    def scoped(x: Any) -> Any:
        with tc.scope(name):
            return tc.sum(x)

    check(lambda x: tc.sum(tc.name(x, name)), X, match="name: expected a string, got a")
    check(scoped, X, match="scope: expected a string, got a")
    with pytest.raises(tc.GraphError, match="graph_name: expected a string, got a int"):
        tc.build(tc.sum, X, graph_name=5)


def test_integers_have_no_gradient() -> None:
    check(lambda x: tc.sum(x * 1.0), tc.Spec(3, "int64"), match="x is int64.*only floating-point")


def test_derivatives_outside_of_build_are_refused() -> None:
    with pytest.raises(tc.GraphError, match="gradients was called outside of a function that"):
        tc.gradients(np.ones(()), np.ones(()))


def test_scopes_names_and_marks_do_nothing_on_arrays() -> None:
    @tc.checkpoint
    def block(x: Any) -> Any:
        with tc.scope("block"):
            return tc.name(np.tanh(x), "hidden")

    x = np.linspace(-1, 1, 5)
    assert np.array_equal(block(x), np.tanh(x))
    graph = tc.build(block, x)
    assert graph.operators[0].scope == "block"
    assert np.array_equal(tc.run(tc.plan(graph), x).value, np.tanh(x))


def test_vars_of_another_build_are_refused() -> None:
    leaked: list[Any] = []
    tc.build(lambda x: leaked.append(x) or tc.sum(x), X)
    check(lambda x: tc.sum(x + leaked[0]), X, match="belongs to another build")


def test_missing_vjp_error_names_operator() -> None:
    silent = tc.Primitive("silent", lambda xp, x: x * 2, lambda x: (x,))
    check(
        lambda x: tc.sum(tc.apply(silent, x)),
        X,
        match=r"silent_1: silent has no vjp rule for its argument 0 \(x: float64\[2,3\]\)",
    )


@pytest.mark.parametrize("specs", [X, None, (), ((2, 3),), (X, "float64"), [X]])
def test_infer_rule_without_tuple_of_specs_is_named(specs: Any) -> None:
    bare = tc.Primitive("bare", lambda xp, x: x, lambda x: specs)
    with pytest.raises(tc.GraphError, match="bare: its infer rule must return a tuple"):
        tc.build(lambda x: tc.apply(bare, x), X)


@pytest.mark.parametrize(
    ("field", "wrong", "match"),
    [
        ("name", 7, "name=7; expected a string"),
        ("forward", None, "forward=None; expected a function"),
        ("vjp", 7, "vjp=7; expected a function per input"),
        ("vjp", (7,), r"vjp=\(7,\); expected a function per input"),
        ("alias", 1.0, "alias=1.0; expected an integer or None"),
    ],
)
def test_primitive_with_field_of_wrong_type_is_refused(field: str, wrong: Any, match: str) -> None:
    row: dict[str, Any] = {"name": "p", "forward": lambda xp, x: x, "infer": lambda x: (x,)}
    with pytest.raises(tc.GraphError, match=match):
        tc.Primitive(**{**row, field: wrong})


def test_alias_of_missing_input_is_refused() -> None:
    view = tc.Primitive("view", lambda xp, x: x, lambda x: (x,), alias=7)
    check(lambda x: tc.apply(view, x), X, match="view: alias=7; its inputs are numbered 0 to 0")


def test_apply_refuses_several_outputs() -> None:
    both = tc.Primitive("both", lambda xp, x: (x, x), lambda x: (x, x))
    check(lambda x: tc.apply(both, x), X, match="both has 2 outputs: use tc.apply_all")


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (lambda: 0, "takes 0 positional arguments"),
        (lambda ct, ins, outs: ct[9], "list index out of range"),
        (lambda ct, ins, outs: ct, "an operand is a list"),
    ],
)
def test_vjp_rule_that_fails_is_named(rule: Any, match: str) -> None:
    bad = tc.Primitive("bad", lambda xp, x: x, lambda x: (x,), vjp=(rule,))
    check(lambda x: tc.sum(tc.apply(bad, x)), X, match=f"bad_1: vjp of argument 0: .*{match}")


def test_vjp_of_wrong_shape_is_refused() -> None:
    wrong = tc.Primitive("wrong", lambda xp, x: x, lambda x: (x,), vjp=(lambda ct, i, o: ct[0][0],))
    check(lambda x: tc.sum(tc.apply(wrong, x)), X, match=r"vjp rule for argument 0 returned")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (((2, 3),), "x: expected an array"),
        (({"a": np.ones((2, 3))},), "x: expected an array, got a dict"),
        ((np.ones((3, 2)),), r"x: expected float64\[2,3\].*got float64\[3,2\]"),
        ((np.ones((2, 3), int),), r"got int64\[2,3\].*\.astype"),
        ((np.ones((2, 3)), 1.0), r"takes 1 arguments, \(x\), got 2"),
        ((X,), "x: a tc.Spec has no numbers"),
        (("text",), "x: expected float64"),
        ((object(),), r"expected an array of float64\[2,3\], got a object"),
    ],
)
def test_run_refuses_mismatched_arguments(arguments: Any, match: str) -> None:
    schedule = tc.plan(tc.differentiate(tc.build(lambda x: tc.sum(x * x), X)))
    for runner in (tc.run, lambda s, *args: tc.compile(s)(*args)):
        with pytest.raises(tc.GraphError, match=match):
            runner(schedule, *arguments)


def test_missing_dict_key_is_named() -> None:
    schedule = tc.plan(tc.build(lambda p: p["a"] + p["b"], {"a": X, "b": X}))
    with pytest.raises(tc.GraphError, match=r"p: expected the keys \['a', 'b'\], got \['a'\]"):
        tc.run(schedule, {"a": np.ones((2, 3))})


def test_nan_error_names_its_origin() -> None:
    x = np.array([1.0, -1.0])
    schedule = tc.plan(tc.build(lambda x: tc.sum(tc.log(x) * 2.0), x))
    with (
        pytest.warns(RuntimeWarning, match="invalid value"),
        pytest.raises(
            tc.BackendError, match=r"NaN, first from step 0: log_1, a log of x; look for the log"
        ),
    ):
        tc.run(schedule, x)
    x[1] = np.nan
    with pytest.raises(tc.BackendError, match="log_1, a log of x; x holds NaN in 1 of 2 elements"):
        tc.run(schedule, x)
    constant = tc.plan(tc.build(lambda x: (x, float("nan")), X))
    with pytest.raises(tc.BackendError, match="nan holds NaN in 1 of 1 elements"):
        tc.run(constant, np.ones((2, 3)))
    assert np.isnan(tc.run(schedule, x, check_nan=False).value)


def test_infinity_is_not_reported_as_nan() -> None:
    x = np.array([np.inf, -np.inf])
    assert tc.run(tc.plan(tc.build(lambda x: x * 2.0, x)), x).value.tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("name", ["mlp:0x4", "mlp:2x0", "residual:0x4", "branching:0x3", "chain:0"])
def test_networks_refuse_sizes_below_one(name: str) -> None:
    with pytest.raises(tc.GraphError, match="at least 1"):
        tc.networks.network_from_text(name)


@pytest.mark.parametrize(
    "name", ["mlp:3", "chain:x", "chain", "mlp:3x4x5", "chain:-1", "chain:1.5"]
)
def test_network_error_shows_its_form(name: str) -> None:
    with pytest.raises(tc.GraphError, match="does not have the form"):
        tc.networks.network_from_text(name)
