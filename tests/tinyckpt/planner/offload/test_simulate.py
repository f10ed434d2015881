"""Simulation of overlapped copies: worked examples, a ticking oracle, monotone times, links."""

from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.core.test_schedule_mutations import with_moves
from tests.tinyckpt.planner.offload.event_machine import Ticking
from tinyckpt.planner.model.cost_models import custom

CHAIN = tc.networks.chain(3)  # x f1 f2 f3 l b3 b2 b1, 512 bytes each


def steps(text: str) -> tuple[Any, ...]:
    """Return the steps of a text such as ``f1 f2 >f1 l <f1 -f2``: moved out, back, and freed."""
    made = {operator.name: operator for operator in CHAIN.operators}
    kinds = {">": tc.Offload, "<": tc.Fetch, "-": tc.Free}
    return tuple(
        kinds[word[0]](made[word[1:]].outputs[0]) if word[0] in kinds else tc.Compute(made[word].id)
        for word in text.split()
    )


def moved(text: str) -> tc.Schedule:
    return tc.Schedule(CHAIN, steps(text), "mine")


BOTH = moved("f1 f2 >f1 f3 >f2 l b3 -f3 -l <f2 b2 -f2 -b3 <f1 b1 -f1 -b2")
EARLY = moved("f1 f2 >f1 f3 >f2 l <f2 b3 -f3 -l <f1 b2 -f2 -b3 b1 -f1 -b2")


def test_copies_overlap_computation() -> None:
    # f1 and f2 end at 2, f1 leaves 2-4; f3 ends at 3, f2 leaves 4-6; l 3-4, b3 4-5; f2 comes back
    # once it is there, 6-8, b2 8-9; f1 9-11, b1 11-12.
    line = tc.timed(BOTH, tc.Link(256))
    copies = {
        position: (line.begin[position], line.end[position])
        for position, step in enumerate(BOTH.steps)
        if isinstance(step, tc.Offload | tc.Fetch)
    }
    assert copies == {2: (2, 4), 4: (4, 6), 9: (6, 8), 13: (9, 11)}
    assert line.makespan == 12
    assert [(p, stall) for p, stall in enumerate(line.stall) if stall] == [(9, 3), (13, 2)]
    assert (line.computing, line.stalled) == (7, 5)


def test_earlier_fetch_stalls_less() -> None:
    assert tc.timed(EARLY, tc.Link(256)).makespan == 11
    assert tc.timed(EARLY, tc.Link(512)).makespan == 7
    assert tc.timed(EARLY, tc.Link(512, engines=1)).makespan == 7
    assert tc.timed(EARLY, tc.Link(256, engines=1)).makespan == 11


def test_makespan_includes_fetch_of_results() -> None:
    # b1, the result, leaves 7-9 and comes back 9-11.
    schedule = moved("f1 f2 f3 l b3 b2 b1 -f1 -f2 -f3 -l -b3 -b2 >b1 <b1")
    line = tc.timed(schedule, tc.Link(256))
    assert line.makespan == 11
    assert {p: stall for p, stall in enumerate(line.stall) if stall} == {14: 4}


def test_single_engine_serialises_both_directions() -> None:
    # f1 leaves 1-3 and comes back 3-5; f2 leaves 5-7, or 3-5 if its line is its own.
    schedule = moved("f1 f2 f3 >f1 <f1 >f2 l b3 -f3 -l <f2 b2 -f2 -b3 b1 -f1 -b2")
    one, two = (tc.timed(schedule, tc.Link(256, engines=count)) for count in (1, 2))
    assert [(line.begin[5], line.end[5]) for line in (one, two)] == [(7, 9), (5, 7)]
    assert (one.makespan, two.makespan) == (13, 11)


def test_peak_includes_copies_in_flight() -> None:
    assert tc.replay(BOTH).peak_bytes == 3 * 512
    assert tc.timed(BOTH, tc.Link(inf)).peak_bytes == 3 * 512
    # While b3 is evaluated from f3 and l, f2 is on its way; f1 has left.
    assert tc.timed(BOTH, tc.Link(256)).peak_bytes == 4 * 512
    assert tc.timed(BOTH, tc.Link(128)).peak_bytes == 5 * 512


