"""What networks are made of: layers as plain functions, and the specs of their parameters.

A layer is a dict: ``w`` and ``b`` of an affine layer or a convolution, ``scale`` and ``shift`` of a
norm. Images have the layout NCHW: batch, channels, height, width.

**Batch norm has state**, the running statistics, and no function here changes any: what a norm
does is an argument of the network, ``norm``. ``of_batch`` normalises by the batch, as in training;
``running`` does too, and hands out new running statistics as results; ``inference`` normalises by
given ones. So a norm that is recomputed cannot update anything twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Spec
from tinyckpt.core.tracing import scope
from tinyckpt.networks.network import Network, positive
from tinyckpt.ops.activation import relu
from tinyckpt.ops.casting import astype
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.normalization import batch_norm, batch_norm_inference, moved_statistics
from tinyckpt.ops.reduce import mean

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

Norm = Callable[[Any, Any], Any]  # (x, layer) -> y, of x's shape
MOMENTUM = 0.1  # the share of a batch in new running statistics, as in PyTorch

# Specs -------------------------------------------------------------------------------------------


def conv_specs(
    inputs: int, outputs: int, kernel: int, dtype: str = "float32", *, groups: int = 1
) -> dict[str, Spec]:
    """Return the parameters of a convolution with bias: w (Cout, Cin / groups, k, k), b (Cout)."""
    w = Spec((outputs, inputs // groups, kernel, kernel), dtype)
    return {"w": w, "b": Spec(outputs, dtype)}


def norm_specs(width: int, dtype: str) -> dict[str, Spec]:
    """Return the parameters of a norm: scale and shift."""
    return {"scale": Spec(width, dtype), "shift": Spec(width, dtype)}


def conv_norm_specs(
    inputs: int, outputs: int, kernel: int, dtype: str = "float32", *, groups: int = 1
) -> dict[str, Spec]:
    """Return the parameters of a convolution without bias and the batch norm behind it."""
    w = conv_specs(inputs, outputs, kernel, dtype, groups=groups)["w"]
    return {"w": w, **norm_specs(outputs, dtype)}


def statistics_specs(params: Any) -> list[dict[str, Spec]]:
    """Return the running statistics of a network: one mean and variance for each batch norm.

    They stand in the order of the norms among the parameters, which is that of their use; and are
    of 32 bits at least, as ``batch_norm`` makes them.
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
    """Return ``x w + b``."""
    return x @ layer["w"] + layer["b"]


def conv_relu(x: Var, layer: Any, padding: int) -> Var:
    """Return convolution with bias and relu, whose vjp reads its output: the input is dropped."""
    return relu(conv2d(x, layer["w"], layer["b"], padding=padding))


def of_batch(x: Any, layer: Any) -> Any:
    """Return every channel with mean 0 and variance 1 over the batch, scaled and shifted."""
    return batch_norm(x, layer["scale"], layer["shift"])[0]


def running(statistics: Sequence[Any], momentum: float = MOMENTUM) -> tuple[Norm, list[Any]]:
    """Return ``of_batch`` that also makes new running statistics, and the list that it fills.

    Args:
        statistics: the old ones, a mean and a variance of every batch norm, in the order of use.
        momentum: the share of the batch in the new ones.
    """
    updated: list[Any] = []

    def norm(x: Any, layer: Any) -> Any:
        y, mean, variance = batch_norm(x, layer["scale"], layer["shift"])
        old, count = statistics[len(updated)], math.prod(x.shape) // x.shape[1]
        new = moved_statistics(old["mean"], old["variance"], mean, variance, count, momentum)
        updated.append(dict(zip(("mean", "variance"), new, strict=True)))
        return y

    return norm, updated


def inference(statistics: Sequence[Any]) -> Norm:
    """Return a norm by given statistics, those of one batch norm after the other."""
    remaining = iter(statistics)

    def norm(x: Any, layer: Any) -> Any:
        given = next(remaining)
        return batch_norm_inference(
            x, layer["scale"], layer["shift"], given["mean"], given["variance"]
        )

    return norm


def conv_norm(
    x: Any, layer: Any, norm: Norm, *, stride: int = 1, padding: int = 0, groups: int = 1
) -> Any:
    """Return a convolution without bias, normalised."""
    return norm(conv2d(x, layer["w"], stride=stride, padding=padding, groups=groups), layer)


def classified(x: Any, layer: Any) -> Any:
    """Return an affine layer of every channel's average over the pixels."""
    with scope("output"):
        return affine(mean(x, (2, 3)), layer)


def loss_of_logits(logits: Any, labels: Any) -> Any:
    """Return the mean cross-entropy, in float32 at least: float16 ends at 65,504."""
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
    """Return the network that classifies images.

    Args:
        name: the network's.
        logits: ``logits(params, images, norm)`` -> floats of shape ``(batch, classes)``.
        params: the parameters' specs.
        images: their shape, ``(batch, channels, height, width)``.
        dtype: of the images.
        statistics: whether the function is ``loss(params, statistics, images, labels)`` and returns
            ``(loss, new statistics)``, not ``loss(params, images, labels)``, the loss alone.
    """

    def loss(params: Any, images: Any, labels: Any) -> Any:
        return loss_of_logits(logits(params, images, of_batch), labels)

    def loss_and_statistics(params: Any, statistics: Any, images: Any, labels: Any) -> Any:
        norm, updated = running(statistics)
        return loss_of_logits(logits(params, images, norm), labels), updated

    data = Spec(tuple(images), dtype), Spec(images[0], "int64")
    if statistics:
        return Network(name, loss_and_statistics, (params, statistics_specs(params), *data))
    return Network(name, loss, (params, *data))


def check_size(name: str, size: int, multiple: int, **others: int) -> None:
    """Raise a GraphError unless all sizes are at least 1, and images can be halved to the end."""
    positive(name, size=size, **others)
    if size % multiple:
        raise GraphError(f"{name}: size={size}; it must be a multiple of {multiple}")
