"""Generator of the statements on the page of puzzles, from the table that checks answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinyckpt.course.puzzles import PUZZLES, statement

FILE = "guide/out/puzzles.txt"  # what the page includes


def write(app: Any) -> None:
    """Write the statements into Sphinx's source folder."""
    target = Path(app.srcdir) / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(statements(), encoding="utf-8")


def statements() -> str:
    """Return a section for each puzzle: its statement, and how the optimum is proven."""
    parts = []
    for number, puzzle in PUZZLES.items():
        title, *paragraphs = statement(number).split("\n\n")
        parts += [f"### {title}", *map(shown, paragraphs), f"Proof of the optimum: {puzzle.proof}."]
    return "\n\n".join(parts) + "\n"


def shown(paragraph: str) -> str:
    """Return a paragraph as prose; the operators of a graph as they are."""
    if paragraph.startswith("  "):
        return f"```text\n{paragraph}\n```"
    return paragraph.replace("\n", " ")
