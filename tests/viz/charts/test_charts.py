"""Charts as matplotlib artists, not pixels: timelines, frontiers, scaling, label placement."""

import re
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
import viz
from tests.conftest import examples
from viz.charts.breakdown import fills_of
from viz.charts.frontier import frontier_figure, named_points
from viz.charts.label_placement import Box, place_labels, spread
from viz.charts.scaling import growth, scaling_figure
from viz.charts.style import names_of
from viz.charts.timeline import timeline_figure
from viz.player.page import custom_properties
from viz.raster.canvas import inks_of
from viz.raster.memory_strip import strip_of
from viz.scene import scene_of
from viz.theme import DARK, LIGHT, THEMES, css, difference_colours

POLICIES = ("store_all", "sqrt_n", "chen_recursive", "revolve", "recompute_all")


def trace_of(name: str, policy: str = "sqrt_n", **options: Any) -> tc.Trace:
    graph, _ = tc.networks.network_from_text(name)
    return tc.replay(tc.plan(graph, policy, **options))


def traces_of(name: str) -> list[tc.Trace]:
    graph, _ = tc.networks.network_from_text(name)
    return [tc.replay(tc.plan(graph, policy)) for policy in POLICIES]


def texts(axis: Any) -> list[str]:
    """Return all texts in and above axes, in drawing order."""
    return [text for text in (axis.get_title("left"), *(t.get_text() for t in axis.texts)) if text]


