"""The exact search with a host, against exhaustion over all steps there are, and closed forms."""

import heapq
from fractions import Fraction
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import PROFILE, examples
from tinyckpt.analysis.chains import fewest_evaluations
from tinyckpt.cost import Costs, custom
from tinyckpt.exact.hosted import HostSearch
from tinyckpt.planning.hosted import host_bound

BYTES = 512
# Of three layers states are many: seconds each.
LONGER = [(256, 1), *([(100, 2), (341, 1), (512, 2)] if PROFILE == "deep" else [])]


def exhaustive(graph: tc.Graph, costs: Costs, link: tc.Link, budget: int, host: float) -> Any:
    """Return the least makespan of all schedules, or None: every legal step, in every order.

    A state is what is where and, from the end of the last evaluation on, how long each line and
    each copy still takes. Nothing is left out, nothing is compared but equal states.
    """
    size = [node.spec.nbytes for node in graph.data]
    made = [node.id for node in graph.data if not node.is_source]
    lasts = {d: link.duration(size[d]) for d in made} if link.bandwidth else {}
    goal = set(graph.outputs)
    zero = Fraction(0)
    start = (frozenset(), frozenset(), zero, zero, frozenset(), frozenset())
    best: dict[Any, Fraction] = {start: zero}
    heap: list[Any] = [(zero, 0, start)]

    def room(begin: Fraction, held: int, leaving: Any) -> Fraction | None:
        for moment in sorted({begin, *(end for _, end in leaving if end > begin)}):
            if held + sum(size[d] for d, end in leaving if end > moment) <= budget:
                return moment
        return None

    def after(now: Fraction, state: Any) -> None:
        if now < best.get(state, inf):
            best[state] = now
            heapq.heappush(heap, (now, len(best), state))

    while heap:
        now, _, state = heapq.heappop(heap)
        if now > best[state]:
            continue
        device, waiting, out, back, leaving, arriving = state
        if goal <= device:
            return now
        held = sum(size[d] for d in device)
        ends = dict(arriving)
        for data in device:
            if data not in ends:
                after(now, (device - {data}, waiting, out, back, leaving, arriving))
            may_leave = lasts and data not in ends and data not in dict(leaving)
            if may_leave and sum(size[d] for d in waiting) + size[data] <= host:
                end = out + lasts[data]
                line = end if link.engines == 1 else back
                gone = leaving | {(data, end)} if end else leaving
                after(now, (device - {data}, waiting | {data}, end, line, gone, arriving))
        for data in waiting:
            begin = room(max(back, dict(leaving).get(data, zero)), held + size[data], leaving)
            if begin is not None:
                end = begin + lasts[data]
                line = end if link.engines == 1 else out
                come = arriving | {(data, end)} if end else arriving
                after(now, (device | {data}, waiting - {data}, line, end, leaving, come))
        for operator in graph.operators:
            reads = {d for d in operator.inputs if not graph.data[d].is_source}
            makes = set(operator.outputs)
            if not reads <= device or makes & (device | waiting):
                continue
            arrived = max([zero, *(ends[d] for d in reads if d in ends)])
            begin = room(arrived, held + sum(size[d] for d in makes), leaving)
            if begin is None:
                continue
            over = begin + Fraction(costs.operators[operator.id])
            rest = [
                frozenset((d, end - over) for d, end in copies if end > over)
                for copies in (leaving, arriving)
            ]
            lines = [max(zero, line - over) for line in (out, back)]
            after(now + over, (device | makes, waiting, *lines, *rest))
    return None


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("bandwidth", [0, 100, 256, 341, 512, 700, inf])
@pytest.mark.parametrize(("n", "nodes"), [(1, 3), (2, 2), (2, 3)])
def test_all_steps_in_all_orders(n: int, nodes: int, bandwidth: float, engines: int) -> None:
    check_against_all(n, nodes, bandwidth, engines)


@pytest.mark.parametrize(("bandwidth", "engines"), LONGER)
def test_all_steps_in_all_orders_of_three_layers(bandwidth: float, engines: int) -> None:
    check_against_all(3, 3, bandwidth, engines)


def check_against_all(n: int, nodes: int, bandwidth: float, engines: int) -> None:
    """Hold the search on a chain against exhaustion."""
    graph = tc.networks.chain(n)
    costs, link = tc.cost.evaluations(graph), tc.Link(bandwidth, engines=engines)
    found = HostSearch(graph, costs, link, nodes * BYTES).cheapest(10**5)
    expected = exhaustive(graph, costs, link, nodes * BYTES, inf)
    assert (found and found[0]) == expected
    if found is not None:
        check(graph, costs, link, nodes * BYTES, found)


def check(graph: tc.Graph, costs: Costs, link: tc.Link, budget: int, found: Any) -> None:
    """Hold what the search says of its steps against the clock, and against the bound."""
    schedule = tc.Schedule(graph, tuple(found[1]), "searched")
    line = tc.timed(schedule, link, costs, budget=budget)
    assert line.makespan == found[0]
    assert line.peak_bytes <= budget
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
def test_unequal_costs(
    durations: list[int], bandwidth: Any, latency: Any, engines: int, nodes: int, host: float
) -> None:
    graph = tc.networks.chain(2)
    costs, link = custom(graph, durations), tc.Link(bandwidth, latency, engines)
    found = HostSearch(graph, costs, link, nodes * BYTES, host).cheapest(10**5)
    assert found is not None
    assert found[0] == exhaustive(graph, costs, link, nodes * BYTES, host)
    check(graph, costs, link, nodes * BYTES, found)
    trace = tc.replay(tc.Schedule(graph, tuple(found[1]), "searched"))
    assert max(trace.host) <= host


@pytest.mark.parametrize("n", range(1, 9))
def test_without_bandwidth_it_is_revolve_and_with_all_of_it_nothing_is_recomputed(n: int) -> None:
    graph = tc.networks.chain(n)
    costs = tc.cost.evaluations(graph)
    for nodes in range(3, n + 3):
        budget = nodes * BYTES
        found = HostSearch(graph, costs, tc.Link(0), budget).cheapest(10**5)
        assert found is not None
        assert found[0] == fewest_evaluations(n, nodes)
        for engines in (1, 2):
            link = tc.Link(inf, engines=engines)
            found = HostSearch(graph, costs, link, budget).cheapest(10**5)
            assert found is not None
            assert found[0] == 2 * n + 1
            check(graph, costs, link, budget, found)


@pytest.mark.parametrize("n", [4, 5])
def test_makespans_fall_with_budget_and_with_bandwidth(n: int) -> None:
    graph = tc.networks.chain(n)
    costs = tc.cost.evaluations(graph)
    before = [inf] * n
    for bandwidth in (0, 128, 256, 512, 1024, inf):
        link = tc.Link(bandwidth)
        found = [
            HostSearch(graph, costs, link, nodes * BYTES).cheapest(10**5)
            for nodes in range(3, n + 3)
        ]
        spans = [best[0] for best in found if best is not None]
        assert spans == sorted(spans, reverse=True)
        assert all(own <= earlier for own, earlier in zip(spans, before, strict=True))
        before = spans
        for nodes, best in enumerate(found, 3):
            check(graph, costs, link, nodes * BYTES, best)
