"""Slides, handouts and pictures for teachers: HTML that needs nothing else, and that prints.

In: ``slides/deck.md``, a slide between two lines ``---``, and the lessons. Out, in the folder
``slides`` of the site: ``index.html``, of 1024 by 768 units a slide, which a browser prints as a
PDF with one page each; its pictures as PNG and SVG; for each lesson a handout of one page, its
questions without answers. Numbers on slides are counted here: ``$stored_peak`` in the text.

There is no framework: a deck that scrolls from slide to slide takes 60 lines of styles and script;
reveal.js would be a package to ship, with its own way to print.
"""

from __future__ import annotations

import base64
import html
import re
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import folding
import jupytext
import pages
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from teaching import LESSONS

import tinyckpt as tc
from lessons.figures.transformers import GPT3, core_of, graph_of, published_bytes, selective
from tinyckpt import viz

FILE = "guide/out/pictures.txt"  # what the page includes
HERE = Path(__file__).parent / "slides"
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
ALONE = re.compile(r"<p>(<img [^>]*>)</p>")  # an image is no paragraph
PLACE = re.compile(r'<img src="(picture|widget):(\w+)" alt="([^"]*)" />')
POLICIES = ("store_all", "sqrt_n", "recompute_all")
LAYERS = 16
BLUE = "#0072b2"
WIDTH = 6.0  # of charts, in inches: on a slide their text is as large as it gets


@cache
def traced(layers: int, policy: str, **options: Any) -> tc.Trace:
    """Return the trace of a chain under a policy."""
    return tc.replay(tc.plan(tc.networks.chain(layers), policy, **options))


@cache
def peaks() -> dict[int, int]:
    """Return the peak of a chain of 64 layers by the number of segments."""
    return {k: traced(64, "sqrt_n", segments=k).peak_nodes for k in range(1, 65)}


@cache
def wrapped() -> tc.Trace:
    """Return the trace of 50 layers in one checkpoint."""
    return tc.replay(tc.plan(tc.networks.chain(50), "retain", keep=[]))


@cache
def facts() -> dict[str, Any]:
    """Return the numbers on the slides."""
    four = traced(4, "store_all")
    stored, _, none = (traced(LAYERS, policy) for policy in POLICIES)
    rows = []
    for layers in (16, 100, 400):
        traces = [traced(layers, policy) for policy in POLICIES]
        counts = [f"{trace.evaluations:,} / {trace.peak_nodes}" for trace in traces]
        rows.append(f"| {layers} | {' | '.join(counts)} |")
    layer = graph_of(GPT3)
    flops = tc.cost.flops(layer)
    work = tc.cost.cost_of(selective(layer), flops) / tc.cost.cost_of(tc.plan(layer), flops) - 1
    best = [k for k in peaks() if peaks()[k] == min(peaks().values())]
    return {
        "four_operator": four.graph.operators[four.steps[four.peak_step].operator].name,
        "four_peak": four.peak_nodes,
        "stored_peak": stored.peak_nodes, "stored_evaluations": stored.evaluations,
        "none_peak": none.peak_nodes, "none_evaluations": none.evaluations,
        "fifty_stored": traced(50, "store_all").peak_nodes,
        "fifty_wrapped": wrapped().peak_nodes, "fifty_again": wrapped().recomputations,
        "best_peak": min(peaks().values()), "best_segments": f"{best[0]} to {best[-1]}",
        "table": "\n".join(rows),
        "certificate": tc.plan(tc.networks.chain(LAYERS), budget="9 nodes").certificate,
        "core_share": f"{100 * core_of(layer) / published_bytes(layer, GPT3):.1f}",
        "core_work": f"{100 * work:.1f}",
    }  # fmt: skip


def two_layers() -> tc.Trace:
    """Return the trace of two layers, forward and backward."""

    def loss(params: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(tc.tanh(x @ params["a"]) @ params["b"]))

    params = {"a": tc.Spec((3, 3)), "b": tc.Spec((3, 2))}
    return tc.replay(tc.plan(tc.differentiate(tc.build(loss, params, tc.Spec((4, 3))))))


def curve(path: Path, *traces: tc.Trace, title: Any = None) -> None:
    """Write memory curves."""
    viz.timeline(list(traces), path, width=WIDTH if len(traces) == 1 else 1.4 * WIDTH, title=title)


@cache
def frontier() -> Any:
    """Return the frontier of the chain."""
    return tc.frontier(tc.networks.chain(LAYERS), nodes=True)


def frontier_chart(path: Path) -> None:
    """Write the frontier of the chain, with three policies on it."""
    traces = [traced(LAYERS, policy) for policy in POLICIES]
    viz.frontier(frontier(), path, traces=traces, width=1.5 * WIDTH)


def chart(height: float) -> tuple[Figure, Any]:
    """Return an empty chart whose text can be read from the last row."""
    figure = Figure(figsize=(8, height), layout="constrained")
    axis = figure.subplots()
    axis.tick_params(labelsize=14)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def segments_chart(path: Path) -> None:
    """Write the U-shaped curve of peaks by the number of segments."""
    figure, axis = chart(3.6)
    axis.plot(list(peaks()), list(peaks().values()), color=BLUE, linewidth=2.5)
    axis.set_xlabel("segments", fontsize=14)
    axis.set_ylabel("values at the peak", fontsize=14)
    axis.set(ylim=(0, None), xlim=(1, 64))
    figure.savefig(path, dpi=150)


