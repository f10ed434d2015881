"""The API end to end: value_and_grad, grad and jit; results; real data; the demo."""

from inspect import isfunction, signature
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.cli.main import main
from tinyckpt.networks.digits import STEPS, accuracy, digits_network, load_digits, train


def loss(params: Any, x: Any) -> Any:
    return tc.sum(tc.tanh(x @ params["w"]) ** 2)


def test_annotations_of_every_public_function_can_be_evaluated() -> None:
    functions = [each for name in tc.__all__ if isfunction(each := getattr(tc, name))]
    assert tc.matmul in functions
    for each in functions:
        assert get_type_hints(each).keys() == {*signature(each).parameters, "return"}


def test_value_and_grad_traces_once_per_shape() -> None:
    calls = []

    def counted(params: Any, x: Any) -> Any:
        calls.append(x.shape)
        return loss(params, x)

    step = tc.value_and_grad(counted, policy="sqrt_n")
    params = {"w": np.eye(3)}
    for rows in (2, 2, 4, 2, 4):
        value, gradients = step(params, np.ones((rows, 3)))
        assert value.shape == ()
        assert gradients["w"].shape == (3, 3)
    assert calls == [(2, 3), (4, 3)]


def test_plain_numbers_are_accepted_as_arguments() -> None:
    value, gradient = tc.value_and_grad(lambda x, y: x * y + x)(3.0, 4.0)
    assert (float(value), float(gradient)) == (15.0, 5.0)


def test_value_and_grad_of_several_arguments() -> None:
    _, (first, second) = tc.value_and_grad(lambda x, y: x * y, wrt=(0, 1))(3.0, 4.0)
    assert (float(first), float(second)) == (4.0, 3.0)
    with pytest.raises(tc.GraphError, match=r"wrt=2: .* has 2 positional arguments"):
        tc.value_and_grad(lambda x, y: x * y, wrt=2)(3.0, 4.0)


def test_dicts_are_matched_by_key() -> None:
    a, b = np.full(3, 1.0), np.full(3, 10.0)
    schedule = tc.plan(
        tc.differentiate(tc.build(lambda p: tc.sum(p["a"] * 2 + p["b"] * 5), {"a": a, "b": b}))
    )
    assert float(tc.run(schedule, {"b": b, "a": a}).value) == 156.0
    for runner in (tc.run, lambda s, *args: tc.compile(s)(*args)):
        for wrong in ([{"q": a, "r": b}], [[a, b]], [a, b]):
            with pytest.raises(tc.GraphError):
                runner(schedule, *wrong)


def test_programs_are_cached_by_argument_structure() -> None:
    step = tc.value_and_grad(lambda p, m=None: tc.sum(p[0] * p[1]))
    x = np.ones(2)
    assert isinstance(step([x, x])[1], list)
    assert isinstance(step((x, x))[1], tuple)
    assert isinstance(step((x, x), None)[1], tuple)
    assert float(tc.value_and_grad(lambda x: tc.sum(x[None] * 2))(3.0)[0]) == 6.0


def test_results_are_writable() -> None:
    def both(p: Any) -> Any:
        return tc.sum((p["a"] + p["b"]) ** 2), p["a"]

    p = {"a": np.ones(3), "b": np.ones(3)}
    ran = tc.run(tc.plan(tc.differentiate(tc.build(both, p))), p)
    for value, gradients in (tc.value_and_grad(both)(p), (ran.value, ran.gradients)):
        gradients["a"] *= 0.1
        value[1][:] = 7.0
        assert gradients["b"].tolist() == [4.0, 4.0, 4.0]
        assert p["a"].tolist() == [1.0, 1.0, 1.0]
    summed = tc.grad(tc.sum)(np.ones(3))
    summed *= 0.1
    # The gradient of a loss that is its own parameter is a constant of the graph.
    step = tc.value_and_grad(lambda x: x)
    schedule = tc.plan(tc.differentiate(tc.build(lambda x: x, 3.0)))
    for gradient in (lambda: step(3.0)[1], lambda: tc.run(schedule, 3.0).gradients):
        gradient()[...] = 7.0
        assert float(gradient()) == 1.0


def test_fortran_order_arguments_give_bitwise_equal_results() -> None:
    generator = np.random.default_rng(0)
    p, x = (np.asfortranarray(generator.normal(size=(50, 70)).astype("f4")) for _ in range(2))

    def function(p: Any, x: Any) -> Any:
        return tc.sum(tc.sum(p * x, axis=0) ** 2) + tc.sum(p.reshape(-1))

    schedule = tc.plan(tc.differentiate(tc.build(function, p, x)))
    expected = tc.run(schedule, p, x)
    assert expected.trace == tc.replay(schedule)
    for gradient in (tc.compile(schedule)(p, x)[1], tc.grad(function)(p, x)):
        assert np.array_equal(gradient, expected.gradients)
        assert gradient.flags.c_contiguous


