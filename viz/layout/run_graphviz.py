"""Graphviz dot through pygraphviz, in this process: DOT in, node positions and edge splines out."""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import BackendError

from .geometry import Point, curve


def run_dot(source: str) -> Any:
    """Run dot on a DOT text; return a pygraphviz graph with positions."""
    try:
        import pygraphviz
    except ImportError as error:
        raise BackendError(
            "drawing a graph that is no chain needs pygraphviz for its layout: "
            "pip install 'tinyckpt[viz]'; where it has no wheel (musl, Windows on ARM), install "
            "Graphviz and build it, or draw a chain"
        ) from error
    placed = pygraphviz.AGraph(string=source)
    # Nodes have a fixed size and text is drawn elsewhere: without labels Graphviz does not
    # query the system's fonts, which may be missing or print warnings.
    placed.node_attr["label"] = ""
    for node in placed.nodes():
        node.attr["label"] = ""
    placed.layout(prog="dot")
    return placed


def point_of(text: str) -> Point:
    """Parse a Graphviz point ``x,y``."""
    x, y = text.split(",")
    return (float(x), float(y))


def curve_of(text: str) -> list[Point]:
    """Parse a Graphviz spline ``e,x,y x,y x,y ...`` into a polyline."""
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
