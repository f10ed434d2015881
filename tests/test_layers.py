"""Imports go one way: what the layout says, checked on the source, function-level imports too."""

import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house import (
    CHECKED,
    MODULES,
    ROOMS,
    ROOT,
    VIZ_ROOMS,
    imported,
    room_of,
    rooms_floors_arrows,
)

# Of tinyckpt, viz may import types; and, to be used, which values are saved and why, and the
# program beside the steps, which the player shows; costs, for the frontier's axis; how files are
# written, and how they show themselves; and the kinds of a pipeline's actions, which have colours.
VIZ_MAY_IMPORT = {
    "tinyckpt.base", "tinyckpt.core", "tinyckpt.planner.model.value_fates",
    "tinyckpt.planner.model.cost_models", "tinyckpt.planner.model.vectorised_lowering",
    "tinyckpt.codegen", "tinyckpt.pipeline",
}  # fmt: skip
# What plans besides, in viz: the page on which somebody chooses among plans; budgets are parsed.
VIZ_MAY_PLAN = {
    "lab": {"tinyckpt.planner.portfolio", "tinyckpt.planner.model"},
    "widget": {"tinyckpt.planner.model"},
}
# Imports that go up, each with its reason. Types are those under TYPE_CHECKING alone.
EXCEPTIONS = {
    ("cli", "viz"): "the command draws; the engine never does",
}

# Rooms that use tinyckpt as a user does, by its public names: ``import tinyckpt as tc``.
OF_PUBLIC_NAMES = {"course"}

# Within a room, the same of modules.
MODULE_EXCEPTIONS: dict[tuple[str, str], str] = {}


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
        if name == "tinyckpt" and own in OF_PUBLIC_NAMES:
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
    rooms, floors, arrows = rooms_floors_arrows()
    assert rooms <= 21
    assert floors <= 13
    assert arrows <= 110


def test_packages_for_other_frameworks_import_no_other() -> None:
    for module in CHECKED:
        if room_of(module) in ("interop.torch", "interop.jax"):
            rooms = {room_of(name) for name, _ in imported(module)}
            assert not rooms & {"interop.torch", "interop.jax"} - {room_of(module)}, module


def test_tinyckpt_depends_on_numpy_only() -> None:
    # OR-tools and CuPy are imported where a solver or a GPU is asked for, and PIL never; so are
    # safetensors. ml_dtypes is imported by its name, where bfloat16 is. PyTorch, transformers and
    # JAX are in the packages for them, which nothing below the command imports.
    optional = {
        "ortools": ("planner.exact", "codegen"), "cupy": "storage", "safetensors": "documents",
        "torch": "interop", "jax": "interop", "transformers": "interop", "mpi4py": "pipeline",
        "threadpoolctl": "cli",
    }  # fmt: skip
    allowed = {"numpy", "tinyckpt", *sys.stdlib_module_names}
    for module in CHECKED:
        for name, _ in imported(module) if module.startswith("tinyckpt.") else ():
            top = name.split(".")[0]
            assert top in allowed or room_of(module).startswith(optional.get(top, "-")), (
                f"{module}: {name}"
            )