def test_budget_stalls_computation_until_copies_end() -> None:
    line = tc.timed(BOTH, tc.Link(256), budget=3 * 512)
    assert line.peak_bytes == 3 * 512
    # l waits until f1 has left, at 4, and b3 until f2 has, at 6.
    assert {p: stall for p, stall in enumerate(line.stall) if stall} == {2: 1, 4: 1, 9: 2, 13: 2}
    assert line.makespan == 13
    with pytest.raises(tc.BudgetError, match=r"step 6: compute b3 needs 1\.5 KiB") as caught:
        tc.timed(BOTH, tc.Link(256), budget=2 * 512)
    assert caught.value.smallest == 3 * 512


def test_value_freed_before_arrival_keeps_memory_until_then() -> None:
    schedule = moved("f1 f2 >f1 f3 <f1 l -f1 b3 b2 f1 b1 -f1 -f2 -f3 -l -b3 -b2")
    line = tc.timed(schedule, tc.Link(128))
    assert line.end[4] == 10  # f1 leaves 2-6, and comes back 6-10
    assert line.memory[7] == 6 * 512  # b3: f1 on both ways, f2, f3, l, b3
    assert tc.replay(schedule).live_bytes[7] == 4 * 512


def test_waiting_fetch_reserves_memory_without_using_it() -> None:
    # f1 leaves 3-7; the fetch has no room before, and its memory is not yet in use.
    text = "f1 f2 f3 >f1 <f1 -f1 -f2 l b3 -f3 -l f1 f2 -f1 b2 -f2 -b3 f1 b1 -f1 -b2"
    line = tc.timed(moved(text), tc.Link(128), budget=3 * 512)
    assert line.begin[4] == line.end[3] == 7
    assert line.memory[5] == 4 * 512
    assert line.peak_bytes == 3 * 512


