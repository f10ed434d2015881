"""SVG still image: one step of traces, or a graph, with a text alternative.

The same parts at the same positions as in a GIF (``arrange``). Colours are attributes, so that any
program shows them; text stays text.
"""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text

from ..captions import Captions
from ..layout.drawn_nodes import printable
from ..layout.geometry import MARGIN, WIDTH, Layout, Size
from ..layout.views import overview
from ..memory_curve import scales_of
from ..node_style import arrow_sizes, truncated
from ..picture_layout import PLAIN, Design, Header, Item, sheet_of
from ..picture_parts import GAP, as_list, headings
from ..scene import (
    CellLooks,
    Fill,
    NodeLook,
    count_text,
    live_of,
    live_text,
    one_line,
    subtitles_of,
    title_of,
)
from ..theme import THEMES, Theme, css, font
from .marks import (
    arrow_elements,
    edge_elements,
    label_elements,
    node_element,
    number,
    numbers,
    text_element,
)
from .memory_strip import lane_elements, strip_elements
from .webfont import font_faces

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace

FONT = "Inter, system-ui, sans-serif"


def graph_elements(
    plan: Layout, looks: Sequence[NodeLook], theme: Theme, prefix: str
) -> Iterator[str]:
    """Yield a graph with the given looks of its cells, one element per node.

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
    yield f"<defs>{''.join(drawn)}</defs>{edge_elements(plan, theme)}"
    for cell, look, (x, y) in zip(plan.cells, looks, plan.centres, strict=True):
        size = plan.size(cell)
        place = f'xlink:href="#{shapes[look, size]}" x="{number(x)}" y="{number(y)}"'
        label = label_elements(x, y, plan.labels[cell.id], look, plan.points[cell.id], theme)
        yield (
            f'<g class="node"><use {place}/>{label}</g>'
            if label
            else f'<use class="node" {place}/>'
        )


def state_at(trace: Trace, plan: Layout, step: int) -> CellLooks:
    """Return the state of all cells after a step; -1 is the moment before the first one."""
    state = CellLooks(trace, plan.cells)
    for position in range(step + 1):
        state.take(position)
    return state


def looks_at(trace: Trace, plan: Layout, step: int) -> list[NodeLook]:
    """Return the looks of all cells after a step; -1 is the moment before the first one."""
    state = state_at(trace, plan, step)
    return [state.look(cell) for cell in plan.cells]


def heading_elements(
    trace: Trace, step: int, title: str, header: Header, in_nodes: bool, theme: Theme
) -> Iterator[str]:
    """Yield title, subtitle and counters."""
    live = live_of(trace, in_nodes)
    texts = (
        f"{count_text(step)} / {count_text(len(trace.steps) - 1)}",
        f"{count_text(trace.evaluations_so_far[step])} / {count_text(trace.evaluations)}",
        live_text(live[step], in_nodes),
        live_text(max(live[: step + 1]), in_nodes),
        size_text(trace.host[step]),
    )
    for (x, y), name, text in zip(header.counters, header.names, texts, strict=False):
        yield text_element(x, y + 11, name, 12, theme.muted)
        yield text_element(x, y + 31, text, 16, theme.ink, 600)
    words = truncated(title, "SemiBold", 20, header.room)
    yield text_element(MARGIN, 34, words, 20, theme.ink, 600)
    face = font("Regular", 12)
    fitting = (text for text in subtitles_of(trace) if face.getlength(text) <= header.room)
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


def svg_still(
    traces: Trace | Sequence[Trace],
    step: int | None = None,
    design: Design = PLAIN,
    fonts: bool = True,
) -> str:
    """Return one step of one trace or several as SVG text.

    Args:
        traces: one trace, or several to compare, in step.
        step: by default the last one. A shorter trace stays at its end.
        design: display options.
        fonts: whether to embed the bundled font, 27 KiB, so that it looks the same everywhere.

    Raises:
        OptionError: if there is nothing to draw, an option is not legal, or the step is out of
            range.
    """
    shown = as_list(traces)
    sheet = sheet_of(shown, design)
    colours, scales = THEMES[design.theme], scales_of(shown)
    names = headings(shown, design.title)
    last = scales.longest - 1
    if step is not None and not 0 <= step <= last:
        raise OptionError(f"step {step} is out of range: expected 0 to {last}")
    parts: list[str] = []

    def group(x: float, y: float, elements: Iterable[str]) -> None:
        parts.append(f'<g transform="translate({number(x)} {number(y)})">{"".join(elements)}</g>')

    for index, (trace, place) in enumerate(zip(shown, sheet.panels, strict=True)):
        at = min(last if step is None else step, len(trace.steps) - 1)
        words = heading_elements(trace, at, names[index], place.header, scales.in_nodes, colours)
        group(place.left, place.top, words)
        state = state_at(trace, place.plan, at)
        looks = [state.look(cell) for cell in state.cells]
        nodes = graph_elements(place.plan, looks, colours, f"p{index}-")
        group(place.left, place.top + place.header.height, nodes)
        wide = round(place.width) - 2 * MARGIN
        strip = strip_elements(trace, at, scales, wide, place.strip, colours)
        group(place.left + MARGIN, place.strip_top, strip)
        said = fitting_caption(trace, at, wide)
        group(place.left + MARGIN, place.strip_top, [text_element(0, -8, said, 12, colours.ink)])
        if place.moves:
            lane = lane_elements(trace, at, scales, wide, colours)
            group(place.left + MARGIN, place.lane_top, lane)
    parts += legend_elements(sheet.legend, colours)
    style = f"<style>{font_faces()}</style>" if fonts else ""
    said = alt_text(shown, last if step is None else step)
    return picture([style, *parts], (sheet.width, sheet.height), said, colours, sheet.scale)


def fitting_caption(trace: Trace, step: int, room: float) -> str:
    """Return the longest caption of a step that fits."""
    face = font("Regular", 12)
    texts = list(Captions(trace).texts(step))
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
        f"<style>{font_faces()}</style>",
        text_element(MARGIN, 34, name, 20, colours.ink, 600),
        text_element(MARGIN, 54, counts, 12, colours.muted),
        f'<g transform="translate(0 {top})">',
        *graph_elements(plan, looks, colours, prefix),
        "</g>",
    ]
    size = (WIDTH, top + plan.height + GAP)
    return picture(parts, size, f"The graph {graph.name}: {counts}", colours)


def picture(parts: Iterable[str], size: Size, words: str, theme: Theme, scale: float = 1.0) -> str:
    """Return a whole SVG document, with a text alternative."""
    width, height = size
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {numbers(width, height)}" width="{number(scale * width)}" '
        f'height="{number(scale * height)}" font-family="{FONT}" role="img">'
        f"<title>{html.escape(printable(words))}</title>"
        f'<rect width="100%" height="100%" fill="{css(theme.background)}"/>{"".join(parts)}</svg>\n'
    )


def alt_text(traces: Sequence[Trace], step: int) -> str:
    """Return the text alternative of a still."""
    texts = []
    for trace in traces:
        last = len(trace.steps) - 1
        at = min(step, last)
        live, peak = size_text(trace.live_bytes[at]), size_text(trace.peak_bytes)
        texts.append(
            f"{title_of(trace)} on {one_line(trace.graph.name)}, step {at} of {last}: "
            f"{live} live, peak {peak}"
        )
    return "; ".join(texts)
