"""Imports go one way: what the layout says, checked on the source, function-level imports too."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the bottom up: a room may import those before it. A room is a package, or a module that
# stands beside the packages; of the planner and of other frameworks, each package in it.
ROOMS = [
    "base", "core", "ops", "storage", "codegen", "documents",
    "planner", "planner.model", "planner.manual", "planner.heuristics", "planner.chain_dp",
    "planner.exact", "planner.offload", "planner.portfolio", "interop", "interop.jax",
    "interop.torch", "api", "training", "networks", "approx", "pipeline", "techniques", "means",
    "cli",
]  # fmt: skip
VIZ_ROOMS = [
    "requirements", "terminal", "theme", "layout", "node_memory", "node_looks", "memory_curve",
    "captions", "scene", "picture_layout", "node_style", "raster", "vector", "progress", "gif",
    "charts", "player", "lab", "notebook",
]  # fmt: skip
# Modules that stand for others, under another name.
ALIASES = {"tinyckpt.viz", "viz.wheel_alias"}
# Of tinyckpt, viz may import types; and, to be used, the words for why a value is saved and the
# program beside the steps, which the player shows; costs, for the frontier's axis; how files are
# written, and how they show themselves; and the kinds of a pipeline's actions, which have colours.
VIZ_MAY_IMPORT = {
    "tinyckpt.base", "tinyckpt.core", "tinyckpt.planner.model.value_fates",
    "tinyckpt.planner.model.cost_models",
    "tinyckpt.codegen", "tinyckpt.pipeline",
}  # fmt: skip
# What plans besides, in viz: the page on which somebody chooses among plans.
VIZ_MAY_PLAN = {"lab": {"tinyckpt.planner.portfolio", "tinyckpt.planner.model"}}
# Imports that go up, each with its reason. Types are those under TYPE_CHECKING alone.
EXCEPTIONS = {
    ("cli", "viz"): "the command draws; the engine never does",
}

# Within a room, the same of modules.
MODULE_EXCEPTIONS: dict[tuple[str, str], str] = {}


def modules_of(package: str) -> dict[str, Path]:
    """Return the files of a package by module name."""
    paths = (ROOT / package).rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = {**modules_of("tinyckpt"), **modules_of("viz")}


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


@pytest.mark.parametrize("module", CHECKED)
def test_imports_follow_layer_order(module: str) -> None:
    package, own = module.split(".")[0], room_of(module)
    if own == "__main__":
        return
    rooms = ROOMS if package == "tinyckpt" else VIZ_ROOMS
    for name, for_types in imported(module):
        target, room = name.split(".")[0], room_of(name)
        if name == "tinyckpt.viz" or name.startswith("tinyckpt.viz."):
            target, room = "viz", ""
        if (own, room or target) in EXCEPTIONS and package == "tinyckpt":
            continue
        if target == package:
            assert own == room or rooms.index(room) < rooms.index(own), (
                f"{module} imports {name}, which stands above it"
            )
        elif target == "tinyckpt":
            allowed = VIZ_MAY_IMPORT | VIZ_MAY_PLAN.get(own, set())
            within = any(f"{name}.".startswith(f"{each}.") for each in allowed)
            assert within or for_types, f"{module} imports {name}"
        else:
            assert target != "viz", f"{module} imports {name}"


def test_every_import_exception_is_used() -> None:
    used = set()
    for module in CHECKED:
        if module.startswith("tinyckpt."):
            for name, _ in imported(module):
                drawn = f"{name}.".startswith("tinyckpt.viz.")
                used.add((room_of(module), "viz" if drawn else room_of(name)))
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize("package", ["tinyckpt", "viz"])
def test_imports_are_acyclic(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for module in CHECKED:
        if not module.startswith(f"{package}."):
            continue
        needs = set()
        for name, for_types in imported(module):
            target = name if name in MODULES else name.rpartition(".")[0]
            up = (room_of(module), room_of(target)) in EXCEPTIONS
            up |= (module, target) in MODULE_EXCEPTIONS
            if target in MODULES and target != module and room_of(target) and not up:
                needs |= set() if for_types else {target}
        graph[module] = needs
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_every_package_exists_and_few_modules_are_top_level() -> None:
    assert {room_of(name) for name in MODULES if room_of(name)} - {"__main__", "viz"} == {
        *ROOMS,
        *VIZ_ROOMS,
        "wheel_alias",
    }
    shown = {
        path.name for path in (ROOT / "tinyckpt").iterdir() if not path.name.startswith("__pyc")
    }
    assert len(shown) <= 22
    deepest = max(MODULES, key=lambda name: name.count("."))
    assert deepest.count(".") <= 3


def test_house_has_few_rooms_floors_and_arrows() -> None:
    # A room's floor is one above the highest of those it imports. The command's entry and an alias
    # for one version are no rooms; the packages for other frameworks are one.
    below: dict[str, set[str]] = {room: set() for room in ROOMS if room not in ("planner", "means")}
    for module in CHECKED:
        if module.startswith("tinyckpt.") and room_of(module) in below:
            own = room_of(module)
            below[own] |= {room_of(name) for name, _ in imported(module)} & {*below} - {own}
    floors: dict[str, int] = {}
    for room in below:  # in the order of their layers
        floors[room] = 1 + max((floors[other] for other in below[room]), default=0)
    arrows = {
        (room.partition("interop.")[0] or "interop", other.partition("interop.")[0] or "interop")
        for room, others in below.items()
        for other in others
    }
    rooms = {room for arrow in arrows for room in arrow}
    assert len(rooms) <= 21
    assert max(floors.values()) <= 13
    assert len({(room, other) for room, other in arrows if room != other}) <= 110


def test_packages_for_other_frameworks_import_no_other() -> None:
    for module in CHECKED:
        if room_of(module) in ("interop.torch", "interop.jax"):
            rooms = {room_of(name) for name, _ in imported(module)}
            assert not rooms & {"interop.torch", "interop.jax"} - {room_of(module)}, module


def test_tinyckpt_depends_on_numpy_only() -> None:
    # OR-tools and CuPy are imported where a solver or a GPU is asked for, and PIL never; so are
    # safetensors. ml_dtypes is imported by its name, where bfloat16 is. PyTorch and JAX are in the
    # packages for them, which nothing below the command imports.
    optional = {
        "ortools": "planner.exact", "cupy": "storage", "safetensors": "documents",
        "torch": "interop", "jax": "interop", "mpi4py": "pipeline",
    }  # fmt: skip
    allowed = {"numpy", "tinyckpt", *sys.stdlib_module_names}
    for module in CHECKED:
        for name, _ in imported(module) if module.startswith("tinyckpt.") else ():
            top = name.split(".")[0]
            assert top in allowed or room_of(module).startswith(optional.get(top, "-")), (
                f"{module}: {name}"
            )
