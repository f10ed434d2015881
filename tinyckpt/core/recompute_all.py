"""Recompute-all: keep nothing; evaluate again whatever a backward operator reads, each time."""

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.retaining import retaining_order
from tinyckpt.core.schedule import Schedule


def plan_recompute_all(graph: Graph, costs: Costs) -> Schedule:
    """Evaluate from the sources for every backward operator.

    On ``chain(n)``: n(n+1)/2 + n + 1 evaluations, peak 3 nodes, and no schedule with that peak has
    fewer evaluations.
    """
    order = retaining_order(graph, (), reuse=False)
    note = f"{len(order) - len(graph.operators)} recomputations, nothing kept"
    note += " but what may not be evaluated twice" if graph.once else ""
    return from_order(graph, order, "recompute_all", note=note)


RECOMPUTE_ALL = Policy(
    "recompute_all",
    plan_recompute_all,
    "keep nothing, recompute from the sources for every backward operator",
    "optimal at its own peak on uniform chains; a heuristic elsewhere",
    "O(n^2) evaluations on a chain",
    "the other extreme: O(1) memory on a chain",
)
