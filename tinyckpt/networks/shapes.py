"""Well-known convolutional networks as training graphs: their shapes, bytes and FLOPs, no kernels.

For planning at real size: no arrays are made, and a graph of gigabytes is a matter of milliseconds.
Convolutions, batch norms and max pooling are the abstract operators of ``abstract``, the others are
tinyckpt's own; the graphs plan, replay and draw, and refuse to execute. All values are float32.

Not modelled: activations in place, the running averages of batch norm, dropout, the optimiser.

They ship as JSON documents in ``tinyckpt/data/graphs``; ``tinyckpt graph resnet50 -o FILE.json``
writes one, and ``make graphs`` all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tinyckpt.build import build, scope
from tinyckpt.differentiate import differentiate
from tinyckpt.errors import GraphError
from tinyckpt.graph import Spec, TrainingGraph
from tinyckpt.networks.abstract import abstract, batch_norm, conv2d, conv_transpose2d, max_pool
from tinyckpt.networks.network import layer_specs, positive
from tinyckpt.ops.activation import relu
from tinyckpt.ops.nn import cross_entropy
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import concatenate, reshape, transpose

if TYPE_CHECKING:
    from tinyckpt.var import Var

DTYPE = "float32"
CLASSES = 1000  # of ImageNet

# Layers: specs of their parameters, and what they do ---------------------------------------------


def conv_specs(inputs: int, outputs: int, kernel: int) -> dict[str, Spec]:
    """Return the parameters of a convolution with bias: w (Cout, Cin, k, k), b (Cout)."""
    return {"w": Spec((outputs, inputs, kernel, kernel), DTYPE), "b": Spec(outputs, DTYPE)}


def norm_specs(inputs: int, outputs: int, kernel: int, groups: int = 1) -> dict[str, Spec]:
    """Return the parameters of a convolution without bias and the batch norm behind it."""
    channel = Spec(outputs, DTYPE)
    w = Spec((outputs, inputs // groups, kernel, kernel), DTYPE)
    return {"w": w, "scale": channel, "shift": channel}


def conv_relu(x: Var, layer: Any) -> Var:
    """Return convolution with bias and relu, whose vjp reads its output: the input is dropped."""
    return relu(conv2d(x, layer["w"], layer["b"]))


def conv_norm(x: Var, layer: Any, stride: int = 1, groups: int = 1) -> Var:
    """Return convolution and batch norm over the batch, as in training."""
    h = conv2d(x, layer["w"], stride=stride, groups=groups)
    return batch_norm(h, layer["scale"], layer["shift"])


def classify(x: Var, layer: Any, labels: Var) -> Var:
    """Return the mean cross-entropy of the pixels' average under an affine layer."""
    with scope("output"):
        return cross_entropy(mean(x, (2, 3)) @ layer["w"] + layer["b"], labels)


def training_graph(
    name: str, loss: Callable[..., Any], params: Any, images: Sequence[int], labels: Sequence[int]
) -> TrainingGraph:
    """Return the abstract training graph of ``loss(params, images, labels)``."""
    specs = params, Spec(tuple(images), DTYPE), Spec(tuple(labels), "int64")
    return abstract(differentiate(build(loss, *specs, graph_name=name)))


# The networks ------------------------------------------------------------------------------------


