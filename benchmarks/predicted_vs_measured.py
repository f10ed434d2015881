"""Checks of PyTorch plans: predicted against measured peak memory and cost, for ``pytorch.py``.

``theirs`` are outcomes of PyTorch's own plans, by its budgets. ``ours`` are those of tinyckpt's, by
budgets in bytes, each with the predicted peak. ``flops`` are those of store-all.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from training_steps import Outcome

MB = 10**6
MOST = 1.005  # times what is predicted, that a peak may be where kernels are PyTorch's own


def cheaper(
    theirs: Mapping[float, Outcome], ours: Mapping[int, tuple[int, Outcome]], flops: int
) -> str:
    """Say at how many of PyTorch's own peaks plans cost no more than it, by what was measured."""
    dearer = []
    for budget, outcome in theirs.items():
        within = [found.flops for _, found in ours.values() if found.peak <= outcome.peak]
        if not within or min(within) > outcome.flops:
            plan = f"{min(within) / flops:.4f}" if within else "no plan"
            dearer.append(f"{budget:g} ({plan}, PyTorch {outcome.flops / flops:.4f})")
    text = (
        f"At {len(theirs) - len(dearer)} of the {len(theirs)} peaks that PyTorch reaches, plans "
        "within them cost at most as much as PyTorch's"
    )
    return f"{text}; not at {', '.join(dearer)}." if dearer else f"{text}."


def rising(theirs: Mapping[float, Outcome], ours: Mapping[int, tuple[int, Outcome]]) -> str:
    """Say whether measured peaks grow with budgets."""
    texts = []
    for peaks in (
        [theirs[budget].peak for budget in sorted(theirs)],
        [ours[budget][1].peak for budget in sorted(ours)],
    ):
        falls = sum(a > b for a, b in pairwise(peaks))
        most = max((a / b for a, b in pairwise(peaks)), default=0.0)
        texts.append(f"fall {falls} times, to 1/{most:.2f} at most" if falls else "never fall")
    return f"From the smallest budget up, PyTorch's peaks {texts[0]}; those of plans {texts[1]}."


def exact(ours: Mapping[int, tuple[int, Outcome]], promised: bool) -> str:
    """Say how far measured peaks of plans are from what was predicted."""
    if not ours:
        return "No plan was found."
    ratios = [outcome.peak / predicted for predicted, outcome in ours.values()]
    most = f" (promised: {MOST} at most)" if promised else ""
    return (
        f"Measured peaks of plans are {min(ratios):.4f} to {max(ratios):.4f} times the predicted "
        f"ones{most}."
    )


def reached(
    targets: Mapping[int, float], ours: Mapping[int, tuple[int, Outcome]], flops: int
) -> list[str]:
    """Say what the cheapest plan costs within each peak that was promised."""
    lines = []
    for size, most in targets.items():
        within = [found.flops for _, found in ours.values() if found.peak <= size * MB]
        best = f"{min(within) / flops:.4f} times the FLOPs" if within else "no plan"
        lines.append(f"Measured at {size} MB or less: {best} (promised: {most} at most).")
    return lines
