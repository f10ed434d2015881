"""SVG path data: parsing, rounding, simplification, the shortest notation.

A path is a list of absolute commands. Coordinates are rounded to what is seen, repeated and
collinear points are left out, and each move is relative to the point before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TOKEN = re.compile(r"[MLQCZz]|-?[\d.]+(?:e-?\d+)?")
ARGUMENTS = {"M": 2, "L": 2, "Q": 4, "C": 6, "Z": 0}

Command = tuple[str, tuple[float, ...]]
Place = tuple[int, ...]  # coordinates in units of the last decimal


def commands_of(data: str) -> list[Command]:
    """Return path data as absolute commands; ``Z`` has no arguments."""
    tokens = TOKEN.findall(data)
    found: list[Command] = []
    place = 0
    while place < len(tokens):
        name = tokens[place].upper()
        values = tokens[place + 1 : place + 1 + ARGUMENTS[name]]
        found.append((name, tuple(map(float, values))))
        place += 1 + ARGUMENTS[name]
    return found


def path_data(commands: Sequence[Command], digits: int = 1) -> str:
    """Return the shortest path data of absolute commands, rounded, without collinear points.

    >>> path_data([("M", (0, 0)), ("L", (1, 0)), ("L", (2, 0)), ("L", (2, 0)), ("L", (3, 1))])
    'M0 0h2l1 1'
    """
    parts: list[str] = []
    at: Place = ()
    for points, closed in subpaths(commands, digits):
        begin = points[0]
        moved = [f"M{coordinates(begin, digits)}"]
        if at:
            moved.append(f"m{coordinates((begin[0] - at[0], begin[1] - at[1]), digits)}")
        parts.append(min(moved, key=len) + lines(points, digits) + "z" * closed)
        at = begin if closed else points[-1][-2:]
    return "".join(parts)


def subpaths(commands: Sequence[Command], digits: int) -> Iterator[tuple[list[Place], bool]]:
    """Yield each subpath that is longer than a point, and whether it is closed.

    A subpath is its begin, and then the end of each line, or the control points and the end of each
    curve, in integers.
    """
    points: list[Place] = []
    for name, values in [*commands, ("M", ())]:
        place = tuple(round(value * 10**digits) for value in values)
        if name == "Q" and is_straight(points[-1][-2:], place):
            name, place = "L", place[2:]
        if name in "MZ":
            if name == "Z" and len(points) > 1 and points[-1] == points[0]:
                points.pop()
            if len(points) > 1:
                yield points, name == "Z"
            points = [place]
        elif not (len(place) == 2 == len(points[-1]) and place == points[-1]):
            if len(place) == 2 and len(points) > 1 and is_between(points[-2], points[-1], place):
                points.pop()
            points.append(place)


def is_between(first: Place, middle: Place, last: Place) -> bool:
    """Whether the end of a line is on the way from the point before it to the next.

    >>> is_between((0, 0), (1, 1), (3, 3)), is_between((0, 0), (3, 3), (1, 1))
    (True, False)
    """
    if len(middle) > 2:
        return False
    x, y = first[-2:]
    (right, down), (on, below) = (middle[0] - x, middle[1] - y), (last[0] - x, last[1] - y)
    along = right * on + down * below
    return right * below == down * on and along > 0 and right**2 + down**2 <= on**2 + below**2


def is_straight(begin: Place, curve: Place) -> bool:
    """Whether a quadratic curve is a line: its control point is on the way, to a unit."""
    x, y = begin
    (right, down), (on, below) = (curve[0] - x, curve[1] - y), (curve[2] - x, curve[3] - y)
    return abs(right * below - down * on) <= max(abs(on), abs(below))


def lines(points: Sequence[Place], digits: int) -> str:
    """Return path data of a subpath after its begin, relative to it."""
    parts: list[str] = []
    before = ""
    x, y = points[0]
    for place in points[1:]:
        moves = tuple(value - (x, y)[at % 2] for at, value in enumerate(place))
        if len(place) == 2 and not all(moves):
            letter, moves = ("h" if moves[0] else "v"), (sum(moves),)
        else:
            letter = {2: "l", 4: "q", 6: "c"}[len(place)]
        text = coordinates(moves, digits)
        if letter == before and letter in "lqc":  # a repeated command is left out
            letter = "" if text[0] == "-" else " "
        parts.append(letter + text)
        before = letter.strip() or before
        x, y = place[-2:]
    return "".join(parts)


def coordinates(values: Sequence[int], digits: int) -> str:
    """Format integers as numbers with so many decimals, with the fewest letters.

    >>> coordinates((15, -5, 20, 0), 1)
    '1.5-.5 2 0'
    """
    texts = (f"{value / 10**digits:.{digits}f}".rstrip("0").rstrip(".") for value in values)
    short = (re.sub(r"^(-?)0\.", r"\1.", text) for text in texts)
    return " ".join(short).replace(" -", "-")
