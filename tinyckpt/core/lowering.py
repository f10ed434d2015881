"""From an order of evaluations to steps: the one place where ``Free`` steps come from.

What a policy decides is which operator is evaluated when, and which are evaluated again. Once that
order is fixed, memory has one best answer: keep each result exactly until its last reader before
the operator is evaluated anew. So policies return orders, and no policy frees anything by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.core.cuts import without_repeats
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Certificate,
    Fetch,
    Offload,
    Schedule,
    Step,
    compute,
    free,
    update,
)
from tinyckpt.planner.model.liveness import Flat, Spans


def from_order(
    graph: Graph,
    order: Sequence[int],
    policy: str = "order",
    options: Mapping[str, Any] | None = None,
    note: str = "",
    checkpoints: Sequence[int] = (),
    certificate: Certificate | None = None,
) -> Schedule:
    """Return the schedule that evaluates operators in an order and frees as early as it can.

    Args:
        graph: the graph that the order is about.
        order: operator ids; an id that occurs again is a recomputation, and left out if the
            operator may not be evaluated twice: what it makes stays.
        policy, options, note, checkpoints, certificate: what the schedule says of its origin.

    Raises:
        ScheduleError: if an operator comes before something it reads, or a result never comes.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)
    >>> [operator.name for operator in graph.operators]
    ['f1', 'f2', 'l', 'b2', 'b1']
    >>> tc.replay(tc.from_order(graph, [0, 1, 2, 3, 0, 4])).recomputations
    1
    """
    flat = Flat(graph)
    positions = flat.settled(np.asarray(order, np.int64))
    steps = steps_of(flat, positions, flat.spans(positions))
    kept = tuple(sorted(checkpoints))
    return Schedule(graph, steps, policy, dict(options or {}), note, kept, certificate)


def from_order_without_dead(
    flat: Flat,
    order: Sequence[int],
    policy: str,
    options: Mapping[str, Any],
    note: str,
    checkpoints: Sequence[int],
) -> Schedule:
    """Return the schedule of an order whose dead recomputations are left out, as ``from_order``."""
    positions, spans = alive(flat, order)
    steps = steps_of(flat, positions, spans)
    return Schedule(flat.graph, steps, policy, dict(options), note, tuple(sorted(checkpoints)))


def alive_order(flat: Flat, order: Sequence[int] | Integers) -> Integers:
    """Return the order without dead recomputations.

    Raises:
        ScheduleError: if an operator comes before something it reads, or a result never comes.
    """
    return alive(flat, order)[0]


def alive(flat: Flat, order: Sequence[int] | Integers) -> tuple[Integers, Spans]:
    """Return the order without dead recomputations, and its spans, quickly if there are none."""
    positions = flat.settled(np.asarray(order, np.int64))
    spans = flat.spans(positions)
    if has_dead(flat, positions, spans):
        positions = np.asarray(without_dead(flat.graph, positions.tolist()), np.int64)
        spans = flat.spans(positions)
    return positions, spans


def has_dead(flat: Flat, order: Integers, spans: Spans) -> bool:
    """Whether an operator is evaluated more than once, and once for nobody."""
    is_read = np.zeros(len(order), bool)
    is_read[spans.begin[spans.end > spans.begin]] = True
    times = np.bincount(order, minlength=len(flat.graph.operators))
    return bool(((times[order] > 1) & ~is_read).any())


def evaluated_once(graph: Graph, policy: str) -> Schedule:
    """Return the schedule of a graph that has nothing to go back through, as a policy's own."""
    note = "no backward half: every operator is evaluated once"
    return from_order(graph, range(len(graph.operators)), policy, note=note)


