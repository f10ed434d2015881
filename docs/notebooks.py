"""Notebooks of the lessons and of the course's parts, executed: ``make notebooks``.

In: the scripts of ``lessons``, and of each part of ``course`` its page, solution and tests. Out: a
file ``.ipynb`` each, which shows players and pictures inline, and asks its questions in the
notebook. Answers and closing assertions are collapsed. A part is executed on its solution, then
gets the stub back: its outputs are what a student's own file prints in the end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import folding
import jupytext
import nbformat
import pages
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from teaching import COURSE

from tinyckpt.course.handing_out import stub_of

SECONDS = 600  # for one cell, on a slow machine
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
INSTALL = """# Where tinyckpt is missing, it is installed from a clone: say which folder that is.
# In Colab, upload a wheel, which `pip wheel --no-deps .` makes in a clone, and say its name.
# Players are seen once the cells have been run, or the notebook is trusted.
CLONE = "."
from importlib.util import find_spec

from IPython.display import Image, display

if find_spec("tinyckpt") is None:
    %%pip install --quiet "{CLONE}[%s]"%s
    import tinyckpt  # stops here if there is nothing to install in CLONE
"""
# Files that are written again by a cell are imported again by those below it.
RELOAD = """
%load_ext autoreload
%autoreload 2
"""
# What a script prints the path of, a notebook shows: pages without a file, pictures from theirs.
SHOWN = [
    (re.compile(r', OUT / "\w+\.html"'), ""),
    (re.compile(r"^print\(((?:viz\.\w+)\(.*\))\)$", re.MULTILINE), r"display(\1)"),
    (re.compile(r"^print\((OUT / .*)\)$", re.MULTILINE), r"display(Image(filename=\1))"),
    (re.compile(r"^(viz\.\w+\(.*\))$", re.MULTILINE), r"display(\1)"),
]
COLLAPSED = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # JupyterLab; Colab
HIDDEN = {"jupyter": {"outputs_hidden": True}, "collapsed": True}
FENCED = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^]]+)\]\((?!http)[^)]+\)")  # to a file of the clone
COMMAND = re.compile(r"`python done.py \d` runs")  # in a notebook, a cell does
PART = """Run the cells in order, and fill in the one that writes `part_%s.py`. Until you run \
them, the outputs at the end are those of a solution. Earlier parts are read from their files in \
the folder of this notebook, which their own notebooks write."""
TESTS = "import sys\n\n!{sys.executable} -m pytest -q -p no:cacheprovider test_part_%s.py"


def sources() -> list[Path]:
    """Return what becomes a notebook: scripts of lessons, and folders of parts."""
    parts = sorted(path.parent for path in COURSE.glob("part_[0-9]*/README.md"))
    return [*filter(pages.has_page, pages.lessons()), *parts]


def write_all(folder: Path, paths: Iterable[Path]) -> None:
    """Execute notebooks, one process each, and write them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        for path, text in zip(paths, pool.map(executed, paths), strict=True):
            (folder / f"{path.stem}.ipynb").write_text(text, encoding="utf-8")


