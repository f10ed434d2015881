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
    ### BEGIN SOLUTION
    # Task 3.1: before each backward operator, recompute what it reads and is not resident.
    order = list(range(graph.forward_count))
    resident = {*graph.sources, *graph.results, *kept}
    resident.update(operator.output for operator in graph.operators[graph.forward_count :])
    for index in range(graph.forward_count, len(graph.operators)):
        last = [graph.operators[i] for i in order[-1:]]
        at_hand = {data for operator in last for data in (*operator.inputs, operator.output)}
        again = needed(graph, set(graph.operators[index].inputs) - at_hand, resident)
        if reuse:
            resident.update(graph.operators[i].output for i in again)
        order += [*again, index]
    return order
    ### END SOLUTION


def store_all(graph: Graph) -> list[int]:
    """Evaluate every operator once."""
    ### BEGIN SOLUTION
    # Task 3.2: return every operator once.
    return list(range(len(graph.operators)))
    ### END SOLUTION


def recompute_all(graph: Graph) -> list[int]:
    """Save nothing: recompute what each backward operator reads, from the sources."""
    ### BEGIN SOLUTION
    # Task 3.2: keep nothing.
    return keeping_order(graph, (), reuse=False)
    ### END SOLUTION


def crossing(graph: Graph, cut: int) -> set[int]:
    """Return the values computed up to forward operator ``cut`` and read by a later forward one."""
    ### BEGIN SOLUTION
    # Task 3.3: return what is computed up to the cut and read after it, in the forward pass.
    computed = {operator.output for operator in graph.operators[: cut + 1]}
    later = graph.operators[cut + 1 : graph.forward_count]
    return computed.intersection(data for operator in later for data in operator.inputs)
    ### END SOLUTION


def stages_of(graph: Graph) -> list[int]:
    """Return the forward operators whose outputs the backward pass reads."""
    ### BEGIN SOLUTION
    # Task 3.4: find the forward operators whose outputs the backward pass reads.
    backward = graph.operators[graph.forward_count :]
    read = {data for operator in backward for data in operator.inputs}
    forward = graph.operators[: graph.forward_count]
    return [index for index, operator in enumerate(forward) if operator.output in read]
    ### END SOLUTION


def cuts_of(graph: Graph) -> list[int]:
    """Return the cuts between about sqrt(n) segments: forward operators, each the last of its own.

    With n stages, counted from 1, and k = round(sqrt(n)), cut number i of 1 to k - 1 follows stage
    round(i n / k), by Python's ``round``: halves to the even integer. Unless exactly one value
    crosses there, the cut moves to the nearest stage at most n // (2 k) away after which one does;
    of two as near, to the earlier; if there is none, it stays. Cuts may coincide.
    """
    ### BEGIN SOLUTION
    # Task 3.5: place a cut near each multiple of n / k, where one value crosses.
    stages = stages_of(graph)
    n, k = len(stages), max(1, round(len(stages) ** 0.5))
    cuts = []
    for number in range(1, k):
        target, reach = round(number * n / k) - 1, n // (2 * k)
        nearby = sorted(range(target - reach, target + reach + 1), key=lambda x: abs(x - target))
        one = [x for x in nearby if len(crossing(graph, stages[x])) == 1]
        cuts.append(stages[one[0] if one else target])
    return cuts
    ### END SOLUTION


def sqrt_n(graph: Graph) -> list[int]:
    """Save what crosses the cuts, and recompute each segment once.

    The last segment is saved whole, since the backward pass begins there.
    Source: Chen et al. 2016, arXiv 1604.06174.
    """
    ### BEGIN SOLUTION
    # Task 3.6: keep what crosses the cuts, and the last segment.
    cuts = cuts_of(graph)
    last = cuts[-1] if cuts else -1
    kept = {graph.operators[index].output for index in stages_of(graph) if index > last}
    for cut in cuts:
        kept |= crossing(graph, cut)
    return keeping_order(graph, kept, reuse=True)
    ### END SOLUTION


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
