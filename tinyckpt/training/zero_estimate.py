"""ZeRO memory estimate: parameters, gradients and optimiser state per rank, in closed form.

In data parallelism every rank stores all parameters, all gradients and all of the optimiser state.
Each rank needs only its shard of the state to update its shard of the parameters (ZeRO-1), so only
that shard of the gradients (ZeRO-2); and can gather parameters from the others when it computes
with them (ZeRO-3). Activations are not sharded, and are not counted here. For the same action by
action see ``tinyckpt.pipeline.zero_memory``.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
SC 2020, arXiv 1910.02054, sections 5 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text
from tinyckpt.training.ledger import Ledger

SHARED_FROM = {"optimizer state": 1, "gradients": 2, "parameters": 3}  # from which ZeRO stage on


@dataclass(frozen=True, slots=True)
class Sharding:
    """Training state per rank, and communication volume of a step.

    Attributes:
        zero: ZeRO stage 1, 2 or 3; 0 for plain data parallelism.
        ranks: their number.
        parameters, gradients, optimizer_state: bytes on each rank, rounded up.
        exchanged: bytes that a rank sends in a step, in the limit of many ranks: gradients are
            reduced to their owners (their bytes once) and new parameters are gathered (once); with
            ZeRO-3 parameters are gathered for the forward and again for the backward.

    >>> Sharding(zero=1, ranks=4, parameters=80, gradients=80, optimizer_state=40, exchanged=160)
    Sharding(zero=1, ranks=4, parameters=80, gradients=80, optimizer_state=40, exchanged=160)
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
    """Estimate the memory per rank if ranks shard the training state of a step by ZeRO.

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
        ledger: of a step's schedule; with ``gradients="held"`` all gradients are in memory at
            once, as where they are reduced after the backward.
        ranks: their number, 1 or more.
        zero: ZeRO stage: 0 for plain data parallelism, 1, 2 or 3.

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
