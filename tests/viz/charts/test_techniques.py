"""Techniques chart: a point and a number each, fills, the budget, labels without overlaps."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tinyckpt.techniques import TECHNIQUES, Row, TechniqueComparison, compare_techniques
from viz.charts.style import looks
from viz.charts.techniques import techniques_figure
from viz.theme import DARK, LIGHT

WIDTHS = (3.0, 4.7, 6.0, 8.0, 14.0)


@pytest.fixture(scope="module")
def found() -> TechniqueComparison:
    network = tc.networks.residual_mlp(4, 16, 64)
    return compare_techniques(network, budget="90 %", time_limit=0.3, measure=False)


def written(figure: Any) -> list[str]:
    """Return all texts of the figure outside its axes."""
    return [text.get_text() for text in figure.texts]


def points_of(axis: Any) -> list[tuple[float, float, str, str]]:
    """Return position, fill and marker of every point."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_fillstyle(), marker)
        for line in axis.lines
        if (marker := line.get_marker()) in ("o", "s") and len(line.get_xdata())
    ]


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_every_technique_has_a_point_or_a_dash(found: TechniqueComparison, width: float) -> None:
    figure = techniques_figure(found, LIGHT, width)
    (axis,) = figure.axes
    rows = [row for row in found.rows if row.peak is not None]
    assert points_of(axis) == [
        (
            (row.peak or 0) / 1024,
            row.times,
            "none" if row.gradients == "approximate" else "full",
            "o" if row.devices == 1 else "s",
        )
        for row in rows
    ]
    key = written(figure)
    assert key[1::2] == list(TECHNIQUES)
    numbers = dict(zip(key[1::2], key[::2], strict=True))
    assert [numbers[row.name] for row in rows] == [str(n) for n in range(1, len(rows) + 1)]
    assert {numbers[row.name] for row in found.rows if row.why} == {"\N{EN DASH}"}
    beside = [n for text in axis.texts[1:] for n in text.get_text().split(", ")]
    assert sorted(beside, key=int) == [str(n) for n in range(1, len(rows) + 1)]
    (budget,) = (line for line in axis.lines if line.get_label() == "budget")
    assert list(budget.get_xdata()) == [found.budget / 1024] * 2
    assert axis.get_xlabel() == "peak, KiB"


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_texts_do_not_overlap(found: TechniqueComparison, width: float) -> None:
    figure = techniques_figure(found, DARK, width)
    figure.canvas.draw()
    (axis,) = figure.axes
    labels = [text.get_window_extent() for text in axis.texts[1:]]
    key = [text.get_window_extent() for text in figure.texts]
    legends = [each.get_window_extent() for each in (*figure.legends, axis.get_legend()) if each]
    inside, whole = axis.get_window_extent(), figure.bbox
    for one, other in combinations([*labels, *key, *legends], 2):
        assert not one.overlaps(other)
    for label in labels:
        assert inside.x0 <= label.x0 < label.x1 <= inside.x1
        assert inside.y0 <= label.y0 < label.y1 <= inside.y1
    for box in [*key, *legends]:
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
        assert not box.overlaps(axis.get_tightbbox()) or box in legends


def drawn(place: int, peak: int, times: float, gradients: Any, devices: int) -> Row:
    return Row(
        list(TECHNIQUES)[place], peak=peak, share=1.0, fits=True, times=times, gradients=gradients,
        devices=devices,
    )  # fmt: skip


@pytest.mark.long
@settings(max_examples=examples(15))
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**40),
            st.floats(0.5, 500.0),
            st.sampled_from(["bitwise", "rounded", "unproven", "approximate"]),
            st.sampled_from([1, 4]),
        ),
        min_size=1,
        max_size=len(TECHNIQUES),
    ),
    st.integers(0, 2**41),
    st.sampled_from(WIDTHS),
)
def test_arbitrary_points_can_be_drawn(rows: list[Any], budget: int, width: float) -> None:
    made = [drawn(place, *row) for place, row in enumerate(rows)]
    made += [Row(name, why="no") for name in list(TECHNIQUES)[len(rows) :]]
    some = TechniqueComparison("drawn", budget, "FLOPs", None, tuple(made))
    with looks():
        figure = techniques_figure(some, LIGHT, width)
        figure.canvas.draw()
        (axis,) = figure.axes
        assert len(points_of(axis)) == len(rows)
        for one, other in combinations([text.get_window_extent() for text in axis.texts[1:]], 2):
            assert not one.overlaps(other)
