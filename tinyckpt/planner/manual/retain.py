"""Selective activation checkpointing by an explicit keep set: save its values, recompute the rest.

The forward pass evaluates every forward operator once. Values of the keep set stay resident, and so
do the inputs of the first backward operator. Then the backward operators follow in build order; a
freed value that one of them reads is recomputed from the nearest resident ancestors, and stays
until its last reader. On any graph; the order is ``core.cuts.retaining_order``.
"""

from __future__ import annotations

from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import retaining_order, some_names
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.manual.keep_names import Keep, resolve_keep


def plan_retain(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Save the keep set; recompute the rest once, when the backward pass first reads it.

    Args:
        graph: the training graph.
        costs: not used; the caller decides.
        keep: names or labels, or patterns of them such as ``"matmul_*"``; data nodes or ids; or a
            predicate over data nodes.

    Raises:
        PolicyOptionError: if an entry of ``keep`` is no forward value.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(9), "retain", keep=["f3", "f6"])
    >>> tc.replay(schedule).recomputations
    6
    """
    kept = resolve_keep(graph, keep, "retain")
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
