"""Layers of convolutional networks as plain functions: affine, convolution, batch norm, loss.

Each with the specs of its parameters, a dict: ``w`` and ``b`` of an affine layer or a convolution,
``scale`` and ``shift`` of a norm. Images have the layout NCHW: batch, channels, height, width.

**Batch norm is functional**: its state, the running statistics, is an argument and a result, never
updated in place. The behaviour of norms is an argument of the network, ``norm``:
``batch_norm_training`` normalises by the batch, as in training; ``batch_norm_running`` does so too,
and returns updated running statistics; ``inference`` normalises by given ones. A recomputed norm
therefore cannot update statistics twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import Var, scope
from tinyckpt.networks.network import Network, check_sizes
from tinyckpt.ops.activation import relu
from tinyckpt.ops.casting import astype
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.normalization import batch_norm, batch_norm_inference, moved_statistics
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import reshape

Norm = Callable[[Any, Any], Any]  # (x, layer) -> y, of x's shape
MOMENTUM = 0.1  # weight of the batch in updated running statistics, as in PyTorch

# Specs -------------------------------------------------------------------------------------------


def conv_specs(
    inputs: int, outputs: int, kernel: int, dtype: str = "float32", *, groups: int = 1
) -> dict[str, Spec]:
    """Return the specs of a convolution with bias: w (Cout, Cin / groups, k, k), b (Cout)."""
    w = Spec((outputs, inputs // groups, kernel, kernel), dtype)
    return {"w": w, "b": Spec(outputs, dtype)}


def norm_specs(width: int, dtype: str) -> dict[str, Spec]:
    """Return the specs of a norm: scale and shift."""
    return {"scale": Spec(width, dtype), "shift": Spec(width, dtype)}


def conv_norm_specs(
    inputs: int, outputs: int, kernel: int, dtype: str = "float32", *, groups: int = 1
) -> dict[str, Spec]:
    """Return the specs of a convolution without bias and of the batch norm after it."""
    w = conv_specs(inputs, outputs, kernel, dtype, groups=groups)["w"]
    return {"w": w, **norm_specs(outputs, dtype)}


def statistics_specs(params: Any) -> list[dict[str, Spec]]:
    """Return the specs of a network's running statistics: a mean and variance per batch norm.

    They are in the order of the norms among the parameters, which is the order of use, and at least
    32 bits wide, as ``batch_norm`` returns them.

    >>> params = {"layer1": conv_norm_specs(3, 16, 3), "head": {"w": Spec((16, 10), "float32")}}
    >>> [{name: str(spec) for name, spec in each.items()} for each in statistics_specs(params)]
    [{'mean': 'float32[16]', 'variance': 'float32[16]'}]
    """
    if isinstance(params, dict):
        if "scale" in params:
            spec = Spec(params["scale"].shape, wide(params["scale"].dtype))
            return [{"mean": spec, "variance": spec}]
        params = list(params.values())
    if not isinstance(params, list):
        return []
    return [statistics for inner in params for statistics in statistics_specs(inner)]


# Layers ------------------------------------------------------------------------------------------


def affine(x: Any, layer: Any) -> Any:
    """Apply an affine layer: ``x w + b``."""
    return x @ layer["w"] + layer["b"]


def affine_logits(h: Any, layers: Sequence[Any], nonlinearity: Callable[[Any], Any]) -> Any:
    """Flatten images, and apply affine layers with a nonlinearity after all but the last."""
    with scope("output"):
        h = reshape(h, (h.shape[0], -1))
        *hidden, last = layers
        for layer in hidden:
            h = nonlinearity(affine(h, layer))
        return affine(h, last)


def conv_relu(x: Var, layer: Any, padding: int) -> Var:
    """Apply a convolution with bias, and relu: its vjp reads its output, so its input is freed."""
    return relu(conv2d(x, layer["w"], layer["b"], padding=padding))


def batch_norm_training(x: Any, layer: Any) -> Any:
    """Apply batch norm by the batch's statistics, as in training."""
    return batch_norm(x, layer["scale"], layer["shift"])[0]


