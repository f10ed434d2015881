"""User Python files: importable modules, isolation, and errors with file and line."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyckpt as tc
from tinyckpt.cli import main
from tinyckpt.documents import user_functions as scripts
from tinyckpt.documents.user_functions import function_of_file, user_code

POLICY = """
from __future__ import annotations
from dataclasses import dataclass
from {dot}neighbour import order

@dataclass
class Options:
    reverse: bool = False

def policy(graph):
    from {dot}later import once
    return once(order(graph))
"""
NETWORK = """
import tinyckpt as tc
from neighbour import WIDTH

def loss(x):
    from later import squares
    return squares(x)

def make():
    return tc.networks.Network("mine", loss, (tc.Spec((WIDTH,), "float64"),))
"""


@pytest.fixture(autouse=True)
def _no_modules_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scripts, "IMPORTED_BY_FOLDER", {})
    before, paths = dict(sys.modules), list(sys.path)
    yield
    assert sys.path == paths
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def policy(tmp_path: Path) -> str:
    folder = written(
        tmp_path / "mine",
        policies=POLICY.format(dot=""),
        neighbour="def order(graph): return [each.name for each in graph.operators]",
        later="def once(order): return order",
    )
    return f"{folder / 'policies.py'}:policy"


def test_policy_file_imports_neighbours_at_load_and_at_call(policy: str) -> None:
    assert main(["plan", "chain:4", "--policy", policy]) == 0


def test_network_file_imports_neighbours(tmp_path: Path) -> None:
    written(tmp_path, net=NETWORK, neighbour="WIDTH = 4")
    written(tmp_path, later="def squares(x): return (x * x).sum()")
    assert main(["plan", f"{tmp_path / 'net.py'}:make"]) == 0


def test_modules_of_current_folder_are_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "scripts", one="import package_here.part\ndef make(): return 7")
    written(tmp_path / "package_here", part="")
    monkeypatch.chdir(tmp_path)
    assert function_of_file("scripts/one.py", "make")() == 7


def test_same_named_neighbours_of_two_folders_are_distinct(tmp_path: Path) -> None:
    text = "from common import X\ndef make():\n    import common\n    return X, common.X"
    paths = [
        str(written(tmp_path / name, file=text, common=f"X = {name!r}") / "file.py")
        for name in ("a", "b")
    ]
    functions = [function_of_file(path, "make") for path in paths]
    for name, path, function in [*zip("ab", paths, functions, strict=True)] * 2:
        with user_code(path, "make"):
            assert function() == (name, name)


def test_package_file_imports_relatively(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "outer" / "inner",
        __init__="",
        policies=POLICY.format(dot="."),
        neighbour="def order(graph): return [each.name for each in graph.operators]",
        later="from ..above import once",
    )
    written(tmp_path / "outer", __init__="", above="def once(order): return order")
    assert main(["plan", "chain:4", "--policy", f"{folder / 'policies.py'}:policy"]) == 0


def test_relative_import_outside_package_is_graph_error(tmp_path: Path) -> None:
    path = written(tmp_path, alone="from .neighbour import order") / "alone.py"
    with pytest.raises(tc.GraphError, match=r"alone.py:f: ImportError: .*relative import.*line 1"):
        function_of_file(str(path), "f")


def test_file_named_as_loaded_module_does_not_replace_it(tmp_path: Path) -> None:
    before = sys.modules["pickle"]
    path = written(tmp_path, pickle="class Own: pass\ndef make(): return Own()") / "pickle.py"
    assert type(function_of_file(str(path), "make")()).__name__ == "Own"
    assert sys.modules["pickle"] is before


def test_objects_of_file_can_be_pickled(tmp_path: Path) -> None:
    path = written(tmp_path, things="class Own: pass\ndef make(): return Own()") / "things.py"
    own = function_of_file(str(path), "make")()
    assert type(pickle.loads(pickle.dumps(own))) is type(own)


def test_file_missing_in_user_code_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, reads="open('weights.bin')") / "reads.py"
    with pytest.raises(tc.GraphError, match=r"reads.py:f: FileNotFoundError: .*weights.bin"):
        function_of_file(str(path), "f")
    with pytest.raises(tc.GraphError, match=r"cannot read .*none.py: No such file"):
        function_of_file(str(tmp_path / "none.py"), "f")
    assert "reads" not in sys.modules
