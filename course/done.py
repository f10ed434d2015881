"""Run the code of a part's page on your files: ``python course/done.py 3``.

It prints what the page shows when the part is solved. From part 3 on, pictures are written to the
folder where you are.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = [str(HERE / f"part_{part}") for part in range(7)]


def main(part: str) -> None:
    """Run all blocks of Python on the page of a part, one after another."""
    sys.path += [*FOLDERS, str(HERE)]
    text = (HERE / f"part_{part}" / "README.md").read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "done"}
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(code, names)


if __name__ == "__main__":
    if sys.argv[1:] not in ([part] for part in "0123456"):
        sys.exit("say which part, 0 to 6: python course/done.py 3")
    main(sys.argv[1])
