"""Operators that may not be evaluated twice: what that asks of an order of evaluations.

What such an operator makes is *pinned*: it stays from the one evaluation until its last reader. In
an order that is seen to by leaving out the later evaluations, since liveness follows from what is
left. Planners that know of pinned values beforehand make better orders; none makes an illegal one.
"""

from __future__ import annotations

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.core.graph import Graph


def pinned_values(graph: Graph) -> list[int]:
    """Return what operators make that may not be evaluated twice."""
    return [data for index in graph.once for data in graph.operators[index].outputs]


def without_repeats(graph: Graph, order: Integers) -> Integers:
    """Return the order without evaluations for the second time that may not be.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> without_repeats(graph, np.array([0, 0, 1, 0, 1])).tolist()
    [0, 1, 1]
    """
    if not graph.once:
        return order
    is_once = np.zeros(len(graph.operators), bool)
    is_once[list(graph.once)] = True
    places = np.flatnonzero(is_once[order])
    _, first = np.unique(order[places], return_index=True)
    if len(first) == len(places):
        return order
    stays = np.ones(len(order), bool)
    stays[places] = False
    stays[places[first]] = True
    return order[stays]
