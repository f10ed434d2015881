"""A* search with a host: makespans against exhaustive search, other heuristics and closed forms."""

from fractions import Fraction
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import PROFILE, examples
from tests.tinyckpt.planner.exact.exhaustive_search import exhaustive
from tests.tinyckpt.planner.exact.test_optimal import abstract_graphs
from tests.tinyckpt.planner.offload.event_machine import Ticking
from tinyckpt.core.costs import Costs
from tinyckpt.planner.exact import offload_astar as hosted
from tinyckpt.planner.exact.offload_astar import NO_COPY, Front, OffloadSearch
from tinyckpt.planner.exact.stage_astar import SearchLimitError
from tinyckpt.planner.model.cost_models import custom
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget
from tinyckpt.planner.model.makespan_bound import host_bound

BYTES = 512
# Of three layers states are many: seconds each.
BANDWIDTHS = [64, 128, 170, 256, 512, 1024, inf]
CHAINS = range(1, 7) if PROFILE == "deep" else range(1, 5)
MUTATED = [(4, 256, 4), (6, 170, 4)]
if PROFILE == "deep":  # up to minutes each
    MUTATED += [(5, 256, 4), (8, 512, 5)]
COPIES = (tc.Offload, tc.Fetch)
LONGER = [(256, 1), *([(100, 2), (341, 1), (512, 2)] if PROFILE == "deep" else [])]


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("bandwidth", [0, 100, 256, 341, 512, 700, inf])
@pytest.mark.parametrize(("n", "nodes"), [(1, 3), (2, 2), (2, 3)])
def test_offload_astar_equals_exhaustive_search(
    n: int, nodes: int, bandwidth: float, engines: int
) -> None:
    check_against_all(n, nodes, bandwidth, engines)


@pytest.mark.nightly
@pytest.mark.parametrize(("bandwidth", "engines"), LONGER)
def test_offload_astar_equals_exhaustive_search_on_three_layers(
    bandwidth: float, engines: int
) -> None:
    check_against_all(3, 3, bandwidth, engines)


def check_against_all(n: int, nodes: int, bandwidth: float, engines: int) -> None:
    """Compare the search on a chain with exhaustion."""
    graph = tc.networks.chain(n)
    costs, link = tc.cost.evaluations(graph), tc.Link(bandwidth, engines=engines)
    found = OffloadSearch(graph, costs, link, nodes * BYTES).cheapest(10**5)
    expected = exhaustive(graph, costs, link, nodes * BYTES, inf)
    assert (found and found[0]) == expected
    if found is not None:
        check(graph, costs, link, nodes * BYTES, found)


def check(graph: tc.Graph, costs: Costs, link: tc.Link, budget: int, found: Any) -> None:
    """Check the steps of a result against the simulator, the event machine and the lower bound."""
    schedule = tc.Schedule(graph, tuple(found[1]), "searched")
    line = tc.timed(schedule, link, costs, budget=budget)
    assert line.makespan == found[0]
    assert line.peak_bytes <= budget
    ticks = [
        Fraction(costs.operators[step.operator])
        if isinstance(step, tc.Compute)
        else link.duration(graph.data[step.data].spec.nbytes if isinstance(step, COPIES) else 0)
        for step in schedule.steps
    ]
    machine = Ticking(tc.replay(schedule), ticks, link.engines, budget)
    machine.run()
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, tc.Free):
            assert line.begin[position] == machine.begun[position], position
    assert host_bound(graph, costs, link, budget) <= found[0]


@settings(max_examples=examples(15))
@given(
    st.lists(st.integers(0, 4), min_size=5, max_size=5),
    st.sampled_from((0, 100, 256, 512, inf)),
    st.sampled_from((0, Fraction(1, 2))),
    st.integers(1, 2),
    st.integers(3, 4),
    st.sampled_from((inf, BYTES, 0)),
)
def test_offload_astar_with_unequal_costs_equals_exhaustive_search(
    durations: list[int], bandwidth: Any, latency: Any, engines: int, nodes: int, host: float
) -> None:
    graph = tc.networks.chain(2)
    costs, link = custom(graph, durations), tc.Link(bandwidth, latency, engines)
    found = OffloadSearch(graph, costs, link, nodes * BYTES, host).cheapest(10**5)
    assert found is not None
    assert found[0] == exhaustive(graph, costs, link, nodes * BYTES, host)
    check(graph, costs, link, nodes * BYTES, found)
    trace = tc.replay(tc.Schedule(graph, tuple(found[1]), "searched"))
    assert max(trace.host) <= host


@pytest.mark.parametrize("bandwidth", [1e-30, 1e30])
def test_plan_with_extreme_bandwidth_is_found_without_the_search(bandwidth: float) -> None:
    # Ticks, the common unit of all times, are too many for it.
    graph = tc.networks.chain(4)
    costs, link = tc.cost.evaluations(graph), tc.Link(bandwidth)
    with pytest.raises(SearchLimitError):
        OffloadSearch(graph, costs, link, 4 * BYTES).cheapest(10**5)
    schedule = tc.plan_with_host(graph, link, budget=4 * BYTES, costs=costs)
    assert tc.replay(schedule).peak_bytes <= 4 * BYTES


