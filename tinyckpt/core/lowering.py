"""Lowering: from an evaluation order to steps, freeing each value after its last use.

A policy decides which operator is evaluated when, and which are evaluated again. Once that order is
fixed, the best memory plan is unique: keep each value from its evaluation to its last reader before
the operator is evaluated anew (its live range), as in register allocation without spilling. So
policies choose orders, and the ``Free`` steps follow from them.

The live ranges are found as in any compiler: one pass over the order from its end to its beginning
(liveness analysis). Searching planners score thousands of orders with the vectorised analysis of
``planner.model.liveness``; a test holds it to this loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tinyckpt.base.deadline import listed_order
from tinyckpt.base.errors import ScheduleError, expect
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Schedule, Step, checked_id, compute, free, update, within

# Extensions, applied one after another: each changes an order so that it is legal, as by dropping
# what may not be repeated. ``planner.model.liveness`` has the same for orders as arrays.
LEGALISERS: list[Callable[[Graph, list[int]], list[int]]] = []


def from_order(
    graph: Graph,
    order: Sequence[int],
    policy: str = "order",
    options: Mapping[str, Any] | None = None,
    note: str = "",
    checkpoints: Sequence[int] = (),
    certificate: Any = None,
) -> Schedule:
    """Lower an evaluation order to a schedule, freeing each value right after its last use.

    Args:
        graph: the graph that the order refers to.
        order: operator ids; a repeated id is a recomputation. Repeats of a non-recomputable
            operator are dropped: its outputs stay resident.
        policy, options, note, checkpoints, certificate: the schedule's provenance.

    Raises:
        ScheduleError: if an operator precedes the producer of one of its inputs, or a result is
            never computed.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)
    >>> [operator.name for operator in graph.operators]
    ['f1', 'f2', 'l', 'b2', 'b1']
    >>> tc.replay(tc.from_order(graph, [0, 1, 2, 3, 0, 4])).recomputations
    1
    """
    expect(graph, Graph)
    steps = free_after_last_use(graph, legal_order(graph, order))
    return Schedule(graph, steps, policy, options or {}, note, checkpoints, certificate)  # type: ignore[arg-type]


def evaluated_once(graph: Graph, policy: str) -> Schedule:
    """Return the store-all schedule of a graph without a backward pass, under a policy's name."""
    note = "no backward pass: every operator is evaluated once"
    return from_order(graph, range(len(graph.operators)), policy, note=note)


def legal_order(graph: Graph, order: Sequence[int]) -> list[int]:
    """Return the order as operator ids, with the changes of the extensions.

    Raises:
        ScheduleError: if an entry is not the id of an operator.
    """
    ids = listed_order(order)
    if not within(ids, len(graph.operators)):  # rarely: one does not exist, or is NumPy's integer
        ids = [checked_id(f"order[{i}]", "operator", each, graph) for i, each in enumerate(ids)]
    for legalise in LEGALISERS:
        ids = legalise(graph, ids)
    return ids


def free_after_last_use(graph: Graph, order: Sequence[int]) -> tuple[Step, ...]:
    """Return the evaluations in order, each followed by the frees of the values last used there.

    >>> import tinyckpt as tc
    >>> steps = free_after_last_use(tc.networks.chain(1), [0, 1, 2])  # f1, l, b1
    >>> steps[3:]  # f1 and l's cotangent; the gradient stays
    (Free(data=1), Free(data=3))
    """
    is_source = [node.is_source for node in graph.data]
    # The values that are live after the evaluation at hand: read later, before they are computed
    # anew, or results of the graph.
    live = {data for data in graph.outputs if not is_source[data]}
    steps: list[Step] = []  # from the last to the first
    for index in reversed(order):
        operator = graph.operators[index]
        inputs = {data for data in operator.inputs if not is_source[data]}
        dying = inputs.union(operator.outputs) - live
        steps += map(free, sorted(dying, reverse=True))
        steps.append(update(index) if operator.is_update else compute(index))
        live.difference_update(operator.outputs)
        live |= inputs
    if live:  # before the first evaluation nothing may be live
        refuse_unavailable(graph, order)
    steps.reverse()
    return tuple(steps)


def refuse_unavailable(graph: Graph, order: Sequence[int]) -> NoReturn:
    """Raise about the first evaluation that reads too early, or else the results never computed."""
    computed = {node.id for node in graph.data if node.is_source}
    for position, index in enumerate(order):
        operator = graph.operators[index]
        for data in sorted(operator.inputs):
            if data not in computed:
                raise ScheduleError(
                    f"order[{position}] evaluates {operator.name}, which reads "
                    f"{graph.data[data].name} before anything has computed it"
                )
        computed.update(operator.outputs)
    missing = [graph.data[data].name for data in sorted(graph.outputs) if data not in computed]
    raise ScheduleError(f"the order never computes {', '.join(missing)}")
