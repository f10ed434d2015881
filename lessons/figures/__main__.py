"""Write docs/figures.md: published figures about activation memory, and which of them come out.

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

What papers, reports and lessons say of the memory of activations, and what a graph yields. Every
number of the columns *counted* and *measured* was computed when this page was written, and so was
each yes and no: `python -m lessons.figures` writes it, and a test compares.

*Counted* is what `replay` says of a schedule, from shapes alone. *Measured* is what a process does,
where the network fits: `tracemalloc` around the compiled program, the trace of `tc.run`, or the
parameters after a step. What a process holds of each network, resident memory included, is in
`benchmarks/results/memory.md`.

Not here, because they are of things that tinyckpt does not have: tensor and sequence parallelism,
and numbers of 8 bits that are computed with (COAT). Nor what was measured on others' machines.
"""
SECTIONS = {
    "What recomputation takes": lambda: table(recomputation.figures()),
    "Where a transformer's activations go": lambda: "\n\n".join(
        [
            table(transformers.figures()),
            "Term by term, at 16 bits, for GPT-3's shape (s = 2,048, a = 96, h = 12,288):",
            transformers.terms(),
            "The core's primitives keep what the paper's do, but for the mask: dropout draws it "
            "again. What a causal softmax hides it hides anew, too. [Attention](attention.md) has "
            "the fused form, which keeps nothing that grows with s²; [what is kept, beside "
            "PyTorch](saved.md) a block as it is trained.",
        ]
    ),
    "What approximate derivatives save": lambda: "\n\n".join(
        [
            table([*approximate.figures(), *fits.figures()]),
            "Slice by slice, in units of b n c at 16 bits, what norms read at 32:",
            approximate.slices(),
            "*Rewritten* is `tc.rewrite`: an activation keeps two bits an element, an eighth of "
            "16, and a norm what linear layers keep in any case. Left out are numbers of a row, "
            "such as a norm's deviation. The activation's derivative is approximate, the norm's "
            "exact.",
        ]
    ),
    "Codes of few bits": lambda: table(codes.figures()),
    "Offload": lambda: table(offload.figures()),
    "Pipelines": lambda: table(pipelines.figures()),
    "The CNN of 100 layers": lambda: table(convolutions.figures()),
    "Parameters, gradients, optimisers": lambda: table(training.figures()),
    "Commonly taught": lambda: table(taught.figures()),
    "Parameters": shares.counts,
    "What √n saves of a network": lambda: "\n\n".join([SHARES, shares.claims()]),
}
SHARES = """Elsewhere it is said that √n checkpointing saves 57 % of the memory of training
ResNet-152, 54 % of ViT-B/16, 58 % of GPT-2 774M and 57 % of LLaMA-7B; of which memory, and at which
batch, is not said. Here each in float32 with Adam, at 224 pixels or the full context: of
activations alone (what is held of the forward half, at its most), and of everything, with
parameters, moments, gradients (each consumed once it is there) and workspace. The batch is the
smallest at which √n saves the claimed share of everything. *Block by block* keeps what blocks hand
on. The budget leaves the claimed share of store-all's peak away, and its plan is the policy
greedy's, by FLOPs: what is claimed can be had for very little."""


def section(title: str) -> str:
    """Return a section of the page."""
    return f"## {title}\n\n{SECTIONS[title]()}\n"


def page() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *map(section, SECTIONS)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
