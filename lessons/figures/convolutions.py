"""The 100-layer CNN whose reported saving was not due to checkpointing."""

from __future__ import annotations

from typing import Any

import tinyckpt as tc
from lessons.figures.figure import MIB, Figure, measured, mib
from tinyckpt.networks import cnn100, cnn100_logits
from tinyckpt.networks.layers import loss_of_logits
from tinyckpt.networks.network import Network

SOURCE, SIZES = "the report", "its shapes"
BATCH, LAYERS = 64, 100
REPORTED = {2: 854, 4: 686, 8: 609, 16: 590, 32: 580}  # MiB, by segments
NEAR = 0.04  # relative tolerance to the reported memory
CORRECT = 1010.3  # MiB
MODULES = 1 + 3 * LAYERS  # in sequence: the stem; a hundred times convolution, relu, pooling


def figures() -> list[Figure]:
    """Return the rows."""
    network = cnn100(BATCH)
    graph = network.graph()
    small = cnn100(32, layers=4, width=32)
    saved = saved_by_pytorch(cnn100(1))
    return [
        Figure(
            "7,974,976 bytes are saved per image",
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
    """Return the bytes saved up to the first affine layer, with PyTorch's indices of 8 bytes."""
    graph = network.graph()
    total = graph.data[graph.arguments[1]].spec.nbytes  # the image
    for operator in graph.operators[: graph.forward_count]:
        sizes = [graph.data[data].spec for data in operator.outputs]
        if operator.kind in ("relu", "max_pool") or operator.name == "conv2d_1":
            total += sizes[0].nbytes + sum(8 * spec.size for spec in sizes[1:])
    return total


def layers_of_last(segments: int) -> int:
    """Return the number of convolutions in the last segment of ``checkpoint_sequential``."""
    begin = (MODULES // segments) * (segments - 1)
    return sum(1 + 3 * layer >= begin for layer in range(LAYERS))


def impossible(graph: tc.TrainingGraph) -> Figure:
    """Return the row of a lower bound on the memory of training."""
    parameters = sum(node.nbytes for node in graph.data if node.role == "parameter")
    gradients = sum(graph.data[data].nbytes for data in tc.tree.leaves(graph.gradients))
    least = min(REPORTED.values())
    return Figure(
        f"with 32 segments it trains in {least} MiB",
        SOURCE,
        f"parameters {mib(parameters)}, with gradients {mib(parameters + gradients)}",
        parameters + gradients <= least * MIB,
        "Parameters and gradients alone exceed it, so not all of them can have been trained.",
    )


def steady(network: Network, segments: int) -> tuple[int, int]:
    """Return the peak and the trained tensors where only the last segment trains.

    The image requires no gradient, so the checkpointed segments run without one. Resident in the
    steady state are all parameters, and the gradients and momenta of the last segment. The peak is
    in the evaluation of the first layers, of which only the next layer's input is resident.
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
    trained = sum(spec.nbytes for spec in tc.tree.leaves(last))
    total = graph.source_bytes + 2 * trained + max(trace.activation)
    return total, len(tc.tree.leaves(last))


def only_the_last(network: Network, segments: int, claim: int) -> Figure:
    """Return the row of one number of segments."""
    total, tensors = steady(network, segments)
    return Figure(
        f"{segments} segments: {claim} MiB",
        SOURCE,
        f"{mib(total)} if {tensors} of {len(tc.tree.leaves(network.specs[0]))} tensors train",
        abs(total / MIB / claim - 1) < NEAR,
        "Within 4 %, and only so: the image required no gradient, and the last segment alone "
        "trained. The saving is in gradients and momenta.",
    )


def correct(graph: tc.TrainingGraph) -> Figure:
    """Return the row of correct checkpointing; without batch, workspace and optimiser."""
    parameters = sum(node.nbytes for node in graph.data if node.role == "parameter")
    totals = []
    for segments in (1, *REPORTED):
        options = {} if segments == 1 else {"segments": segments}
        trace = tc.replay(tc.plan(graph, "sqrt_n" if options else "store_all", **options))
        values = [live - work for live, work in zip(trace.live_bytes, trace.workspace, strict=True)]
        totals.append((parameters + max(values)) / MIB)
    each = ", ".join(f"{total:,.1f}" for total in totals)
    return Figure(
        f"correct checkpointing saves nothing: {CORRECT:,} MiB for every number of segments",
        SIZES,
        f"{each} MiB for 1, {', '.join(map(str, REPORTED))} segments",
        {round(total, 1) for total in totals} == {CORRECT},
        "The peak is in the first layer's adjoint, with nearly every gradient live. The momenta "
        "would add 351.7 MiB.",
    )
