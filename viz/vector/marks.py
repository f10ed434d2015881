"""SVG elements of a picture: text, arrows, nodes.

Colours are attributes, so that any program shows them; names are escaped, and text stays text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from ..layout.geometry import Layout, Line, Point, Size
from ..node_looks import Activity, NodeLook
from ..node_memory import LEVELS, shown_share
from ..node_style import (
    HATCH,
    STRIPE,
    arrow_parts,
    arrow_sizes,
    corner_of,
    dash_lengths,
    empty_part,
    hatch_id,
    is_dashed,
    is_hatched,
    is_partial,
    lower_level,
    lower_part,
    node_colours,
    outline_of,
    share_of,
    stripes,
    truncated,
)
from ..scene import one_line
from ..theme import RGB, Theme, css, faint_edge
from .path_data import Command, path_data


def number(value: float) -> str:
    """Format a coordinate with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def numbers(*values: float) -> str:
    """Format coordinates with the fewest separators that SVG allows."""
    return " ".join(map(number, values)).replace(" -", "-")


def text_element(
    x: float, y: float, text: str, size: int, ink: RGB, weight: int = 400, anchor: str = "start"
) -> str:
    """Return a line of text on its baseline; unprintable characters become spaces."""
    bold = "" if weight == 400 else f' font-weight="{weight}"'
    aligned = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{size}"{bold}{aligned} '
        f'fill="{css(ink)}">{html.escape(one_line(text, 200))}</text>'
    )


def edge_elements(plan: Layout, theme: Theme) -> str:
    """Return all arrows of a layout, its dots and its headings; arrows of a style share a path."""
    head, width = arrow_sizes(plan.diameter)
    faint, ink = css(faint_edge(theme)), css(theme.edge)
    headings = "".join(
        f'<path stroke="{faint}" d="M{numbers(heading.left, heading.y)}H{number(heading.right)}"/>'
        + text_element(
            heading.left,
            heading.y - 4,
            truncated(heading.text, "Regular", 10, heading.right - heading.left),
            10,
            theme.muted,
        )
        for heading in plan.headings
    )
    dots = "".join(f'<circle cx="{number(x)}" cy="{number(y)}" r="2"/>' for x, y in plan.dots)
    return (
        arrow_elements(plan.faint, head, 1.0, faint)
        + headings
        + arrow_elements(plan.arrows, head, width, ink)
        + (f'<g fill="{ink}">{dots}</g>' if dots else "")
    )


def arrow_elements(arrows: Sequence[Line], head: float, width: float, ink: str) -> str:
    """Return arrows: one path of lines, and one of arrowheads ``head`` pixels long."""
    lines: list[Command] = []
    heads: list[Command] = []
    for arrow in arrows:
        shaft, corners = arrow_parts(arrow, head)
        if len(arrow) > 2 or math.dist(*shaft) > 1:  # else only the head is visible
            lines += polyline(shaft)
        heads += [*polyline(corners), ("Z", ())]
    if not arrows:
        return ""
    return (
        f'<path fill="none" stroke="{ink}" stroke-width="{width}" d="{path_data(lines)}"/>'
        f'<path fill="{ink}" d="{path_data(heads)}"/>'
    )


def polyline(points: Sequence[Point]) -> list[Command]:
    """Return the commands of a line along some points."""
    return [("L" if place else "M", point) for place, point in enumerate(points)]


def hatch_pattern(theme: Theme) -> str:
    """Return the fill of what was recomputed: diagonal stripes, which rise to the right."""
    return (
        f'<pattern id="{hatch_id(theme)}" width="{HATCH}" height="{HATCH}" '
        f'patternUnits="userSpaceOnUse"><path fill="{css(theme.recomputed)}" '
        f'd="M0 0H{HATCH}V{HATCH}H0z"/><path stroke="{css(theme.kept)}" '
        f'd="M-1 1L1-1M0 {HATCH}L{HATCH} 0M{HATCH - 1} {HATCH + 1}l2-2"/></pattern>'
    )


def fill_attribute(look: NodeLook, theme: Theme) -> str:
    """Return the fill of a look; programs that know no patterns show its plain colour."""
    plain = css(node_colours(look, theme)[0])
    return f"url(#{hatch_id(theme)}) {plain}" if is_hatched(look) else plain


