"""Saved tensors against PyTorch's: store-all saves the same bytes, except documented items."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
saved: Any = import_module("tests.peers.torch_saved")
PAGE = Path(__file__).parents[2] / "docs" / "saved.md"


@pytest.mark.parametrize("name", saved.BLOCKS)
def test_saved_bytes_match_pytorch_except_documented_items(name: str) -> None:
    block = saved.BLOCKS[name]
    ours, theirs = saved.kept_here(block), saved.kept_there(block)
    here, there = sum(ours.values()), sum(theirs.values())
    assert here - there == sum(block.more.values()), (ours, theirs)
    row = [name, f"{here:,}", f"{there:,}"]
    items = [f"{nbytes:+,}: {why}" for why, nbytes in block.more.items()]
    assert f"| {' | '.join([*row, '; '.join(items)])} |" in PAGE.read_text(encoding="utf-8")


def test_every_block_on_saved_page_is_checked() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(saved.BLOCKS)
