"""Part 5: Revolve: the fewest evaluations of a chain from a number of checkpoint slots.

In: a chain of part 1, and a number of slots. Out: an order of evaluations; part 2 makes a schedule
of it and runs it. Part 5 takes chains alone; for other graphs see part 4.
Source: Griewank and Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical Software
26(1), 2000, doi 10.1145/347837.347846.
"""

from math import inf

from part_1 import Graph

# Of (states, slots): the fewest advances, and the distance to the first checkpoint.
Table = dict[tuple[int, int], tuple[float, int]]
Action = tuple[str, int]  # ("advance", the state to compute) or ("back", the state to visit)


def fewest_advances(states: int, slots: int) -> Table:
    """Return the table for all numbers of states from 1 and of slots from 0 up to these.

    The slot of the first state is one of the slots. Of several best distances, it is the smallest.
    """
    ### BEGIN SOLUTION
    # Task 5.1: fill the table from short chains to long ones.
    table: Table = {(1, s): (0, 0) for s in range(slots + 1)}
    for length in range(2, states + 1):
        table[length, 0] = (inf, 0)
        for s in range(1, slots + 1):
            table[length, s] = min(
                (m + table[length - m, s - 1][0] + table[m, s][0], m) for m in range(1, length)
            )
    return table
    ### END SOLUTION


def longest(slots: int, times: int) -> int:
    """Return how many states can be visited if no step is advanced through more often than that."""
    ### BEGIN SOLUTION
    # Task 5.2: add what each part of the chain can have.
    table = {(0, t): 1 for t in range(times + 1)} | {(s, 0): 1 for s in range(slots + 1)}
    for s in range(1, slots + 1):
        for t in range(1, times + 1):
            table[s, t] = table[s - 1, t] + table[s, t - 1]
    return table[slots, times]
    ### END SOLUTION


def reversal(states: int, slots: int) -> list[Action]:
    """Return the actions that visit the states from the last to 0, with the fewest advances."""
    ### BEGIN SOLUTION
    # Task 5.3: advance to the first checkpoint, visit the states after it, then the others.
    table = fewest_advances(states, slots)
    actions: list[Action] = []
    todo = [(0, states, slots)]  # (first, last, free): visit the states from last - 1 to first
    while todo:
        first, last, free = todo.pop()
        if last - first == 1:
            actions.append(("back", first))
            continue
        middle = first + table[last - first, free][1]
        actions += [("advance", state) for state in range(first + 1, middle + 1)]
        todo += [(first, middle, free), (middle, last, free - 1)]  # the second one first
    return actions
    ### END SOLUTION


def is_chain(graph: Graph) -> bool:
    """Whether a graph is a chain: f1 to fn, l, bn to b1, with one value that passes on."""
    n = graph.forward_count
    outputs = [operator.output for operator in graph.operators]
    read = [set(operator.inputs).difference(graph.sources) for operator in graph.operators]
    expected = [set(), *({output} for output in outputs[:n])]
    expected += [{outputs[i - 1], outputs[2 * n - i]} for i in range(n + 1, 2 * n + 1)]
    return read == expected


def revolve(graph: Graph, slots: int) -> list[int]:
    """Return the order with the fewest evaluations of a chain, with a peak of slots + 2 values.

    The first slot is that of x, which is a source and takes no memory. Less than one slot, and a
    graph that is no chain, are refused with a ValueError.
    """
    ### BEGIN SOLUTION
    # Task 5.4: turn the actions into operators of the chain.
    if slots < 1 or not is_chain(graph):
        raise ValueError(f"expected a chain and one slot or more, got {slots}")
    n = graph.forward_count
    order = []
    for verb, state in reversal(n + 1, min(slots, n + 1)):
        if verb == "advance":
            order.append(state - 1)
        elif state == n:
            order += [n, n + 1]
        elif state > 0:
            order.append(2 * n + 1 - state)
    return order
    ### END SOLUTION
