"""Metadata hook of hatchling: the README for a package index, with absolute links or none.

With ``[project.urls] Source`` in pyproject.toml, links and pictures lead to that repository.
As long as no address is known, links become their text, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"<picture>.*?</picture>\n\n|!\[[^\]]*\]\([^)]*\)\n\n", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)")
PLACE = re.compile(r'((?:src|srcset)="|!\[[^\]]*\]\()(?!\w+:)')


class IndexReadme(MetadataHookInterface):
    """The README with absolute links."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = for_index(text, metadata.get("urls", {}).get("Source"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def for_index(text: str, source: str | None) -> str:
    """Return Markdown without relative links.

    >>> for_index("[How](docs/how.md)", "https://example.org/a/b")
    '[How](https://example.org/a/b/blob/HEAD/docs/how.md)'
    >>> for_index("[How](docs/how.md)", None)
    'How'
    """
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    text = LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", text)
    return PLACE.sub(rf"\1{source}/raw/HEAD/", text)
