"""Each part imports the parts before it: ``from part_1 import Graph``."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PARTS = [f"part_{part}" for part in range(7)]
sys.path += [str(HERE / part) for part in PARTS]
collect_ignore = ["solutions", *(f"{part}/{part}.py" for part in PARTS)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--solutions", action="store_true", help="run the tests on the solutions")


def pytest_configure(config: pytest.Config) -> None:
    files = "solutions/part_?.py" if config.getoption("--solutions") else "part_?/part_?.py"
    if not any(HERE.glob(files)):
        raise pytest.UsageError(f"{HERE} has no {files}; tinyckpt course --copy DIR writes part_?")
    if config.getoption("--solutions"):
        sys.path.insert(0, str(HERE / "solutions"))
        # The tests find these, imported already, whatever folders pytest puts in front.
        for part in PARTS:
            import_module(part)
