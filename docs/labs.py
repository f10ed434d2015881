"""Generator of the interactive planning pages (``viz.lab``) on the site: landing page, puzzles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tinyckpt as tc
from tinyckpt import viz
from tinyckpt.course.grading import best_answers
from tinyckpt.course.puzzles import PUZZLES

SECONDS = 4  # search time for each


def write(app: Any, error: Exception | None) -> None:
    """Write the labs of ResNet-50, of a chain and of puzzles into ``labs/``."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "labs"
    folder.mkdir(exist_ok=True)
    resnet, _ = tc.networks.network_from_text("resnet50")
    viz.lab(
        resnet, folder / "resnet50.html", network="resnet50", title="ResNet-50",
        costs=tc.cost.flops(resnet), points=20, time_limit=SECONDS, show="50 %",
    )  # fmt: skip
    for number, puzzle in PUZZLES.items():
        if puzzle.graph is not None and puzzle.form == "keep":
            viz.lab(
                puzzle.graph(), folder / f"puzzle_{number}.html", time_limit=SECONDS,
                challenge=tc.puzzles.task(number, best_answers()[number]),
            )  # fmt: skip
    viz.lab(
        tc.networks.chain(16), folder / "chain.html", network="chain:16",
        title="A chain of 16 layers", time_limit=SECONDS, show="50 %",
    )  # fmt: skip
