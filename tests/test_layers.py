"""Imports go one way: what the layout says, checked on the source, function-level imports too."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the bottom up: a module or package may import those before it.
LAYERS = [
    "errors", "units", "display", "files", "tree", "graph", "building",
    "ops", "var", "builder", "build", "chunking", "differentiate",
    "schedule", "trace", "replay", "cost", "fates", "table",
    "analysis", "orders", "transfers", "exact", "policies", "planning",
    "storage", "backend", "arguments", "execute", "compile", "api", "training",
    "pipeline", "documents", "networks", "rewriting", "means", "interop", "cli",
]  # fmt: skip
VIZ_LAYERS = [
    "packages", "terminal", "theme", "layout", "memory", "captions", "scene", "curve", "sheet",
    "arrange", "nodes", "raster", "vector", "progress", "gif", "charts", "player", "lab",
    "notebook",
]  # fmt: skip
# Of tinyckpt, viz may import types; and, to be used, the words for why a value is kept and the
# program beside the steps, which the player shows; costs, for the frontier's axis; how files are
# written, and how they show themselves; and the kinds of a pipeline's actions, which have colours.
VIZ_MAY_IMPORT = {
    "errors", "files", "graph", "schedule", "trace", "units", "cost", "fates", "compile",
    "display", "pipeline",
}  # fmt: skip
# What plans besides, in viz: the page on which somebody chooses among plans.
VIZ_MAY_PLAN = {"lab": {"planning", "replay"}}
# Imports that go up, each with its reason. Types are those under TYPE_CHECKING alone.
EXCEPTIONS = {
    ("graph", "ops"): "types: an operator names its primitive",
    ("ops", "var"): "types: operators take and return Vars, whose methods call operators",
    ("ops", "builder"): "types: the active builder is handed to operators",
    ("var", "builder"): "types: a Var belongs to a builder",
    ("building", "builder"): "types: a context manager knows whose operators it is about",
    ("building", "var"): "types: values are marked",
    ("schedule", "replay"): "printing a schedule says what is live at each step",
    ("storage", "backend"): "on_disk is NumPy's backend with a host of another kind",
    ("cli", "viz"): "the command draws; the engine never does",
}


def modules_of(package: str) -> dict[str, Path]:
    """Return the files of a package by module name."""
    paths = (ROOT / package).rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = {**modules_of("tinyckpt"), **modules_of("viz")}


def imported(path: Path) -> list[tuple[str, bool]]:
    """Return what a file imports anywhere in it, and whether for type checking alone."""
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
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += [(name, id(node) in typing) for name in names]
    return found


def part_of(module: str) -> str:
    """Return the flat module or the package that a module stands in."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name)])
def test_imports_go_down(module: str) -> None:
    package, own = module.split(".")[0], part_of(module)
    if own == "__main__":
        return
    layers = LAYERS if package == "tinyckpt" else VIZ_LAYERS
    for name, for_types in imported(MODULES[module]):
        target, part = name.split(".")[0], part_of(name)
        if (own, part) in EXCEPTIONS or (package, own, target) == ("tinyckpt", "cli", "viz"):
            reason = EXCEPTIONS.get((own, part), "")
            assert for_types or not reason.startswith("types"), f"{module} imports {name}"
        elif target == package:
            assert own == part or layers.index(part) < layers.index(own), (
                f"{module} imports {name}, which stands above it"
            )
        elif target == "tinyckpt":
            allowed = VIZ_MAY_IMPORT | VIZ_MAY_PLAN.get(own, set())
            assert part in allowed or for_types, f"{module} imports {name}"
        else:
            assert target != "viz", f"{module} imports {name}"


def test_exceptions_are_needed() -> None:
    used = {
        (part_of(module), part_of(name) if name.startswith("tinyckpt.") else name.split(".")[0])
        for module, path in MODULES.items()
        if module.startswith("tinyckpt.")
        for name, _ in imported(path)
    }
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize("package", ["tinyckpt", "viz"])
def test_no_module_imports_in_a_circle(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for module, path in modules_of(package).items():
        own = part_of(module)
        if not own:
            continue
        needs = set()
        for name, _ in imported(path):
            target = name if name in MODULES else name.rpartition(".")[0]
            if target != module and target in MODULES and part_of(target):
                needs.add(target)
        graph[module] = {need for need in needs if (own, part_of(need)) not in EXCEPTIONS}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(("package", "most"), [("tinyckpt", 25), ("viz", 12)])
def test_every_layer_is_there_and_few_stand_flat(package: str, most: int) -> None:
    flat = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert flat | folders == set(LAYERS if package == "tinyckpt" else VIZ_LAYERS)
    assert len(flat) <= most
    below = [path.relative_to(ROOT / package) for path in modules_of(package).values()]
    # Of other frameworks, each has a package of its own in that for all of them.
    assert {path.parts[0] for path in below if len(path.parts) > 2} <= {"interop"}
    assert max(len(path.parts) for path in below) <= 3


def test_the_pipeline_can_be_read_in_an_evening() -> None:
    paths = {path.stem: path for path in (ROOT / "tinyckpt").glob("*.py")}
    lines = [
        len(path.read_text(encoding="utf-8").splitlines())
        for stem, path in paths.items()
        if stem not in ("__init__", "__main__")
    ]
    assert sum(lines) < 4100


def test_tinyckpt_needs_numpy_alone() -> None:
    # OR-tools and CuPy are imported where a solver or a GPU is asked for, and PIL never; so are
    # safetensors. ml_dtypes is imported by its name, where bfloat16 is. PyTorch and JAX are in the
    # packages for them, which nothing below the command imports.
    optional = {
        "ortools": "exact", "cupy": "backend", "viz": "cli", "safetensors": "documents",
        "torch": "interop", "jax": "interop", "mpi4py": "pipeline",
    }  # fmt: skip
    allowed = {"numpy", "tinyckpt", *sys.stdlib_module_names}
    for module, path in modules_of("tinyckpt").items():
        for name, _ in imported(path):
            top = name.split(".")[0]
            assert top in allowed or optional.get(top) == part_of(module), f"{module}: {name}"
