"""Benchmark: HTML player in Chromium: page size, load time, step latency and frame rate.

Loading is from navigation to a page that shows its first step. A step is one ArrowRight, with the
styles and the layout that follow from it; frames are what the browser draws while it plays at 60
steps a second, while seven tenths of the ledger are moved along under a window, and
while a wheel is turned at each frame, to and fro.

The second table is with the processor slowed, as a small laptop's. Its last rows are what a page
can do at best there: an empty one, and one whose script only writes anew, in each frame, a canvas
of the memory strip's size.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import table
from playwright.sync_api import sync_playwright

import tinyckpt as tc
from tests.viz.conftest import FLAGS, chromium_path
from tinyckpt import viz

LOADS = 5
STEPS = """() => { const seconds = [];
  const scrub = document.getElementById("scrub");
  for (let i = 0; i < 300; i++) {
    if (scrub.value === scrub.max) document.getElementById("first").click();
    const begin = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
    document.body.offsetHeight;
    seconds.push(performance.now() - begin);
  }
  return seconds; }"""
SEEKS = """() => { const milliseconds = []; const scrub = document.getElementById("scrub");
  for (let i = 0; i < 100; i++) {
    scrub.value = Math.floor((i * 0.618034 % 1) * Number(scrub.max));
    const begin = performance.now();
    scrub.dispatchEvent(new Event("input"));
    document.body.offsetHeight;
    milliseconds.push(performance.now() - begin);
  }
  return milliseconds; }"""
PLAY = """async seconds => { const play = document.getElementById("play");
  if (play) {
    document.getElementById("first").click();
    const speed = document.getElementById("speed");
    speed.value = "60"; speed.dispatchEvent(new Event("change"));
    play.click();
  }
  let frames = 0; const begin = performance.now();
  await new Promise(done => { const tick = now => {
    frames++;
    if (now - begin < 1000 * seconds && play?.dataset.playing !== "false")
      requestAnimationFrame(tick); else done(); }; requestAnimationFrame(tick); });
  const rate = frames / (performance.now() - begin) * 1000;
  if (play?.dataset.playing === "true") play.click();
  return rate; }"""
PAN = """async seconds => { const extent = window.player?.scales.extent;
  let frames = 0; const begin = performance.now();
  await new Promise(done => { const move = now => {
    const from = 0.3 * Math.abs(Math.sin((now - begin) / 1000)) * (extent?.whole ?? 1);
    extent?.set(from, from + 0.7 * extent.whole);
    frames++;
    if (now - begin < 1000 * seconds) requestAnimationFrame(move); else done(); };
    requestAnimationFrame(move); });
  extent?.set(0, extent.whole);
  return frames / (performance.now() - begin) * 1000; }"""
ZOOM = """async seconds => { const plot = [...document.querySelectorAll(".ledger .plot canvas")]
    .find(canvas => canvas.clientWidth);
  const box = plot?.getBoundingClientRect();
  const [clientX, clientY] = plot ? [box.left + 0.4 * box.width, box.top + 9] : [0, 0];
  let frames = 0; const begin = performance.now();
  await new Promise(done => { const turn = now => {
    const deltaY = Math.floor((now - begin) / 1000) % 2 ? 20 : -20;
    plot?.dispatchEvent(new WheelEvent("wheel",
      {deltaY, clientX, clientY, bubbles: true, cancelable: true}));
    frames++;
    if (now - begin < 1000 * seconds) requestAnimationFrame(turn); else done(); };
    requestAnimationFrame(turn); });
  return frames / (performance.now() - begin) * 1000; }"""
WRITE = """async seconds => {
  const canvas = document.body.appendChild(document.createElement("canvas"));
  [canvas.width, canvas.height] = [1100, 450];
  const ink = canvas.getContext("2d"), image = new ImageData(1100, 450);
  const pixels = new Uint32Array(image.data.buffer);
  let frames = 0; const begin = performance.now();
  await new Promise(done => { const write = now => {
    pixels.fill(0xff000000 + 50 * frames++);
    ink.putImageData(image, 0, 0);
    if (now - begin < 1000 * seconds) requestAnimationFrame(write); else done(); };
    requestAnimationFrame(write); });
  return frames / (performance.now() - begin) * 1000; }"""
SLOWED = 4  # times
RESNET = Path(tc.__file__).parent / "data" / "graphs" / "resnet50.json"
BARS = """player.difference?.ledger.along.places.length ??
  player.panels.reduce((sum, panel) => sum + panel.ledger.history.steps.length, 0)"""
# What a driver does to find an element would take its share of the time; this one waits to be told.
READY = """() => new Promise((done, failed) => {
  setTimeout(() => failed(new Error("not ready after 30 seconds")), 30000);
  new PerformanceObserver(list => {
    const [mark] = list.getEntriesByName("ready");
    if (mark) done(mark.startTime);
  }).observe({ type: "mark", buffered: true }); })"""


def measure(browser: Any, path: Path, fragment: str) -> list[str]:
    """Return size, loading, steps, seeks and frames of a page."""
    loads = []
    for _ in range(LOADS):
        page, load = opened(browser, path, fragment)
        loads.append(load)
        page.close()
    page, _ = opened(browser, path, fragment)
    steps, seeks, frames = page.evaluate(STEPS), page.evaluate(SEEKS), page.evaluate(PLAY, 5)
    bars, moved = page.evaluate(BARS), page.evaluate(PAN, 5)
    zoomed = page.evaluate(ZOOM, 6)
    page.close()  # what is open in the background takes its share of a core
    return [
        f"{path.stat().st_size / 1024:.0f} KiB",
        f"{statistics.median(loads):.0f} ms",
        f"{statistics.median(steps):.2f} ms",
        f"{sorted(steps)[-len(steps) // 100]:.2f} ms",
        f"{statistics.median(seeks):.2f} ms",
        f"{frames:.0f}",
        f"{bars:,}",
        f"{moved:.0f}",
        f"{zoomed:.0f}",
    ]


def measure_playing(browser: Any, path: Path, wait: float = 0) -> list[str]:
    """Return loading and frames of a page that plays on a slowed processor.

    Args:
        browser, path: the page.
        wait: milliseconds from when it is ready to when it plays.
    """
    loads = []
    for _ in range(LOADS):
        page, load = opened(browser, path, slowed=SLOWED)
        loads.append(load)
        page.close()
    page, _ = opened(browser, path, slowed=SLOWED)
    page.wait_for_timeout(wait)
    frames = page.evaluate(PLAY, 5)
    page.close()
    return [f"{statistics.median(loads):.0f} ms", f"{frames:.0f}"]


def measure_best(browser: Any) -> list[list[str]]:
    """Return the rows of pages that do next to nothing, on a slowed processor."""
    rows = []
    for name, script in (
        ("an empty page", PLAY),
        ("a canvas of 1,100 by 450, written anew", WRITE),
    ):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        slow(page, SLOWED)
        rows.append([name, "", "", f"{page.evaluate(script, 5):.0f}"])
        page.close()
    return rows


def slow(page: Any, times: float) -> None:
    """Make the processor of a page some times slower than it is."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": times})


