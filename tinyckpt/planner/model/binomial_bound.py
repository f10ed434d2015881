"""The uniform chain in closed form: how few evaluations any schedule within a budget can have.

Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical
Software 26(1), 2000, doi:10.1145/347837.347846. On ``networks.chain(n)`` the n+1 states f_n to x
are gone back through; a budget of b live values leaves room for b-3 of them beside the two
cotangents and the value of an evaluation, and x, a source, is there for nothing: b-2 slots. For
n = 4, 8, 9 and all b this was checked by exhaustion.
"""

from __future__ import annotations

from math import comb

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph


def advances(steps: int, slots: int) -> int:
    """Return t(steps, slots): the fewest advances that reverse some steps from some slots.

    With r the smallest integer such that ``C(s + r, s) >= l``, ``t(l, s) = r l - C(s + r, r - 1)``.
    **The slot of the initial state is one of the s.**

    >>> advances(10, 3), advances(100, 10), advances(1000, 32)
    (15, 222, 2405)
    """
    r = repetitions(steps, slots)
    return r * steps - comb(slots + r, r - 1) if r else 0


def repetitions(steps: int, slots: int) -> int:
    """Return the smallest r with C(slots + r, slots) >= steps: how often any step is repeated."""
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
    """Return n and the size of a value if the graph is ``chain(n)``, else None.

    All its operators must cost the same, and all values that they make must weigh the same; what
    sources weigh does not matter.

    Args:
        graph, costs: of any kind.
        once: whether operators may be among them that may not be evaluated twice. Then the closed
            form is a bound, and what attains it may not be legal.
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
        if index <= n:  # f1 reads sources, each other the one before; l reads f_n
            expected = set(made[index - 1]) if index else set()
        else:  # b_i reads f_i and what stands before it
            expected = {*made[2 * n - index], *made[index - 1]}
        if read != expected:
            return None
    sizes = {costs.data[outputs[0]] for outputs in made}
    alike = len(sizes) == 1 == len(set(costs.operators)) and not any(costs.workspace)
    size = sizes.pop()
    return (n, size) if alike and size else None
