"""Lowering: the plain loop gives the steps of the vectorised analysis, and the same errors."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs, with_once
from tinyckpt.base import deadline
from tinyckpt.core import lowering
from tinyckpt.core.cuts import crossing_values
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.ops import non_recomputable, update_steps
from tinyckpt.planner.model.vectorised_lowering import lower, saved_values_of_order


@st.composite
def graphs_and_orders(draw: st.DrawFn) -> tuple[tc.Graph, list[int]]:
    """Generate a graph, and an order with repeats: each of an operator evaluated before."""
    made: Any = draw(st.one_of(training_graphs(), graphs_of_views(), graphs_with_updates()))
    graph: tc.Graph = made[0] if isinstance(made, tuple) else made
    if draw(st.booleans()):
        graph = draw(with_once(graph))
    order: list[int] = []
    for index in range(len(graph.operators)):
        order += draw(st.lists(st.integers(0, max(index - 1, 0)), max_size=2)) if index else []
        order.append(index)
    return graph, order


def outcome(lower_by: Any, graph: tc.Graph, order: list[int]) -> Any:
    """Return the steps of an order, or the text of the error."""
    try:
        return lower_by(graph, order).steps
    except tc.ScheduleError as error:
        return str(error)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(graphs_and_orders())
def test_plain_lowering_equals_vectorised_lowering(case: Any) -> None:
    graph, order = case
    assert outcome(tc.from_order, graph, order) == outcome(lower, graph, order)


@settings(max_examples=examples(100))
@given(graphs_and_orders())
def test_checkpoints_are_saved_values_that_others_are_recomputed_from(case: Any) -> None:
    graph, order = case
    try:
        schedule = lower(graph, order)
    except tc.ScheduleError:
        return
    evaluated = [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
    backward = [at for at, index in enumerate(evaluated) if index >= graph.forward_count]
    turn = backward[0] if backward else len(evaluated)
    made, late, origins = [], set[int](), set[int]()
    for at, index in enumerate(evaluated):
        operator = graph.operators[index]
        made += [(data, at) for data in operator.outputs]
        late |= set(operator.inputs) if at >= turn else set()
        origins |= set(operator.inputs) if index in evaluated[:at] else set()
    once = {data for data, times in Counter(data for data, _ in made).items() if times == 1}
    saved = {data for data, at in made if at < turn and data in once & late} - set(graph.outputs)
    assert set(saved_values_of_order(graph, order)) == saved
    assert set(schedule.checkpoints) == saved & origins


@pytest.mark.long
@settings(max_examples=examples(200))
@given(graphs_and_orders(), st.data())
def test_plain_lowering_refuses_damaged_orders_as_vectorised_lowering(case: Any, data: Any) -> None:
    graph, order = case
    damaged = [index for index in order if data.draw(st.integers(0, 5))]
    if data.draw(st.booleans()):
        damaged = data.draw(st.permutations(damaged))
    assert outcome(tc.from_order, graph, damaged) == outcome(lower, graph, damaged)


@pytest.mark.parametrize("wrong", [-1, 33, 10**12])
def test_lowering_refuses_unknown_operator(wrong: int) -> None:
    graph = tc.networks.chain(16)
    message = rf"order\[2\]: operator {wrong} does not exist; chain:16 has 0 to 32"
    for lower_by in (tc.from_order, lower):
        with pytest.raises(tc.ScheduleError, match=message):
            lower_by(graph, [0, 1, wrong])


@pytest.mark.parametrize(
    ("order", "match"),
    [
        (None, "order=None; expected the ids of operators"),
        ([0, 1.5], r"order\[1\]: operator 1\.5 does not exist"),
        (["f1"], r"order\[0\]: operator 'f1' does not exist"),
    ],
)
def test_lowering_refuses_what_are_no_ids(order: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        tc.from_order(tc.networks.chain(2), order)


def test_endless_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "MOST_EVALUATIONS", 1000)
    graph = tc.networks.chain(2)
    for lower_endless in (tc.from_order, lambda graph, order: tc.plan(graph, lambda _: order)):
        with pytest.raises(tc.ScheduleError, match="this order would be a schedule of about 1,001"):
            lower_endless(graph, itertools.repeat(0))


def test_crossing_values_of_skip_connection() -> None:
    def model(x: tc.Var) -> tc.Var:
        first = tc.sin(x)
        return tc.sum(tc.tanh(tc.cos(first)) * first)

    graph = tc.differentiate(tc.build(model, tc.Spec(3)))
    crossing = crossing_values(graph, [0, 1, 2])
    names = [[graph.data[data].name for data in values] for values in crossing]
    assert names == [["sin_1"], ["sin_1", "cos_1"], ["sin_1", "tanh_1"]]


def test_vectorised_lowering_knows_every_rule_that_makes_an_order_legal() -> None:
    # ``FlatGraph.settled`` does the same to arrays: whoever adds a rule adds it there.
    assert [non_recomputable.legal_order, update_steps.legal_order] == lowering.LEGALISERS
