"""Part 6: the saved tensors of a transformer layer, term by term, and what to recompute of them.

In: the sizes of a layer. Out: bytes and FLOPs of each saved tensor, and a choice for each layer
that meets a memory budget with the fewest FLOPs. Bytes are those of training in 16 bit.
Source: Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi and Catanzaro, "Reducing activation
recomputation in large transformer models", 2022, arXiv 2205.05198, section 4.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import NamedTuple


class Layer(NamedTuple):
    """Sizes of a layer, s, b, h and a of the paper: ``s, b, h, a = layer``."""

    tokens: int
    batch: int
    width: int
    heads: int


class Saved(NamedTuple):
    """A tensor that the backward pass of a layer reads.

    ``flops`` is what it takes to recompute it from those above it in the table of the page.
    """

    name: str
    kind: str  # norms, attention, core or MLP
    nbytes: int
    flops: int


Plan = Sequence[Collection[str]]  # the names of the tensors to recompute, of each layer
KEPT = "input of norm 1"  # the layer's input: all others are recomputed from it


def attention(layer: Layer) -> list[Saved]:
    """Return the saved tensors of attention and its core, in the order of the table."""
    raise NotImplementedError(
        "Task 6.1: return the saved tensors of attention, with their bytes and FLOPs."
    )


def mlp(layer: Layer) -> list[Saved]:
    """Return the saved tensors of the MLP, in the order of the table."""
    raise NotImplementedError(
        "Task 6.2: return the saved tensors of the MLP, with their bytes and FLOPs."
    )


def saved(layer: Layer) -> list[Saved]:
    """Return all saved tensors of a layer, in the order of the table."""
    raise NotImplementedError("Task 6.3: add the inputs of the norms.")


def step_flops(layer: Layer) -> int:
    """Return the FLOPs of a layer in a training step: its products, forward and twice backward."""
    s, b, h, _ = layer
    return 3 * (24 * s * b * h * h + 4 * s * s * b * h)


def selective(layer: Layer) -> tuple[Fraction, Fraction]:
    """Return which share of a layer's bytes the core is, and of its step's FLOPs its recomputation.

    Exact: no rounding.
    """
    raise NotImplementedError(
        "Task 6.4: add up the core, and divide by what all of the layer takes."
    )


def recompute_flops(layer: Layer, plan: Plan) -> int:
    """Return the FLOPs of all recomputations of a plan."""
    return sum(tensor.flops for names in plan for tensor in saved(layer) if tensor.name in names)


def peak_bytes(layer: Layer, plan: Plan) -> int:
    """Return the most bytes of saved and recomputed tensors that are in memory at once.

    In the backward pass of a layer these are what it and those before it have saved, and what it
    recomputes.
    """
    raise NotImplementedError("Task 6.5: find the layer in whose backward pass most is in memory.")


def choose(layer: Layer, layers: int, budget: int) -> list[set[str]]:
    """Return the plan with the fewest FLOPs whose peak is within a budget, in bytes.

    A knapsack, solved exactly by dynamic programming. If recomputing all does not meet the budget,
    a ValueError says what it would take.
    """
    raise NotImplementedError(
        "Task 6.6: for each number of bytes, keep the cheapest way to free them."
    )
