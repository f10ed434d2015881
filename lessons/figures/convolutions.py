"""The CNN of 100 layers whose reported saving by checkpointing was not one."""

from __future__ import annotations

from typing import Any

import tinyckpt as tc
from lessons.figures.figure import MIB, Figure, measured, mib
from tinyckpt.base.tree import leaves
from tinyckpt.networks import cnn100, cnn100_logits
from tinyckpt.networks.layers import loss_of_logits
from tinyckpt.networks.network import Network

SOURCE, SIZES = "the report on it", "its sizes"
BATCH, LAYERS = 64, 100
REPORTED = {2: 854, 4: 686, 8: 609, 16: 590, 32: 580}  # MiB, by segments
NEAR = 0.04  # of what a process was seen to hold
CORRECT = 1010.3  # MiB
MODULES = 1 + 3 * LAYERS  # of the sequence: the stem; convolution, relu, pooling a hundred times


def figures() -> list[Figure]:
    """Return the rows."""
    network = cnn100(BATCH)
    graph = network.graph()
    small = cnn100(32, layers=4, width=32)
    saved = saved_by_pytorch(cnn100(1))
    return [
        Figure(
            "7,974,976 bytes are saved for an image",
            SIZES,
            f"{saved:,} with indices of 8 bytes",
            saved == 7_974_976,
            "Here an index takes one byte.",
            "4 layers of 32 channels: " + measured(tc.plan(small.graph()), *small.arrays()),
        ),
        impossible(graph),
        *(only_the_last(network, count, claim) for count, claim in REPORTED.items()),
        correct(graph),
    ]


def saved_by_pytorch(network: Network) -> int:
    """Return the bytes kept up to the first affine layer, with indices of PyTorch's 8 bytes."""
    graph = network.graph()
    total = graph.data[graph.arguments[1]].spec.nbytes  # the image
    for operator in graph.operators[: graph.forward_count]:
        sizes = [graph.data[data].spec for data in operator.outputs]
        if operator.kind in ("relu", "max_pool") or operator.name == "conv2d_1":
            total += sizes[0].nbytes + sum(8 * spec.size for spec in sizes[1:])
    return total


def layers_of_last(segments: int) -> int:
    """Return how many convolutions are in the last segment, as ``checkpoint_sequential`` cuts."""
    begin = (MODULES // segments) * (segments - 1)
    return sum(1 + 3 * layer >= begin for layer in range(LAYERS))


def impossible(graph: tc.TrainingGraph) -> Figure:
    """Return the row of what training it takes at least."""
    parameters = sum(node.nbytes for node in graph.data if node.role == "parameter")
    gradients = sum(graph.data[data].nbytes for data in leaves(graph.gradients))
    least = min(REPORTED.values())
    return Figure(
        f"with 32 segments it trains in {least} MiB",
        SOURCE,
        f"parameters {mib(parameters)}, with gradients {mib(parameters + gradients)}",
        parameters + gradients <= least * MIB,
        "Parameters and gradients alone are more, so not all of them can have been trained.",
    )


def steady(network: Network, segments: int) -> tuple[int, int]:
    """Return the bytes held where nothing before the last segment trains, and tensors that do.

    The image requires no gradient, so the checkpointed segments are run without one. In the steady
    state there are the parameters, and of the last segment the gradients and momenta: the peak is
    in the first layers' evaluation, of which nothing is kept but what the next one reads.
    """
    count = layers_of_last(segments)
    parts = dict(network.specs[0])
    last = {"layers": parts["layers"][-count:], "affine": parts["affine"]}
    first = {"first": parts["first"], "layers": parts["layers"][:-count]}

    def loss(last: Any, first: Any, images: Any, labels: Any) -> Any:
        whole = {**last, **first, "layers": [*first["layers"], *last["layers"]]}
        return loss_of_logits(cnn100_logits(whole, images), labels)

    graph = tc.differentiate(tc.build(loss, last, first, *network.specs[1:]))
    trace = tc.replay(tc.plan(graph))
    trained = sum(spec.nbytes for spec in leaves(last))
    total = graph.source_bytes + 2 * trained + max(trace.activation)
    return total, len(leaves(last))


def only_the_last(network: Network, segments: int, claim: int) -> Figure:
    """Return the row of one number of segments."""
    total, tensors = steady(network, segments)
    return Figure(
        f"{segments} segments: {claim} MiB",
        SOURCE,
        f"{mib(total)} if {tensors} of {len(leaves(network.specs[0]))} tensors train",
        abs(total / MIB / claim - 1) < NEAR,
        "Within 4 %, and only so: the image required no gradient, and the last segment alone "
        "trained. What was saved are gradients and momenta.",
    )


def correct(graph: tc.TrainingGraph) -> Figure:
    """Return the row of checkpointing done right; without batch, workspace and optimiser."""
    parameters = sum(node.nbytes for node in graph.data if node.role == "parameter")
    totals = []
    for segments in (1, *REPORTED):
        options = {} if segments == 1 else {"segments": segments}
        trace = tc.replay(tc.plan(graph, "sqrt_n" if options else "store_all", **options))
        values = [live - work for live, work in zip(trace.live_bytes, trace.workspace, strict=True)]
        totals.append((parameters + max(values)) / MIB)
    each = ", ".join(f"{total:,.1f}" for total in totals)
    return Figure(
        f"checkpointing done right saves nothing: {CORRECT:,} MiB for every number of segments",
        SIZES,
        f"{each} MiB for 1, {', '.join(map(str, REPORTED))} segments",
        {round(total, 1) for total in totals} == {CORRECT},
        "The peak is in the first layer's adjoint, with nearly every gradient alive. The momenta "
        "would be 351.7 MiB more.",
    )
