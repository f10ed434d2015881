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
    ### BEGIN SOLUTION
    # Task 6.1: return the saved tensors of attention, with their bytes and FLOPs.
    s, b, h, a = layer
    product, scores, weights = 2 * s * b * h * h, 2 * s * s * b * h, a * s * s * b
    return [
        Saved("input of q, k, v", "attention", 2 * s * b * h, s * b * h),
        *(Saved(name, "attention", 2 * s * b * h, product) for name in "qkv"),
        Saved("softmax", "core", 2 * weights, scores + weights),
        Saved("mask of softmax", "core", weights, weights),
        Saved("dropout of softmax", "core", 2 * weights, weights),
        Saved("input of projection", "attention", 2 * s * b * h, scores),
        Saved("mask of attention", "attention", s * b * h, s * b * h),
    ]
    ### END SOLUTION


def mlp(layer: Layer) -> list[Saved]:
    """Return the saved tensors of the MLP, in the order of the table."""
    ### BEGIN SOLUTION
    # Task 6.2: return the saved tensors of the MLP, with their bytes and FLOPs.
    s, b, h, _ = layer
    return [
        Saved("input of fc1", "MLP", 2 * s * b * h, s * b * h),
        Saved("input of gelu", "MLP", 8 * s * b * h, 8 * s * b * h * h),
        Saved("input of fc2", "MLP", 8 * s * b * h, 4 * s * b * h),
        Saved("mask of MLP", "MLP", s * b * h, s * b * h),
    ]
    ### END SOLUTION


def saved(layer: Layer) -> list[Saved]:
    """Return all saved tensors of a layer, in the order of the table."""
    ### BEGIN SOLUTION
    # Task 6.3: add the inputs of the norms.
    s, b, h, _ = layer
    first = Saved(KEPT, "norms", 2 * s * b * h, 0)
    second = Saved("input of norm 2", "norms", 2 * s * b * h, 2 * s * b * h * h + 2 * s * b * h)
    return [first, *attention(layer), second, *mlp(layer)]
    ### END SOLUTION


def step_flops(layer: Layer) -> int:
    """Return the FLOPs of a layer in a training step: its products, forward and twice backward."""
    s, b, h, _ = layer
    return 3 * (24 * s * b * h * h + 4 * s * s * b * h)


def selective(layer: Layer) -> tuple[Fraction, Fraction]:
    """Return which share of a layer's bytes the core is, and of its step's FLOPs its recomputation.

    Exact: no rounding.
    """
    ### BEGIN SOLUTION
    # Task 6.4: add up the core, and divide by what all of the layer takes.
    tensors = saved(layer)
    core = [tensor for tensor in tensors if tensor.kind == "core"]
    nbytes = sum(tensor.nbytes for tensor in tensors)
    return (
        Fraction(sum(tensor.nbytes for tensor in core), nbytes),
        Fraction(sum(tensor.flops for tensor in core), step_flops(layer)),
    )
    ### END SOLUTION


def recompute_flops(layer: Layer, plan: Plan) -> int:
    """Return the FLOPs of all recomputations of a plan."""
    return sum(tensor.flops for names in plan for tensor in saved(layer) if tensor.name in names)


def peak_bytes(layer: Layer, plan: Plan) -> int:
    """Return the most bytes of saved and recomputed tensors that are in memory at once.

    In the backward pass of a layer these are what it and those before it have saved, and what it
    recomputes.
    """
    ### BEGIN SOLUTION
    # Task 6.5: find the layer in whose backward pass most is in memory.
    total = sum(tensor.nbytes for tensor in saved(layer))
    peak = below = 0  # bytes that the layers before have saved
    for names in plan:
        peak = max(peak, below + total)
        below += sum(tensor.nbytes for tensor in saved(layer) if tensor.name not in names)
    return peak
    ### END SOLUTION


def choose(layer: Layer, layers: int, budget: int) -> list[set[str]]:
    """Return the plan with the fewest FLOPs whose peak is within a budget, in bytes.

    A knapsack, solved exactly by dynamic programming. If recomputing all does not meet the budget,
    a ValueError says what it would take.
    """
    ### BEGIN SOLUTION
    # Task 6.6: for each number of bytes, keep the cheapest way to free them.
    plan: list[set[str]] = [set() for _ in range(layers)]
    need = peak_bytes(layer, plan) - budget  # bytes to free
    # Of each number of bytes: the fewest FLOPs that free them, and what to recompute.
    best: dict[int, tuple[int, tuple[tuple[int, str], ...]]] = {0: (0, ())}
    for number in range(layers - 1):  # recomputing the last layer frees nothing
        for name, _, nbytes, flops in saved(layer):
            if name == KEPT:
                continue
            for freed, (spent, chosen) in list(best.items()):
                known = best.get(freed + nbytes)
                if known is None or spent + flops < known[0]:
                    best[freed + nbytes] = spent + flops, (*chosen, (number, name))
    enough = [(spent, freed) for freed, (spent, _) in best.items() if freed >= need]
    if not enough:
        least = peak_bytes(layer, plan) - max(best)
        raise ValueError(f"{layers} layers take {least} bytes at least, and the budget is {budget}")
    _, freed = min(enough)
    for number, name in best[freed][1]:
        plan[number].add(name)
    return plan
    ### END SOLUTION
