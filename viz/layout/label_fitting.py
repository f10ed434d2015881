"""Label fitting: full name, abbreviation or truncation per node, such that no two look the same.

Layouts without labels come in, layouts with labels and font sizes go out. Names are the users' own,
of any length and in any script. Two labels are equal if they render to the same pixels: letters
that the font lacks, or homoglyphs, count as they are seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from ..theme import font
from .drawn_nodes import Cell
from .geometry import Layout, Size
from .partition import DASH

POINTS = (11, 10, 9, 8)  # sizes of labels, in pixels at scale 1
LEAST_IN_BOXES = 9  # names are truncated rather than set smaller
AROUND = 12  # pixels of a wide node beside its name
LONGEST = 96  # letters that are considered: no node has room for more
JOINTS = " _-./"  # separators: a truncated name does not end in one
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Request for a node's label.

    Attributes:
        text: in full.
        among: namespace in which the label must be unique, such as the heading above.
        size: width and height of the node.
        name: whether it is a name; else a symbol, which several nodes may share.
    """

    text: str
    among: str
    size: Size
    name: bool


Seen = tuple[str, bytes]  # heading, pixels


def label_room(size: Size, points: int) -> float:
    """Return the maximum width of a label, in pixels at scale 1."""
    if size[0] > size[1]:
        return size[0] - 6
    # A disc is wider where smaller letters stand; and a label that nearly touches beats none.
    return (0.84 if points > POINTS[-1] else 0.92) * size[0]


@lru_cache(maxsize=4096)
def width_of(text: str, points: int) -> float:
    """Return the width of a label, in pixels at scale 1."""
    if len(text) > LONGEST:
        return float("inf")
    width: float = font("SemiBold", points).getlength(text)
    return width


def label_points(texts: Sequence[str], size: Size) -> int:
    """Return the largest font size at which all labels fit a node; the smallest if none does."""
    sizes = [points for points in POINTS if size[0] <= size[1] or points >= LEAST_IN_BOXES]
    for points in sizes:
        room = label_room(size, points)
        if all(width_of(text, points) <= room for text in texts):
            return points
    return sizes[-1]


def wide_cells(cells: Iterable[Cell], disc: float) -> set[int]:
    """Return the operators whose names need more than a disc."""
    return {
        cell.id
        for cell in cells
        if cell.named and not cell.group and not fits(cell.label, (disc, disc), LEAST_IN_BOXES)
    }


def common_width(cells: Sequence[Cell], broad: Iterable[int], widest: float) -> float:
    """Return the common width at which these cells are drawn; 0 if there are none."""
    widths = (width_of(cells[index].label, POINTS[1]) + AROUND for index in broad)
    return min(widest, max(widths, default=0.0))


def with_labels(plan: Layout, among: Mapping[int, str]) -> Layout:
    """Return a layout with labels; mirrors have the labels of the cells above them.

    Args:
        plan: whose cells and sizes are final.
        among: by cell, the heading above it.
    """
    copies = {
        cell.id: cell.mirror
        for cell in plan.cells
        if cell.mirror is not None and cell.label == plan.cells[cell.mirror].label
    }
    own = [cell for cell in plan.cells if cell.label and cell.id not in copies and plan.labelled]
    times = Counter((cell.label, among.get(cell.id, "")) for cell in own)
    wanted = {
        cell.id: Wanted(
            qualified(cell, times[cell.label, among.get(cell.id, "")], cell.id in among),
            among.get(cell.id, ""),
            plan.size(cell),
            cell.named,
        )
        for cell in own
    }
    points = points_of(wanted)
    said = unique_labels(wanted, points)
    origins = [copies.get(cell.id, cell.id) for cell in plan.cells]
    return replace(
        plan,
        labels=tuple([said.get(origin, "") for origin in origins]),
        points=tuple([points.get(origin, POINTS[-1]) for origin in origins]),
    )


def qualified(cell: Cell, times: int, headed: bool) -> str:
    """Return the requested label: ``l1/hidden`` if others are ``hidden`` and no heading differs."""
    if times == 1 or headed or not cell.within or not cell.named:
        return cell.label
    return f"{initials(cell.within)}/{cell.label}"


def points_of(wanted: Mapping[int, Wanted]) -> dict[int, int]:
    """Return the font size of each label: one per disc, and one common to all nodes of a size."""
    together: dict[tuple[Size, str], list[str]] = {}
    keys = {
        node: (want.size, "" if want.size[0] > want.size[1] else want.text)
        for node, want in wanted.items()
    }
    for node, key in keys.items():
        together.setdefault(key, []).append(wanted[node].text)
    shared = {key: label_points(texts, key[0]) for key, texts in together.items()}
    return {node: shared[key] for node, key in keys.items()}


def initials(scope: str) -> str:
    """Return the initial of each name in a scope, with its number.

    >>> initials("encoder/stage12")
    'e/s12'
    """
    names = scope.split("/")
    return "/".join(name[:1] + name[len(name.rstrip("0123456789")) :] for name in names)


