"""Non-recomputable operators (``once``): random or stateful ones, which must be evaluated once.

Their outputs are *pinned*: resident from the only evaluation until their last reader. To make any
order legal it suffices to drop the later evaluations, since liveness follows from the remaining
order. Planners that know the pinned values beforehand find better orders; none makes an illegal
one. ``replay`` and ``execute`` refuse a second evaluation, each by its own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import ScheduleError
from tinyckpt.core import execute, lowering, replay
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Evaluation, step_text
from tinyckpt.core.tracing import ACTIVE_BUILDER, Var


def once(x: Var) -> Var:
    """Mark the operator that produces a value as non-recomputable: every plan saves its outputs.

    For operators that cannot be repeated, or would give other results the second time: reading a
    clock or a stream, unseeded random numbers. Also to pin a value under every policy.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> [operator.once for operator in graph.operators]
    [True, False]
    """
    builder = ACTIVE_BUILDER.get()
    return x if builder is None else pin(builder.as_var(x))


def pin(variable: Var) -> Var:
    """Mark the operator that produces a value as non-recomputable."""
    if (index := variable.node.producer) is not None:  # a source is always resident
        operators = variable.builder.operators
        operators[index] = replace(operators[index], once=True)
    return variable


def drop_once_repeats(graph: Graph, order: Integers) -> Integers:
    """Drop repeated evaluations of non-recomputable operators from an order.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> drop_once_repeats(graph, np.array([0, 0, 1, 0, 1])).tolist()
    [0, 1, 1]
    """
    if not graph.once:
        return order
    is_once = np.zeros(len(graph.operators), bool)
    is_once[list(graph.once)] = True
    positions = np.flatnonzero(is_once[order])
    _, first = np.unique(order[positions], return_index=True)
    if len(first) == len(positions):
        return order
    mask = np.ones(len(order), bool)
    mask[positions] = False
    mask[positions[first]] = True
    return order[mask]


class EvaluatedOnce:
    """The replay check of one run: no non-recomputable operator is evaluated twice."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}

    def __call__(self, machine: replay.ReplayState, position: int, step: Evaluation) -> None:
        """Fail at the second evaluation of an operator."""
        if self.at.setdefault(step.operator, position) != position:
            verb, name = step_text(machine.graph, step)
            machine.fail(
                position,
                f"{verb} {name}, which may not be evaluated twice and was at step "
                f"{self.at[step.operator]}; keep its outputs",
            )


def replay_checks(graph: Graph) -> Mapping[int, replay.Check]:
    """Return the replay checks of a graph's non-recomputable operators."""
    return dict.fromkeys(graph.once, EvaluatedOnce())


def kernel_guards(graph: Graph) -> Mapping[int, Callable[[Any], Any]]:
    """Return what wraps the kernels of a graph's non-recomputable operators."""
    return {index: partial(only_once, graph.operators[index].name) for index in graph.once}


def refuse(why: str, *arrays: Any) -> None:
    """Raise: the replacement kernel of an operator that must not be evaluated any more."""
    raise ScheduleError(why)


def only_once(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that raises from its second call on."""
    calls, why = iter([kernel]), f"{name} may not be evaluated twice"
    return lambda *arrays: next(calls, partial(refuse, why))(*arrays)


def legal_order(graph: Graph, order: list[int]) -> list[int]:
    """Return an order without repeats of non-recomputable operators."""
    if not graph.once:
        return order
    found: list[int] = drop_once_repeats(graph, np.asarray(order, np.int64)).tolist()
    return found


def install() -> None:
    """Fill the tables of the engine."""
    lowering.LEGALISERS.append(legal_order)
    replay.OPERATOR_CHECKS.append(replay_checks)
    execute.KERNEL_GUARDS.append(kernel_guards)
