"""Non-recomputable operators: marked, evaluated once by every policy, kept in documents."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs, with_once
from tests.tinyckpt.core.test_schedule_mutations import mutant
from tinyckpt.base.tree import leaves
from tinyckpt.core.execute import execute
from tinyckpt.planner.heuristics.dtr import HEURISTICS
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.portfolio.policies import POLICIES

SEARCHING = ("optimal",)  # needs a solver, and its time


def marked(x: Any) -> Any:
    h = tc.sin(tc.once(tc.tanh(x)))
    return tc.half_squared_norm(tc.sin(h))


GRAPH = tc.differentiate(tc.build(marked, tc.Spec(4)))
NAMES = {operator.name: operator.id for operator in GRAPH.operators}
X = np.linspace(-1.0, 1.0, 4)


def schedule_of(text: str) -> tc.Schedule:
    """Return the schedule of words such as ``tanh_1 -tanh_1``: compute, and with a minus free."""
    values = {node.name: node.id for node in GRAPH.data}
    steps = [
        tc.Free(values[word[1:]]) if word.startswith("-") else tc.Compute(NAMES[word])
        for word in text.split()
    ]
    return tc.Schedule(GRAPH, tuple(steps), "by hand")


def test_once_marks_the_producer_of_a_value() -> None:
    assert [operator.name for operator in GRAPH.operators if operator.once] == ["tanh_1"]
    assert GRAPH.once == (NAMES["tanh_1"],)
    # Outside of a build a mark does nothing; a source is there anyway.
    assert tc.once(X) is X
    assert tc.build(lambda x: tc.sin(tc.once(x)), tc.Spec(4)).once == ()


def test_second_evaluation_is_refused_by_replay_and_execute() -> None:
    again = schedule_of("tanh_1 -tanh_1 tanh_1")
    message = "step 2: compute tanh_1, which may not be evaluated twice and was at step 0; keep its"
    with pytest.raises(tc.ScheduleError, match=message):
        tc.replay(again)
    with pytest.raises(tc.ScheduleError, match="tanh_1 may not be evaluated twice"):
        execute(again, {0: X})
    with pytest.raises(tc.ScheduleError, match="tanh_1 may not be evaluated twice"):
        tc.run(again, X)
    with pytest.raises(tc.ScheduleError, match=message):
        tc.compile(again)
    # Nothing is carried over from one run to the next.
    stored = tc.plan(GRAPH)
    assert tc.run(stored, X).trace == tc.run(stored, X).trace == tc.replay(stored)


def test_documents_preserve_non_recomputable_marks(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    tc.save_graph(GRAPH, path)
    text = path.read_text(encoding="utf-8")
    assert text.count('"once"') == 1
    assert tc.load_graph(path).once == GRAPH.once
    tc.save_schedule(tc.plan(GRAPH), tmp_path / "schedule.json")
    assert tc.load_schedule(tmp_path / "schedule.json", GRAPH) == tc.plan(GRAPH)
    with pytest.raises(tc.FormatError, match="for another graph"):
        tc.load_schedule(
            tmp_path / "schedule.json",
            tc.differentiate(
                tc.build(lambda x: tc.half_squared_norm(tc.sin(tc.sin(tc.tanh(x)))), tc.Spec(4))
            ),
        )
    path.write_text(text.replace('"once": true', '"once": 1'), encoding="utf-8")
    with pytest.raises(tc.FormatError, match=r"operators\[0\].once: got int, which is not legal"):
        tc.load_graph(path)


def options_of(name: str) -> list[dict[str, Any]]:
    """Return options with which a policy is asked."""
    if name == "dtr":
        return [{"heuristic": heuristic} for heuristic in HEURISTICS]
    return [{}]


@pytest.mark.long
@settings(max_examples=examples(6, least=2))
@given(training_graphs(), st.data())
def test_every_policy_evaluates_marked_operators_once(case: Any, data: Any) -> None:
    plain, args = case
    graph = data.draw(with_once(plain))
    expected = tc.run(tc.plan(plain), *args)
    for name in POLICIES:
        for options in options_of(name) if name not in SEARCHING else ():
            schedule = tc.plan(graph, name, **options)
            trace = tc.replay(schedule)
            result = tc.run(schedule, *args)
            assert result.trace == trace, name
            for ours, theirs in zip(
                leaves((result.value, result.gradients)),
                leaves((expected.value, expected.gradients)),
                strict=True,
            ):
                np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.long
@settings(max_examples=examples(10, least=2))
@given(st.one_of(training_graphs().map(lambda case: case[0]), graphs_of_views()), st.data())
def test_budgets_and_lower_bounds_hold_with_marked_operators(plain: Any, data: Any) -> None:
    graph = data.draw(with_once(plain))
    costs = tc.cost.flops(graph) if data.draw(st.booleans()) else tc.cost.evaluations(graph)
    share = data.draw(st.floats(0.3, 1.0))
    budget = int(share * tc.replay(tc.plan(graph)).peak_bytes)
    bound = tc.lower_bound(graph, budget, costs)
    assert bound >= tc.lower_bound(plain, budget, costs)
    for name in (None, "greedy", "dtr", "rotor", "revolve", "chen_budget"):
        try:
            schedule = tc.plan(graph, name, budget=budget, costs=costs)
        except tc.BudgetError:
            continue
        assert tc.replay(schedule).peak_bytes <= budget
        assert tc.cost.cost_of(schedule, costs) >= bound


@settings(max_examples=examples(60))
@given(training_graphs(), st.data())
def test_any_order_is_lowered_with_marked_operators_once(case: Any, data: Any) -> None:
    graph = data.draw(with_once(case[0]))
    order = list(range(len(graph.operators)))
    for _ in range(data.draw(st.integers(0, 12))):
        place = data.draw(st.integers(0, len(order) - 1))
        order.insert(data.draw(st.integers(place, len(order))), order[place])
    schedule = tc.from_order(graph, order)
    problem = Problem(graph, tc.cost.evaluations(graph))
    assert problem.peak(order) == tc.replay(schedule).peak_bytes
    assert problem.cost_of(order) == tc.replay(schedule).evaluations


def test_certificate_and_explanation_count_pinned_values() -> None:
    plain = tc.networks.chain(6)
    marked = [replace(o, once=o.name in ("f1", "f4")) for o in plain.operators]
    graph = replace(plain, operators=tuple(marked))
    schedule = tc.plan(graph, budget="5 nodes")
    assert str(schedule.certificate) == (
        "optimal: no schedule within 5 nodes costs less than 16 evaluations; 2 operators may not "
        "be evaluated twice"
    )
    reasons = {value.name: value.reason for value in tc.explain(schedule).residuals}
    assert reasons["f1"] == "kept for b1, as a checkpoint; f1 may not be evaluated twice"
    assert reasons["f6"] == "kept for l"
    with pytest.raises(tc.BudgetError, match="is 5 nodes, which is proven to be the smallest"):
        tc.plan(graph, budget="4 nodes")
    least = tc.plan(graph, "recompute_all")
    assert least.note == "4 recomputations, nothing kept but what may not be evaluated twice"


@settings(max_examples=examples(20))
@given(training_graphs(), st.data())
def test_mutant_is_refused_by_both_replay_and_execute_or_neither(case: Any, data: Any) -> None:
    plain, args = case
    graph = data.draw(with_once(plain))
    sources = dict(zip(leaves(graph.arguments), leaves(args), strict=True))
    steps = tc.plan(plain, data.draw(st.sampled_from(("recompute_all", "sqrt_n")))).steps
    for changed in (steps, *(mutant(graph, steps, data.draw) for _ in range(10))):
        schedule = tc.Schedule(graph, changed, "mutant")
        try:
            trace = tc.replay(schedule)
        except tc.ScheduleError:
            with pytest.raises(tc.ScheduleError):
                execute(schedule, sources)
        else:
            assert execute(schedule, sources)[1] == trace
