"""Lists of measured memory beyond the limit are refused before parsing."""

from pathlib import Path

import pytest

import tinyckpt as tc


@pytest.mark.parametrize("row", ["1,2\n", "[1,2],"])
def test_long_list_is_refused_before_parsing(row: str, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(f"[{row * 1_000_010}" if row[0] == "[" else row * 1_000_010)
    with pytest.raises(tc.FormatError, match="more than 1,000,000 moments; at most that many"):
        tc.load_measured(path)
