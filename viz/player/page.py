"""HTML assembly of a page from template, styles, scripts and data, with a static fallback."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.units import size_text

from ..scene import Scene, count_text, scene_of, title_of
from ..theme import (
    DARK,
    LIGHT,
    Theme,
    css,
    difference_colours,
    faint_edge,
    ghost,
    legible,
)
from ..vector.svg import svg_still
from ..vector.webfont import font_faces
from .data import page_data, shown
from .measured import with_measured
from .modules import bundled
from .packing import bundle_columns, deflated

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace
    from tinyckpt.documents.measured_memory import Measured
    from tinyckpt.planner.offload.simulate import Timeline

STYLES = ("player", "nodes", "navigation", "lights", "touch", "present")
FRESH = "fresh"  # runs before every other module of a page
BEGIN = "begin"  # entry point of a player; the lab has its own
# Modules of parts that not every page has, which leaves them out.
SEVERAL = (
    "progress", "differing", "sparkline", "difference_ledger", "difference_strip",
    "difference_panel", "difference",
)  # fmt: skip
HOST = "host"  # of pages with offloaded values, or with times
TIMES = "times"  # of pages with times
MEASURED = "measured"  # of pages with measured memory
FOLDER = Path(__file__).parents[1]
# Colours of marks that stand on background and panel; a picture's own are softer.
MARKS = (
    "edge", "gradient", "checkpoint", "dropped_forward", "dropped_backward", "not_yet_outline",
    "recomputed_edge", "in_both",
)  # fmt: skip
# White space of style sheets that says nothing, and texts, in which it may.
SPACED = re.compile(r"(\"[^\"]*\")|\s*([{};])\s*|(?<=[:,]) ")
PACKAGES = ("player", "lab", "widget")  # packages of assets, whose names are unique
FRAGMENTS = ("head", "transport", "unpack")  # of the template of each page
WITHOUT_SCRIPTS = (
    "Scripts are off: this is the moment of the first policy's peak. With scripts this page steps, "
    "scrubs and plays."
)
NO_SCRIPT_HEADER = ("policy", "steps", "evaluations", "recomputations", "peak")


@dataclass(frozen=True, slots=True)
class Addition:
    """Parts of a page beyond a player.

    Attributes:
        title: of the page.
        script: the module that starts the page.
        styles: files of style sheets.
        card: next to the graph, as HTML.
        data: by name.
        table: caption and rows of the table without scripts, if not the totals of the traces.
    """

    title: str
    script: str
    styles: Sequence[str]
    card: str
    data: Mapping[str, Any]
    table: tuple[str, str] | None = None


def page(
    scene: Scene,
    theme: str,
    title: str | None,
    clocks: Sequence[Timeline | None] = (),
    view: str = "ledger",
    addition: Addition | None = None,
    measured: Sequence[Measured | None] = (),
    opening: Mapping[str, int | str] | None = None,
) -> str:
    """Return the page; ``theme`` is ``auto``, ``light`` or ``dark``.

    ``clocks`` are the timeline of each trace, or None; without any, none is given. ``view`` is the
    initial one, ``ledger`` or ``graph``; ``addition`` the parts beyond a player; ``measured`` the
    measurement of each trace, or None; ``opening`` what is shown first: ``show`` and ``stop``.
    """
    traces = [row.trace for row in scene.rows]
    names = list(dict.fromkeys(title_of(trace) for trace in traces))
    graphs = list(dict.fromkeys(trace.graph.name for trace in traces))
    heading = title if title is not None else f"{', '.join(names)} on {', '.join(graphs)}"
    more = [TIMES] if any(clocks) else []
    more += [HOST] if more or any(row.moves for row in scene.rows) else []
    several = len(traces) > 1
    more += [MEASURED] if any(measured) else []
    added = addition or Addition(heading, BEGIN, [], "", {})
    caption, rows = added.table or ("Totals of the whole schedule", table(traces))
    data = page_data(scene, clocks) | ({"opening": dict(opening)} if opening else {})
    return filled(
        "player.html",
        styles=[
            *(f"{name}.css" for name in (*STYLES, *reversed(more))),
            *(["several.css"] if several else []),
            *added.styles,
        ],
        scripts=[FRESH, added.script],
        left_out={HOST, TIMES, MEASURED, *(() if several else SEVERAL)}.difference(more),
        theme=theme,
        front=view,
        title=html.escape(shown(added.title)),
        card=added.card,
        hint="" if addition else asset("hint.html"),
        data=json_text(bundle_columns({**with_measured(data, measured), **added.data})),
        without=WITHOUT_SCRIPTS,
        opening="",
        still=still(scene),
        caption=caption,
        table=rows,
    )


def filled(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    left_out: Collection[str] = (),
    **parts: str,
) -> str:
    """Substitute all parts into a page's template.

    Args:
        template: its file.
        styles: files of style sheets, in order.
        scripts, left_out: modules that start the page, and those that it leaves out. Scripts are
            deflated: they would be most of a page, and are read in the repository rather than
            there.
        parts: other texts, by their names in the template.
    """
    parts = {"step_back": "Step back", "step": "Step"} | parts
    styled = "\n".join([font_faces(), theme_styles(), *(minified(asset(s)) for s in styles)])
    parts["styles"] = SPACED.sub(r"\1\2", styled).replace(";}", "}")
    parts["scripts"] = deflated(minified(script(scripts, left_out)).encode())
    parts |= {name: substituted(f"{name}.html", parts) for name in FRAGMENTS}
    return substituted(template, parts)


def substituted(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its parts, in one pass: substituted text is not searched again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], minified(asset(template)))


def asset(name: str) -> str:
    """Return the text of an asset that ships with the package."""
    places = [FOLDER / package / "assets" / name for package in PACKAGES]
    return next(place for place in places if place.is_file()).read_text(encoding="utf-8")


def script(entries: Sequence[str], left_out: Collection[str] = ()) -> str:
    """Return modules of the package and all that they import, but for some, as one script."""
    return bundled(lambda name: asset(f"{name}.js"), entries, left_out)


def minified(code: str) -> str:
    """Strip indentation, comments and types from code; of comments at the end of a line, those
    without quotation marks, which are in no string.
    """
    code = re.sub(r"(?m) +// [^\"'`\n]*$", "", code)
    code = re.sub(r"/\*\*.*?\*/ ?|(?m:^)\s*/\*(?!\*).*?\*/(?m:$)", "", code, flags=re.DOTALL)
    return re.sub(r"(?m)^(\s+|//.*\n)+", "", code)


def json_text(content: Any) -> str:
    """Return JSON that is safe inside a script element: <, > and & are escaped, ASCII only."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def custom_properties(theme: Theme) -> str:
    """Return a theme's colours as CSS custom properties."""
    names = [field.name for field in fields(theme) if field.name != "name"]
    colours = {name: getattr(theme, name) for name in names}
    colours["faint_edge"] = faint_edge(theme)
    colours["ghost"] = ghost(theme)
    colours["recomputed_edge"] = theme.recomputed
    colours |= difference_colours(theme)
    colours |= {name: legible(colours[name], theme) for name in MARKS}
    return ";".join(f"--{name.replace('_', '-')}:{css(ink)}" for name, ink in colours.items())