@pytest.mark.nightly
def test_offload_astar_frees_value_to_avoid_waiting_for_copy() -> None:
    # One value fewer on the device, and no evaluation waits for what is on its way: 13, not 14.
    graph = tc.networks.chain(5)
    costs, link, budget = tc.cost.evaluations(graph), tc.Link(256, engines=1), 4 * BYTES
    found = OffloadSearch(graph, costs, link, budget).cheapest()
    assert found is not None
    assert found[0] == exhaustive(graph, costs, link, budget, inf, found[0], in_class=True) == 13
    check(graph, costs, link, budget, found)


def without_zeros(case: Any) -> tuple[tc.Graph, Costs]:
    """Return a drawn graph with costs of at least 1: free steps could repeat without end."""
    graph, costs = case
    return graph, custom(graph, [max(1, cost) for cost in costs.operators])


@settings(max_examples=examples(25))
@given(
    abstract_graphs(5),
    st.sampled_from((0, Fraction(1, 2), 1, 3, inf)),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 6),
    st.sampled_from((inf, 4)),
)
def test_offload_astar_equals_exhaustive_search_on_random_graphs(
    case: Any, bandwidth: Any, latency: int, engines: int, more: int, host: float
) -> None:
    graph, costs = without_zeros(case)
    link = tc.Link(bandwidth, latency, engines)
    budget = smallest_budget(Problem(graph, costs)) + more
    found = OffloadSearch(graph, costs, link, budget, host).cheapest()
    most = found[0] if found else 3 * sum(costs.operators)
    expected = exhaustive(graph, costs, link, budget, host, most, in_class=True)
    assert (found and found[0]) == expected
    if found is not None:
        check(graph, costs, link, budget, found)


@settings(max_examples=examples(15))
@given(
    abstract_graphs(3),
    st.sampled_from((0, Fraction(1, 2), 1, 3, inf)),
    st.integers(1, 2),
    st.integers(0, 4),
    st.sampled_from((inf, 4)),
)
def test_host_bound_never_exceeds_any_makespan(
    case: Any, bandwidth: Any, engines: int, more: int, host: float
) -> None:
    graph, costs = without_zeros(case)
    link = tc.Link(bandwidth, engines=engines)
    budget = smallest_budget(Problem(graph, costs)) + more
    bound = host_bound(graph, costs, link, budget, host)
    if bound < inf:
        faster = exhaustive(graph, costs, link, budget, host, ceil(bound) - Fraction(1, 8))
        assert faster is None or faster >= bound


class NothingRemains(dict[tuple[int, int], Front]):
    """The zero heuristic, with which A* becomes Dijkstra's algorithm."""

    def get(self, key: tuple[int, int], default: Any = None) -> Front:
        return [(0, NO_COPY)]


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("latency", [0, 1])
@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_offload_astar_agrees_with_dijkstra_and_unpruned_search(
    bandwidth: float, engines: int, latency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With what is left to go as a guide; without; and with copies handed over at any time.
    link = tc.Link(bandwidth, latency, engines)
    for n in CHAINS:
        graph = tc.networks.chain(n)
        costs = tc.cost.evaluations(graph)
        for nodes in range(3, n + 3):
            searches = [OffloadSearch(graph, costs, link, nodes * BYTES) for _ in range(3)]
            searches[2].has_room = False
            best = [searches[0].cheapest(), searches[2].cheapest()]
            with monkeypatch.context() as patch:
                patch.setattr(hosted, "fronts", lambda *_: NothingRemains())
                best.append(searches[1].cheapest())
            spans = {way[0] for way in best if way is not None}
            assert len(spans) == 1, (n, nodes, spans)
            for way in best:
                check(graph, costs, link, nodes * BYTES, way)


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize(("n", "bandwidth", "nodes"), MUTATED)
def test_no_mutation_of_optimal_schedule_is_faster(
    n: int, bandwidth: float, nodes: int, engines: int
) -> None:
    # A step less, two steps swapped, or one of them anywhere else: illegal, or not faster.
    graph = tc.networks.chain(n)
    costs, link = tc.cost.evaluations(graph), tc.Link(bandwidth, engines=engines)
    found = OffloadSearch(graph, costs, link, nodes * BYTES).cheapest()
    assert found is not None
    makespan, steps = found
    legal = 0
    for place, step in enumerate(steps):
        rest = [*steps[:place], *steps[place + 1 :]]
        others = [rest, *([*rest[:at], step, *rest[at:]] for at in range(len(steps)))]
        for mutant in others:
            try:
                line = tc.timed(
                    tc.Schedule(graph, tuple(mutant), "mutant"), link, costs, budget=nodes * BYTES
                )
            except (tc.ScheduleError, tc.BudgetError):
                continue
            legal += 1
            assert line.makespan >= makespan, (place, step)
    assert legal > len(steps)
