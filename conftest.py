"""Bytecode of a run of tests, and what pytest does not look into for doctests."""

import os
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

# Where bytecode may not lie beside sources, it is kept apart: else each of pytest's processes, and
# each that a test starts, compiles all that it imports, PyTorch too.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parent / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

FRAMEWORKS = ("jax", "torch")
# Modules that stand for others: see tinyckpt.base.module_aliases.
collect_ignore = ["tinyckpt/means.py", "tinyckpt/viz.py", "viz/wheel_alias.py"]
if find_spec("anywidget") is None:
    collect_ignore.append("viz/widget/live.py")
collect_ignore_glob = [
    pattern.format(name)
    for name in FRAMEWORKS
    if find_spec(name) is None
    for pattern in ("tinyckpt/interop/{}/*", "tests/{}_*.py")
]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in files that have a prompt: to look into a module is to import it."""
    found = yield
    if file_path.suffix == ".py" and ">>> " not in file_path.read_text(encoding="utf-8"):
        return [each for each in found if not isinstance(each, DoctestModule)]
    return found
