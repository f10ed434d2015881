"""The leaderboard's tables and chart, from the outcomes of its cells.

``results/leaderboard.json`` has the outcomes, one a line; from it come ``results/leaderboard.md``
(every cell), the verdict and the summary on the page ``docs/leaderboard.md``, and its chart.

    python -m benchmarks.leaderboard.report
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.leaderboard.cells import Outcome, read_outcome

ROOT = Path(__file__).parent.parent.parent
RESULT = table.RESULTS / "leaderboard.json"
PAGE = ROOT / "docs" / "leaderboard.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- leaderboard -->", "<!-- end of leaderboard -->"
OURS = {"free": "tinyckpt", "given": "tinyckpt-given"}
PARTS = ("greedy", "optimal")  # this project's too: nobody else's
PACKAGES = ("numpy", "ortools", "scipy")
# The gap, of cost over the bound, that is aimed at: on real networks at half of the peak, and on
# random layered graphs at any budget.
NETWORK_GAP, LAYERED_GAP = 0.03, 0.05
EQUAL = 1e-9  # relative difference of costs that are the same
HEADER = ("instance", "budget", "planner", "order", "cost over store-all", "gap to the bound", "s",
          "MiB", "what it says")  # fmt: skip
SUMMARY = ("instance", "budget", "bound", "tinyckpt", "best other", "tinyckpt, order given",
           "best other, order given")  # fmt: skip

Setting = tuple[str, int]


class Board:
    """Outcomes by setting: an instance and a budget.

    Attributes:
        machine: what they were measured on.
        settings: for each, its outcomes by planner.
        stored: for each instance, the cost of evaluating each operator once.
        impossible: settings that are left out: the budget is below one operator's working set.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.machine: str = document["machine"]
        self.stored: dict[str, int] = document["stored"]
        self.impossible: list[Setting] = [tuple(each) for each in document["impossible"]]
        self.settings: dict[Setting, dict[str, Outcome]] = {}
        places = {name: place for place, name in enumerate(self.stored)}
        outcomes = [Outcome(**entry) for entry in document["outcomes"]]
        for outcome in sorted(outcomes, key=lambda each: (places[each.instance], -each.share)):
            setting = outcome.instance, outcome.share
            self.settings.setdefault(setting, {})[outcome.planner] = outcome

    def bound(self, setting: Setting) -> float:
        """Return the highest lower bound that a planner has certified, over all orders."""
        known = [each.bound for each in self.settings[setting].values() if each.bound is not None]
        return max([*known, float(self.stored[setting[0]])])

    def over(self, setting: Setting, cost: float) -> str:
        """Return a cost over that of evaluating everything once."""
        return f"+{100 * (cost / self.stored[setting[0]] - 1):.2f} %"

    def best(self, setting: Setting, ours: bool, order: str) -> Outcome | None:
        """Return the cheapest legal outcome: ours or another's, in any order or the given one."""
        found = [
            each
            for name, each in self.settings[setting].items()
            if each.status == "legal"
            and (name in OURS.values() if ours else name not in (*OURS.values(), *PARTS))
            and (order == "free" or each.order == "given")
            and (not ours or order == "free" or name == OURS["given"])
        ]
        return min(found, key=lambda each: (each.cost, each.seconds), default=None)


