"""Transient highlights in the player: inputs, edges, pulse, freed values, in every view."""

from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import POLICIES, go_to, seek, traces_of
from viz.layout.views import views_of
from viz.node_memory import CellMemory

pytestmark = pytest.mark.browser

# By step: the cells that are lit, those with a ghost, and the bytes at these.
SHOWN = """() => { const panel = player.panels[0]; const all = [];
    for (let step = 0; step < panel.model.count; step++) {
        player.show(step);
        const of = (name) => panel.element.querySelectorAll(`.graph ${name}`).length;
        const tags = [...panel.element.querySelectorAll("text.ghost")].map(e => e.textContent);
        const d = panel.element.querySelector(".graph .lines.lit").getAttribute("d");
        all.push([of("rect.lit"), of("rect.haunt"), tags.sort(), (d.match(/M/g) ?? []).length]);
    } return all; }"""
IN_LEDGER = """() => player.panels.map(panel => [
    [...panel.element.querySelectorAll(".ghosts .ghost")].map(e => e.textContent).sort(),
    panel.element.querySelectorAll(".rail rect.lit").length,
    panel.element.querySelectorAll(".rail rect.haunt").length,
    panel.element.querySelectorAll(".rail rect.halo").length])"""
# In each view at some steps: what stands there when it is opened, and when it is shown anew.
OPENED = """steps => { const [panel] = player.panels; const all = [];
    const seen = () => [".ghosts .ghost", ".rail rect.haunt"].map(name =>
        Array.from(panel.element.querySelectorAll(name), e =>
            (e.textContent || e.parentNode.dataset.of) + e.style.top).sort().join());
    for (const step of steps) for (const view of panel.model.graph.views.keys()) {
        player.seek(step);
        panel.open(view);
        const opened = seen();
        player.show(step);
        all.push([opened, seen()]);
    } return all; }"""
MOVING = "() => document.getAnimations().filter(a => a.effect.target.matches({})).length"


def expected(trace: tc.Trace) -> list[list[Any]]:
    """Return the same, from the steps alone."""
    graph, cells = trace.graph, views_of(trace.graph)[0].layout.cells
    home = {data: cell.id for cell in cells for data in cell.data}
    cell_of = {operator: cell.id for cell in cells for operator in cell.operators}
    reads = views_of(graph)[0].layout.reads
    memory, shown = CellMemory(graph, home, len(cells)), []
    before: list[int] = []
    freed: set[int] = set()
    for taken in trace.steps:
        if not isinstance(taken, tc.Free):
            memory.take(taken)
            before, freed = list(memory.bytes), set()
            lit, lines = set(), 0
            if hasattr(taken, "operator"):
                own = cell_of.get(taken.operator)
                read = {
                    home[data] for data in graph.operators[taken.operator].inputs if data in home
                }
                lit = read - {own}
                lines = sum(len(r.lines) for r in reads if r.target == own and r.source in lit)
            shown.append([len(lit), 0, [], lines])
            continue
        memory.take(taken)
        freed.add(home[taken.data])
        gone = {i: old - new for i, (old, new) in enumerate(zip(before, memory.bytes, strict=True))}
        ghosts = freed | {cell for cell, nbytes in gone.items() if nbytes}
        tags = sorted(f"\N{MINUS SIGN}{nbytes} B" for nbytes in gone.values() if nbytes)
        shown.append([0, len(ghosts), tags, 0])
    return shown


@pytest.mark.parametrize("policy", ["sqrt_n", "offload"])
def test_chain_highlights_reads_and_frees_at_every_step(policy: str, player: Player) -> None:
    (trace,) = traces_of("chain:8", (policy,))
    page = player([trace], view="graph")
    assert page.evaluate(SHOWN) == expected(trace)


def test_ledger_and_rail_show_the_same_highlights_on_every_axis(player: Player) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = player([trace])
    step = next(place for place, taken in enumerate(trace.steps) if isinstance(taken, tc.Free))
    last = next(s for s in range(len(trace.steps) - 1, 0, -1) if hasattr(trace.steps[s], "data"))
    seek(page, step)
    assert page.evaluate(IN_LEDGER) == [[["\N{MINUS SIGN}512 B"], 0, 1, 0]]
    seek(page, last)  # two in a row
    assert page.evaluate(IN_LEDGER) == [[["\N{MINUS SIGN}512 B"] * 2, 0, 2, 0]]
    seek(page, step + 1)  # gone at the next step, which reads one value
    assert page.evaluate(IN_LEDGER) == [[[], 1, 0, 1]]
    # Along evaluations, all that was freed since the one before.
    go_to(page, "#evaluation=20")
    ((ghosts, lit, haunted, halo),) = page.evaluate(IN_LEDGER)
    assert (len(ghosts), lit, haunted, halo) == (2, 2, 2, 1)


@pytest.mark.nightly
def test_expanded_group_shows_its_freed_values(player: Player) -> None:
    (trace,) = traces_of("unet", ("sqrt_n",))
    page = player([trace])
    frees = [place for place, taken in enumerate(trace.steps) if isinstance(taken, tc.Free)]
    shown = page.evaluate(OPENED, frees[::27])
    assert all(opened == anew for opened, anew in shown)
    assert len({str(opened) for opened, _ in shown if any(opened)}) > 3


def test_ended_policy_shows_no_highlights(player: Player) -> None:
    traces = traces_of("chain:9", POLICIES)
    page = player(traces)
    seek(page, len(traces[0].steps))
    assert page.evaluate(IN_LEDGER)[0] == [[], 0, 0, 0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("view", ["ledger", "graph"])
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_animation_respects_reduced_motion(view: str, motion: str, player: Player) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = player([trace], view=view, reduced_motion=motion)
    step = next(place for place, taken in enumerate(trace.steps) if isinstance(taken, tc.Free))
    seek(page, step - 2)
    moving = {"pulse": "'.pulse'", "ghost": "'.ghost, .haunt'"}
    page.keyboard.press("ArrowRight")
    assert page.evaluate(MOVING.format(moving["pulse"])) == int(motion != "reduce")
    page.keyboard.press("ArrowRight")
    ghosts = page.evaluate(MOVING.format(moving["ghost"]))
    assert (ghosts > 0) == (motion != "reduce")
    seek(page, step + 20)  # a leap is no motion
    assert page.evaluate(MOVING.format(moving["ghost"])) == 0
