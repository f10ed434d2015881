"""Working sets of operators: the vectorised computation equals the definition per operator."""

from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, with_once
from tinyckpt.core.costs import flops
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import needed_operators, smallest_budget
from tinyckpt.planner.model.non_recomputable import PinnedLiveness


@settings(max_examples=examples(50))
@given(st.data())
def test_working_set_counts_each_storage_of_operands_and_workspace_once(
    data: st.DataObject,
) -> None:
    graph: tc.Graph = data.draw(graphs_of_views())
    graph, nodes = data.draw(with_once(graph)), data.draw(st.booleans())
    costs = in_nodes(flops(graph)) if nodes else flops(graph)
    problem = Problem(graph, costs)
    needs = problem.needs().tolist()
    for operator in graph.operators:
        blocks = {problem.root[value] for value in (*operator.inputs, *operator.outputs)}
        held = sum(costs.data[block] for block in blocks if not graph.data[block].is_source)
        assert needs[operator.id] == held + costs.workspace[operator.id]
    needed = needed_operators(graph)
    results = {problem.root[value] for value in graph.outputs}
    at_end = sum(costs.data[block] for block in results if not graph.data[block].is_source)
    beside = PinnedLiveness(problem, needed)
    assert smallest_budget(problem) == max(at_end, *(beside.need(i) for i in needed))
