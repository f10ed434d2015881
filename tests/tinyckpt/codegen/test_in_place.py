"""Operators in place: equal bits, memory as replayed, less of it, and only where that is exact."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import strict
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs, with_once
from tests.tinyckpt.codegen.test_arena_program import (
    copies,
    random_arguments,
    require_equal_programs,
    require_same_bits,
)
from tests.tinyckpt.ops.cases import CASES, training_graph
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.codegen.arena import allocations_of
from tinyckpt.codegen.in_place import (
    InPlace,
    Operands,
    computed_anew,
    forward_in_place,
    kernel_over,
    takes_out,
)
from tinyckpt.core.execute import execute
from tinyckpt.ops.elementwise import PRIMITIVES
from tinyckpt.ops.elementwise_table import DERIVATIVES, ROWS
from viz.captions import Captions
from viz.memory_curve import memory_bands
from viz.scene import counts_nodes

POLICIES = ("store_all", "sqrt_n", "recompute_all")


def in_place_steps(schedule: tc.Schedule) -> list[InPlace]:
    return [step for step in schedule.steps if isinstance(step, InPlace)]


def sources_of(graph: tc.Graph, arguments: tuple[Any, ...]) -> dict[int, Any]:
    """Return C-contiguous copies of the arguments, by data id."""
    arrays = [np.array(array, order="C") for array in leaves(arguments)]
    return dict(zip(leaves(graph.arguments), arrays, strict=True))


def require_exact(plain: tc.Schedule, arguments: tuple[Any, ...]) -> tc.Schedule:
    """Compare a schedule with the one in place: bits, memory, and the programs of both."""
    schedule = forward_in_place(plain)
    graph = schedule.graph
    with np.errstate(all="ignore"):
        want, before = execute(plain, sources_of(graph, arguments))
        got, measured = execute(schedule, sources_of(graph, arguments))
    require_same_bits([want[each] for each in graph.outputs], [got[each] for each in graph.outputs])
    replayed = tc.replay(schedule)
    assert measured == replayed
    # Less by the value at each step in place, until the operand is freed; as much at all others.
    overwritten: dict[int, int] = {}
    for step, less, more in zip(
        schedule.steps, replayed.live_bytes, before.live_bytes, strict=True
    ):
        if isinstance(step, InPlace):
            overwritten[step.data] = graph.data[step.data].spec.nbytes
        elif isinstance(step, tc.Free):
            overwritten.pop(step.data, None)
        assert less == more - sum(overwritten.values())
    assert computed_anew(schedule).steps == plain.steps
    if in_place_steps(schedule):
        made, its = tc.compile(plain).function, tc.compile(schedule).function
        first, second = copies(arguments), copies(arguments)
        with np.errstate(all="ignore"):
            require_same_bits(made(*first), its(*second))
        require_same_bits(first, second)
        require_equal_programs(schedule, arguments)
    return schedule


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", CASES)
def test_every_operator_gives_the_same_bits_in_place(name: str) -> None:
    function, arguments = CASES[name]
    # An operand that dies on both sides of the function.
    graph = training_graph(lambda *args: tc.sin(function(*args)), arguments)
    for policy in ("store_all", "recompute_all"):
        require_exact(tc.plan(graph, policy), tuple(map(np.asarray, arguments)))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", CASES)
def test_values_are_contiguous_where_the_graph_says_so(name: str) -> None:
    function, arguments = CASES[name]
    graph = training_graph(function, arguments)
    operands = Operands(graph)

    def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
        for data, array in zip(graph.operators[index].outputs, results, strict=True):
            if operands.contiguous[data]:
                assert np.asarray(array).flags.c_contiguous, graph.operators[index].name

    with np.errstate(all="ignore"):
        execute(tc.plan(graph), sources_of(graph, arguments), watch=watch)


DTYPES = ("float16", "float32", "float64", "int32", "bool")


@pytest.mark.parametrize("name", [row.name for row in (*ROWS.values(), *DERIVATIVES) if row.value])
def test_every_elementwise_kernel_writes_over_what_it_allows(name: str) -> None:
    """Each kernel, over each operand that it allows, in each dtype: bits and the array itself."""
    row = {row.name: row for row in (*ROWS.values(), *DERIVATIVES)}[name]
    primitives = [PRIMITIVES[name]]
    if row.slope:
        primitives.append(PRIMITIVES[f"{name}_vjp"])
    rng = np.random.default_rng(3)
    for primitive in primitives:
        count = len((row.of if primitive.name == name else "r, g").split(", "))
        for dtype in DTYPES:
            attrs = {"exponent": 2} if row.attrs else {}
            specs = [tc.Spec((17, 33), dtype)] * count
            try:
                graph = tc.build(lambda *xs, p=primitive, a=attrs: tc.apply(p, *xs, **a), *specs)
            except tc.TinyckptError:
                continue  # not for this dtype
            operator, operands = graph.operators[-1], Operands(graph)
            arrays = [(rng.uniform(0.1, 0.9, (17, 33)) * 9).astype(dtype) for _ in range(count)]
            for place, data in enumerate(operator.inputs):
                if operands.obstacle(operator, data):
                    continue
                own = [array.copy() for array in arrays]
                with np.errstate(all="ignore"):
                    want = operator.primitive.forward(np, *arrays, **attrs)  # type: ignore[union-attr]
                    kernel_over(operator, place)(np, *own)
                assert own[place].tobytes() == np.asarray(want).tobytes(), (primitive.name, dtype)
                for other in range(count):
                    assert other == place or (own[other] == arrays[other]).all()


def test_single_ufuncs_and_kernels_of_one_buffer_allow_it() -> None:
    graph = tc.build(lambda x, y: (tc.tanh(x + y), tc.gelu(x)), tc.Spec((3,)), tc.Spec((3,)))
    operands = Operands(graph)
    add, tanh, gelu = graph.operators
    assert not operands.obstacle(add, add.inputs[0])
    assert not operands.obstacle(add, add.inputs[1])
    assert not operands.obstacle(tanh, tanh.inputs[0])
    assert "gelu does not write over it" in operands.obstacle(gelu, gelu.inputs[0])
    assert takes_out(PRIMITIVES["relu_vjp"].forward)
    assert not takes_out(PRIMITIVES["silu"].forward)


def in_place_kinds(function: Callable[..., Any], *specs: tc.Spec) -> list[str]:
    schedule = tc.plan(tc.build(function, *specs), in_place=True)
    return [schedule.graph.operators[step.operator].kind for step in in_place_steps(schedule)]


X = tc.Spec((3, 4))


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda x, y: tc.tanh(x + y), ["tanh"]),  # the sum reads sources, which stay
        (lambda x, y: (tc.sin(x) + y.sum(axis=0)) * 2.0, ["add", "multiply"]),  # broadcast
        (lambda x, y: tc.sin(x).sum(axis=1, keepdims=True) + y, []),  # the sum is smaller
        (lambda x, y: (lambda z: z * z)(tc.sin(x)), ["multiply"]),  # the same operand twice
        (lambda x, y: (lambda z: z**z)(tc.exp(x)), []),  # read as exponent, too
        (lambda x, y: tc.exp(x) ** 2, ["power"]),
        (lambda x, y: (lambda z: (z, tc.tanh(z)))(tc.sin(x)), []),  # a result
        (lambda x, y: (lambda z: tc.tanh(z) @ z.T)(tc.sin(x)), []),  # read again, as a view
        (lambda x, y: tc.tanh(tc.sin(x).T), []),  # not C-contiguous
        (lambda x, y: tc.tanh(tc.sin(x).reshape(4, 3)) * 2.0, ["tanh"]),  # a result owns memory
        (lambda x, y: tc.tanh(tc.sin(x).reshape(4, 3)).sum(), ["tanh"]),
        (lambda x, y: tc.tanh(tc.sin(x)[:2]), []),  # a part of its memory
        (lambda x, y: tc.tanh(tc.sin(x).astype("float32")), ["tanh"]),  # a cast is not
        (lambda x, y: tc.sin(x) > 0.5, []),  # the result is boolean
        (lambda x, y: ~(x > y), ["invert"]),
        (lambda x, y: tc.exp(x.sum()) * 2.0, ["exp", "multiply"]),  # no axes
        (lambda x, y: tc.relu(tc.gelu(x)), ["relu"]),
        (lambda x, y: (tc.sin(x) @ tc.cos(y).T).sum(), []),
        (lambda x, y: tc.sin(x) + tc.broadcast_to(y.sum(), (3, 4)), ["add"]),
        (lambda x, y: tc.sin(x) + y.reshape(4, 3).T, []),  # the layout may differ
        (lambda x, y: tc.sin(x) + y.astype("float32"), ["add"]),  # dtypes are mixed
    ],
)  # fmt: skip
def test_operands_are_overwritten_only_where_that_is_exact(
    function: Callable[..., Any], kinds: list[str]
) -> None:
    assert in_place_kinds(function, X, X) == kinds
    rng = np.random.default_rng(0)
    arguments = (rng.uniform(0.1, 1.0, (3, 4)), rng.uniform(0.1, 1.0, (3, 4)))
    require_exact(tc.plan(tc.build(function, X, X)), arguments)


def test_broadcast_cotangents_of_relu_leave_layouts_as_they_are() -> None:
    # The kernel's result is like its cotangent, of which a broadcast axis comes last in memory.
    def loss(w: Any, x: Any) -> Any:
        return tc.sum(tc.sum(tc.relu(tc.relu(x @ w) * 2.0), axis=0) * tc.arange(4.0))

    arguments = np.eye(4), np.linspace(-1, 1, 12).reshape(3, 4)
    graph = tc.differentiate(tc.build(loss, *arguments), (0, 1))
    operands = Operands(graph)
    late = next(each for each in graph.operators if each.kind == "relu_vjp")
    assert operands.ordered[late.inputs[1]]
    assert not operands.contiguous[late.outputs[0]]
    for policy in POLICIES:
        require_exact(tc.plan(graph, policy), arguments)


def test_abstract_operators_are_never_in_place() -> None:
    graph = tc.networks.chain(3)
    abstract = replace(
        graph, operators=tuple([replace(each, primitive=None) for each in graph.operators])
    )
    assert in_place_steps(tc.plan(abstract, in_place=True)) == []


def test_kernels_of_the_user_are_never_in_place() -> None:
    twice = tc.Primitive("twice", lambda xp, x: x + x, lambda x: (x,))
    assert in_place_kinds(lambda x: tc.apply(twice, tc.sin(x)), X) == []
    # Nor is what follows one: its result may lie in memory in any way, unless it promises.
    assert in_place_kinds(lambda x: tc.tanh(tc.apply(twice, x)), X) == []
    promised = replace(twice, contiguous=True)
    assert in_place_kinds(lambda x: tc.tanh(tc.apply(promised, x)), X) == ["tanh"]


@given(training_graphs(), st.sampled_from(POLICIES))
def test_random_dags_give_the_same_bits_in_place(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], policy: str
) -> None:
    graph, arguments = case
    require_exact(tc.plan(graph, policy), arguments)


@given(graphs_of_views(), st.sampled_from(POLICIES))
def test_random_views_give_the_same_bits_in_place(graph: tc.TrainingGraph, policy: str) -> None:
    require_exact(tc.plan(graph, policy), random_arguments(graph))


@given(graphs_with_updates(), st.sampled_from(POLICIES))
def test_random_updates_give_the_same_bits_in_place(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], policy: str
) -> None:
    graph, arguments = case
    require_exact(tc.plan(graph, policy), arguments)


@given(training_graphs(8), st.data())
def test_operators_evaluated_once_give_the_same_bits(
    case: tuple[tc.TrainingGraph, tuple[Any, ...]], data: st.DataObject
) -> None:
    graph, arguments = case
    require_exact(tc.plan(data.draw(with_once(graph)), "recompute_all"), arguments)


@settings(max_examples=10)
@given(st.integers(2, 9))
def test_offloaded_values_come_back_and_are_overwritten(layers: int) -> None:
    graph = tc.networks.chain(layers)
    schedule = require_exact(tc.plan(graph, "offload"), random_arguments(graph))
    fetched = {step.data for step in schedule.steps if isinstance(step, tc.Fetch)}
    assert fetched <= {step.data for step in in_place_steps(schedule)}


def test_memory_that_is_copied_to_the_host_is_not_overwritten() -> None:
    """A view of an offloaded value, whose memory an asynchronous copy may still be reading."""

    def function(x: Any) -> Any:
        y = tc.sin(x)
        return tc.sum(tc.tanh(y.reshape(-1))), tc.sum(tc.cos(y))

    graph = tc.build(function, X)
    names = {operator.name: operator.id for operator in graph.operators}
    y, view, tanh, cos = (
        graph.operators[names[name]].outputs[0]
        for name in ("sin_1", "reshape_1", "tanh_1", "cos_1")
    )
    steps = [
        tc.Compute(names["sin_1"]), tc.Compute(names["reshape_1"]), tc.Offload(y),
        tc.Compute(names["tanh_1"]), tc.Free(view), tc.Compute(names["sum_1"]), tc.Free(tanh),
        tc.Fetch(y), tc.Compute(names["cos_1"]), tc.Free(y), tc.Compute(names["sum_2"]),
        tc.Free(cos),
    ]  # fmt: skip
    schedule = require_exact(
        tc.Schedule(graph, tuple(steps), "mine"), (np.linspace(0, 1, 12).reshape(3, 4),)
    )
    assert in_place_steps(schedule) == [InPlace(names["cos_1"], y)]  # what came back has its own


def test_second_derivatives_are_in_place() -> None:
    def penalty(w: Any, x: Any) -> Any:
        slope = tc.grad(lambda w: tc.sum(tc.tanh(x @ w) ** 2))(w)
        return tc.sum(slope * slope)

    rng = np.random.default_rng(0)
    arguments = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    graph = tc.differentiate(tc.build(penalty, *arguments))
    for policy in POLICIES:
        assert in_place_steps(require_exact(tc.plan(graph, policy), arguments))


@pytest.mark.parametrize("layers", [1, 2, 5, 40])
def test_store_all_of_a_chain_falls_by_one_value(layers: int) -> None:
    """Plain: f1 to fn, l and b_n, n + 2 values. In place b_n is written over f_n: n + 1."""
    graph, nbytes = tc.networks.chain(layers), 512
    plain, schedule = tc.plan(graph), tc.plan(graph, in_place=True)
    assert tc.replay(plain).peak_bytes == (layers + 2) * nbytes
    assert tc.replay(schedule).peak_bytes == (layers + 1) * nbytes
    # Each backward operator, over the forward value that it reads last; no forward one: saved.
    assert in_place_steps(schedule) == [
        InPlace(layers + 1 + number, layers - number) for number in range(layers)
    ]
    for alignment in (1, 64):
        assert tc.arena(schedule, alignment=alignment).nbytes == (layers + 1) * nbytes
    assert sum(each.kind == "value" for each in allocations_of(schedule)) == layers + 1
    assert tc.replay(schedule).output[-1] == nbytes  # memory is counted as what it shows
    assert tc.replay(schedule).activation[-1] == 0


@pytest.mark.parametrize("policy", ["sqrt_n", "revolve", "optimal", "recompute_all"])
def test_peak_is_no_higher_and_cost_the_same_under_a_budget(policy: str) -> None:
    if policy == "optimal":
        pytest.importorskip("ortools")
    graph = tc.networks.chain(8)
    budget: dict[str, Any] = {"budget": "6 nodes"} if policy in ("revolve", "optimal") else {}
    plain = tc.replay(tc.plan(graph, policy, **budget))
    schedule = tc.plan(graph, policy, in_place=True, **budget)
    assert tc.replay(schedule).evaluations == plain.evaluations
    assert tc.replay(schedule).peak_bytes < plain.peak_bytes


def test_certificate_is_about_schedules_with_nothing_in_place() -> None:
    graph = tc.networks.chain(4)
    plain = tc.plan(graph, budget="4 nodes")
    schedule = tc.plan(graph, budget="4 nodes", in_place=True)
    assert plain.certificate.status == "optimal"
    own = schedule.certificate
    assert (own.status, own.cost, own.lower_bound) == ("optimal in its class", 11, 11)
    assert str(own) == (
        "optimal within 4 nodes among schedules with nothing computed in place: 11 evaluations"
    )
    assert pickle.loads(pickle.dumps(own)) == own
    # A heuristic one, too, says among which.
    heuristic = replace(plain.certificate, status="heuristic", lower_bound=10.0)
    assert str(heuristic.among("with nothing computed in place")) == (
        "heuristic: 11 evaluations within 4 nodes, at most 10 % above the optimum among schedules "
        "with nothing computed in place; none needs less than 10 evaluations"
    )
    with pytest.raises(tc.ScheduleError, match="computes in place has no certificate"):
        tc.certify(forward_in_place(plain))
    assert tc.certify(schedule) == own
    assert str(own) in str(tc.explain(schedule))
    with pytest.raises(tc.PolicyOptionError, match="computes in place, which lowers its peak"):
        tc.frontier(graph, seeds=[schedule])
    known = str(tc.explain(tc.plan(graph, in_place=True)))
    assert "computes in place: no bound on the optimum is known" in known
    assert forward_in_place(plain).certificate is None


def test_nothing_to_forward_leaves_the_schedule_as_it_is() -> None:
    schedule = tc.plan(tc.build(lambda x: tc.gelu(x), X))
    assert forward_in_place(schedule) is schedule
    once = tc.plan(tc.networks.chain(4), in_place=True)
    assert forward_in_place(once) is once
    assert once.note.endswith("; 4 evaluations in place")


def test_option_of_the_transformations_gives_the_same_bits() -> None:
    def loss(params: Any, x: Any) -> Any:
        for w in params:
            x = tc.relu(x @ w + 0.5)
        return tc.mean(x * x)

    rng = np.random.default_rng(0)
    params, x = [rng.normal(size=(6, 6)) for _ in range(4)], rng.normal(size=(5, 6))
    want = tc.value_and_grad(loss)(params, x)
    for arena in (False, True):
        step = tc.value_and_grad(loss, "sqrt_n", in_place=True, arena=arena)
        for _ in range(3):
            require_same_bits(want, step(params, x))
        require_same_bits(tc.jit(loss)(params, x), tc.jit(loss, in_place=True)(params, x))
    states = []
    for options in ({}, {"in_place": True}, {"in_place": True, "arena": True}):
        train = tc.train_step(loss, tc.adamw(0.1), **options)  # type: ignore[arg-type]
        state = train.init(params)
        for _ in range(3):
            state, _ = train(state, x)
        states.append(state)
        made = train.schedule(state, x)
        assert bool(in_place_steps(made)) == bool(options)
    require_same_bits(states[0], states[1])
    require_same_bits(states[0], states[2])
    with pytest.raises(tc.PolicyOptionError, match="in_place=1; expected True or False"):
        tc.value_and_grad(loss, in_place=1)(params, x)


def traced_peak(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes that a call traces at its peak above its start, by ``tracemalloc``."""
    function(*arguments)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        function(*arguments)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def relu_layers(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = tc.relu(x @ w + 0.5)
    return tc.mean(x * x)


def test_numpy_allocates_as_little_as_replay_says() -> None:
    x = np.linspace(-1, 1, 256 * 512).reshape(256, 512)  # 1 MiB
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(tc.tanh(tc.tanh(x)))), x))
    slack = 16 << 10
    for policy in POLICIES:
        for in_place in (False, True):
            schedule = tc.plan(graph, policy, in_place=in_place)
            live = tc.replay(schedule).peak_bytes
            assert abs(traced_peak(tc.compile(schedule).function, x) - live) <= slack
    w, x = np.ones((256, 256)) / 256, np.ones((256, 256))
    graph = tc.differentiate(tc.build(relu_layers, w, x))
    for policy in POLICIES:
        schedule = tc.plan(graph, policy, in_place=True)
        kinds = {graph.operators[step.operator].kind for step in in_place_steps(schedule)}
        assert "relu_vjp" in kinds  # its mask is in the workspace
        program = tc.compile(schedule, arena=True, results="reused")
        program.function(w, x)
        assert traced_peak(program.function, w, x) <= 16 << 10 < w.size


