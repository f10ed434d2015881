"""Run the cells of the leaderboard that have not been run, and write its table.

    python -m benchmarks.leaderboard --data DIR --to FOLDER

The order of cells makes a partial table fair: the budget of 50 % first, each of its planners on all
instances, the cheap ones before the others. A cell that has been run is not run again; so a call
continues the one before. What each file of the folder says is in ``cells``.

    python -m benchmarks.leaderboard --data DIR --to FOLDER --difference unet 50 -o page.html

writes the difference view of two cells that have been run: ours and the best other, or those of two
planners that are named after the budget.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import tinyckpt as tc
from benchmarks.leaderboard import cells, difference, instances, planners, report

SHARES = (50, 35, 80)  # per cent of the peak of the given order
MOST_PER_CENT = 1000
EVERY = ("vgg16", "vgg19", "unet", "fcn8", "segnet", "mobilenet", "resnet50",
         "layered-100", "layered-250", "layered-500", "layered-1000", "chain-100",
         *instances.JOINT, *instances.DTR_LOGS)  # fmt: skip


def positive(text: str) -> float:
    """Read seconds."""
    found = float(text)
    if not 0 < found < inf:
        raise ValueError(text)
    return found


def share_of_peak(text: str) -> int:
    """Read a budget in per cent."""
    found = int(text)
    if not 0 < found <= MOST_PER_CENT:
        raise argparse.ArgumentTypeError(f"{text}: a budget is 1 to {MOST_PER_CENT} per cent")
    return found


def named_command(text: str) -> tuple[str, str]:
    """Read a planner of somebody's own: its name, and the command with places for files."""
    name, _, command = text.partition("=")
    if not re.fullmatch(r"[\w-]+", name) or not command.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND, such as mine='./mine ...'")
    try:
        words = shlex.split(command.format(**dict.fromkeys(cells.PLACES, "x")))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        places = ", ".join(f"{{{place}}}" for place in cells.PLACES)
        raise argparse.ArgumentTypeError(f"{command!r}: its places are {places}") from error
    if shutil.which(words[0]) is None:
        raise argparse.ArgumentTypeError(f"{words[0]} is no program that can be run")
    return name, command


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    found = argparse.ArgumentParser(description="leaderboard of rematerialization planners")
    found.add_argument("--data", type=Path, help="folder of the published files")
    found.add_argument("--to", type=Path, required=True, help="folder of the cells")
    found.add_argument("--seconds", type=positive, default=60.0, help="the deadline of a cell")
    found.add_argument("--cells", type=int, default=sys.maxsize, help="run at most so many now")
    found.add_argument("--instances", nargs="+", default=EVERY, help="their names")
    found.add_argument(
        "--shares", nargs="+", type=share_of_peak, default=SHARES, help="budgets, per cent"
    )
    found.add_argument(
        "--planners", nargs="*", default=[*planners.PLANNERS], choices=[*planners.PLANNERS],
        help="their names", metavar="PLANNER",
    )  # fmt: skip
    found.add_argument(
        "--command",
        action="append",
        default=[],
        type=named_command,
        metavar="NAME=COMMAND",
        help="a planner of your own, such as 'mine=./mine {graph} {budget} {seconds} {schedule}'",
    )
    found.add_argument("--table", action="store_true", help="write results/leaderboard.md")
    found.add_argument(
        "--difference", nargs="+", metavar=("INSTANCE", "SHARE [PLANNER PLANNER]"),
        help="run nothing; write a page with two planners' schedules, ours and the best other "
        "unless named",
    )  # fmt: skip
    found.add_argument("-o", type=Path, dest="page", metavar="PAGE", help="of --difference")
    return found


def cells_of(arguments: argparse.Namespace) -> Iterator[cells.Cell]:
    """Yield the cells in order, those of budgets below the largest working set left out."""
    commands = dict.fromkeys(arguments.planners, cells.OWN_COMMAND)
    own = set(commands)
    for name, command in arguments.command:
        commands[name] = command
        own.discard(name)
    known = known_to(arguments)
    texts = {name: instances.text_of(instance) for name, instance in known.items()}
    for share in arguments.shares:
        for planner, command in commands.items():
            for name, instance in known.items():
                budget = instance.peak * share // 100
                if budget >= instance.least:
                    yield cells.Cell(
                        name, share, planner, command, texts[name], budget, arguments.seconds,
                        planner in own,
                    )  # fmt: skip


def known_to(arguments: argparse.Namespace) -> dict[str, instances.Instance]:
    """Return the instances that are asked for."""
    return {name: instances.instance_of(name, arguments.data) for name in arguments.instances}


def write_difference(
    arguments: argparse.Namespace, name: str, share: int, names: Sequence[str]
) -> None:
    """Write the page of two cells."""
    try:
        instance = instances.instance_of(name, arguments.data)
        page = difference.compare(arguments.to, name, share, names, instance, arguments.page)
    except (cells.CellError, instances.InstanceError, OSError, tc.TinyckptError) as error:
        sys.exit(str(error))
    print(page)


def main(given: Sequence[str] | None = None) -> None:
    """Run what has not been run; write the table if that is wanted."""
    own = parser()
    arguments = own.parse_args(given)
    if arguments.difference is not None:
        words: list[str] = arguments.difference
        if len(words) not in (2, 4) or not words[1].isdecimal() or arguments.page is None:
            own.error("it is --difference INSTANCE SHARE [PLANNER PLANNER] -o PAGE.html")
        write_difference(arguments, words[0], int(words[1]), words[2:])
        return
    left = arguments.cells
    try:
        arguments.to.mkdir(parents=True, exist_ok=True)
        for cell in cells_of(arguments):
            if not left:
                break
            if cells.outcome_in(arguments.to, cell) is None:
                outcome = cells.run(cell, arguments.to)
                left -= 1
                ended = f"{outcome.seconds:.1f} s, {outcome.memory:.0f} MiB"
                print(cell.name, outcome.status, outcome.cost, ended, outcome.said, flush=True)
    except (cells.CellError, instances.InstanceError, OSError) as error:
        sys.exit(str(error))
    if arguments.table:
        known = known_to(arguments)
        impossible = [
            (name, share)
            for name, instance in known.items()
            for share in arguments.shares
            if instance.peak * share // 100 < instance.least
        ]
        stored = {name: sum(instance.costs) for name, instance in known.items()}
        report.collect(arguments.to, stored, impossible)
        difference.collect(arguments.to)
        report.main()


if __name__ == "__main__":
    main()
