"""Benchmark reports: interleaved timing, and Markdown tables that state machine and versions."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

RESULTS = Path(__file__).parent / "results"


def interleaved(
    runners: dict[str, Callable[[], object]],
    rounds: int,
    settling: int = 0,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """Time every runner in every round, interleaved, so that drift affects all equally; seconds.

    Before each timed run come some that are not: where libraries have threads of their own, those
    of the one before still spin for a while.
    """
    for runner in runners.values():
        runner()
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            for _ in range(settling):
                runner()
            begin = clock()
            runner()
            seconds[name].append(clock() - begin)
    return seconds


def median_ratio(seconds: Sequence[float], baseline: Sequence[float]) -> float:
    """Return the median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(seconds, baseline, strict=True))


def versions(packages: Sequence[str]) -> str:
    """Return the installed versions of some packages."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def command() -> str:
    """Return the script that runs, from the project's folder, with its arguments."""
    script = Path(sys.argv[0]).resolve()
    name = script.name if script.parent.name == "benchmarks" else None
    module = script.parent.name + ("" if script.stem == "__main__" else f".{script.stem}")
    what = f"benchmarks/{name}" if name else f"-m benchmarks.{module}"
    return " ".join([what, *sys.argv[1:]])


def write(name: str, title: str, sections: Sequence[str], packages: Sequence[str]) -> None:
    """Print a report, and write it to results/NAME.md."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
    text = "\n\n".join(
        [
            f"# {title}",
            f"`python {command()}` on {machine}; Python {platform.python_version()}, "
            f"{versions(packages)}.",
            *sections,
        ]
    )
    print(text)
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    print(f"\nwritten to {RESULTS / f'{name}.md'}", file=sys.stderr)


def rows(header: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
