"""Stage partitioning: optimality by brute force, and the graphs of stages."""

import tracemalloc
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.random_dags import training_graphs
from tinyckpt.base.errors import BudgetError, GraphError, OptionError
from tinyckpt.base.tree import leaves
from tinyckpt.pipeline import one_f_one_b, partition, plan_stages, run_pipeline, stages_of
from tinyckpt.pipeline.partition import (
    bytes_by_operator,
    cost_by_operator,
    stage_of_operators,
)
from tinyckpt.planner.model.cost_models import custom


@given(training_graphs(largest=5), st.integers(1, 4), st.data())
def test_partition_is_bottleneck_optimal_by_brute_force(
    drawn: tuple[tc.TrainingGraph, Any], stages: int, data: st.DataObject
) -> None:
    graph, _ = drawn
    count = graph.forward_count
    stages = min(stages, count)
    numbers = data.draw(
        st.lists(st.integers(0, 9), min_size=len(graph.operators), max_size=len(graph.operators))
    )
    scale = data.draw(st.sampled_from([1, 3, 7e9]))
    costs = custom(graph, [number / scale for number in numbers])
    flight = sorted(data.draw(st.lists(st.integers(0, 4), min_size=stages, max_size=stages)))[::-1]
    in_flight = data.draw(st.sampled_from([None, flight]))
    flight = flight if in_flight else list(range(stages, 0, -1))
    spent = np.append(0, np.cumsum(cost_by_operator(graph, costs)))
    parameters, saved = bytes_by_operator(graph)

    def dearest(cuts: tuple[int, ...]) -> float:
        ends = [0, *cuts, count]
        return max(spent[end] - spent[begin] for begin, end in pairwise(ends))

    def largest(cuts: tuple[int, ...]) -> int:
        ends = [0, *cuts, count]
        return max(
            int(parameters[end] - parameters[begin] + flight[k] * (saved[end] - saved[begin]))
            for k, (begin, end) in enumerate(pairwise(ends))
        )

    every = list(combinations(range(1, count), stages - 1))
    cap = data.draw(st.sampled_from([None, *sorted({largest(cuts) for cuts in every})[:4]]))
    fitting = [cuts for cuts in every if cap is None or largest(cuts) <= cap]
    found = partition(graph, stages, costs=costs, cap=cap, in_flight=in_flight)
    assert found in fitting
    assert dearest(found) == pytest.approx(min(map(dearest, fitting)), rel=1e-15)
    least = min(map(largest, every))
    with pytest.raises(BudgetError, match="are feasible, or use more stages, or") as caught:
        partition(graph, stages, costs=costs, cap=least - 1, in_flight=in_flight)
    assert (caught.value.smallest, caught.value.proven) == (least, True)


@pytest.mark.long
def test_partition_memory_is_linear_in_operators_and_stages() -> None:
    graph = tc.networks.chain(1500)
    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        assert partition(graph, 1500, cap=10**12) == tuple(range(1, 1500))
        assert tracemalloc.get_traced_memory()[1] - begin < 1000 * 3000
    finally:
        tracemalloc.stop()


@given(training_graphs(largest=8), st.data())
def test_backward_values_flow_towards_the_first_stage(
    drawn: tuple[tc.TrainingGraph, Any], data: st.DataObject
) -> None:
    graph, _ = drawn
    cuts = data.draw(st.sets(st.integers(1, max(1, graph.forward_count - 1)), max_size=3))
    cuts = sorted(cut for cut in cuts if cut < graph.forward_count)
    place = stage_of_operators(graph, cuts)
    for operator in graph.operators[graph.forward_count :]:
        for value in operator.inputs:
            producer = graph.data[value].producer
            if producer is not None and producer >= graph.forward_count:
                assert place[producer] >= place[operator.id]
    stages = stages_of(graph, cuts)
    assert sum(len(s.graph.operators) - (s.exchange is not None) for s in stages) == len(
        graph.operators
    )
    assert sorted(value for stage in stages for value in stage.outputs) == sorted(graph.outputs)
    for first, second in pairwise(stages):
        assert first.gives == second.takes
        assert second.gives_back == first.takes_back
    for stage in stages:
        for policy in ("store_all", "recompute_all", "sqrt_n"):
            tc.replay(tc.plan(stage.graph, policy))