def unique_labels(wanted: Mapping[int, Wanted], points: Mapping[int, int]) -> dict[int, str]:
    """Choose the label of each node at its font size, unique; empty where none fits.

    A full name that fits is used; of several that look the same, all are abbreviated in another
    way, and finally numbered.
    """
    said: dict[int, str] = {}
    taken: set[Seen] = set()
    short = {node: not fits(want.text, want.size, points[node]) for node, want in wanted.items()}
    for node, want in wanted.items():
        if not want.name and not short[node]:
            said[node] = want.text
            taken.add(appearance(want, want.text))
    for way in WAYS:
        tries = {
            node: way(want, label_room(want.size, points[node]), points[node])
            for node, want in wanted.items()
            if node not in said and want.name and (short[node] or way is in_full)
        }
        looks = {
            node: appearance(wanted[node], text)
            for node, text in tries.items()
            if text and fits(text, wanted[node].size, points[node])
        }
        times = Counter(looks.values())
        for node, look in looks.items():
            if times[look] == 1 and look not in taken:
                said[node] = tries[node]
                taken.add(look)
    numbers: dict[tuple[str, str], Iterator[str]] = {}
    for node, want in wanted.items():
        if node not in said and want.name:
            room = label_room(want.size, points[node])
            key = want.text, want.among
            texts = numbers.setdefault(key, with_numbers(want.text, room, points[node]))
            for text in texts:
                look = appearance(want, text)
                if look not in taken:
                    said[node] = text
                    taken.add(look)
                    break
    return said


def appearance(want: Wanted, text: str) -> Seen:
    """Return the identity of a label: its pixels, with the heading if it is a name in full."""
    return want.among if text == want.text else "", pixels(text)


def fits(text: str, size: Size, points: int) -> bool:
    """Whether a label fits a node."""
    return width_of(text, points) <= label_room(size, points)


@lru_cache(maxsize=4096)
def pixels(text: str) -> bytes:
    """Return the rendered pixels of a text."""
    mask = font("SemiBold", POINTS[0]).getmask(text)
    return repr(mask.size).encode() + bytes(mask)


# Abbreviations in order of preference: each returns a text, or "" where it does not apply.
Way = Callable[[Wanted, float, int], str]


def in_full(want: Wanted, room: float, points: int) -> str:
    """Return the whole text."""
    return want.text


def range_alone(want: Wanted, room: float, points: int) -> str:
    """Return the numbers of ``layer13-16``, with an en dash."""
    return want.text.lstrip("abcdefghijklmnopqrstuvwxyz_") if DASH in want.text else ""


def last_component(want: Wanted, room: float, points: int) -> str:
    """Return the last part of ``layers.12.attention`` or ``encoder/attention``."""
    parts = re.split(r"[./]", want.text[-LONGEST:])
    return parts[-1].strip() if len(parts) > 1 else ""


def initial_and_number(want: Wanted, room: float, points: int) -> str:
    """Return ``a12`` for ``layers.12.attention``: the last word's initial and the last number."""
    words: list[str] = re.findall(r"[^\W\d_]+", want.text[-LONGEST:])
    numbers: list[str] = re.findall(r"\d+", want.text[-LONGEST:])
    if not words or not numbers or len(numbers[-1]) > 3 or not re.search("[./]", want.text):
        return ""
    return words[-1][0] + numbers[-1]


def cut_with_number(want: Wanted, room: float, points: int) -> str:
    """Truncate before the number at the end: ``atten…12``."""
    tail = re.findall(r"\d+$", want.text[-LONGEST:])
    return cut(want.text, tail[0] if tail else "", room, points)


def cut_at_end(want: Wanted, room: float, points: int) -> str:
    """Truncate at the end: ``attenti…``."""
    return cut(want.text, "", room, points)


def cut_in_middle(want: Wanted, room: float, points: int) -> str:
    """Truncate in the middle: ``att…ore``."""
    text = want.text
    for length in range(min(len(text) // 2, LONGEST // 2), 0, -1):
        both = f"{text[:length].rstrip(JOINTS)}…{text[-length:].lstrip(JOINTS)}"
        if width_of(both, points) <= room:
            return both
    return ""


WAYS: tuple[Way, ...] = (
    in_full, range_alone, last_component, initial_and_number, cut_with_number,
    cut_at_end, cut_in_middle,
)  # fmt: skip


def cut(text: str, tail: str, room: float, points: int) -> str:
    """Truncate to the width that a tail leaves, but to a letter at least."""
    head = text[: min(len(text) - len(tail), LONGEST)]
    while len(head) > 1:
        head = head[:-1]
        short = f"{head.rstrip(JOINTS)}…{tail}"
        if width_of(short, points) <= room:
            return short
    return ""


def with_numbers(text: str, room: float, points: int) -> Iterator[str]:
    """Yield ``hidden``, ``hidden₂``, ``hidden₃``, ``hi…₄`` and so on, as long as they fit."""
    whole = width_of(text, points) <= room
    if whole:
        yield text
    for number in count(2 if whole else 1):
        tail = str(number).translate(SUBSCRIPTS)
        longer = f"{text}{tail}"
        short = longer if width_of(longer, points) <= room else cut(text, tail, room, points)
        if not short and width_of(f"…{tail}", points) > room:
            return
        yield short or f"…{tail}"
