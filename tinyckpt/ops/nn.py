"""Softmax, log-softmax, cross-entropy with integer labels, one-hot, and half the squared norm."""

from __future__ import annotations

import functools
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, apply_all, as_var
from tinyckpt.ops import kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import add, exp
from tinyckpt.ops.reduce import MAX_VJP, mean, sum
from tinyckpt.ops.reduce import max as largest
from tinyckpt.ops.shape import expand_dims
from tinyckpt.ops.shape_inference import per_element


def infer_one_hot(labels: Spec, classes: int, dtype: str) -> tuple[Spec, ...]:
    require_labels(labels)
    return (Spec((*labels.shape, classes), dtype),)


def require_labels(labels: Spec) -> None:
    """Raise a GraphError unless the spec is of integers."""
    if labels.dtype.kind not in "iu":
        raise GraphError(
            f"labels must be integers, one class index each, got {labels}; "
            "convert with y.astype('int64')"
        )


def infer_cross_entropy(logits: Spec, labels: Spec) -> tuple[Spec, ...]:
    infer.require_float(logits)
    require_labels(labels)
    if not logits.shape or logits.shape[:-1] != labels.shape or logits.shape[-1] == 0:
        raise GraphError(
            f"logits {logits} and labels {labels}: labels must have the logits' shape without "
            "the last axis, which counts the classes"
        )
    return (Spec(labels.shape, logits.dtype), Spec(labels.shape, logits.dtype))


def vjp_softmax_vjp(ct: Any, ins: Any, outs: Any, axis: int) -> Any:
    y, g = ins
    inner = sum(g * y, axis, keepdims=True)
    return ct[0] * (g - inner) - g * sum(ct[0] * y, axis, keepdims=True)