def test_array_libraries_other_than_numpy_run_in_place() -> None:
    rng = np.random.default_rng(0)
    arguments = rng.normal(size=(4, 4)), rng.normal(size=(3, 4))
    graph = tc.differentiate(tc.build(relu_layers, *arguments))
    for policy in POLICIES:
        schedule = tc.plan(graph, policy, in_place=True)
        want = host(tc.compile(tc.plan(graph, policy), strict.BACKEND)(*arguments))
        ran = tc.run(schedule, *arguments, backend=strict.BACKEND)
        require_same_bits(want, host((ran.value, ran.gradients)))
        for arena in (False, True):
            program = tc.compile(schedule, strict.BACKEND, arena=arena)
            for _ in range(3):
                require_same_bits(want, host(program(*arguments)))


def host(arrays: Any) -> Any:
    return map_leaves(lambda array: strict.asnumpy(array), arrays)


def test_nan_is_found_at_the_operator_that_made_it() -> None:
    def loss(w: Any) -> Any:
        return tc.sum(tc.exp(tc.log(tc.sin(w)) + 1.0))

    graph = tc.differentiate(tc.build(loss, X))
    schedule = tc.plan(graph, "recompute_all", in_place=True)
    kinds = [graph.operators[step.operator].kind for step in in_place_steps(schedule)]
    assert "log" in kinds
    with np.errstate(all="ignore"), pytest.raises(tc.BackendError, match="log_1"):
        tc.run(schedule, np.full((3, 4), -1.0))
    step = tc.train_step(loss, tc.sgd(0.1), in_place=True, check_nan=True)
    with np.errstate(all="ignore"), pytest.raises(tc.BackendError, match="log_1"):
        step(step.init(np.full((3, 4), -1.0)))


