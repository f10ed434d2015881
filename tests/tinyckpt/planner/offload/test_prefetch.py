"""Prefetch placement, against moving one fetch after another up while there is room."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.planner.offload.offload_saved_values import movable_values
from tinyckpt.planner.offload.prefetch import PrefetchRoom, hoist_fetches
from tinyckpt.storage.offload_steps import insert_offloads


def one_after_another(
    rows: list[int], budget: int | None, fetches: list[tuple[int, int, int]]
) -> list[int]:
    """Return the places of fetches, each moved up while there is room."""
    rows, last, places = rows.copy(), 0, []
    for nbytes, lowest, read_at in fetches:
        place = read_at
        while place > max(last, lowest) and (budget is None or rows[place - 1] + nbytes <= budget):
            place -= 1
            rows[place] += nbytes
        last = max(last, place)
        places.append(last)
    return places


@settings(max_examples=examples(300))
@given(st.data())
def test_prefetch_room_finds_earliest_feasible_place(data: Any) -> None:
    rows = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=12))
    evaluations = st.integers(0, len(rows))
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 3), evaluations, evaluations), max_size=8))
    fetches = [
        (nbytes, lowest, read_at)
        for (nbytes, lowest, _), read_at in zip(drawn, sorted(d[2] for d in drawn), strict=True)
    ]
    for budget in (None, *range(10)):
        room = PrefetchRoom(rows, budget)
        places = [room.take(*fetch) for fetch in fetches]
        assert places == one_after_another(rows, budget, fetches)


@settings(max_examples=examples(30))
@given(training_graphs(8), st.integers(0, 200))
def test_hoisted_fetches_stay_within_budget(case: Any, more: int) -> None:
    stored = tc.plan(case[0], "store_all")
    moved = insert_offloads(stored, set(movable_values(case[0])))
    budget = tc.replay(moved).peak_bytes + more
    for link in (None, tc.Link(1)):
        early = hoist_fetches(moved, tc.cost.evaluations(case[0]), link, budget)
        assert tc.replay(early).peak_bytes <= budget
        assert sorted(map(repr, early.steps)) == sorted(map(repr, moved.steps))


@pytest.mark.long
def test_hoisted_fetches_on_long_chain_over_slow_link() -> None:
    # Every fetch could be thousands of evaluations earlier.
    graph = tc.networks.chain(4000)
    stored = tc.plan(graph, "store_all")
    moved = insert_offloads(stored, set(movable_values(graph)))
    early = hoist_fetches(moved, tc.cost.evaluations(graph), tc.Link(1), 500_000)
    fetches = [p for p, step in enumerate(early.steps) if isinstance(step, tc.Fetch)]
    assert len(fetches) == 4000
    line = tc.timed(early, tc.Link(1), budget=500_000)
    assert line.peak_bytes == 976 * 512 <= 500_000
    assert line.makespan == 7999 * 512 + 3  # f4000 leaves before f3999, and comes back meanwhile
    assert replace(early, steps=moved.steps) == moved
