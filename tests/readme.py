"""The README as a newcomer takes it: blocks to be copied, line by line."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def python_blocks(text: str = TEXT) -> list[str]:
    """Return the blocks of Python, in order."""
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def command_blocks(text: str = TEXT) -> list[str]:
    """Return the other blocks that are fenced: commands, and what they print."""
    return re.findall(r"^```\n(.*?)^```", re.sub(r"(?s)```python.*?```", "", text), re.S | re.M)


def commands(text: str = TEXT) -> list[str]:
    """Return the command lines, in order: those in blocks, and those inside of a sentence.

    A block that shows what a command prints begins with ``$``. In a sentence, a command without
    anything to work on is named, not to be copied.
    """
    found = [(text.index(block), block) for block in command_blocks(text)]
    lines = []
    for place, block in found:
        shown = block.startswith("$ ")
        for line in block.splitlines():
            if not shown or line.startswith("$ "):
                lines.append((place, line.removeprefix("$ ")))
    for match in re.finditer(r"`(tinyckpt [^`]*)`", text):
        if len(match[1].split()) > 2:
            lines.append((match.start(), match[1]))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def outputs(text: str = TEXT) -> dict[str, list[str]]:
    """Return what the README says that commands print, by command."""
    shown = {}
    for block in command_blocks(text):
        if block.startswith("$ "):
            command, *lines = block.splitlines()
            shown[command.removeprefix("$ ")] = [line for line in lines if line != "…"]
    return shown
