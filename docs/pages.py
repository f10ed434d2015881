"""Scripts as pages: each becomes a notebook, with what it draws shown where it is drawn.

A script writes its pictures and players to ``out/`` and prints their names. Behind each cell that
does so, the page gets a cell that shows them. The notebooks are executed when the site is built.
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jupytext
from nbformat.v4 import new_markdown_cell

HERE = Path(__file__).parent
LESSONS = HERE.parent / "lessons"
FOLDERS = ("lessons", "gallery")
NEEDS = {"19_pytorch": "torch"}  # without it that lesson has no page
DRAWN = re.compile(r'OUT / "([\w.-]+\.(?:png|gif|svg|html))"')
PLAYER = """<iframe class="player" src="out/{name}" title="A player: step through the schedules"
 loading="lazy"></iframe>

<a href="out/{name}">Open the player in a page of its own</a>"""


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
    cells = []
    for cell in script.cells:
        cells.append(cell)
        if cell.cell_type == "code":
            cells += [
                new_markdown_cell(shown(name)) for name in dict.fromkeys(DRAWN.findall(cell.source))
            ]
    script.cells = cells
    script.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    text: str = jupytext.writes(script, fmt="ipynb")
    return text


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
