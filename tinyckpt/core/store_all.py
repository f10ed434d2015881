"""Store-all: evaluate every operator once and keep what its backward operator will read."""

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule


def plan_store_all(graph: Graph, costs: Costs) -> Schedule:
    """Evaluate in build order. On ``chain(n)``: 2n+1 evaluations, peak n+2 nodes."""
    order = range(len(graph.operators))
    return from_order(graph, order, "store_all", note="every operator is evaluated once")


STORE_ALL = Policy(
    "store_all",
    plan_store_all,
    "evaluate everything once, keep all that the backward half reads",
    "the least cost there is; the most memory",
    "O(V + E)",
    "what every framework does unless told otherwise",
)
