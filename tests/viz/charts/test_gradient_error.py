"""Gradient error chart: points, lines, labels and limits, not pixels."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
import viz
from tests.conftest import examples
from viz.charts.gradient_error import gradient_error_figure
from viz.charts.style import looks
from viz.theme import DARK, LIGHT

WAYS = {
    "codes": [("8 bits", 400_000, 0.004), ("2 bits", 120_000, 0.4), ("4 bits", 210_000, 0.07)],
    "ReGELU2": [("published", 700_000, 0.33)],
}
EXACT = 2**20


def texts(figure: Any) -> list[str]:
    (axis,) = figure.axes
    return [text.get_text() for text in axis.texts if text.get_text()]


def test_each_technique_is_a_line_by_bytes_labelled_at_its_first_point() -> None:
    figure = gradient_error_figure(WAYS, EXACT, LIGHT)
    (axis,) = figure.axes
    lines: list[Any] = list(axis.lines[:3])
    codes, regelu, exact = lines
    assert [round(x * 2**20) for x in codes.get_xdata()] == [120_000, 210_000, 400_000]
    assert list(codes.get_ydata()) == [0.4, 0.07, 0.004]
    assert list(regelu.get_ydata()) == [0.33]
    assert list(exact.get_xdata()) == [1, 1]  # MiB
    assert texts(figure)[1:] == [
        "codes\n2 bits", "4 bits", "8 bits", "ReGELU2\npublished", "exact\n1.0 MiB",
    ]  # fmt: skip
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert axis.yaxis.get_major_formatter()(0.005, 0) == "0.5 %"
    assert axis.get_xlabel() == "kept, MiB"
    assert codes.get_color() != regelu.get_color()
    assert codes.get_marker() != regelu.get_marker()


def test_chart_without_exact_bytes_has_no_reference_line() -> None:
    figure = gradient_error_figure(WAYS, None, DARK, title="")
    (axis,) = figure.axes
    assert texts(figure) == ["codes\n2 bits", "4 bits", "8 bits", "ReGELU2\npublished"]
    assert axis.get_title("left") == ""
    assert axis.get_xlabel() == "kept, KiB"


@pytest.mark.long
@settings(max_examples=examples(10), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 2**50), st.floats(1e-12, 1e6)), max_size=4), max_size=4
    ),
    st.sampled_from([3.0, 5.0, 8.0]),
)
def test_points_are_within_axes_and_labels_do_not_overlap(
    drawn: list[list[tuple[int, float]]], width: float
) -> None:
    ways = {
        f"way {number}": [(f"{place} bits", *point) for place, point in enumerate(points)]
        for number, points in enumerate(drawn)
    }
    if not any(drawn):
        with pytest.raises(tc.TinyckptError, match="nothing to draw: there are no points"):
            viz.gradient_error(ways, "x.png")
        return
    with looks():
        figure = gradient_error_figure(ways, 4096, LIGHT, width)
        figure.canvas.draw()
        (axis,) = figure.axes
        around = axis.get_window_extent()
        lines: list[Any] = list(axis.lines[: sum(map(bool, drawn))])
        for line in lines:
            for point in axis.transData.transform(line.get_xydata()):
                assert around.x0 <= point[0] <= around.x1
                assert around.y0 <= point[1] <= around.y1
        labels = [t.get_window_extent() for t in axis.texts if "bits" in t.get_text()]
        assert len(labels) == sum(map(len, drawn))
        if len(labels) <= 6 and width == 8:
            for one, other in combinations(labels, 2):
                assert not one.overlaps(other)


@pytest.mark.parametrize(
    ("ways", "options", "match"),
    [
        ([("8 bits", 1, 1.0)], {}, "expected a mapping from names to points, got a list; give"),
        ({}, {}, "nothing to draw: there are no points"),
        ({"codes": []}, {}, "nothing to draw: there are no points"),
        ({"c": [("exact", 4096, 0.0)]}, {}, "c, exact: 4096 bytes, an error of 0.0; both must be"),
        ({"c": [("8 bits", 0, 0.1)]}, {}, "c, 8 bits: 0 bytes, an error of 0.1; both must be"),
        ({"c": [("8", 1, float("nan"))]}, {}, "c, 8: 1 bytes, an error of nan; both must be num"),
        ({"c": [("8", 1, float("inf"))]}, {}, "c, 8: 1 bytes, an error of inf; both must be num"),
        (WAYS, {"exact": 0}, "exact=0: bytes must be a number above 0"),
        ({"c": [("8", 1, 1e200)]}, {}, r"c, 8: 1 bytes, an error of 1e\+200; both must be"),
        ({"c": [("8", "4 KiB", 0.1)]}, {}, "c, 8: '4 KiB' bytes, an error of 0.1; both must be"),
        ({"c": [(4096, 0.1)]}, {}, "c: a point is a label, bytes and an error"),
        (WAYS, {"theme": "neon"}, "unknown theme 'neon'; known are light, dark"),
        (WAYS, {"width": 2}, "width 2: expected 3 to 30 inches"),
        (WAYS, {"title": ["a", "b"]}, "give one for each chart, of which there are 1"),
    ],
)
def test_gradient_error_refuses_bad_points_and_options(
    tmp_path: Path, ways: Any, options: Any, match: str
) -> None:
    with pytest.raises(tc.TinyckptError, match=match):
        viz.gradient_error(ways, tmp_path / "c.png", **options)
    assert not list(tmp_path.iterdir())
