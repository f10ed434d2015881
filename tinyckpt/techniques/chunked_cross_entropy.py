"""Chunked linear cross-entropy: logits of a few rows at a time, never all of them in memory.

The output projection and the loss in one, chunk by chunk, each recomputed in the backward pass;
known from Liger Kernel as fused linear cross-entropy, here without a fused kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import Var, apply_all, as_var
from tinyckpt.ops.eager import eager
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import CROSS_ENTROPY
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import reshape
from tinyckpt.techniques.chunked_evaluation import chunked


@eager
def chunked_cross_entropy(hidden: Any, weight: Any, labels: Any, chunks: int) -> Var:
    """Compute ``cross_entropy(hidden @ weight, labels)`` without all logits in memory.

    >>> import tinyckpt as tc
    >>> specs = tc.Spec((6, 4)), tc.Spec((4, 9)), tc.Spec((6,), "int64")
    >>> graph = tc.build(lambda h, w, y: tc.chunked_cross_entropy(h, w, y, chunks=3), *specs)
    >>> [graph.data[op.outputs[0]].spec.shape for op in graph.operators if op.kind == "matmul"]
    [(2, 9), (2, 9), (2, 9)]

    Args:
        hidden: floats of shape ``(..., width)``.
        weight: floats of shape ``(width, classes)``.
        labels: integers of shape ``(...)``, each from 0 to classes - 1.
        chunks: number of chunks of the rows of ``hidden``. With the policy ``regions`` the logits
            of one chunk, ``rows / chunks * classes``, are in memory at a time.

    Raises:
        GraphError: if the shapes do not fit, or there are more chunks than rows.
    """
    hidden, labels = as_var(hidden), as_var(labels)
    if not hidden.shape:
        raise GraphError(
            f"chunked_cross_entropy: hidden is a scalar, {hidden.spec}; it must have a last "
            "axis, its width"
        )
    if hidden.shape[:-1] != labels.shape:
        raise GraphError(
            f"chunked_cross_entropy: hidden has shape {hidden.shape}, so labels must have "
            f"{hidden.shape[:-1]}; they have {labels.shape}"
        )
    return mean(losses_in_pieces(matmul, hidden, labels, chunks, weight))


def losses_in_pieces(
    logits: Callable[..., Any], hidden: Any, labels: Any, chunks: int, *whole: Any
) -> Var:
    """Return the cross-entropy of each row, flattened to one axis, computed in chunks.

    Args:
        logits: from a chunk of rows of the hidden states, and ``whole``, to the logits of these.
        hidden: floats of shape ``(..., width)``.
        labels: integers; as many as there are rows.
        chunks: number of chunks.
        whole: arrays that every chunk reads whole, such as the weight.
    """

    def losses(rows: Any, labels: Any, *whole: Any) -> Var:
        return apply_all(CROSS_ENTROPY, logits(rows, *whole), labels)[0]

    rows = reshape(hidden, (labels.size, hidden.shape[-1]))
    flat = reshape(labels, (labels.size,))
    found: Var = chunked(losses, chunks, arguments=(0, 1))(rows, flat, *whole)
    return found
