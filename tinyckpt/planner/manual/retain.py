"""From "what to keep" to an order of evaluations, on any graph; and the policy by that name.

The forward sweep evaluates every forward operator once. Of its values those to be kept stay, and
whatever the operator right behind the sweep reads. Then the backward operators follow in build
order. One that reads a value which is no longer there has it evaluated again, from the nearest
values that are.
"""

from __future__ import annotations

from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import Keep, retaining_order, selected, some_names
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule


def plan_retain(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Keep what the caller picked; evaluate the rest again once, when the backward first needs it.

    Args:
        graph: the training graph.
        costs: not used; the caller decides.
        keep: names or labels, or patterns of them such as ``"matmul_*"``; data nodes or ids; or a
            predicate over data nodes.
    """
    kept = selected(graph, keep, "retain")
    order = retaining_order(graph, kept, reuse=True)
    nodes = [graph.data[data] for data in kept]
    note = f"kept {len(kept)} values: {some_names(nodes)}" if kept else "kept nothing"
    return from_order(graph, order, "retain", {"keep": [n.name for n in nodes]}, note, kept)


RETAIN = Policy(
    "retain",
    plan_retain,
    "keep what you pick by name, label or predicate; recompute the rest once",
    "as good as what is picked",
    "O(V + E)",
    "what torch.utils.checkpoint and jax.checkpoint let a user choose",
)
