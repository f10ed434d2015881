"""Arenas: lifetimes as replay counts them, and offsets at which no two live values overlap."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs
from tinyckpt.codegen.arena import Allocation, allocations_of
from tinyckpt.codegen.reserved_memory import reserved

MIB = 2**20
POLICIES = ("store_all", "recompute_all", "sqrt_n", "chen_recursive", "revolve", "dtr", "offload")


def live_bytes(schedule: tc.Schedule) -> list[int]:
    """Return the sum of live allocations at every step, one by one."""
    live = [0] * len(schedule)
    for each in allocations_of(schedule):
        for step in range(each.start, each.stop):
            live[step] += each.nbytes
    return live


def check_arena(plan: tc.Arena) -> None:
    """Check that at every step each address belongs to one allocation at most, all in bounds."""
    for each, offset in zip(plan.allocations, plan.offsets, strict=True):
        assert offset >= 0
        assert offset % plan.alignment == 0
        assert offset + each.nbytes <= plan.nbytes
        assert 0 <= each.start < each.stop <= len(plan.schedule)
    for step in range(len(plan.schedule)):
        spans = sorted(
            (offset, offset + each.nbytes)
            for each, offset in zip(plan.allocations, plan.offsets, strict=True)
            if each.start <= step < each.stop and each.nbytes
        )
        for (_, top), (low, _) in itertools.pairwise(spans):
            assert top <= low


def planned(graph: tc.Graph, policy: str) -> tc.Schedule:
    """Plan; another graph is drawn where the policy refuses this one."""
    try:
        return tc.plan(graph, policy)
    except tc.TinyckptError:
        reject()


graphs: Any = st.one_of(
    training_graphs().map(lambda case: case[0]),
    graphs_with_updates().map(lambda case: case[0]),
    graphs_of_views(),
)


@settings(max_examples=examples(100))
@given(graphs, st.sampled_from(POLICIES), st.sampled_from([1, 64, 512]))
def test_live_allocations_equal_replay_at_every_step_and_never_overlap(
    graph: tc.Graph, policy: str, alignment: int
) -> None:
    schedule = planned(graph, policy)
    trace = tc.replay(schedule)
    assert live_bytes(schedule) == list(trace.live_bytes)
    plan = tc.arena(schedule, alignment)
    check_arena(plan)
    assert tc.arena(schedule, 1).lower_bound == trace.peak_bytes
    assert plan.lower_bound >= trace.peak_bytes


@pytest.mark.sampled(8)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n", [1, 2, 16, 64])
def test_arena_of_chain_is_the_peak(n: int, policy: str) -> None:
    schedule = tc.plan(tc.networks.chain(n), policy)
    plan = tc.arena(schedule)
    check_arena(plan)
    assert plan.optimal
    assert plan.nbytes == plan.lower_bound == tc.replay(schedule).peak_bytes


@pytest.mark.sampled(5)
@pytest.mark.long
@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "revolve", "dtr"])
@pytest.mark.parametrize("network", ["lenet5:64", "transformer:2x64", "unet:1", "resnet18:2"])
def test_arena_of_network_is_within_2_percent_of_the_peak(network: str, policy: str) -> None:
    graph, _ = tc.networks.network_from_text(network)
    schedule = planned(graph, policy)
    assert live_bytes(schedule) == list(tc.replay(schedule).live_bytes)
    plan = tc.arena(schedule)
    check_arena(plan)
    assert plan.nbytes <= 1.02 * plan.lower_bound


def test_recomputed_value_has_an_allocation_for_each_evaluation() -> None:
    graph = tc.networks.chain(2)
    f1 = graph.operators[0].outputs[0]
    found = [each for each in allocations_of(tc.plan(graph, "recompute_all")) if each.storage == f1]
    assert found == [Allocation(f1, 0, 2, 512, "value"), Allocation(f1, 7, 9, 512, "value")]


def test_view_has_no_allocation_and_keeps_its_base_alive() -> None:
    graph = tc.build(lambda x: tc.sum(tc.exp(tc.tanh(x).T)), tc.Spec((4, 4)))
    schedule = tc.plan(graph)
    tanh, view = (operator.outputs[0] for operator in graph.operators[:2])
    assert graph.data[view].view_of == tanh
    storages = Counter(each.storage for each in allocations_of(schedule))
    assert storages[tanh] == 1
    assert view not in storages
    (own,) = (each for each in allocations_of(schedule) if each.storage == tanh)
    assert isinstance(schedule.steps[own.stop], tc.Free)
    assert own.stop == max(
        at for at, step in enumerate(schedule.steps) if step in (tc.Free(tanh), tc.Free(view))
    )


def test_results_live_to_the_end_and_workspaces_for_one_step() -> None:
    graph, _ = tc.networks.network_from_text("lenet5:2")
    schedule = tc.plan(graph, "store_all")
    found = allocations_of(schedule)
    results = {data for data in graph.outputs if graph.data[data].view_of is None}
    assert {each.storage for each in found if each.stop == len(schedule)} >= results
    workspaces = [each for each in found if each.kind == "workspace"]
    assert workspaces
    for each in workspaces:
        assert each.stop == each.start + 1
        assert schedule.steps[each.start] == tc.Compute(each.storage)
        assert each.nbytes == graph.operators[each.storage].workspace


def test_fetched_value_has_a_fresh_allocation() -> None:
    schedule = tc.plan(tc.networks.chain(4), "offload")
    fetches = {
        step.data: at for at, step in enumerate(schedule.steps) if isinstance(step, tc.Fetch)
    }
    assert fetches
    starts = {(each.storage, each.start) for each in allocations_of(schedule)}
    assert set(fetches.items()) <= starts


def test_empty_value_has_an_allocation_without_bytes() -> None:
    empty = tc.arena(tc.plan(tc.build(lambda x: tc.tanh(x), tc.Spec((0, 4)))))
    assert (len(empty.allocations), empty.nbytes) == (1, 0)


def test_illegal_schedules_and_options_are_refused() -> None:
    graph = tc.networks.chain(2)
    with pytest.raises(tc.ScheduleError, match="needs f1, which has not been computed yet"):
        tc.arena(tc.Schedule(graph, (tc.Compute(1),), "mine"))
    with pytest.raises(tc.OptionError, match="alignment=48; expected a power of two"):
        tc.arena(tc.plan(graph), 48)
    with pytest.raises(tc.TinyckptError, match="Schedule"):
        tc.arena(graph)  # type: ignore[arg-type]


def by_hand(*sizes: int) -> tc.Graph:
    """Return a graph of one value of each size in bytes, each made of the source alone."""

    def values(x: Any) -> Any:
        return [tc.broadcast_to(x, (size // 8,)) * 2.0 for size in sizes]

    return tc.build(values, tc.Spec(()))


def test_reserved_memory_has_the_segments_of_the_documented_rules() -> None:
    # 1 MiB goes into a segment of 2 MiB with the next one; 3 and 8 MiB share one of 20 MiB; 11 MiB
    # has its own of 12 MiB.
    schedule = tc.plan(by_hand(MIB, MIB, 3 * MIB, 8 * MIB, 11 * MIB))
    found = reserved(schedule)
    assert [segment.nbytes for segment in found.segments] == [2 * MIB, 20 * MIB, 12 * MIB]
    assert found.nbytes == 34 * MIB
    assert found.lower_bound == 24 * MIB


def test_reserved_memory_says_where_it_fragments() -> None:
    # Two of 8 MiB leave 4 of a segment of 20 MiB; 9 and 5 leave 6 of another.
    graph = by_hand(8 * MIB, 8 * MIB, 9 * MIB, 5 * MIB, 12 * MIB)
    found = reserved(tc.plan(graph))
    assert [segment.nbytes // MIB for segment in found.segments] == [20, 20, 12]
    last = found.segments[-1]
    assert last.needed == 12 * MIB
    assert (last.free, last.largest_free) == (10 * MIB, 6 * MIB)
    assert not last.is_fragmented
    second = found.segments[1]
    assert (second.free, second.largest_free, second.is_fragmented) == (4 * MIB, 4 * MIB, False)


def test_reserved_memory_is_fragmented_where_pieces_of_one_pool_would_do_together() -> None:
    # The first of 8 MiB is freed: 8 and 4 MiB are free around the second, and no 9 in one piece.
    # The request of 1 MiB has a pool of its own, in which nothing is free.
    graph = by_hand(8 * MIB, 8 * MIB, 9 * MIB, MIB)
    steps = tc.plan(graph).steps
    computes = [step for step in steps if isinstance(step, tc.Compute)]
    owners = [graph.operators[step.operator].outputs[0] for step in computes]
    large = [data for data in owners if graph.data[data].nbytes == 8 * MIB]
    first = next(step for step, data in zip(computes, owners, strict=True) if data == large[0])
    at = owners.index(large[1]) + 1
    schedule = tc.Schedule(
        graph, (*computes[:at], tc.Free(large[0]), *computes[at:], first), "by hand"
    )
    segments = reserved(schedule).segments
    found = [(each.needed // MIB, each.free // MIB, each.largest_free // MIB) for each in segments]
    assert found[:3] == [(8, 0, 0), (9, 12, 8), (1, 0, 0)]
    assert [each.is_fragmented for each in segments[:3]] == [False, True, False]


@settings(max_examples=examples(50))
@given(graphs, st.sampled_from(POLICIES))
def test_reserved_blocks_never_overlap_and_are_within_segments(
    graph: tc.Graph, policy: str
) -> None:
    schedule = planned(graph, policy)
    found = reserved(schedule)
    assert found.nbytes == sum(segment.nbytes for segment in found.segments)
    assert found.lower_bound <= found.nbytes
    check_arena(
        tc.Arena(
            schedule, found.allocations, found.offsets, found.nbytes, found.lower_bound, False, 512
        )
    )
