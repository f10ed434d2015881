"""Part 4: dynamic tensor rematerialization (DTR): eviction under a memory budget.

In: a graph of part 1, the size of each value, a budget. Out: an order of evaluations; part 2 makes
a schedule of it, whose peak is within the budget.
Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen and Tatlock, "Dynamic tensor
rematerialization", 2021, arXiv 2006.09616.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from part_1 import Graph, needed
from part_2 import free_after_last_use, run
from part_3 import store_all


@dataclass
class Simulation:
    """A run without arrays. Its clock is the number of evaluations so far, ``len(order)``.

    ``sizes`` are bytes, of each value that an operator computes. ``last_access`` has each value
    that has been computed at least once, and the sources that have been read.
    """

    graph: Graph
    sizes: dict[int, int]
    budget: int
    order: list[int] = field(default_factory=list)
    live: set[int] = field(default_factory=set)
    last_access: dict[int, int] = field(default_factory=dict)


def sizes_of(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[int, int]:
    """Return the bytes of each value that an operator computes, found by a run of store-all."""
    ### BEGIN SOLUTION
    # Task 4.1: run store-all, and see by how much each evaluation adds to the live bytes.
    steps = free_after_last_use(graph, store_all(graph))
    _, trace = run(graph, steps, arrays)
    sizes = {}
    before = 0
    for (verb, index), after in zip(steps, trace.live_bytes, strict=True):
        if verb == "compute":
            sizes[graph.operators[index].output] = after - before
        before = after
    return sizes
    ### END SOLUTION


def neighborhood(simulation: Simulation, data: int) -> set[int]:
    """Return the operators to evaluate again if a live value is evicted, e* of the paper.

    They are its own; those of evicted values from which it is computed, back to live ones; and
    those of evicted values that are computed from it, up to live ones.
    """
    ### BEGIN SOLUTION
    # Task 4.2: find what is recomputed for the value, and what the value is recomputed for.
    graph, live = simulation.graph, simulation.live
    found = set(needed(graph, [data], live - {data}))
    reached = {data}
    for index, operator in enumerate(graph.operators):
        evicted = operator.output in simulation.last_access and operator.output not in live
        if evicted and reached.intersection(operator.inputs):
            found.add(index)
            reached.add(operator.output)
    return found
    ### END SOLUTION


def score(simulation: Simulation, data: int) -> float:
    """Return evaluations / (bytes x staleness) of a live value; infinity at staleness 0.

    The evaluations are those of its neighborhood; the staleness is the time since its last access.
    """
    ### BEGIN SOLUTION
    # Task 4.3: divide the evaluations of the neighborhood by bytes times staleness.
    staleness = len(simulation.order) - simulation.last_access[data]
    if staleness == 0:
        return inf
    return len(neighborhood(simulation, data)) / (simulation.sizes[data] * staleness)
    ### END SOLUTION


def make_room(simulation: Simulation, index: int, pinned: Collection[int]) -> None:
    """Evict live values until the output of an operator fits within the budget.

    Of those that are not pinned, the one with the lowest score goes first; of several, the one with
    the highest id. If all are pinned, a ValueError says so.
    """
    ### BEGIN SOLUTION
    # Task 4.4: while the output does not fit, evict the value with the lowest score.
    operator, live = simulation.graph.operators[index], simulation.live
    while True:
        total = sum(simulation.sizes[data] for data in (*live, operator.output))
        if total <= simulation.budget:
            return
        candidates = sorted(live.difference(pinned), reverse=True)
        if not candidates:
            raise ValueError(
                f"operator {index} ({operator.kind}): {total} bytes have to be live at once, and "
                f"the budget is {simulation.budget}"
            )
        live.remove(min(candidates, key=lambda data: score(simulation, data)))
    ### END SOLUTION


def evicting_order(graph: Graph, budget: int, sizes: dict[int, int]) -> list[int]:
    """Return the order of a run that evicts what does not fit, and recomputes what is missing."""
    ### BEGIN SOLUTION
    # Task 4.5: evaluate each operator, after what it reads and is not live.
    simulation = Simulation(graph, sizes, budget)
    order, live, last_access = simulation.order, simulation.live, simulation.last_access
    operators = graph.operators
    producer = {operator.output: index for index, operator in enumerate(operators)}
    for target in range(len(operators)):
        later = set(graph.results).union(*(op.inputs for op in operators[target + 1 :]))
        last_access.update(dict.fromkeys(operators[target].inputs, len(order)))
        stack = [target]  # each but the first computes an input of the one below it
        while stack:
            operator = operators[stack[-1]]
            pinned = {data for index in stack for data in operators[index].inputs}
            live &= later | pinned  # the others are not read again: they are freed
            missing = [data for data in operator.inputs if data in producer and data not in live]
            if missing:
                stack.append(producer[missing[0]])
                last_access.update(dict.fromkeys(operators[stack[-1]].inputs, len(order)))
                continue
            make_room(simulation, stack[-1], pinned.union(graph.results))
            order.append(stack.pop())
            live.add(operator.output)
            last_access.setdefault(operator.output, len(order))
    return order
    ### END SOLUTION
