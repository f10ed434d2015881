"""Orders of evaluations on chains as text, and their counts, for the tests of parts 2 to 5."""

import numpy as np
from part_2 import free_after_last_use, run


def names_of(graph):
    """Return the names of a chain's operators, and of their outputs: f1 f2 l b2 b1."""
    n = graph.forward_count
    return [f"f{i + 1}" for i in range(n)] + ["l"] + [f"b{i}" for i in range(n, 0, -1)]


def names(graph, order):
    """Return an order as text: "f1 f2 l b2 b1"."""
    return joined(names_of(graph)[index] for index in order)


def joined(counts):
    """Return counts as text, which pytest shows whole."""
    return " ".join(map(str, counts))


def counts(graph, order):
    """Return the evaluations and the peak, in values, of an order on a chain."""
    _, trace = run(graph, free_after_last_use(graph, order), [np.ones((8, 8))])
    return trace.evaluations, max(trace.live_values)
