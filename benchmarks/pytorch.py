"""Benchmark: measured peak and FLOPs of PyTorch training steps, against PyTorch's own planner.

For each model, a plain PyTorch step, unchanged and with ``checkpoint`` around every block; and
compiled steps, by AOTAutograd alone (``aot``: PyTorch's kernels, one by one) and by Inductor, at
budgets of PyTorch's own planner (``activation_memory_budget``) and by plans of tinyckpt: within
every peak that those reach, and within shares of store-all's. Predicted peaks stand next to
measured ones. One part of one model takes minutes; its table replaces the older one in
results/torch.md::

    python benchmarks/pytorch.py --model Llama --part aot

Not named torch.py: Python looks for modules in a script's own folder first, and so all scripts in
this one would import it in place of PyTorch.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "2"

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import table
import torch
from predicted_vs_measured import MB, cheaper, exact, reached, rising
from training_steps import (
    Backend,
    Outcome,
    Plans,
    checkpointed,
    compared,
    compiled_step,
    know_attention,
    measured,
    outcome_of,
)

from tests.torch_models import LARGE, eager_step, large_example
from tinyckpt.interop import torch as tct

THREADS = 2  # as above
# Whose elements are the blocks of a model.
BLOCKS = {
    "GPT": ["blocks"], "GPT with dropout": ["blocks"], "Llama": ["layers"], "ViT": ["blocks"],
    "ResNet-18": ["body"], "ResNet-50": ["body"], "U-Net": ["down", "merge"],
    "U-Net with dropout": ["down", "merge"],
}  # fmt: skip
BUDGETS = (0.75, 0.5, 0.3, 0.25, 0.2, 0.1, 0.05, 0.0)  # PyTorch's
SHARES = (0.6, 0.5, 0.4, 0.3, 0.2)  # of store-all's peak
TIMED = (1.0, 0.5, 0.25)  # of PyTorch's budgets
TIMED_SHARE = 0.3
# What is to be reached: within so many MB, at so many times the FLOPs of store-all.
TARGETS: dict[tuple[str, str], dict[int, float]] = {
    ("Llama", "aot"): {104: 1.16, 68: 1.21},
    ("GPT", "inductor"): {51: 1.09},
}
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: a model, seconds of a search, PyTorch's budgets, shares for plans."""

    name: str
    seconds: float
    budgets: Sequence[float] = BUDGETS
    shares: Sequence[float] = SHARES

    @property
    def suffix(self) -> str:
        """What a title says, if not all is asked for."""
        texts = [
            f", {what} {' '.join(f'{value:g}' for value in values)}"
            for what, values, every in (
                ("PyTorch's budgets", self.budgets, BUDGETS), ("shares", self.shares, SHARES)
            )
            if values and tuple(values) != every
        ]  # fmt: skip
        return "".join(texts)


INTRODUCTION = f"""\
Peaks are those of the allocator's own events over a whole step, gradients in and parameters out, in
MB of {MB:,} bytes. FLOPs are counted with PyTorch's formulas, and its planner is told what CPU
attention costs, which it takes for free. Loss, gradients and buffers are compared with those of
plain PyTorch and of store-all; the first that they equal to the bit is named, or how far they are
from the last, as a share of the largest number of a tensor. The search for plans compares what
PyTorch's planner makes, too. Plans have no workspaces under Inductor, whose kernels are its
own, and no step there has ``allow_buffer_reuse``, which holds on to buffers. Seconds are medians
of {ROUNDS} rounds, all steps by turns."""


# Peaks and FLOPs ---------------------------------------------------------------------------------

HEADER = (
    "step", "budget", "predicted, MB", "measured, MB", "measured / predicted", "FLOPs / store-all",
    "equal to the bit",
)  # fmt: skip


