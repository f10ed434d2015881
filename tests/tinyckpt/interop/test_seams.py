"""Private PyTorch names appear only in the two seam files."""

import ast
from pathlib import Path

import pytest

import tinyckpt.interop

FOLDER = Path(tinyckpt.interop.__file__).parent / "torch"
SEAMS = ("capture.py", "min_cut.py")


def underscored(source: str) -> list[str]:
    """Return names with one leading underscore that are imported, or looked up in another object.

    Python's own double underscores are none of them, and what an object finds in itself.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
            names = [node.attr]
        else:
            continue
        parts = [(name, part) for name in names for part in name.split(".")]
        found += [n for n, part in parts if part.startswith("_") and not part.startswith("__")]
    return found


@pytest.mark.parametrize(
    "path", [path for path in FOLDER.glob("*.py") if path.name not in SEAMS], ids=lambda p: p.name
)
def test_private_pytorch_names_appear_only_in_seam_files(path: Path) -> None:
    assert underscored(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", SEAMS)
def test_seam_files_use_private_pytorch_names(name: str) -> None:
    assert underscored((FOLDER / name).read_text(encoding="utf-8"))


def test_underscored_finds_every_spelling() -> None:
    assert underscored("import torch._dynamo") == ["torch._dynamo"]
    assert underscored("from torch.utils import _pytree as pytree") == ["torch.utils._pytree"]
    assert underscored("x.untyped_storage()._cdata") == ["_cdata"]
    assert underscored("from __future__ import annotations\nself._own, x.__class__") == []
