"""Memory estimate of a PyTorch training step, by recording it on FakeTensors.

In: a model, as it is, and arguments. Out: an ``Estimate``: what PyTorch's allocator hands out at
the peak of a plain step, to the byte (``eager`` records the lifetimes), parameters, and FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from tinyckpt.base.units import cost_text, size_text
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.eager import record
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plain training step takes.

    Attributes:
        model: the name of the model's class.
        peak: peak bytes of activations, gradients and workspace; without parameters, buffers and
            arguments.
        source_bytes: bytes of parameters, buffers and arguments.
        flops: of forward and backward pass, as PyTorch's own counter counts them.
        caveat: why other steps may take more, as where forward draws how many layers it runs.
    """

    model: str
    peak: int
    source_bytes: int
    flops: int
    caveat: str = ""

    @property
    def total(self) -> int:
        """Peak bytes, parameters, buffers and arguments included; without an optimizer's state."""
        return self.peak + self.source_bytes

    def __str__(self) -> str:
        return (
            f"{self.model}: {size_text(self.total)} at the peak of a step: "
            f"{size_text(self.source_bytes)} of parameters, buffers and arguments, "
            f"{size_text(self.peak)} of activations, gradients and workspace; "
            f"{cost_text(self.flops, 'FLOPs')}" + f". {self.caveat}" * bool(self.caveat)
        )


@preserving
def estimate(
    model: nn.Module,
    *args: Any,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> Estimate:
    """Estimate the peak memory and the FLOPs of a plain training step, which is not run.

    Args:
        model, args, named, loss, targets, workspace: as in ``advise``.

    Raises:
        GraphError: if the model cannot run as a training step.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> found = tct.estimate(
    ...     torch.nn.Linear(4, 1), torch.ones(8, 4), loss=torch.mean, workspace=False)
    >>> found.total, found.flops
    (208, 128)
    """
    check_calls("estimate")
    with returning_loss(model, args, named, loss, targets) as packed:
        recording = record(model, packed, {}, workspace)
    peak, flops = Wrapping(recording).evaluate(())
    return Estimate(type(model).__name__, peak, recording.source_bytes, flops, recording.caveat)
