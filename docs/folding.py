"""Questions of lessons as parts of a page: what answers one is folded away until it is asked for.

A question is a cell with ``my_guess = viz.ask(...)``, of whatever name; its answer is the first
cell after it that reads the name. Folded away is all from behind the question to what is said once
the answer is there.
"""

from __future__ import annotations

import re
from typing import Any

import predict
from nbformat.v4 import new_markdown_cell

ASKED = re.compile(r"^(my_\w+) = viz\.ask\(", re.MULTILINE)
ANNOUNCED = ("**Predict.**", "**Challenge.**")  # the next question
# Neither Sphinx's search nor another one shows what is in there.
FOLDED = """<details class="answer" data-nosnippet>
<summary>Show the answer</summary>"""
UNFOLDED = "</details>"


def folded(cells: list[Any], lesson: str) -> list[Any]:
    """Return a lesson's cells with its answers folded away, and with questions for the mouse."""
    page: list[Any] = []
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
    return page + [new_markdown_cell(text) for text in predict.LAST.get(lesson, [])]


def question_of(cell: Any) -> str | None:
    """Return the name that takes the answer to a cell's question; None without one."""
    asked = ASKED.search(cell.source) if cell.cell_type == "code" else None
    return asked[1] if asked else None


def told_by(cells: list[Any], start: int, name: str) -> int:
    """Return where the page goes on after an answer and what is said of it."""
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
