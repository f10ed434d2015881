"""The core is small, and the page that shows it shows all of it, in the order of the list."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tinyckpt import core

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for path in (ROOT / "tinyckpt" / "core").glob("*.py") if path.stem != "__init__"
)


@pytest.fixture
def read_core(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    sys.modules.pop("read_core", None)
    import read_core

    return read_core


def test_core_is_at_most_3200_lines_in_13_files() -> None:
    assert len(FILES) == 13
    package = [*FILES, Path(core.__file__)]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package) <= 3_200


def test_list_in_contributing_names_each_file_of_core_and_an_example(read_core: Any) -> None:
    assert sorted(read_core.listed()) == [path.stem for path in FILES]
    assert list(read_core.STAGES) == list(read_core.listed())


def test_page_has_every_line_of_core_in_order(read_core: Any) -> None:
    shown = [line.strip() for line in read_core.page().splitlines()]
    place = 0
    for name in read_core.listed():
        source = (ROOT / "tinyckpt" / "core" / f"{name}.py").read_text(encoding="utf-8")
        code = source.split('"""', 2)[2]  # after the module docstring, which is prose
        for line in (line.strip() for line in code.splitlines()):
            if line and not line.startswith("#"):
                place = shown.index(line, place) + 1


def test_each_file_of_core_is_imported_only_by_later_ones(read_core: Any) -> None:
    # The order of reading: a file uses what was read before it.
    read: list[str] = []
    for name in read_core.listed():
        source = (ROOT / "tinyckpt" / "core" / f"{name}.py").read_text(encoding="utf-8")
        used = {
            line.split()[1].removeprefix("tinyckpt.core.")
            for line in source.splitlines()
            if line.lstrip().startswith("from tinyckpt.core.")
        }
        # An operator of the graph names its Primitive, as a type alone.
        assert used <= {*read, *(["primitive"] if name == "graph" else [])}, name
        read.append(name)


def test_docstring_of_core_names_files_in_reading_order(read_core: Any) -> None:
    named = re.findall(r"``(\w+)``", core.__doc__ or "")
    assert named == list(read_core.listed())
