"""Networks of any size to plan, run and draw: a function and parameters for it."""

from tinyckpt.networks.chain import chain
from tinyckpt.networks.network import (
    NETWORKS,
    Network,
    branching,
    mlp,
    network_from_text,
    random_arrays,
    residual_mlp,
)

__all__ = [
    "NETWORKS",
    "Network",
    "branching",
    "chain",
    "mlp",
    "network_from_text",
    "random_arrays",
    "residual_mlp",
]
