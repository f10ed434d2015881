"""CONTRIBUTING is short, its diffs are of this history, and its map shows the house as it is."""

import importlib.util
import os
import re
import subprocess
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.house import ROOMS, rooms_floors_arrows
from viz.theme import THEMES

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"[Ff]rom ([0-9a-f]{8}).*?^```diff\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )


def test_contributing_is_at_most_900_words() -> None:
    assert len(TEXT.split()) <= 900


@pytest.mark.parametrize(("commit", "shown"), DIFFS)
def test_diff_is_of_the_commit_that_it_names(commit: str, shown: str) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        if os.environ.get("GITHUB_ACTIONS"):  # the workflow checks out all of it
            pytest.fail("the workflow checked out a part of the history")
        pytest.skip("needs the whole history")
    done = git("show", commit)
    assert done.returncode == 0, done.stderr
    changed = done.stdout.splitlines()
    for line in shown.splitlines():
        if line.startswith(("+", "-")):
            assert line in changed
        else:
            assert f"+++ b/{line.strip()}" in changed


def test_there_is_a_diff_for_operator_policy_picture_and_lesson() -> None:
    assert len(DIFFS) == TEXT.count("## Your first") == 4


@pytest.fixture(scope="module")
def house_map() -> Any:
    spec = importlib.util.spec_from_file_location("house_map", ROOT / "docs" / "house_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize(("theme", "name"), [("light", "house"), ("dark", "house-dark")])
def test_map_is_drawn_from_the_imports(house_map: Any, theme: str, name: str) -> None:
    written = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert house_map.drawing(THEMES[theme]) == written, "run python docs/house_map.py"


def test_map_implies_every_import(house_map: Any) -> None:
    below = house_map.rooms_below()
    drawn = house_map.reduced(below)
    assert set(below) == set(house_map.WORDS) == {*ROOMS, "viz"} - {"planner", "means"}

    def reached(room: str) -> set[str]:
        return set(drawn[room]).union(*map(reached, drawn[room]))

    places = house_map.placed(below)
    for room, others in below.items():
        assert others <= reached(room)
        assert all(places[other][1] < places[room][1] for other in others)
    assert max(level for _, level in places.values()) == rooms_floors_arrows()[1]
    assert all(len(words) <= 28 for words in house_map.WORDS.values())
