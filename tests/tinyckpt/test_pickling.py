"""Pickle and copy of all public objects: copies are equal or behave equally."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


COPIES = (pickled, copy.deepcopy, copy.copy)


@pytest.mark.long
@settings(max_examples=examples(20))
@given(training_graphs())
def test_copied_graph_and_schedule_run_bitwise_equal(case: Any) -> None:
    graph, args = case
    for policy in ("store_all", "sqrt_n"):
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, *args)
        for copied in COPIES:
            again = copied(schedule)
            assert again == schedule
            assert again.graph == graph
            assert copied(graph) == graph
            assert copied(result.trace) == result.trace == tc.replay(again)
            compiled = tc.compile(schedule)
            found = tc.run(again, *args)
            for value, gradients in (
                (found.value, found.gradients), compiled(*args), copied(compiled)(*args),
            ):  # fmt: skip
                for array, other in zip(
                    leaves([value, gradients]),
                    leaves([result.value, result.gradients]),
                    strict=True,
                ):
                    assert np.array_equal(array, other)


@pytest.mark.long
def test_planning_results_pickle() -> None:
    graph = tc.networks.mlp(4, 8).graph()
    planned = tc.plan(graph, budget=0.8, time_limit=0.5)
    frontier = tc.frontier(graph, time_limit=0.5)
    for copied in COPIES:
        assert copied(planned) == planned
        assert copied(planned).certificate == planned.certificate
        again = copied(frontier)
        for point, other in zip(again.points, frontier.points, strict=True):
            assert (point.peak, point.cost) == (other.peak, other.cost)
            assert np.array_equal(point.order, other.order)
        assert copied(graph.operators[0].primitive) is graph.operators[0].primitive
    for large in (pickled(tc.networks.resnet50()), pickled(tc.networks.chain(5_000))):
        assert tc.replay(tc.plan(large)).evaluations == len(large.operators)


def double(xp: Any, x: Any) -> Any:
    return x + x


def same(x: tc.Spec) -> tuple[tc.Spec, ...]:
    return (x,)


OWN = tc.Primitive("double", double, same)


@pytest.mark.parametrize("copied", COPIES)
def test_user_primitive_pickles_by_its_functions(copied: Callable[[Any], Any]) -> None:
    schedule = tc.plan(tc.build(lambda x: tc.apply(OWN, x), tc.Spec(3)))
    again = copied(schedule)
    assert again == schedule
    assert tc.run(again, np.ones(3)).value.tolist() == [2.0, 2.0, 2.0]


# What users hold besides, and what shows that a copy of it does the same --------------------------

R = np.random.default_rng(3)
PARAMETERS = {"w": R.normal(size=(3, 2)), "b": [R.normal(size=2)]}
X, Y = R.normal(size=(4, 3)), R.normal(size=(4, 2))
SCHEDULE = tc.plan(tc.networks.chain(6), "offload")


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = tc.name(tc.tanh(x @ params["w"]), "hidden")
    return tc.mean((hidden + params["b"][0] - y) ** 2)


def own_rate(step: Any) -> Any:
    return 0.1 / (step + 1.0)


def own_policy(graph: tc.Graph) -> tc.Schedule:
    return tc.plan(graph, "sqrt_n")


def bits(tree: Any) -> list[Any]:
    return [
        leaf.tobytes() if hasattr(leaf, "tobytes") else leaf
        for leaf in leaves(tree)
    ]  # fmt: skip


def steps_taken(step: tc.TrainStep) -> Any:
    dtype = "float16" if step.recipe.loss_scale else "float64"
    state = step.init({"w": PARAMETERS["w"].astype(dtype), "b": [PARAMETERS["b"][0].astype(dtype)]})
    values = []
    for _ in range(3):
        state, value = step(state, X.astype(dtype), Y.astype(dtype))
        values.append(value)
    return bits([state, values])


def trained(optimizer: tc.Optimizer) -> Any:
    return steps_taken(tc.train_step(loss, optimizer))


def rated(rate: Any) -> Any:
    return trained(tc.sgd(rate))


def planned(rule: Any) -> Any:
    graph = tc.differentiate(tc.build(loss, PARAMETERS, X, Y))
    return tc.plan(graph, "saveable", rule=rule).steps


def ran(backend: Any) -> Any:
    x = np.linspace(-1, 1, 64).reshape(8, 8)
    return bits(tc.run(SCHEDULE, x, backend=backend).gradients)


STEP = tc.train_step(loss, tc.sgd(0.1))


def moved_on(state: Any) -> Any:
    state, value = STEP(copy.deepcopy(state), X, Y)
    return bits([state, value])


def called(compiled: tc.Compiled) -> Any:
    return bits(list(compiled(np.linspace(-1, 1, 64).reshape(8, 8))))


def itself(thing: Any) -> Any:
    return thing


def said(error: Exception) -> Any:
    return type(error), str(error), vars(error)


def used(step: tc.TrainStep) -> tc.TrainStep:
    steps_taken(step)
    return step


NAMED = tc.checkpoint_policies.save_only_these_names("hidden")
HELD: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{f"policy {name}": (itself, policy) for name, policy in tc.POLICIES.items()},
    "save policy": (planned, NAMED),
    "no save policy": (planned, tc.checkpoint_policies.save_any_names_but_these("hidden")),
    "save policy except": (
        planned, tc.checkpoint_policies.save_anything_except_these_names("hidden"),
    ),
    "save policies": (
        planned,
        tc.checkpoint_policies.save_from_both_policies(
            NAMED, tc.checkpoint_policies.dots_saveable
        ),
    ),
    "save everything": (planned, tc.checkpoint_policies.everything_saveable),
    "offload by name": (
        planned,
        tc.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_offloaded=["hidden"]
        ),
    ),
    "schedule": (itself, SCHEDULE),
    "trace": (itself, tc.replay(SCHEDULE)),
    "certificate": (itself, SCHEDULE.certificate),
    "costs": (itself, tc.cost.flops(SCHEDULE.graph)),
    "spec": (itself, tc.Spec((2, 3), "float32")),
    "link": (itself, tc.Link(1e9)),
    "timeline": (itself, tc.timed(SCHEDULE, tc.Link(1e9))),
    "numpy": (ran, tc.compile(SCHEDULE).backend),
    "on_disk": (ran, tc.on_disk()),
    "compiled": (called, tc.compile(SCHEDULE)),
    "compiled on disk": (called, tc.compile(SCHEDULE, tc.on_disk())),
    "sgd": (trained, tc.sgd(0.1)),
    "momentum": (trained, tc.momentum(0.1)),
    "adam": (trained, tc.adam(0.1)),
    "adamw": (trained, tc.adamw(tc.linear_rate(0.1, 5))),
    "clipped": (trained, tc.clipped(tc.adam(own_rate), 0.1)),
    "masters": (trained, tc.with_master_weights(tc.clipped(tc.adamw(0.1), 0.1), "float64")),
    "cosine_rate": (rated, tc.cosine_rate(0.1, 5, 2, 0.01)),
    "linear_rate": (rated, tc.linear_rate(0.1, 5)),
    "loss scale": (itself, tc.LossScale(8.0)),
    "step": (steps_taken, tc.train_step(loss, tc.adamw(own_rate), "sqrt_n", check_nan=True)),
    "step of one's own policy": (steps_taken, tc.train_step(loss, tc.sgd(0.1), own_policy)),
    "step on disk": (
        steps_taken, tc.train_step(loss, tc.adam(0.1), "offload", backend=tc.on_disk()),
    ),
    "step in parts": (
        steps_taken,
        tc.train_step(
            loss, tc.with_master_weights(tc.adam(0.1)), "saveable", rule=NAMED,
            gradients="held",
            micro_batches=2, loss_scale=tc.LossScale(8.0),
        ),
    ),
    "used step": (steps_taken, used(tc.train_step(loss, tc.adam(tc.cosine_rate(0.1, 9)), "dtr"))),
    "state": (moved_on, STEP.init(PARAMETERS)),
    "budget error": (said, tc.BudgetError("too small", 12, True)),
    "backend error": (said, tc.BackendError("step 3 failed")),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_copy_of_public_object_behaves_equally(name: str) -> None:
    does, thing = HELD[name]
    expected = does(thing)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(thing, protocol))
        assert type(again) is type(thing)
        assert does(again) == expected
    for copied in COPIES:
        assert does(copied(thing)) == expected
        assert does(copied(copied(thing))) == expected


def test_numpy_backend_is_a_singleton_after_pickling() -> None:
    backend = HELD["numpy"][1]
    assert all(copied(backend) is backend for copied in COPIES)


def test_unpickled_disk_opens_its_own_file(tmp_path: Any) -> None:
    backend = tc.on_disk(tmp_path)
    for copied in (pickled, copy.deepcopy):
        disk, other = backend.host(), copied(backend).host()  # type: ignore[misc]
        assert other.folder == disk.folder == str(tmp_path)
        assert other.file is not disk.file
    text = pickle.dumps(tc.on_disk(tmp_path / ""))
    tmp_path.rmdir()
    with pytest.raises(tc.BackendError, match="on_disk: no file can be made in"):
        pickle.loads(text)


def results_of(things: dict[str, tuple[Callable[[Any], Any], Any]]) -> dict[str, Any]:
    return {name: does(thing) for name, (does, thing) in things.items()}


@pytest.mark.long
def test_public_objects_pass_to_spawned_process() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        assert processes.submit(results_of, HELD).result(timeout=120) == results_of(HELD)
