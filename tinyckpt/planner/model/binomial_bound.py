"""Binomial checkpointing bound: the fewest evaluations of a uniform chain within a memory budget.

Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical
Software 26(1), 2000, doi:10.1145/347837.347846. A closed form, and a test whether a graph is such a
chain; the schedules that attain it are ``chain_dp.revolve``'s.

On ``networks.chain(n)`` the backward pass reverses the n+1 states f_n to x. A budget of b live
values stores b-3 of them, after the two cotangents and the output of an evaluation; x is a source,
always resident and never charged: b-2 slots. For n = 4, 8, 9 and all b this was checked by
exhaustive search.
"""

from __future__ import annotations

from math import comb

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph


def advances(steps: int, slots: int) -> int:
    """Return t(l, s): the fewest advances that reverse l steps with s checkpoint slots.

    With r the smallest integer such that ``C(s + r, s) >= l``, ``t(l, s) = r l - C(s + r, r - 1)``.
    **The slot of the initial state is one of the s.**

    >>> advances(10, 3), advances(100, 10), advances(1000, 32)
    (15, 222, 2405)
    """
    r = repetitions(steps, slots)
    return r * steps - comb(slots + r, r - 1) if r else 0


def repetitions(steps: int, slots: int) -> int:
    """Return the repetition number: the smallest r with C(slots + r, slots) >= steps.

    An optimal schedule advances through no step more than r times.

    >>> repetitions(100, 10)
    3
    """
    r, reach = 0, 1
    while reach < steps:
        r += 1
        reach = reach * (slots + r) // r
    return r


def fewest_evaluations(n: int, budget: int) -> int:
    """Return the fewest evaluations of ``chain(n)`` within a budget of live values, 3 or more.

    >>> [fewest_evaluations(8, budget) for budget in range(3, 11)]
    [45, 26, 22, 21, 20, 19, 18, 17]
    """
    return (n + 1) + advances(n + 1, min(budget - 2, n))


def uniform_chain(graph: Graph, costs: Costs, once: bool = False) -> tuple[int, int] | None:
    """Recognise a uniform chain: n and the size of a value if the graph is ``chain(n)``, else None.

    All operators must cost the same, and all values that they compute must have the same size; the
    sizes of sources do not matter.

    Args:
        graph, costs: any graph, in any cost and memory unit.
        once: whether non-recomputable operators are allowed. With them the closed form is a lower
            bound, and the schedule that attains it may not be legal.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> uniform_chain(graph, tc.cost.evaluations(graph))
    (8, 512)
    """
    count = len(graph.operators)
    n = (count - 1) // 2
    if (graph.once and not once) or n < 1 or count != 2 * n + 1 or graph.forward_count != n:
        return None
    made = [operator.outputs for operator in graph.operators]
    if any(len(outputs) != 1 for outputs in made) or graph.outputs != made[-1]:
        return None
    for operator in graph.operators:
        index = operator.id
        read = {data for data in operator.inputs if not graph.data[data].is_source}
        if index <= n:  # f1 reads sources, each later f_i reads f_(i-1); l reads f_n
            expected = set(made[index - 1]) if index else set()
        else:  # b_i reads f_i and the output of the operator before it
            expected = {*made[2 * n - index], *made[index - 1]}
        if read != expected:
            return None
    sizes = {costs.data[outputs[0]] for outputs in made}
    is_uniform = len(sizes) == 1 == len(set(costs.operators)) and not any(costs.workspace)
    size = sizes.pop()
    return (n, size) if is_uniform and size else None
