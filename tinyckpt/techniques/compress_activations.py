"""Activation-compressed training: all saved activations of a network quantised to 2 to 8 bits.

Wraps each value that store-all would save for the backward pass in ``tc.compressed``, which stores
it quantised with seeded stochastic rounding. The loss is unchanged, gradients are approximate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tinyckpt.base.calls import function_name
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.autodiff import differentiate
from tinyckpt.core.graph import DataNode, Graph
from tinyckpt.core.tracing import build
from tinyckpt.networks.network import Network
from tinyckpt.networks.registry import argument_specs
from tinyckpt.ops.activation_compression import checked_code, compress_stream
from tinyckpt.planner.model.saved_values import saved_values
from tinyckpt.techniques.inline_graph import call_graph, network_of


def with_compression(
    what: Network | Callable[..., Any], *specs: Any, bits: int = 8, group: int = 256
) -> Network:
    """Rewrite a network to save compressed activations for its backward pass; same loss.

    Compressed are the activations that store-all would save, except values of fewer elements than
    a group, integers, and the statistics of norms and of attention, which are one number per row.
    Gradients are approximate, and unbiased where the loss is linear in the saved values. The loss
    takes one more argument, the last: a seed, an integer of 0 or more, which should differ in each
    step. Random streams differ between values and between seeds.

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
        node.id
        for node in saved_values(differentiate(graph))
        if should_compress(graph, node, group)
    ]
    if not chosen:
        raise GraphError(f"with_compression: {graph.name} saves no value of {group} floats or more")

    def loss(*args: Any) -> Any:
        *own, seed = args
        around = {
            data: partial(compress_stream, bits=bits, group=group, seed=seed, number=number)
            for number, data in enumerate(chosen)
        }
        return call_graph(graph, tuple(own), {}, around)

    loss.__name__ = function_name(network.loss)
    return Network(network.name, loss, (*argument_specs(graph), Spec((), "int64")))


def should_compress(graph: Graph, node: DataNode, group: int) -> bool:
    """Whether a value is compressed: an operator's first output, of floats, not too small."""
    if node.producer is None or node.producer >= graph.forward_count:
        return False
    first = graph.operators[node.producer].outputs[0] == node.id
    return first and node.spec.dtype.kind == "f" and node.spec.size >= group
