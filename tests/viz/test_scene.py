"""Scene frames as golden text."""

from typing import Any

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt import viz
from viz.layout.drawn_nodes import cells_of
from viz.node_looks import Fill, NodeLook
from viz.scene import count_text, frames, subtitle_of, subtitles_of, title_of
from viz.time_axis import frame_steps


def script(trace: tc.Trace) -> list[str]:
    """Return every frame as a line: the changed nodes, then the counters."""
    cells = cells_of(trace.graph)
    lines = []
    for frame in frames(trace, cells, frame_steps(trace), in_nodes=True):
        looks = ", ".join(f"{cells[i].label} {look}" for i, look in frame.changed.items())
        lines.append(f"{frame.step}: {looks} | {frame.evaluations} {frame.live} {frame.peak}")
    return lines


def test_frames_of_sqrt_n_on_a_chain_match_golden_text() -> None:
    assert script(tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))) == [
        "-1: f1 not yet, f2 not yet*, f3 not yet, f4 not yet, l not yet, b4 not yet, b3 not yet, "
        "b2 not yet, b1 not yet | 0 0 0",
        "0: f1 kept computing | 1 1 1",
        "1: f1 kept, f2 kept* computing | 2 2 2",
        "2: f1 dropped, f2 kept* | 2 1 2",
        "3: f3 kept computing | 3 2 2",
        "4: f3 kept, f4 kept computing | 4 3 3",
        "5: f4 kept, l gradient computing | 5 4 4",
        "6: l gradient, b4 gradient computing | 6 5 5",
        "8: f4 dropped, l dropped, b4 gradient | 6 3 5",
        "9: b3 gradient computing | 7 4 5",
        "11: f3 dropped, b4 dropped, b3 gradient | 7 2 5",
        "12: b2 gradient computing | 8 3 5",
        "14: f2 dropped*, b3 dropped, b2 gradient | 8 1 5",
        "15: f1 recomputed recomputing | 9 2 5",
        "16: f1 recomputed, b1 gradient computing | 10 3 5",
        "18: f1 dropped, b2 dropped, b1 gradient | 10 1 5",
    ]


def test_titles_and_subtitles_match_golden_text() -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    assert title_of(trace) == "√n checkpointing"
    expected = "chain of 16 layers · 3 checkpoints · 42 evaluations = 1.27× store-all"  # noqa: RUF001
    assert subtitle_of(trace) == expected
    assert count_text(1234567) == "1\u2009234\u2009567"


@pytest.mark.long
def test_subtitle_of_an_order_counts_no_checkpoints() -> None:
    graph = tc.networks.chain(9)
    for policy, count in (("sqrt_n", 2), ("recompute_all", 0), ("store_all", 0)):
        schedule = tc.plan(graph, policy)
        order = [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]
        told = subtitle_of(tc.replay(schedule))
        assert f" · {count} checkpoints · " in told
        mine = subtitle_of(tc.replay(tc.from_order(graph, order)))
        assert mine == (told.replace(" · 2 checkpoints", "") if count else told)


def test_subtitle_of_a_plan_for_other_costs_has_their_unit() -> None:
    graph = tc.networks.chain(9)
    schedule = tc.plan(graph, budget="5 nodes", costs=tc.cost.traffic(graph))
    assert schedule.certificate is not None
    texts = subtitles_of(tc.replay(schedule))
    rings = len(schedule.checkpoints)
    evaluations = tc.replay(schedule).evaluations
    assert texts[-1].endswith(f" bytes moved in {evaluations} evaluations")
    assert texts[0] == f"chain of 9 layers · {rings} checkpoints · {texts[-1]} · within 5 values"
    assert sorted(texts, key=len, reverse=True) == texts


@pytest.mark.long
@settings(max_examples=examples(50))
@given(training_graphs())
def test_looks_match_resident_values(case: Any) -> None:
    graph, _ = case
    for policy in ("sqrt_n", "recompute_all"):
        trace = tc.replay(tc.plan(graph, policy))
        cells = cells_of(graph)
        looks: dict[int, NodeLook] = {}
        for frame in frames(trace, cells, frame_steps(trace), in_nodes=False):
            looks.update(frame.changed)
            if frame.step < 0:
                continue
            resident = trace.resident_at(frame.step)
            for cell in cells:
                held = bool(resident & set(cell.data))
                shown = looks[cell.id].fill in (Fill.KEPT, Fill.RECOMPUTED, Fill.GRADIENT)
                assert held == shown


@given(training_graphs())
def test_every_operator_is_in_exactly_one_cell(case: Any) -> None:
    graph, _ = case
    cells = cells_of(graph)
    assert sorted(i for cell in cells for i in cell.operators) == list(range(len(graph.operators)))
    mirrors = [cell.mirror for cell in cells if cell.mirror is not None]
    assert len(set(mirrors)) == len(mirrors)


@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "recompute_all"])
def test_last_frame_is_the_last_step(policy: str) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(9), policy))
    steps = frame_steps(trace)
    assert steps[-1] == len(trace.steps) - 1
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"theme": []}, r"unknown theme \[\]; known are light, dark"),
        ({"title": 7}, "title 7: expected a text, or several"),
        ({"title": [7]}, r"title \[7\]: expected a text, or several"),
    ],
)
def test_option_of_wrong_type_is_refused(options: Any, match: str) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(2)))
    with pytest.raises(tc.OptionError, match=match):
        viz.frames(trace, **options)
