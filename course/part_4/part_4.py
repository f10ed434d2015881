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
    raise NotImplementedError(
        "Task 4.1: run store-all, and see by how much each evaluation adds to the live bytes."
    )


def neighborhood(simulation: Simulation, data: int) -> set[int]:
    """Return the operators to evaluate again if a live value is evicted, e* of the paper.

    They are its own; those of evicted values from which it is computed, back to live ones; and
    those of evicted values that are computed from it, up to live ones.
    """
    raise NotImplementedError(
        "Task 4.2: find what is recomputed for the value, and what the value is recomputed for."
    )


def score(simulation: Simulation, data: int) -> float:
    """Return evaluations / (bytes x staleness) of a live value; infinity at staleness 0.

    The evaluations are those of its neighborhood; the staleness is the time since its last access.
    """
    raise NotImplementedError(
        "Task 4.3: divide the evaluations of the neighborhood by bytes times staleness."
    )


def make_room(simulation: Simulation, index: int, pinned: Collection[int]) -> None:
    """Evict live values until the output of an operator fits within the budget.

    Of those that are not pinned, the one with the lowest score goes first; of several, the one with
    the highest id. If all are pinned, a ValueError says so.
    """
    raise NotImplementedError(
        "Task 4.4: while the output does not fit, evict the value with the lowest score."
    )


def evicting_order(graph: Graph, budget: int, sizes: dict[int, int]) -> list[int]:
    """Return the order of a run that evicts what does not fit, and recomputes what is missing."""
    raise NotImplementedError(
        "Task 4.5: evaluate each operator, after what it reads and is not live."
    )
