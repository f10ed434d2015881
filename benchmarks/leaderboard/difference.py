"""Difference view of cells: their schedules, replayed and side by side on one page of the player.

The schedule of a cell stands next to its outcome (``cells``). Those of published instances are not
part of this project; those of its own instances ship as ``results/leaderboard_schedules.json.gz``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tinyckpt as tc
from benchmarks import table
from benchmarks.leaderboard.cells import CellError, Outcome, read_outcome
from benchmarks.leaderboard.checker import IllegalError, check, rows
from benchmarks.leaderboard.instances import OWN, Instance, graph_of, text_of
from benchmarks.leaderboard.report import OURS, Board, Setting

SHIPPED = table.RESULTS / "leaderboard_schedules.json.gz"


def trace_of(outcome: Outcome, instance: Instance, schedule: str) -> tc.Trace:
    """Replay the schedule of a cell.

    Raises:
        CellError: if the instance is not that of the cell, or its schedule not the one counted.
    """
    name, text = f"{outcome.instance}.{outcome.share}.{outcome.planner}", text_of(instance)
    if hashlib.sha256(text.encode()).hexdigest() != outcome.graph:
        raise CellError(f"{name}: the cell is of another graph than the instance of its name")
    try:
        counted = check(text, schedule)
    except IllegalError as error:
        raise CellError(f"{name}: {error}") from error
    expected = f"cost {outcome.cost} peak {outcome.peak} order {outcome.order}"
    if counted != expected:
        raise CellError(f"{name}: its schedule has {counted}, the outcome says {expected}")
    steps = [
        tc.Compute(int(own)) if kind == "compute" else tc.Free(int(own))
        for _, (kind, own) in rows(schedule)
    ]
    return tc.replay(tc.Schedule(graph_of(instance), tuple(steps), outcome.planner))


def board_in(folder: Path, name: str, share: int, instance: Instance) -> Board:
    """Return the outcomes of one instance and budget in a folder of cells.

    Raises:
        CellError: if there are none.
    """
    outcomes = [read_outcome(path) for path in sorted(folder.glob(f"{name}.{share}.*.json"))]
    if not outcomes:
        raise CellError(f"{folder} has no cell of {name} at {share} %")
    entries = [{each: getattr(outcome, each) for each in outcome.__slots__} for outcome in outcomes]
    stored = {name: sum(instance.costs)}
    return Board({"machine": "", "stored": stored, "impossible": [], "outcomes": entries})


def pair_of(board: Board, setting: Setting, planner: str | None = None) -> tuple[str, str]:
    """Return two planners to compare: ours and the best other, or the given one in place of either.

    Raises:
        CellError: if one of the two has no schedule.
    """
    names: list[str] = []
    for own in (True, False):
        best = board.best(setting, own, "free")
        if planner is not None and own == (planner in OURS.values()):
            names.append(planner)
        elif best is not None:
            names.append(best.planner)
        else:
            none = "no planner of ours" if own else "no other planner"
            name, share = setting
            raise CellError(f"{name} at {share} %: {none} has a schedule; name two planners")
    return names[0], names[1]


def write(
    path: Path, board: Board, setting: Setting, instance: Instance, schedules: Mapping[str, str]
) -> Path:  # fmt: skip
    """Write the page that plays the schedules of some planners, the first two as their difference.

    Args:
        path: of the page.
        board: the outcomes.
        setting: the instance and the budget.
        instance: the operators.
        schedules: the texts, by planner.
    """
    from viz.player import player

    outcomes = board.settings[setting]
    traces = [trace_of(outcomes[name], instance, text) for name, text in schedules.items()]
    title = f"{setting[0]} at {setting[1]} %"
    if len(traces) == 2:
        costs = (f"{name} {board.over(setting, outcomes[name].cost or 0)}" for name in schedules)
        title = f"{title}: {', '.join(costs)}"
    return player(traces, path, title=title, show="difference")


def compare(
    folder: Path, name: str, share: int, names: Sequence[str], instance: Instance, path: Path
) -> Path:
    """Write the page of two planners' cells in a folder, unless named of ours and the best other.

    Raises:
        CellError: if there is no such cell, or it has no legal schedule.
    """
    setting = name, share
    board = board_in(folder, name, share, instance)
    schedules = {}
    for planner in names or pair_of(board, setting):
        outcome = board.settings[setting].get(planner)
        if outcome is None or outcome.status != "legal":
            status = (
                "is not run" if outcome is None else f"has no legal schedule ({outcome.status})"
            )
            raise CellError(f"{name}.{share}.{planner} {status}")
        text = folder / f"{name}.{share}.{planner}.schedule"
        schedules[planner] = text.read_text(encoding="utf-8")
    return write(path, board, setting, instance, schedules)


def collect(folder: Path) -> None:
    """Write the schedules of a folder whose instances are this project's own, to ship."""
    found = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("*.schedule"))
        if path.name.partition(".")[0] in OWN
        and read_outcome(path.with_suffix(".json")).status == "legal"
    }
    SHIPPED.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))


def shipped() -> dict[tuple[str, int], dict[str, str]]:
    """Return the schedules that ship: by setting, then by planner."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for cell, text in json.loads(gzip.decompress(SHIPPED.read_bytes())).items():
        name, share, planner = cell.split(".")
        found.setdefault((name, int(share)), {})[planner] = text
    return found
