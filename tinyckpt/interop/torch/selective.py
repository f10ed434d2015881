"""Selective activation checkpointing (PyTorch SAC): search for the operators whose results to save.

In: a model, arguments, a budget. Out: a policy for PyTorch's
``create_selective_checkpoint_contexts``, chosen among those in ``SAVED``, and its peak. Each
candidate is run on FakeTensors, with PyTorch's own ``checkpoint`` around the model's modules, and
recorded (``eager``): results that PyTorch stores for a policy although nothing reads them are
therefore in the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tinyckpt.base.errors import BudgetError, GraphError
from tinyckpt.base.units import size_text
from tinyckpt.interop.torch import buffer_snapshots
from tinyckpt.interop.torch.advice_code import selective_code
from tinyckpt.interop.torch.buffer_snapshots import Reentrant
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.candidate_modules import (
    candidates_by_depth,
    core_of,
    lines_by_reason,
    modules_to_wrap,
    switch_off_caches,
)
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.eager import forwards_restored, record
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.planner.model.budget import budget_in_bytes

ATTENTION = "_scaled_dot_product"  # prefix of the names of all attention kernels
# Candidates: names of operators whose results are saved; ATTENTION is a prefix.
SAVED: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "attention": (ATTENTION,),
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "convolution"),
    "matrix products and attention": ("mm", "addmm", "bmm", "baddbmm", "convolution", ATTENTION),
}


@dataclass(frozen=True, slots=True)
class Selective:
    """Modules to checkpoint, and the operators whose results are saved in them.

    Attributes:
        model: the name of the model's class.
        modules: names of the modules to wrap; none if the step fits without.
        saved: the operators whose results are saved, a key of ``SAVED``.
        peak: peak bytes of a training step, as in ``Advice``.
        cost: FLOPs of a step, as a multiple of the plain step's.
        plain_peak: peak bytes of the plain step.
        tried: all evaluated candidates: key, peak and cost.
        restored: chosen modules that write to their buffers, with the names of these buffers.
        refused: modules that cannot be wrapped, results that cannot be saved, and why.
        core, uncached: as in ``Advice``.

    >>> Selective("GPT", ("blocks.0",), "attention", 2**20, 1.2, 2**21, tried=()).saved
    'attention'
    """

    model: str
    modules: tuple[str, ...]
    saved: str
    peak: int
    cost: float
    plain_peak: int
    tried: tuple[tuple[str, int, float], ...] = field(repr=False)
    restored: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), repr=False)
    refused: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    core: str = field(default="", repr=False)
    uncached: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        how = "with no cache" if self.uncached else "as it is"
        text = f"{self.model}: {size_text(self.peak)} at the peak {how}; nothing to wrap"
        if self.modules:
            text = (
                f"{self.model}: {size_text(self.peak)} at the peak instead of "
                f"{size_text(self.plain_peak)}, at {self.cost:.3f} times the FLOPs: "
                f"{len(self.modules)} modules wrapped, results of {self.saved} saved"
            )
        return "\n".join([text, *lines_by_reason(self.refused)])

    def policy(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Decide whether an operator's results are saved.

        For ``create_selective_checkpoint_contexts``::

            contexts = partial(create_selective_checkpoint_contexts, advice.policy)
            y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
        """
        return policy_of(self.saved)(context, operator)

    def code(self, form: str = "torch") -> str:
        """Return lines that wrap the modules of ``model``, without tinyckpt.

        Args:
            form: ``"torch"``, with ``create_selective_checkpoint_contexts``, or ``"torchtitan"``, a
                memory policy of its graph trainer, for the whole model.

        Raises:
            OptionError: if the form is unknown, or cannot express the advice; says why.
        """
        return selective_code(self, form, SAVED[self.saved], ATTENTION)

    def apply(self, model: nn.Module) -> nn.Module:
        """Wrap the modules of a model, which may be another one of the same kind; return it.

        Either model may be in a wrapper, such as ``DistributedDataParallel``.

        Buffers that forward writes to, such as running averages, are updated once a step, as
        without wrapping, and gradients are those without wrapping.

        Raises:
            GraphError: if a module is absent or already wrapped; then nothing is wrapped.
        """
        chosen = modules_to_wrap(model, self.modules, dict(self.restored), self.core)
        for module, own in chosen:
            wrap(module, self.saved, own)
        if self.uncached:
            switch_off_caches(model)
        return model


