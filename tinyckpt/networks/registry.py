"""Model registry: from a name such as ``gpt2:8x1024``, or a file, to a network or a graph.

``NETWORKS`` lists the forms for the command line's help, ``FACTORIES`` the functions. A file is a
JSON graph, or a Python file with a function that returns a Network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from tinyckpt.base.errors import GraphError, did_you_mean
from tinyckpt.base.tree import map_leaves
from tinyckpt.core.graph import Graph
from tinyckpt.documents.graphs import load_graph
from tinyckpt.documents.user_functions import function_of_file, importing, user_code
from tinyckpt.networks.bert import bert, roberta
from tinyckpt.networks.chain import chain
from tinyckpt.networks.cnn100 import cnn100
from tinyckpt.networks.gpt2 import gpt2
from tinyckpt.networks.lenet import lenet5
from tinyckpt.networks.llama import llama
from tinyckpt.networks.mobilenet import mobilenet_v1
from tinyckpt.networks.network import Network, branching, mlp, residual_mlp
from tinyckpt.networks.resnet import resnet
from tinyckpt.networks.transformer import transformer
from tinyckpt.networks.unet import unet_network
from tinyckpt.networks.vgg import vgg
from tinyckpt.networks.vit import vit

# What NETWORK may be: name -> (form, an example, what it is).
NETWORKS: dict[str, tuple[str, str, str]] = {
    "chain": ("chain:N", "chain:16", "the canonical chain of N layers"),
    "mlp": ("mlp:LAYERSxWIDTH", "mlp:4x32", "a classifier with LAYERS hidden layers"),
    "residual": ("residual:BLOCKSxWIDTH", "residual:4x32", "a residual MLP"),
    "branching": ("branching:DEPTHxWIDTH", "branching:3x8", "a small U-shaped net"),
    "transformer": (
        "transformer:LAYERSxWIDTH", "transformer:12x768", "a decoder; 64 of the width are a head",
    ),
    "lenet5": ("lenet5:BATCH", "lenet5:64", "LeNet-5, on 32x32 pixels"),
    "cnn100": ("cnn100:BATCH", "cnn100:64", "100 layers on 28x28 pixels"),
    "vgg16": ("vgg16:BATCH", "vgg16:32", "VGG-16, on 224x224 pixels"),
    "vgg16_bn": ("vgg16_bn:BATCH", "vgg16_bn:32", "the same with batch norm"),
    "vgg19": ("vgg19:BATCH", "vgg19:32", "VGG-19"),
    "resnet18": ("resnet18:BATCH", "resnet18:32", "ResNet-18"),
    "resnet50": ("resnet50:BATCH", "resnet50:32", "ResNet-50"),
    "resnet152": ("resnet152:BATCH", "resnet152:32", "ResNet-152"),
    "mobilenet": ("mobilenet:BATCH", "mobilenet:32", "MobileNet"),
    "unet": ("unet:BATCH", "unet:8", "the U-Net, on 256x256 pixels"),
    "vit": ("vit:BATCH", "vit:32", "ViT-B/16"),
    "bert": ("bert:BATCHxLENGTH", "bert:8x512", "BERT-base on sequences of LENGTH"),
    "roberta": ("roberta:BATCHxLENGTH", "roberta:8x512", "RoBERTa-base"),
    "gpt2": ("gpt2:BATCHxLENGTH", "gpt2:8x1024", "GPT-2 of 124M parameters"),
    "gpt2_large": ("gpt2_large:BATCHxLENGTH", "gpt2_large:8x1024", "GPT-2 of 774M parameters"),
    "llama7b": ("llama7b:BATCHxLENGTH", "llama7b:1x2048", "LLaMA-7B"),
}  # fmt: skip
FACTORIES: dict[str, Callable[..., Network | Graph]] = {
    "chain": chain,
    "mlp": mlp,
    "residual": residual_mlp,
    "branching": branching,
    "transformer": transformer,
    "lenet5": lenet5,
    "cnn100": cnn100,
    "vgg16": lambda batch: vgg(16, batch),
    "vgg16_bn": lambda batch: vgg(16, batch, batch_normed=True),
    "vgg19": lambda batch: vgg(19, batch),
    "resnet18": lambda batch: resnet(18, batch),
    "resnet50": lambda batch: resnet(50, batch),
    "resnet152": lambda batch: resnet(152, batch),
    "mobilenet": mobilenet_v1,
    "unet": unet_network,
    "vit": lambda batch: vit(batch=batch),
    "bert": lambda batch, length: bert(batch=batch, length=length),
    "roberta": lambda batch, length: roberta(batch=batch, length=length),
    "gpt2": lambda batch, length: gpt2(batch=batch, length=length),
    "gpt2_large": lambda batch, length: gpt2(36, 1280, batch=batch, length=length),
    "llama7b": lambda batch, length: llama(batch=batch, length=length),
}
MOST_DIGITS = 18  # of a size; far more than can be built, and within 64 bits
# Networks without a published size, which therefore have no default.
UNPUBLISHED = ("chain", "mlp", "residual", "branching", "transformer")


def network_from_text(text: str) -> tuple[Graph, tuple[Any, ...]]:
    """Return the training graph of a network's name, and the specs of its arguments.

    Args:
        text: as for ``network_or_graph``.

    Raises:
        GraphError, FormatError: as ``network_or_graph``.

    >>> graph, specs = network_from_text("chain:4")
    >>> len(graph.operators), [str(spec) for spec in specs]
    (9, ['float64[8,8]'])
    """
    found = network_or_graph(text)
    if isinstance(found, Network):
        return found.graph(), found.specs
    return found, argument_specs(found)


def network_or_graph(text: str) -> Network | Graph:
    """Return the network of a name; a graph, where there is no loss function to return.

    Args:
        text: such as ``chain:16`` or ``mlp:8x256``; ``path/to/graph.json``, a graph as
            ``save_graph`` writes it; or ``path/to/file.py:function``, a function in that file that
            takes nothing and returns a Network.

    Raises:
        GraphError: if the name is unknown; lists the known ones.
        FormatError: if a graph's file is damaged.

    >>> network_or_graph("mlp:8x256").name, network_or_graph("gpt2:8x1024").parameter_count
    ('mlp:8x256', 124439808)
    """
    if not isinstance(text, str):
        raise GraphError(f"expected a network's name, a text such as 'chain:16', got {text!r:.80}")
    name, _, sizes = text.partition(":")
    if ".py:" in text:
        return network_from_file(*text.rsplit(":", 1))
    if text.endswith(".py"):
        raise GraphError(f"{text}: which function of it? Append it, as in {text}:make")
    if text.endswith(".json"):
        return load_graph(text)
    if name not in NETWORKS:
        forms = ", ".join(form for form, _, _ in NETWORKS.values())
        raise GraphError(
            f"unknown network {text!r}{did_you_mean(name, NETWORKS)}; known are {forms}, "
            "path/to/graph.json and path/to/file.py:function"
        )
    form, example, _ = NETWORKS[name]
    if name not in UNPUBLISHED and not sizes:
        sizes = example.partition(":")[2]
    numbers = sizes.split("x")
    count = len(form.partition(":")[2].split("x"))
    # Python converts no texts of thousands of digits.
    is_size = [number.isdecimal() and len(number) <= MOST_DIGITS for number in numbers]
    if len(numbers) != count or not all(is_size):
        raise GraphError(f"network {text!r:.80} does not have the form {form}, such as {example}")
    return FACTORIES[name](*map(int, numbers))


def argument_specs(graph: Graph) -> tuple[Any, ...]:
    """Return the specs of a graph's arguments, nested as the arguments are."""
    return tuple(map_leaves(lambda data: graph.data[data].spec, list(graph.arguments)))


def network_from_file(path: str, name: str) -> Network:
    """Return the Network that a function in a Python file returns."""
    make = function_of_file(path, name)
    with user_code(path, name):
        network = make()
    if not isinstance(network, Network):
        raise GraphError(
            f"{path}:{name} returned a {type(network).__name__}; it must return a "
            "tc.networks.Network(name, loss, specs)"
        )

    @wraps(network.loss)
    def loss(*args: Any) -> Any:
        with importing(path):
            return network.loss(*args)

    return replace(network, loss=loss)
