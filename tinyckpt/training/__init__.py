"""Function transformations; training steps as graphs: optimisers, memory ledger, ZeRO table.

Loss scaling and in-place updates, too, and a gradient check by finite differences.
"""

from tinyckpt.training.compiled_step import TrainStep, train_step
from tinyckpt.training.gradient_check import check_gradient
from tinyckpt.training.learning_rates import cosine_rate, linear_rate
from tinyckpt.training.ledger import Ledger, ledger
from tinyckpt.training.optimizers import (
    Optimizer,
    adam,
    adamw,
    clipped,
    momentum,
    sgd,
    with_master_weights,
)
from tinyckpt.training.step_graph import LossScale
from tinyckpt.training.zero_estimate import Sharding, sharded

__all__ = [
    "Ledger",
    "LossScale",
    "Optimizer",
    "Sharding",
    "TrainStep",
    "adam",
    "adamw",
    "check_gradient",
    "clipped",
    "cosine_rate",
    "ledger",
    "linear_rate",
    "momentum",
    "sgd",
    "sharded",
    "train_step",
    "with_master_weights",
]
