"""Networks whose kept values are codes of few bits: ``tc.compressed`` around each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tinyckpt.approx.calling import call_graph
from tinyckpt.approx.rewrite import network_of
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import leaves_like, map_leaves
from tinyckpt.core.autodiff import differentiate
from tinyckpt.core.graph import DataNode, Graph, Spec
from tinyckpt.core.tracing import Var, build, function_name
from tinyckpt.networks.network import Network
from tinyckpt.ops.compression import checked_code, compressed_as
from tinyckpt.planner.model.saved_values import saved_values


def with_compression(
    what: Network | Callable[..., Any], *specs: Any, bits: int = 8, group: int = 256
) -> Network:
    """Return a network that computes the same, and keeps codes for its backward half.

    What store-all would keep of the activations is compressed, but for values of fewer elements
    than a group, integers, and the statistics of norms and of attention, which are one number a
    row. Gradients are approximate, and right on average where the loss is linear in what is kept.
    The loss takes one argument more, the last: a seed, an integer of 0 or more, to be another in
    each step. No two values share their chances, nor does a value those of another seed.

    >>> import tinyckpt as tc
    >>> network = tc.networks.mlp(3, 64, batch=2048, dtype="float32")
    >>> coded = tc.with_compression(network, bits=4)
    >>> [tc.replay(tc.plan(n.graph())).peak_bytes for n in (network, coded)]
    [2624044, 1731372]

    Args:
        what: a network; or a function, whose first argument holds the parameters.
        specs: of a function's arguments: arrays or ``tc.Spec``, in their nesting.
        bits, group: as of ``tc.compressed``.

    Raises:
        GraphError: if an option is not legal, there is nothing to compress, or the function updates
            its arguments.
    """
    bits, group = checked_code("with_compression", bits, group)
    network = network_of("with_compression", what, specs)
    graph = build(network.loss, *network.specs, graph_name=network.name)
    if graph.updates:
        raise GraphError(
            f"with_compression: {graph.name} updates its arguments; compress the loss instead"
        )
    chosen = [
        node.id for node in saved_values(differentiate(graph)) if is_worth(graph, node, group)
    ]
    if not chosen:
        raise GraphError(f"with_compression: {graph.name} keeps nothing of {group} floats or more")

    def loss(*args: Any) -> Any:
        *own, seed = args
        sources = {i: leaf for i, _, leaf in leaves_like(graph.arguments, tuple(own), "arguments")}
        around = {
            data: partial(coded, bits, group, seed, number) for number, data in enumerate(chosen)
        }
        return call_graph(graph, sources, {}, around)

    loss.__name__ = function_name(network.loss)
    own = tuple(map_leaves(lambda data: graph.data[data].spec, tree) for tree in graph.arguments)
    return Network(network.name, loss, (*own, Spec((), "int64")))


def coded(bits: int, group: int, seed: Any, number: int, x: Var) -> Var:
    """Return a value of which the backward half keeps a code."""
    return compressed_as(x, bits, group, seed, number)


def is_worth(graph: Graph, node: DataNode, group: int) -> bool:
    """Whether a value is compressed: an operator's first result, of floats, and not too small."""
    if node.producer is None or node.producer >= graph.forward_count:
        return False
    first = graph.operators[node.producer].outputs[0] == node.id
    return first and node.spec.dtype.kind == "f" and node.spec.size >= group