def batch_norm_running(statistics: Sequence[Any]) -> tuple[Norm, list[Any]]:
    """Return a training-mode batch norm that updates running statistics, and the list it fills.

    Args:
        statistics: the old ones, a mean and a variance of every batch norm, in the order of use.
    """
    updated: list[Any] = []

    def norm(x: Any, layer: Any) -> Any:
        y, mean, variance = batch_norm(x, layer["scale"], layer["shift"])
        old, count = statistics[len(updated)], math.prod(x.shape) // x.shape[1]
        new = moved_statistics(old["mean"], old["variance"], mean, variance, count, MOMENTUM)
        updated.append(dict(zip(("mean", "variance"), new, strict=True)))
        return y

    return norm, updated


def inference(statistics: Sequence[Any]) -> Norm:
    """Return an inference-mode batch norm, by given running statistics in the order of use.

    >>> import tinyckpt as tc
    >>> from tinyckpt.networks import resnet, resnet_logits
    >>> params, statistics, images, _ = resnet(18, 2, 32, width=4, statistics=True).arrays()
    >>> predict = tc.jit(lambda p, s, images: resnet_logits(p, images, inference(s)))
    >>> predict(params, statistics, images).shape
    (2, 1000)
    """
    if not isinstance(statistics, Sequence):
        raise GraphError(f"inference: statistics={statistics!r:.80}; expected one per batch norm")
    remaining = iter(statistics)

    def norm(x: Any, layer: Any) -> Any:
        if (given := next(remaining, None)) is None:
            raise GraphError(f"inference: statistics of {len(statistics)} batch norms; more follow")
        return batch_norm_inference(
            x, layer["scale"], layer["shift"], given["mean"], given["variance"]
        )

    return norm


def conv_norm(
    x: Any, layer: Any, norm: Norm, *, stride: int = 1, padding: int = 0, groups: int = 1
) -> Any:
    """Apply a convolution without bias, and a norm."""
    return norm(conv2d(x, layer["w"], stride=stride, padding=padding, groups=groups), layer)


def classifier_head(x: Any, layer: Any) -> Any:
    """Apply the classifier head: global average pooling and an affine layer."""
    with scope("output"):
        return affine(mean(x, (2, 3)), layer)


def loss_of_logits(logits: Any, labels: Any) -> Any:
    """Return the mean cross-entropy, in float32 at least, since float16 overflows at 65,504."""
    with scope("output"):
        narrow = logits.dtype.itemsize < 4
        return cross_entropy(astype(logits, "float32") if narrow else logits, labels)


def image_classifier(
    name: str,
    logits: Callable[..., Any],
    params: Any,
    images: Sequence[int],
    dtype: str,
    *,
    statistics: bool = False,
) -> Network:
    """Build an image classifier under cross-entropy, from its logits function and its specs.

    Args:
        name: the network's.
        logits: ``logits(params, images, norm)`` -> floats of shape ``(batch, classes)``.
        params: the parameters' specs.
        images: their shape, ``(batch, channels, height, width)``.
        dtype: of the images.
        statistics: whether the function is ``loss(params, statistics, images, labels)`` and returns
            ``(loss, updated statistics)``, or ``loss(params, images, labels)``, the loss alone.
    """

    def loss(params: Any, images: Any, labels: Any) -> Any:
        return loss_of_logits(logits(params, images, batch_norm_training), labels)

    def loss_and_statistics(params: Any, statistics: Any, images: Any, labels: Any) -> Any:
        norm, updated = batch_norm_running(statistics)
        return loss_of_logits(logits(params, images, norm), labels), updated

    data = Spec(tuple(images), dtype), Spec(images[0], "int64")
    if statistics:
        return Network(name, loss_and_statistics, (params, statistics_specs(params), *data))
    return Network(name, loss, (params, *data))


def check_image_size(name: str, size: int, multiple: int, **others: int) -> None:
    """Raise a GraphError unless all sizes are at least 1, and ``size`` divides by ``multiple``."""
    check_sizes(name, size=size, **others)
    if size % multiple:
        raise GraphError(f"{name}: size={size}; it must be a multiple of {multiple}")
