"""A leaderboard: one page from the JSON that ``tinyckpt puzzle`` and ``tinyckpt grade`` write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from tinyckpt.base.errors import FormatError
from tinyckpt.base.files import write_atomically
from tinyckpt.course.puzzles import PUZZLES, peak_text
from tinyckpt.documents.json_reader import Reader, read_bytes

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leaderboard</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .35rem .4rem; border-bottom: 1px solid #8885; }}
th, td {{ text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; }}
.best {{ font-weight: 600; }}
</style>
<h1>Leaderboard</h1>
{tables}
</html>
"""
HEADS = {
    "puzzle": ("name", "points", "peak", "cost", "gap"),
    "part": ("name", "points", "of"),
}


def save_board(paths: Iterable[str | os.PathLike[str]], target: str | os.PathLike[str]) -> None:
    """Write a leaderboard; each row has the name of its file.

    Raises:
        FormatError: if a file cannot be read, or is not one of ``--json``.
    """
    tables: dict[tuple[str, int], list[tuple[str, dict[str, Any]]]] = {}
    for path in map(Path, paths):
        document = read(path)
        kind = kind_of(document)
        tables.setdefault((kind, document[kind]), []).append((path.stem, document))
    parts = [table_of(*key, rows) for key, rows in sorted(tables.items())]
    write_atomically(target, PAGE.format(tables="\n".join(parts)).encode())


def read(path: Path) -> dict[str, Any]:
    """Read a score or a grade, and check its numbers."""
    document = Reader(path).parse(read_bytes(path))
    if isinstance(document, dict) and document.get("schema") == "tinyckpt.grade":
        kind = kind_of(document)
        whole = [document.get(key) for key in ("points", "of", kind)]
        others = [document.get(key) or 0 for key in ("peak", "cost", "gap")]
        if (
            all(type(each) is int for each in whole)
            and all(type(each) in (int, float) for each in others)
            and (kind == "part" or document[kind] in PUZZLES)
        ):
            return dict(document)
    raise FormatError(f"{path} is no grade, as --json writes it")


def kind_of(document: dict[str, Any]) -> str:
    """Return what a document is the result of: ``puzzle`` or ``part``."""
    return "puzzle" if "puzzle" in document else "part"


def table_of(kind: str, number: int, rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Return a table in HTML: the most points first, then the smallest gap."""
    heads = HEADS[kind]
    rows = sorted(rows, key=lambda row: (-row[1]["points"], row[1].get("gap") or 0, row[0]))
    title = f": {PUZZLES[number].title}" if kind == "puzzle" else ""
    lines = [f"<h2>{kind} {number}{escape(title)}</h2>", "<div><table>"]
    lines.append("<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>")
    for name, document in rows:
        best = ' class="best"' if document["points"] == document["of"] else ""
        cells = [name, *(shown(head, document.get(head), number) for head in heads[1:])]
        lines.append(f"<tr{best}>" + "".join(f"<td>{escape(each)}</td>" for each in cells))
    return "\n".join([*lines, "</table></div>"])


def shown(head: str, value: Any, number: int) -> str:
    """Return a number as a text: a gap in percent, a puzzle's peak with its unit."""
    if value is None:
        return "-"
    if head == "peak":
        return peak_text(PUZZLES[number], value)
    return f"{100 * value:.1f} %" if head == "gap" else f"{value:,}"
