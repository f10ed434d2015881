"""Uniform chain of layers, for which checkpointing theory has closed forms.

As in Chen et al. 2016 (arXiv 1604.06174) and Griewank and Walther 2000 (Revolve): n layers of equal
size and cost, and one backward operator for each.
"""

from __future__ import annotations

from tinyckpt.base.spec import Spec
from tinyckpt.core.autodiff import backpropagate
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.core.tracing import Builder, apply
from tinyckpt.networks.network import check_sizes
from tinyckpt.ops.activation import tanh
from tinyckpt.ops.nn import HALF_SQUARED_NORM_VJP

MOST_LAYERS = 1_000_000  # two million operators; more is taken for a typo


def chain(n: int, shape: int | tuple[int, ...] = (8, 8), dtype: str = "float64") -> TrainingGraph:
    """Build the chain of n layers: 2n+1 operators, every data node of one size.

    A source ``x``; forward operators ``f1`` to ``fn`` (tanh); ``l``, the gradient of the loss
    (half the squared norm) with respect to the last value; backward operators ``bn`` to ``b1``,
    where ``bi`` reads the value of ``fi`` and the cotangent from ``b(i+1)``. The loss itself is not
    a result, so no operator computes it. The graph takes one array, ``x``, and its gradient is the
    only result.

    Raises:
        GraphError: if n is less than 1, or more than a million.

    >>> [operator.name for operator in chain(2).operators]
    ['f1', 'f2', 'l', 'b2', 'b1']
    """
    check_sizes(f"chain:{n}", MOST_LAYERS, layers=n)
    builder = Builder(f"chain:{n}", adjoint_name=lambda forward: f"b{forward[1:]}")
    x = h = builder.add_source("x", Spec(shape, dtype), "parameter")
    with builder.active():
        for layer in range(1, n + 1):
            with builder.named(f"f{layer}"):
                h = tanh(h)
        with builder.backward_half():
            with builder.named("l"):
                cotangent = apply(HALF_SQUARED_NORM_VJP, h, 1.0)
            cotangents = backpropagate(builder, {h.node.id: cotangent}, [x])
    gradient = cotangents[x.node.id].node.id
    return TrainingGraph(builder.seal((x.node.id,), None, gradient))