def collect(folder: Path, stored: Mapping[str, int], impossible: Sequence[Setting]) -> None:
    """Write the outcomes of a folder as the result."""
    outcomes = [read_outcome(path) for path in sorted(folder.glob("*.json"))]
    machine = (
        f"{platform.machine()}, one of {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, {table.versions(PACKAGES)}"
    )
    lines = ",\n".join(json.dumps(asdict(outcome)) for outcome in outcomes)
    head = json.dumps({"machine": machine, "stored": stored, "impossible": impossible})
    RESULT.write_text(f'{head[:-1]},\n"outcomes": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Write tables, page and chart from the result."""
    board = Board(json.loads(RESULT.read_text(encoding="utf-8")))
    text = (
        "# A leaderboard of rematerialization planners\n\n"
        "`python -m benchmarks.leaderboard --data DIR --to FOLDER --table` on "
        f"{board.machine}.\n\n{verdict(board)}\n\n{table.rows(HEADER, rows(board))}\n"
    )
    (table.RESULTS / "leaderboard.md").write_text(text, encoding="utf-8")
    PAGE.write_text(with_summary(PAGE.read_text(encoding="utf-8"), board), encoding="utf-8")
    from viz.theme import THEMES

    for theme, suffix in (("light", ""), ("dark", "-dark")):
        path = IMAGES / f"leaderboard{suffix}.svg"
        path.write_text(chart(board, THEMES[theme]), encoding="utf-8")


def with_summary(page: str, board: Board) -> str:
    """Return the page with the summary and the verdict between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    summary = table.rows(SUMMARY, summary_rows(board))
    told = f"{verdict(board)}\n\nMeasured on {board.machine}."
    return f"{before}{BEGIN}\n{summary}\n\n{told}\n{END}{after}"


def rows(board: Board) -> list[Sequence[object]]:
    """Return the rows of all cells, the cheapest schedule of a setting first."""
    body: list[Sequence[object]] = []
    for setting, outcomes in board.settings.items():

        def rank(each: Outcome) -> tuple[float, float]:
            return (
                each.cost if each.status == "legal" and each.cost else float("inf")
            ), each.seconds

        for each in sorted(outcomes.values(), key=rank):
            cost = gap = ""
            if each.status == "legal" and each.cost is not None:
                cost = board.over(setting, each.cost)
                gap = f"{100 * (each.cost / board.bound(setting) - 1):.2f} %"
            else:
                cost = f"none ({each.status})" if each.status != "nothing" else "none"
            body.append((
                each.instance, f"{each.share} %", each.planner, each.order or "", cost, gap,
                f"{each.seconds:.1f}", f"{each.memory:.0f}", escape(each.said).replace("|", "/"),
            ))  # fmt: skip
    return body


def summary_rows(board: Board) -> list[Sequence[object]]:
    """Return one row per setting in which a planner has a schedule."""
    body: list[Sequence[object]] = []
    for setting in board.settings:
        cells = []
        for order in ("free", "given"):
            ours, other = board.best(setting, True, order), board.best(setting, False, order)
            costs = [each.cost for each in (ours, other) if each is not None and each.cost]
            for each, name in ((ours, ""), (other, other.planner if other else "")):
                if each is None or each.cost is None:
                    cells.append("none")
                    continue
                text = f"{board.over(setting, each.cost)} {name}".strip()
                cells.append(f"**{text}**" if each.cost <= min(costs) * (1 + EQUAL) else text)
        if cells != ["none"] * 4:
            instance, share = setting
            bound = board.over(setting, board.bound(setting))
            body.append((instance, f"{share} %", bound, *cells))
    return body


def verdict(board: Board) -> str:
    """Say in a paragraph what was run, where another planner is better, and where gaps are wide."""
    count = sum(map(len, board.settings.values()))
    every = {name for outcomes in board.settings.values() for name in outcomes}
    limit = next(iter(next(iter(board.settings.values())).values())).limit
    text = [
        f"{count} cells were run, with a deadline of {limit:g} s each: {len(every)} planners, "
        f"{len(board.stored)} instances, {len(board.settings)} pairs of an instance and a budget."
    ]
    missing = len(every) * len(board.settings) - count
    if missing:
        some = sorted(
            f"{name} ({lacking} of them)"
            for name in every
            if (lacking := sum(name not in each for each in board.settings.values()))
        )
        text.append(f"{missing} more were not run: {', '.join(some)}.")
    if board.impossible:
        text.append(
            "Left out, because one operator's inputs and output alone are more than the budget: "
            f"{listed(board.impossible)}."
        )
    nothing = [each for each in board.settings if not any(
        outcome.status == "legal" for outcome in board.settings[each].values())]  # fmt: skip
    if nothing:
        text.append(f"No planner found a schedule for {listed(nothing)}.")
    for order, name in (("free", "in any order"), ("given", "in the given order")):
        beaten = [each for each in board.settings if is_beaten(board, each, order)]
        text.append(
            f"Another planner is better than this project's {name} on {listed(beaten)}."
            if beaten
            else f"No planner that was run is better than this project's {name} on any pair."
        )
    wide = [each for each in board.settings if is_wide(board, each)]
    aim = f"{100 * NETWORK_GAP:g} % on networks at 50 %, {100 * LAYERED_GAP:g} % on layered graphs"
    text.append(
        f"The gap of our best schedule to the bound is wider than aimed at ({aim}) on "
        f"{listed(wide)}."
        if wide
        else f"The gap of our best schedule to the bound is as aimed at everywhere ({aim})."
    )
    return " ".join(text)


def listed(settings: Iterable[Setting]) -> str:
    """Return settings in words.

    >>> listed([("unet", 80), ("unet", 50), ("vgg19", 80)])
    'unet at 80 and 50 %; vgg19 at 80 %'
    """
    shares: dict[str, list[int]] = {}
    for instance, share in settings:
        shares.setdefault(instance, []).append(share)
    texts = []
    for instance, some in shares.items():
        *most, last = map(str, sorted(some, reverse=True))
        texts.append(f"{instance} at {', '.join(most)}{' and ' if most else ''}{last} %")
    return "; ".join(texts)


def is_beaten(board: Board, setting: Setting, order: str) -> bool:
    """Whether another planner's schedule costs less than ours, or is the only one."""
    ours, other = board.best(setting, True, order), board.best(setting, False, order)
    if other is None or other.cost is None or OURS[order] not in board.settings[setting]:
        return False
    return ours is None or ours.cost is None or other.cost < ours.cost * (1 - EQUAL)


def is_wide(board: Board, setting: Setting) -> bool:
    """Whether the gap of our best schedule is wider than aimed at."""
    ours = board.best(setting, True, "free")
    if ours is None or ours.cost is None:
        return False
    gap = ours.cost / board.bound(setting) - 1
    if setting[0].startswith("layered"):
        return gap > LAYERED_GAP
    return setting[1] == 50 and gap > NETWORK_GAP


# The chart: a row per setting, a mark per planner at its gap to the bound, on a logarithmic axis.

MARKED = ("tinyckpt", "tinyckpt-given", "moccasin-1", "moccasin-8", "checkmate", "optimal",
          "greedy", "dtr", "blocks", "rotor", "revolve", "knapsack", "chen_budget", "sqrt_n",
          "chen_recursive", "checkpoint_schedules")  # fmt: skip
WIDTH, ROW, TOP, LEFT, RIGHT = 800, 22, 92, 150, 40
LOWEST, HIGHEST = 1e-4, 2.0  # of the axis; smaller gaps stand at its left end
TICKS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def chart(board: Board, theme: Any) -> str:
    """Return an SVG of gaps."""
    from math import log10

    from viz.theme import css

    def x_of(gap: float) -> float:
        share = log10(min(max(gap, LOWEST), HIGHEST) / LOWEST) / log10(HIGHEST / LOWEST)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    shown = [
        setting
        for setting in board.settings
        if any(each.status == "legal" for each in board.settings[setting].values())
    ]
    high = TOP + ROW * len(shown) + 40
    ink, muted = css(theme.ink), css(theme.muted)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" '
        f'font-family="Inter, sans-serif" font-size="12" role="img" '
        'aria-label="Gap of each planner to the certified lower bound, by instance and budget">',
        f'<rect width="{WIDTH}" height="{high}" fill="{css(theme.background)}"/>',
        f'<text x="12" y="22" font-size="15" font-weight="600" fill="{ink}">'
        "Cost above the certified lower bound</text>",
        # Each mark once: hundreds of copies of its shape would be most of the file.
        "<defs>", *(mark(name, theme) for name in MARKED), "</defs>",
    ]  # fmt: skip
    x, y = 12.0, 46.0
    for name in MARKED:
        every = [each[name].status for each in board.settings.values() if name in each]
        if "legal" in every:
            if x > WIDTH - 130:
                x, y = 12.0, y + 20
            parts.append(f'<use href="#{name}" x="{x + 6:.1f}" y="{y - 4:g}"/>')
            parts.append(f'<text x="{x + 17:g}" y="{y:g}" fill="{ink}">{name}</text>')
            x += 30 + 6.6 * len(name)
    for tick in TICKS:
        at, name = x_of(tick), f"{100 * tick:g} %"
        name = f"≤ {name}" if tick == LOWEST else name
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{high - 30}" '
            f'stroke="{css(theme.edge)}" stroke-opacity="0.4"/>'
            f'<text x="{at:.1f}" y="{high - 12}" text-anchor="middle" fill="{muted}">{name}</text>'
        )
    for row, setting in enumerate(shown):
        y = TOP + ROW * (row + 0.5)
        name = f"{setting[0]}, {setting[1]} %"
        parts.append(
            f'<text x="{LEFT - 14}" y="{y + 4:g}" text-anchor="end" fill="{ink}">{name}</text>'
        )
        for planner in reversed(MARKED):  # ours last, on top
            each = board.settings[setting].get(planner)
            if each is not None and each.status == "legal" and each.cost is not None:
                at = x_of(each.cost / board.bound(setting) - 1)
                parts.append(f'<use href="#{planner}" x="{at:.1f}" y="{y:g}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def mark(planner: str, theme: Any) -> str:
    """Return the mark of a planner: ours a dot and a ring, solvers squares, heuristics thin."""
    from viz.theme import css

    name = f'id="{planner}"'
    if planner in OURS.values():
        colour = css(theme.recomputed)
        if planner == OURS["free"]:
            return f'<circle {name} r="3.5" fill="{colour}"/>'
        return f'<circle {name} r="6" fill="none" stroke="{colour}" stroke-width="2"/>'
    if planner in ("moccasin-1", "moccasin-8", "checkmate", "optimal"):
        index = ("moccasin-1", "moccasin-8", "checkmate", "optimal").index(planner)
        colour = css((theme.kept, theme.kept, theme.gradient, theme.muted)[index])
        fill = "none" if planner == "moccasin-1" else colour
        return (
            f'<rect {name} x="-6" y="-6" width="12" height="12" fill="{fill}" stroke="{colour}" '
            'stroke-width="2"/>'
        )
    paths = {
        "greedy": "M-4 -4L4 4M-4 4L4 -4", "dtr": "M-5 0H5M0 -5V5", "chen_budget": "M-4 4L0 -4L4 4Z",
        "sqrt_n": "M-4 -4L0 4L4 -4Z", "rotor": "M-5 0L0 -5L5 0L0 5Z",
        "blocks": "M-5 0L-2 -4H2L5 0L2 4H-2Z", "revolve": "M-4 4L0 -4L4 4",
        "knapsack": "M-3 -5V5M3 -5V5", "chen_recursive": "M-4 -4L0 4L4 -4",
        "checkpoint_schedules": "M-4 -3H4M-4 3H4",
    }  # fmt: skip
    stroke = f'stroke="{css(theme.muted)}" stroke-width="1.5"'
    return f'<path {name} d="{paths[planner]}" fill="none" {stroke}/>'


if __name__ == "__main__":
    main()
