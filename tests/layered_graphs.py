"""Random layered graphs: the synthetic benchmark of papers on ordering and rematerialization.

Source: Gagrani et al., "Neural topological ordering for computation graphs", NeurIPS 2022, arXiv
2207.05899, appendix A, by way of a public implementation of its layers and edges. How wide the
instances of the Moccasin paper are (Bartan et al., ICML 2023, arXiv 2304.14463), and that costs are
whole numbers below 1,000, is read off published files of such instances (GitHub,
haoming-codes/moccasin); the mixture of sizes is checked against them.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor
from random import Random

from tinyckpt.base.spec import Spec
from tinyckpt.core.graph import DataNode, Graph, Operator
from tinyckpt.documents.verifier import check_graph

# Widths of the instances of the Moccasin paper, by their numbers of operators.
WIDTHS = {100: 0.27, 250: 0.43, 500: 0.36, 1000: 0.31}
VARIABILITY = 0.75  # of the operators in a layer, around the mean
EDGE_DENSITY = 0.2  # between neighbouring layers: from as few as join all, 0, to all, 1
SKIP_DENSITY = 0.14  # share of edges that skip a layer
# Sizes are sampled from a mixture of normals, truncated at 0: weight, mean, deviation, in kB.
SIZES = ((0.3, 0.5, 0.5), (0.3, 1.0, 1.0), (0.3, 3.0, 1.0), (0.1, 5.0, 1.0))
GRAIN = 10  # bytes, of which sizes are whole numbers
LARGEST_COST = 999


def layered_graph(count: int, seed: int = 0, width: float | None = None) -> Graph:
    """Return a forward graph of ``count`` abstract operators in layers.

    One operator begins, one ends. A layer has between 1/4 and 7/4 of the mean, which ``width``
    sets: of 1,000 operators 0.31 makes about 48 layers of 21. An operator reads operators at about
    the same place of the layer before, and one edge of seven comes from any earlier layer. Each
    makes one value; those that nobody reads are the results, and have to be there at the end. The
    build order is a random one of the legal ones, as papers take it for the order to compare with.

    Args:
        count: how many operators, 4 or more.
        seed: of all that is drawn.
        width: from 0, a chain, to 1, one layer; as in the Moccasin paper if it has such a graph,
            else drawn from 0.25 to 0.5.

    >>> graph = layered_graph(100)
    >>> len(graph.operators), sum(len(operator.inputs) for operator in graph.operators)
    (100, 232)
    """
    random = Random(seed)
    if width is None:
        width = WIDTHS.get(count) or random.uniform(0.25, 0.5)
    layers = layers_of(count, width, random)
    edges = near_edges(layers, random)
    edges |= skipping_edges(layers, len(edges), random)
    inputs: list[list[int]] = [[] for _ in range(count)]
    for start, end in sorted(edges):
        inputs[end].append(start)
    order = random_order(inputs, random)
    place = {operator: position for position, operator in enumerate(order)}
    reads = [sorted(place[start] for start in inputs[operator]) for operator in order]
    sizes = [drawn_size(random) for _ in order]
    costs = [random.randint(0, LARGEST_COST) for _ in order]
    return forward_graph(f"layered:{count}", reads, sizes, costs)


def layers_of(count: int, width: float, random: Random) -> list[range]:
    """Return the operators of each layer: one in the first and in the last."""
    depth = ceil((count * (1 / width - 1)) ** 0.5)
    low = max(1, ceil(count / depth * (1 - VARIABILITY)))
    high = max(low, floor(count / depth * (1 + VARIABILITY)))
    layers, begin = [range(1)], 1
    while begin < count - 1:
        end = min(begin + random.randint(low, high), count - 1)
        layers.append(range(begin, end))
        begin = end
    return [*layers, range(count - 1, count)]


def near_edges(layers: list[range], random: Random) -> set[tuple[int, int]]:
    """Return edges between neighbouring layers.

    Each operator of the wider layer is joined to some that follow each other in the other one,
    around the same place. As many as the density asks for are shared out as evenly as can be.
    """
    edges = set()
    for before, after in pairwise(layers):
        wide, narrow = (before, after) if len(before) >= len(after) else (after, before)
        wanted = EDGE_DENSITY * len(wide) * len(narrow) + (1 - EDGE_DENSITY) * len(wide)
        each, more = divmod(floor(wanted), len(wide))
        lucky = set(random.sample(range(len(wide)), more))
        for position, operator in enumerate(wide):
            degree = each + (position in lucky)
            centre = ceil(position * (len(narrow) - 1) / max(len(wide) - 1, 1))
            first = centre - (degree - 1) // 2
            for other in range(max(first, 0), min(first + degree, len(narrow))):
                pair = (operator, narrow[other])
                edges.add(pair if wide is before else pair[::-1])
    return edges


def skipping_edges(layers: list[range], count: int, random: Random) -> set[tuple[int, int]]:
    """Return edges that skip one or more layers, to about the same position or a little after.

    Args:
        layers: as above.
        count: of the edges that pass over none.
        random: what to draw from.
    """
    edges: set[tuple[int, int]] = set()
    if len(layers) < 4:
        return edges
    for _ in range(ceil(count * SKIP_DENSITY / (1 - SKIP_DENSITY))):
        before = random.randint(0, len(layers) - 4)
        after = random.randint(before + 2, len(layers) - 2)
        share = random.random()
        behind = min(share + 0.2 * random.random(), 0.999)
        start = layers[before][floor(share * len(layers[before]))]
        edges.add((start, layers[after][floor(behind * len(layers[after]))]))
    return edges


def random_order(inputs: list[list[int]], random: Random) -> list[int]:
    """Return a random topological order of the operators."""
    readers: list[list[int]] = [[] for _ in inputs]
    for operator, values in enumerate(inputs):
        for value in values:
            readers[value].append(operator)
    awaited = [len(values) for values in inputs]
    ready = [operator for operator, values in enumerate(inputs) if not values]
    order = []
    while ready:
        operator = ready.pop(random.randrange(len(ready)))
        order.append(operator)
        for reader in readers[operator]:
            awaited[reader] -= 1
            if not awaited[reader]:
                ready.append(reader)
    return order


def drawn_size(random: Random) -> int:
    """Return a random size in bytes."""
    while True:
        _, mean, deviation = random.choices(SIZES, [weight for weight, _, _ in SIZES])[0]
        size = GRAIN * round(1000 * random.gauss(mean, deviation) / GRAIN)
        if size > 0:
            return size


def forward_graph(
    name: str, reads: list[list[int]], sizes: list[int], costs: list[int] | None = None
) -> Graph:
    """Return a graph of abstract operators with one output each; unread outputs are its results.

    Args:
        name: of the graph.
        reads: for each operator the operators whose results it reads, all before it.
        sizes: of each result, in bytes.
        costs: of each operator; 1 each if not given.
    """
    data, operators = [], []
    for index, (values, size) in enumerate(zip(reads, sizes, strict=True)):
        spec = Spec((size,), "uint8")
        data.append(DataNode(index, f"v{index}", spec, "activation", size, producer=index))
        cost = None if costs is None else costs[index]
        operators.append(Operator(index, f"o{index}", "layer", tuple(values), (index,), cost=cost))
    read = {value for values in reads for value in values}
    results = [index for index in range(len(reads)) if index not in read]
    graph = Graph(name, tuple(data), tuple(operators), results=results)
    check_graph(graph)
    return graph
