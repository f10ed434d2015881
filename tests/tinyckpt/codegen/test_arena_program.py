"""Programs in one buffer: the bits of plain programs, no allocations, no stale reads."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import strict
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs
from tests.tinyckpt.ops.cases import CASES, training_graph
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.codegen.arena_program import ArenaProgram, dot_is_matmul
from tinyckpt.codegen.kernel_memory import Recorded
from tinyckpt.core.backend import NUMPY, get_backend

POLICIES = ("store_all", "sqrt_n", "recompute_all")
RESULTS: tuple[Any, ...] = ("new", "reused")
NETWORKS: dict[str, Callable[[], Any]] = {
    "mlp": lambda: tc.networks.mlp(4, 256, batch=256, inputs=256, classes=256),
    "gpt": lambda: tc.networks.transformer(2, 128, heads=4, length=128, batch=4, vocabulary=100),
    "lenet": lambda: tc.networks.lenet5(64),
    "float64": lambda: tc.networks.transformer(
        1, 64, heads=2, length=128, batch=4, vocabulary=50, dtype="float64"
    ),
}


def random_arguments(graph: tc.Graph, seed: int = 0) -> tuple[Any, ...]:
    """Return random arrays for a graph."""
    specs = map_leaves(lambda data: graph.data[data].spec, graph.arguments)
    arrays: tuple[Any, ...] = tc.networks.random_arrays(specs, seed=seed)
    return arrays


def copies(arguments: Any) -> Any:
    return map_leaves(np.copy, arguments)


def require_same_bits(want: Any, got: Any) -> None:
    for plain, placed in zip(leaves(want), leaves(got), strict=True):
        if plain is not None:
            plain, placed = np.asarray(plain), np.asarray(placed)
            assert (plain.shape, plain.dtype) == (placed.shape, placed.dtype)
            assert plain.tobytes() == placed.tobytes()


def require_equal_programs(schedule: tc.Schedule, arguments: tuple[Any, ...]) -> None:
    """Compare three calls of the plain program with those in one poisoned buffer."""
    plain = tc.compile(schedule).function
    for results in RESULTS:
        program = ArenaProgram(schedule, NUMPY, results, poison=True)
        with np.errstate(all="ignore"):
            for _ in range(3):
                mine, its = copies(arguments), copies(arguments)
                require_same_bits(plain(*mine), program(*its))
                require_same_bits(mine, its)  # updates in place
        assert program.memory.buffer.nbytes == program.nbytes


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", CASES)
def test_every_operator_gives_the_same_bits_in_an_arena(name: str) -> None:
    function, arguments = CASES[name]
    graph = training_graph(function, arguments)
    for policy in ("store_all", "recompute_all"):
        require_equal_programs(tc.plan(graph, policy), tuple(map(np.asarray, arguments)))


@given(training_graphs(), st.sampled_from(POLICIES))
def test_random_dags_give_the_same_bits_in_an_arena(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], policy: str
) -> None:
    graph, arguments = case
    require_equal_programs(tc.plan(graph, policy), arguments)


@given(graphs_of_views(), st.sampled_from(POLICIES))
def test_random_views_give_the_same_bits_in_an_arena(graph: tc.TrainingGraph, policy: str) -> None:
    require_equal_programs(tc.plan(graph, policy), random_arguments(graph))


@pytest.mark.long
@given(graphs_with_updates(), st.sampled_from(POLICIES))
def test_random_updates_give_the_same_bits_in_an_arena(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], policy: str
) -> None:
    graph, arguments = case
    require_equal_programs(tc.plan(graph, policy), arguments)


@settings(max_examples=10)
@given(st.integers(2, 12))
def test_offloaded_values_return_to_the_arena(layers: int) -> None:
    graph = tc.networks.chain(layers)
    schedule = tc.plan(graph, "offload")
    require_equal_programs(schedule, random_arguments(graph))


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_allocates_nothing_after_the_first_call(name: str, policy: str) -> None:
    graph = NETWORKS[name]().graph()
    schedule, arguments = tc.plan(graph, policy), random_arguments(graph)
    program = tc.compile(schedule, arena=True, results="reused")
    program.function(*arguments)
    program.function(*arguments)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        program.function(*arguments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= 64 << 10 < tc.replay(schedule).peak_bytes / 8
    assert program.arena is not None
    assert program.arena.nbytes >= tc.replay(schedule).peak_bytes


def test_new_results_are_never_overwritten_and_reused_ones_are() -> None:
    graph = tc.networks.chain(6)
    first, second = random_arguments(graph, 1), random_arguments(graph, 2)
    new = tc.compile(tc.plan(graph), arena=True)
    new(*first)  # the call that finds the layouts
    kept = new(*first)
    before = copies(leaves(kept)[-1])
    new(*second)
    assert np.array_equal(before, leaves(kept)[-1])
    reused = tc.compile(tc.plan(graph), arena=True, results="reused")
    reused(*first)
    view = leaves(reused(*first))[-1]
    other = leaves(reused(*second))[-1]
    assert view is other
    assert not np.array_equal(before, view)


def test_a_failure_within_a_step_leaves_the_next_call_right() -> None:
    def loss(w: Any, x: Any, labels: Any) -> Any:
        return tc.mean(tc.cross_entropy(tc.tanh(x @ w), labels))

    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(4, 5)), rng.normal(size=(3, 4))
    step = tc.value_and_grad(loss, "recompute_all", arena=True)
    want = tc.value_and_grad(loss)(w, x, np.array([0, 1, 2]))
    for labels in ([0, 1, 9], [0, 1, 2], [7, 1, 2], [0, 1, 2], [0, 1, 2]):
        if max(labels) > 4:
            with pytest.raises(tc.BackendError, match="labels must be 0 to 4"):
                step(w, x, np.array(labels))
        else:
            require_same_bits(want, step(w, x, np.array(labels)))


@pytest.mark.parametrize("threads", ["wait", "own"])
def test_threads_never_mix_numbers(threads: Any) -> None:
    graph = tc.networks.chain(20, shape=(32, 32))
    schedule = tc.plan(graph, "sqrt_n")
    program = tc.compile(schedule, arena=True, threads=threads)
    inputs = [random_arguments(graph, seed) for seed in range(4)]
    want = [tc.compile(schedule)(*arguments) for arguments in inputs]
    wrong = []

    def work(number: int) -> None:
        for _ in range(20):
            got = program(*inputs[number])
            if not np.array_equal(leaves(got)[-1], leaves(want[number])[-1]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_arguments_of_other_strides_give_the_bits_of_the_plain_program() -> None:
    graph = tc.differentiate(
        tc.build(lambda w, x: tc.sum(tc.tanh(x) @ w), tc.Spec((5, 6)), tc.Spec((7, 5)))
    )
    schedule = tc.plan(graph)
    plain, placed = tc.compile(schedule), tc.compile(schedule, arena=True)
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(5, 6)), rng.normal(size=(7, 5))
    strided = np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3]  # no rows for BLAS, in either order
    for arguments in [
        (w, x), (w, np.asfortranarray(x)), (np.asfortranarray(w), x), (w, strided)
    ] * 2:  # fmt: skip
        require_same_bits(plain.function(*arguments), placed.function(*arguments))


def test_small_operands_are_broadcast_into_the_result_and_numbers_made_once() -> None:
    def loss(w: Any, b: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(x @ w + b))

    shapes = ((4, 3), (3,), (5, 4))
    graph = tc.differentiate(tc.build(loss, *map(tc.Spec, shapes)))
    program = tc.compile(tc.plan(graph), arena=True)
    assert program.source.split("def step(w, b, x):\n")[1].splitlines() == [
        "    dot(x, w, out=matmul_1)",
        "    add_1[...] = b",
        "    np.add(matmul_1, add_1, out=add_1)",
        "    np.tanh(add_1, out=tanh_1)",
        "    sum_1 = np.asarray(tanh_1.sum(axis=(0, 1), keepdims=False))",
        "    sum_1_vjp = np.broadcast_to(np.expand_dims(c_1_0, (0, 1)), (5, 3))",
        "    np.multiply(tanh_1, tanh_1, out=tanh_1_vjp)",
        "    np.subtract(c_1, tanh_1_vjp, out=tanh_1_vjp)",
        "    np.multiply(tanh_1_vjp, sum_1_vjp, out=tanh_1_vjp)",
        "    matmul_1_vjp = dot(x.mT, tanh_1_vjp)",
        "    return sum_1, matmul_1_vjp",
    ]
    large = tc.differentiate(tc.build(loss, tc.Spec((256, 256)), tc.Spec(256), tc.Spec((256, 256))))
    source = tc.compile(tc.plan(large), arena=True).source
    assert "np.matmul(x, w, out=matmul_1)\n    np.add(matmul_1, b, out=add_1)" in source


@pytest.mark.parametrize(("dtype", "expected"), [("float32", 1024), ("float16", 8192)])
def test_a_step_sets_the_size_of_buffers_where_no_sum_casts(dtype: str, expected: int) -> None:
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(x)), tc.Spec((3, 4), dtype)))
    program = tc.compile(tc.plan(graph), arena=True)
    x = np.ones((3, 4), dtype)
    program(x)
    sizes: list[int] = []
    assert program.arena is not None

    def observe(*arguments: Any) -> None:
        sizes.append(np.getbufsize())
        raise KeyError

    (entry,) = program.arena.memory.steps.entries.values()
    entry.program = observe
    before = np.getbufsize()
    with pytest.raises(KeyError):
        program.function(x)
    assert (sizes, np.getbufsize()) == ([expected], before)


@given(
    st.lists(st.integers(2, 40), min_size=3, max_size=3),
    st.sampled_from(["float32", "float64"]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_dot_has_the_bits_of_matmul(
    extents: list[int], dtype: str, first: bool, second: bool, same: bool
) -> None:
    m, k, n = extents
    rng = np.random.default_rng(m)
    a = rng.normal(size=(k, m) if first else (m, k)).astype(dtype)
    b = rng.normal(size=(n, k) if second else (k, n)).astype(dtype)
    a, b = a.mT if first else a, b.mT if second else b
    if same:
        b = a.mT
    assert dot_is_matmul()
    expected = (a @ b).tobytes()
    assert np.dot(a, b).tobytes() == expected
    assert np.dot(a, b, out=np.empty((m, b.shape[1]), dtype)).tobytes() == expected


@pytest.mark.parametrize("shape", [(3000, 7), (7, 3000)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_broadcasts_have_the_same_bits_with_smaller_buffers(
    shape: tuple[int, int], dtype: str
) -> None:
    def loss(b: Any, c: Any, x: Any) -> Any:
        h = x * b + c
        return tc.mean(h) + tc.sum(tc.max(h, axis=0)) + tc.sum(tc.max(h, axis=1) ** 2)

    graph = tc.differentiate(
        tc.build(loss, *(tc.Spec(each, dtype) for each in (shape[1], (shape[0], 1), shape)))
    )
    b, c, x = random_arguments(graph)
    for arguments in ((b, c, x), (b, c, np.asfortranarray(x))):
        require_equal_programs(tc.plan(graph), arguments)


def test_transformations_take_arena() -> None:
    def loss(params: Any, x: Any) -> Any:
        return tc.mean(tc.tanh(x @ params["w"]) ** 2)

    rng = np.random.default_rng(0)
    params, x = {"w": rng.normal(size=(4, 4))}, rng.normal(size=(3, 4))
    for _ in range(2):
        require_same_bits(
            tc.value_and_grad(loss)(params, x), tc.value_and_grad(loss, arena=True)(params, x)
        )
        require_same_bits(tc.jit(loss)(params, x), tc.jit(loss, arena=True)(params, x))
    states = []
    for arena in (False, True):
        step = tc.train_step(loss, tc.adamw(0.1), arena=arena)
        state = step.init(params)
        for _ in range(5):
            state, value = step(state, x)
        states.append((state, value))
    require_same_bits(*states)


def test_a_program_in_an_arena_can_be_pickled() -> None:
    program = tc.compile(tc.plan(tc.networks.chain(3)), arena=True, results="reused")
    again = pickle.loads(pickle.dumps(program))
    assert again.arena is not None
    assert (again.source, again.arena.results) == (program.source, "reused")


@pytest.mark.parametrize("library", ["strict", pytest.param("cupy", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["gpt", "lenet"])
def test_array_libraries_other_than_numpy_run_in_an_arena(library: str, name: str) -> None:
    backend = strict.BACKEND if library == "strict" else get_backend(library)
    graph = NETWORKS[name]().graph()
    schedule = tc.plan(graph, "sqrt_n")
    arguments = random_arguments(graph)
    program = tc.compile(schedule, backend, arena=True)
    want = tc.compile(schedule, backend)(*arguments)
    for _ in range(3):
        require_same_bits(
            *(map_leaves(backend.to_host, both) for both in (want, program(*arguments)))
        )


def test_arrays_without_weak_references_are_never_taken_for_others() -> None:
    record = Recorded(strict)
    for _ in range(50):
        record.library.empty((4,))
        # In CPython a new array is likely to have the id() of the one that was dropped just now.
        others = [strict.asarray(np.zeros(4)) for _ in range(3)]
        assert [record.number_of(other) for other in others] == [None] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arena": True, "results": "old"}, "results='old'; expected 'new' or 'reused'"),
        ({"arena": True, "threads": "all"}, "threads='all'; expected 'wait' or 'own'"),
        ({"arena": "yes"}, "arena='yes'; expected True or False"),
        ({"results": "reused"}, "results and threads are options of arena=True"),
    ],
)
def test_unknown_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(tc.OptionError, match=message):
        tc.compile(tc.plan(tc.networks.chain(2)), **options)


@given(training_graphs(), st.sampled_from(POLICIES))
def test_the_buffer_of_a_program_is_that_of_arena(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], policy: str
) -> None:
    schedule = tc.plan(case[0], policy)
    program = tc.compile(schedule, arena=True, results="reused")
    assert program.arena is not None
    assert program.arena.nbytes == tc.arena(schedule).nbytes


@pytest.mark.parametrize("packed", [tuple, list])
@pytest.mark.parametrize("arena", [False, True])
def test_kernel_may_return_its_only_output_in_a_tuple(packed: Any, arena: bool) -> None:
    twice = tc.Primitive(
        "twice", lambda xp, x: packed([x * 2]), lambda x: (x,), vjp=(lambda ct, *_: ct[0] * 2,)
    )
    x = np.linspace(-1, 1, 4)
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.apply(twice, x) * x), x))
    program, expected = tc.compile(tc.plan(graph), arena=arena), tc.run(tc.plan(graph), x)
    for _ in range(2):
        value, gradients = program(x)
        assert value.tolist() == expected.value.tolist() == 2 * np.sum(x * x)
        assert gradients.tolist() == expected.gradients.tolist()


@pytest.mark.parametrize("arena", [False, True])
def test_kernel_with_too_many_outputs_is_named(arena: bool) -> None:
    pair = tc.Primitive("pair", lambda xp, x: (x * 2, x), lambda x: (x,))
    program = tc.compile(tc.plan(tc.build(lambda x: tc.apply(pair, x), tc.Spec(4))), arena=arena)
    with pytest.raises(tc.BackendError, match="pair_1 has 1 outputs, but its kernel returned 2"):
        program(np.ones(4))
