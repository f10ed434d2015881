"""SVG still image: one step of traces, or a graph, with a text alternative.

The same parts at the same positions as in a GIF (``arrange``). Colours are attributes, so that any
program shows them; text stays text.
"""

from __future__ import annotations

import html
import statistics
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text

from ..layout.drawn_nodes import printable
from ..layout.geometry import MARGIN, WIDTH, Layout, Size
from ..layout.views import overview
from ..node_looks import Fill, NodeLook
from ..node_style import arrow_sizes, hatch_id, truncated
from ..picture_layout import GAP, Header, Item, sheets_of
from ..scene import Frame, Row, Scene, count_text, frames, one_line, title_of
from ..theme import THEMES, Theme, css, font
from .marks import (
    arrow_elements,
    edge_elements,
    hatch_pattern,
    label_element,
    node_element,
    number,
    numbers,
    text_element,
)
from .memory_strip import lane_elements, strip_elements
from .webfont import faces_of

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace

FONT = "Inter, system-ui, sans-serif"


def graph_elements(
    plan: Layout, looks: Sequence[NodeLook], theme: Theme, prefix: str
) -> Iterator[str]:
    """Yield the nodes of a graph with the given looks of its cells, one element per node.

    Each distinct shape is defined once and referenced by ``<use>``; ``prefix`` begins the shapes'
    ids.
    """
    shapes: dict[tuple[NodeLook, Size], str] = {}
    for cell, look in zip(plan.cells, looks, strict=True):
        shapes.setdefault((look, plan.size(cell)), f"{prefix}{len(shapes)}")
    drawn = (
        f'<g id="{name}">{node_element(look, size, theme)}</g>'
        for (look, size), name in shapes.items()
    )
    yield f"<defs>{''.join(drawn)}</defs>"
    usual = statistics.mode(plan.points or (11,))
    yield f'<g font-size="{usual}" font-weight="600" text-anchor="middle">'
    for cell, look, (x, y) in zip(plan.cells, looks, plan.centres, strict=True):
        size, points = plan.size(cell), plan.points[cell.id]
        place = f'xlink:href="#{shapes[look, size]}" x="{number(x)}" y="{number(y)}"'
        label = label_element(x, y, plan.labels[cell.id], look, points, usual, theme)
        yield (
            f'<g class="node"><use {place}/>{label}</g>'
            if label
            else f'<use class="node" {place}/>'
        )
    yield "</g>"


def frame_at(trace: Trace, plan: Layout, step: int, in_nodes: bool = False) -> Frame:
    """Return the frame after a step, with the looks of all cells; -1 is before the first one."""
    every = list(frames(trace, plan.cells, [step] if step >= 0 else [], in_nodes))
    looks = {cell: look for frame in every for cell, look in frame.changed.items()}
    return replace(every[-1], changed=looks)


def looks_at(trace: Trace, plan: Layout, step: int) -> list[NodeLook]:
    """Return the looks of all cells after a step; -1 is the moment before the first one."""
    return list(frame_at(trace, plan, step).changed.values())


def heading_elements(row: Row, frame: Frame, header: Header, theme: Theme) -> Iterator[str]:
    """Yield title, subtitle and counters."""
    for (x, y), name, text in zip(header.counters, header.names, frame.counters, strict=False):
        yield text_element(x, y + 11, name, 12, theme.muted)
        yield text_element(x, y + 31, text, 16, theme.ink, 600)
    words = truncated(row.title, "SemiBold", 20, header.room)
    yield text_element(MARGIN, 34, words, 20, theme.ink, 600)
    face = font("Regular", 12)
    fitting = (text for text in row.subtitles if face.getlength(text) <= header.room)
    yield text_element(MARGIN, 54, next(fitting, ""), 12, theme.muted)


def legend_elements(items: Sequence[Item], theme: Theme) -> Iterator[str]:
    """Yield the legend."""
    for item in items:
        shape = (
            arrow_elements([((-8, 0), (8, 0))], *arrow_sizes(WIDTH), css(theme.edge))
            if item.look is None
            else node_element(item.look, (10, 10), theme)
        )
        yield f'<g transform="translate({number(item.x)} {number(item.y)})">{shape}</g>'
        yield text_element(item.words, item.y + 4, item.name, 12, theme.muted)


