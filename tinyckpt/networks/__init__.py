"""Networks of any size to plan, run and draw: a function and parameters for it."""

from tinyckpt.networks.chain import chain
from tinyckpt.networks.named import NETWORKS, network_from_text
from tinyckpt.networks.network import Network, branching, mlp, random_arrays, residual_mlp
from tinyckpt.networks.shapes import mobilenet, resnet50, unet, vgg16
from tinyckpt.networks.transformer import transformer

__all__ = [
    "NETWORKS",
    "Network",
    "branching",
    "chain",
    "mlp",
    "mobilenet",
    "network_from_text",
    "random_arrays",
    "residual_mlp",
    "resnet50",
    "transformer",
    "unet",
    "vgg16",
]