def steps_of(flat: Flat, order: Integers, spans: Spans) -> tuple[Step, ...]:
    """Return the evaluations in order, each followed by the frees of what ends with it."""
    ends = np.flatnonzero(spans.end < len(order))
    # Spans are sorted by value, and so are the frees behind one evaluation.
    ends = ends[np.argsort(spans.end[ends], kind="stable")]
    # Step numbers: an evaluation stands behind the earlier ones and the frees behind those.
    is_free = np.zeros(len(order) + len(ends), bool)
    is_free[spans.end[ends] + 1 + np.arange(len(ends))] = True
    steps = np.empty(len(is_free), object)
    evaluations = shared(compute, order)
    if flat.updates is not None:
        is_update = np.isin(order, list(flat.updates.source))
        evaluations[is_update] = shared(update, order[is_update])
    steps[~is_free] = evaluations
    steps[is_free] = shared(free, spans.data[ends])
    return tuple(steps.tolist())


def shared(kind: Callable[[int], Step], numbers: Integers) -> Any:
    """Return the steps of one kind with these numbers, an array; equal ones are one object."""
    count = int(numbers.max(initial=-1)) + 1
    steps = np.empty(count, object)
    steps[:] = list(map(kind, range(count)))
    return steps[numbers]


def without_dead(graph: Graph, order: Sequence[int]) -> list[int]:
    """Return the order without recomputations that are for nobody.

    Nothing reads what they make before it is computed anew, or it may not be computed anew.
    """
    order = without_repeats(graph, np.asarray(order, np.int64)).tolist()
    times = [0] * len(graph.operators)
    for index in order:
        times[index] += 1
    wanted = bytearray(len(graph.data))
    for data in graph.outputs:
        wanted[data] = 1
    alive: list[int] = []
    for index in reversed(order):
        operator = graph.operators[index]
        if times[index] > 1 and not any(wanted[data] for data in operator.outputs):
            times[index] -= 1
            continue
        alive.append(index)
        for data in operator.outputs:
            wanted[data] = 0
        for data in operator.inputs:
            wanted[data] = 1
    alive.reverse()
    return alive


def kept_values(graph: Graph, order: Sequence[int] | Integers) -> list[int]:
    """Return the checkpoints of an order: forward values kept from the first sweep on.

    Those are computed once, and read by a backward operator, or again to recompute others, after
    the backward sweep has begun. Where nothing is recomputed, nothing was chosen, and none is.
    """
    positions = without_repeats(graph, np.asarray(order, np.int64))
    spans = Flat(graph).spans(positions)
    first, outputs = graph.forward_count, set(graph.outputs)
    if len(positions) == len(np.unique(positions)):
        return []
    turn = int(np.argmax(positions >= first))
    times = np.bincount(spans.data, minlength=len(graph.data))
    kept = spans.data[(spans.begin < turn) & (spans.end >= turn) & (times[spans.data] == 1)]
    return [data for data in kept.tolist() if data not in outputs]


def offloading(schedule: Schedule, values: Collection[int]) -> Schedule:
    """Return the schedule with some values in the host's memory between two of their readers.

    A value goes to the host behind the last operator of the forward sweep that touches it, and
    comes back right before the first operator of the backward sweep that reads it.

    Args:
        schedule: compute and free steps.
        values: forward values that own their memory; one that is computed again stays out of it.
    """
    graph = schedule.graph
    leaves: dict[int, int] = {}
    returns: dict[int, int] = {}
    going_back = False
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, EVALUATIONS):
            continue
        operator = graph.operators[step.operator]
        going_back = going_back or operator.phase == "backward"
        for data in (*operator.inputs, *operator.outputs):
            if data in values and data not in returns:
                (returns if going_back else leaves)[data] = position
    behind: dict[int, list[Step]] = {}
    before: dict[int, list[Step]] = {}
    computed = Counter(step.operator for step in schedule.steps if isinstance(step, EVALUATIONS))
    for data, position in returns.items():
        if data not in leaves or computed[producer_of(graph, data)] > 1:
            continue  # made on the way back, or computed again: nothing to fetch
        behind.setdefault(leaves[data], []).append(Offload(data))
        before.setdefault(position, []).append(Fetch(data))
    steps: list[Step] = []
    for position, step in enumerate(schedule.steps):
        steps += [*before.get(position, ()), step, *behind.get(position, ())]
    return replace(schedule, steps=tuple(steps))
