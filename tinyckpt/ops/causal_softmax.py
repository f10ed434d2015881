"""Causal softmax: softmax over the keys up to each query's position, without a stored mask."""

from __future__ import annotations

from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply
from tinyckpt.ops import kernels_attention
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.nn import SOFTMAX_VJP, softmax
from tinyckpt.ops.shape_inference import per_element


def infer_causal_softmax(x: Spec) -> tuple[Spec, ...]:
    infer.require_float(x)
    if len(x.shape) < 2 or not 0 < x.shape[-2] <= x.shape[-1]:
        raise GraphError(
            f"{x} must be of shape (..., queries, keys), with at least one query and no fewer keys "
            "than queries: the first ones would see no key"
        )
    return (x,)


def causal_softmax_workspace(inputs: Any, outputs: Any) -> int:
    """Return the workspace in bytes: the mask, a boolean per score, or then the row statistics."""
    *_, queries, keys = inputs[0].shape
    rows = inputs[0].size // keys
    statistics = wide(inputs[0].dtype)
    return int(max(queries * keys + 8 * (queries + keys), rows * statistics.itemsize))


CAUSAL_SOFTMAX = Primitive(
    "causal_softmax", kernels_attention.causal_softmax, infer_causal_softmax,
    # Masked weights are 0 and stay 0: the derivative is that of softmax.
    vjp=(lambda ct, ins, outs: apply(SOFTMAX_VJP, outs[0], ct[0], axis=outs[0].ndim - 1),),
    flops=per_element(5),  # as softmax, masked scores too: the kernel skips none
    workspace=causal_softmax_workspace,
)  # fmt: skip


@eager
def causal_softmax(x: Any) -> Var:
    """Softmax over the last axis with a causal mask: hidden keys have weight 0.

    Args:
        x: floats of shape ``(..., queries, keys)``, with as many keys as queries or more. Query i
            sees the keys 0 to ``i + keys - queries``: the last query sees them all.

    Raises:
        GraphError: if there are fewer keys than queries, so that a query would see none.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.causal_softmax)(np.zeros((2, 3)))
    array([[0.5       , 0.5       , 0.        ],
           [0.33333333, 0.33333333, 0.33333333]])
    """
    return apply(CAUSAL_SOFTMAX, x)


def attention_weights(scores: Var, causal: bool) -> Var:
    """Attention weights: the softmax of scores over the keys, causal or not."""
    return causal_softmax(scores) if causal else softmax(scores)