def legend_of(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def boxes(figure: Any, artists: Any) -> list[Any]:
    figure.canvas.draw()
    return [artist.get_window_extent() for artist in artists]


# Timelines ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_timeline_marks_the_peak_of_each_trace() -> None:
    traces = traces_of("chain:16")
    figure = timeline_figure(scene_of(traces), LIGHT)
    assert [texts(axis)[0] for axis in figure.axes] == [
        "store all", "√n checkpointing", "chen recursive", "revolve", "recompute all",
    ]  # fmt: skip
    assert [texts(axis)[-1] for axis in figure.axes] == [
        f"peak {trace.peak_nodes} values, step {trace.nodes.index(trace.peak_nodes)}"
        for trace in traces
    ]
    for axis, trace in zip(figure.axes, traces, strict=True):
        ((x, y),) = axis.lines[1].get_xydata()
        assert (x - 0.5, y) == (trace.nodes.index(trace.peak_nodes), trace.peak_nodes)
        assert axis.get_xlim() == (0, len(traces[-1].steps))
        assert axis.get_ylim()[1] > 18
        label = boxes(figure, [axis.texts[-1]])[0]
        inside = axis.get_window_extent()
        assert inside.x0 <= label.x0 < label.x1 <= inside.x1
        assert inside.y0 <= label.y0 < label.y1 <= inside.y1
    assert legend_of(figure.axes[0].get_legend()) == [
        "kept", "recomputed", "gradients", "results",
    ]  # fmt: skip


def test_timeline_in_bytes_stacks_live_memory() -> None:
    trace = trace_of("mlp:3x8")
    (axis,) = timeline_figure(scene_of([trace]), DARK).axes
    assert axis.get_ylabel() == "live KiB"
    top = max(axis.collections[-1].get_paths()[0].vertices[:, 1])
    assert top == pytest.approx(trace.peak_bytes / 1024)
    assert texts(axis)[-1].startswith(f"peak {trace.peak_bytes / 1024:.4g} KiB, step ")


def test_traces_of_one_policy_are_labelled_by_their_options() -> None:
    graph = tc.networks.chain(16)
    traces = [tc.replay(tc.plan(graph, "sqrt_n", segments=count)) for count in (2, 4)]
    traces.append(tc.replay(tc.plan(graph, "greedy", budget="9 nodes")))
    traces.append(tc.replay(tc.plan(graph, "greedy", budget="7 nodes")))
    assert names_of(traces) == [
        "√n checkpointing, segments 2", "√n checkpointing, segments 4",
        "greedy, within 9 values", "greedy, within 7 values",
    ]  # fmt: skip
    assert names_of(traces[:1]) == ["√n checkpointing"]


# Frontiers ---------------------------------------------------------------------------------------


def frontier_axis(found: tc.Frontier, **data: Any) -> Any:
    named = named_points(found, data.get("traces", ()))
    return frontier_figure(found, named, data.get("bound", ()), LIGHT).axes[0]


def lines_of(axis: Any, label: str) -> list[list[tuple[float, float]]]:
    """Return the points of all lines of one label."""
    return [
        [(float(x), float(y)) for x, y in line.get_xydata()]
        for line in axis.lines
        if line.get_label() == label
    ]


@pytest.mark.long
def test_frontier_chart_shows_points_policies_and_bound() -> None:
    traces = traces_of("chain:16")
    found = tc.frontier(traces[0].graph, nodes=True)
    axis = frontier_axis(found, traces=traces, bound=found.bounds(100))
    (known,) = lines_of(axis, "best known")
    assert known[:-1] == [(point.peak, point.cost / 33) for point in found.points]
    assert known[-1] == (axis.get_xlim()[1], 1.0)
    assert sorted(point for (point,) in lines_of(axis, "policies")) == sorted(
        (trace.peak_nodes, trace.evaluations / 33) for trace in traces
    )
    assert {"store all", "√n checkpointing", "recompute all"} <= set(texts(axis))
    # Revolve is optimal on chains, and the search finds it: every point is proven, 3 to 18 nodes.
    (proven,) = lines_of(axis, "proven optimal")
    assert [x for x, _ in proven] == list(range(3, 19))
    (area,) = (patch for patch in axis.patches if patch.get_label() == "proven impossible")
    heights, edges, _ = area.get_data()
    assert heights[0] == axis.get_ylim()[1]  # below 3 nodes nothing goes
    under = dict(zip(edges[1:-1], heights[1:], strict=True))  # from each edge to the next
    assert all(under[x] == pytest.approx(y) for x, y in known[:-1])
    assert axis.get_xlabel() == "peak, values"
    assert axis.get_ylabel() == "evaluations, relative to store-all"
    assert texts(axis)[1] == "chain:16: the optimum at every budget"
    assert legend_of(axis.get_legend()) == [
        "best known", "proven optimal", "proven impossible", "policies",
    ]  # fmt: skip


@pytest.mark.long
def test_frontier_chart_marks_only_proven_points_optimal() -> None:
    found = tc.frontier(tc.networks.chain(8), nodes=True)
    weak = [(budget, min(bound, 17.0)) for budget, bound in found.bounds(100)]
    axis = frontier_axis(found, bound=weak)
    (proven,) = lines_of(axis, "proven optimal")
    assert proven == [(10, 1.0)]
    assert texts(axis)[1] == "chain:8: the best known at every budget"
    assert lines_of(frontier_axis(found), "proven optimal") == []
    cut = frontier_axis(replace(found, complete=False))
    assert texts(cut)[1].endswith("the best known at every budget; the search was cut short")


@pytest.mark.long
def test_frontier_of_one_point_says_so_on_a_readable_scale() -> None:
    loss = tc.build(lambda w, x: tc.mean(tc.relu(x @ w)), tc.Spec((16, 16)), tc.Spec((8, 16)))
    found = tc.frontier(tc.differentiate(loss))
    assert len(found.points) == 1
    (axis,) = frontier_figure(found, (), (), LIGHT).axes
    assert any("no plan found needs less memory" in text.get_text() for text in axis.texts)
    assert axis.get_ylim()[1] >= 1.1
    assert axis.get_xlim()[0] <= 0.95 * found.points[0].peak / 2**10


def test_frontier_chart_shows_external_points() -> None:
    found = tc.frontier(tc.networks.chain(16), nodes=True)
    points = [("PyTorch 0.5", 9, 40.0), ("PyTorch 0", 4, 66.0)]
    figure = frontier_figure(found, (), (), LIGHT, points=points)
    (axis,) = figure.axes
    assert lines_of(axis, "other programs") == [[(4, 2.0)], [(9, 40 / 33)]]
    assert {"PyTorch 0.5", "PyTorch 0"} <= set(texts(axis))
    assert lines_of(axis, "policies") == []


@pytest.mark.long
def test_frontier_labels_do_not_overlap_and_stay_inside() -> None:
    graph, _ = tc.networks.network_from_text("residual:6x8")
    costs = tc.cost.flops(graph)
    found = tc.frontier(graph, costs, time_limit=1)
    traces = [tc.replay(tc.plan(graph, policy, costs=costs)) for policy in POLICIES]
    shares = (0.95, 0.9, 0.85, 0.8)
    traces += [tc.replay(tc.plan(graph, "greedy", costs=costs, budget=share)) for share in shares]
    figure = frontier_figure(found, named_points(found, traces), found.bounds(6), DARK)
    (axis,) = figure.axes
    labels = boxes(figure, axis.texts[1:])
    assert len(labels) >= 5
    inside = axis.get_window_extent()
    for one, other in combinations(labels, 2):
        assert not one.overlaps(other)
    for label in labels:
        assert inside.x0 <= label.x0 < label.x1 <= inside.x1
        assert inside.y0 <= label.y0 < label.y1 <= inside.y1


@pytest.mark.long
def test_coinciding_policies_share_a_label() -> None:
    graph = tc.networks.chain(16)
    found = tc.frontier(graph, nodes=True)
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    axis = frontier_axis(found, traces={"this": trace, "that": trace})
    assert texts(axis)[-1] == "this\nthat"


def test_frontier_chart_refuses_a_graph(tmp_path: Path) -> None:
    graph = tc.networks.chain(4)
    path = tmp_path / "f.png"
    with pytest.raises(tc.TinyckptError, match=r"got a Graph.*viz\.frontier\(tc\.frontier\(graph"):
        viz.frontier(graph, path)  # type: ignore[arg-type]
    found = tc.frontier(graph)
    with pytest.raises(
        tc.TinyckptError, match=r"this trace is of chain:5, the frontier of chain:4"
    ):
        viz.frontier(found, path, traces=trace_of("chain:5"))
    with pytest.raises(tc.TinyckptError, match="nothing to draw: the frontier has no points"):
        viz.frontier(replace(found, points=()), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_frontier_bounds_never_exceed_the_frontier() -> None:
    graph, _ = tc.networks.network_from_text("residual:3x8")
    found = tc.frontier(graph)
    bounds = found.bounds()
    budgets = [budget for budget, _ in bounds]
    assert budgets == sorted(set(budgets))
    assert {point.peak for point in found.points} <= set(budgets)
    for budget, bound in bounds:
        within = [point.cost for point in found.points if point.peak <= budget]
        assert bound <= min(within, default=inf)
    assert bounds[-1][1] == len(graph.operators)
    assert len(found.bounds(3)) == 4


# Scaling -----------------------------------------------------------------------------------------


def test_scaling_chart_shows_fitted_exponents() -> None:
    sizes = (16, 36, 64, 100)
    traces = {
        policy: [trace_of(f"chain:{n}", policy) for n in sizes]
        for policy in ("store_all", "sqrt_n", "recompute_all")
    }
    peaks = [growth(name, some, lambda trace: trace.peak_nodes) for name, some in traces.items()]
    assert [line.values for line in peaks] == [
        (18, 38, 66, 102), (9, 13, 17, 21), (3, 3, 3, 3),
    ]  # fmt: skip
    evaluations = [growth(name, some, lambda t: t.evaluations) for name, some in traces.items()]
    assert [line.exponent for line in peaks] == pytest.approx([1.0, 0.5, 0.0], abs=0.07)
    assert [line.exponent for line in evaluations] == pytest.approx([1.0, 1.0, 2.0], abs=0.1)
    left, right = scaling_figure(evaluations, peaks, True, LIGHT).axes
    assert [list(line.get_ydata()) for line in right.lines] == [list(p.values) for p in peaks]
    assert [list(line.get_xdata()) for line in left.lines] == [list(sizes)] * 3
    assert (left.get_xscale(), right.get_yscale()) == ("log", "log")
    assert f"$n^{{{peaks[1].exponent:.2f}}}$" in texts(right)
    assert "√n checkpointing" in texts(left)


def test_growth_fit_recovers_an_exact_power() -> None:
    traces = [trace_of(f"chain:{n}", "store_all") for n in (2, 4, 8)]
    line = growth("cubes", traces, lambda trace: 5 * trace.graph.forward_count**3)
    assert line.exponent == pytest.approx(3)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_scaling_line_labels_do_not_overlap(theme: Any) -> None:
    same = [trace_of("chain:4"), trace_of("chain:9")]
    lines = [growth(f"policy {i}", same, lambda trace: trace.evaluations) for i in range(8)]
    figure = scaling_figure(lines, lines, True, theme)
    for axis in figure.axes:
        names = [text for text in axis.texts if text.get_text().startswith("policy")]
        assert len(names) == 8
        for one, other in combinations(boxes(figure, names), 2):
            assert not one.overlaps(other)


def test_scaling_refuses_fewer_than_two_sizes(tmp_path: Path) -> None:
    path, trace = tmp_path / "s.png", trace_of("chain:4")
    with pytest.raises(tc.TinyckptError, match="expected a mapping from names to traces, got a li"):
        viz.scaling([trace], path)  # type: ignore[arg-type]
    for some, sizes in (([trace], "4"), ([trace, trace_of("chain:4", "store_all")], "4, 4")):
        with pytest.raises(tc.TinyckptError, match=f"the sizes are {sizes}; give traces of at"):
            viz.scaling({"sqrt_n": some}, path)
    views = tc.replay(tc.plan(tc.build(lambda x: x.T.T, tc.Spec((1, 1)))))
    with pytest.raises(tc.TinyckptError, match="a size or a peak is 0, which has no logarithm"):
        viz.scaling({"views": [trace, views]}, path)
    with pytest.raises(tc.TinyckptError, match="nothing to draw"):
        viz.scaling({}, path)


# Placing labels ----------------------------------------------------------------------------------

numbers = st.floats(0, 400)


@pytest.mark.long
@settings(max_examples=examples(60))
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12))
def test_placed_labels_never_overlap(points: list[tuple[float, float]]) -> None:
    inside = Box(-60, -60, 460, 460)
    places = [place.box for place in place_labels(points, [(60.0, 12.0)] * len(points), inside)]
    for one, other in combinations(places, 2):
        assert one.overlap(other) == 0
    for box in places:
        assert inside.holds(box.left + 3, box.bottom + 3)
        assert inside.holds(box.right - 3, box.top - 3)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_spread_keeps_order_and_minimum_gap(heights: list[float]) -> None:
    moved = spread(heights, 5.0)
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    for below, above in pairwise(order):
        assert moved[above] - moved[below] >= 5.0 - 1e-6
    if all(b - a >= 5.001 for a, b in combinations(sorted(heights), 2)):
        assert moved == pytest.approx(heights, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("theme", THEMES)
def test_recomputed_is_hatched_in_every_chart_and_in_stills(tmp_path: Path, theme: str) -> None:
    trace = trace_of("chain:16", "sqrt_n")
    for name, draw in (("timeline", viz.timeline), ("ledger", viz.ledger)):
        text = draw(trace, tmp_path / "chart.svg", theme=theme).read_text(encoding="utf-8")
        fill = css(THEMES[theme].recomputed).lower()
        grounds = re.findall(r'<pattern[^>]*><rect[^>]*fill="([^"]+)"', text)
        assert fill in grounds, name
        assert f'fill="{fill}"' not in re.sub("<pattern.*?</pattern>", "", text), name
    stored = viz.timeline(trace_of("chain:16", "store_all"), tmp_path / "none.svg", theme=theme)
    grounds = re.findall(r'<pattern[^>]*><rect[^>]*fill="([^"]+)"', stored.read_text("utf-8"))
    assert grounds == [css(THEMES[theme].staying).lower()]  # results alone
    still = viz.save_still(trace, tmp_path / "still.svg", 60, theme=theme).read_text("utf-8")
    assert "<clipPath" in still
    strip = strip_of(scene_of(trace).rows[0].memory, (100, 700), inks_of(THEMES[theme], 1.0))
    kept = strip.past == inks_of(THEMES[theme], 1.0).index(THEMES[theme].kept)
    again = strip.past == inks_of(THEMES[theme], 1.0).index(THEMES[theme].recomputed)
    last = slice(620, 690)  # columns without any kept value
    assert kept[:, last].any()
    assert again[:, last].any()


def test_line_of_store_all_ends_beside_the_label_of_a_peak_near_it() -> None:
    graph = tc.networks.chain(40)
    plans = tc.plan(graph, "store_all"), tc.plan(graph, budget="39 nodes")
    inks = inks_of(THEMES["light"], 1.0)
    strip = strip_of(scene_of([tc.replay(plan) for plan in plans]).rows[1].memory, (100, 700), inks)
    line = 13  # in the last row of the room for words
    drawn = strip.past[line] == inks.index(THEMES["light"].muted)
    assert drawn[:300].any()
    assert not drawn[-4:].any()


@pytest.mark.parametrize("theme", THEMES)
def test_pinks_are_gradients_as_in_the_player_and_no_other_role_has_their_fill(theme: str) -> None:
    fills = fills_of(THEMES[theme])
    assert fills["cotangents"] == THEMES[theme].gradient
    assert fills["gradients"] == THEMES[theme].staying
    assert f"--staying:{css(fills['gradients'])};" in custom_properties(THEMES[theme])
    assert len(set(fills.values())) == len(fills)
    assert not {*fills.values()} & {*difference_colours(THEMES[theme]).values()}


def test_breakdown_refuses_what_is_no_ledger(tmp_path: Path) -> None:
    schedule = tc.plan(tc.networks.chain(3))
    for wrong in (schedule, tc.replay(schedule), 3):
        with pytest.raises(tc.OptionError, match=r"expected a Ledger, as tc\.ledger.* got a"):
            viz.breakdown(wrong, tmp_path / "bytes.svg")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_breakdown_refuses_ledgers_without_steps(tmp_path: Path) -> None:
    empty = tc.ledger(tc.plan(tc.differentiate(tc.build(lambda x: x, tc.Spec(())))))
    full = tc.ledger(tc.plan(tc.networks.chain(3)))
    for ledgers in ([], empty, [full, empty]):
        with pytest.raises(tc.OptionError, match="nothing to draw: give at least one ledger"):
            viz.breakdown(ledgers, tmp_path / "bytes.svg")
    assert list(tmp_path.iterdir()) == []
