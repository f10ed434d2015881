"""A beginner's first mistakes: each gets an answer, or a message that says what to do instead."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tracebacks import frames_of
from tinyckpt.core.tracing import Var
from tinyckpt.ops.foreign_names import NAMES, VAR_NAMES

W, X = np.linspace(-1, 1, 6).reshape(3, 2), np.linspace(0, 1, 12).reshape(4, 3)


def loss(w: Any, x: Any) -> Any:
    return tc.sum(tc.tanh(x @ w) ** 2)


def refused(function: Callable[..., Any], *args: Any, match: str) -> str:
    """Call a function that must raise an error of tinyckpt; return its text."""
    with pytest.raises(tc.TinyckptError, match=match) as caught:
        function(*args)
    return str(caught.value)


# Operators called on arrays, outside of a trace ---------------------------------------------------

NOT_EAGER = {"assign", "once"}  # one updates an argument of a graph; the other returns its array


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


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: tc.tril(x, "1"), "^tril: bad operand type"),
        (lambda x: tc.rot90(x, axes=5), "^rot90: 'int' object is not iterable"),
        (lambda x: tc.std(x, ddof="1"), "^var: "),
        (lambda x: tc.hstack(7), "^hstack: 'int' object is not iterable"),
        (lambda x: tc.array_split(x, 10**30), "array_split: .* parts; give 1 to 1,000,000"),
        (lambda x: tc.linspace(0, 1, 10**30), "^linspace: Maximum allowed size exceeded"),
    ],
)
def test_argument_of_an_operator_that_is_not_legal_names_the_operator(
    function: Callable[..., Any], match: str
) -> None:
    refused(function, X, match=match)
    refused(tc.jit(function), X, match=match)


def test_difference_of_huge_order_is_empty() -> None:
    assert tc.diff(X, 10**30).shape == np.diff(X, 5).shape == (4, 0)


def test_function_over_operators_gives_the_same_numbers_eager_and_traced() -> None:
    assert loss(W, X) == tc.jit(loss)(W, X)
    block = tc.checkpoint(lambda x: tc.softmax(tc.name(x, "x") @ W))
    assert np.array_equal(block(X), tc.jit(block)(X))


def test_chunked_and_compressed_functions_compute_on_arrays_what_they_compute_traced() -> None:
    def chunked(x: Any, w: Any) -> Any:
        return tc.compressed(tc.chunked(lambda x, w: tc.tanh(x @ w), 2)(x, w), seed=1)

    def chunked_loss(x: Any, w: Any) -> Any:
        return tc.chunked_cross_entropy(x, w, np.array([0, 1, 1, 0]), 2)

    for function in (chunked, chunked_loss):
        assert np.array_equal(function(X, W), tc.jit(function)(X, W))
    refused(lambda: tc.chunked(tc.softmax, 2, axis=1)(X), match="looks across the chunked axis")


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


# What a traced value refuses ----------------------------------------------------------------------


def test_write_in_place_says_how_to_build_a_new_value() -> None:
    def written(w: Any, x: Any) -> Any:
        h = x @ w
        h[0] = 1.0
        return tc.sum(h)

    refused(tc.value_and_grad(written), W, X, match=r"write in place.*h = tc\.where\(mask, value")

    def added(w: Any, x: Any) -> Any:
        h = x @ w
        h += 1.0  # rebinds the name
        return tc.sum(h)

    assert tc.value_and_grad(added)(W, X)[0] == (X @ W + 1).sum()


def test_iteration_is_refused_with_a_loop_that_works() -> None:
    def rows(x: Any) -> Any:
        return tc.sum(tc.stack([row * 2 for row in x]))

    text = refused(tc.jit(rows), X, match=r"loop over tc\.unstack\(x\), or over range\(len\(x\)\)")
    assert "tc.split" not in text  # its parts have an axis more than the rows of an array
    assert tc.jit(lambda x: rows(tc.unstack(x)))(X) == 2 * X.sum()


def test_copies_of_traced_values_belong_to_the_same_trace() -> None:
    def copied(params: Any, x: Any) -> Any:
        fast = copy.deepcopy(params)
        return loss(copy.copy(fast["w"]) + params["w"], x)

    value, gradient = tc.value_and_grad(copied)({"w": W}, X)
    assert value == loss(2 * W, X)
    assert np.array_equal(gradient["w"], 2 * tc.grad(loss)(2 * W, X))


def test_number_format_of_a_traced_value_is_refused_and_its_text_is_not() -> None:
    texts = []

    def printed(w: Any, x: Any) -> Any:
        found = loss(w, x)
        texts.append(f"{found}")
        return f"{found:.3f}"

    refused(tc.jit(printed), W, X, match=r"the format '\.3f' of sum_1 .*; print the result instead")
    assert texts == ["Var(sum_1: float64[])"]


def test_bool_flag_is_to_be_static() -> None:
    def flagged(w: Any, x: Any, train: Any) -> Any:
        return loss(w, x if train else x / 2)

    refused(tc.value_and_grad(flagged), W, X, True, match=r"static=\('train',\)")
    assert tc.value_and_grad(flagged, static="train")(W, X, True)[0] == loss(W, X)
    # A comparison is no flag.
    text = refused(tc.value_and_grad(lambda w: w if w > 0 else -w), 1.0, match=r"tc\.where")
    assert "static" not in text


def test_methods_of_tensors_say_what_to_write() -> None:
    found: dict[str, str] = {}

    def function(x: Any) -> Any:
        for name in ("backward", "detach", "view", "relu", "clamp_", "relu_", "wrong", "_private"):
            with pytest.raises(AttributeError, match=f"no attribute '{name}'") as caught:
                getattr(x, name)
            found[name] = str(caught.value).partition("; ")[2]
        return x * 1.0

    tc.build(function, X)
    assert found["backward"].startswith("tc.value_and_grad(function)(parameters, ...) returns")
    assert found["detach"] == "tc.stop_gradient(x)"
    assert found["view"] == "x.reshape(shape)"
    assert found["relu"] == found["relu_"] == "use the result of tc.relu"
    assert found["clamp_"] == "values never change: use the result, as of x + y"
    assert found["wrong"] == found["_private"] == ""


# Arguments ----------------------------------------------------------------------------------------


def test_list_of_numbers_is_no_array() -> None:
    match = r"an operand is a list: use np\.array or tc\.stack"
    refused(tc.value_and_grad(lambda w: tc.sum(tc.tanh(w))), [1.0, 2.0], match=match)
    refused(tc.tanh, [1.0, 2.0], match=match)
    assert tc.grad(lambda w: w[0] * w[1])([2.0, 3.0]) == [3.0, 2.0]


def test_integers_are_to_be_floats() -> None:
    ones = np.ones((3, 2), int)
    refused(tc.value_and_grad(loss), ones, X, match="w is int64.*pass it as a float array")
    text = refused(tc.value_and_grad(lambda w: tc.sum(w)), ones, match=r"loss sum_1 is int64\[\]")
    assert text.endswith("gradient: pass floats")  # it has been reduced
    refused(tc.value_and_grad(lambda w: w), ones, match=r"int64\[3,2\].*reduce it with tc\.sum")


def test_spellings_of_jax_are_accepted() -> None:
    both = tc.value_and_grad(loss, wrt=(0, 1))(W, X)[1]
    assert all(map(np.array_equal, tc.value_and_grad(loss, argnums=(0, 1))(W, X)[1], both))
    assert np.array_equal(tc.grad(loss, argnums=1)(W, X), both[1])
    with pytest.raises(tc.OptionError, match="wrt=1 and argnums=0 are the same option"):
        tc.grad(loss, wrt=1, argnums=0)

    def with_more(w: Any, x: Any) -> Any:
        return loss(w, x), x @ w

    (value, more), gradient = tc.value_and_grad(with_more, has_aux=True)(W, X)
    assert value == loss(W, X)
    assert np.array_equal(more, X @ W)
    assert np.array_equal(gradient, both[0])
    gradient, more = tc.grad(with_more, has_aux=True)(W, X)
    assert np.array_equal(more, X @ W)
    assert np.array_equal(gradient, both[0])
    refused(tc.grad(loss, has_aux=True), W, X, match=r"loss must return \(loss, more\)")
    # Within a function, too.
    nested = tc.jit(lambda w, x: tc.grad(with_more, argnums=1, has_aux=True)(w, x)[0])
    assert np.allclose(nested(W, X), both[1], rtol=1e-14)


def test_graph_in_place_of_a_schedule_and_the_like() -> None:
    graph = tc.differentiate(tc.build(loss, W, X))
    for function in (tc.replay, tc.run, tc.compile, tc.explain, tc.ledger):
        refused(function, graph, match=r"expected a Schedule, as tc\.plan\(graph\) makes; got a G")
    schedule = tc.plan(graph)
    for save in (tc.save_trace, tc.save_csv, tc.save_chrome_trace):
        refused(
            save, schedule, "a", match=r"expected a Trace, as tc\.replay\(schedule\) makes; got"
        )
    refused(tc.save_graph, schedule, "a", match=r"expected a Graph, as .*; got a Schedule")
    refused(tc.separators, loss, match=r"expected a Graph, as .*; got a function")
    refused(tc.from_order, loss, [0], match="expected a Graph, as")
    refused(tc.plan, loss, match=r"expected a Graph, as tc\.differentiate\(tc\.build\(.*a function")
    match = r"loss: expected a function of the parameters and the batch, got a ndarray.*step\.init"
    refused(tc.train_step, W, tc.sgd(0.1), match=match)


def test_plan_without_a_backward_pass_says_so() -> None:
    graph = tc.build(loss, W, X)
    for policy in (None, "sqrt_n", "recompute_all"):
        schedule = tc.plan(graph, policy)
        assert schedule.note.startswith("no backward pass")
        assert tc.replay(schedule).summary().endswith("; no backward pass")
    assert "tc.differentiate adds it" in tc.plan(graph).note
    assert "no backward pass" in tc.replay(tc.plan(graph, budget="50 nodes")).summary()
    # A derivative that the function itself takes is one.
    inner = tc.build(lambda w, x: tc.grad(loss)(w, x), W, X)
    for derived in (inner, tc.differentiate(graph), tc.networks.chain(4)):
        assert "no backward" not in tc.replay(tc.plan(derived)).summary()


# Budgets ------------------------------------------------------------------------------------------


def test_budget_without_a_unit_is_bytes() -> None:
    graph = tc.differentiate(tc.build(loss, W, X))
    for budget in (50, "50"):
        with pytest.raises(tc.BudgetError, match="budget 50: bytes or nodes") as caught:
            tc.plan(graph, budget=budget)
        for form in ("'50 nodes'", "'50 %'", "'50 MiB'", "192 B"):
            assert form in str(caught.value)


def test_budget_error_says_what_fills_the_least_peak() -> None:
    def mlp(weights: Any, x: Any) -> Any:
        for w in weights:
            x = tc.tanh(x @ w)
        return tc.sum(x)

    weights = [np.ones((100, 100))] * 10
    graph = tc.differentiate(tc.build(mlp, weights, np.ones((4, 100))))
    match = r"gradients alone are 781\.2 KiB of it: tc\.train_step frees each once it is applied$"
    with pytest.raises(tc.BudgetError, match=match) as caught:
        tc.plan(graph, budget="10 KiB")
    smallest = caught.value.smallest or 0
    assert tc.replay(tc.plan(graph, budget=smallest)).peak_bytes == smallest
    # Few parameters, and long sequences: activations and cotangents.
    graph = tc.differentiate(tc.build(mlp, [np.ones((4, 4))] * 3, np.ones((500, 4))))
    with pytest.raises(
        tc.BudgetError, match=r"the largest of \d+ values there: \S+ \(15.6 KiB\), "
    ):
        tc.plan(graph, budget="10 KiB")


# Names of other libraries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("vmap", "write the batch as an axis"),
        ("nn", "tc.layer_norm"),
        ("no_grad", "tc.jit"),
        ("optim", "tc.adamw"),
        ("array", "np.array(...)"),
        ("scan", "write a Python loop"),
        ("remat", "tc.checkpoint(function)"),
        ("linalg_solve", ""),
    ],
)
def test_missing_name_says_what_to_write(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
        getattr(tc, name)
    hint = str(caught.value).partition("; ")[2]
    assert instead in hint if instead else not hint


def test_no_name_with_a_hint_exists_and_hints_name_what_exists() -> None:
    assert not set(NAMES) & set(tc.__all__)
    assert not [name for name in VAR_NAMES if hasattr(Var, name)]
    for hint in (*NAMES.values(), *VAR_NAMES.values()):
        for name in re.findall(r"\btc\.(\w+)", hint):
            assert hasattr(tc, name)


def test_stop_gradient_passes_values_on_and_no_derivative() -> None:
    def function(w: Any) -> Any:
        held = tc.stop_gradient({"w": w, "pair": (w, w)})
        return tc.sum(w * held["w"] + held["pair"][0])

    value, gradient = tc.value_and_grad(function)(W)
    assert value == (W * W + W).sum()
    assert np.array_equal(gradient, W)
    schedule = tc.plan(tc.differentiate(tc.build(function, W)), "sqrt_n")
    assert np.array_equal(tc.run(schedule, W).gradients, W)


def test_tree_map_takes_trees_of_the_same_nesting() -> None:
    tree = {"w": W, "rest": [1.0, None]}
    doubled = tc.tree_map(lambda a, b: a + b, tree, tree)
    assert np.array_equal(doubled["w"], 2 * W)
    assert doubled["rest"] == [2.0, None]
    assert tc.tree_map(type, (1, [2.0])) == (int, [float])
    # Dicts are matched by key.
    assert tc.tree_map(max, {"a": 1, "b": 5}, {"b": 2, "a": 7}) == {"a": 7, "b": 5}
    refused(tc.tree_map, max, tree, {"w": W}, match="tree 2: expected the keys")


# Tracebacks ---------------------------------------------------------------------------------------


def branches(w: Any, x: Any) -> Any:
    return w if tc.sum(x @ w) > 0 else -w


@pytest.mark.parametrize(
    "call",
    [
        lambda: tc.build(branches, W, X),
        lambda: tc.grad(branches)(W, X),
        lambda: tc.jit(branches)(W, X),
        lambda: step(W, X),
    ],
    ids=["build", "grad", "jit", "train_step"],
)
def test_traceback_shows_the_users_frames_and_one_of_ours(call: Callable[[], Any]) -> None:
    with pytest.raises(tc.GraphError, match=r"tc\.where") as caught:
        call()
    files = [Path(file).name for file in frames_of(caught.value)]
    here = Path(__file__).name
    assert files[-2:] == ["tracebacks.py", here]  # the function that made the mistake comes last
    assert files.count(here) == len(files) - 1
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "call",
    [
        *(tc.replay, tc.run, tc.compile, tc.explain),
        *(lambda _, door=door: door(W) for door in (tc.plan, tc.frontier, tc.certify)),
        *(lambda _, door=door: door(W, budget="1 KiB") for door in (tc.lower_bound,)),
        lambda _: tc.plan_with_host(W, tc.Link(1), budget="1 KiB"),
        lambda _: tc.matmul(W, np.ones((5, 1))),
        lambda _: tc.tanh("x"),
    ],
)
def test_traceback_of_a_wrong_argument_shows_the_call_and_one_frame_of_ours(
    call: Callable[[Any], Any],
) -> None:
    with pytest.raises(tc.TinyckptError) as caught:
        call(tc.build(branches_by_where, W, X))
    files = [Path(file).name for file in frames_of(caught.value)]
    assert set(files[:-1]) == {Path(__file__).name}
    assert files[-1] in ("tracebacks.py", "eager.py")


def test_arguments_of_another_kind_are_named() -> None:
    with pytest.raises(tc.OptionError, match=r"expected one such as tc\.adamw\(1e-3\), got 3"):
        tc.with_master_weights(3)  # type: ignore[arg-type]
    with pytest.raises(tc.OptionError, match=r"expected one such as tc\.adamw\(1e-3\), got 1\.0"):
        tc.clipped(1.0, tc.adamw(1e-3))  # type: ignore[arg-type]
    with pytest.raises(tc.ScheduleError, match=r"expected a Graph, as .* got a ndarray"):
        tc.plan_with_host(W, tc.Link(1), budget="1 KiB")


def branches_by_where(w: Any, x: Any) -> Any:
    return tc.where(tc.sum(x @ w) > 0, w, -w)


def step(w: Any, x: Any) -> Any:
    made = tc.train_step(branches, tc.sgd(0.1))
    return made(made.init(w), x)


def test_whole_traceback_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCKPT_TRACEBACK", "full")
    with pytest.raises(tc.GraphError) as caught:
        tc.grad(branches)(W, X)
    assert {"lru_cache.py", "tracing.py"} < {Path(file).name for file in frames_of(caught.value)}


def test_cause_of_an_error_is_kept() -> None:
    def fails(xp: Any, x: Any) -> Any:
        raise ZeroDivisionError("mine")

    broken = tc.Primitive("broken", fails, lambda x: (x,))
    with pytest.raises(tc.BackendError, match="broken") as caught:
        tc.jit(lambda x: tc.apply(broken, x))(X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
