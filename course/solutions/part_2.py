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
    ### BEGIN SOLUTION
    # Task 2.1: go through the order from its end, and keep the set of live values.
    live = set(graph.results)
    steps: list[Step] = []  # from the last to the first
    for index in reversed(order):
        operator = graph.operators[index]
        inputs = set(operator.inputs).difference(graph.sources)
        dying = (inputs | {operator.output}) - live
        steps += [("free", data) for data in sorted(dying, reverse=True)]
        steps.append(("compute", index))
        live.discard(operator.output)
        live |= inputs
    return steps[::-1]
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    # Task 2.2: carry out each step, check that it is legal, and count.
    given = [data for data in graph.sources if data not in graph.constants]
    sources = dict(zip(given, arrays, strict=True)) | graph.constants
    memory: dict[int, np.ndarray] = {}
    trace = Trace()
    for number, (verb, index) in enumerate(steps):
        if verb == "compute":
            operator = graph.operators[index]
            for data in operator.inputs:
                if data not in memory and data not in sources:
                    raise ValueError(f"step {number}: {operator.kind} reads value {data}: not live")
            if operator.output in memory:
                raise ValueError(f"step {number}: value {operator.output} is still live")
            operands = [sources[x] if x in sources else memory[x] for x in operator.inputs]
            memory[operator.output] = np.asarray(KERNELS[operator.kind](*operands))
            trace.evaluations += 1
        elif index in memory:
            del memory[index]
        else:
            raise ValueError(f"step {number}: value {index} is not live; it cannot be freed")
        trace.live_values.append(len(memory))
        trace.live_bytes.append(sum(array.nbytes for array in memory.values()))
    for data in graph.results:
        if data not in memory:
            raise ValueError(f"the schedule ends without the result, value {data}")
    return [memory[data] for data in graph.results], trace
    ### END SOLUTION
