"""Imports go one way: what DESIGN calls the layout, checked on the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the bottom up: a module may import those before it.
LAYERS = [
    "errors", "display", "units", "files", "tree", "graph", "documents", "graphfile", "ops", "var",
    "builder", "build", "differentiate", "schedule", "trace", "replay", "cost", "fates", "liveness",
    "chains", "bounds", "exact", "budget", "separators", "stages", "policies", "table", "frontier",
    "search", "planning", "explain", "backend", "execute", "arguments", "compile", "api",
    "serialize", "export", "networks", "demo", "parser", "request", "cli",
]  # fmt: skip
# The player shows why values are kept, in fates' words, and the program beside the steps.
VIZ_MAY_IMPORT = {
    "errors", "files", "graph", "schedule", "trace", "units", "cost", "fates", "compile",
}  # fmt: skip
VIZ_LAYERS = [
    "theme", "parts", "dot", "geometry", "positions", "rows", "layered", "layout", "groups",
    "memory", "scene", "sprites", "boxes", "strip", "canvas", "panel", "draw", "marks", "webfont",
    "svg", "progress", "encode", "gif", "charts", "player", "notebook",
]  # fmt: skip
SAME_LAYER = {"ops", "policies", "networks", "exact"}


def imported(path: Path) -> list[str]:
    """Return the modules that a file imports when it is imported, type checking aside."""
    modules = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return modules


def layer_of(module: str, package: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == package and len(parts) > 1 else None


@pytest.mark.parametrize("path", sorted((ROOT / "tinyckpt").rglob("*.py")), ids=str)
def test_tinyckpt_imports_only_what_is_below(path: Path) -> None:
    own = path.relative_to(ROOT / "tinyckpt").with_suffix("").parts[0]
    if own in ("__init__", "__main__"):
        return
    for module in imported(path):
        assert module.split(".")[0] != "viz", f"{path} imports {module}"
        layer = layer_of(module, "tinyckpt")
        if layer is not None and not (layer == own and own in SAME_LAYER):
            assert LAYERS.index(layer) < LAYERS.index(own), f"{path} imports {module}"


@pytest.mark.parametrize("path", sorted((ROOT / "viz").rglob("*.py")), ids=str)
def test_viz_imports_data_types_only(path: Path) -> None:
    own = path.relative_to(ROOT / "viz").with_suffix("").parts[0]
    for module in imported(path):
        layer = layer_of(module, "tinyckpt")
        assert layer is None or layer in VIZ_MAY_IMPORT, f"{path} imports {module}"
        layer = layer_of(module, "viz")
        if layer is not None and own != "__init__":
            same = layer == own and (ROOT / "viz" / own).is_dir()  # a package's own parts
            below = VIZ_LAYERS.index(layer) < VIZ_LAYERS.index(own)
            assert below or same, f"{path} imports {module}"


def test_every_layer_is_there() -> None:
    for package, layers in (("tinyckpt", LAYERS), ("viz", VIZ_LAYERS)):
        names = {path.stem for path in (ROOT / package).iterdir()} - {"__init__", "__main__"}
        assert set(layers) <= names
        assert {name for name in names if (ROOT / package / f"{name}.py").exists()} <= set(layers)


def test_tinyckpt_needs_numpy_alone() -> None:
    import sys

    allowed = {"numpy", "tinyckpt", *sys.stdlib_module_names}
    for path in (ROOT / "tinyckpt").rglob("*.py"):
        for module in imported(path):
            assert module.split(".")[0] in allowed, f"{path} imports {module}"