def theme_styles() -> str:
    """Return the colours of both themes: by the system's preference, unless the page sets one."""
    light, dark = custom_properties(LIGHT), custom_properties(DARK)
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f':root[data-theme="dark"]{{color-scheme:dark;{dark}}}\n'
        f'@media(prefers-color-scheme:dark){{:root[data-theme="auto"]{{color-scheme:dark;{dark}}}}}'
    )


def still(scene: Scene) -> str:
    """Return a still at the first trace's peak, without fonts, which the page embeds.

    It counts memory in values where it can, whatever the page does.
    """
    traces = [row.trace for row in scene.rows]
    if scene.style.in_bytes:
        scene = scene_of(traces, replace(scene.style, in_bytes=False))
    return svg_still(scene, traces[0].peak_step, fonts=False)


def table(traces: Sequence[Trace]) -> str:
    """Return the totals of all traces as rows of a table."""
    return table_of(
        NO_SCRIPT_HEADER,
        [
            (
                title_of(trace),
                count_text(len(trace.steps)),
                count_text(trace.evaluations),
                count_text(trace.recomputations),
                f"{count_text(trace.peak_nodes)} values, {size_text(trace.peak_bytes)}",
            )
            for trace in traces
        ],
    )


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return texts as the rows of an HTML table."""
    named = "".join(f'<th scope="col">{name}</th>' for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(shown(cell))}</td>' for cell in cells)}</tr>"
        for cells in rows
    )
    return f"<thead><tr>{named}</tr></thead><tbody>{body}</tbody>"