# --------------------------------------------------------------------------------------------------
# Illegal steps, by replay and by execution.


def chain_steps() -> tuple[tc.Graph, list[Any]]:
    graph = tc.networks.chain(2)
    return graph, list(tc.plan(graph, in_place=True).steps)


@pytest.mark.parametrize(
    ("place", "step", "message"),
    [
        (0, InPlace(0, 0), "step 0: inplace f1 cannot overwrite x: that is not freed right after"),
        (1, InPlace(1, 1), "step 1: inplace f2 cannot overwrite f1: that is not freed right after"),
        (3, InPlace(3, 1), "step 3: inplace b2 cannot overwrite f1: it does not read that"),
        (3, InPlace(3, 4), "cannot overwrite l: the kernel of tanh_vjp does not write over it"),
        (3, InPlace(3, 99), "step 3: inplace b2 cannot overwrite 99: it does not read that"),
        (0, InPlace(1, 1), "step 0: inplace f2 needs f1, which has not been computed yet"),
        (1, InPlace(0, 0), "step 1: inplace f1 cannot overwrite x"),
    ],
)
def test_illegal_step_in_place_is_refused(place: int, step: InPlace, message: str) -> None:
    graph, steps = chain_steps()
    steps[place] = step
    if "needs" in message:
        steps.insert(1, tc.Free(1))
    with pytest.raises(tc.ScheduleError) as raised:
        tc.replay(tc.Schedule(graph, tuple(steps), "mine"))
    assert message in str(raised.value)


