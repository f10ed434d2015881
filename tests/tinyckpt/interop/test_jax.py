"""JAX interop: traced graphs, planned steps, and advice on which names to save."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require

require("jax")

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from tinyckpt.interop import jax as tcj

DEPTH, WIDTH, BATCH = 4, 16, 64


def loss(params: Any, x: Any, labels: Any) -> Any:
    for index, (w, v) in enumerate(params["layers"]):
        with jax.named_scope(f"layer{index}"):
            hidden = checkpoint_name(x @ w, "hidden")
            x = checkpoint_name(x + jax.nn.gelu(hidden) @ v, "out")
    logits = jax.nn.log_softmax(x @ params["head"])
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


def example(seed: int = 0) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) / 4, "float32")

    layers = [(array(WIDTH, 4 * WIDTH), array(4 * WIDTH, WIDTH)) for _ in range(DEPTH)]
    params = {"head": array(WIDTH, 10), "layers": layers}
    return params, array(BATCH, WIDTH), jnp.asarray(draw.integers(10, size=BATCH))


def shapes(args: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)


def equal(these: Any, those: Any) -> bool:
    pairs = zip(jax.tree.leaves(these), jax.tree.leaves(those), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_trace_needs_shapes_only() -> None:
    graph = tcj.trace(loss, *shapes(example())).graph
    assert str(graph) == str(tcj.trace(loss, *example()).graph)
    leaves = jax.tree_util.tree_leaves_with_path(example()[0])
    assert list(graph.gradients) == ["args[0]" + jax.tree_util.keystr(path) for path, _ in leaves]
    for path, leaf in leaves:
        name = "args[0]" + jax.tree_util.keystr(path)
        assert graph.data[graph.gradients[name]].nbytes == leaf.nbytes
    assert graph.data[graph.results].spec == tc.Spec((), "float32")


def test_traced_graph_has_names_scopes_and_roles_of_function() -> None:
    graph = tcj.trace(loss, *example()).graph
    forward = graph.operators[: graph.forward_count]
    labels = [graph.data[data].label for operator in forward for data in operator.outputs]
    assert [label for label in labels if label] == ["hidden", "out"] * DEPTH
    scopes = dict.fromkeys(operator.scope for operator in forward if operator.scope)
    assert list(scopes) == [f"layer{index}" for index in range(DEPTH)]
    roles = {node.name: node.role for node in graph.data if node.is_source}
    assert (roles["args[0]['head']"], roles["args[1]"]) == ("parameter", "input")


def test_flops_of_products_equal_closed_form() -> None:
    graph = tcj.trace(loss, *example()).graph
    forward = graph.operators[: graph.forward_count]
    products = sum(operator.flops for operator in forward if operator.kind == "dot_general")
    assert products == 2 * BATCH * (DEPTH * 2 * WIDTH * 4 * WIDTH + WIDTH * 10)
    image, kernel = np.ones((2, 6, 6, 4), "float32"), np.ones((3, 3, 2, 8), "float32")

    def grouped(kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2,
        ).sum()  # fmt: skip

    operators = tcj.trace(grouped, kernel).graph.operators
    assert operators[0].flops == 2 * (2 * 4 * 4 * 8) * (3 * 3 * 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("share", [0.9, 0.7, 0.5])
def test_planned_step_is_bitwise_equal_to_store_all(share: float) -> None:
    args = example(1)
    traced = tcj.trace(loss, *args)
    stored = tcj.step(tc.plan(traced.graph, "store_all"), traced)
    schedule = tc.plan(traced.graph, budget=share, time_limit=1)
    trace = tc.replay(schedule)
    assert trace.recomputations > 0
    planned = tcj.step(schedule, traced)
    assert equal(planned(*args), stored(*args))
    value, gradients = jax.jit(planned)(*args)
    expected, expected_gradients = jax.value_and_grad(loss)(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    jax.tree.map(
        lambda own, other: np.testing.assert_allclose(own, other, rtol=2e-5, atol=1e-7),
        gradients,
        expected_gradients,
    )


def test_barriers_keep_recomputations_in_compiled_program() -> None:
    args = example()
    traced = tcj.trace(loss, *args)
    schedule = tc.plan(traced.graph, "retain", keep="out")
    text = jax.jit(tcj.step(schedule, traced)).lower(*args).as_text()
    again = tc.replay(schedule).recomputations
    assert text.count("optimization_barrier") == again > 0


def test_advice_is_optimal_subset_of_names_and_prints_code() -> None:
    args = example()
    traced = tcj.trace(loss, *args)
    costs = tc.cost.given(traced.graph)
    points = {}
    for names in ((), ("hidden",), ("out",), ("hidden", "out")):
        schedule = tc.plan(traced.graph, "retain", keep=names)
        points[names] = tc.cost.cost_of(schedule, costs), tc.replay(schedule).peak_bytes
    stored = tc.cost.cost_of(tc.plan(traced.graph, "store_all"), costs)
    for budget in sorted(peak for _, peak in points.values()):
        fitting = [point for point in points.items() if point[1][1] <= budget]
        names, (cost, peak) = min(fitting, key=lambda point: point[1])
        advice = tcj.advise(loss, *args, budget=budget)
        assert (advice.names, advice.peak, advice.cost) == (names, peak, cost / stored)
        assert f"save_only_these_names({', '.join(map(repr, names))})" in str(advice)
        written = {"jax": jax, "loss": loss}
        exec(advice.code(), written)
        wrapped = jax.value_and_grad(written["loss"])
        np.testing.assert_array_equal(
            wrapped(*args)[0], jax.value_and_grad(advice.apply(loss))(*args)[0]
        )
        np.testing.assert_allclose(wrapped(*args)[0], loss(*args), rtol=1e-6)
    smallest = min(peak for _, peak in points.values())
    with pytest.raises(tc.BudgetError) as caught:
        tcj.advise(loss, *args, budget=smallest - 1)
    assert caught.value.smallest == smallest


def test_many_names_are_eliminated_greedily() -> None:
    def deep(w: Any, x: Any) -> Any:
        for index in range(12):
            x = checkpoint_name(jnp.tanh(x @ w), f"h{index}")
        return (x**2).sum()

    args = (np.ones((8, 8), "float32"), np.ones((32, 8), "float32"))
    full = tcj.advise(deep, *args, budget=1.0)
    half = tcj.advise(deep, *args, budget=0.7)
    assert len(half.names) < len(full.names) == 12
    assert set(half.names) | set(half.others) == {f"h{index}" for index in range(12)}
    assert half.peak < full.peak
    assert tcj.advise(deep, *args, budget=0.7, names=["h3", "h7"]).names == ("h3", "h7")


def test_very_many_names_keep_few_where_few_suffice() -> None:
    def deep(w: Any, x: Any) -> Any:
        for index in range(60):
            x = checkpoint_name(jnp.tanh(x @ w), f"h{index}")
        return (x**2).sum()

    args = (np.ones((8, 8), "float32"), np.ones((64, 8), "float32"))
    advice = tcj.advise(deep, *args, budget=0.4, time_limit=2)
    assert advice.peak <= 0.4 * tc.replay(tc.plan(advice.traced.graph)).peak_bytes
    with pytest.raises(tc.BudgetError, match=r"among h0, h1, .*, h7, … that was evaluated has"):
        tcj.advise(deep, *args, budget="1 KiB", time_limit=0)


def test_memory_reports_xla_analysis() -> None:
    args = example()
    memory = tcj.memory(jax.value_and_grad(loss), *shapes(args))
    results = 4 + sum(leaf.nbytes for leaf in jax.tree.leaves(args[0]))
    assert results <= memory.output <= results + 1024  # and a table of where they are
    assert memory.peak == memory.temporary + memory.output
    assert str(memory).endswith("of results")


def looped(w: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x), w).sum()


def printing(w: Any) -> Any:
    jax.debug.print("{}", w)
    return w.sum()


def branching(w: Any) -> Any:
    return w.sum() if w[0] > 0 else -w.sum()


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (looped, (np.ones(3, "float32"),), "write loops and branches in Python"),
        (printing, (np.ones(3, "float32"),), "effect"),
        (branching, (np.ones(3, "float32"),), "does not depend on the values"),
        (jnp.tanh, (np.ones(3, "float32"),), r"returns float32\[3\]; expected one real scalar"),
        (lambda w: (w.sum(), w), (np.ones(3, "float32"),), "expected one real scalar"),
        (lambda w: w.sum(), (np.ones(3, "int32"),), "expected one real scalar"),
        (lambda w: w, (np.float32(1),), "depends on no diff"),
        (lambda w: jnp.float32(2), (np.ones(3, "float32"),), "depends on no diff"),
        (lambda w, x: (w @ x).sum(), (np.ones(3, "float32"),), "cannot trace"),
        (lambda: jnp.float32(2), (), "give its arguments"),
    ],
)
def test_trace_refuses_untraceable_function_with_reason(
    function: Any, args: Any, said: str
) -> None:
    with pytest.raises(tc.GraphError, match=said):
        tcj.trace(function, *args)


def offloaded(schedule: tc.Schedule) -> tc.Schedule:
    """Return a schedule that moves what its second operator makes to the host and back."""
    steps = list(schedule.steps)
    value = schedule.graph.operators[1].outputs[0]
    at = steps.index(tc.Compute(1)) + 1
    steps[at:at] = [tc.Offload(value), tc.Fetch(value)]
    return tc.Schedule(schedule.graph, tuple(steps), "mine")


def test_step_accepts_schedule_of_equal_graph() -> None:
    args = example()
    traced, again = tcj.trace(loss, *args), tcj.trace(loss, *args)
    planned = tcj.step(tc.plan(again.graph, "sqrt_n"), traced)
    assert equal(planned(*args), tcj.step(tc.plan(traced.graph), traced)(*args))


def test_step_refuses_mismatched_schedule_and_arguments() -> None:
    args = example()
    traced, other = tcj.trace(loss, *args), tcj.trace(lambda w: jnp.sin(w).sum(), jnp.ones(3))
    planned = tcj.step(tc.plan(traced.graph), traced)
    with pytest.raises(tc.GraphError, match="args\\[1\\] is float32\\[2,16\\]"):
        planned(args[0], jnp.ones((2, 16)), args[2])
    with pytest.raises(tc.GraphError, match="nested as"):
        planned(args[0], args[1])
    with pytest.raises(tc.GraphError, match=r"args\[1\] is a str; traced as float32"):
        planned(args[0], "abc", args[2])
    with pytest.raises(tc.ScheduleError, match="another graph than the traced one, loss"):
        tcj.step(tc.plan(other.graph), traced)
    for given in (3, "abc", traced):
        with pytest.raises(tc.ScheduleError, match=r"expected a schedule of loss, such as tc.plan"):
            tcj.step(given, traced)  # type: ignore[arg-type]
        with pytest.raises(tc.ScheduleError, match="expected the result of trace, got a"):
            tcj.step(tc.plan(traced.graph), traced.graph)  # type: ignore[arg-type]
    moved = offloaded(tc.plan(traced.graph))
    with pytest.raises(tc.ScheduleError, match=r"offload .*; programs of JAX only compute"):
        tcj.step(moved, traced)
    with pytest.raises(tc.OptionError, match="it names hidden, out, not 'hiden'"):
        tcj.advise(loss, *args, budget=0.5, names=["hiden"])
    for names in (3, "hidden"):
        with pytest.raises(tc.OptionError, match="give a list of names"):
            tcj.advise(loss, *args, budget=0.5, names=names)  # type: ignore[arg-type]
    with pytest.raises(tc.BudgetError, match="expected bytes"):
        tcj.advise(loss, *args, budget="30 nodes")
    with pytest.raises(tc.OptionError, match="checkpoint_name"):
        tcj.advise(lambda w: w.sum(), jnp.ones(3), budget=0.5)
