"""The leaderboard's table in a browser: filters, by keyboard too, and no filter without scripts."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.viz.conftest import Open, assert_accessible

pytestmark = pytest.mark.browser
STATIC = ROOT / "docs" / "static"
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
    assert page.inner_text("output") == "186 of 186 cells"
    page.select_option("[name=instances]", "chains")
    page.select_option("[name=budget]", "50 %")
    assert page.inner_text("output") == "10 of 186 cells"
    assert_accessible(page)
    planners = "rows => rows.map(row => row.cells[2].textContent)"
    page.select_option("[name=order]", "none")
    assert page.eval_on_selector_all("tbody tr:not([hidden])", planners) == [
        "checkmate",
        "moccasin-8",
    ]
    page.click("[type=reset]")
    page.wait_for_function("() => document.querySelector('output').value === '186 of 186 cells'")
    assert page.evaluate(SHOWN) == 186


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
    assert page.inner_text("output") == "22 of 186 cells"
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('output').value === '186 of 186 cells'")


def test_without_scripts_every_cell_is_there(table: Path, open_page: Open) -> None:
    page = open_page(table, java_script_enabled=False)
    rows = page.locator("tbody tr")
    assert rows.count() == 186
    assert all(rows.nth(place).is_visible() for place in (0, 185))
    assert page.locator("form").count() == 0
