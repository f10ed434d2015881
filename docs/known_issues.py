"""Generator of the pictures on the page of known issues: the page's own blocks draw them."""

from __future__ import annotations

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from dark import drawn_twice

PAGE = Path(__file__).with_suffix(".md")
FOLDER = "guide/out"  # as for every generated picture that a page names
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write(app: Any) -> None:
    """Run the blocks that draw, in the folder from which the page shows their pictures."""
    blocks = [code for code in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if "viz." in code]
    with drawn_twice(), chdir(Path(app.srcdir) / FOLDER), redirect_stdout(StringIO()):
        for code in blocks:
            exec(code, {"__name__": PAGE.stem})