def opened(browser: Any, path: Path, fragment: str = "", slowed: float = 1) -> tuple[Any, float]:
    """Return a page that shows its first step, and after how many milliseconds it did.

    Args:
        browser, path, fragment: the page.
        slowed: how many times slower than it is the processor is made.
    """
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    slow(page, slowed)
    page.goto(path.as_uri() + fragment)
    return page, page.evaluate(READY)


def report() -> list[str]:
    """Return the tables."""
    cases: Sequence[tuple[str, Sequence[str], str]] = (
        ("chain:16", ("sqrt_n",), ""),
        ("chain:16", ("store_all", "sqrt_n", "recompute_all"), ""),
        ("chain:64", ("sqrt_n",), ""),
        ("chain:256", ("sqrt_n",), ""),
        ("chain:256", ("sqrt_n", "recompute_all"), ""),
        ("chain:256", ("sqrt_n", "recompute_all"), "#difference=1-2"),
        ("resnet50", ("sqrt_n",), ""),
        ("chain:316", ("recompute_all",), ""),
        ("chain:632", ("recompute_all",), ""),
    )
    body = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        for network, policies, fragment in cases:
            graph = tc.networks.network_from_text(network)[0]
            traces = [tc.replay(tc.plan(graph, policy)) for policy in policies]
            path = viz.player(traces, Path(folder) / "player.html")
            steps = max(len(trace.steps) for trace in traces)
            shown = (" against " if fragment else ", ").join(policies)
            body.append([network, shown, f"{steps:,}", *measure(browser, path, fragment)])
        blank = browser.new_page(viewport={"width": 1440, "height": 900})
        empty = [f"{blank.evaluate(PLAY, 5):.0f}", "", f"{blank.evaluate(PAN, 5):.0f}"]
        empty.append(f"{blank.evaluate(ZOOM, 5):.0f}")
        body.append(["an empty page", *[""] * 7, *empty])
        blank.close()
        slowed = []
        for network in ("chain:16", "resnet50", "gpt2:12x768"):
            known = network == "resnet50"
            graph = tc.load_graph(RESNET) if known else tc.networks.network_from_text(network)[0]
            path = viz.player([tc.replay(tc.plan(graph, "sqrt_n"))], Path(folder) / "player.html")
            slowed.append([network, "sqrt_n", *measure_playing(browser, path)])
        slowed += measure_best(browser)
        browser.close()
    header = [
        "network", "policies", "steps", "file", "load", "step", "99th %", "seek", "frames/s",
        "bars", "panning, frames/s", "zooming, frames/s",
    ]  # fmt: skip
    heading = f"## With the processor {SLOWED} times slower"
    slowed_header = ["network", "policy", "load", "playing, frames/s"]
    return [table.rows(header, body), heading, table.rows(slowed_header, slowed)]


if __name__ == "__main__":
    table.write("player", "A page that plays", report(), ["playwright"])
