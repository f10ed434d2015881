"""The project's Markdown: each relative link leads to a file, each anchor to a heading; offline."""

import re
import subprocess
import unicodedata
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.conftest import ROOT

FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1`*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
NAMED = re.compile(r"^\((\S+)\)=$|(?:id|name)=\"([^\"]+)\"", re.MULTILINE)
# Pages that Sphinx writes into docs: named here, since a clone does not have them.
WRITTEN = re.compile(
    r"docs/(lessons|gallery|guide|reference|labs|slides)/|docs/read_core\.md|docs/\w+\.html"
)


def pages() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).exists())


@cache
def prose(path: Path) -> str:
    """Return a page without code, in which nothing is a link or a heading."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """Return what can be linked to in a page: its headings, as GitHub names them, and its marks.

    >>> sorted(anchors(ROOT / "SECURITY.md"))[0]
    'reporting'
    """
    found = set()
    for heading in HEADING.findall(prose(path)):
        words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
        kept = (c for c in words if c in " -_" or unicodedata.category(c)[0] in "LN")
        found.add("".join(kept).replace(" ", "-"))
    return found | {name for pair in NAMED.findall(prose(path)) for name in pair if name}


def dead(page: str) -> list[str]:
    """Return the links of a page that lead nowhere."""
    path = ROOT / page
    found = []
    for pair in LINK.findall(INLINE.sub("", prose(path))):
        target, _, anchor = unquote(pair[0] or pair[1]).partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        other = (path.parent / target).resolve() if target else path
        if WRITTEN.match(str(other.relative_to(ROOT))):
            continue
        if not other.exists() or (
            anchor and other.suffix == ".md" and anchor not in anchors(other)
        ):
            found.append(pair[0] or pair[1])
    return found


@pytest.mark.parametrize("page", pages())
def test_relative_links_of_page_lead_somewhere(page: str) -> None:
    assert dead(page) == []


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_links.ROOT", tmp_path)
    (tmp_path / "a.md").write_text("# A & b: `c`\n\n`[x](gone.md)`\n", encoding="utf-8")
    links = ("a.md", "a.md#a--b-c", "a.md#d", "gone.md", "https://example.org/gone")
    (tmp_path / "b.md").write_text("".join(f"[x]({each})\n" for each in links), encoding="utf-8")
    assert dead("a.md") == []
    assert dead("b.md") == ["a.md#d", "gone.md"]
