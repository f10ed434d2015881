"""Print one step of a hint: ``python hint.py 3.1 1`` is the first of three to task 3.1."""

import re
import sys
from html import unescape
from pathlib import Path

HERE = Path(__file__).parent
STEP = r"^## {}\.{} .*?<summary>Step {}</summary>(.*?)</details>"


def hint(task: str, step: str) -> str:
    """Return a step as plain text.

    >>> hint("0.2", "1")
    'Begin at the loss: it is b * b, so dL/db = 2 b.'
    """
    found = None
    if re.fullmatch(r"[0-6]\.\d", task) and step in ("1", "2", "3"):
        part, number = task.split(".")
        text = (HERE / f"part_{part}" / "hints.md").read_text(encoding="utf-8")
        found = re.search(STEP.format(part, number, step), text, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(
            f"no step {step} of a hint to task {task}: say a task and 1, 2 or 3, such as 3.1 1"
        )
    return unescape(re.sub(r"<[^<>]+>", "", re.sub(r"</?code>", "`", found[1])))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("say a task and a step: python hint.py 3.1 1")
    print(hint(*sys.argv[1:]))
