"""JAX interop: traced graphs, and advice on what to save, as XLA measures it."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require

require("jax")

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import jaxpr_as_fun

from tinyckpt.base.deadline import Clock
from tinyckpt.interop import jax as tcj
from tinyckpt.interop.jax import advising
from tinyckpt.interop.jax.checkpointing import checkpointed, levels
from tinyckpt.interop.jax.costs import flops_of_jaxpr

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


def mlp(draw: np.random.Generator) -> tuple[Any, Any, Any]:
    widths = [int(width) for width in draw.integers(4, 24, int(draw.integers(3, 6)))]
    acts = [getattr(jax.nn, draw.choice(["relu", "tanh", "gelu", "silu"])) for _ in widths]
    layers = [array(draw, *pair) for pair in zip([8, *widths], widths, strict=False)]

    def function(layers: Any, x: Any) -> Any:
        for w, act in zip(layers, acts, strict=True):
            x = act(x @ w)
        return jnp.mean(x**2)

    return function, layers, array(draw, int(draw.integers(8, 64)), 8)


def cnn(draw: np.random.Generator) -> tuple[Any, Any, Any]:
    kernels = [array(draw, 3, 3, 4, 4) for _ in range(int(draw.integers(2, 4)))]

    def function(kernels: Any, x: Any) -> Any:
        for w in kernels:
            numbers = ("NHWC", "HWIO", "NHWC")
            inner = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
            x = x + jax.nn.relu(inner - inner.mean((0, 1, 2)))
        return jnp.mean(x**2)

    return function, kernels, array(draw, 2, int(draw.integers(5, 9)), 6, 4)


def recurrent(draw: np.random.Generator) -> tuple[Any, Any, Any]:
    def function(weights: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ weights[0] + h @ weights[1]) * jax.nn.sigmoid(h @ weights[2])
            return h, jnp.mean(h**2)

        return jnp.mean(jax.lax.scan(step, jnp.ones((16, 8)), xs)[1])

    weights = [array(draw, 8, 8) for _ in range(3)]
    return function, weights, array(draw, int(draw.integers(20, 40)), 16, 8)


def transformer(draw: np.random.Generator) -> tuple[Any, Any, Any]:
    def function(weights: Any, x: Any) -> Any:
        inner = x - x.mean(-1, keepdims=True)
        q, k, v = (jnp.tanh(inner @ weights[name]) for name in "qkv")
        x = x + jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v
        return jnp.mean((x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]) ** 2)

    weights = {name: array(draw, 8, 8) for name in "qkv"}
    weights |= {"up": array(draw, 8, 32), "down": array(draw, 32, 8)}
    return function, weights, array(draw, 2, int(draw.integers(8, 20)), 8)


def array(draw: np.random.Generator, *shape: int) -> Any:
    return (draw.standard_normal(shape) / 2).astype("float32")


FAMILIES = [mlp, cnn, recurrent, transformer]
# XLA compiles a perceptron in the shortest time: the others with make nightly.
PERCEPTRON = [
    pytest.param(family, marks=() if family is mlp else pytest.mark.nightly) for family in FAMILIES
]


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "SHARES", (0.5,))  # each share may mean two more compilations


def peaks_of(function: Any, args: Any, *options: Any) -> list[int]:
    lowered = jax.jit(jax.value_and_grad(function)).lower(*args)
    return [advising.compiled_memory(lowered, given).peak for given in options]


def flops_of(function: Any, args: Any) -> int:
    return flops_of_jaxpr(jax.make_jaxpr(jax.value_and_grad(function))(*args))


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("family", PERCEPTRON, ids=lambda family: family.__name__)
def test_advice_is_what_xla_says_and_no_policy_of_jax_is_better(family: Any, seed: int) -> None:
    function, *args = family(np.random.default_rng(seed))
    policies = []
    for rule in advising.RULES:
        wrapped = jax.checkpoint(function, policy=getattr(jax.checkpoint_policies, rule))
        for peak in peaks_of(wrapped, args, advising.FAST, advising.CPU_OPTIONS | advising.FAST):
            policies.append((peak, flops_of(wrapped, args)))
    peak, flops = min(policies)
    advice = tcj.advise(function, *args, budget=peak, time_limit=1e6)
    assert advice.plain == tcj.memory(jax.value_and_grad(function), *args)
    assert advice.peak <= peak
    assert advice.cost * flops_of(function, args) <= flops * (1 + 1e-9)
    (own,) = peaks_of(advice.apply(function), args, dict(advice.compiler_options))
    assert advice.peak == own


def every_result(function: Any, args: Any) -> dict[tuple[int, ...], str]:
    return {
        (*path, at): found.primitive.name
        for path, flat in levels(jax.make_jaxpr(function)(*args))
        for at, found in enumerate(flat.jaxpr.eqns)
        if found.primitive.name != "scan"
    }


def some_of(results: Any) -> Any:
    draw = np.random.default_rng(3)
    return {place: kind for place, kind in results.items() if draw.random() < 0.5}


def by_operator(function: Any, args: Any) -> Any:
    """Value and gradients of the traced program, equation by equation; a loop is unrolled."""
    with jax.disable_jit():
        closed = jax.make_jaxpr(jax.value_and_grad(function))(*args)
        return jaxpr_as_fun(closed)(*jax.tree.leaves(args))


@pytest.mark.parametrize("family", PERCEPTRON, ids=lambda family: family.__name__)
def test_gradients_are_equal_to_the_last_bit_operator_by_operator(family: Any) -> None:
    function, *args = family(np.random.default_rng(2))
    args[1] = args[1][:3]  # of a loop three iterations
    expected, every = by_operator(function, args), every_result(function, args)
    # Saved results that part three readers of a value, in gelu, change the order of a sum.
    for saved in ({}, every) if family is transformer else ({}, some_of(every), every):
        assert equal(by_operator(checkpointed(function, saved), args), expected)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_compiled_gradients_are_equal_to_rounding_of_float64(family: Any) -> None:
    function, *args = family(np.random.default_rng(2))
    with jax.enable_x64(True):
        args = jax.tree.map(lambda leaf: leaf.astype("float64"), args)
        expected = jax.tree.leaves(jax.jit(jax.value_and_grad(function))(*args))
        every = every_result(function, args)
        for saved, options in (({}, advising.CPU_OPTIONS), (some_of(every), {})):
            gradient = jax.value_and_grad(checkpointed(function, saved))
            found = jax.tree.leaves(jax.jit(gradient, compiler_options=options)(*args))
            for own, other in zip(found, expected, strict=True):
                assert own.dtype == "float64"
                assert np.abs(own - other).max() <= 1e-12 * np.abs(other).max()


@pytest.mark.parametrize("family", [mlp, recurrent], ids=lambda family: family.__name__)
def test_saved_results_are_not_recomputed(family: Any) -> None:
    function, *args = family(np.random.default_rng(2))
    every, stored = every_result(function, args), flops_of(function, args)
    costs = [
        flops_of(checkpointed(function, saved), args) / stored
        for saved in (every, some_of(every), {})
    ]
    assert costs[0] <= 1.1  # of custom_jvp functions only the result is saved
    assert costs == sorted(costs)
    assert costs[0] < costs[2]


@pytest.mark.nightly
@pytest.mark.usefixtures("few_candidates")
def test_scan_is_checkpointed_per_iteration_as_no_policy_of_jax_does() -> None:
    function, *args = recurrent(np.random.default_rng(4))
    plain = tcj.memory(jax.value_and_grad(function), *args).peak
    wrapped = jax.checkpoint(function)  # saves nothing
    assert min(peaks_of(wrapped, args, advising.FAST)) > plain // 2
    advice = tcj.advise(function, *args, budget=0.5, time_limit=1e6)
    assert advice.peak <= plain // 2
    assert 1 < advice.cost < 1.5
    assert "function = advice.apply(function)\n" in str(advice)
    assert "step = jax.jit(jax.value_and_grad(function)" in str(advice)


def test_policies_of_jax_with_names_are_candidates_and_print_code() -> None:
    args = shapes(example())
    unchanged = tcj.advise(loss, *args, budget=1.0)
    assert unchanged.code() == "step = jax.jit(jax.value_and_grad(loss))"
    policies = {}
    for title, policy, wrap in islice(advising.candidates(loss, args, Clock(0)), 1, 8):
        advice = replace(unchanged, title=title, policy=policy, apply=wrap)
        written = {"jax": jax, "loss": loss}
        exec(advice.code(), written)
        policies[policy] = flops_of(written["loss"], args)
        assert policies[policy] == flops_of(advice.apply(loss), args)
    names = ["('hidden')", "('out')", "('hidden', 'out')"]
    assert list(policies) == [*advising.RULES, *(f"save_only_these_names{n}" for n in names)]
    hidden, out, both = (policies[f"save_only_these_names{n}"] for n in names)
    assert both < min(hidden, out) <= max(hidden, out) < policies["nothing_saveable"]


def test_saved_tanh_is_not_evaluated_again() -> None:
    def function(w: Any, x: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ w).sum()

    args = (np.ones((4, 4), "float32"),) * 2
    wrapped = checkpointed(function, {(1,): "tanh", (3,): "tanh"})
    text = str(jax.make_jaxpr(jax.value_and_grad(wrapped))(*args))
    assert text.count("tanh ") == 2
    assert text.count("dot_general") == 5


@pytest.mark.nightly
@pytest.mark.usefixtures("few_candidates")
def test_advise_refuses_impossible_budget_with_smallest_peak() -> None:
    function, *args = mlp(np.random.default_rng(5))
    with pytest.raises(tc.BudgetError, match=r"function: no candidate has a peak of at") as caught:
        tcj.advise(function, *args, budget=0.05, time_limit=1e6)
    smallest = caught.value.smallest
    assert smallest is not None
    assert tcj.advise(function, *args, budget=smallest, time_limit=1e6).peak == smallest
    with pytest.raises(tc.BudgetError, match=r"compiled in time .*\(1 were compiled"):
        tcj.advise(function, *args, budget=0.5, time_limit=0)


def test_advice_for_another_function_is_refused() -> None:
    wrapped = checkpointed(lambda w: jnp.sin(jnp.cos(w)).sum(), {(0,): "cos"})
    assert jax.grad(wrapped)(jnp.zeros(2)).tolist() == [0, 0]
    other = checkpointed(lambda w: jnp.tanh(w).sum(), {(0,): "cos"})
    with pytest.raises(tc.GraphError, match=r"is tanh; the advice was given .* is cos"):
        jax.grad(other)(jnp.zeros(2))


def test_budget_in_total_includes_arguments() -> None:
    function, *args = mlp(np.random.default_rng(6))
    plain = tcj.memory(jax.value_and_grad(function), *args)
    total = plain.peak + plain.arguments
    assert plain.arguments >= sum(leaf.nbytes for leaf in jax.tree.leaves(args))
    advice = tcj.advise(function, *args, budget=f"{total} bytes total")
    assert (advice.peak, advice.compiled) == (plain.peak, 1)


def test_memory_reports_xla_analysis() -> None:
    args = example()
    memory = tcj.memory(jax.value_and_grad(loss), *shapes(args))
    results = 4 + sum(leaf.nbytes for leaf in jax.tree.leaves(args[0]))
    assert results <= memory.output <= results + 1024  # and a table of where they are
    assert memory.peak == memory.temporary + memory.output
    assert str(memory).endswith("of results")


def test_loop_is_one_operator_that_costs_its_iterations() -> None:
    def looped(w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), w, length=5)[0].sum()

    def once(w: Any) -> Any:
        return jnp.tanh(w @ w).sum()

    w = np.ones((4, 4), "float32")
    graph = tcj.trace(looped, w).graph
    forward = graph.operators[: graph.forward_count]
    assert [operator.kind for operator in forward].count("scan") == 1
    (cost,) = (operator.flops for operator in forward if operator.kind == "scan")
    assert cost >= 5 * sum(found.flops for found in tcj.trace(once, w).graph.operators[:2])


def printing(w: Any) -> Any:
    jax.debug.print("{}", w)
    return w.sum()


def endless(w: Any) -> Any:
    return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, w).sum()


def branching(w: Any) -> Any:
    return w.sum() if w[0] > 0 else -w.sum()


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (endless, (np.ones(3, "float32"),), "cannot trace"),
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
    with pytest.raises(tc.GraphError, match=said):
        tcj.advise(function, *args, budget=0.5)


def test_advise_refuses_malformed_budget_and_time_limit() -> None:
    args = (lambda w: (w * w).sum(), np.ones(3, "float32"))
    with pytest.raises(tc.BudgetError, match="expected"):
        tcj.advise(*args, budget="30 nodes")
    with pytest.raises(tc.OptionError, match="time_limit"):
        tcj.advise(*args, budget=0.5, time_limit=-1)
