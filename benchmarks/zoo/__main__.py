"""Runner of the model zoo's differential tests: a table of outcomes against expectations.

``python -m benchmarks.zoo`` writes results/zoo.md, in some minutes; with names of models, it prints
their rows alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import shorten

from benchmarks import table
from benchmarks.zoo import GROUPS, MODELS
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.trials import ROUNDING, STEPS, Outcome, advised, planned

HEADER = (
    "model", "operators", "plan: bits", "store-all", "plan", "modules", "advised: bits", "plain",
    "fewest bytes", "fewer bytes", "known",
)  # fmt: skip
INTRODUCTION = f"""\
Each model is trained for {STEPS} steps by plain PyTorch; by a plan that stores all, and one in two
thirds of its peak; and with modules wrapped as advised, for all of the bytes that wrapping can save
(*fewest*) and for half of them (*fewer*). *bits*: whether losses, gradients, parameters and buffers
of all steps equal those of plain PyTorch to the last bit, or how far they are from them, as a share
of the largest number of a tensor. Other columns: the predicted peak over the measured one, which is
what the allocator hands out in the first step; *exact* is within {ROUNDING} bytes, numbers of no
dimension. No call changed the model, its arguments, or the state of random numbers."""


def main(names: Sequence[str]) -> None:
    """Try models, all of them unless some are named."""
    if names:
        print(table.rows(HEADER, [row(name, MODELS[name]) for name in names]))
        return
    sections = [INTRODUCTION]
    for group, models in GROUPS.items():
        rows = [row(name, entry) for name, entry in models.items()]
        sections.append(f"## {group}\n\n{table.rows(HEADER, rows)}")
    packages = ["torch", "torchvision", "transformers"]
    table.write("zoo", "Models of others, and of ours with traps", sections, packages)


def row(name: str, entry: Entry) -> list[str]:
    """Return a model's row."""
    print(name, file=sys.stderr, flush=True)
    cells = [name]
    for trial, columns in ((planned, 2), (advised, 3)):
        cells += texts(attempt(partial(trial, entry)), columns)
    return [*cells, entry.reason]


def attempt(trial: Callable[[], Outcome]) -> Outcome:
    """Return what comes of a trial; an error that is no refusal counts as one, by its class."""
    try:
        return trial()
    except Exception as error:
        return Outcome(refused=f"{type(error).__name__}: {shorten(str(error), 80)}")


def texts(outcome: Outcome, columns: int) -> list[str]:
    """Return the cells about a trial: size, bits, and a column for each of its steps."""
    if outcome.refused:
        return ["refused", *[""] * (columns + 1)]
    far = max(step.apart for step in outcome.steps)
    changed = f"; changed {outcome.changed[0]}" if outcome.changed else ""
    ratios = [
        f"{step.predicted / step.measured:.4f}" if step.miss else "exact" for step in outcome.steps
    ]
    cells = [str(outcome.size), "equal" if not far else f"{far:.2g}" + changed, *ratios]
    return cells + [""] * (columns + 2 - len(cells))


if __name__ == "__main__":
    main(sys.argv[1:])