def vgg16(batch: int = 32, size: int = 224, batch_normed: bool = False) -> TrainingGraph:
    """Return VGG-16 (configuration D): 13 convolutions, 3 affine layers, 138.4M parameters.

    15.5 GMAC an image forward, at 224 pixels. Nearly all its memory is in its first two layers, so
    that about 0.86 of store-all's peak is the least there is; not so with batch norm.

    Args:
        batch: images.
        size: height and width in pixels, a multiple of 32.
        batch_normed: whether batch norm stands between convolution and relu, in the place of the
            bias, as in torchvision's ``vgg16_bn``.

    Raises:
        GraphError: if the size is no multiple of 32.

    Source: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
    recognition", arXiv 1409.1556, table 1. Its dropout is left out.
    """
    check_size("vgg16", batch, size, 32)
    stages = []
    inputs = 3
    for outputs, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        widths = [inputs] + [outputs] * (depth - 1)
        specs = norm_specs if batch_normed else conv_specs
        stages.append([specs(width, outputs, 3) for width in widths])
        inputs = outputs
    pixels = (size // 32) ** 2
    affine = [layer_specs(a, b, DTYPE) for a, b in pairwise([inputs * pixels, 4096, 4096, CLASSES])]

    def loss(params: Any, images: Any, labels: Any) -> Any:
        h = images
        for index, stage in enumerate(params["stages"], start=1):
            with scope(f"stage{index}"):
                for layer in stage:
                    h = relu(conv_norm(h, layer)) if batch_normed else conv_relu(h, layer)
                h = max_pool(h, 2, 2)
        with scope("output"):
            *hidden, last = params["affine"]
            h = reshape(h, (batch, -1))
            for layer in hidden:
                h = relu(h @ layer["w"] + layer["b"])
            return cross_entropy(h @ last["w"] + last["b"], labels)

    params = {"stages": stages, "affine": affine}
    title = "vgg16_bn" if batch_normed else "vgg16"
    return training_graph(title, loss, params, (batch, 3, size, size), (batch,))


def resnet50(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Return ResNet-50: 16 bottleneck blocks in 4 stages, 25.6M parameters.

    4.1 GMAC an image forward, at 224 pixels.

    Args:
        batch: images.
        size: height and width in pixels, a multiple of 32.

    Raises:
        GraphError: if the size is no multiple of 32.

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", arXiv
    1512.03385, table 1. A stage's stride is in the 3x3 convolution, as in torchvision ("v1.5"); in
    the first 1x1, as in the paper, it would be 3.9 GMAC.
    """
    check_size("resnet50", batch, size, 32)
    stages: list[list[dict[str, Any]]] = []
    inputs = 64
    for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        stage: list[dict[str, Any]] = []
        for _ in range(depth):
            block: dict[str, Any] = {
                "reduce": norm_specs(inputs, width, 1),
                "middle": norm_specs(width, width, 3),
                "expand": norm_specs(width, 4 * width, 1),
            }
            if not stage:
                block["shortcut"] = norm_specs(inputs, 4 * width, 1)
            stage.append(block)
            inputs = 4 * width
        stages.append(stage)

    def bottleneck(x: Var, block: Any, stride: int) -> Var:
        h = relu(conv_norm(x, block["reduce"]))
        h = relu(conv_norm(h, block["middle"], stride))
        h = conv_norm(h, block["expand"])
        shortcut = conv_norm(x, block["shortcut"], stride) if "shortcut" in block else x
        return relu(h + shortcut)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        with scope("stage1"):
            h = max_pool(relu(conv_norm(images, params["first"], 2)), 3, 2, padding=1)
        for number, stage in enumerate(params["stages"], start=2):
            for index, block in enumerate(stage, start=1):
                with scope(f"stage{number}/block{index}"):
                    h = bottleneck(h, block, 2 if index == 1 and number > 2 else 1)
        return classify(h, params["affine"], labels)

    affine = layer_specs(inputs, CLASSES, DTYPE)
    params = {"first": norm_specs(3, 64, 7), "stages": stages, "affine": affine}
    return training_graph("resnet50", loss, params, (batch, 3, size, size), (batch,))


# Of MobileNet's blocks: channels, and the stride of the depthwise convolution. The table in the
# paper has stride 2 in the last block as well, where input and output are both 7x7: a misprint.
MOBILENET = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip


def mobilenet(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Return MobileNet (v1, width 1.0): 13 depthwise separable blocks, 4.2M parameters.

    0.57 GMAC an image forward, at 224 pixels.

    Args:
        batch: images.
        size: height and width in pixels, a multiple of 32.

    Raises:
        GraphError: if the size is no multiple of 32.

    Source: Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision
    applications", arXiv 1704.04861, table 1.
    """
    check_size("mobilenet", batch, size, 32)
    blocks = []
    inputs = 32
    for outputs, _ in MOBILENET:
        depthwise = norm_specs(inputs, inputs, 3, groups=inputs)
        blocks.append({"depthwise": depthwise, "pointwise": norm_specs(inputs, outputs, 1)})
        inputs = outputs

    def loss(params: Any, images: Any, labels: Any) -> Any:
        with scope("block0"):
            h = relu(conv_norm(images, params["first"], 2))
        for index, (block, (_, stride)) in enumerate(
            zip(params["blocks"], MOBILENET, strict=True), start=1
        ):
            with scope(f"block{index}"):
                h = relu(conv_norm(h, block["depthwise"], stride, groups=h.shape[1]))
                h = relu(conv_norm(h, block["pointwise"]))
        return classify(h, params["affine"], labels)

    affine = layer_specs(inputs, CLASSES, DTYPE)
    params = {"first": norm_specs(3, 32, 3), "blocks": blocks, "affine": affine}
    return training_graph("mobilenet", loss, params, (batch, 3, size, size), (batch,))


def unet(batch: int = 8, size: int = 256, depth: int = 4, width: int = 64) -> TrainingGraph:
    """Return the U-Net: ``depth`` levels down, as many up, each joined across; 31.0M parameters.

    Args:
        batch: images, of one channel.
        size: height and width in pixels, a multiple of 2 to the power of ``depth``.
        depth: how often the image is halved.
        width: channels at full size; they double with every level.

    Raises:
        GraphError: if a parameter is less than 1, or the size does not halve ``depth`` times.

    Source: Ronneberger, Fischer and Brox, "U-Net: convolutional networks for biomedical image
    segmentation", arXiv 1505.04597, figure 1; convolutions are padded here, so that nothing is
    cropped, and the loss, over two classes, does not weigh pixels.
    """
    positive("unet", depth=depth, width=width)
    check_size("unet", batch, size, 2**depth)
    widths = [width << level for level in range(depth + 1)]

    def pair(inputs: int, outputs: int) -> list[dict[str, Spec]]:
        return [conv_specs(inputs, outputs, 3), conv_specs(outputs, outputs, 3)]

    def loss(params: Any, images: Any, labels: Any) -> Any:
        h, across = images, []
        for index, layers in enumerate(params["down"], start=1):
            with scope(f"down{index}" if index <= depth else "bottom"):
                if index > 1:
                    h = max_pool(h, 2, 2)
                for layer in layers:
                    h = conv_relu(h, layer)
                across.append(h)
        h = across.pop()
        # Level by level as on the way down: down1 and up1 are at full size.
        for index, level in reversed(list(enumerate(params["up"], start=1))):
            with scope(f"up{index}"):
                h = conv_transpose2d(h, level["w"], level["b"], stride=2)
                h = concatenate([across.pop(), h], axis=1)
                for layer in level["layers"]:
                    h = conv_relu(h, layer)
        with scope("output"):
            scores = conv2d(h, params["last"]["w"], params["last"]["b"])
            return cross_entropy(transpose(scores, (0, 2, 3, 1)), labels)

    params = {
        "down": [pair(a, b) for a, b in pairwise([1, *widths])],
        "up": [
            # The weight of the convolution whose adjoint this is: (Cin, Cout, 2, 2).
            {"w": Spec((2 * c, c, 2, 2), DTYPE), "b": Spec(c, DTYPE), "layers": pair(2 * c, c)}
            for c in widths[:-1]
        ],
        "last": conv_specs(width, 2, 1),
    }
    return training_graph("unet", loss, params, (batch, 1, size, size), (batch, size, size))


def check_size(name: str, batch: int, size: int, multiple: int) -> None:
    """Raise a GraphError unless images can be halved down to the last stage."""
    positive(name, batch=batch, size=size)
    if size % multiple:
        raise GraphError(f"{name}: size={size}; it must be a multiple of {multiple}")


SHAPES: dict[str, Callable[..., TrainingGraph]] = {
    "vgg16": vgg16,
    "vgg16_bn": partial(vgg16, batch_normed=True),
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "unet": unet,
}
