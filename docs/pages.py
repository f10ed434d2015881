"""Scripts as pages: each becomes a notebook, with what it draws shown where it is drawn.

A script writes its pictures and players to ``out/`` and prints their names. After each cell that
does so, the page gets a cell that shows them; a lesson's player stands at the top instead. A lesson
asks a question: what answers it, and what is said of it then, is folded away until it is asked for.
The notebooks are executed when the site is built.
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jupytext
import predict
from nbformat.v4 import new_markdown_cell

HERE = Path(__file__).parent
LESSONS = HERE.parent / "lessons"
FOLDERS = ("lessons", "gallery")
NEEDS = {"19_pytorch": "torch"}  # without it that lesson has no page
DRAWN = re.compile(r'OUT / "([\w.-]+\.(?:png|gif|svg|html))"')
PLAYER = """<iframe class="player" src="out/{name}" title="A player: step through the schedules"
 loading="lazy"></iframe>

<a href="out/{name}">Open the player in a page of its own</a>"""
ABOVE = '<p><a href="#content">The player is at the top of this page</a></p>'
QUESTION, ANSWER = "viz.ask(", "you said {my_guess}"
# Neither Sphinx's search nor another one shows what is in there.
FOLDED = """<details class="answer" data-nosnippet>
<summary>Show the answer</summary>"""
UNFOLDED = "</details>"


def write(app: Any) -> None:
    """Write the notebooks of the lessons and of the gallery into the folder that Sphinx reads."""
    pages = {
        f"lessons/{path.stem}": path
        for path in sorted(LESSONS.glob("[0-9]*.py"))
        if path.stem not in NEEDS or find_spec(NEEDS[path.stem])
    }
    pages["gallery/index"] = HERE / "gallery.py"
    for folder in FOLDERS:
        shutil.rmtree(Path(app.srcdir) / folder, ignore_errors=True)
        (Path(app.srcdir) / folder / "out").mkdir(parents=True)
    for page, path in pages.items():
        (Path(app.srcdir) / f"{page}.ipynb").write_text(notebook(path), encoding="utf-8")


def notebook(path: Path) -> str:
    """Return a script as a notebook, as JSON."""
    script = jupytext.read(path, fmt="py:percent")
    is_lesson = path.parent == LESSONS
    cells: list[Any] = []
    for cell in script.cells:
        cells.append(cell)
        if cell.cell_type == "code":
            cells += [
                new_markdown_cell(ABOVE if is_lesson and name.endswith(".html") else shown(name))
                for name in dict.fromkeys(DRAWN.findall(cell.source))
            ]
    script.cells = lesson_page(cells, path.stem) if is_lesson else cells
    script.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    text: str = jupytext.writes(script, fmt="ipynb")
    return text


def lesson_page(cells: list[Any], lesson: str) -> list[Any]:
    """Return a lesson's cells with the player at the top, and with the answer folded away.

    Folded away is all from behind the question to what is said once the answer is there.
    """
    title, *introduction = cells[0].source.split("\n\n", 1)
    top = [title, PLAYER.format(name=f"{lesson[:2]}_player.html"), *introduction]
    asked = next(i for i, cell in enumerate(cells) if is_code_with(cell, QUESTION))
    told = next(i for i, cell in enumerate(cells) if is_code_with(cell, ANSWER)) + 1
    while told < len(cells) and cells[told].cell_type == "markdown":
        told += 1
    return [
        new_markdown_cell("\n\n".join(top)),
        *cells[1 : asked + 1],
        *map(new_markdown_cell, predict.ASKED.get(lesson, [])),
        new_markdown_cell(FOLDED),
        *cells[asked + 1 : told],
        new_markdown_cell(UNFOLDED),
        *cells[told:],
        *map(new_markdown_cell, predict.LAST.get(lesson, [])),
    ]


def is_code_with(cell: Any, text: str) -> bool:
    """Return whether a cell is code that has a text in it."""
    return cell.cell_type == "code" and text in cell.source


def shown(name: str) -> str:
    """Return the Markdown that shows a picture or a player."""
    if name.endswith(".html"):
        return PLAYER.format(name=name)
    return f"![{name.rpartition('.')[0].replace('_', ' ')}](out/{name})"


def copy_players(app: Any, error: Exception | None) -> None:
    """Copy the players to where their pages look for them; Sphinx itself copies pictures only."""
    if error is not None:
        return
    for folder in FOLDERS:
        target = Path(app.outdir) / folder / "out"
        for path in sorted((Path(app.srcdir) / folder / "out").glob("*.html")):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.name)
