"""Frontier plot of the lab: ticks are at their values, labels are legible."""

from typing import Any

import pytest

from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import engine, workbench

pytestmark = pytest.mark.browser
# What is written beside each line of the costs and below each mark of the peaks, and where it is.
COSTS = """() => [...document.querySelectorAll(".frontier .tick.end")]
    .filter(text => Number(text.getAttribute("x")) < 46)
    .map(text => [text.textContent, Number(text.getAttribute("y")) - 4])"""
PEAKS = """() => [...document.querySelectorAll(".frontier .tick.middle")]
    .map(text => [text.textContent, Number(text.getAttribute("x"))])"""
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(words: str) -> float:
    number, unit = words.split(" ")
    return float(number.replace("\u2009", "")) * UNITS[unit]


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["chain:4", "chain:16", "residual:4x8", "unet", "resnet50"])
def test_axis_ticks_are_at_their_values(network: str, lab: OpenLab) -> None:
    page = workbench(lab, network)
    costs = page.evaluate(COSTS)
    assert costs
    for words, y in costs:
        cost = float(words.replace("\u2009", "").rstrip("×"))  # noqa: RUF001
        times = page.evaluate("() => player.offers.least") if words.endswith("×") else 1  # noqa: RUF001
        assert page.evaluate("cost => player.plot.y(cost)", cost * times) == pytest.approx(y)
    peaks = page.evaluate(PEAKS)
    assert len(peaks) > 1
    size = page.evaluate("() => player.offers.inNodes ? player.offers.size : 0")
    for words, x in peaks:
        peak = int(words) * size if size else bytes_of(words)
        assert page.evaluate("peak => player.plot.x(peak)", peak) == pytest.approx(x)


def test_ticks_of_counts_are_integers(browser: Any) -> None:
    page = engine(browser, "format", "frontier")

    def ticks(low: float, high: float, steep: bool, least: float = 1) -> Any:
        given = [[low, high], steep, least]
        return page.evaluate("([range, steep, least]) => ticksBetween(range, steep, least)", given)

    assert ticks(8.8, 11.1, False) == [9, 10, 11]
    assert ticks(8.9, 9.2, False) == [9]
    assert ticks(0.4, 30, True) == [1, 2, 3, 5, 10, 20, 30]
    assert ticks(0.999, 1.031, False, 0.01) == [1, 1.01, 1.02, 1.03]
    page.close()


def test_ticks_of_bytes_are_round(browser: Any) -> None:
    page = engine(browser, "format", "frontier")

    def words(low: float, high: float, wide: bool) -> Any:
        given = [[low, high], wide]
        return page.evaluate(
            "([range, wide]) => roundSizes(byteTicksBetween(range, wide), wide)", given
        )

    assert words(31, 1300, True) == ["32 B", "64 B", "128 B", "256 B", "512 B", "1 KiB"]
    assert words(400, 1700, False) == ["0.5 KiB", "0.75 KiB", "1 KiB", "1.25 KiB", "1.5 KiB"]
    assert words(2**20 + 1, 2**20 + 4e5, False) == ["1.125 MiB", "1.25 MiB", "1.375 MiB"]
    narrow = [f"1\u2009{kib} KiB" for kib in ("088", "120", "152", "184", "216")]
    assert words(2**20 + 5e4, 2**20 + 2e5, False) == narrow
    assert words(1.2e8, 6e8, False) == ["128 MiB", "256 MiB", "384 MiB", "512 MiB"]
    assert words(3.2, 5.1, False) == ["4 B", "5 B"]
    assert words(5e7, 6e12, True) == ["64 MiB", "512 MiB", "4 GiB", "32 GiB", "256 GiB", "2 TiB"]
    page.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(360, 740), (1280, 800), (2560, 1300)])
@pytest.mark.parametrize("network", ["chain:16", "resnet50"])
def test_no_label_is_under_the_handle(network: str, size: tuple[int, int], lab: OpenLab) -> None:
    page = workbench(lab, network, viewport={"width": size[0], "height": size[1]})
    for policy in page.evaluate("() => player.offers.named.map(({ name }) => name)"):
        page.select_option("#lab-policy", policy)
        covered = page.evaluate(
            """() => {
                const handle = document.querySelector(".handle").getBoundingClientRect();
                const x = (handle.left + handle.right) / 2;
                const y = (handle.top + handle.bottom) / 2;
                return [...document.querySelectorAll(".frontier .name")].filter(name => {
                    const { left, right, top, bottom } = name.getBoundingClientRect();
                    return x > left && x < right && y > top && y < bottom;
                }).map(name => name.textContent); }"""
        )
        assert covered == [], policy