def node_element(look: NodeLook, size: Size, theme: Theme) -> str:
    """Return the shape of a node around the origin: a disc, or the rounded square of a group."""
    _, outline, _ = node_colours(look, theme)
    stroke = outline_of(size)
    corner = size[1] / 2 if look.level is None else corner_of(size)
    around = ""
    if look.activity is not Activity.NONE:
        halo = f'fill="{css(theme.halo)}" stroke="{css(theme.ink)}"'
        around = rounded(size, corner, 4.5, halo)
    elif look.checkpoint:
        ring = f'fill="none" stroke="{css(theme.checkpoint)}" stroke-width="2"'
        around = rounded(size, corner, 3.5, ring)
    below = empty_part(look) if is_partial(look) else look
    paint = f'fill="{fill_attribute(below, theme)}"'
    paint += f' stroke="{css(outline)}" stroke-width="{stroke:g}"'
    if is_dashed(look):
        drawn, gap = dash_lengths((size[0] - stroke, size[1] - stroke), corner - stroke / 2)
        paint += f' stroke-dasharray="{drawn:.2f} {gap:.2f}"'
    inside = (size[0] - 2 * stroke, size[1] - 2 * stroke)
    level = ""
    for part, share in (
        (look, share_of(look) if is_partial(look) else 0.0),
        (lower_part(look), lower_level(look) / LEVELS),
    ):
        if share:
            full = fill_attribute(part, theme)
            level += f'<path d="{level_path(inside, shown_share(share))}" fill="{full}"/>'
    if lines := stripes(look, size, corner):
        ink = css(node_colours(empty_part(look), theme)[1])
        d = "".join(f"M{numbers(-reach, y)}H{number(reach)}" for y, reach in lines)
        level += f'<path stroke="{ink}" stroke-width="{STRIPE}" d="{d}"/>'
    return f"{around}{rounded(size, corner, -stroke / 2, paint)}{level}"


def rounded(size: Size, corner: float, beyond: float, paint: str) -> str:
    """Return a rounded square or disc around the origin, ``beyond`` pixels larger on every side."""
    width, height = size
    if 2 * corner == width:
        return f'<circle r="{width / 2 + beyond:g}" {paint}/>'
    return (
        f'<rect x="{-width / 2 - beyond:g}" y="{-height / 2 - beyond:g}" '
        f'width="{width + 2 * beyond:g}" height="{height + 2 * beyond:g}" '
        f'rx="{corner + beyond:g}" {paint}/>'
    )


def level_path(size: Size, share: float) -> str:
    """Return the filled part of a rounded square around the origin, from below, as a path."""
    width, height = size
    corner = corner_of(size)
    x, bottom = width / 2, height / 2
    y = bottom - share * height
    if share * height < corner:  # the surface lies between the lower corners
        inset = corner - (corner**2 - (corner - share * height) ** 2) ** 0.5
        arc = f"A{corner:g} {corner:g} 0 0 0"
        return (
            f"M{inset - x:.2f} {y:.2f}{arc} {corner - x:.2f} {bottom:.2f}H{x - corner:.2f}"
            f"{arc} {x - inset:.2f} {y:.2f}z"
        )
    depth = (1 - share) * height  # of the surface below the upper edge
    inset = corner - (corner**2 - (corner - depth) ** 2) ** 0.5 if depth < corner else 0.0
    arc = f"a{corner:g} {corner:g} 0 0 0"
    return (
        f"M{inset - x:.2f} {y:.2f}L{-x:.2f} {max(y, corner - bottom):.2f}V{bottom - corner:.2f}"
        f"{arc} {corner:g} {corner:g}H{x - corner:.2f}{arc} {corner:g} {-corner:g}"
        f"V{max(y, corner - bottom):.2f}L{x - inset:.2f} {y:.2f}z"
    )


def label_element(
    x: float, y: float, label: str, look: NodeLook, points: int, usual: int, theme: Theme
) -> str:
    """Return a node's label, within a group of the ``usual`` font size; empty if it has none."""
    if not label:
        return ""
    # In a group filled to less than half, the label stands on the empty part.
    ground = empty_part(look) if is_partial(look) and share_of(look) <= 0.5 else look
    if lower_level(look) / LEVELS > 0.5:
        ground = lower_part(look)
    own = {
        "x": number(x),
        "y": number(y + 0.36 * points),
        "fill": css(node_colours(ground, theme)[2]),
    }
    if points != usual:
        own["font-size"] = str(points)
    if is_hatched(ground):  # no hatch touches a letter
        plate = css(node_colours(ground, theme)[0])
        own |= {"stroke": plate, "stroke-width": "3", "paint-order": "stroke"}
    written = "".join(f' {name}="{value}"' for name, value in own.items())
    return f"<text{written}>{html.escape(one_line(label, 200))}</text>"
