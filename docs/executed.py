"""Execution of script cells, capturing the output of each.

All scripts run in this process, one after the other, each in its own namespace. A kernel for every
page would take longer to start than most lessons take to run.
"""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from nbformat.v4 import new_output


def execute(cells: list[Any], folder: Path, name: str) -> None:
    """Run a script's cells in a folder, as one program, and store the output of each.

    Exceptions propagate; the traceback names the script and the cell.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with chdir(folder):
        for number, cell in enumerate(cells, start=1):
            if cell.cell_type != "code":
                continue
            code = compile(cell.source, f"<{name}, cell {number}>", "exec")
            # Not a terminal: viz.ask uses the guess in the script.
            with redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            if text := printed.getvalue():
                cell.outputs = [new_output("stream", name="stdout", text=text)]
