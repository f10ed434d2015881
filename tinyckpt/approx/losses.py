"""Cross-entropy whose logits are gone through a piece at a time, so that they are never whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyckpt.approx.chunked import chunked
from tinyckpt.base.errors import GraphError
from tinyckpt.core.primitive import apply_all, as_var
from tinyckpt.core.tracing import Var
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import CROSS_ENTROPY
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import reshape


def chunked_cross_entropy(hidden: Any, weight: Any, labels: Any, chunks: int) -> Var:
    """Return ``cross_entropy(hidden @ weight, labels)`` without ever holding all of the logits.

    Args:
        hidden: floats of shape ``(..., width)``.
        weight: floats of shape ``(width, classes)``.
        labels: integers of shape ``(...)``, each from 0 to classes - 1.
        chunks: in how many pieces the rows of ``hidden`` are gone through. With the policy
            ``regions`` one piece's logits, ``rows / chunks * classes``, are held at a time.

    Raises:
        GraphError: if the shapes do not fit, or there are more chunks than rows.
    """
    hidden, labels = as_var(hidden), as_var(labels)
    if not hidden.shape:
        raise GraphError(
            f"chunked_cross_entropy: hidden is one number, {hidden.spec}; it must have a last "
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
    """Return the cross-entropy of each row, in one axis.

    Args:
        logits: from some rows of the hidden states, and ``whole``, to those rows' logits.
        hidden: floats of shape ``(..., width)``.
        labels: integers; as many as there are rows.
        chunks: how many pieces.
        whole: what every piece reads all of, such as the weight.
    """

    def losses(rows: Any, labels: Any, *whole: Any) -> Var:
        return apply_all(CROSS_ENTROPY, logits(rows, *whole), labels)[0]

    rows = reshape(hidden, (labels.size, hidden.shape[-1]))
    flat = reshape(labels, (labels.size,))
    found: Var = chunked(losses, chunks, arguments=(0, 1))(rows, flat, *whole)
    return found