def transformer_chart(path: Path) -> None:
    """Write what a layer of GPT-3's shape saves, the attention core and the rest."""
    layer = graph_of(GPT3)
    core, total = core_of(layer) / GPT3.sbh, published_bytes(layer, GPT3) / GPT3.sbh
    figure, axis = chart(2.4)
    bars = axis.barh(["everything else", "core of attention"], [total - core, core], color=BLUE)
    axis.bar_label(bars, fmt="%.0f sbh", padding=4, fontsize=14)
    axis.set_xlabel("bytes saved by a layer, in sbh", fontsize=14)
    axis.set_xlim(0, 1.2 * core)
    figure.savefig(path, dpi=150)


WRAPPED = ["every value stored", "one checkpoint around all 50 layers"]
# By name: what it shows, and a function that writes a PNG or an SVG.
PICTURES = {
    "backward": (
        "the graph of two layers, with its backward pass",
        lambda path: viz.save_still(two_layers(), path, 12, width=720),
    ),
    "store_all": (
        "memory of 16 layers, every value stored",
        lambda path: curve(path, traced(LAYERS, "store_all")),
    ),
    "recompute_all": (
        "memory of 16 layers, nothing stored",
        lambda path: curve(path, traced(LAYERS, "recompute_all")),
    ),
    "wrapped": (
        "memory of 50 layers, and of the same in one checkpoint",
        lambda path: curve(path, traced(50, "store_all"), wrapped(), title=WRAPPED),
    ),
    "policies": (
        "memory of 16 layers under three policies",
        lambda path: curve(path, *(traced(LAYERS, policy) for policy in POLICIES)),
    ),
    "explainer": (
        "the explainer at its first recomputation",
        lambda path: viz.explainer(traced(LAYERS, "sqrt_n"), path),
    ),
    "explainer_peak": (
        "the explainer at the peak",
        lambda path: viz.explainer(traced(LAYERS, "sqrt_n"), path, stop="peak"),
    ),
    "segments": ("the peak by the number of segments", segments_chart),
    "frontier": ("the frontier of 16 layers", frontier_chart),
    "transformer": ("what a layer of GPT-3's shape saves", transformer_chart),
}


def write(app: Any, error: Exception | None) -> None:
    """Write slides, handouts and pictures beside the built site's pages."""
    if error is None and app.builder.format == "html":
        write_all(Path(app.outdir) / pages.SLIDES)


def write_list(app: Any) -> None:
    """Write the list of pictures that the page for teachers includes."""
    lines = [
        f'- {told}: <a href="{pages.SLIDES}/{name}.png">PNG</a>, '
        f'<a href="{pages.SLIDES}/{name}.svg">SVG</a>'
        for name, (told, _) in PICTURES.items()
    ]
    (Path(app.srcdir) / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_all(folder: Path) -> None:
    """Write the deck, its pictures and all handouts into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, draw) in PICTURES.items():
        for suffix in ("png", "svg"):
            draw(folder / f"{name}.{suffix}")
    (folder / "index.html").write_text(deck(folder), encoding="utf-8")
    for path in pages.lessons():
        (folder / f"{path.stem}.html").write_text(handout(path), encoding="utf-8")


def deck(pictures: Path) -> str:
    """Return the slides as one HTML document, with the pictures of a folder inside."""
    tag = viz.widget_tag(traced(LAYERS, "sqrt_n"), theme="light")

    def placed(match: re.Match[str]) -> str:
        kind, name, told = match.groups()
        if kind == "widget":
            return f'<div class="widget">{tag}</div>'
        data = base64.b64encode((pictures / f"{name}.svg").read_bytes()).decode()
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{told}">'

    text = Template((HERE / "deck.md").read_text("utf-8")).substitute(facts())
    slides = []
    for slide in text.split("\n---\n"):
        body = PLACE.sub(placed, ALONE.sub(r"\1", MARKDOWN.render(slide)))
        slides.append(f"<section>\n{body}</section>")
    script = viz.widget_script().replace("</", "<\\/")
    page = (HERE / "deck.html").read_text("utf-8")
    return page.replace("{script}", script).replace("{slides}", "\n".join(slides))


def handout(path: Path) -> str:
    """Return a lesson's handout: its goal, its introduction, its questions with room to answer."""
    head, *cells = jupytext.read(path, fmt="py:percent").cells
    title, *introduction = head.source.split("\n\n")
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    questions = [
        text[text.index(word) :] for text in texts for word in folding.ANNOUNCED if word in text
    ]
    asked = "".join(f'<div class="question">{MARKDOWN.render(text)}</div>' for text in questions)
    page = Template((HERE / "handout.html").read_text("utf-8"))
    return page.substitute(
        title=html.escape(title.removeprefix("# ")),
        goal=html.escape(LESSONS[int(path.stem[:2])].goal),
        introduction=MARKDOWN.render("\n\n".join(introduction)),
        questions=asked,
        script=path.name,
    )
