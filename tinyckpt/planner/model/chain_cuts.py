"""Placement of the cuts between chain stages: at residuals, or at local minima of crossing memory.

Both are lists of forward operators after which to cut, for ``chain_stages.stages``. Rotor cuts at
the residuals, of which it saves some; planners of equal stages cut where the least memory crosses.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.core.costs import Costs
from tinyckpt.planner.model.liveness import FlatGraph


def last_forward_readers(flat: FlatGraph) -> Integers:
    """Return for each value the last forward operator that reads it, or -1."""
    last = np.full(len(flat.producer), -1)
    reads, readers = flat.reads.take(np.arange(flat.graph.forward_count))
    last[reads] = readers  # ascending: NumPy keeps the last assignment of an index
    return last


def residual_cuts(flat: FlatGraph, costs: Costs, most: int = 200) -> list[int]:
    """Return cuts after every operator whose outputs the backward pass reads.

    A checkpoint at such a cut is also a residual. If there are more than ``most`` cuts, they are
    divided into ``most`` runs of equal length, and each run keeps the cut of least crossing memory:
    no part of the graph is left without a cut, whatever the sizes of its values.

    Args:
        flat: a training graph.
        costs: the sizes of the values.
        most: the largest number of cuts.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(6)
    >>> residual_cuts(FlatGraph(graph), tc.cost.evaluations(graph), most=3)
    [0, 1, 3]
    """
    graph = flat.graph
    places = [
        operator.id
        for operator in graph.operators[: max(graph.forward_count - 1, 0)]
        if any(
            graph.consumers[data] and graph.consumers[data][-1] >= graph.forward_count
            for data in operator.outputs
        )
    ]
    if len(places) <= most:
        return places
    weights = crossing_weights(flat, costs)
    edges = [len(places) * run // most for run in range(most + 1)]
    return [min(places[a:b], key=lambda place: weights[place]) for a, b in pairwise(edges)]


def crossing_weights(flat: FlatGraph, costs: Costs) -> Integers:
    """Return the memory that crosses the cut after each forward operator but the last.

    A view that crosses keeps its base alive.
    """
    graph = flat.graph
    last = last_forward_readers(flat)
    if costs.memory_unit == "bytes":
        for node in reversed([node for node in graph.data if node.view_of is not None]):
            last[node.view_of] = max(last[node.view_of], last[node.id])
    live = np.flatnonzero((flat.producer >= 0) & (last > flat.producer))
    size = np.array(costs.data, np.int64)[live]
    change = np.zeros(graph.forward_count + 1, np.int64)
    np.add.at(change, flat.producer[live], size)
    np.subtract.at(change, last[live], size)
    return np.cumsum(change)[: max(graph.forward_count - 1, 0)]


def local_minimum_cuts(flat: FlatGraph, costs: Costs, reach: int = 1) -> list[int]:
    """Return the cuts whose crossing memory is a local minimum.

    On a chain of blocks these are the separators between the blocks; where there are none, as in a
    U-Net, they are the smallest cuts of several values.

    Args:
        flat: a training graph.
        costs: the sizes of the values.
        reach: over how many cuts, before and after, each is the minimum.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(3)
    >>> local_minimum_cuts(FlatGraph(graph), tc.cost.evaluations(graph))
    [0, 1]
    """
    weights = crossing_weights(flat, costs)
    if not len(weights):
        return []
    padded = np.pad(weights, reach, mode="edge")
    least = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).min(axis=1)
    cuts: list[int] = np.flatnonzero(weights <= least).tolist()
    return cuts
