"""Micro-batches: the equal parts that a batch can be split into, and whether gradients add up.

The gradients of micro-batches add up to those of the whole batch if the loss is a mean over samples
of a term that depends on one sample only. That is proven by batch-axis propagation: see
``batch_axis``.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any, Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import build
from tinyckpt.networks.network import Network
from tinyckpt.techniques.batch_axis import AxisPlace, places
from tinyckpt.techniques.chunked_evaluation import compare

# Of the gradients of micro-batches, relative to the whole batch's. "unproven" is "rounded" if the
# loss is a mean over samples, which cannot be proven here for every loss, nor for every operator.
Exactness = Literal["rounded", "unproven", "approximate"]

BATCH_NORM = "batch_norm"
RANDOM = ("dropout", "seeded_dropout", "encode")
NOT_PROVEN: tuple[Exactness, str] = "unproven", "if the loss is a mean over samples"


def divisors(network: Network) -> list[int]:
    """Return the numbers of micro-batches that a batch can be split into, ascending from 2.

    The batch is the first axis, if that is of one size in all data but scalars. If there is none,
    or of one sample, there is no such number.

    >>> import tinyckpt as tc
    >>> divisors(tc.networks.mlp(2, 4, batch=12))
    [2, 3, 4, 6, 12]
    """
    sizes = {spec.shape[0] for spec in leaves(network.specs[1:]) if spec.shape}
    if len(sizes) != 1:
        return []
    (size,) = sizes
    small = [count for count in range(1, isqrt(size) + 1) if size % count == 0]
    return sorted({*small, *(size // count for count in small)} - {1})


def micro_network(network: Network, count: int) -> Network:
    """Return the network of one micro-batch, of which there are ``count``."""

    def part(spec: Any) -> Any:
        if not spec.shape:
            return spec
        return type(spec)((spec.shape[0] // count, *spec.shape[1:]), spec.dtype)

    specs = (network.specs[0], *map_leaves(part, tuple(network.specs[1:])))
    return Network(network.name, network.loss, specs)


def gradient_exactness(network: Network, count: int) -> tuple[Exactness, str]:
    """Classify the exactness of gradients when a batch is split into micro-batches, and why.

    They equal those of the whole batch if the loss is a mean over samples of a term that depends
    on one sample only, so that no operator before looks across the batch. That is decided by the
    rules of ``tc.chunked``.
    """
    graph = build(network.loss, *network.specs)
    if any(operator.kind == BATCH_NORM for operator in graph.operators):
        return "approximate", "batch norm sees a part alone"
    if any(operator.kind in RANDOM for operator in graph.operators):
        return "approximate", "each part draws by itself"
    part = micro_network(network, count)
    try:
        proven = is_mean_of_samples(graph, build(part.loss, *part.specs))
    except GraphError:
        return NOT_PROVEN
    return ("rounded", "") if proven else NOT_PROVEN


def is_mean_of_samples(graph: Graph, part: Graph) -> bool:
    """Whether a loss is proven to be a mean over a batch of terms of one sample each.

    Args:
        graph: the loss of the whole batch.
        part: the loss of a micro-batch, which must be the same but for the mean.

    Raises:
        GraphError: names an operator that looks across the batch, or may, or that differs for a
            micro-batch.
    """
    means = [sum_of_mean(each) for each in (graph, part)]
    if means[0] is None or means[1] is None:
        return False
    total, divisor = means[0]
    batch = [data for data in leaves(graph.arguments[1:]) if graph.data[data].spec.shape]
    sources = {data: AxisPlace(0, 1, graph.data[data].spec.shape[0]) for data in batch}
    before, piece = (
        replace(
            each,
            operators=each.operators[: own[0].id],
            constants={data: value for data, value in each.constants.items() if data != own[1]},
        )
        for each, own in ((graph, (total, divisor)), (part, means[1]))
    )
    found = places(before, sources)
    compare(before, piece, found, part.data[batch[0]].spec.shape[0])
    place = found[total.inputs[0]]
    return place is not None and place.axis in total.attrs["axes"]


def sum_of_mean(graph: Graph) -> tuple[Operator, int] | None:
    """Match a loss of the form sum / count: return the sum, and the data id of the count.

    None if the loss is no such mean.
    """
    results = leaves(graph.results)
    last = made_by(graph, results[0]) if len(results) == 1 else None
    if last is not None and last.kind == "cast":
        last = made_by(graph, last.inputs[0])
    if last is None or last.kind != "divide":
        return None
    total, divisor = made_by(graph, last.inputs[0]), graph.constants.get(last.inputs[1])
    if total is None or total.kind != "sum" or divisor is None:
        return None
    terms = graph.data[total.inputs[0]].spec.size / max(graph.data[total.outputs[0]].spec.size, 1)
    if divisor.size != 1 or float(divisor.ravel()[0]) != terms:
        return None
    return total, last.inputs[1]


def made_by(graph: Graph, data: int) -> Operator | None:
    """Return the producer of a value; None for a source."""
    producer = graph.data[data].producer
    return None if producer is None else graph.operators[producer]
