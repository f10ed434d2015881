"""The layout as numbers: rooms, floors and import arrows of tinyckpt, and lines of each part.

    make house

A room is a package, or a module that stands beside the packages; of the planner, each package in
it. Its floor is one above the highest of the rooms that it imports. Imports are read off the
source, those inside of functions too.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
# From the bottom up: a room may import those before it. A room is a package, or a module that
# stands beside the packages; of the planner and of other frameworks, each package in it.
ROOMS = [
    "base", "core", "ops", "storage", "codegen", "documents",
    "planner", "planner.model", "planner.manual", "planner.heuristics", "planner.chain_dp",
    "planner.exact", "planner.offload", "planner.portfolio", "interop", "interop.jax",
    "interop.torch", "training", "networks", "pipeline", "techniques", "means",
    "course", "cli",
]  # fmt: skip
VIZ_ROOMS = [
    "requirements", "terminal", "theme", "layout", "node_memory", "node_looks", "memory_curve",
    "captions", "time_axis", "scene", "strip_layout", "picture_layout", "node_style", "raster",
    "vector", "progress", "frame_times", "gif", "explainer", "charts", "player", "widget", "lab",
    "notebook",
]  # fmt: skip
# Modules that stand for others, under another name.
ALIASES = {"tinyckpt.viz", "viz.wheel_alias"}


def modules_of(package: str) -> dict[str, Path]:
    """Return the files of a package by module name."""
    paths = (ROOT / package).rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = {**modules_of("tinyckpt"), **modules_of("viz")}


@cache
def imported(module: str) -> list[tuple[str, bool]]:
    """Return what a module imports anywhere in it, and whether for type checking alone.

    What viz imports of itself is relative, so that it may stand anywhere; tinyckpt says it in full.
    """
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            inside = module.startswith("viz") and (node.module or "").partition(".")[0] == "viz"
            assert not inside, f"{path}: viz imports itself by name"
            assert module.startswith("viz") or node.level == 0, f"{path}: a relative import"
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])]) if node.level else node.module
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += [(name, id(node) in typing) for name in names]
    return found


def room_of(module: str) -> str:
    """Return the room that a module stands in; empty for a package's own ``__init__``."""
    first, *parts = module.split(".")
    if first == "tinyckpt" and parts[:1] in (["planner"], ["interop"]):
        two = ".".join(parts[:2])
        return two if two in ROOMS else parts[0]
    return parts[0] if parts else ""


CHECKED = [name for name in MODULES if room_of(name) and name not in ALIASES]


def imported_rooms() -> dict[str, set[str]]:
    """Return for each room of tinyckpt those that it imports, from the bottom up.

    The command's entry and an alias for one version are no rooms.
    """
    below: dict[str, set[str]] = {room: set() for room in ROOMS if room not in ("planner", "means")}
    for module in CHECKED:
        if module.startswith("tinyckpt.") and room_of(module) in below:
            own = room_of(module)
            below[own] |= {room_of(name) for name, _ in imported(module)} & {*below} - {own}
    return below


def rooms_floors_arrows() -> tuple[int, int, int]:
    """Count the rooms of tinyckpt, their floors and the arrows between them.

    The packages for other frameworks, which import no other, are one room.
    """
    below = imported_rooms()
    floors: dict[str, int] = {}
    for room, others in below.items():
        floors[room] = 1 + max((floors[other] for other in others), default=0)
    arrows = {
        tuple("interop" if name.startswith("interop") else name for name in (room, other))
        for room, others in below.items()
        for other in others
    }
    arrows = {(room, other) for room, other in arrows if room != other}
    return len({room for arrow in arrows for room in arrow}), max(floors.values()), len(arrows)


def lines_of(*patterns: str) -> int:
    """Count the lines of the files under version control that match."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())


def main() -> None:
    rooms, floors, arrows = rooms_floors_arrows()
    core = len([*(ROOT / "tinyckpt/core").glob("[!_]*.py")])
    figures: Sequence[tuple[str, int]] = (
        ("rooms", rooms),
        ("floors", floors),
        ("import arrows", arrows),
        ("core/, files", core),
        ("core/, lines", lines_of("tinyckpt/core/*.py")),
        ("tinyckpt/, Python lines", lines_of("tinyckpt/*.py")),
        ("viz/, Python lines", lines_of("viz/*.py")),
        ("viz/, JavaScript lines", lines_of("viz/*.js")),
        ("tests/, Python lines", lines_of("tests/*.py")),
    )
    for name, number in figures:
        print(f"{name:<24} {number:>7,}")


if __name__ == "__main__":
    main()
