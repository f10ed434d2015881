"""Closed forms, replay, execution and compiled code agree, number for number and bit for bit."""

import math
import tracemalloc
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves
from tinyckpt.core.execute import execute, memory_owner
from tinyckpt.core.tracing import Builder, Var
from tinyckpt.documents.verifier import check_graph
from tinyckpt.ops.shape import is_contiguous

POLICIES = ("store_all", "recompute_all", "sqrt_n", "retain")
SQUARES = (4, 16, 64, 100, 400)

# The closed forms of the canonical chain: (evaluations, peak nodes), for n = k * k.
CLOSED_FORMS = {
    "store_all": lambda n, k: (2 * n + 1, n + 2),
    "recompute_all": lambda n, k: (n * (n + 1) // 2 + n + 1, 3),
    "sqrt_n": lambda n, k: (2 * n + 1 + (k - 1) ** 2, 2 * k + 1),
}
PUBLISHED = {
    4: {"store_all": (9, 6), "recompute_all": (15, 3), "sqrt_n": (10, 5)},
    16: {"store_all": (33, 18), "recompute_all": (153, 3), "sqrt_n": (42, 9)},
    64: {"store_all": (129, 66), "recompute_all": (2145, 3), "sqrt_n": (178, 17)},
    100: {"store_all": (201, 102), "recompute_all": (5151, 3), "sqrt_n": (282, 21)},
    400: {"store_all": (801, 402), "recompute_all": (80601, 3), "sqrt_n": (1162, 41)},
}


def planned(graph: tc.TrainingGraph, policy: str) -> tc.Schedule:
    """Plan, with every other forward value kept where the policy asks what to keep."""
    if policy == "retain":
        return tc.plan(graph, "retain", keep=lambda node: node.id % 2 == 0)
    return tc.plan(graph, policy)


@pytest.mark.parametrize("policy", CLOSED_FORMS)
@pytest.mark.parametrize("n", SQUARES)
def test_replay_of_chain_equals_closed_form(n: int, policy: str) -> None:
    expected = CLOSED_FORMS[policy](n, math.isqrt(n))
    assert expected == PUBLISHED[n][policy]
    schedule = tc.plan(tc.networks.chain(n, shape=2), policy)
    replayed = tc.replay(schedule)
    assert (replayed.evaluations, replayed.peak_nodes) == expected
    assert replayed.peak_bytes == 16 * expected[1]
    executed = tc.run(schedule, np.ones(2)).trace
    assert (executed.evaluations, executed.peak_nodes) == expected


@pytest.mark.parametrize(
    ("n", "policy"),
    [
        # 80,601 lines of source: the same form holds for shorter chains.
        pytest.param(n, policy, marks=pytest.mark.nightly if n == 400 else ())
        for n, policy in product(SQUARES, CLOSED_FORMS)
    ],
)
def test_compiled_chain_evaluations_equal_closed_form(n: int, policy: str) -> None:
    schedule = tc.plan(tc.networks.chain(n, shape=2), policy)
    compiled = tc.compile(schedule)
    lines = compiled.source.splitlines()
    evaluations = sum(" = " in line for line in lines if line.startswith("    "))
    assert evaluations == CLOSED_FORMS[policy](n, math.isqrt(n))[0]
    # Live names, walked through the program's own text: what its peak is made of.
    live: set[str] = set()
    peak = 0
    for line in (line.strip() for line in lines if line.startswith("    ")):
        if line.startswith("del "):
            live -= set(line.removeprefix("del ").split(", "))
        elif " = " in line:
            live.add(line.split(" = ")[0])
            peak = max(peak, len(live))
    assert peak == CLOSED_FORMS[policy](n, math.isqrt(n))[1]
    assert np.array_equal(compiled(np.ones(2))[1], tc.run(schedule, np.ones(2)).gradients)


@pytest.mark.parametrize(
    ("policy", "evaluations", "peak"),
    [
        ("store_all", 1, 1),
        pytest.param("recompute_all", 2, 0, marks=pytest.mark.long),
        ("sqrt_n", 1, 0.5),
    ],
)
def test_growth_exponents_equal_published(policy: str, evaluations: float, peak: float) -> None:
    sizes = [8, 16, 32, 64, 128, 256, 512]
    traces = [tc.replay(tc.plan(tc.networks.chain(n), policy)) for n in sizes]
    for expected, counts in (
        (evaluations, [trace.evaluations for trace in traces]),
        (peak, [trace.peak_nodes for trace in traces]),
    ):
        slope = np.polyfit(np.log(sizes), np.log(counts), 1)[0]
        assert slope == pytest.approx(expected, abs=0.1)


@settings(max_examples=examples(200))
@given(training_graphs())
def test_replay_execute_and_compile_agree_on_random_graphs(case: Any) -> None:
    graph, args = case
    reference = None
    for policy in POLICIES:
        schedule = planned(graph, policy)
        trace = tc.replay(schedule)
        result = tc.run(schedule, *args, timed=True)
        assert result.trace == trace
        assert len(result.trace.seconds) == len(schedule.steps)
        value, gradients = tc.compile(schedule)(*args)
        reference = reference or [result.value, result.gradients]
        for found in ([result.value, result.gradients], [value, gradients]):
            for array, expected in zip(leaves(found), leaves(reference), strict=True):
                assert array.dtype == expected.dtype
                assert np.array_equal(array, expected)
        assert trace.resident_at(len(schedule.steps) - 1) == {
            data for data in graph.outputs if not graph.data[data].is_source
        }


@settings(max_examples=examples(300))
@given(training_graphs(largest=6))
def test_array_shapes_and_layouts_equal_graph_specs(case: Any) -> None:
    graph, args = case
    schedule = tc.plan(graph, "store_all")
    seen = []
    claims = Builder.reopen(graph)
    check_graph(graph)
    assert len({node.name for node in graph.data}) == len(graph.data)
    assert len({operator.name for operator in graph.operators}) == len(graph.operators)

    def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
        operator = graph.operators[index]
        for data, array in zip(operator.outputs, results, strict=True):
            seen.append(data)
            assert np.shape(array) == graph.data[data].spec.shape
            assert array.dtype == graph.data[data].spec.dtype
            if is_contiguous(Var(graph.data[data], claims)):
                assert np.asarray(array).flags.c_contiguous
            # What an array holds is what its own shape takes: no view of something larger.
            owner = memory_owner(np.asarray(array), np.ndarray)
            if graph.data[data].view_of is None:
                assert owner.nbytes == graph.data[data].nbytes

    execute(schedule, dict(zip(leaves(graph.arguments), leaves(args), strict=True)), watch=watch)
    assert sorted(seen) == [node.id for node in graph.data if node.producer is not None]


@pytest.mark.long
def test_numpy_memory_equals_trace() -> None:
    network = tc.networks.mlp(6, 384, batch=384, inputs=384, classes=384)
    graph, args = network.graph(), network.arrays()
    for policy in ("store_all", "sqrt_n", "recompute_all"):
        schedule = tc.plan(graph, policy)
        expected = tc.replay(schedule).peak_bytes
        compiled = tc.compile(schedule)
        for runner in (lambda s=schedule: tc.run(s, *args), lambda c=compiled: c(*args)):
            runner()  # one-off allocations, such as import caches
            tracemalloc.start()
            runner()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak == pytest.approx(expected, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layers", "peak", "recomputations"),
    [
        # n = 5,000 is no square: 71 segments of 70 or 71 stages.
        (5_000, 142, 4_860),
        # 100,000 operators, as CONTRIBUTING.md asks: 224 segments of 223 or 224 stages.
        pytest.param(50_000, 448, 49_554, marks=pytest.mark.nightly),
    ],
)
def test_long_chain_needs_no_recursion(layers: int, peak: int, recomputations: int) -> None:
    graph = tc.networks.chain(layers, shape=1)
    assert len(graph.operators) == 2 * layers + 1
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    assert (trace.peak_nodes, trace.recomputations) == (peak, recomputations)


def test_kernel_that_returns_its_input_changes_measured_trace() -> None:
    x = np.ones((3, 4))
    for alias in (None, 0):
        identity = tc.Primitive("identity", lambda xp, x: x, lambda x: (x,), alias=alias)

        def function(x: Any, identity: tc.Primitive = identity) -> Any:
            return tc.sum(tc.apply(identity, tc.tanh(x)))

        schedule = tc.plan(tc.build(function, x))
        assert (tc.run(schedule, x).trace == tc.replay(schedule)) == (alias == 0)


@pytest.mark.parametrize(
    ("kernel", "count"),
    [(lambda xp, x: (x, x, x), 3), (lambda xp, x: x + 1, 1), (lambda xp, x: (x,), 1)],
    ids=["three", "an array", "a tuple of one"],
)
def test_kernel_with_wrong_number_of_results_is_named(kernel: Any, count: int) -> None:
    broken = tc.Primitive("broken", kernel, lambda x: (x, x))
    schedule = tc.plan(tc.build(lambda x: tc.apply_all(broken, x), tc.Spec(2)))
    said = f"broken_1 has 2 outputs, but its kernel returned {count}"
    with pytest.raises(tc.BackendError, match=said):
        tc.run(schedule, np.ones(2))


def test_user_kernel_has_one_name_for_all_calls() -> None:
    own = tc.Primitive("doubled", lambda xp, x: 2 * x, lambda x: (x,))
    graph = tc.build(lambda x: tc.apply(own, x), tc.Spec(2))
    steps = (tc.Compute(0), tc.Free(graph.operators[0].outputs[0]), tc.Compute(0))
    compiled = tc.compile(tc.Schedule(graph, steps, "twice"))
    assert compiled.source.count("kernel_doubled_1(np, x)") == 2
    assert np.array_equal(compiled(np.ones(2))[0], [2.0, 2.0])


def test_run_memory_is_peak_plus_trace() -> None:
    network = tc.networks.transformer(1, 128, heads=2, length=64, batch=4, vocabulary=500)
    args = network.arrays()
    schedule = tc.plan(network.graph(), "recompute_all")
    expected = tc.replay(schedule).peak_bytes
    compiled = tc.compile(schedule)
    excess = []
    for runner in (lambda: compiled(*args), lambda: tc.run(schedule, *args)):
        runner()
        tracemalloc.start()
        runner()
        excess.append(tracemalloc.get_traced_memory()[1] - expected)
        tracemalloc.stop()
    # A program holds what was planned, but for NumPy's buffers. The trace is what ``run`` adds.
    assert abs(excess[0]) < 2**16
    assert excess[1] < 2**18 + 160 * len(schedule.steps)