def test_float_durations_are_exact() -> None:
    costs = custom(CHAIN, [0.1] * 7, "seconds")
    line = tc.timed(EARLY, tc.Link(1e9, latency=1e-6), costs)
    assert line.computing == 7 * Fraction(0.1)
    assert line.link.duration(512) == Fraction(1e-6) + 512 / Fraction(10**9)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((-1,), "bandwidth=-1; it must be a number of 0 or more"),
        ((float("nan"),), "bandwidth=nan"),
        (("fast",), "bandwidth='fast'"),
        ((True,), "bandwidth=True"),
        ((1e-320,), "link: bandwidth="),
        ((10**400,), "link: bandwidth="),
        ((1, inf), "latency=inf"),
        ((1, 0, 3), "engines=3; expected 1, shared by both directions, or 2"),
    ],
)
def test_link_rejects_invalid_arguments(arguments: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        tc.Link(*arguments)


def test_zero_bandwidth_moves_nothing() -> None:
    with pytest.raises(tc.ScheduleError, match="512 bytes cannot be moved at a bandwidth of 0"):
        tc.timed(BOTH, tc.Link(0))
    assert tc.timed(tc.plan(CHAIN), tc.Link(0)).makespan == 7


def test_costs_of_another_graph_are_rejected() -> None:
    with pytest.raises(tc.ScheduleError, match="the costs are not those of chain:3"):
        tc.timed(BOTH, tc.Link(1), tc.cost.evaluations(tc.networks.chain(2)))


links = st.builds(
    tc.Link,
    st.sampled_from((96, 48, 32, inf)),
    st.integers(0, 2),
    st.integers(1, 2),
)


@settings(max_examples=examples(60))
@given(training_graphs(8), links, st.data())
def test_simulation_agrees_with_event_machine(case: Any, link: tc.Link, data: Any) -> None:
    graph = case[0]
    views = {node.view_of for node in graph.data} | {
        node.id for node in graph.data if node.view_of is not None
    }
    schedule = tc.plan(graph, data.draw(st.sampled_from(("store_all", "recompute_all"))))
    with_some = replace(schedule, steps=with_moves(schedule, data.draw))
    if any(isinstance(s, tc.Offload | tc.Fetch) and s.data in views for s in with_some.steps):
        return  # the machine that ticks knows nothing of views
    ticks = data.draw(
        st.lists(st.integers(0, 3), min_size=len(graph.operators), max_size=len(graph.operators))
    )
    costs = custom(graph, ticks)
    trace = tc.replay(with_some)
    lasts = [
        Fraction(ticks[step.operator])
        if isinstance(step, tc.Compute | tc.Update)
        else link.duration(0 if isinstance(step, tc.Free) else graph.data[step.data].spec.nbytes)
        for step in with_some.steps
    ]
    peak = tc.timed(with_some, link, costs).peak_bytes
    for budget in (None, peak, (peak + trace.peak_bytes) // 2, trace.peak_bytes):
        line = tc.timed(with_some, link, costs, budget=budget)
        machine = Ticking(trace, lasts, link.engines, budget)
        machine.run()
        for position, step in enumerate(with_some.steps):
            if not isinstance(step, tc.Free):
                assert line.begin[position] == machine.begun[position], position
                assert line.end[position] == machine.done[position], position
            if not isinstance(step, tc.Free | tc.Offload):
                away = sum(
                    graph.data[earlier.data].spec.nbytes
                    for at, earlier in enumerate(with_some.steps[:position])
                    if isinstance(earlier, tc.Offload) and line.end[at] > line.begin[position]
                )
                away += sum(
                    graph.data[earlier.data].spec.nbytes
                    for at, earlier in enumerate(with_some.steps[:position])
                    if isinstance(earlier, tc.Free)
                    and (fetched := machine.last_fetch(earlier.data, at)) is not None
                    and line.end[fetched] > line.begin[position]
                )
                assert line.memory[position] == trace.live_bytes[position] + away, position
        assert budget is None or line.peak_bytes <= budget
        assert line.makespan == line.computing + line.stalled
        assert line.computing == sum(
            costs.operators[s.operator] for s in with_some.steps if isinstance(s, tc.Compute)
        )
        fetched = [machine.last_fetch(d, len(with_some.steps)) for d in graph.outputs]
        last = [p for p, s in enumerate(with_some.steps) if isinstance(s, tc.Compute)][-1]
        assert line.makespan == max(machine.done[p] for p in (last, *fetched) if p is not None)


@settings(max_examples=examples(40))
@given(training_graphs(8), st.data())
def test_times_never_rise_with_resources(case: Any, data: Any) -> None:
    graph = case[0]
    schedule = tc.plan(graph, "store_all")
    with_some = replace(schedule, steps=with_moves(schedule, data.draw))
    least = tc.replay(with_some).peak_bytes
    before = None
    for bandwidth in (1, 7, 50, 400, inf):
        at = [
            tc.timed(with_some, tc.Link(bandwidth), budget=budget)
            for budget in (least, least + 50, least + 200, None)
        ]
        spans = [line.makespan for line in at]
        assert spans == sorted(spans, reverse=True)
        assert all(line.peak_bytes <= least for line in at[:1])
        assert before is None or all(a <= b for a, b in zip(spans, before, strict=True))
        before = spans
    assert before == [tc.timed(with_some, tc.Link(inf)).computing] * 4


def test_numpy_numbers_do_not_overflow() -> None:
    link = tc.Link(np.int64(10**18 + 9), np.int64(1), np.int64(2))
    assert (type(link.bandwidth), type(link.latency), type(link.engines)) == (int, int, int)
    assert tc.timed(BOTH, link).makespan == tc.timed(BOTH, tc.Link(10**18 + 9, 1)).makespan
    assert tc.Link(np.float32(0.5)) == tc.Link(0.5)


@pytest.mark.parametrize("budget", ["1 MiB", "50%", 0.5, 1e6, -1, float("nan"), True, [1]])
def test_timed_rejects_budget_not_in_bytes(budget: Any) -> None:
    with pytest.raises(tc.BudgetError, match="it must be a whole number of bytes, 0 or more"):
        tc.timed(BOTH, tc.Link(256), budget=budget)
    whole = np.int64(3 * 512)
    assert tc.timed(BOTH, tc.Link(256), budget=whole) == tc.timed(BOTH, tc.Link(256), budget=1536)  # type: ignore[arg-type]


@pytest.mark.parametrize("link", [256, None, "256", (256, 0, 2)])
def test_timed_rejects_non_link(link: Any) -> None:
    with pytest.raises(tc.ScheduleError, match=r"^link=.*; expected a Link, such as tc\.Link\("):
        tc.timed(BOTH, link)
    with pytest.raises(tc.ScheduleError, match=r"^link=.*; expected a Link, such as tc\.Link\("):
        tc.plan_with_host(CHAIN, link, budget=1536)