def eager_part(asked: Asked) -> list[str]:
    """Return the table of plain PyTorch, without and with checkpoints."""
    name = asked.name
    model, args = large_example(name)
    plain = outcome_of(model, eager_step(model, args))
    checkpointed(blocks_of(name, model))
    wrapped = outcome_of(model, eager_step(model, args))
    references = {"plain": plain}
    body = [
        row("plain PyTorch", "", plain, references),
        row("checkpoint, every block", "", wrapped, references),
    ]
    limits = {"checkpoint's": wrapped.peak} | {
        f"{share:.0%} of plain": int(share * plain.peak) for share in asked.shares
    }
    for text, nbytes in limits.items():
        body.append(advised(name, f"{nbytes / MB:.1f} MB, {text}", nbytes, references))
    return [table.rows(HEADER, body)]


def advised(name: str, text: str, budget: int, references: Mapping[str, Outcome]) -> list[str]:
    """Return the row of a plain step with those modules wrapped that tinyckpt says."""
    model, args = large_example(name)
    advice = attempt(lambda: tct.advise(model, *args, budget=budget))
    if isinstance(advice, str):
        return failed("tinyckpt, advise", text, advice)
    found = outcome_of(advice.apply(model), eager_step(model, args))
    what = f"tinyckpt, advise: {len(advice.modules)} of {len(advice.candidates)} modules"
    return row(what, text, found, references, advice.peak)


def compiled_part(backend: Backend, asked: Asked) -> list[str]:
    """Return the table of compiled steps, and what came of the promises."""
    name, references = asked.name, {}
    if backend == "aot":
        model, args = large_example(name)
        references["plain"] = outcome_of(model, eager_step(model, args))
    plans = Plans(name, backend, asked.seconds)
    references["store-all"] = plans.stored
    body = [row("store-all", "", plans.stored, references, plans.stored_peak)]
    theirs: dict[float, Outcome] = {}
    for budget in asked.budgets:
        found = attempt(lambda budget=budget: measured(name, backend, memory_budget=budget))
        if isinstance(found, str):
            body.append(failed("PyTorch", f"{budget:g}", found))
        else:
            theirs[budget] = found
            body.append(row("PyTorch", f"{budget:g}", found, references))
    plans.follow(theirs)
    targets = TARGETS.get((name, backend), {})
    limits = [(f"PyTorch's at {budget:g}", found.peak) for budget, found in theirs.items()]
    limits += [
        (f"{share:.0%} of store-all", int(share * plans.stored_peak)) for share in asked.shares
    ]
    limits += [("promised", size * MB) for size in targets]
    ours: dict[int, tuple[int, Outcome]] = {}
    for text, nbytes in sorted(limits, key=lambda pair: -pair[1]):
        found = attempt(lambda nbytes=nbytes: plans.within(nbytes))
        text = f"{nbytes / MB:.1f} MB, {text}"
        if isinstance(found, str):
            body.append(failed("tinyckpt", text, found))
        else:
            ours[nbytes] = found
            body.append(row("tinyckpt", text, found[1], references, found[0]))
    found_out = [
        cheaper(theirs, ours, plans.stored.flops),
        rising(theirs, ours),
        exact(ours, promised=backend == "aot"),
        *reached(targets, ours, plans.stored.flops),
    ]
    return [table.rows(HEADER, body), "\n".join(f"- {line}" for line in found_out)]


