"""From an order of evaluations to steps: the one place where ``Free`` steps come from.

What a policy decides is which operator is evaluated when, and which are evaluated again. Once that
order is fixed, memory has one best answer: keep each result exactly until its last reader before
the operator is evaluated anew. So policies return orders, and no policy frees anything by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.schedule import Schedule, Step, compute, free


def from_order(
    graph: Graph,
    order: Sequence[int],
    policy: str = "order",
    options: Mapping[str, Any] | None = None,
    note: str = "",
    checkpoints: Sequence[int] = (),
) -> Schedule:
    """Return the schedule that evaluates operators in an order and frees as early as it can.

    Args:
        graph: the graph that the order is about.
        order: operator ids; an id that occurs again is a recomputation.
        policy, options, note, checkpoints: what the schedule says of its origin.

    Raises:
        ScheduleError: if an operator comes before something it reads, or a result never comes.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)
    >>> [operator.name for operator in graph.operators]
    ['f1', 'f2', 'l', 'b2', 'b1']
    >>> tc.replay(tc.from_order(graph, [0, 1, 2, 3, 0, 4])).recomputations
    1
    """
    check_order(graph, order)
    freed_after = last_readers(graph, order)
    steps: list[Step] = []
    for position, operator in enumerate(order):
        steps.append(compute(operator))
        steps.extend([free(data) for data in freed_after[position]])
    return Schedule(
        graph, tuple(steps), policy, dict(options or {}), note, tuple(sorted(checkpoints))
    )


def check_order(graph: Graph, order: Sequence[int]) -> None:
    """Raise a ScheduleError unless every operator follows those that produce its inputs."""
    computed = bytearray(node.is_source for node in graph.data)
    for position, index in enumerate(order):
        if not 0 <= index < len(graph.operators):
            raise ScheduleError(
                f"order[{position}] is {index}; operators of {graph.name} are numbered 0 to "
                f"{len(graph.operators) - 1}"
            )
        operator = graph.operators[index]
        for data in operator.inputs:
            if not computed[data]:
                raise ScheduleError(
                    f"order[{position}] evaluates {operator.name}, which reads "
                    f"{graph.data[data].name} before anything has computed it"
                )
        for data in operator.outputs:
            computed[data] = 1
    missing = [graph.data[data].name for data in graph.outputs if not computed[data]]
    if missing:
        raise ScheduleError(f"the order never computes {', '.join(missing)}")


def last_readers(graph: Graph, order: Sequence[int]) -> list[list[int]]:
    """Return, for every position of the order, the values that nothing after it reads."""
    freed_after: list[list[int]] = [[] for _ in order]
    # Backwards: a value is wanted from its last reader on, until the evaluation that made it.
    wanted = bytearray(len(graph.data))
    for data in graph.outputs:
        wanted[data] = 1
    for position in range(len(order) - 1, -1, -1):
        operator = graph.operators[order[position]]
        ends = freed_after[position]
        for data in operator.outputs:
            if not wanted[data]:
                ends.append(data)
            wanted[data] = 0
        for data in operator.inputs:
            if not wanted[data] and not graph.data[data].is_source:
                ends.append(data)
                wanted[data] = 1
        ends.sort()
    return freed_after
