"""0/1 knapsack of saved values (PyTorch's activation_memory_budget): bounds saved bytes, not peak.

Of the values that the backward pass reads, save those that are expensive to recompute and fit, a
0/1 knapsack by dynamic programming; recompute the rest when it is first needed. Planners of saved
sets do this, among them ``activation_memory_budget`` of PyTorch's compiler. The model ignores the
memory of the recomputation itself and its timing. So the budget is not the peak, and the peak may
even grow as the budget shrinks, as lesson 8 shows; github.com/pytorch/pytorch/issues/197838 reports
the same of PyTorch, where the option is documented as a share of the saved memory.
"""

from __future__ import annotations

import numpy as np

from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import last_backward_readers, retaining_order
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule

# Steps into which the budget is divided; sizes are rounded up to whole steps. Larger: less
# rounding, proportionally more time and memory.
BUCKETS = 1000


def plan_knapsack(graph: Graph, costs: Costs, *, activation_memory_budget: float = 0.5) -> Schedule:
    """Save the values most expensive to recompute, within a share of store-all's saved memory.

    Args:
        graph: the training graph.
        costs: costs of evaluations and sizes of values.
        activation_memory_budget: share of the saved memory, 0 to 1: at 0 all is recomputed, at 1
            nothing is. It bounds the saved memory, **not the peak**.

    Raises:
        PolicyOptionError: if the share is not a number from 0 to 1.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(8), "knapsack", activation_memory_budget=0.5)
    >>> len(schedule.checkpoints), tc.replay(schedule).peak_nodes  # at most 4 of 8 are saved
    (3, 9)
    """
    share = activation_memory_budget
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise PolicyOptionError(
            f"knapsack: activation_memory_budget={share!r}; expected a number from 0 to 1"
        )
    last_target = last_backward_readers(graph)
    saved = [
        node.id
        for node in graph.data
        if node.producer is not None
        and node.producer < graph.forward_count
        and last_target[node.id] >= 0
    ]
    sizes = [costs.data[data] for data in saved]
    values = [costs.operators[producer_of(graph, data)] for data in saved]
    capacity = int(share * sum(sizes))
    kept = [saved[item] for item in solve_knapsack(sizes, values, capacity)]
    promised = sum(costs.data[data] for data in kept)
    amount = memory_text(promised, costs.memory_unit)
    note = f"saved {len(kept)} of {len(saved)} values, {amount}; not the peak"
    order = retaining_order(graph, kept, reuse=True)
    options = {"activation_memory_budget": share}
    return from_order(graph, order, "knapsack", options, note, kept)


def solve_knapsack(sizes: list[int], values: list[float], capacity: int) -> list[int]:
    """Solve a 0/1 knapsack by dynamic programming: positions of the chosen items, ascending.

    >>> solve_knapsack([3, 4, 5], [3.0, 4.0, 6.0], 8)
    [0, 2]
    """
    if sum(sizes) <= capacity:
        return list(range(len(sizes)))
    unit = max(1, -(-capacity // BUCKETS))
    weights = [-(-size // unit) for size in sizes]
    width = capacity // unit + 1
    best = np.zeros(width)
    taken = np.zeros((len(sizes), width), bool)
    for item, (weight, value) in enumerate(zip(weights, values, strict=True)):
        if weight < width:
            with_item = best[: width - weight] + value
            taken[item, weight:] = with_item > best[weight:]
            best[weight:] = np.maximum(best[weight:], with_item)
    chosen = []
    room = width - 1
    for item in range(len(sizes) - 1, -1, -1):
        if taken[item, room]:
            chosen.append(item)
            room -= weights[item]
    return chosen[::-1]


KNAPSACK = Policy(
    "knapsack",
    plan_knapsack,
    "save the most expensive values that fit a share of the saved bytes; ignores the peak",
    "optimal for the saved bytes, which are not the peak",
    "O(n) times 1000 levels of memory",
    "activation_memory_budget of PyTorch 2.4 and later, by default a knapsack",
)