def test_captured_arrays_are_copied_and_counted_once() -> None:
    captured = np.ones(3)
    graph = tc.build(lambda x: x * captured + captured, tc.Spec(3))
    captured *= 5
    assert tc.run(tc.plan(graph), np.ones(3)).value.tolist() == [2.0, 2.0, 2.0]
    assert graph.source_bytes == 48


def test_mixed_float_dtypes_have_gradients() -> None:
    x = np.ones((3, 4), "float32")
    for function in (
        lambda x: tc.sum(x / np.sqrt(64)),
        lambda x: tc.sum(x * np.ones(4)),
        lambda x: tc.sum(tc.where(x > 0, x, 0.0)),
        lambda x: tc.mean(x.astype("float16") * x),
    ):
        assert tc.grad(function)(x).dtype == np.float32
    assert tc.value_and_grad(lambda x: tc.sum(tc.where(x > 0, x, 0.0)))(x)[0].dtype == np.float32


def test_gradients_of_powers_at_zero() -> None:
    def third(x: Any) -> Any:
        second = tc.gradients(tc.sum(tc.gradients(tc.sum(x**2), x)), x)
        return tc.sum(second)

    zeros = np.zeros(3)
    assert tc.grad(lambda x: tc.sum(x**0))(zeros).tolist() == [0.0, 0.0, 0.0]
    assert tc.grad(third)(zeros).tolist() == [0.0, 0.0, 0.0]
    assert tc.grad(lambda x: tc.sum(x ** np.array(2.0)))(-np.ones(2)).tolist() == [-2.0, -2.0]


def test_labels_out_of_range_are_refused() -> None:
    logits = np.zeros((2, 3))
    for labels in ([0, -1], [0, 3]):
        schedule = tc.plan(tc.build(tc.cross_entropy, logits, np.array(labels)))
        with pytest.raises(tc.BackendError, match=r"cross_entropy_1.*labels must be 0 to 2, got"):
            tc.run(schedule, logits, np.array(labels))


def test_gradients_taken_inside_a_function_are_forward() -> None:
    def penalised(w: Any, x: Any) -> Any:
        plain = tc.sum(tc.tanh(x @ w))
        return plain + tc.sum(tc.gradients(plain, w) ** 2)

    built = tc.build(penalised, tc.Spec((3, 3)), tc.Spec((2, 3)))
    assert built.forward_count == len(built.operators)
    graph = tc.differentiate(built)
    assert graph.forward_count == len(built.operators)
    roles = {node.role for node in graph.data[: len(built.data)] if node.producer is not None}
    assert roles == {"activation"}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tc.sum(x, axis=0),
        lambda x: x.reshape(np.int64(6)),
        lambda x: tc.split(x, np.int64(2), 1),
        lambda x: tc.split(x, np.array([1]), 1),
        lambda x: tc.full(3, 0.0) + tc.broadcast_to(x[0, 0], 3),
        lambda x: tc.transpose(x[0], 0),
        lambda x: x @ np.ones((2, np.int64(1))),
    ],
)
def test_numpy_idioms_trace(function: Any) -> None:
    assert tc.run(tc.plan(tc.build(function, np.ones((3, 2)))), np.ones((3, 2))).value is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tc.concatenate(x),
        lambda x: tc.stack(x),
        lambda x: x[0:1.5],
        lambda x: x.reshape("a"),
        lambda x: tc.softmax(x[:, :0]),
        lambda x: tc.dropout(x, 0.5, None),
        lambda x: tc.dropout(x, "a", 1),
        lambda x: x * 10**400,
        lambda x: x.astype("int8") + 10**30,
        lambda x: x.astype(","),
        lambda x: x.astype(">f8"),
        lambda x: tc.full((2, "a"), 0.0),
    ],
)
def test_impossible_functions_raise_graph_error(function: Any) -> None:
    with pytest.raises(tc.GraphError):
        tc.build(function, np.ones((3, 2)))


def kernel_with_default(xp: Any, x: Any, scale: float = 2.0) -> Any:
    return x * scale


class Callable:
    def __call__(self, xp: Any, x: Any, weights: Any) -> Any:
        return x * weights


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        (kernel_with_default, {}),
        (kernel_with_default, {"scale": np.float32("inf")}),
        (Callable(), {"weights": np.arange(3.0)}),
        (lambda xp, x: x + 1.0, {}),
    ],
)
def test_user_kernels_compile(kernel: Any, attrs: Any) -> None:
    mine = tc.Primitive("mine", kernel, lambda x, **attrs: (x,))
    x = np.ones(3)
    schedule = tc.plan(tc.build(lambda x: tc.apply(mine, x, **attrs), x))
    assert np.array_equal(tc.compile(schedule)(x)[0], tc.run(schedule, x).value)