def blocks_of(name: str, model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the blocks of a model."""
    return [block for each in BLOCKS[name] for block in model.get_submodule(each).children()]


def attempt(function: Callable[[], Any]) -> Any:
    """Return what a function does; if it fails, why, in a few words."""
    try:
        return function()
    except Exception as error:
        text = " ".join(str(error).split()).replace("|", "/")
        return f"{type(error).__name__}: {text[:160]}"


def row(
    what: str,
    budget: str,
    outcome: Outcome,
    references: Mapping[str, Outcome],
    predicted: int | None = None,
) -> list[str]:
    """Return a row of a table, and print it; FLOPs are shares of those of the last reference."""
    cells = [
        what,
        budget,
        "" if predicted is None else f"{predicted / MB:.1f}",
        f"{outcome.peak / MB:.1f}",
        "" if predicted is None else f"{outcome.peak / predicted:.4f}",
        f"{outcome.flops / list(references.values())[-1].flops:.4f}",
        compared(outcome, references),
    ]
    print(*cells, sep=" | ", file=sys.stderr)
    return cells


def failed(what: str, budget: str, why: str) -> list[str]:
    """Return a row about a step that cannot be made."""
    return [what, budget, "", "", "", "", why]


# Seconds -----------------------------------------------------------------------------------------


def seconds_part(backend: Backend, asked: Asked) -> list[str]:
    """Return the table of seconds a step."""
    name = asked.name
    steps: dict[str, Callable[[], Any]] = {}
    peaks: dict[str, int] = {}

    def add(text: str, model: Any, step: Callable[[], Any], flops: int | None = None) -> None:
        steps[text], peaks[text] = step, outcome_of(model, step, flops).peak

    def compiled(text: str, *args: Any, **options: Any) -> None:
        example = large_example(name)
        add(text, example[0], *compiled_step(example, backend, *args, **options))

    model, args = large_example(name)
    add("plain PyTorch", model, eager_step(model, args))
    wrapped, args = large_example(name)
    checkpointed(blocks_of(name, wrapped))
    add("checkpoint, every block", wrapped, eager_step(wrapped, args))
    plans = Plans(name, backend, asked.seconds)
    torch._dynamo.reset()
    # All models have the same code, each compiled by itself.
    with torch._dynamo.config.patch(recompile_limit=100):
        compiled("store-all", plans.partition(None))
        budgets = {f"{TIMED_SHARE:.0%} of store-all": int(TIMED_SHARE * plans.stored_peak)}
        for budget in TIMED:
            text = f"PyTorch, {budget:g}"
            attempt(lambda text=text, budget=budget: compiled(text, memory_budget=budget))
            if text in peaks and budget < 1:
                budgets[f"PyTorch's at {budget:g}"] = peaks[text]
        for text, nbytes in budgets.items():
            order = attempt(lambda nbytes=nbytes: plans.order(nbytes))
            if not isinstance(order, str):
                compiled(f"tinyckpt, {text}", plans.partition(order))
        times = table.interleaved(steps, ROUNDS)
    body = [
        [text, f"{peaks[text] / MB:.1f}", f"{1e3 * statistics.median(times[text]):.0f}",
         f"{table.median_ratio(times[text], times['plain PyTorch']):.2f}",
         f"{table.median_ratio(times[text], times['store-all']):.2f}"]
        for text in steps
    ]  # fmt: skip
    header = ("step", "measured, MB", "ms", "times plain PyTorch", "times store-all, compiled")
    return [table.rows(header, body)]


# The report --------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Asked], list[str]]] = {
    "eager": eager_part,
    "aot": partial(compiled_part, "aot"),
    "inductor": partial(compiled_part, "inductor"),
    "aot seconds": partial(seconds_part, "aot"),
    "inductor seconds": partial(seconds_part, "inductor"),
}


def merged(new: Mapping[str, str]) -> list[str]:
    """Return the sections of the report: those that are new, and older ones of other titles."""
    path = table.RESULTS / "torch.md"
    older = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = re.split(r"^## (.*)\n", older, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True)) | dict(new)
    names = list(LARGE)
    titles = sorted(found, key=lambda title: (names.index(title.split(", ")[0]), title))
    return [INTRODUCTION, *(f"## {title}\n\n{found[title]}" for title in titles)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=LARGE, action="append", help="default: all")
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--seconds", type=float, default=60, help="of each search for plans")
    parser.add_argument("--budgets", type=float, nargs="*", default=BUDGETS, help="PyTorch's")
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES, help="for plans")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    know_attention()
    for name in options.model or LARGE:
        for part in options.part or PARTS:
            begin, load = perf_counter(), os.getloadavg()[0]
            asked = Asked(name, options.seconds, options.budgets, options.shares)
            sections = PARTS[part](asked)
            taken = (
                f"{options.seconds:g} s for a search; {perf_counter() - begin:.0f} s total, the "
                f"machine's load {load:.1f} before and {os.getloadavg()[0]:.1f} after."
            )
            new = {f"{name}, {part}{asked.suffix}": "\n\n".join([*sections, taken])}
            table.write(
                "torch", "Training steps of PyTorch models", merged(new), ["numpy", "torch"]
            )


if __name__ == "__main__":
    main()
