"""ZeRO: what each of many ranks holds of a training state that they share out among themselves.

In data parallelism every rank holds all parameters, all gradients and all of the optimiser's state.
Each rank needs only its share of the state to update its share of the parameters (ZeRO-1), so only
that share of the gradients (ZeRO-2); and can ask the others for parameters where it computes with
them (ZeRO-3). Activations are each rank's own, and are not counted here.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
SC 2020, arXiv 1910.02054, sections 5 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text
from tinyckpt.training.ledger import Ledger

SHARED_FROM = {"optimizer state": 1, "gradients": 2, "parameters": 3}  # by which kind of ZeRO


@dataclass(frozen=True, slots=True)
class Sharding:
    """What one rank holds, and what it exchanges with the others in a step.

    Attributes:
        zero: which kind: 1, 2 or 3; 0 for plain data parallelism.
        ranks: how many share.
        parameters, gradients, optimizer_state: bytes on each rank, rounded up.
        exchanged: bytes that a rank sends in a step, for large numbers of ranks: a gradient is
            reduced to its owner (its bytes once) and new parameters come back (once); with ZeRO-3
            parameters come for the forward and again for the backward.
    """

    zero: int
    ranks: int
    parameters: int
    gradients: int
    optimizer_state: int
    exchanged: int

    @property
    def nbytes(self) -> int:
        """Bytes of all three on each rank."""
        return self.parameters + self.gradients + self.optimizer_state

    def __str__(self) -> str:
        return (
            f"ZeRO-{self.zero} on {self.ranks} ranks: {size_text(self.nbytes)} on each "
            f"(parameters {size_text(self.parameters)}, gradients {size_text(self.gradients)}, "
            f"optimizer state {size_text(self.optimizer_state)})"
        )


def sharded(ledger: Ledger, ranks: int, zero: int) -> Sharding:
    """Return what each of some ranks holds if they share the state of a step.

    >>> import tinyckpt as tc
    >>> def loss(params, x):
    ...     return tc.half_squared_norm(x @ params["w"])
    >>> step = tc.train_step(loss, tc.adam(1e-3), gradients="held")
    >>> state = step.init({"w": tc.Spec((512, 512), "float32")})
    >>> ledger = tc.ledger(step.schedule(state, tc.Spec((1, 512), "float32")))
    >>> print(sharded(ledger, 4, 2))
    ZeRO-2 on 4 ranks: 1.8 MiB on each (parameters 1.0 MiB, gradients 256.0 KiB, optimizer state \
512.0 KiB)

    Args:
        ledger: of a step's schedule; with ``gradients="held"`` all gradients are there at once, as
            where they are reduced after the backward.
        ranks: how many share, 1 or more.
        zero: which kind: 0 for plain data parallelism, 1, 2 or 3.

    Raises:
        OptionError: if a number is out of its range.
    """
    if type(ranks) is not int or ranks < 1:
        raise OptionError(f"ranks={ranks!r}; it must be an integer of 1 or more")
    if type(zero) is not int or zero not in range(4):
        raise OptionError(f"zero={zero!r}; ZeRO has 1, 2 and 3, and 0 stands for none of it")
    whole = {
        "parameters": ledger.sources["parameters"],
        "gradients": max(ledger.held["gradients"], default=0)
        + ledger.sources["accumulated gradients"],
        "optimizer state": ledger.sources["optimizer state"],
    }
    share = {
        what: -(-nbytes // ranks) if zero >= SHARED_FROM[what] else nbytes
        for what, nbytes in whole.items()
    }
    passes = 2 if zero == 3 else 1
    exchanged = 0 if ranks == 1 else whole["gradients"] + passes * whole["parameters"]
    return Sharding(
        zero, ranks, share["parameters"], share["gradients"], share["optimizer state"], exchanged
    )
