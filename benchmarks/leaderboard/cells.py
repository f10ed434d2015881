"""A cell of the leaderboard: one planner on one instance and budget, in a process of its own.

Peak memory is that of the process (``ru_maxrss`` of what was waited for), its interpreter and
libraries included. A process counts as its own what the one that started it has, so a small one
stands between: this file, run as a script. A crash or an overrun is an outcome.

A schedule is what the planner has written to its file by the time it ends or is killed, and counts
if ``checker`` accepts it. An outcome is one JSON file, written beside and renamed; its schedule
stands next to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import monotonic, sleep
from typing import Any

GRACE = 10.0  # seconds after the deadline in which a process may end: solvers look at clocks rarely
POLL = 0.02  # seconds
CHECKER = Path(__file__).with_name("checker.py")
LONGEST_SAID = 160  # characters
PLACES = ("python", "planner", "graph", "budget", "seconds", "schedule")  # of a command
OWN_COMMAND = (
    "{python} -m benchmarks.leaderboard.planners {planner} {graph} {budget} {seconds} {schedule}"
)


class CellError(Exception):
    """A damaged cell file, or one of another graph or deadline."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell.

    Attributes:
        instance, share, planner: the cell; the share is per cent of the given order's peak.
        budget: in bytes.
        limit: seconds, the deadline.
        graph: SHA-256 of the graph's text.
        status: ``legal``, ``nothing`` (no schedule), ``over`` (the budget), ``illegal``, ``killed``
            (without a schedule) or ``failed`` (without one).
        seconds: of the process, by the wall clock.
        memory: peak of the process, in MiB.
        cost, peak, order: what the checker counts; None if it refuses.
        said: what the planner says, what the checker refuses, or how the process ended.
        bound: a lower bound on the cost of every schedule that the planner has proven.
        infeasible: whether it has proven that there is no schedule.
    """

    instance: str
    share: int
    planner: str
    budget: int
    limit: float
    graph: str
    status: str
    seconds: float
    memory: float
    cost: int | None = None
    peak: int | None = None
    order: str | None = None
    said: str = ""
    bound: float | None = None
    infeasible: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell to be run: a planner's command on a graph's text."""

    instance: str
    share: int
    planner: str
    command: str
    text: str
    budget: int
    limit: float
    is_own: bool

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.instance}.{self.share}.{self.planner}"

    @property
    def graph(self) -> str:
        """SHA-256 of the graph's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def outcome_in(folder: Path, cell: Cell) -> Outcome | None:
    """Return the outcome of a cell that has been run; None if it has not.

    Raises:
        CellError: if its file is damaged, or of another graph, budget or deadline.
    """
    path = folder / f"{cell.name}.json"
    if not path.exists():
        return None
    found = read_outcome(path)
    for name in ("graph", "budget", "limit"):
        if getattr(found, name) != getattr(cell, name):
            raise CellError(
                f"{path}: {name} is {getattr(found, name)}, and would be {getattr(cell, name)} "
                "now; delete the file to run the cell again"
            )
    return found


def read_outcome(path: Path) -> Outcome:
    """Read an outcome.

    Raises:
        CellError: if the file is not one.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, or of UTF-8
        raise CellError(f"{path}: {error}; delete the file to run the cell again") from error
    names = {each.name for each in fields(Outcome)}
    if not isinstance(document, dict) or set(document) != names:
        raise CellError(f"{path}: not an outcome; delete the file to run the cell again")
    return Outcome(**document)


def run(cell: Cell, folder: Path) -> Outcome:
    """Run a cell, write its outcome and schedule, and return the outcome."""
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        (own / "graph.txt").write_text(cell.text, encoding="utf-8")
        status, seconds, memory, printed = process(cell, own)
        found = judged(cell, own, status, printed)
        outcome = Outcome(
            cell.instance, cell.share, cell.planner, cell.budget, cell.limit, cell.graph,
            seconds=round(seconds, 2), memory=round(memory, 1), **found,
        )  # fmt: skip
        schedule = own / "schedule.txt"
        if schedule.exists():
            replace_with(folder / f"{cell.name}.schedule", schedule.read_bytes())
    text = json.dumps(asdict(outcome), indent=1) + "\n"
    replace_with(folder / f"{cell.name}.json", text.encode())
    return outcome


def replace_with(path: Path, content: bytes) -> None:
    """Write a file beside and rename it, so that it is whole or not there."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(content)
    beside.replace(path)


def process(cell: Cell, own: Path) -> tuple[str, float, float, list[str]]:
    """Run the planner; return how it ended, its seconds and MiB, and the last lines it printed."""
    names = {
        "python": shlex.quote(sys.executable), "planner": shlex.quote(cell.planner),
        "graph": str(own / "graph.txt"), "budget": cell.budget, "seconds": f"{cell.limit:g}",
        "schedule": str(own / "schedule.txt"),
    }  # fmt: skip
    command = shlex.split(cell.command.format(**names))
    starter = [sys.executable, "-I", __file__, str(own), str(cell.limit + GRACE), *command]
    done = subprocess.run(starter, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        said = done.stderr.splitlines() or [f"exit status {done.returncode}"]
        raise CellError(f"{cell.name}: {command[0]}: {said[-1]}")
    killed, status, seconds, memory = json.loads(done.stdout)
    last = []
    for path in (own / "out", own / "err"):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        last.append(next((line for line in reversed(lines) if line.strip()), ""))
    if status and not killed:
        last[0] = f"exit status {status}: {last[1]}"
    return "killed" if killed else "failed" if status else "ended", seconds, memory, last


def measured(own: Path, limit: float, command: list[str]) -> tuple[bool, int, float, float]:
    """Run a command; return whether it was killed, its exit status, seconds and MiB."""
    killed, begin = False, monotonic()
    with (own / "out").open("wb") as out, (own / "err").open("wb") as err:
        child = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True
        )
        while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
            if not killed and monotonic() - begin > limit:
                os.killpg(child.pid, signal.SIGKILL)
                killed = True
            sleep(POLL)
    seconds = monotonic() - begin
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return killed, child.returncode, seconds, ended[2].ru_maxrss / unit


def judged(cell: Cell, own: Path, status: str, printed: list[str]) -> dict[str, Any]:
    """Return the rest of an outcome: what the checker says, or why there is no schedule."""
    said: dict[str, Any] = {"said": printed[0], "bound": None, "infeasible": False}
    if status == "killed":
        said["said"] = f"killed {GRACE:g} s after the deadline"
    elif status == "ended" and cell.is_own:
        said = json.loads(printed[0])
    said["said"] = " ".join(said["said"].split())[:LONGEST_SAID]
    schedule = own / "schedule.txt"
    if not schedule.exists():
        return {"status": "nothing" if status == "ended" else status, **said}
    checked = subprocess.run(
        [sys.executable, "-I", str(CHECKER), str(own / "graph.txt"), str(schedule)],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if checked.returncode:
        lines = checked.stderr.strip().splitlines()
        return {"status": "illegal", **said, "said": lines[-1][:LONGEST_SAID]}
    _, cost, _, peak, _, order = checked.stdout.split()
    within = "legal" if int(peak) <= cell.budget else "over"
    return {"status": within, "cost": int(cost), "peak": int(peak), "order": order, **said}


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
