"""Executable documentation: scripts become Markdown pages with their output and pictures inline.

A script is executed when the site is built. It writes its pictures and players to ``out/`` and
prints their names. After each cell that does so, the page gets a cell that shows them; a lesson's
player is at the top instead. The answers to a lesson's questions are folded (``folding.py``).
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import folding
import jupytext
from dark import drawn_twice, twin
from executed import execute
from nbformat.v4 import new_markdown_cell

HERE = Path(__file__).parent
LESSONS = HERE.parent / "lessons"
FOLDERS = ("lessons", "guide", "gallery")
NEEDS = {"19_pytorch": "torch"}  # without this package the lesson has no page
DRAWN = re.compile(r'OUT / "([\w.-]+\.(?:png|gif|svg|html))"')
PLAYER = """<iframe class="player" src="out/{name}" title="A player: step through the schedules"
 loading="lazy"></iframe>

<a href="out/{name}">Open the player in a page of its own</a>"""
NOTEBOOKS, SLIDES = "notebooks", "slides"  # folders of the site
PLAYED = "_player.html"  # after the lesson's number
LAB = """<iframe class="player" src="out/{name}" title="A lab: click what to keep"
 loading="lazy"></iframe>

<a href="out/{name}">Open the lab in a page of its own</a>"""
ABOVE = '<p><a href="#furo-main-content">The player is at the top of this page</a></p>'


def write(app: Any) -> None:
    """Write the pages of lessons, guide and gallery into Sphinx's source folder."""
    pages = {f"lessons/{path.stem}": path for path in lessons() if has_page(path)}
    pages |= {f"{name}/index": HERE / f"{name}.py" for name in ("guide", "gallery")}
    for folder in FOLDERS:
        shutil.rmtree(Path(app.srcdir) / folder, ignore_errors=True)
        (Path(app.srcdir) / folder / "out").mkdir(parents=True)
    with drawn_twice():
        for page, path in pages.items():
            target = Path(app.srcdir) / f"{page}.md"
            cells = cells_of(path)
            execute(cells, target.parent, path.name)
            text = "\n\n".join(as_markdown(cell) for cell in cells)
            target.write_text(dark_too(text, target.parent) + "\n", encoding="utf-8")


def lessons() -> list[Path]:
    """Return the scripts of all lessons, in order."""
    return sorted(LESSONS.glob("[0-9]*.py"))


def has_page(path: Path) -> bool:
    """Return whether a lesson can be executed here, and so has a page."""
    return path.stem not in NEEDS or find_spec(NEEDS[path.stem]) is not None


def cells_of(path: Path) -> list[Any]:
    """Return a script's cells in page order, each followed by cells that show its pictures."""
    is_lesson = path.parent == LESSONS
    cells: list[Any] = []
    for cell in jupytext.read(path, fmt="py:percent").cells:
        cells.append(cell)
        if cell.cell_type == "code":
            cells += [
                new_markdown_cell(ABOVE if is_lesson and name.endswith(PLAYED) else shown(name))
                for name in dict.fromkeys(DRAWN.findall(cell.source))
            ]
    return lesson_page(cells, path.stem) if is_lesson else cells


def lesson_page(cells: list[Any], lesson: str) -> list[Any]:
    """Return a lesson's cells with the player at the top and its answers folded."""
    title, *introduction = cells[0].source.split("\n\n", 1)
    player = PLAYER.format(name=lesson[:2] + PLAYED)
    link = f'<a href="../{NOTEBOOKS}/{lesson}.ipynb" download>Download this page as a notebook</a>'
    top = [title, f"{player}; {link}", *introduction]
    return [new_markdown_cell("\n\n".join(top)), *folding.folded(cells[1:], lesson)]


def shown(name: str) -> str:
    """Return the Markdown that shows a picture or a player."""
    if name.endswith(".html"):
        return (LAB if name.endswith("_lab.html") else PLAYER).format(name=name)
    return f"![{name.rpartition('.')[0].replace('_', ' ')}](out/{name})"


def as_markdown(cell: Any) -> str:
    """Return a cell as Markdown: code with its output below it."""
    if cell.cell_type != "code":
        return str(cell.source)
    printed = "".join(output.text for output in cell.outputs)
    return "\n\n".join(
        f"````{{code-block}} {language}\n:class: {role}\n\n{text.rstrip()}\n````"
        for language, role, text in (("python", "code", cell.source), ("text", "printed", printed))
        if text.strip()
    )


def dark_too(text: str, folder: Path) -> str:
    """Return a page with a light and a dark version of each picture that has both."""

    def both(match: re.Match[str]) -> str:
        told, path = match.groups()
        dark = twin(Path(path))
        if not (folder / dark).exists():
            return match[0]
        return f"![{told}]({path}){{.only-light}}\n![{told}]({dark.as_posix()}){{.only-dark}}"

    return re.sub(r"!\[([^]]*)\]\((out/[^)]+)\)", both, text)


def copy_players(app: Any, error: Exception | None) -> None:
    """Copy the players to the built site; Sphinx itself copies only pictures."""
    if error is not None:
        return
    for folder in FOLDERS:
        target = Path(app.outdir) / folder / "out"
        for path in sorted((Path(app.srcdir) / folder / "out").glob("*.html")):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.name)
