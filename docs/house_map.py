"""Generator of the map of the house: rooms of tinyckpt by floor, and imports that imply the others.

    python docs/house_map.py

A room is a package or a module; its floor is one above the highest that it imports. Of the arrows
only those are drawn that no other path implies (the transitive reduction of the import graph: Aho,
Garey and Ullman 1972, doi:10.1137/0201008). Everything but the words is read off the source by
``tests/house.py``; a test compares the pictures with what this file draws.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.house import CHECKED, imported, imported_rooms, room_of  # noqa: E402  # found there
from viz.theme import THEMES, Theme, css  # noqa: E402

FOLDER = Path(__file__).parent / "images"
# What is in a room, in at most 28 characters.
WORDS = {
    "base": "errors, units, trees, files",
    "core": "the engine: read it first",
    "ops": "operators, a family per file",
    "storage": "host, disk, pinned memory",
    "codegen": "schedule to NumPy source",
    "documents": "files of graphs, traces",
    "planner.model": "problem, budget, bounds",
    "planner.manual": "rules and marked regions",
    "planner.heuristics": "eviction, local search",
    "planner.chain_dp": "Revolve, Rotor, Rockmate",
    "planner.exact": "CP-SAT, A*, Benders",
    "planner.offload": "links, prefetch",
    "planner.portfolio": "plan, frontier, certificate",
    "interop": "checks of imported graphs",
    "interop.jax": "advice on JAX functions",
    "interop.torch": "advice on PyTorch models",
    "training": "train step, optimisers",
    "networks": "published networks",
    "pipeline": "stages, MPI, ZeRO",
    "techniques": "compression, chunking, table",
    "viz": "scene to GIF, page, chart",
    "course": "grader, puzzles, lessons",
    "cli": "the command",
}
WIDTH, HIGH, APART = 800, 40, 60  # of the picture, of a room, from floor to floor
ASIDE, DASHED = 40, ' stroke-dasharray="3 4"'
WIDE, GAP, LEFT = 172, 26, 34  # of a room, between two, of the column of floor numbers


def rooms_below() -> dict[str, set[str]]:
    """Return for each room those that it imports, viz included."""
    below = {**imported_rooms(), "viz": set()}
    for module in CHECKED:
        for name, for_types in imported(module):
            if module.startswith("viz.") and name.startswith("tinyckpt.") and not for_types:
                below["viz"] |= {room_of(name)} & {*below}
    below["cli"].add("viz")  # the command draws
    return below


def reduced(below: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the transitive reduction of an acyclic graph."""
    reach: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in reach:
            reach[room] = below[room].union(*map(reached, below[room]))
        return reach[room]

    return {
        room: {each for each in others if not any(each in reached(via) for via in others - {each})}
        for room, others in below.items()
    }


def placed(below: dict[str, set[str]]) -> dict[str, tuple[int, int]]:
    """Return the centre and the floor of each room; each stands near the mean of those it reads."""
    floors: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in floors:
            floors[room] = 1 + max(map(floor, below[room]), default=0)
        return floors[room]

    rows = defaultdict(list)
    for room in below:
        rows[floor(room)].append(room)
    places: dict[str, tuple[int, int]] = {}
    middle = LEFT + (WIDTH - LEFT) // 2
    for level in sorted(rows):
        wanted = {
            room: sum(places[each][0] for each in below[room]) / max(1, len(below[room]))
            for room in rows[level]
        }
        row = sorted(rows[level], key=lambda room: (wanted[room], room))
        first = middle - (len(row) - 1) * (WIDE + GAP) // 2
        for number, room in enumerate(row):
            places[room] = first + number * (WIDE + GAP), level
    return places


def drawing(theme: Theme) -> str:
    """Return the map as SVG."""
    arrows = reduced(rooms_below())
    places = placed(rooms_below())
    top = max(level for _, level in places.values())
    height = top * APART + 12

    def y(level: int) -> int:
        return (top - level) * APART + 10

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-family="system-ui, sans-serif" text-anchor="middle" role="img">',
        f"<title>{len(places)} rooms of tinyckpt on {top} floors; each imports those below it"
        "</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{css(theme.background)}"/>',
    ]
    for level in range(1, top + 1):
        parts.append(
            f'<text x="18" y="{y(level) + 25}" font-size="12" fill="{css(theme.muted)}">{level}'
            "</text>"
        )
    for room, others in arrows.items():
        x, level = places[room]
        for other in sorted(others):
            to, below = places[other]
            start, end = y(level) + HIGH, y(below)
            bend = (end - start) // 2
            # An arrow past the next floor passes below rooms: dashed, and off the middle.
            far = level - below > 1
            out, into = (x + ASIDE, to + ASIDE) if far else (x, to)
            parts.append(
                f'<path d="M{out} {start}C{out} {start + bend} {into} {end - bend} {into} {end}" '
                f'fill="none" stroke="{css(theme.muted)}"{DASHED if far else ""}/>'
            )
    for room, (x, level) in places.items():
        own = theme.checkpoint if room.startswith("planner") else theme.not_yet_outline
        edge, wide = (theme.kept, 3) if room == "core" else (own, 1.5)
        parts += [
            f'<rect x="{x - WIDE // 2}" y="{y(level)}" width="{WIDE}" height="{HIGH}" rx="6" '
            f'fill="{css(theme.panel)}" stroke="{css(edge)}" stroke-width="{wide}"/>',
            f'<text x="{x}" y="{y(level) + 17}" font-size="13" font-weight="600" '
            f'fill="{css(theme.ink)}">{room.replace(".", "/")}</text>',
            f'<text x="{x}" y="{y(level) + 32}" font-size="11" fill="{css(theme.muted)}">'
            f"{escape(WORDS[room])}</text>",
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Write the picture in two themes, and print the paths."""
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        path = FOLDER / f"house{suffix}.svg"
        path.write_text(drawing(THEMES[theme]), encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main()
