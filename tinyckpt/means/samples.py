"""Batches in parts: how many there can be, and whether they add up to the whole."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any

from tinyckpt.approx.chunked import compare
from tinyckpt.approx.following import Place, places
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.build import build
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.means.case import Gradients
from tinyckpt.networks import Network

BATCH_NORM = "batch_norm"
RANDOM = ("dropout", "seeded_dropout", "encode")
NOT_PROVEN: tuple[Gradients, str] = "unproven", "if the loss is a mean over samples"


def divisors(network: Network) -> list[int]:
    """Return into how many parts a batch can be divided, two or more, ascending.

    Raises:
        GraphError: if it cannot.
    """
    found = parts_of(network)
    if not found:
        raise GraphError("its data have no batch in common that could be parted")
    return found


def parts_of(network: Network) -> list[int]:
    """Return what ``divisors`` does; nothing where there is no batch to be divided.

    The batch is the first axis that all data have, single numbers aside.
    """
    sizes = {spec.shape[0] for spec in leaves(network.specs[1:]) if spec.shape}
    if len(sizes) != 1:
        return []
    (size,) = sizes
    small = [count for count in range(1, isqrt(size) + 1) if size % count == 0]
    return sorted({*small, *(size // count for count in small)} - {1})


def micro_specs(specs: Any, count: int) -> Any:
    """Return the specs of one micro-batch."""

    def part(spec: Any) -> Any:
        if not spec.shape:
            return spec
        return type(spec)((spec.shape[0] // count, *spec.shape[1:]), spec.dtype)

    return map_leaves(part, tuple(specs))


def parted(network: Network, count: int) -> tuple[Gradients, str]:
    """Return what becomes of gradients when a batch is parted, and why.

    They are those of the whole if the loss is a mean over samples of what each has by itself, so
    that no operator before looks across the batch. Rules that tell it are those of ``tc.chunked``.
    """
    graph = build(network.loss, *network.specs)
    if any(operator.kind == BATCH_NORM for operator in graph.operators):
        return "approximate", "batch norm sees a part alone"
    if any(operator.kind in RANDOM for operator in graph.operators):
        return "approximate", "each part draws by itself"
    specs = (network.specs[0], *micro_specs(network.specs[1:], count))
    try:
        proven = is_mean_of_samples(graph, build(network.loss, *specs))
    except GraphError:
        return NOT_PROVEN
    return ("rounded", "") if proven else NOT_PROVEN


def is_mean_of_samples(graph: Graph, part: Graph) -> bool:
    """Whether a loss is proven to be a mean over a batch of what each sample has by itself.

    Args:
        graph: the loss of the whole batch.
        part: that of a part, which has to be the same but for the mean.

    Raises:
        GraphError: names an operator that looks across the batch, or may, or is another for a part.
    """
    means = [sum_of_mean(each) for each in (graph, part)]
    if means[0] is None or means[1] is None:
        return False
    total, divisor = means[0]
    batch = [data for data in leaves(graph.arguments[1:]) if graph.data[data].spec.shape]
    sources = {data: Place(0, 1, graph.data[data].spec.shape[0]) for data in batch}
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
    """Return the sum that a loss divides by the number of its terms, and that number's data id.

    None if it is no such mean.
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
    """Return the operator that makes a value; None of a source."""
    producer = graph.data[data].producer
    return None if producer is None else graph.operators[producer]