def test_overwritten_value_cannot_be_read_or_shared() -> None:
    def function(x: Any) -> Any:
        y = tc.sin(x)
        return tc.tanh(y), tc.sum(y.reshape(-1))

    graph = tc.build(function, X)
    names = {operator.name: operator.id for operator in graph.operators}
    y = graph.operators[names["sin_1"]].outputs[0]
    late = [
        tc.Compute(names["sin_1"]),
        InPlace(names["tanh_1"], y),
        tc.Compute(names["reshape_1"]),
        tc.Free(y),
        tc.Compute(names["sum_1"]),
    ]
    schedule = tc.Schedule(graph, tuple(late), "mine")
    with pytest.raises(tc.ScheduleError, match="step 1: inplace tanh_1 cannot overwrite sin_1: "):
        tc.replay(schedule)
    with pytest.raises(tc.ScheduleError, match="sin_1 was overwritten at step 1"):
        execute(schedule, {0: np.ones((3, 4))})
    late[1], late[2] = late[2], late[1]
    shared = tc.Schedule(graph, tuple(late), "mine")
    with pytest.raises(tc.ScheduleError, match="other values are in that memory"):
        tc.replay(shared)
    with pytest.raises(tc.ScheduleError, match="step 2: tanh_1 cannot be in place"):
        execute(shared, {0: np.ones((3, 4))})


