"""The leaderboard's table in a browser: filters, by keyboard too, and no filter without scripts."""

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.viz.conftest import Open, assert_accessible

pytestmark = pytest.mark.browser
STATIC = ROOT / "docs" / "static"
RESULT = json.loads((ROOT / "benchmarks/results/leaderboard.json").read_text(encoding="utf-8"))
CELLS = RESULT["outcomes"]
ALL = f"{len(CELLS)} of {len(CELLS)} cells"
SHOWN = "() => document.querySelectorAll('tbody tr:not([hidden])').length"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a page with nothing but the table."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import leaderboard_cells

    script, style = (
        (STATIC / name).read_text(encoding="utf-8") for name in ("leaderboard.js", "site.css")
    )
    body, _, loaded = leaderboard_cells.table().rpartition("<script")
    assert loaded == ' src="_static/leaderboard.js" defer></script>\n'
    page = tmp_path / "table.html"
    page.write_text(
        '<!doctype html><html lang="en" data-ready><meta charset="utf-8">'
        f"<title>Table</title><style>{style}</style><main><h1>Table</h1>{body}</main>"
        f"<script>{script}</script></html>",
        encoding="utf-8",
    )
    return page


def test_filters_leave_matching_cells_and_are_reset(table: Path, open_page: Open) -> None:
    page = open_page(table)
    assert page.inner_text("output") == ALL
    assert len(CELLS) >= 304
    page.select_option("[name=instances]", "chains")
    page.select_option("[name=budget]", "50 %")
    chain = [each for each in CELLS if each["instance"].startswith("chain") and each["share"] == 50]
    assert page.inner_text("output") == f"{len(chain)} of {len(CELLS)} cells"
    assert_accessible(page)
    planners = "rows => rows.map(row => row.cells[2].textContent)"
    page.select_option("[name=order]", "none")
    without = [each["planner"] for each in chain if each["status"] == "nothing"]
    found = page.eval_on_selector_all("tbody tr:not([hidden])", planners)
    assert sorted(found) == sorted(without)
    assert "moccasin-8" in found
    page.click("[type=reset]")
    page.wait_for_function(f"() => document.querySelector('output').value === '{ALL}'")
    assert page.evaluate(SHOWN) == len(CELLS)


@pytest.mark.nightly  # above, of ten of its rows
def test_whole_table_is_accessible(table: Path, open_page: Open) -> None:
    assert_accessible(open_page(table))


def test_filters_work_by_keyboard(table: Path, open_page: Open) -> None:
    page = open_page(table)
    for expected in ("instances", "budget", "planner"):
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.name") == expected
    page.keyboard.type("rotor")
    assert page.evaluate("() => document.activeElement.value") == "rotor"
    rotor = [each for each in CELLS if each["planner"] == "rotor"]
    assert page.inner_text("output") == f"{len(rotor)} of {len(CELLS)} cells"
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelector('output').value === '{ALL}'")


def test_without_scripts_every_cell_is_there(table: Path, open_page: Open) -> None:
    page = open_page(table, java_script_enabled=False)
    rows = page.locator("tbody tr")
    assert rows.count() == len(CELLS)
    assert all(rows.nth(place).is_visible() for place in (0, len(CELLS) - 1))
    assert page.locator("form").count() == 0
