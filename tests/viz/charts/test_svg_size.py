"""Size of SVG files: at most 40 KB a chart and a still, and a bound for what has more parts."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tinyckpt as tc
import viz
from tests.viz.charts.test_chart_files import charts
from tests.viz.charts.test_transfer_lanes import offloaded
from tinyckpt.pipeline import (
    PipelineCosts,
    PipelineTrace,
    one_f_one_b,
    replay_pipeline,
    v_half,
    zb_h1,
)
from viz.charts.compact_svg import compact, dashed
from viz.vector.path_data import commands_of, path_data
from viz.vector.svg import svg_graph

LIMIT = 40_000  # bytes
POLICIES = ("store_all", "sqrt_n", "recompute_all")
NETWORKS = ("chain:16", "chain:256", "unet", "resnet50", "gpt2:1x64")


def traces_of(network: str) -> list[tc.Trace]:
    graph, _ = tc.networks.network_from_text(network)
    return [tc.replay(tc.plan(graph, policy)) for policy in POLICIES]


def pipelines(devices: int, *makers: Callable[[int, int], Any]) -> list[PipelineTrace]:
    return [replay_pipeline(make(devices, 8)) for make in makers]


@pytest.mark.nightly
@pytest.mark.parametrize("network", NETWORKS)
def test_charts_of_three_policies_take_at_most_40_kb(network: str, tmp_path: Path) -> None:
    traces = traces_of(network)
    ledgers = [tc.ledger(trace.schedule) for trace in traces]
    sizes = {
        "timeline": viz.timeline(traces, tmp_path / "t.svg").stat().st_size,
        "ledger": viz.ledger(traces, tmp_path / "l.svg", theme="dark").stat().st_size,
        "breakdown": viz.breakdown(ledgers, tmp_path / "b.svg").stat().st_size,
        "explainer": viz.explainer(traces[1], tmp_path / "e.svg", stop="peak").stat().st_size,
    }
    assert {name: size for name, size in sizes.items() if size > LIMIT} == {}


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("chart", list(charts()))
def test_every_chart_takes_at_most_40_kb_and_says_its_words_as_text(
    chart: str, tmp_path: Path
) -> None:
    path = charts()[chart](tmp_path / "chart.svg")
    assert path.stat().st_size <= LIMIT
    root = ElementTree.fromstring(path.read_bytes())
    words = "".join(root.itertext())
    assert sum(map(str.isalpha, words.rpartition("}")[2])) > 20
    long = re.findall(r"\d\.\d{3,}", re.sub(r"base64,[^)\"]*|>[^<]+<", "", path.read_text("utf-8")))
    assert long == []  # no coordinate has more than two decimals


@pytest.mark.long
def test_stills_take_at_most_40_kb_and_three_large_ones_45(tmp_path: Path) -> None:
    for network in ("chain:16", "unet", "resnet50"):
        trace = traces_of(network)[1]
        path = viz.save_still(trace, tmp_path / "one.svg", trace.peak_step)
        assert path.stat().st_size <= LIMIT, network
        assert len(svg_graph(trace.graph).encode()) <= LIMIT, network
    for network, bound in (("chain:16", LIMIT), ("unet", 45_000)):
        path = viz.save_still(traces_of(network), tmp_path / "three.svg", 40)
        assert path.stat().st_size <= bound, network


def test_nodes_beyond_a_few_hundred_take_at_most_110_bytes_each() -> None:
    small, large = (svg_graph(tc.networks.chain(count)) for count in (256, 512))
    assert len(large) - len(small) <= 110 * 512


@pytest.mark.long
def test_pipelines_take_at_most_40_kb_and_each_beyond_two_20(tmp_path: Path) -> None:
    two = viz.pipeline(pipelines(4, one_f_one_b, zb_h1), tmp_path / "two.svg").stat().st_size
    assert two <= LIMIT
    three = pipelines(4, one_f_one_b, zb_h1, v_half)
    assert viz.pipeline(three, tmp_path / "three.svg").stat().st_size <= two + 20_000


@pytest.mark.nightly
def test_two_pipelines_of_16_stages_and_32_micro_batches_take_at_most_40_kb(tmp_path: Path) -> None:
    path = viz.pipeline([replay_pipeline(zb_h1(16, 32))] * 2, tmp_path / "large.svg")
    assert path.stat().st_size <= LIMIT
    text = path.read_text(encoding="utf-8")
    assert "<image" not in text  # every bar is still drawn
    assert "neighbours of a kind are joined" in text


# Costs of every stage at random: no two bars are alike, so that nothing can be written shorter.
@pytest.mark.nightly
@pytest.mark.parametrize("make", [one_f_one_b, zb_h1, v_half])
@pytest.mark.parametrize("devices", [2, 4, 16, 17, 64, 150])
@pytest.mark.parametrize("micro_batches", [8, 33, 150])
def test_two_pipelines_of_any_size_take_at_most_40_kb(
    micro_batches: int, devices: int, make: Callable[[int, int], Any], tmp_path: Path
) -> None:
    draw = random.Random(f"{micro_batches} {devices}")
    pipeline = make(devices, micro_batches)
    uneven = [[draw.randint(5, 80) for _ in range(pipeline.stages)] for _ in range(3)]
    costs = PipelineCosts(*uneven, communication=draw.randint(0, 9))
    path = viz.pipeline([replay_pipeline(pipeline, costs)] * 2, tmp_path / "two.svg")
    assert path.stat().st_size <= LIMIT


@pytest.mark.nightly
def test_more_pipelines_take_20_kb_each_at_any_width(tmp_path: Path) -> None:
    traces = [replay_pipeline(zb_h1(16, 32))] * 4
    path = viz.pipeline(traces, tmp_path / "four.svg", width=30)
    assert path.stat().st_size <= LIMIT + 2 * 20_000


def test_dashes_end_where_the_bars_end_and_uneven_bars_have_none() -> None:
    bars = [(round(10.43 * place), round(10.43 * place + 3.8)) for place in range(20)]
    assert len([*dashed(bars, ())]) == 1
    for known in ((), ("0.4 0.6",), ("0.5 0.9",)):
        found = []
        for left, right, dashes in dashed([(-9, -8), *bars, (400, 403)], known):
            if not dashes:
                found.append((left, right))
                continue
            wide, gap = (10 * float(part) for part in dashes.split())
            while left < right - 0.01:
                found.append((left, left + wide))
                left += wide + gap
        for one, other in zip(found, [(-9, -8), *bars, (400, 403)], strict=True):
            assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1.05
    uneven = [(0, 3), (9, 14), (30, 31), (50, 58), (70, 71)]
    assert list(dashed(uneven, ())) == [(*span, "") for span in uneven]


def test_offload_charts_take_at_most_40_kb(tmp_path: Path) -> None:
    path = viz.timeline(offloaded("chain:16", 512), tmp_path / "copies.svg")
    assert path.stat().st_size <= LIMIT


def test_letters_that_occur_are_embedded_and_no_others(tmp_path: Path) -> None:
    from base64 import b64decode
    from io import BytesIO

    from fontTools.ttLib import TTFont

    trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))
    for path in (
        viz.timeline(trace, tmp_path / "chart.svg"),
        viz.save_still(trace, tmp_path / "still.svg"),
    ):
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text.encode())
        said = {
            letter
            for element in root.iter("{http://www.w3.org/2000/svg}text")
            for letter in "".join(element.itertext())
        }
        embedded: set[str] = set()
        for encoded in re.findall(r"font/woff;base64,([^)]*)", text):
            with TTFont(BytesIO(b64decode(encoded))) as font:
                embedded |= set(map(chr, font.getBestCmap()))
        assert said == embedded


def test_path_data_is_exact_where_it_is_seen() -> None:
    data = "M 0 0 L 1 0 L 2 0 L 2 0 L 2 3.04 L 2 5 L -1.26 5 z M 9 9 L 9 8 L 9 9.5"
    assert path_data(commands_of(data)) == "M0 0h2v5h-3.3zM9 9v-1v1.5"
    assert path_data(commands_of("M 1 1 Q 2 1 3 1 C 4 1 4 2 4 3")) == "M1 1h2c1 0 1 1 1 2"


def test_bars_are_lines_only_if_they_look_the_same() -> None:
    bar = "M {x} 0 L {right} 0 L {right} 6 L {x} 6 z"
    bars = " ".join(bar.format(x=3 * place, right=3 * place + 2) for place in range(5))
    frame = '<svg xmlns="http://www.w3.org/2000/svg"><path d="{}" style="{}"/></svg>'

    def drawn(data: str, style: str) -> str:
        return compact(frame.format(data, style).encode()).decode().partition("</style>")[2]

    line = 'stroke-width="6" stroke-dasharray="2 1" d="M0 3h14"'
    assert line in drawn(bars, "fill: #123456")
    three = f"{bars} {bar.format(x=40, right=46)}"
    assert 'stroke-width="6" d="M40 3h6"' in drawn(three, "fill: #123456")
    assert 'stroke-width="7"' in drawn(bars, "fill: #123456; stroke: #123456")
    assert 'fill="#123456"' in drawn(bars, "fill: #123456; stroke: #ffffff")
    assert 'fill="#123456"' in drawn(bars + " M 0 0 L 5 5 L 5 0 z", "fill: #123456")
