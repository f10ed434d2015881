"""Run the code of a part's page on your files: ``python done.py 3``.

It prints what your files say, and compares it with what the page shows. From part 3 on, pictures
are written to the folder where you are, if tinyckpt is installed.
"""

import re
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = [str(HERE / f"part_{part}") for part in range(7)]
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def main(part: str) -> None:
    """Run all blocks of Python on the page of a part, one after another."""
    sys.path += [*FOLDERS, str(HERE)]
    text = (HERE / f"part_{part}" / "README.md").read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "done"}
    for code, shown in BLOCK.findall(text):
        if "from draw import" in code and not can_draw():
            continue
        printed = StringIO()
        try:
            with redirect_stdout(printed):
                exec(code, names)
        finally:
            print(printed.getvalue(), end="")
        if shown:
            print(difference(printed.getvalue(), shown))


def can_draw() -> bool:
    """Whether tinyckpt can draw; if not, say what to install."""
    try:
        import_module("draw")
    except ModuleNotFoundError as error:
        print(f"No pictures ({error}): in a clone of tinyckpt, pip install '.[viz]'.")
        return False
    return True


def difference(printed: str, shown: str) -> str:
    """Return "as on the page", or the first line that differs."""
    pairs = zip_longest(printed.splitlines(), shown.splitlines(), fillvalue="nothing")
    for number, (mine, theirs) in enumerate(pairs, start=1):
        if mine != theirs:
            return f"Not as on the page. Line {number} is\n  {mine}\nand the page has\n  {theirs}"
    return "As on the page."


if __name__ == "__main__":
    if sys.argv[1:] not in ([part] for part in "0123456"):
        sys.exit("say which part, 0 to 6: python done.py 3")
    main(sys.argv[1])
