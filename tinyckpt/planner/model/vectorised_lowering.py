"""Vectorised lowering, from live ranges to steps; dead recomputation elimination.

What ``core.lowering`` says in a loop over an order, NumPy does here for orders of a million
evaluations. In: a graph and an order. Out: the same schedule, or the order without its dead
recomputations, whose results nothing reads; or the values that it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Schedule, Step, compute, free, update
from tinyckpt.ops.non_recomputable import drop_once_repeats
from tinyckpt.planner.model.liveness import FlatGraph, LiveRanges


def lower(
    graph: Graph,
    order: Sequence[int],
    policy: str = "order",
    options: Mapping[str, Any] | None = None,
    note: str = "",
) -> Schedule:
    """Lower an order as ``core.lowering.from_order`` does, but faster; and find its checkpoints."""
    flat = FlatGraph(graph)
    positions = flat.settled(np.asarray(order, np.int64))
    steps = steps_of(flat, positions, flat.spans(positions))
    kept = tuple(sorted(checkpoints_of_order(graph, order)))
    return Schedule(graph, steps, policy, dict(options or {}), note, kept)


def from_order_eliminating_dead(
    flat: FlatGraph,
    order: Sequence[int],
    policy: str,
    options: Mapping[str, Any],
    note: str,
    checkpoints: Sequence[int],
) -> Schedule:
    """Lower an order as ``from_order``, after dead recomputation elimination."""
    positions, spans = eliminate_dead(flat, order)
    steps = steps_of(flat, positions, spans)
    return Schedule(flat.graph, steps, policy, dict(options), note, tuple(sorted(checkpoints)))


def eliminate_dead_order(
    flat: FlatGraph, order: Sequence[int] | Integers, keep_first: bool = False
) -> Integers:
    """Eliminate the dead recomputations of an order, as ``eliminate_dead_recomputations``.

    Raises:
        ScheduleError: if an operator precedes the producer of one of its inputs, or a result is
            never computed.
    """
    return eliminate_dead(flat, order, keep_first)[0]


def eliminate_dead(
    flat: FlatGraph, order: Sequence[int] | Integers, keep_first: bool = False
) -> tuple[Integers, LiveRanges]:
    """Eliminate dead recomputations; return the order and its live ranges, fast if none is dead."""
    positions = flat.settled(np.asarray(order, np.int64))
    spans = flat.spans(positions)
    if has_dead(flat, positions, spans):
        positions = np.asarray(
            eliminate_dead_recomputations(flat.graph, positions.tolist(), keep_first), np.int64
        )
        spans = flat.spans(positions)
    return positions, spans


def has_dead(flat: FlatGraph, order: Integers, spans: LiveRanges) -> bool:
    """Whether some recomputed operator has an evaluation whose outputs are never read."""
    is_read = np.zeros(len(order), bool)
    is_read[spans.begin[spans.end > spans.begin]] = True
    times = np.bincount(order, minlength=len(flat.graph.operators))
    return bool(((times[order] > 1) & ~is_read).any())


def steps_of(flat: FlatGraph, order: Integers, spans: LiveRanges) -> tuple[Step, ...]:
    """Emit the evaluations in order, each followed by the frees of the live ranges ending there."""
    ends = np.flatnonzero(spans.end < len(order))
    # Spans are sorted by value, and so are the frees after one evaluation.
    ends = ends[np.argsort(spans.end[ends], kind="stable")]
    # Step numbers: the i-th free is preceded by the evaluations 0 to its span's end, and i frees.
    is_free = np.zeros(len(order) + len(ends), bool)
    is_free[spans.end[ends] + 1 + np.arange(len(ends))] = True
    steps = np.empty(len(is_free), object)
    evaluations = interned_steps(compute, order)
    if flat.updates is not None:
        is_update = np.isin(order, list(flat.updates.source))
        evaluations[is_update] = interned_steps(update, order[is_update])
    steps[~is_free] = evaluations
    steps[is_free] = interned_steps(free, spans.data[ends])
    return tuple(steps.tolist())


def interned_steps(kind: Callable[[int], Step], numbers: Integers) -> Any:
    """Map ids to steps of one kind, as an object array; equal steps are one object."""
    count = int(numbers.max(initial=-1)) + 1
    steps = np.empty(count, object)
    steps[:] = list(map(kind, range(count)))
    return steps[numbers]


def eliminate_dead_recomputations(
    graph: Graph, order: Sequence[int], keep_first: bool = False
) -> list[int]:
    """Eliminate dead recomputations, in one backward pass over the order (dead code elimination).

    A recomputation is dead if nothing reads its outputs before the operator is evaluated anew. One
    evaluation of each operator always stays; with ``keep_first`` its first, so that the order of
    first evaluations stays as well. Repeats of non-recomputable operators are dropped too.
    """
    order = drop_once_repeats(graph, np.asarray(order, np.int64)).tolist()
    times = [0] * len(graph.operators)
    for index in order:
        times[index] += 1
    wanted = bytearray(len(graph.data))
    for data in graph.outputs:
        wanted[data] = 1
    live: list[int] = []
    for index in reversed(order):
        operator = graph.operators[index]
        is_dead = times[index] > 1 and not any(wanted[data] for data in operator.outputs)
        times[index] -= is_dead or keep_first
        if is_dead:
            continue
        live.append(index)
        for data in operator.outputs:
            wanted[data] = 0
        for data in operator.inputs:
            wanted[data] = 1
    live.reverse()
    return live


def saved_values_of_order(graph: Graph, order: Sequence[int] | Integers) -> list[int]:
    """Find the values that an order saves: evaluated once, and read in the backward sweep."""
    positions = drop_once_repeats(graph, np.asarray(order, np.int64))
    spans = FlatGraph(graph).spans(positions)
    is_backward = positions >= graph.forward_count
    turn = int(np.argmax(is_backward)) if is_backward.any() else len(positions)
    times = np.bincount(spans.data, minlength=len(graph.data))
    saved = spans.data[(spans.begin < turn) & (spans.end >= turn) & (times[spans.data] == 1)]
    outputs = set(graph.outputs)
    return [data for data in saved.tolist() if data not in outputs]


def checkpoints_of_order(graph: Graph, order: Sequence[int] | Integers) -> list[int]:
    """Find the checkpoints of an order: saved values that others are recomputed from.

    What is saved for a backward operator alone is none; an order without recomputations has none.
    """
    positions = drop_once_repeats(graph, np.asarray(order, np.int64))
    repeated = np.delete(positions, np.unique(positions, return_index=True)[1])
    read = {data for i in np.unique(repeated).tolist() for data in graph.operators[i].inputs}
    return [data for data in saved_values_of_order(graph, order) if data in read]