def svg_still(scene: Scene, step: int | None = None, fonts: bool = True) -> str:
    """Return one step of a scene as SVG text.

    Args:
        scene: its traces are shown in step; a shorter one stays at its end.
        step: by default the last one.
        fonts: whether to embed the letters that occur, so that it looks the same everywhere.

    Raises:
        OptionError: if the step is out of range.
    """
    theme, last = THEMES[scene.style.theme], scene.longest - 1
    if step is not None and not 0 <= step <= last:
        raise OptionError(f"step {step} is out of range: expected 0 to {last}")
    shown = replace(scene, steps=(last if step is None else step,))
    (sheet,) = sheets_of(shown, high_strips=False)
    parts: list[str] = []
    drawn: dict[str, str] = {}  # the arrows of each graph, once

    def group(x: float, y: float, elements: Iterable[str]) -> None:
        parts.append(f'<g transform="translate({number(x)} {number(y)})">{"".join(elements)}</g>')

    for index, (row, place) in enumerate(zip(scene.rows, sheet.panels, strict=True)):
        at = min(last if step is None else step, len(row.trace.steps) - 1)
        frame = frame_at(row.trace, place.plan, at, scene.in_nodes)
        group(place.left, place.top, heading_elements(row, frame, place.header, theme))
        looks = [frame.changed[cell.id] for cell in place.plan.cells]
        arrows = edge_elements(place.plan, theme)
        known = f'<use xlink:href="#{drawn[arrows]}"/>' if arrows in drawn else None
        name = drawn.setdefault(arrows, f"a{index}")
        nodes = graph_elements(place.plan, looks, theme, f"p{index}-")
        under = known or f'<g id="{name}">{arrows}</g>'
        group(place.left, place.top + place.header.height, [under, *nodes])
        wide = round(place.width) - 2 * MARGIN
        strip = strip_elements(row.memory, at, wide, place.strip, theme)
        group(place.left + MARGIN, place.strip_top, strip)
        said = fitting_caption(row.captions.texts(at) if place.plan.cells else row.totals, wide)
        group(place.left + MARGIN, place.strip_top, [text_element(0, -8, said, 12, theme.ink)])
        if place.moves:
            lane = lane_elements(row.host, at, wide, theme)
            group(place.left + MARGIN, place.lane_top, lane)
    parts += legend_elements(sheet.legend, theme)
    said = alt_text(scene, last if step is None else step)
    return picture(parts, (sheet.width, sheet.height), said, theme, sheet.scale, fonts)


def fitting_caption(captions: Iterable[str], room: float) -> str:
    """Return the longest caption that fits."""
    face = font("Regular", 12)
    texts = list(captions)
    fitting = (text for text in texts if face.getlength(text) <= room)
    return next(fitting, None) or truncated(texts[-1], "Regular", 12, room)


def svg_graph(graph: Graph, theme: str = "light") -> str:
    """Return a graph before its first evaluation as SVG text.

    Raises:
        BackendError: if its layout needs a package that is missing.
    """
    colours, plan, top = THEMES[theme], overview(graph), 62
    name = truncated(graph.name, "SemiBold", 20, WIDTH - 2 * MARGIN)
    counts = (
        f"{count_text(len(graph.operators))} operators, {count_text(graph.forward_count)} of them "
        f"forward; sources {size_text(graph.source_bytes)}"
    )
    looks = [
        NodeLook(Fill.NOT_YET, backward=cell.backward, level=0 if cell.group else None)
        for cell in plan.cells
    ]
    # A notebook may have several such pictures in one document, where ids must not collide unless
    # their shapes are the same: graphs of one name and size may look different.
    drawn = f"{theme} {plan}".encode(errors="backslashreplace")
    prefix = f"g{zlib.crc32(drawn):x}-"
    parts = [
        text_element(MARGIN, 34, name, 20, colours.ink, 600),
        text_element(MARGIN, 54, counts, 12, colours.muted),
        f'<g transform="translate(0 {top})">',
        edge_elements(plan, colours),
        *graph_elements(plan, looks, colours, prefix),
        "</g>",
    ]
    size = (WIDTH, top + plan.height + GAP)
    return picture(parts, size, f"The graph {graph.name}: {counts}", colours)


def picture(
    parts: Iterable[str],
    size: Size,
    words: str,
    theme: Theme,
    scale: float = 1.0,
    fonts: bool = True,
) -> str:
    """Return a whole SVG document, with a text alternative, and with the letters that occur."""
    width, height = size
    body = "".join(parts)
    if hatch_id(theme) in body:
        body = f"<defs>{hatch_pattern(theme)}</defs>{body}"
    style = f"<style>{faces_of(body)}</style>" if fonts else ""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {numbers(width, height)}" width="{number(scale * width)}" '
        f'height="{number(scale * height)}" font-family="{FONT}" role="img">'
        f"<title>{html.escape(printable(words))}</title>"
        f'<rect width="100%" height="100%" fill="{css(theme.background)}"/>{style}{body}</svg>\n'
    )


def alt_text(scene: Scene, step: int) -> str:
    """Return the text alternative of a still."""
    texts = []
    for trace in (row.trace for row in scene.rows):
        last = len(trace.steps) - 1
        at = min(step, last)
        live, peak = size_text(trace.live_bytes[at]), size_text(trace.peak_bytes)
        texts.append(
            f"{title_of(trace)} on {one_line(trace.graph.name)}, step {at} of {last}: "
            f"{live} live, peak {peak}"
        )
    return "; ".join(texts)
