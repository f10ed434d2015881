"""Write docs/figures.md: published figures about activation memory, checked by the engine.

Run it from the project's folder::

    python -m lessons.figures
"""

from __future__ import annotations

from pathlib import Path

from lessons.figures import (
    approximate,
    codes,
    convolutions,
    fits,
    offload,
    pipelines,
    recomputation,
    shares,
    taught,
    training,
    transformers,
)
from lessons.figures.figure import table

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
INTRODUCTION = """# The figures, checked

Claims about activation memory from papers, reports and lessons, checked on graphs. Every number in
the columns *counted* and *measured* was computed when this page was written, and so was each yes
and no: `python -m lessons.figures` writes it, and a test compares.

*Counted* numbers come from `replay` of a schedule, from shapes alone. *Measured* numbers come from
a process, where the network fits: `tracemalloc` around the compiled program, the trace of `tc.run`,
or the parameters after a step. `benchmarks/results/memory.md` has the memory of a process for each
network, resident set size included.

Out of scope: tensor and sequence parallelism and 8-bit arithmetic (COAT), which tinyckpt does not
have, and measurements on others' machines.
"""
SECTIONS = {
    "The cost of recomputation": lambda: table(recomputation.figures()),
    "Where a transformer's activations go": lambda: "\n\n".join(
        [
            table(transformers.figures()),
            "Term by term, at 16 bits, for GPT-3's shape (s = 2,048, a = 96, h = 12,288):",
            transformers.terms(),
            "The core's primitives save the same values as the paper's, except the mask: dropout "
            "regenerates it, and a causal softmax reapplies its mask. [Attention](attention.md) "
            "has the fused form, which saves nothing that grows with s²; [saved values, compared "
            "with PyTorch](saved.md), a block as it is trained.",
        ]
    ),
    "Savings of approximate derivatives": lambda: "\n\n".join(
        [
            table([*approximate.figures(), *fits.figures()]),
            "Slice by slice, in units of b n c at 16 bits, inputs of norms at 32:",
            approximate.slices(),
            "*Rewritten* is `tc.rewrite`: an activation function saves two bits per element, an "
            "eighth of 16, and a norm shares what linear layers save in any case. Row statistics, "
            "such as a norm's deviation, are omitted. The activation function's derivative is "
            "approximate, the norm's exact.",
        ]
    ),
    "Quantised activations": lambda: table(codes.figures()),
    "Offload": lambda: table(offload.figures()),
    "Pipelines": lambda: table(pipelines.figures()),
    "The CNN of 100 layers": lambda: table(convolutions.figures()),
    "Parameters, gradients, optimisers": lambda: table(training.figures()),
    "Commonly taught": lambda: table(taught.figures()),
    "Parameters": shares.counts,
    "Savings of √n per network": lambda: "\n\n".join([SHARES, shares.claims()]),
}
SHARES = """The claims: √n checkpointing saves 57 % of the memory of training ResNet-152, 54 % of
ViT-B/16, 58 % of GPT-2 774M and 57 % of LLaMA-7B; which memory, and at which batch, is not stated.
Here each is in float32 with Adam, at 224 pixels or the full context: for activations alone (the
peak of resident forward values), and for the total, with parameters, moments, gradients (each
consumed once computed) and workspace. The batch is the smallest at which √n saves the claimed share
of the total. *Block by block* keeps the values passed between blocks. The budget is store-all's
peak less the claimed share, planned by the policy greedy on FLOPs: the claimed saving costs very
little."""


def section(title: str) -> str:
    """Return a section of the page."""
    return f"## {title}\n\n{SECTIONS[title]()}\n"


def page() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *map(section, SECTIONS)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
