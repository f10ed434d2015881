"""Parser of code blocks and commands in the README and other Markdown pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)


def python_blocks(text: str = TEXT) -> list[str]:
    """Return the blocks of Python, in order."""
    return [match[2] for match in FENCE.finditer(text) if match[1] == "python"]


def commands(text: str = TEXT) -> list[str]:
    """Return the command lines, in order: in code blocks and inline.

    A block that shows what a command prints begins with ``$``. In a sentence, a command without
    anything to work on is named, not to be copied.
    """
    lines = []
    for block in FENCE.finditer(text):
        if block[1]:
            continue
        shown = block[2].startswith("$ ")
        for line in block[2].splitlines():
            if not shown or line.startswith("$ "):
                lines.append((block.start(), line.removeprefix("$ ")))
    for match in re.finditer(r"`(tinyckpt [^`]*)`", FENCE.sub(lambda m: " " * len(m[0]), text)):
        if len(match[1].split()) > 2:
            lines.append((match.start(), match[1]))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def needs_torch(text: str) -> bool:
    """Whether a block or a command line needs PyTorch, which is an extra of its own."""
    return "tinyckpt.interop import torch" in text or text.startswith("tinyckpt torch ")


def outputs(text: str = TEXT) -> dict[str, list[str]]:
    """Return the documented output of commands, by command."""
    shown = {}
    for block in FENCE.finditer(text):
        if block[2].startswith("$ "):
            command, *lines = block[2].splitlines()
            shown[command.removeprefix("$ ")] = [line for line in lines if line != "…"]
    return shown
