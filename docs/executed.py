"""Cells of a script, executed: what each of them prints becomes its output.

All run in this process, one script after the other, each with names of its own. A kernel for every
page would take longer to start than most lessons take.
"""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from nbformat.v4 import new_output


def execute(cells: list[Any], folder: Path, name: str) -> None:
    """Run a script's cells in a folder, as one program, and fill in what each prints.

    What goes wrong in a cell goes wrong here; the traceback names the script and the cell.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with chdir(folder):
        for number, cell in enumerate(cells, start=1):
            if cell.cell_type != "code":
                continue
            code = compile(cell.source, f"<{name}, cell {number}>", "exec")
            # Not a terminal's: viz.ask goes on with the guess that stands in the script.
            with redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            if text := printed.getvalue():
                cell.outputs = [new_output("stream", name="stdout", text=text)]
