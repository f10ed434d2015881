"""The marks of a picture as SVG elements: text, arrows, nodes.

Colours are attributes, so that any program shows them; names are escaped, and text stays text.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from viz.layout import Layout, Point
from viz.scene import Activity, Look, one_line
from viz.sprites import node_colours
from viz.theme import RGB, Theme, font

LABEL_SIZES = (11, 10, 9, 8, 7)
LABEL_SHARE = 0.84  # of a node's diameter that its label may take


def css(colour: RGB) -> str:
    """Return a colour as ``#RRGGBB``."""
    return "#{:02X}{:02X}{:02X}".format(*colour)


def number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def numbers(*values: float) -> str:
    """Return coordinates in a row, with no more between them than must be."""
    return " ".join(map(number, values)).replace(" -", "-")


def text_element(
    x: float, y: float, text: str, size: int, ink: RGB, weight: int = 400, anchor: str = "start"
) -> str:
    """Return a line of text on its baseline; unprintable characters as spaces."""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{css(ink)}">{html.escape(one_line(text, 200))}</text>'
    )


def label_size(label: str, diameter: float) -> int | None:
    """Return the font size with which a label fits into a node, or None if none does."""
    room = LABEL_SHARE * diameter
    fits = (size for size in LABEL_SIZES if font("SemiBold", size).getlength(label) <= room)
    return next(fits, None)


def arrow_paths(plan: Layout, theme: Theme) -> str:
    """Return all arrows of a layout: one path of lines, one of arrowheads, and the dots."""
    head = 3.2 if plan.diameter >= 20 else 2.2
    line = 1.3 if plan.diameter >= 20 else 1.0
    lines, heads = [], []
    for arrow in plan.arrows:
        (x0, y0), (x1, y1) = arrow[-2], arrow[-1]
        length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
        ux, uy = (x1 - x0) / length * head, (y1 - y0) / length * head
        if len(arrow) > 2 or length > head + 1:  # else the head is all there is to see
            lines.append(polyline([*arrow[:-1], (x1 - ux, y1 - uy)]))
        a, b, c, d = -ux - 0.62 * uy, -uy + 0.62 * ux, 1.24 * uy, -1.24 * ux
        heads.append(f"M{numbers(x1, y1)}l{numbers(a, b, c, d)}z")
    ink = css(theme.edge)
    dots = (f'<circle cx="{number(x)}" cy="{number(y)}" r="2"/>' for x, y in plan.dots)
    return (
        f'<path class="lines" fill="none" stroke="{ink}" stroke-width="{line}" d="{"".join(lines)}"'
        f'/><g fill="{ink}"><path class="heads" d="{"".join(heads)}"/>{"".join(dots)}</g>'
    )


def polyline(points: Sequence[Point]) -> str:
    """Return the path along some points, as short as it can be written."""
    (x, y), *rest = [(round(x, 1), round(y, 1)) for x, y in points]
    parts = [f"M{number(x)} {number(y)}"]
    for right, down in rest:
        if down == y:
            parts.append(f"H{number(right)}")
        elif right == x:
            parts.append(f"V{number(down)}")
        else:
            parts.append(f"L{number(right)} {number(down)}")
        x, y = right, down
    return "".join(parts)


def node_element(x: float, y: float, look: Look, diameter: float, theme: Theme) -> str:
    """Return the discs of a node."""
    fill, outline, _ = node_colours(look, theme)
    stroke = outline_of(diameter)
    radius = diameter / 2
    at = f'cx="{number(x)}" cy="{number(y)}"' if x or y else ""
    above = ""
    if look.activity is not Activity.NONE:
        above = f'r="{radius + 4.5:g}" fill="{css(theme.halo)}" stroke="{css(theme.ink)}"'
    elif look.checkpoint:
        above = f'r="{radius + 3.5:g}" fill="none" stroke="{css(theme.checkpoint)}"'
        above += ' stroke-width="2"'
    return (
        (f"<circle {at} {above}/>" if above else "")
        + f'<circle {at} r="{radius - stroke / 2:g}" fill="{css(fill)}" stroke="{css(outline)}" '
        f'stroke-width="{stroke:g}"/>'
    )


def outline_of(diameter: float) -> float:
    """Return how thick a node's outline is."""
    return 1.5 if diameter >= 14 else 1.0


def level_path(x: float, y: float, radius: float, share: float) -> str:
    """Return the part of a disc that is empty: ``share`` of its diameter, from above."""
    drop = radius * (2 * share - 1)  # of the level below the centre
    half = max(radius**2 - drop**2, 0) ** 0.5
    large = int(share > 0.5)
    return (
        f"M{x - half:.2f} {y + drop:.2f}A{radius:g} {radius:g} 0 {large} 1 "
        f"{x + half:.2f} {y + drop:.2f}z"
    )
