"""The widget's files: their sizes, what they say, and what is refused."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt import viz
from viz.explainer.drawing import heading_of
from viz.explainer.story import story_of
from viz.widget.data import json_bytes, traces_of, widget_data

LARGEST_SCRIPT, LARGEST_DATA = 40_000, 8_000  # bytes


def chain(policy: str = "sqrt_n", layers: int = 16) -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.chain(layers), policy))


def frontier_of_chain() -> tc.Frontier:
    return tc.frontier(tc.networks.chain(16), nodes=True)


def transformer_of_32_tiles() -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.transformer(30, 64).graph(), "sqrt_n"))


def frontier_of_transformer() -> list[tc.Trace]:
    """Eight schedules of a network of 32 tiles, from one that recomputes much to store-all."""
    graph = tc.networks.transformer(30, 64).graph()
    options: list[dict[str, Any]] = [{"segments": count} for count in (2, 4, 6, 8, 12, 16)]
    schedules = [tc.plan(graph, "sqrt_n", **option) for option in options]
    schedules += [tc.plan(graph, "chen_recursive"), tc.plan(graph)]
    return [tc.replay(schedule) for schedule in schedules]


@pytest.mark.parametrize("stop", ["recomputation", "first recomputation"])
def test_first_recomputation_has_a_short_name(stop: str) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(9), "sqrt_n"))
    tags = [viz.widget_tag(trace, stop=name) for name in (stop, "peak")]
    assert tags[0] == viz.widget_tag(trace) != tags[1]
    assert viz.player(trace, stop=stop).html != viz.player(trace, stop="peak").html
    story = story_of(trace)
    assert story.at(stop) == story.at("first recomputation") != story.at("peak")


def test_script_is_one_file_of_at_most_40_kilobytes_without_requests(tmp_path: Path) -> None:
    path = viz.widget_script(tmp_path / "tiny-ckpt.js")
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= LARGEST_SCRIPT
    assert text == viz.widget_script()
    assert not re.search(r"^(import|export)\b|\{\{\w+\}\}|https?://", text, re.MULTILINE)


def often_full() -> tc.Trace:
    """Return a trace that has its peak in each of 200 layers."""
    return tc.replay(tc.plan(tc.networks.chain(200), "recompute_all"))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    "shown",
    [chain, frontier_of_chain, transformer_of_32_tiles, frontier_of_transformer, often_full],
    ids=["chain:16", "frontier of a chain", "32 tiles", "frontier of 32 tiles", "often full"],
)
def test_data_are_at_most_8_kilobytes_and_agree_with_the_traces(
    shown: Callable[[], Any], tmp_path: Path
) -> None:
    given = shown()
    path = viz.widget(given, tmp_path / "data.json")
    assert path.stat().st_size <= LARGEST_DATA
    data = json.loads(path.read_text(encoding="utf-8"))
    traces = traces_of(given)
    assert len(data["rows"]) == len(traces) <= 8
    assert traces[0].schedule.policy == "store_all"
    for row, trace in zip(data["rows"], traces, strict=True):
        in_values = data["unit"] == "values"
        assert row["policy"] == trace.schedule.policy
        assert row["peak"] == (trace.peak_nodes if in_values else trace.peak_bytes)
        weights = (tc.cost.evaluations if in_values else tc.cost.flops)(trace.graph).operators
        done = sum(weights[s.operator] for s in trace.steps if isinstance(s, tc.Compute))
        assert row["work"] == pytest.approx(done)
        assert row["heading"] == heading_of(story_of([traces[0], trace]), 1)
    intervals = {row["moments"].count(".") for row in data["rows"]}
    assert len(intervals) == 1, "rows have different boundaries"


@pytest.mark.long
def test_data_of_a_frontier_are_its_ends_and_points_between() -> None:
    frontier = frontier_of_chain()
    peaks = [row["peak"] for row in widget_data(frontier)["rows"]]
    assert len(peaks) == 8
    assert peaks[0] == frontier.points[-1].peak == max(peaks)
    assert min(peaks) == frontier.points[0].peak
    assert set(peaks) <= {point.peak for point in frontier.points}


def test_tag_has_data_inside_and_a_still_picture_for_pages_without_scripts() -> None:
    tag = viz.widget_tag(chain(), stop="peak", theme="dark", compare="store_all")
    assert tag.startswith(
        '<tiny-ckpt compare="store_all" stop="peak" theme="dark"><script type="app'
    )
    (inside,) = re.findall(r'<script type="application/json">(.*?)</script>', tag)
    assert json.loads(inside) == widget_data(chain())
    assert tag.count("<svg ") == tag.count("</svg>") == 1
    assert "Keep every 4th layer, compute the rest again" in tag.partition("<svg")[2]
    fetched = viz.widget_tag(chain(), src="a&b.json")
    assert fetched.startswith('<tiny-ckpt src="a&amp;b.json"><svg ')


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"path": "a.gif"}, "expected a name in .json"),
        ({"stop": "middle"}, "stop 'middle'"),
        ({"theme": "blue"}, "unknown theme"),
        ({"traces": [chain("recompute_all", n) for n in (3, 4)]}, "of one graph"),
        ({"traces": [chain("recompute_all")] * 8}, "at most 7, and store-all"),
    ],
    ids=["suffix", "stop", "theme", "two graphs", "too many"],
)
def test_illegal_options_are_refused_and_nothing_is_written(
    tmp_path: Path, options: dict[str, Any], error: str
) -> None:
    path, traces = tmp_path / options.pop("path", "a.json"), options.pop("traces", chain())
    with pytest.raises(tc.OptionError, match=error):
        viz.widget(traces, path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "half"}, "'half'; expected '9' values"),
        ({"budget": 2}, "budget 2: the least here is 9"),
        ({"budget": "24 GiB total"}, "for values; expected"),
        ({"budget": "9 GiB"}, "for values; expected"),
        ({"policy": "sqrtn"}, "policy 'sqrtn': the data have store_all, sqrt_n"),
        ({"compare": "xx"}, "policy 'xx': the data have store_all, sqrt_n"),
        ({"stop": "nowhere"}, "stop 'nowhere'"),
        ({"theme": "red"}, "unknown theme 'red'"),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "html", None])
def test_options_that_the_traces_do_not_have_are_refused(
    options: dict[str, Any],
    said: str,
    suffix: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)  # they are refused without it, too
    monkeypatch.delitem(sys.modules, "viz.widget.live", raising=False)
    trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    path = None if suffix is None else tmp_path / f"widget.{suffix}"
    with pytest.raises(tc.OptionError, match=re.escape(said)):
        viz.widget(trace, path, **options)
    with pytest.raises(tc.OptionError, match=re.escape(said)):
        viz.widget_tag(trace, **options)
    assert list(tmp_path.iterdir()) == []


def test_data_that_nothing_makes_short_enough_are_refused() -> None:
    schedule = replace(chain().schedule, policy=chr(0x5C42) * 2000)  # 6 bytes each
    with pytest.raises(tc.OptionError, match="at most 8,000: show fewer traces"):
        widget_data(tc.replay(schedule))


def test_scopes_of_long_names_take_no_room() -> None:
    def loss(params: Any, x: Any) -> Any:
        for place, w in enumerate(params):
            with tc.scope(f"{chr(0x5C42) * 30}{place}"):
                x = tc.tanh(x @ w)
        return tc.mean(x)

    graph = tc.differentiate(tc.build(loss, [np.eye(4)] * 32, np.ones((2, 4))))
    keeps = [[f"matmul_{k}"] for k in range(1, 8)]
    traces = [tc.replay(tc.plan(graph, "retain", keep=keep)) for keep in keeps]
    assert len(json_bytes(widget_data(traces))) <= 8000


def test_store_all_by_itself_is_compared_with_itself() -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(4)))
    assert [each.schedule.policy for each in traces_of(trace)] == ["store_all", "store_all"]
    assert viz.widget_tag(trace).startswith("<tiny-ckpt>")
