"""Every network at test size, in float64 by default, with arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyckpt import networks
from tinyckpt.base.tree import leaves, map_leaves

CLASSES = 7  # and words of a vocabulary
DECODER: dict[str, Any] = {"layers": 2, "width": 8, "heads": 2, "length": 5, "batch": 2}
TEXT: dict[str, Any] = {**DECODER, "vocabulary": CLASSES}
VGG: dict[str, Any] = {"batch": 2, "size": 32, "width": 2, "hidden": 6, "classes": CLASSES}
IMAGES: dict[str, Any] = {"batch": 2, "size": 64, "width": 2, "classes": CLASSES}

SMALL: dict[str, Callable[..., networks.Network]] = {
    "lenet5": lambda **o: networks.lenet5(**{"batch": 2, "size": 20, "classes": CLASSES, **o}),
    "cnn100": lambda **o: networks.cnn100(
        **{"batch": 2, "size": 9, "layers": 5, "width": 4, "classes": CLASSES, **o}
    ),
    "vgg16": lambda **o: networks.vgg(16, **{**VGG, **o}),
    "vgg16_bn": lambda **o: networks.vgg(16, **{**VGG, "size": 64, "batch_normed": True, **o}),
    "vgg19": lambda **o: networks.vgg(19, **{**VGG, **o}),
    "resnet18": lambda **o: networks.resnet(18, **{**IMAGES, **o}),
    "resnet50": lambda **o: networks.resnet(50, **{**IMAGES, **o}),
    "mobilenet": lambda **o: networks.mobilenet_v1(**{**IMAGES, **o}),
    "unet": lambda **o: networks.unet_network(
        **{"batch": 2, "size": 8, "depth": 2, "width": 2, **o}
    ),
    "vit": lambda **o: networks.vit(
        **{"layers": 2, "width": 8, "heads": 2, "size": 8, "batch": 2, "patch": 4, **o},
        classes=CLASSES,
    ),
    "bert": lambda **o: networks.bert(**{**TEXT, "positions": 6, **o}),
    "bert_classes": lambda **o: networks.bert(**{**TEXT, "positions": 6, "classes": 3, **o}),
    "roberta": lambda **o: networks.roberta(**{**TEXT, "positions": 7, **o}),
    "gpt2": lambda **o: networks.gpt2(**{**TEXT, "positions": 6, **o}),
    "llama": lambda **o: networks.llama(**{**TEXT, "hidden": 12, **o}),
    "llama_grouped": lambda **o: networks.llama(
        **{**TEXT, "heads": 4, "kv_heads": 2, "hidden": 12, **o}
    ),
}
# Below what each integer argument is, where it is not CLASSES.
BELOW = {"unet": (2,), "bert": (7, 2, 7), "bert_classes": (7, 2, 3), "roberta": (7, 1, 7)}


def small(name: str, **options: Any) -> networks.Network:
    """Return a network at test size; options are its own."""
    return SMALL[name](**{"dtype": "float64", **options})


def arguments(name: str, network: networks.Network, seed: int = 0) -> tuple[Any, ...]:
    """Return arrays for a network: parameters of any values, random images, tokens and labels."""
    params, *data = network.arrays(seed)
    generator = np.random.default_rng(seed)
    below = iter(BELOW.get(name, (CLASSES,) * 3))
    arrays = []
    for array in data:
        integers = isinstance(array, np.ndarray) and array.dtype.kind == "i"
        if integers and array.ndim:
            array = generator.integers(0, next(below), array.shape)
        arrays.append(array)
    return (shaken(params, generator), *arrays)


def shaken(params: Any, generator: np.random.Generator) -> Any:
    """Return parameters none of which is 0 or 1, so that neutral values cannot mask errors."""
    return map_leaves(lambda x: (x + 0.1 * generator.normal(size=x.shape)).astype(x.dtype), params)


def equal(ours: Any, theirs: Any) -> bool:
    """Whether two trees hold the same arrays, bit for bit."""
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