def test_names_that_clash_with_python_or_program_compile() -> None:
    def function(map: Any, np: Any, hasattr: Any, host_tanh_1: Any) -> Any:
        losses, _ = tc.apply_all(tc.PRIMITIVES["cross_entropy"], map, np)
        return tc.sum(tc.tanh(losses)) + tc.sum(hasattr) + tc.sum(host_tanh_1)

    arguments = (np.ones((2, 3)), np.array([0, 1]), np.ones(2), np.ones(2))
    graph = tc.differentiate(tc.build(function, *arguments))
    steps = list(tc.plan(graph).steps)
    tanh = next(node.id for node in graph.data if node.name == "tanh_1")
    made = steps.index(tc.Compute(graph.data[tanh].producer))
    moved = [*steps[: made + 1], tc.Offload(tanh), tc.Fetch(tanh), *steps[made + 1 :]]
    schedule = tc.Schedule(graph, tuple(moved), "moving")
    value, gradients = tc.compile(schedule)(*arguments)
    result = tc.run(schedule, *arguments)
    assert result.trace == tc.replay(schedule)
    assert float(value) == float(result.value)
    assert np.array_equal(gradients, result.gradients)


def test_digits_equal_published_data() -> None:
    digits = load_digits()
    labels = np.concatenate([digits.labels, digits.test_labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    images = np.concatenate([digits.images, digits.test_images])
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert (len(digits.images), len(digits.test_images)) == (1400, 397)


@pytest.mark.nightly  # the demo trains as this does, compares all losses, and is run below
def test_training_is_bitwise_equal_under_every_policy() -> None:
    losses = {}
    for policy in ("store_all", "sqrt_n", "recompute_all"):
        steps = list(train(policy))
        losses[policy] = [value for value, _ in steps]
        assert accuracy(steps[-1][1]) > 0.95
    assert len(losses["store_all"]) == STEPS
    assert losses["store_all"] == losses["sqrt_n"] == losses["recompute_all"]


@pytest.mark.long
def test_demo_prints_paths_of_pictures(demo: Path) -> None:
    out = (demo / "demo.txt").read_text(encoding="utf-8")
    for name in ("chain16.gif", "chain16.html", "chain16.svg", "digits.gif", "resnet50.html"):
        path = demo / "new" / "folder" / name
        assert str(path) in out
        assert path.stat().st_size > 10_000
    assert "losses are equal to the last bit" in out


def test_demo_refuses_impossible_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "-o", str(tmp_path / "file" / "folder")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_digits_network_matches_demo() -> None:
    graph = digits_network().graph()
    traces = [tc.replay(tc.plan(graph, p)) for p in ("store_all", "sqrt_n", "recompute_all")]
    assert [trace.evaluations for trace in traces] == [52, 61, 136]
    peaks = [trace.peak_bytes for trace in traces]
    assert peaks == sorted(peaks, reverse=True)


def test_float16_overflow_is_named() -> None:
    def function(x: Any) -> Any:
        return tc.sum(tc.exp(x * 2.0))

    x = np.full(3, 10, np.float16)
    schedule = tc.plan(tc.build(function, x))
    with (
        np.errstate(over="ignore"),
        pytest.raises(
            tc.BackendError, match="float16 overflow, first from step 1: exp_1, a exp of multiply_1"
        ),
    ):
        tc.run(schedule, x)
    with np.errstate(over="ignore"):
        assert np.isinf(tc.run(schedule, x, check_nan=False).value)


OF_SCHEDULES = (
    tc.replay, tc.certify, tc.ledger, tc.run, tc.compile, tc.explain,
    lambda schedule: tc.save_schedule(schedule, "schedule.json"),
    lambda schedule: tc.timed(schedule, tc.Link(1e9)),
)  # fmt: skip
OF_GRAPHS = (tc.plan, tc.frontier, tc.saved_values, lambda graph: tc.lower_bound(graph, 0.5))
CHAIN = tc.networks.chain(3)


@pytest.mark.parametrize(
    ("functions", "legal", "kind"),
    [(OF_SCHEDULES, tc.plan(CHAIN), "Schedule"), (OF_GRAPHS, CHAIN, "Graph")],
    ids=["of schedules", "of graphs"],
)
def test_object_of_another_kind_is_refused_by_its_name(
    functions: Any, legal: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schedule = tc.plan(CHAIN)
    others = [CHAIN, schedule, tc.replay(schedule), tc.ledger(schedule), len, 3, None]
    for function, other in product(functions, others):
        if type(other) is not type(legal):
            expected = f"expected a {kind}, as .* makes; got a {type(other).__name__}"
            with pytest.raises(tc.ScheduleError, match=expected):
                function(other)
    assert list(tmp_path.iterdir()) == []
