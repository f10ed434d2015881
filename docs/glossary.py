"""The glossary: the README's words, each with an anchor to link to."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
SECTION = re.compile(r"^## Words\n\n(.*?)^## ", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"(?:^|(?<=\. ))\*\*([^*]+)\*\*: ")  # what begins an entry, or a sentence in it


def glossary_page() -> str:
    """Return the page, in Markdown."""
    entries = "\n\n".join(f"{word}\n  {meaning}" for word, meaning in words().items())
    return (
        "# Glossary\n\nOne word, one meaning, in code, pictures and lessons.\n\n"
        f"```{{glossary}}\n{entries}\n```\n"
    )


def words() -> dict[str, str]:
    """Return what each word means."""
    found = SECTION.search(README.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{README}: no section 'Words'")
    meanings: dict[str, str] = {}
    for entry in found[1].removeprefix("- ").split("\n- "):
        _, *parts = WORD.split(" ".join(entry.split()))
        meanings |= zip(parts[::2], map(str.strip, parts[1::2]), strict=True)
    return meanings
