"""What each node of a picture says: its name in full where that fits, else short, no two alike.

Names are people's own, of any length and in any letters. Two labels are alike if the same pixels
are drawn for them, so that letters which the font lacks, or which look like others, count as what
is seen of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from ..theme import font
from .cells import Cell
from .geometry import Layout, Size
from .parts import DASH

POINTS = (11, 10, 9, 8)  # sizes of labels, in pixels at scale 1
LEAST_IN_BOXES = 9  # a name is rather cut than written smaller
AROUND = 12  # pixels of a wide node beside its name
LONGEST = 96  # letters of which anything is tried: no node has room for more
JOINTS = " _-./"  # no name ends in one of these before it is cut
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a node is to say.

    Attributes:
        text: in full.
        among: it must differ from what others of the same ``among`` say, such as those below one
            heading.
        size: width and height of the node.
        name: whether it is a name; else a symbol, which several nodes may have.
    """

    text: str
    among: str
    size: Size
    name: bool


Seen = tuple[str, bytes]  # below which heading, and which pixels


def label_room(size: Size, points: int) -> float:
    """Return how wide a label may be, in pixels at scale 1."""
    if size[0] > size[1]:
        return size[0] - 6
    # A disc has more room for lower letters; and a label that nearly touches is better than none.
    return (0.84 if points > POINTS[-1] else 0.92) * size[0]


@lru_cache(maxsize=4096)
def width_of(text: str, points: int) -> float:
    """Return how wide a label is, in pixels at scale 1."""
    if len(text) > LONGEST:
        return float("inf")
    width: float = font("SemiBold", points).getlength(text)
    return width


def label_points(texts: Sequence[str], size: Size) -> int:
    """Return the largest size at which all of these labels fit a node; the least if none is."""
    sizes = [points for points in POINTS if size[0] <= size[1] or points >= LEAST_IN_BOXES]
    for points in sizes:
        room = label_room(size, points)
        if all(width_of(text, points) <= room for text in texts):
            return points
    return sizes[-1]


def broad_cells(cells: Iterable[Cell], disc: float) -> set[int]:
    """Return the operators whose names ask for more than a disc."""
    return {
        cell.id
        for cell in cells
        if cell.named and not cell.group and not fits(cell.label, (disc, disc), LEAST_IN_BOXES)
    }


def breadth_of(cells: Sequence[Cell], broad: Iterable[int], widest: float) -> float:
    """Return how wide these cells are to be drawn, all alike; 0 if there are none."""
    widths = (width_of(cells[index].label, POINTS[1]) + AROUND for index in broad)
    return min(widest, max(widths, default=0.0))


def with_labels(plan: Layout, among: Mapping[int, str]) -> Layout:
    """Return a layout with what each cell says; mirrors say what stands above them.

    Args:
        plan: whose cells and sizes are final.
        among: by cell, the heading that it stands under.
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
            told_apart(cell, times[cell.label, among.get(cell.id, "")], cell.id in among),
            among.get(cell.id, ""),
            plan.size(cell),
            cell.named,
        )
        for cell in own
    }
    points = points_of(wanted)
    said = fitted_apart(wanted, points)
    origins = [copies.get(cell.id, cell.id) for cell in plan.cells]
    return replace(
        plan,
        labels=tuple([said.get(origin, "") for origin in origins]),
        points=tuple([points.get(origin, POINTS[-1]) for origin in origins]),
    )


def told_apart(cell: Cell, times: int, headed: bool) -> str:
    """Return what a cell is to say: ``l1/hidden`` if others are ``hidden`` and no heading tells."""
    if times == 1 or headed or not cell.within or not cell.named:
        return cell.label
    return f"{initials(cell.within)}/{cell.label}"


def points_of(wanted: Mapping[int, Wanted]) -> dict[int, int]:
    """Return the size of each label: a disc's own, and one for all other nodes of a size."""
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
    """Return the first letter of each name in a scope, and its number.

    >>> initials("encoder/stage12")
    'e/s12'
    """
    names = scope.split("/")
    return "/".join(name[:1] + name[len(name.rstrip("0123456789")) :] for name in names)


def fitted_apart(wanted: Mapping[int, Wanted], points: Mapping[int, int]) -> dict[int, str]:
    """Return what each node says, at a size of its own; nothing where nothing fits.

    A node that can say all does; those of which several would look alike say something else, and
    in the end have a number.
    """
    said: dict[int, str] = {}
    taken: set[Seen] = set()
    short = {node: not fits(want.text, want.size, points[node]) for node, want in wanted.items()}
    for node, want in wanted.items():
        if not want.name and not short[node]:
            said[node] = want.text
            taken.add(seen(want, want.text))
    for way in WAYS:
        tries = {
            node: way(want, label_room(want.size, points[node]), points[node])
            for node, want in wanted.items()
            if node not in said and want.name and (short[node] or way is in_full)
        }
        looks = {
            node: seen(wanted[node], text)
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
                look = seen(want, text)
                if look not in taken:
                    said[node] = text
                    taken.add(look)
                    break
    return said


def seen(want: Wanted, text: str) -> Seen:
    """Return what no other node may show: a name in full under its heading, or cut anywhere."""
    return want.among if text == want.text else "", pixels(text)


def fits(text: str, size: Size, points: int) -> bool:
    """Whether a label has room in a node."""
    return width_of(text, points) <= label_room(size, points)


@lru_cache(maxsize=4096)
def pixels(text: str) -> bytes:
    """Return what is drawn for a text."""
    mask = font("SemiBold", POINTS[0]).getmask(text)
    return repr(mask.size).encode() + bytes(mask)


# From the best to the last: each is a text, or nothing where there is no such.
Way = Callable[[Wanted, float, int], str]


def in_full(want: Wanted, room: float, points: int) -> str:
    """Return the whole text."""
    return want.text


def range_alone(want: Wanted, room: float, points: int) -> str:
    """Return the numbers of ``layer13-16``, with a dash of figures."""
    return want.text.lstrip("abcdefghijklmnopqrstuvwxyz_") if DASH in want.text else ""


def without_path(want: Wanted, room: float, points: int) -> str:
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
    """Return the beginning and the number at the end: ``atten…12``."""
    tail = re.findall(r"\d+$", want.text[-LONGEST:])
    return cut(want.text, tail[0] if tail else "", room, points)


def cut_at_end(want: Wanted, room: float, points: int) -> str:
    """Return the beginning: ``attenti…``."""
    return cut(want.text, "", room, points)


def cut_in_middle(want: Wanted, room: float, points: int) -> str:
    """Return the beginning and the end, of about equal length: ``att…ore``."""
    text = want.text
    for length in range(min(len(text) // 2, LONGEST // 2), 0, -1):
        both = f"{text[:length].rstrip(JOINTS)}…{text[-length:].lstrip(JOINTS)}"
        if width_of(both, points) <= room:
            return both
    return ""


WAYS: tuple[Way, ...] = (
    in_full, range_alone, without_path, initial_and_number, cut_with_number,
    cut_at_end, cut_in_middle,
)  # fmt: skip


def cut(text: str, tail: str, room: float, points: int) -> str:
    """Return as much of the beginning as there is room for beside a tail, and at least a letter."""
    head = text[: min(len(text) - len(tail), LONGEST)]
    while len(head) > 1:
        head = head[:-1]
        short = f"{head.rstrip(JOINTS)}…{tail}"
        if width_of(short, points) <= room:
            return short
    return ""


def with_numbers(text: str, room: float, points: int) -> Iterator[str]:
    """Yield ``hidden``, ``hidden₂``, ``hidden₃``, ``hi…₄`` and so on, as long as there is room."""
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
