"""Generator of the leaderboard's table of every cell on the site, and of its difference views.

Filters are added by ``static/leaderboard.js``; without scripts the table is whole. A cell whose
schedule ships has a link to the page that plays the schedules of its instance and budget.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.leaderboard import difference, instances, report

FILE = "guide/out/leaderboard.txt"  # what the page includes as raw HTML
FAMILIES = {"layered": "random layered graphs", "chain": "chains", "joint": "joint graphs"}
OTHERS = "networks"
PAGE = "labs/leaderboard-{}-{}.html"  # the instance and the budget


def write(app: Any) -> None:
    """Write the table into Sphinx's source folder."""
    (Path(app.srcdir) / FILE).write_text(table(), encoding="utf-8")


def table() -> str:
    """Return the table as HTML: rows say what the filters distinguish."""
    board, shipped = read_board(), difference.shipped()
    head = "".join(f'<th scope="col">{name}</th>' for name in report.HEADER)
    body = []
    for row in report.rows(board):
        instance, budget, planner, order, cost, *rest = map(str, row)
        setting = instance, int(budget.partition(" ")[0])
        family = FAMILIES.get(instance.partition("-")[0], OTHERS)
        of = {"instances": family, "budget": budget, "planner": planner, "order": order or "none"}
        data = "".join(f' data-{name}="{escape(value)}"' for name, value in of.items())
        cells = [instance, budget, planner, order, linked(board, shipped, setting, planner, cost)]
        filled = "".join(f"<td>{text}</td>" for text in [*cells, *rest])
        body.append(f"<tr{data}>{filled}</tr>")
    lines = "\n".join(body)
    return (
        '<div class="table-wrapper docutils container cells" tabindex="0" role="region" '
        'aria-label="Every cell">\n<table class="docutils align-default">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>\n</div>\n"
        '<script src="_static/leaderboard.js" defer></script>\n'
    )


def read_board() -> report.Board:
    """Return the published outcomes."""
    return report.Board(json.loads(report.RESULT.read_text(encoding="utf-8")))


def linked(
    board: report.Board, shipped: dict[report.Setting, dict[str, str]], setting: report.Setting,
    planner: str, cost: str,
) -> str:  # fmt: skip
    """Return a cost, with a link to the difference view if the cell's schedule ships."""
    names = list(shipped.get(setting, ()))
    if planner not in names:
        return cost
    ours, other = difference.pair_of(board, setting, planner)
    # The player's address counts policies from 1, in the order of the page.
    address = f"{PAGE.format(*setting)}#difference={names.index(ours) + 1}-{names.index(other) + 1}"
    return f'<a href="{address}" aria-label="{cost}: {other} against {ours}">{cost}</a>'


def write_pages(app: Any, error: Exception | None) -> None:
    """Write a page of schedules for each instance and budget whose schedules ship."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "labs").mkdir(exist_ok=True)
        board = read_board()
        for setting, schedules in difference.shipped().items():
            path = Path(app.outdir) / PAGE.format(*setting)
            instance = instances.instance_of(setting[0], None)
            difference.write(path, board, setting, instance, schedules)