def line_bytes(inputs: Any, outputs: Any, axis: int) -> int:
    """Return a workspace of one number per line along the axis: a maximum, or a sum."""
    return int(outputs[0].nbytes // max(outputs[0].shape[axis], 1))


SOFTMAX_VJP: Primitive = Primitive(
    "softmax_vjp", kernels.softmax_vjp, infer.same_spec_as(0),
    vjp=(
        vjp_softmax_vjp,
        lambda ct, ins, outs, axis: apply(SOFTMAX_VJP, ins[0], ct[0], axis=axis),
    ),
    flops=per_element(4),
    workspace=line_bytes,
)  # fmt: skip
SOFTMAX = Primitive(
    "softmax", kernels.softmax, infer.same_spec_as(0),
    vjp=(lambda ct, ins, outs, axis: apply(SOFTMAX_VJP, outs[0], ct[0], axis=axis),),
    flops=per_element(5),  # the maximum, the difference, exp, the sum, the quotient
    workspace=line_bytes,
)  # fmt: skip
LOG_SOFTMAX_VJP: Primitive = Primitive(
    "log_softmax_vjp", kernels.log_softmax_vjp, infer.same_spec_as(0),
    vjp=(
        lambda ct, ins, outs, axis: -ct[0] * exp(ins[0]) * sum(ins[1], axis, keepdims=True),
        lambda ct, ins, outs, axis: ct[0] - sum(ct[0] * exp(ins[0]), axis, keepdims=True),
    ),
    flops=per_element(4),
    workspace=line_bytes,
)  # fmt: skip
LOG_SOFTMAX = Primitive(
    "log_softmax", kernels.log_softmax, infer.same_spec_as(0),
    vjp=(lambda ct, ins, outs, axis: apply(LOG_SOFTMAX_VJP, outs[0], ct[0], axis=axis),),
    flops=per_element(5),  # the maximum, two differences, exp, the sum
    # The exponentials, and their sums.
    workspace=lambda inputs, outputs, axis: (
        outputs[0].nbytes + line_bytes(inputs, outputs, axis)
    ),
)  # fmt: skip

ONE_HOT = Primitive(
    "one_hot", kernels.one_hot, infer_one_hot, vjp=(zero,),
    # The comparison of labels with all classes, a boolean per element; the classes, eight bytes
    # each, are freed before the result is allocated.
    workspace=lambda inputs, outputs, classes, dtype: (
        outputs[0].size + max(0, 8 * classes - outputs[0].nbytes)
    ),
)  # fmt: skip


def shifted_softmax(logits: Var, logsumexp: Var) -> Var:
    """Return the softmax, given ``log sum exp(logits - max)``."""
    return exp(logits - largest(logits, -1, keepdims=True) - expand_dims(logsumexp, -1))


def vjp_cross_entropy(ct: Any, ins: Any, outs: Any) -> Any:
    logits, labels = ins
    _, logsumexp = outs
    g, g_logsumexp = ct
    parts = []
    if g is not None:
        parts.append(apply(CROSS_ENTROPY_VJP, logits, labels, logsumexp, g))
    if g_logsumexp is not None:
        parts.append(shifted_softmax(logits, logsumexp) * expand_dims(g_logsumexp, -1))
        parts.append(-scatter_to_max(logits, g_logsumexp))
    return functools.reduce(add, parts)


def scatter_to_max(logits: Var, g: Var) -> Var:
    """Scatter the cotangent ``g`` to the position of the largest logit."""
    return apply(MAX_VJP, logits, largest(logits, -1), g, axes=(logits.ndim - 1,), keepdims=False)


def vjp_cross_entropy_vjp_logits(ct: Any, ins: Any, outs: Any) -> Any:
    logits = ins[0]
    slope = scaled_softmax(ct, ins)
    return slope - scatter_to_max(logits, sum(slope, -1))


def scaled_softmax(ct: Any, ins: Any) -> Any:
    logits, _, logsumexp, g = ins
    return ct[0] * shifted_softmax(logits, logsumexp) * expand_dims(g, -1)


def vjp_cross_entropy_vjp_g(ct: Any, ins: Any, outs: Any) -> Any:
    logits, labels, logsumexp, _ = ins
    target = one_hot(labels, logits.shape[-1], logits.dtype)
    return sum(ct[0] * (shifted_softmax(logits, logsumexp) - target), -1)


CROSS_ENTROPY_VJP = Primitive(
    "cross_entropy_vjp",  # (logits, labels, spread, g) -> (softmax - one_hot) g
    kernels.cross_entropy_vjp,
    lambda logits, labels, spread, g: (logits,),
    vjp=(
        vjp_cross_entropy_vjp_logits,
        zero,
        lambda ct, ins, outs: -sum(scaled_softmax(ct, ins), -1),
        vjp_cross_entropy_vjp_g,
    ),
    # The maximum, two differences, exp, the target, the product with g.
    flops=per_element(6),
    # First the maximum of each row; then the comparison of labels (a boolean per element) with all
    # classes (eight bytes each).
    workspace=lambda inputs, outputs: max(
        inputs[2].nbytes, outputs[0].size + 8 * outputs[0].shape[-1]
    ),
)
CROSS_ENTROPY = Primitive(
    "cross_entropy",  # (logits, labels) -> (losses, log sum exp(logits - max))
    kernels.cross_entropy,
    infer_cross_entropy,
    vjp=(vjp_cross_entropy, zero),
    # The maximum, the difference, exp, the sum.
    flops=lambda inputs, outputs: 4 * inputs[0].size,
    # The shifted logits; also the maximum of each row, or eight bytes per label for its flat index,
    # before the second result is allocated.
    workspace=lambda inputs, outputs: (
        inputs[0].nbytes + max(0, 8 * outputs[0].size - outputs[1].nbytes)
    ),
)


def infer_half_squared_norm(x: Spec) -> tuple[Spec, ...]:
    infer.require_float(x)
    return (Spec((), x.dtype),)


HALF_SQUARED_NORM_VJP = Primitive(
    "half_squared_norm_vjp", kernels.half_squared_norm_vjp, infer.same_spec_as(0),
    vjp=(
        lambda ct, ins, outs: ct[0] * ins[1],
        lambda ct, ins, outs: sum(ct[0] * ins[0]),
    ),
    flops=per_element(1),
)  # fmt: skip
HALF_SQUARED_NORM = Primitive(
    "half_squared_norm", kernels.half_squared_norm, infer_half_squared_norm,
    vjp=(lambda ct, ins, outs: apply(HALF_SQUARED_NORM_VJP, ins[0], ct[0]),),
    flops=lambda inputs, outputs: 2 * inputs[0].size,
    workspace=lambda inputs, outputs: inputs[0].nbytes,
)  # fmt: skip


def nonempty_axis(x: Var, axis: int) -> int:
    """Return the axis counted from the front; it must have elements."""
    position = infer.checked_axis(axis, x.ndim)
    if x.shape[position] == 0:
        raise GraphError(f"{x.spec} has no elements along axis {position}")
    return position


@eager
def softmax(x: Var, axis: int = -1) -> Var:
    """Softmax, ``exp(x) / sum(exp(x))``, along an axis, evaluated without overflow.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.softmax)(np.array([0.0, 0.0, 1000.0, 1000.0]))
    array([0. , 0. , 0.5, 0.5])
    """
    x = as_var(x)
    return apply(SOFTMAX, x, axis=nonempty_axis(x, axis))


@eager
def log_softmax(x: Var, axis: int = -1) -> Var:
    """Log-softmax, ``x - log(sum(exp(x)))``, along an axis, evaluated without overflow.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.log_softmax)(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    x = as_var(x)
    return apply(LOG_SOFTMAX, x, axis=nonempty_axis(x, axis))


@eager
def one_hot(labels: Var, classes: int, dtype: Any = "float64") -> Var:
    """One-hot encoding: 1 where the index along a new last axis equals the label, 0 elsewhere.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda labels: tc.one_hot(labels, 3))(np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    return apply(ONE_HOT, labels, classes=classes, dtype=Spec((), dtype).dtype.name)


@eager
def cross_entropy(logits: Any, labels: Any) -> Var:
    """Softmax cross-entropy, ``-log softmax(logits)[label]``, averaged over the batch.

    Args:
        logits: floats of shape ``(..., classes)``.
        labels: integers of shape ``(...)``, each from 0 to classes - 1.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.cross_entropy)(np.zeros((2, 4)), np.array([0, 3])).round(4)
    np.float64(1.3863)
    """
    losses, _ = apply_all(CROSS_ENTROPY, logits, labels)
    return mean(losses) if losses.ndim else losses


@eager
def half_squared_norm(x: Var) -> Var:
    """Half the sum of the squares of all elements; its gradient is ``x``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(tc.half_squared_norm)(np.array([3.0, 4.0]))
    array([3., 4.])
    """
    return apply(HALF_SQUARED_NORM, x)