def test_execution_refuses_what_replay_does() -> None:
    graph, steps = chain_steps()
    sources = {0: np.ones(graph.data[0].spec.shape)}
    for step, message in (
        (InPlace(1, 0), "f2 cannot be in place: it does not read that"),
        (InPlace(0, 0), "f1 cannot be in place: other values are in that memory"),
        (InPlace(2, 2), "l needs f2, which is not resident"),
    ):
        with pytest.raises(tc.ScheduleError, match=message):
            execute(tc.Schedule(graph, (tc.Compute(0), step, *steps[1:]), "mine"), sources)


def test_saved_schedule_is_the_same_and_abstract_graphs_replay(tmp_path: Any) -> None:
    graph = tc.networks.mlp(2, 8, batch=4).graph()
    schedule = tc.plan(graph, "sqrt_n", in_place=True)
    tc.save_schedule(schedule, tmp_path / "schedule.json")
    tc.save_trace(tc.replay(schedule), tmp_path / "trace.json")
    loaded = tc.load_schedule(tmp_path / "schedule.json")
    assert loaded.steps == schedule.steps
    assert tc.replay(loaded).live_bytes == tc.replay(schedule).live_bytes
    assert tc.load_trace(tmp_path / "trace.json") == tc.replay(loaded)
    assert forward_in_place(tc.load_schedule(tmp_path / "schedule.json", graph)).graph is graph
    text = (tmp_path / "schedule.json").read_text()
    first = in_place_steps(schedule)[0]
    (tmp_path / "bad.json").write_text(
        text.replace(f'["inplace", {first.operator}, {first.data}]', '["inplace", 0, 9999]', 1)
        if f'["inplace", {first.operator}, {first.data}]' in text
        else text.replace(f'["inplace",{first.operator},{first.data}]', '["inplace",0,9999]', 1)
    )
    with pytest.raises(tc.FormatError, match="9999"):
        tc.load_schedule(tmp_path / "bad.json")


def test_every_view_of_a_trace_takes_steps_in_place(tmp_path: Any) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n", in_place=True))
    place, step = next((p, s) for p, s in enumerate(trace.steps) if isinstance(s, InPlace))
    name = trace.graph.operators[step.operator].name
    assert f"inplace  {name}" in str(trace)
    tc.save_csv(trace, tmp_path / "trace.csv")
    row = (tmp_path / "trace.csv").read_text().splitlines()[1 + place]
    assert row.startswith(f"{place},inplace,{step.operator},{name},")
    tc.save_chrome_trace(trace, tmp_path / "trace.json")
    assert "overwriting" in Captions(trace).text(place)
    # Values of one size, but memory is shared: in bytes, as the curve is.
    assert not counts_nodes([trace])
    assert memory_bands(trace, in_nodes=False).sum(axis=0).tolist() == list(trace.live_bytes)
    residents = tc.explain(trace.schedule).at_peak
    assert sum(nbytes for _, nbytes in residents) == trace.peak_bytes
