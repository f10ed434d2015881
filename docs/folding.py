"""Collapsible answers: a lesson's answers are folded until the reader opens them, on paper too.

A question is a cell with ``my_guess = viz.ask(...)``, under any name; its answer is the first later
cell that reads the name. Everything after the question is folded, up to the discussion of the
answer. The assertions at the end of a lesson are folded, too: they are for tests, not for readers.
"""

from __future__ import annotations

import re
from typing import Any

import predict
from nbformat.v4 import new_markdown_cell

ASKED = re.compile(r"^(my_\w+) = viz\.ask\(", re.MULTILINE)
ANNOUNCED = ("**Predict.**", "**Challenge.**")  # the next question
# Excluded from the excerpts of Sphinx's search and of search engines.
FOLDED = """<details class="answer" data-nosnippet>
<summary>Show the answer</summary>"""
CHECKED = """<details class="answer" data-nosnippet>
<summary>Show what a test checks</summary>"""
UNFOLDED = "</details>"


def folded(cells: list[Any], lesson: str) -> list[Any]:
    """Return a lesson's cells with folded answers and checks, and interactive questions."""
    page: list[Any] = []
    *cells, checks = cells
    rest = iter(range(len(cells)))
    for place in rest:
        page.append(cells[place])
        name = question_of(cells[place])
        if name is None:
            continue
        page += map(new_markdown_cell, predict.ASKED.get((lesson, name), []))
        told = told_by(cells, place + 1, name)
        page += [new_markdown_cell(FOLDED), *cells[place + 1 : told], new_markdown_cell(UNFOLDED)]
        for _ in range(place + 1, told):
            next(rest)
    page += map(new_markdown_cell, predict.LAST.get(lesson, []))
    return [*page, new_markdown_cell(CHECKED), checks, new_markdown_cell(UNFOLDED)]


def question_of(cell: Any) -> str | None:
    """Return the name to which a cell assigns its question's answer; None without a question."""
    asked = ASKED.search(cell.source) if cell.cell_type == "code" else None
    return asked[1] if asked else None


def told_by(cells: list[Any], start: int, name: str) -> int:
    """Return the index of the first cell after an answer and its discussion."""
    end = next(
        place
        for place in range(start, len(cells))
        if cells[place].cell_type == "code" and name in cells[place].source
    )
    end += 1
    while end < len(cells) and cells[end].cell_type == "markdown":
        if any(text in cells[end].source for text in ANNOUNCED):
            break
        end += 1
    return end
