"""Part 3: three checkpointing policies: store-all, recompute-all and sqrt(n).

In: a graph of part 1. Out: an order of evaluations; part 2 makes a schedule of it and runs it.
Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016,
arXiv 1604.06174.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from part_1 import Graph, Var, differentiate, needed
from part_2 import Trace, free_after_last_use, run


def keeping_order(graph: Graph, kept: Collection[int], reuse: bool) -> list[int]:
    """Return the order that saves the kept forward values, and recomputes others when read.

    Resident are sources, results, kept values and outputs of backward operators; with ``reuse``,
    recomputed values, too. At hand are the inputs and the output of the last operator in the order,
    nothing else; intermediates recomputed on the way are not. What is read and is neither resident
    nor at hand is recomputed from resident values alone: a value at hand that is on the way is
    evaluated again.
    """
    raise NotImplementedError(
        "Task 3.1: before each backward operator, recompute what it reads and is not resident."
    )


def store_all(graph: Graph) -> list[int]:
    """Evaluate every operator once."""
    raise NotImplementedError("Task 3.2: return every operator once.")


def recompute_all(graph: Graph) -> list[int]:
    """Save nothing: recompute what each backward operator reads, from the sources."""
    raise NotImplementedError("Task 3.2: keep nothing.")


def crossing(graph: Graph, cut: int) -> set[int]:
    """Return the values computed up to forward operator ``cut`` and read by a later forward one."""
    raise NotImplementedError(
        "Task 3.3: return what is computed up to the cut and read after it, in the forward pass."
    )


def stages_of(graph: Graph) -> list[int]:
    """Return the forward operators whose outputs the backward pass reads."""
    raise NotImplementedError(
        "Task 3.4: find the forward operators whose outputs the backward pass reads."
    )


def cuts_of(graph: Graph) -> list[int]:
    """Return the cuts between about sqrt(n) segments: forward operators, each the last of its own.

    With n stages, counted from 1, and k = round(sqrt(n)), cut number i of 1 to k - 1 follows stage
    round(i n / k), by Python's ``round``: halves to the even integer. If several values cross
    there, the cut moves to the nearest stage at most n // (2 k) away after which one value crosses;
    of two as near, to the earlier; if there is none, it stays.
    """
    raise NotImplementedError(
        "Task 3.5: place a cut near each multiple of n / k, where one value crosses."
    )


def sqrt_n(graph: Graph) -> list[int]:
    """Save what crosses the cuts, and recompute each segment once.

    The last segment is saved whole, since the backward pass begins there.
    Source: Chen et al. 2016, arXiv 1604.06174.
    """
    raise NotImplementedError("Task 3.6: keep what crosses the cuts, and the last segment.")


def value_and_gradient(
    loss: Callable[..., Var],
    policy: Callable[[Graph], list[int]],
    parameters: Sequence[np.ndarray],
    *inputs: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray], Trace]:
    """Differentiate, plan and run ``loss(parameters, *inputs)``: its value, gradient and trace."""
    graph = differentiate(loss, len(parameters), len(inputs))
    schedule = free_after_last_use(graph, policy(graph))
    (value, *gradient), trace = run(graph, schedule, [*parameters, *inputs])
    return value, gradient, trace
