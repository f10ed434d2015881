"""Benchmark: interactive planning page (``viz.lab``) in Chromium: size, load time, input latency.

A drag is one point of the frontier after the other, first towards less memory and back, begun half
a second after the page is ready: nobody reaches for it sooner. A click keeps a value or drops it,
which the page plans and replays itself. Both are with the styles and the layout that follow.

The second table is with the processor slowed, as a small laptop's: frames a second while the page
plays at 60 steps a second, and while each frame drags to the next point of the frontier.

The third is the calculator's, on the same processor: its first plan is its ledger, three schedules
planned and replayed; a change is one more layer, or image. Its lab opens in a frame afterwards.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import table
from player import LOADS, RESNET, SLOWED, measure_playing, opened
from playwright.sync_api import sync_playwright

import tinyckpt as tc
from tests.viz.conftest import FLAGS, chromium_path
from tinyckpt import viz

REACHING = 500  # milliseconds
DRAGS = """() => { const { points } = player.offers;
  return [...points].reverse().concat(points).map(point => {
    const begin = performance.now();
    player.drag(point, false);
    player.present();
    document.body.offsetHeight;
    return performance.now() - begin;
  }); }"""
DRAGGED = """async seconds => { const points = [...player.offers.points];
  const places = [...points].reverse().concat(points);
  let frames = 0; const begin = performance.now();
  await new Promise(done => { const move = now => {
    player.drag(places[frames++ % places.length], false);
    if (now - begin < 1000 * seconds) requestAnimationFrame(move); else done(); };
    requestAnimationFrame(move); });
  return frames / (performance.now() - begin) * 1000; }"""
CLICKS = """() => { const { candidates } = player.offers; const kept = new Set(candidates);
  return Array.from({ length: 40 }, (_, i) => {
    const value = candidates[Math.floor((i * 0.618034 % 1) * candidates.length)];
    if (!kept.delete(value)) kept.add(value);
    const begin = performance.now();
    player.take(player.offers.keeping(kept));
    document.body.offsetHeight;
    return performance.now() - begin;
  }); }"""

CHOSEN = ("family=gpt", "family=gpt&layers=96", "family=llama", "family=resnet&depth=152")
CHANGE = """() => {
  const field = document.getElementById("calc-layers") ?? document.getElementById("calc-batch");
  field.value = Number(field.value) + 1;
  const begin = performance.now();
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.body.offsetHeight;
  return performance.now() - begin; }"""


def measure(browser: Any, path: Path) -> list[str]:
    """Return size, loading, drags and clicks of a page."""
    loads = []
    for _ in range(LOADS):
        page, load = opened(browser, path)
        loads.append(load)
        page.close()
    page, _ = opened(browser, path)
    page.wait_for_timeout(REACHING)
    drags, clicks = page.evaluate(DRAGS), page.evaluate(CLICKS)
    page.close()
    return [
        f"{path.stat().st_size / 1024:.0f} KiB",
        f"{statistics.median(loads):.0f} ms",
        f"{statistics.median(drags):.1f} ms",
        f"{max(drags):.1f} ms",
        f"{statistics.median(clicks):.1f} ms",
    ]


def measure_slowed(browser: Any, path: Path) -> list[str]:
    """Return loading and frames of a page on a slowed processor, played and dragged."""
    page, _ = opened(browser, path, slowed=SLOWED)
    page.wait_for_timeout(REACHING)
    dragged = page.evaluate(DRAGGED, 5)
    page.close()
    return [*measure_playing(browser, path, REACHING), f"{dragged:.0f}"]


def measure_calculator(browser: Any, folder: Path) -> list[list[str]]:
    """Return, for some choices of the calculator, its first plan and a change, slowed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
    import calculator

    path = folder / "calculator.html"
    path.write_text(calculator.page(), encoding="utf-8")
    rows = []
    for chosen in CHOSEN:
        plans, changes = [], []
        for _ in range(LOADS):
            page, planned = opened(browser, path, f"#{chosen}", slowed=SLOWED)
            plans.append(planned)
            changes.append(page.evaluate(CHANGE))
            page.close()
        times = (f"{statistics.median(some):.0f} ms" for some in (plans, changes))
        rows.append([chosen.replace("&", ", "), *times])
    return rows


def report() -> list[str]:
    """Return the tables."""
    body, slow = [], []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        for network in ("chain:16", "chain:256", "unet", "resnet50", "gpt2:12x768"):
            is_resnet = network == "resnet50"
            known = tc.load_graph(RESNET) if is_resnet else tc.networks.network_from_text(network)
            graph = known if is_resnet else known[0]
            path = viz.lab(graph, Path(folder) / "lab.html")
            body.append([network, f"{len(graph.operators):,}", *measure(browser, path)])
            slow.append([network, *measure_slowed(browser, path)])
        calculated = measure_calculator(browser, Path(folder))
        browser.close()
    header = ["network", "operators", "file", "load", "drag", "slowest", "click"]
    slowed = ["network", "load", "playing, frames/s", "dragging, frames/s"]
    heading = f"## With the processor {SLOWED} times slower"
    first = ["calculator", "first plan", "change"]
    return [
        table.rows(header, body), heading, table.rows(slowed, slow), table.rows(first, calculated),
    ]  # fmt: skip


if __name__ == "__main__":
    table.write("lab", "A page on which one drags the budget", report(), ["playwright"])
