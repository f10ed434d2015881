"""In-place updates: a source is overwritten after every reader of its old value."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_with_updates
from tinyckpt.base.tree import leaves
from tinyckpt.core.execute import execute
from tinyckpt.documents.verifier import check_graph
from tinyckpt.planner.portfolio.policies import POLICIES

SEARCHING = ("optimal",)  # needs a solver, and its time


def sources_for(graph: tc.Graph, args: Any) -> dict[int, Any]:
    return {
        data: np.array(array)
        for data, array in zip(leaves(graph.arguments), leaves(args), strict=True)
    }


def of_one_weight() -> tc.Graph:
    def step(w: Any, x: Any) -> Any:
        y = w * x
        return tc.assign(w, w - 0.5 * x), tc.sum(y * w[::-1])

    return tc.build(step, tc.Spec(4), tc.Spec(4))


@pytest.mark.long
@settings(max_examples=examples(10))
@given(graphs_with_updates())
def test_every_policy_places_updates_after_the_last_reader(case: Any) -> None:
    graph, args = case
    check_graph(graph)
    expected = tc.run(tc.plan(graph), *args)
    for name in POLICIES:
        if name in SEARCHING or name == "retain":
            continue
        schedule = tc.plan(graph, name)
        trace = tc.replay(schedule)
        result = tc.run(schedule, *args)
        assert result.trace == trace, name
        updates = [step for step in trace.steps if isinstance(step, tc.Update)]
        assert len(updates) == sum(operator.is_update for operator in graph.operators)
        for ours, theirs in zip(leaves(result.value), leaves(expected.value), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)
        program = tc.compile(schedule)
        copies = tuple(leaves_copied(args))
        value, _ = program(*copies)
        for ours, theirs in zip(leaves(value), leaves(expected.value), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


def leaves_copied(args: Any) -> Any:
    params, x, unused = args
    return [p.copy() for p in params], x.copy(), unused.copy()


@pytest.mark.long
@settings(max_examples=examples(12))
@given(graphs_with_updates(), st.floats(0.3, 0.95))
def test_plan_stays_within_budget_with_updates(case: Any, share: float) -> None:
    graph, args = case
    stored = tc.replay(tc.plan(graph)).peak_bytes
    try:
        schedule = tc.plan(graph, budget=int(stored * share), time_limit=0.2)
    except tc.BudgetError:
        return
    trace = tc.replay(schedule)
    assert trace.peak_bytes <= stored * share
    assert tc.run(schedule, *args).trace == trace


@settings(max_examples=examples(30))
@given(graphs_with_updates(), st.sampled_from(["store_all", "recompute_all", "sqrt_n"]), st.data())
def test_mutated_schedule_is_refused_or_updates_equally(case: Any, policy: str, data: Any) -> None:
    graph, args = case
    schedule = tc.plan(graph, policy)
    expected, _ = execute(schedule, sources_for(graph, args))
    steps = list(schedule.steps)
    updates = [place for place, step in enumerate(steps) if isinstance(step, tc.Update)]
    for _ in range(10):
        mutated = list(steps)
        place = data.draw(st.sampled_from(updates))
        other = data.draw(st.integers(0, len(steps) - 1))
        kind = data.draw(st.sampled_from(["move", "duplicate", "delete", "compute", "again"]))
        if kind == "move":
            mutated.insert(other, mutated.pop(place))
        elif kind == "duplicate":
            mutated.insert(other, mutated[place])
        elif kind == "delete":
            del mutated[place]
        elif kind == "compute":
            mutated[place] = tc.Compute(mutated[place].operator)
        else:
            mutated[place] = tc.Update(data.draw(st.integers(0, len(graph.operators) - 1)))
        changed = tc.Schedule(graph, tuple(mutated), "mutant")
        try:
            trace = tc.replay(changed)
        except tc.ScheduleError:
            with pytest.raises(tc.ScheduleError):
                execute(changed, sources_for(graph, args))
            continue
        values, measured = execute(changed, sources_for(graph, args))
        assert measured == trace
        for value in expected:
            np.testing.assert_array_equal(values[value], expected[value], strict=True)


def test_error_names_the_read_after_an_update() -> None:
    graph = of_one_weight()
    schedule = tc.plan(graph)
    names = {operator.name: operator.id for operator in graph.operators}
    update, late = tc.Update(names["update_w"]), tc.Compute(names["index_1"])
    early = tuple(step for step in schedule.steps if step != update)
    position = early.index(late)
    mutated = tc.Schedule(graph, (*early[:position], update, *early[position:]), "mine")
    with pytest.raises(tc.ScheduleError) as caught:
        tc.replay(mutated)
    assert str(caught.value) == (
        f"step {position + 1}: compute index_1 needs w as it was before its update at step "
        f"{position}"
    )
    # A view of the old value is as old as that.
    last = tc.Compute(names["multiply_3"])
    early = tuple(step for step in schedule.steps if step != update)
    position = early.index(last)
    mutated = tc.Schedule(graph, (*early[:position], update, *early[position:]), "mine")
    with pytest.raises(tc.ScheduleError, match="needs index_1, a view of w as it was before"):
        tc.replay(mutated)
    with pytest.raises(tc.ScheduleError, match=f"index_1 was updated at step {position}"):
        execute(mutated, {0: np.ones(4), 1: np.ones(4)})


@pytest.mark.parametrize("view", [False, True])
def test_update_reading_after_another_update_is_refused(view: bool) -> None:
    def shift(a: Any, b: Any, c: Any) -> Any:
        return tc.assign(a, tc.reshape(b, (2,)) if view else b), tc.assign(b, c)

    graph = tc.build(shift, tc.Spec(2), tc.Spec((2, 1)[: 1 + view]), tc.Spec((2, 1)[: 1 + view]))
    names = {operator.name: operator.id for operator in graph.operators}
    views = [tc.Compute(index) for name, index in names.items() if "update" not in name]
    updates = [tc.Update(names["update_b"]), tc.Update(names["update_a"])]
    early = tc.Schedule(graph, (*views, *updates), "mine")
    with pytest.raises(tc.ScheduleError, match="as it was before its update"):
        tc.replay(early)
    sources = {data: np.zeros(graph.data[data].spec.shape) for data in leaves(graph.arguments)}
    with pytest.raises(tc.ScheduleError, match=r"update_a needs .* as it was before"):
        execute(early, sources)


def test_swap_in_place_is_refused() -> None:
    graph = tc.build(lambda a, b: (tc.assign(a, b), tc.assign(b, a)), tc.Spec(2), tc.Spec(2))
    with pytest.raises(tc.ScheduleError, match="update_b needs a as it was before its update"):
        tc.run(tc.plan(graph), np.zeros(2), np.ones(2))


def test_update_and_compute_steps_are_not_interchangeable() -> None:
    graph = of_one_weight()
    update = next(operator.id for operator in graph.operators if operator.is_update)
    with pytest.raises(tc.ScheduleError, match="step 0: compute update_w; update it"):
        tc.replay(tc.Schedule(graph, (tc.Compute(update),), "mine"))
    with pytest.raises(tc.ScheduleError, match="step 0: update multiply_1; compute it"):
        tc.replay(tc.Schedule(graph, (tc.Update(0),), "mine"))
    with pytest.raises(tc.ScheduleError, match="operator 99 does not exist"):
        tc.Schedule(graph, (tc.Update(99),), "mine")


def test_run_does_not_modify_the_callers_arrays() -> None:
    graph = of_one_weight()
    w, x = np.ones(4), np.ones(4)
    (new, total) = tc.run(tc.plan(graph), w, x).value
    assert (w.tolist(), new.tolist(), float(total)) == ([1.0] * 4, [0.5] * 4, 4.0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda w: tc.assign(w * 2.0, w), "assign: multiply_1 is not an argument of the function"),
        (lambda w: tc.assign(w, tc.sum(w)), r"float64\[4\] cannot be assigned float64\[\]"),
        (lambda w: [tc.assign(w, w * 2.0), tc.assign(w, w * 3.0)], "assign: w is updated already"),
    ],
)
def test_illegal_assignments_are_refused(function: Any, message: str) -> None:
    with pytest.raises(tc.GraphError, match=message):
        tc.build(function, tc.Spec(4))


def test_result_that_is_a_view_of_the_old_value_is_refused() -> None:
    graph = tc.build(lambda w: (tc.assign(w, w * 2.0), w), tc.Spec(4))
    with pytest.raises(tc.ScheduleError, match="the result w shows a source that is updated"):
        tc.replay(tc.plan(graph))
    with pytest.raises(tc.ScheduleError, match="ends without w"):
        execute(tc.plan(graph), {0: np.ones(4)})


def test_saved_documents_preserve_updates(tmp_path: Any) -> None:
    schedule = tc.plan(of_one_weight())
    tc.save_schedule(schedule, tmp_path / "s.json")
    loaded = tc.load_schedule(tmp_path / "s.json")
    assert loaded.steps == schedule.steps
    assert tc.replay(loaded).live_bytes == tc.replay(schedule).live_bytes


def test_weight_decay_applies_if_the_gradient_is_a_transpose() -> None:
    def loss(w: Any, x: Any) -> Any:
        return tc.half_squared_norm(x @ tc.transpose(w))

    x, w = np.full((2, 3), 2.0), np.full((4, 3), 5.0)
    step = tc.train_step(loss, tc.adamw(0.5, weight_decay=0.25))
    state, _ = step(step.init(w), x)
    # 5 (1 - 0.5 * 0.25), and 0.5 for the sign of the gradient.
    np.testing.assert_allclose(state["parameters"], 3.875, rtol=1e-8)
