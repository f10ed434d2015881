"""Driver of the player page, and Python's reference for what it shows."""

import base64
import re
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tinyckpt as tc
import viz
from viz.layout.views import views_of
from viz.node_looks import CellLooks
from viz.scene import count_text, counts_nodes, live_of, live_text

POLICIES = ("store_all", "sqrt_n", "recompute_all")
LOOKS = """() => [...document.querySelectorAll(".panel:not(.compact)")].map(
    panel => [...panel.querySelectorAll(".graph .node")].map(node => node.dataset.look))"""
COUNTERS = """() => [...document.querySelectorAll(".panel:not(.compact)")].map(
    panel => [...panel.querySelectorAll("[data-counter]")].map(dd => dd.textContent))"""
# Press a key again and again; after each time, looks and counters.
PRESS = f"""([key, times]) => Array.from({{length: times}}, () => {{
    document.body.dispatchEvent(new KeyboardEvent("keydown", {{key, bubbles: true}}));
    return [({LOOKS})(), ({COUNTERS})()]; }})"""
# The table of rows.
ROWS = """() => [...document.querySelectorAll("#as-table tbody tr")].map(
    row => [...row.children].map(cell => cell.textContent))"""
TICK = "() => Number(document.getElementById('scrub').value)"
# What can be touched, and is smaller than 24 pixels.
SMALL = """() => [...document.querySelectorAll(
        "button, select, summary, #minimap, input, [role=listbox] .row")].filter(element => {
    const {width, height} = element.getBoundingClientRect();
    return width > 0 && Math.min(width, height) < 24; }).map(element => element.outerHTML)"""


@cache
def traces_of(network: str, policies: Sequence[str]) -> list[tc.Trace]:
    graph = tc.networks.network_from_text(network)[0]
    return [tc.replay(tc.plan(graph, policy)) for policy in policies]


LOOKS_OF: dict[int, list[list[str]]] = {}  # by the id of a trace, all of which traces_of keeps


def looks_of(trace: tc.Trace) -> list[list[str]]:
    """Return the scene's looks of every cell, before the first step and after each."""
    if id(trace) not in LOOKS_OF:
        LOOKS_OF[id(trace)] = all_looks(trace)
    return LOOKS_OF[id(trace)]


def all_looks(trace: tc.Trace) -> list[list[str]]:
    state = CellLooks(trace, views_of(trace.graph)[0].layout.cells)
    moments = [[str(state.look(cell)) for cell in state.cells]]
    for position in range(len(trace.steps)):
        state.take(position)
        moments.append([str(state.look(cell)) for cell in state.cells])
    return moments


def expected_looks(traces: Sequence[tc.Trace], step: int) -> list[list[str]]:
    return [looks_of(trace)[min(step, len(trace.steps) - 1) + 1] for trace in traces]


def expected_counters(traces: Sequence[tc.Trace], step: int) -> list[list[str]]:
    in_nodes = counts_nodes(traces)
    counters = []
    for trace in traces:
        at = min(step, len(trace.steps) - 1)
        live = live_of(trace, in_nodes)
        counters.append(
            [
                f"{count_text(at)} / {count_text(len(trace.steps) - 1)}",
                f"{count_text(trace.evaluations_so_far[at])} / {count_text(trace.evaluations)}",
                live_text(live[at], in_nodes),
                live_text(max(live[: at + 1]), in_nodes),
            ]
        )
    return counters


def written(
    tmp_path: Path, traces: Sequence[tc.Trace], view: str = "graph", **options: Any
) -> Path:
    return viz.player(
        traces, tmp_path / "player.html", view=view, **from_the_start(traces, **options)
    )


def from_the_start(traces: Any, **options: Any) -> dict[str, Any]:
    """Return options with which a page shows its first policy, or both of two, before any step."""
    if not isinstance(traces, Sequence) or any(hasattr(trace, "bubble") for trace in traces):
        return {"stop": "start"} | options if hasattr(traces, "schedule") else options
    first = traces[0].schedule.policy if traces else None
    if len(traces) == 2:
        first = "all"
    return {"show": first, "stop": "start"} | options


def code_of(page: str) -> str:
    """Return the scripts of a page."""
    (packed,) = re.findall(r'id="scripts">([^<]+)<', page)
    return zlib.decompress(base64.b64decode(packed)).decode()


def choose_largest(page: Any) -> Any:
    """Open the largest bar of what is in memory level by level, select its value; return it."""
    bar = page.locator("#filling-list .bar").first
    while bar.get_attribute("aria-pressed") is None:
        bar.click()
    bar.click()
    return bar


def until(page: Any, expression: str, expected: object = True) -> None:
    """Wait until an expression has a value; the page's policy forbids polling by string."""
    for _ in range(300):
        if page.evaluate(expression) == expected:
            return
        page.wait_for_timeout(20)
    assert page.evaluate(expression) == expected


def seek(page: Any, step: int) -> None:
    page.evaluate(
        """step => { const scrub = document.getElementById("scrub");
        scrub.value = step; scrub.dispatchEvent(new Event("input")); }""",
        step,
    )


def go_to(page: Any, address: str) -> None:
    """Go to an address within a page, as a link that is opened anew; nothing keeps the focus."""
    page.evaluate(
        """address => { document.activeElement.blur();
        player.follow(new URLSearchParams(address.slice(1))); }""",
        address,
    )
