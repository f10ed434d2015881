"""The option ``--measured``: measured memory, plotted over a page's predicted memory."""

from __future__ import annotations

import argparse
from typing import Any

from tinyckpt.base.errors import BudgetError
from tinyckpt.cli.resolve_options import wrong_usage
from tinyckpt.documents.measured_memory import Measured, load_measured
from tinyckpt.planner.model.budget import parse_written_budget

BASE = "'1.5 GiB', a number of bytes, or 'start' for what is held at the start"


def add_measured(parser: Any) -> None:
    """Add ``--measured`` and the options that select a part of the file."""
    parser.add_argument(
        "--measured", metavar="FILE",
        help="draw memory that was measured over the plan: a PyTorch snapshot, or a list of "
        "seconds and bytes, as .json or .csv",
    )  # fmt: skip
    parser.add_argument("--device", type=int, metavar="N", help="of the snapshot, if several ran")
    parser.add_argument(
        "--between",
        type=span,
        metavar="S,S",
        help="only this part of it, such as one training step",
    )
    parser.add_argument(
        "--base", type=base, metavar="BYTES", default="start",
        help=f"what the plan does not count, such as parameters, and is left out: {BASE}, which is "
        "the default; 0 for nothing",
    )  # fmt: skip


def measured_of(options: Any) -> Measured | None:
    """Load the measured memory, if ``--measured`` was given."""
    if options.measured is None:
        own = {"device": None, "between": None, "base": "start"}
        for name, default in own.items():
            if getattr(options, name) != default:
                wrong_usage(options, f"--{name} is for --measured FILE, which was not given")
        return None
    found = load_measured(options.measured, device=options.device)
    if options.between is not None:
        found = found.between(*options.between)
    return found if options.base == "start" else found.less(options.base)


def span(text: str) -> tuple[float, float]:
    """Parse the two times of ``FROM,TO``."""
    try:
        begin, end = map(float, text.split(","))
    except ValueError:
        message = f"{text!r}: expected two moments, such as 1.5,2.25"
        raise argparse.ArgumentTypeError(message) from None
    return begin, end


def base(text: str) -> int | str:
    """Parse a number of bytes, or ``start``."""
    try:
        budget = parse_written_budget(text, BASE)
    except BudgetError:
        budget = None
    if text != "start" and (budget is None or budget.unit not in ("bytes", "unsaid")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected {BASE}")
    return text if budget is None else int(budget.amount)
