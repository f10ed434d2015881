"""Memory savings of LowMemoryBP in a transformer block: every slice of the published figure.

Units are b n c, the elements of one value of the residual stream. Everything has 16 bits; the
inputs of norms count twice, as in the paper, whose norms read 32 bits. A block is the difference
between networks of two blocks and of one; row statistics, such as a norm's deviation or the
logarithm of a sum, are omitted, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tinyckpt as tc
from lessons.figures.figure import Figure, percent, rows
from tinyckpt.networks import Network, llama, vit

PAPER = "Yang et al. 2024, arXiv 2406.16282"
# The slice of a value: the first of these whose operators read it in the backward pass.
SLICES = {
    "linear layers": ("matmul",),
    "attention: q, k, v and output": ("fused_attention_vjp",),
    "activation": ("gelu_vjp", "silu_vjp", "regelu2_vjp", "resilu2_vjp"),
    "Hadamard product": ("multiply",),
    "norms": (
        "layer_norm_input_vjp", "layer_norm_scale_vjp", "rms_norm_input_vjp", "rms_norm_scale_vjp",
        "ms_norm_vjp",
    ),
}  # fmt: skip
WIDTH = 640
OTHERS = "others"  # of the embedding and the loss: no part of a block


@dataclass(frozen=True, slots=True)
class Block:
    """A published block.

    Attributes:
        make: the network, by the number of its blocks.
        tokens: the sequence length.
        slices: the size of each slice in the paper's figure, in units of b n c.
        saved: the published saving of LowMemoryBP.
    """

    make: Callable[[int], Network]
    tokens: int
    slices: dict[str, float]
    saved: float


BLOCKS = {
    "ViT": Block(
        lambda layers: vit(
            layers, WIDTH, 10, size=16, patch=4, fused=True, dtype="float16", classes=10
        ),
        17,  # 16 patches and the class
        {"linear layers": 7, "attention: q, k, v and output": 4, "activation": 4, "norms": 4},
        0.3947,
    ),
    "LLaMA": Block(
        # A perceptron 2.7 times as wide.
        lambda layers: llama(
            layers, WIDTH, 10, 16, vocabulary=10, hidden=27 * WIDTH // 10, fused=True,
            dtype="float16",
        ),
        16,
        {"linear layers": 5.7, "attention: q, k, v and output": 4, "activation": 2.7,
         "Hadamard product": 5.4, "norms": 4},
        0.2919,
    ),
}  # fmt: skip


def slice_of(graph: tc.Graph, node: tc.DataNode) -> str:
    """Return the slice of a saved value, by the derivatives that read it or a view of it."""
    kinds = set()
    for operator in graph.operators[graph.forward_count :]:
        for data in operator.inputs:
            read = graph.data[data]
            while read.view_of is not None:
                read = graph.data[read.view_of]
            if read.id == node.id:
                kinds.add(operator.kind)
    return next((name for name, readers in SLICES.items() if kinds & set(readers)), OTHERS)


def kept(network: Network) -> dict[str, int]:
    """Return the bytes that a network saves for its backward pass, by slice."""
    graph = network.graph()
    found = dict.fromkeys([*SLICES, OTHERS], 0)
    for node in tc.saved_values(graph):
        # Tokens and labels are integers, and row statistics have 32 bits.
        if node.spec.dtype.name in ("float16", "uint8"):
            found[slice_of(graph, node)] += node.nbytes
    return found


def of_a_block(block: Block, network: Callable[[int], Network]) -> dict[str, float]:
    """Return the saved values of one block of a network, by slice, in units of b n c."""
    one, two = kept(network(1)), kept(network(2))
    unit = 2 * block.tokens * WIDTH
    found = {name: (two[name] - one[name]) / unit for name in one}
    # Inputs of norms have 32 bits in the paper. Shared, they count as inputs of linear layers.
    return {name: units * (1 + (name == "norms")) for name, units in found.items()}


def both(block: Block) -> tuple[dict[str, float], dict[str, float]]:
    """Return the saved values of a block, as it is and rewritten."""
    plain = of_a_block(block, block.make)
    return plain, of_a_block(block, lambda layers: tc.rewrite(block.make(layers)).network)


def figures() -> list[Figure]:
    """Return the rows: the saving per block."""
    found = []
    for name, block in BLOCKS.items():
        plain, rewritten = both(block)
        before, after = sum(plain.values()), sum(rewritten.values())
        share = percent(1 - after / before, 2)
        same = plain["norms"] / 2  # the inputs of norms at 16 bits, as everything else
        narrow = percent(1 - after / (before - same), 2)
        every = all(round(plain[part] - units, 9) == 0 for part, units in block.slices.items())
        found.append(
            Figure(
                f"ReGELU2 or ReSiLU2 and MS norms save {percent(block.saved, 2)} of the activation "
                f"memory of a {name} block",
                PAPER,
                f"{before:g} becomes {after:g}, in units of b n c: {share}",
                every and share == percent(block.saved, 2),
                f"Slice by slice, in the table below. With norms that read 16 bits it is {narrow}.",
            )
        )
    return found


def slices() -> str:
    """Return the table of the slices, in units of b n c."""
    body = []
    for name, block in BLOCKS.items():
        plain, rewritten = both(block)
        for part, units in block.slices.items():
            ours, left = round(plain[part], 9), round(rewritten[part], 9)
            body.append([name, part, f"{units:g}", f"{ours:g}", f"{left:g}"])
        totals = (sum(values.values()) for values in (block.slices, plain, rewritten))
        body.append([name, "total", *(f"{round(total, 9):g}" for total in totals)])
    return rows(("block", "saved value", "paper", "here", "rewritten"), body)
