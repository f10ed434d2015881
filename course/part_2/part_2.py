"""Part 2: a machine that runs a schedule, and counts evaluations, live values and live bytes.

In: a graph of part 1 and an order of evaluations. Out: a schedule, its results and its trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from part_1 import KERNELS, Graph

Step = tuple[str, int]  # ("compute", index of an operator) or ("free", id of a value)


def free_after_last_use(graph: Graph, order: Sequence[int]) -> list[Step]:
    """Return a schedule: the evaluations in order, each value freed after its last use.

    Liveness analysis: going from the end to the beginning, the last reader is met first.
    """
    raise NotImplementedError(
        "Task 2.1: go through the order from its end, and keep the set of live values."
    )


@dataclass
class Trace:
    """What a run counts: evaluations, and the live values and bytes after each step.

    Sources are not counted: they are in memory all the time, whatever the schedule.
    """

    evaluations: int = 0
    live_values: list[int] = field(default_factory=list)
    live_bytes: list[int] = field(default_factory=list)


def run(
    graph: Graph, steps: Sequence[Step], arrays: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], Trace]:
    """Run a schedule on the parameters' and inputs' arrays; return the results and the trace."""
    raise NotImplementedError("Task 2.2: carry out each step, check that it is legal, and count.")
