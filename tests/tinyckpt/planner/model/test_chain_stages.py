"""Chain stages: they partition any graph, cuts carry the crossing values, chain plans are legal."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.core.costs import evaluations
from tinyckpt.planner.chain_dp.chen_recursive import recursive_actions
from tinyckpt.planner.chain_dp.reversal import StageAction, order_of, schedule_of
from tinyckpt.planner.chain_dp.revolve import reversal
from tinyckpt.planner.model.chain_cuts import crossing_weights, local_minimum_cuts, residual_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import FlatGraph
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations


def crossing(graph: tc.Graph, end: int) -> set[int]:
    """Return the values that cross a cut, by definition."""
    return {
        data
        for operator in graph.operators[: end + 1]
        for data in operator.outputs
        if any(end < reader < graph.forward_count for reader in graph.consumers[data])
    }


@pytest.mark.long
@settings(max_examples=examples(150))
@given(training_graphs(), st.data())
def test_stages_partition_any_graph(case: Any, data: Any) -> None:
    graph, _ = case
    places = st.integers(0, max(graph.forward_count - 2, 0))
    cuts = data.draw(st.sets(places, max_size=8)) if graph.forward_count > 1 else set()
    parts = stages(FlatGraph(graph), cuts)
    assert [i for part in parts for i in part.forward] == list(range(graph.forward_count))
    backward = sorted(i for part in parts for i in part.backward)
    assert backward == list(range(graph.forward_count, len(graph.operators)))
    for part in parts[:-1]:
        if part.forward[-1] < graph.forward_count - 1:
            assert set(part.cut) == crossing(graph, part.forward[-1])
    for index, part in enumerate(parts):
        assert set(part.advance) <= set(part.record) <= set(part.forward)
        assert not set(part.once) & set(part.advance)
        # A backward operator comes after those it reads from.
        for operator in part.backward:
            for value in graph.operators[operator].inputs:
                producer = graph.data[value].producer
                if producer is not None and producer >= graph.forward_count:
                    assert any(producer in later.backward for later in parts[index:])


@pytest.mark.long
@settings(max_examples=examples(150))
@given(training_graphs(), st.integers(1, 6), st.booleans(), st.booleans())
def test_chain_plans_are_legal_on_random_graphs(
    case: Any, setting: int, recursive: bool, useful: bool
) -> None:
    graph, arguments = case
    costs = evaluations(graph)
    cuts = (
        residual_cuts(FlatGraph(graph), costs, 6)
        if useful
        else local_minimum_cuts(FlatGraph(graph), costs)
    )
    parts = stages(FlatGraph(graph), cuts)
    make = recursive_actions if recursive else reversal
    actions = list(make(len(parts), setting))
    order = order_of(parts, actions)
    schedule = tc.from_order(graph, order)
    frugal = schedule_of(FlatGraph(graph), parts, actions, "order", {}, "")
    assert frugal.steps == tc.from_order(graph, eliminate_dead_recomputations(graph, order)).steps
    first = graph.forward_count
    assert sorted(i for i in order if i >= first) == list(range(first, len(graph.operators)))
    assert tc.run(schedule, *arguments, check_nan=False).trace == tc.replay(schedule)


def test_chain_stage_is_one_layer_with_the_previous_layers_backward() -> None:
    graph = tc.networks.chain(3)
    parts = stages(FlatGraph(graph), local_minimum_cuts(FlatGraph(graph), evaluations(graph)))
    names = [
        (
            [graph.operators[i].name for i in s.forward],
            [graph.operators[i].name for i in s.backward],
        )
        for s in parts
    ]
    assert names == [(["f1"], []), (["f2"], ["b1"]), (["f3"], ["b2"]), ([], ["l", "b3"])]


def test_u_net_is_cut_at_local_minima_of_crossing_memory() -> None:
    graph = tc.networks.branching(3, 8).graph()
    parts = stages(FlatGraph(graph), local_minimum_cuts(FlatGraph(graph), evaluations(graph)))
    crossing_names = [[graph.data[data].name for data in part.cut] for part in parts]
    assert ["tanh_1", "tanh_2"] in crossing_names
    assert ["tanh_1", "tanh_5"] in crossing_names


def test_revolve_actions_of_three_stages_in_two_slots() -> None:
    assert list(reversal(3, 2)) == [
        StageAction("keep", 0),
        StageAction("advance", 0, 1),
        StageAction("keep", 1),
        StageAction("advance", 1, 2),
        StageAction("back", 2),
        StageAction("back", 1),
        StageAction("back", 0),
    ]


def test_backward_operator_that_reads_a_shared_value_is_in_the_stage_of_its_cotangent() -> None:
    def layers(x: tc.Var, angle: tc.Var) -> tc.Var:
        turn = tc.cos(angle)  # read by each layer, forward and backward
        for _ in range(8):
            x = tc.tanh(tc.sin(x) * turn) + x
        return tc.sum(x)

    graph = tc.differentiate(tc.build(layers, tc.Spec((4, 4)), tc.Spec((4, 4))), wrt=0)
    flat = FlatGraph(graph)
    parts = stages(flat, local_minimum_cuts(flat, evaluations(graph)))
    assert [len(part.backward) for part in parts] == [0, 0, *[0, 4] * 7, 3, 1, 1]
    peak = tc.replay(tc.plan(graph)).peak_bytes
    for policy in ("rotor", "blocks"):
        assert tc.replay(tc.plan(graph, policy, budget=0.4)).peak_bytes <= 0.4 * peak


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 9))
def test_minima_over_a_longer_stretch_are_those_of_shorter_ones(
    weights: list[int], reach: int
) -> None:
    graph = tc.networks.chain(len(weights) + 1)
    costs = evaluations(graph)
    sizes = [*weights, *costs.data][: len(costs.data)]
    costs = replace(costs, data=tuple(sizes))
    flat = FlatGraph(graph)
    crossing_memory = crossing_weights(flat, costs).tolist()
    cuts = local_minimum_cuts(flat, costs, reach)
    for place, weight in enumerate(crossing_memory):
        near = crossing_memory[max(0, place - reach) : place + reach + 1]
        assert (place in cuts) == (weight == min(near))