@preserving
def selective(
    model: nn.Module,
    *args: Any,
    budget: str | int | float,
    modules: Sequence[str] | None = None,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> Selective:
    """Choose the operators whose results to save, all blocks being under ``checkpoint``.

    Returns the cheapest candidate of ``SAVED`` within the budget, in FLOPs; ``advise`` chooses
    among modules instead. The model is left unchanged until ``Selective.apply``.

    Args:
        model, args, named, loss, targets, budget, workspace: as in ``advise``.
        modules: names of the modules to wrap; by default the candidates of ``advise``.

    Raises:
        BudgetError: if no candidate is within the budget; says the smallest peak.
        GraphError: as ``advise``.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), Loss(4, 1))
    >>> found = tct.selective(model, torch.ones(8, 4), budget="1 MiB", workspace=False)
    >>> found.modules, found.cost  # the plain step fits
    ((), 1.0)
    >>> [saved for saved, peak, cost in found.tried]
    ['nothing', 'attention', 'matrix products', 'matrix products and attention']
    """
    check_calls("selective")
    with returning_loss(model, args, named, loss, targets) as packed:
        return cheapest_saved(model, packed, budget, modules, workspace)


def cheapest_saved(
    model: nn.Module,
    args: Sequence[Any],
    budget: str | int | float,
    modules: Sequence[str] | None,
    workspace: bool,
) -> Selective:
    """Record a step under each choice of ``SAVED``; arguments as in ``selective``."""
    recording, reasons = next(candidates_by_depth(model, args, modules, workspace))
    name = type(model).__name__
    chosen = tuple(each for each, reason in reasons.items() if not reason)
    refused = tuple((each, reason) for each, reason in reasons.items() if reason)
    plain, flops = Wrapping(recording, reasons).evaluate(())
    budget_size = budget_in_bytes(budget, plain, recording.source_bytes)
    tried = []
    for saved, operators in SAVED.items():
        try:
            with forwards_restored(map(model.get_submodule, chosen)):
                for each in chosen:
                    wrap(model.get_submodule(each), saved, recording.restored.get(each, ()))
                peak, total = Wrapping(record(model, args, {}, workspace)).evaluate(())
        except GraphError as error:  # for example, results that are written in place afterwards
            if not operators:
                raise
            refused += ((f"results of {saved}", str(error)),)
            continue
        tried.append((saved, peak, total / max(flops, 1)))
    if plain <= budget_size:
        return Selective(
            name, (), "nothing", plain, 1.0, plain, tuple(tried), (), refused,
            uncached=recording.uncached,
        )  # fmt: skip
    fitting = [each for each in tried if each[1] <= budget_size]
    if not fitting:
        what, least, _ = min(tried, key=lambda each: each[1])
        raise BudgetError(
            f"{name}: budget {size_text(budget_size)}: the smallest peak of {len(tried)} choices "
            f"of what to save in {len(chosen)} modules is {size_text(least)}, saving {what}; plans "
            "for compiled steps go lower",
            least,
        )
    saved, peak, cost = min(fitting, key=lambda each: (each[2], each[1]))
    return Selective(
        name, chosen, saved, peak, cost, plain, tuple(tried), tuple(recording.restored.items()),
        refused, core_of(model), recording.uncached,
    )  # fmt: skip


# Wrapping ----------------------------------------------------------------------------------------


def policy_of(saved: str) -> Callable[..., CheckpointPolicy]:
    """Return the SAC policy that saves the results of some operators, by their key in ``SAVED``."""
    names = SAVED[saved]

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kind = str(operator).split(".")[1]  # aten.mm.default
        if kind in names or (ATTENTION in names and kind.startswith(ATTENTION)):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def contexts(
    module: nn.Module, saved: str, restored: Sequence[str]
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of a module's first and second evaluation."""
    keeping, again = buffer_snapshots.contexts(module, restored)
    first, second = create_selective_checkpoint_contexts(policy_of(saved))
    return Reentrant(lambda: keeping, lambda: first), Reentrant(lambda: again, lambda: second)


def wrap(module: nn.Module, saved: str, restored: Sequence[str] = ()) -> None:
    """Put a module's forward under ``checkpoint``, with the results of some operators saved."""
    made = partial(contexts, module, saved, tuple(restored))
    if not restored and not buffer_snapshots.norms_in(module):  # which torch.compile takes
        made = partial(create_selective_checkpoint_contexts, policy_of(saved))
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, context_fn=made)
