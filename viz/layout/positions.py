"""What Graphviz makes of DOT, in this process, as points."""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import BackendError

from .geometry import Point, curve


def run_dot(source: str) -> Any:
    """Return a pygraphviz graph with positions, laid out in this process."""
    try:
        import pygraphviz
    except ImportError as error:
        raise BackendError(
            "drawing a graph that is no chain needs pygraphviz for its layout: "
            "pip install 'tinyckpt[viz]'; where it has no wheel (musl, Windows on ARM), install "
            "Graphviz and build it, or draw a chain"
        ) from error
    placed = pygraphviz.AGraph(string=source)
    # Nodes are of fixed size and their text is drawn elsewhere: without labels Graphviz does not
    # ask the system for fonts, which may be missing or complain.
    placed.node_attr["label"] = ""
    for node in placed.nodes():
        node.attr["label"] = ""
    placed.layout(prog="dot")
    return placed


def point_of(text: str) -> Point:
    """Return the point that Graphviz writes as ``x,y``."""
    x, y = text.split(",")
    return (float(x), float(y))


def curve_of(text: str) -> list[Point]:
    """Return a polyline along the cubic curves that Graphviz writes as ``e,x,y x,y x,y ...``."""
    end: list[Point] = []
    points: list[Point] = []
    for part in text.split():
        if part.startswith("e,"):
            end = [point_of(part[2:])]
        elif not part.startswith("s,"):
            points.append(point_of(part))
    line = points[:1]
    for index in range(0, len(points) - 1, 3):
        a, b, c, d = points[index : index + 4]
        line += curve(a, b, c, d)[1:]
    return [*line, *end]