def executed(path: Path) -> str:
    """Execute the notebook of a lesson or a part, and return it as the text of its file."""
    make = lesson_notebook if path.suffix else part_notebook
    notebook = make(path)
    solution = COURSE / "solutions" / f"{path.stem}.py"
    with TemporaryDirectory() as folder:
        for other in solution.parent.glob("part_*.py"):
            if other.name < solution.name:
                (Path(folder) / other.name).write_bytes(other.read_bytes())
        tagged = [cell for cell in notebook.cells if "stub" in cell.metadata.get("tags", [])]
        stub = tagged[0] if tagged else None
        if stub is not None:
            given, stub.source = stub.source, written(solution)
        NotebookClient(
            notebook, timeout=SECONDS, resources={"metadata": {"path": folder}}, allow_errors=False
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was executed
        if "unsolved" in cell.metadata.get("tags", []):
            said = "".join(output.text for output in cell.outputs)
            if not re.search(r"\d+ passed", said) or re.search(r"failed|error", said):
                raise ValueError(f"the solution of {path.stem} fails its tests:\n{said}")
            cell.outputs = []
    if stub is not None:
        stub.source = given
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def lesson_notebook(path: Path) -> Any:
    """Return the notebook of a lesson, not executed, with its answers collapsed."""
    title, *cells, checks = jupytext.read(path, fmt="py:percent").cells
    extras = ",".join(["viz", *filter(None, [pages.NEEDS.get(path.stem)])])
    made = [title, new_code_cell(INSTALL % (extras, ""))]
    told = 0
    for place, cell in enumerate(cells):
        name = folding.question_of(cell)
        if name is not None:
            told = folding.told_by(cells, place + 1, name)
            made.append(shown(cell))
        elif place < told and cell.cell_type == "code":
            made.append(shown(cell, HIDDEN))
        elif place < told:
            made.append(new_markdown_cell(folded("What the answer means", cell.source)))
        else:
            made.append(shown(cell))
    return notebook_of([*made, shown(checks, COLLAPSED)])


def part_notebook(folder: Path) -> Any:
    """Return the notebook of a part: its page, its stub, its tests, its hints."""
    number = folder.name[-1]
    page = LINK.sub(r"\1", (folder / "README.md").read_text("utf-8"))
    before, heading, after = page.partition("## When you are done")
    *rest, end = FENCED.split(COMMAND.sub("Run", heading + after))
    tests = folder / f"test_{folder.name}.py"
    # What the page and the tests import, other than parts.
    used = set(re.findall(r"^from (\w+) import", page + tests.read_text("utf-8"), re.MULTILINE))
    others = [path for path in COURSE.rglob("*.py") if not path.stem.startswith("part_")]
    helpers = [path for path in others if path.stem in used]
    hints = (folder / "hints.md").read_text("utf-8").partition("\n\n")[2]
    cells = [new_markdown_cell(before.strip()), new_markdown_cell(PART % number)]
    cells.append(new_code_cell(INSTALL % ("viz", " pytest") + RELOAD))
    cells += [new_code_cell(written(path), metadata=COLLAPSED) for path in [*helpers, tests]]
    solution = COURSE / "solutions" / f"{folder.name}.py"
    stub = f"%%writefile {solution.name}\n{stub_of(solution.read_text('utf-8')).rstrip()}"
    cells.append(new_code_cell(stub, metadata={"tags": ["stub"]}))
    cells.append(new_code_cell(TESTS % number, metadata={"tags": ["unsolved"]}))
    cells.append(new_markdown_cell(folded("Hints, one at a time", hints)))
    for text, code in zip(rest[::2], rest[1::2], strict=True):
        cells += [new_markdown_cell(text.strip()), shown(new_code_cell(code.strip()))]
    return notebook_of([*cells, *[new_markdown_cell(end.strip())] * bool(end.strip())])


def notebook_of(cells: list[Any]) -> Any:
    """Return a notebook with numbered cell ids, so that the same cells make the same file."""
    for number, cell in enumerate(cells):
        cell["id"] = f"cell{number}"
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def shown(cell: Any, metadata: Any = None) -> Any:
    """Return a cell that shows what its script writes to files."""
    if cell.cell_type == "code":
        source = cell.source
        for pattern, replacement in SHOWN:
            source = pattern.sub(replacement, source)
        return new_code_cell(source, metadata=metadata or {})
    return new_markdown_cell(cell.source)


def folded(summary: str, text: str) -> str:
    """Return Markdown that is folded until the reader opens it."""
    return f"<details><summary>{escape(summary)}</summary>\n\n{text.strip()}\n\n</details>"


def written(path: Path) -> str:
    """Return the source of a cell that writes a file into the notebook's folder."""
    return f"%%writefile {path.name}\n{path.read_text('utf-8').rstrip()}"


def write(app: Any, error: Exception | None) -> None:
    """Write all notebooks beside the built site's pages, which offer them for download."""
    if error is None and app.builder.format == "html":
        write_all(Path(app.outdir) / pages.NOTEBOOKS, sources())


if __name__ == "__main__":
    folder, *names = map(Path, sys.argv[1:])
    write_all(folder, [path for path in sources() if not names or Path(path.stem) in names])
