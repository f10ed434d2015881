"""Memory maps: one rectangle per allocation, where and of which kind; the lines; the sentence."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.viz.charts.test_charts import legend_of
from tinyckpt.codegen.reserved_memory import reserved
from viz.charts.memory_map import KINDS, WIDTH, kinds_of, maps_figure, middles, overlaps
from viz.charts.style import looks
from viz.theme import DARK, LIGHT, Theme

LIMIT = 40_000  # bytes of an SVG


def plan_of(network: str = "chain:4", policy: str = "sqrt_n") -> tc.Arena:
    graph, _ = tc.networks.network_from_text(network)
    return tc.arena(tc.plan(graph, policy))


def figure_of(plan: Any, colours: Theme = LIGHT, **options: Any) -> Any:
    with looks():
        return maps_figure([plan], colours, WIDTH, [""], **options)


def test_every_allocation_is_a_rectangle_at_its_address_and_steps() -> None:
    plan = plan_of()
    (axis,) = figure_of(plan).axes
    drawn = {
        (corners[0][0], corners[2][0], corners[0][1] * 1024, corners[2][1] * 1024)
        for collection in axis.collections
        for corners in (path.vertices for path in collection.get_paths())
    }
    assert drawn == {
        (each.start, each.stop, offset, offset + each.nbytes)
        for each, offset in zip(plan.allocations, plan.offsets, strict=True)
    }


def test_kinds_tell_forward_recomputed_gradient_and_workspace_apart() -> None:
    plan = plan_of("chain:2", "recompute_all")
    words = [
        f"{plan.schedule.graph.data[each.storage].name} {KINDS[kind]}"
        for each, kind in zip(plan.allocations, kinds_of(plan), strict=True)
    ]
    assert words == [
        "f1 forward value", "f2 forward value", "l gradient", "b2 gradient", "f1 recomputed",
        "b1 gradient",
    ]  # fmt: skip
    lenet = plan_of("lenet5:2", "store_all")
    kinds = np.array(kinds_of(lenet))
    of_workspace = [each.kind == "workspace" for each in lenet.allocations]
    assert (kinds == KINDS.index("workspace")).tolist() == of_workspace
    assert any(of_workspace)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_lines_are_the_peak_and_the_height(colours: Theme) -> None:
    plan = reserved(plan_of("resnet18:1").schedule)
    (axis,) = figure_of(plan, colours).axes
    heights = {float(line.get_ydata()[0]) * 2**20 for line in axis.lines}
    assert {float(plan.nbytes), float(plan.lower_bound)} <= heights
    assert {float(segment.address) for segment in plan.segments} <= heights


def test_legend_names_only_what_occurs() -> None:
    (legend,) = figure_of(plan_of("chain:4", "store_all")).legends
    assert legend_of(legend) == [
        "forward value", "gradient", "buffer", "peak of live bytes, rounded up",
    ]  # fmt: skip


def test_names_that_have_no_room_in_their_rectangles_are_left_out() -> None:
    (axis,) = figure_of(plan_of("mlp:1x64")).axes
    values = {node.name for node in plan_of("mlp:1x64").schedule.graph.data}
    names = [text for text in axis.texts if text.get_text() in values]
    boxes = [text.get_window_extent() for text in names]
    assert names
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    around = axis.get_window_extent()
    assert all(around.x0 <= box.x0 and box.x1 <= around.x1 for box in boxes)


def test_image_of_many_allocations_has_the_colours_of_the_rectangles() -> None:
    plan = plan_of("chain:16")
    (axis,) = figure_of(plan, most=0).axes
    assert not axis.collections
    image = axis.images[0].get_array()
    for each, low, kind in zip(plan.allocations, plan.offsets, kinds_of(plan), strict=True):
        row = int((low + each.nbytes / 2) / plan.nbytes * len(image))
        column = int((each.start + each.stop) / 2 / len(plan.schedule) * image.shape[1])
        fill = (LIGHT.kept, LIGHT.recomputed, LIGHT.gradient, LIGHT.workspace)[kind]
        assert tuple(int(part) for part in image[row, column]) == tuple(fill)


def test_cells_are_those_whose_middle_is_in_the_range() -> None:
    for begin, end, cell in ((0, 10, 4), (3, 5, 4), (1.5, 7.5, 1), (0, 0, 3)):
        low, high = middles(begin, end, cell)
        inside = [at for at in range(20) if begin <= (at + 0.5) * cell < end]
        assert list(range(low, high)) == inside


@pytest.mark.sampled(2)
@pytest.mark.parametrize("allocator", ["arena", "caching"])
@pytest.mark.parametrize("network", ["chain:16", "chain:256", "resnet18:2"])
def test_svg_says_the_result_in_at_most_40_kb(network: str, allocator: str, tmp_path: Path) -> None:
    plan = plan_of(network)
    path = viz.memory_map(plan.schedule, tmp_path / "map.svg", allocator=allocator)
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= LIMIT
    assert " live in one buffer of " in text or " live in segments of " in text
    again = viz.memory_map(tc.replay(plan.schedule), tmp_path / "2.svg", allocator=allocator)
    assert again.read_bytes() == path.read_bytes()


def test_illegal_options_are_refused(tmp_path: Path) -> None:
    schedule = plan_of().schedule
    with pytest.raises(tc.OptionError, match="allocator='buddy'; expected 'arena' or 'caching'"):
        viz.memory_map(schedule, tmp_path / "map.svg", allocator="buddy")
    with pytest.raises(tc.TinyckptError, match="theme"):
        viz.memory_map(schedule, tmp_path / "map.svg", theme="sepia")


@pytest.mark.long
def test_several_plans_are_beside_each_other_on_one_scale(tmp_path: Path) -> None:
    planned = plan_of()
    caching = reserved(planned.schedule)
    with looks():
        left, right = maps_figure([planned, caching], LIGHT, 8.0, ["mine", "the other"]).axes
    assert left.get_ylim() == right.get_ylim()
    assert [axis.get_title("left") for axis in (left, right)] == ["mine", "the other"]
    assert all(float(tick).is_integer() for tick in left.get_xticks())
    alone = viz.memory_map(planned, tmp_path / "alone.svg")
    assert alone.read_bytes() == viz.memory_map(planned.schedule, tmp_path / "s.svg").read_bytes()
    text = viz.memory_map([planned, caching], tmp_path / "both.svg").read_text(encoding="utf-8")
    assert " live in one buffer of " in text
    assert " live in segments of " in text
    with pytest.raises(tc.OptionError, match="1 titles of 2 maps"):
        viz.memory_map([planned, caching], tmp_path / "both.svg", title="one")
    with pytest.raises(tc.OptionError, match="expected a trace or a schedule, got a int"):
        viz.memory_map([1], tmp_path / "both.svg")  # type: ignore[list-item]


def test_overlapping_values_are_drawn_as_such(tmp_path: Path) -> None:
    plan = tc.arena(tc.plan(tc.networks.chain(3)))
    assert overlaps(plan) == []
    wrong = replace(plan, offsets=(0,) * len(plan.offsets))
    spans = [(each.start, each.stop) for each in plan.allocations]
    expected = [
        (one, other)
        for one, (start, stop) in enumerate(spans)
        for other, (begin, end) in enumerate(spans[one + 1 :], one + 1)
        if start < end and begin < stop
    ]
    assert overlaps(wrong) == expected != []
    path = viz.memory_map([wrong, plan], tmp_path / "maps.svg", title=["mine", "best"])
    text = path.read_text(encoding="utf-8")
    assert f"{len(expected)} overlaps: no packing" in text
    assert "no memory is lost to holes" in text


@pytest.mark.parametrize("wrong", [3, None, "x", tc.networks.chain(2)])
def test_what_is_no_trace_is_refused(wrong: object) -> None:
    with pytest.raises(tc.OptionError, match="expected a trace or a schedule, got a"):
        viz.memory_map(wrong)  # type: ignore[arg-type]
