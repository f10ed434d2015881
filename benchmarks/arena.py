"""Benchmark: heights of arenas over the peak of live bytes, and time to assign offsets.

    python benchmarks/arena.py heights durations resident
    python benchmarks/arena.py minimalloc minimalloc_cp --data DIR [--seconds 60]

Writes the sections that are named, and keeps the others of the last report. Networks are those of
``tinyckpt.networks``, small batches: a height's share of the peak depends on shapes, and batches
scale most of them alike. DIR has the instances of google/minimalloc (``benchmarks/challenging`` of
its repository), which are not distributed with this project; ``minimalloc`` gives each
``--seconds`` for the constructions and searches of tinyckpt alone, ``minimalloc_cp`` as many with
CP-SAT. All seconds are process time, of both threads of CP-SAT: other work is not the search's.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import process_time
from typing import Any

import numpy as np
import table
from arena_resident import resident_table

import tinyckpt as tc
from tinyckpt.base.deadline import Clock
from tinyckpt.codegen import offset_assignment
from tinyckpt.codegen.offset_assignment import Packing, assign_offsets
from tinyckpt.networks.registry import network_from_text

NETWORKS = [
    "chain:16", "chain:64", "chain:256", "mlp:8x256", "residual:8x64", "branching:4x16",
    "transformer:4x256", "lenet5:64", "cnn100:8", "vgg16:8", "vgg16_bn:8", "resnet18:8",
    "resnet50:8", "resnet152:8", "mobilenet:8", "unet:2", "vit:2", "bert:2x128", "gpt2:2x128",
    "gpt2_large:1x128", "llama7b:1x128",
]  # fmt: skip
POLICIES = (
    "store_all", "recompute_all", "sqrt_n", "chen_recursive", "revolve", "dtr", "greedy", "blocks",
    "offload",
)  # fmt: skip
MOST_STEPS = 60_000  # schedules of more steps are left out, and shown so
HIGHEST = 1.02  # height over the peak of live bytes
CAPACITY = 1_048_576  # bytes, of minimalloc's instances
TITLES = {
    "heights": "Heights over the peak of live bytes",
    "durations": "Time of many allocations",
    "minimalloc": f"minimalloc's instances within {CAPACITY:,} bytes",
    "minimalloc_cp": "minimalloc's instances, with CP-SAT",
    "resident": "Resident memory of steps in one buffer",
}


def heights() -> str:
    """Return the table of heights over peaks."""
    body, above = [], []
    for name in NETWORKS:
        graph, _ = network_from_text(name)
        row: list[str] = [name]
        for policy in POLICIES:
            try:
                schedule = tc.plan(graph, policy)
            except tc.TinyckptError:
                row.append("refused")
                continue
            if len(schedule) > MOST_STEPS:
                row.append(f"{len(schedule):,} steps")
                continue
            begin = process_time()
            plan = tc.arena(schedule)
            took = process_time() - begin
            ratio = plan.nbytes / max(plan.lower_bound, 1)
            if ratio > HIGHEST:
                above.append(f"{name} under {policy} ({ratio:.4f})")
            row.append(f"{ratio:.4f}".rstrip("0").rstrip(".") if ratio > 1 else "1")
            print(name, policy, len(plan.allocations), ratio, f"{took:.2f}", file=sys.stderr)
        body.append(row)
    verdict = f"all but {', '.join(above)}" if above else "all"
    return (
        f"Aligned to 64 bytes, without a deadline. At most {HIGHEST:g}, this project's limit: "
        f"{verdict}.\n\n{table.rows(['network', *POLICIES], body)}"
    )


def random_blocks(kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lifetimes and sizes that are drawn at random."""
    random = np.random.default_rng(0)
    if kind == "short lifetimes":
        begin = random.integers(0, count, count)
        end = begin + random.geometric(0.02, count)
    elif kind == "any lifetimes":
        begin, end = np.sort(random.integers(0, 2 * count, (count, 2)), axis=1).T
        end = end + 1
    else:  # forward values of which 40 % live to their backward
        begin = np.arange(count)
        saved = (random.random(count) < 0.4) & (begin < count // 2)
        end = np.where(saved, count - begin + 1, begin + random.integers(1, 4, count))
    return begin, end, random.integers(1, 1000, count) * 64


def durations() -> str:
    """Return the table of the time that many allocations take."""
    body = []
    late = 0
    for count, limit in ((10_000, 2), (100_000, 20)):
        for kind in ("short lifetimes", "any lifetimes", "nested as in a backward pass"):
            blocks = [column.tolist() for column in random_blocks(kind, count)]
            begin = process_time()
            packing = assign_offsets(*blocks, alignment=64)
            took = process_time() - begin
            ratio = packing.nbytes / packing.lower_bound
            late += took > limit
            body.append([f"{count:,}", kind, f"{took:.1f}", f"{ratio:.4f}"])
            print(body[-1], file=sys.stderr)
    header = ["allocations", "drawn with", "seconds", "height / peak"]
    return (
        f"Within 2 seconds for 10,000 and 20 for 100,000, this project's limits: "
        f"{len(body) - late} of {len(body)}.\n\n{table.rows(header, body)}"
    )


def minimalloc(folder: Path, seconds: float, solver: bool) -> str:
    """Return the table of minimalloc's instances, with or without CP-SAT."""
    if solver:
        limit_process_time()
    body: list[list[object]] = []
    for path in sorted(folder.glob("*.csv")):
        rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
        packing, took = alone(rows, seconds, solver)
        peak = packing.lower_bound / CAPACITY
        within = "yes" if packing.nbytes <= CAPACITY else f"{packing.nbytes / CAPACITY:.3f} times"
        name = path.stem.partition(".")[0]
        body.append([name, len(rows), f"{peak:.3f}", f"{packing.nbytes:,}", within, f"{took:.1f}"])
        print(body[-1], file=sys.stderr, flush=True)
    fit = sum(row[4] == "yes" for row in body)
    header = ["instance", "blocks", "peak / capacity", "height, bytes", "within", "seconds"]
    return (
        f"{fit} of {len(body)} fit; at most {seconds:g} seconds of process time each.\n\n"
        f"{table.rows(header, body)}"
    )


class ProcessClock(Clock):
    """A deadline in process time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.begin = process_time()
        self.end = self.begin + seconds

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self.end - process_time())

    def check(self) -> None:
        """Raise an OutOfTimeError if the deadline has passed."""
        if process_time() >= self.end:
            raise offset_assignment.OutOfTimeError


def limit_process_time() -> None:
    """Let CP-SAT's time limits be of process time."""
    from ortools.sat.python import cp_model

    class Solver(cp_model.CpSolver):
        def solve(self, model: cp_model.CpModel) -> Any:
            end = process_time() + self.parameters.max_time_in_seconds
            self.parameters.max_time_in_seconds = inf
            done = Event()

            def watch() -> None:
                while not done.wait(0.05):
                    if process_time() >= end:
                        self.stop_search()

            Thread(target=watch, daemon=True).start()
            try:
                return super().solve(model)
            finally:
                done.set()

    cp_model.CpSolver = Solver


def alone(rows: np.ndarray, seconds: float, solver: bool) -> tuple[Packing, float]:
    """Return the packing of an instance and the seconds; without CP-SAT unless ``solver``."""
    most = offset_assignment.MOST_IN_MODEL
    offset_assignment.MOST_IN_MODEL = most if solver else 0
    offset_assignment.Clock = ProcessClock  # type: ignore[misc, attr-defined]
    begin = process_time()
    try:
        starts, stops, sizes = rows.T[1:].tolist()
        packing = assign_offsets(starts, stops, sizes, deadline=seconds, capacity=CAPACITY)
    finally:
        offset_assignment.MOST_IN_MODEL, offset_assignment.Clock = most, Clock  # type: ignore[misc, attr-defined]
    return packing, process_time() - begin


def kept(text: str) -> dict[str, str]:
    """Return the sections of a report by their titles."""
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def main() -> None:
    """Measure what is named; write the tables."""
    parser = argparse.ArgumentParser(description="heights of arenas, and time to assign offsets")
    parser.add_argument("sections", nargs="+", choices=TITLES)
    parser.add_argument("--data", type=Path, help="folder of minimalloc's challenging instances")
    parser.add_argument("--seconds", type=float, default=60, help="for each of them")
    options = parser.parse_args()
    measured = {
        "heights": heights,
        "durations": durations,
        "minimalloc": partial(minimalloc, options.data, options.seconds, False),
        "minimalloc_cp": partial(minimalloc, options.data, options.seconds, True),
        "resident": resident_table,
    }
    run = f"Written by `python {table.command()}`."
    new = {TITLES[name]: f"{run}\n\n{measured[name]()}" for name in options.sections}
    report = table.RESULTS / "arena.md"
    found = {**kept(report.read_text("utf-8") if report.exists() else ""), **new}
    sections = [f"## {title}\n\n{found[title]}" for title in TITLES.values() if title in found]
    table.write("arena", "One buffer", sections, ["numpy", "ortools"])


if __name__ == "__main__":
    main()