def test_stage_is_a_training_graph() -> None:
    graph = tc.networks.chain(4)
    first, second = stages_of(graph, [2])
    assert str(first.graph).splitlines()[1:] == [
        "  f1 = tanh(x)   float64[8,8]",
        "  f2 = tanh(f1)   float64[8,8]",
        "  b3 = exchange(f2)   float64[8,8]",
        "backward:",
        "  b2 = tanh_vjp(f2, b3)   float64[8,8]",
        "  b1 = tanh_vjp(f1, b2)   float64[8,8]",
    ]
    assert [operator.name for operator in second.graph.operators] == ["f3", "f4", "l", "b4", "b3"]
    assert partition(tc.networks.chain(8), 3) == (3, 6)


def test_gradient_of_later_stage_passes_through_earlier_ones() -> None:
    def loss(params: Any) -> Any:
        h = tc.tanh(params[0])
        early = tc.sin(tc.cos(h))
        late = tc.exp(params[1] + h)
        return tc.sum(late * late) + tc.sum(tc.exp(early))

    params = [np.full(3, 0.5), np.full(3, 0.2)]
    graph = tc.differentiate(tc.build(loss, params))
    stages = plan_stages(stages_of(graph, list(range(1, graph.forward_count))))
    outputs = set(graph.outputs)
    passing = [own.stage for own in stages
               if outputs & set(own.stage.takes_back) & set(own.stage.gives_back)]  # fmt: skip
    assert passing
    result = run_pipeline(one_f_one_b(len(stages), 1), stages, [(params,)])
    expected = tc.run(tc.plan(graph), params).gradients
    assert all(map(np.array_equal, leaves(result.gradients), leaves(expected)))


@pytest.mark.long
def test_long_chain_is_cut_into_balanced_stages() -> None:
    graph = tc.networks.chain(20_000)
    cuts = partition(graph, 64)
    sizes = np.diff([0, *cuts, graph.forward_count])
    # 40,001 operators in 64 stages; a forward operator with its adjoint are two.
    assert len(cuts) == 63
    assert 2 * sizes.max() <= -(-40_001 // 64) + 2


def test_partition_refuses_illegal_arguments() -> None:
    graph = tc.networks.chain(3)
    with pytest.raises(OptionError, match="it can be cut into 1 to 3 stages"):
        partition(graph, 5)
    with pytest.raises(OptionError, match="in_flight has 1 numbers; there are 2 stages"):
        partition(graph, 2, in_flight=[1])
    forward = tc.build(lambda x: tc.sum(x), tc.Spec(3))
    with pytest.raises(GraphError, match="a graph with a backward pass and no updates"):
        partition(tc.TrainingGraph(forward), 1)


@pytest.mark.parametrize("cuts", [(6, 3), (0, 3), (3, 3), (3, 99), (2.5,), ("3",)])
def test_illegal_cuts_and_empty_stages_are_refused(cuts: Any) -> None:
    with pytest.raises(OptionError, match=r"they ascend, from 1 to 7 in chain:8"):
        stages_of(tc.networks.chain(8), cuts)


@pytest.mark.parametrize("in_flight", [(1, 2), (2, -1), (2, float("nan"))])
def test_increasing_in_flight_is_refused(in_flight: Any) -> None:
    with pytest.raises(OptionError, match="it must not increase from stage to stage"):
        partition(tc.networks.chain(8), 2, in_flight=in_flight)


def test_loaded_graph_without_constants_is_cut(tmp_path: Any) -> None:
    tc.save_graph(tc.networks.chain(8), tmp_path / "chain.json")
    loaded = tc.load_graph(tmp_path / "chain.json")
    assert len(stages_of(tc.TrainingGraph(loaded), (4,))) == 2
