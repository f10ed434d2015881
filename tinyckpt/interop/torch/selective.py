"""Selective checkpointing: every block under ``checkpoint``, but for some operators' results.

In: a model, arguments, a budget. Out: a policy for PyTorch's
``create_selective_checkpoint_contexts``, chosen among a few, and its peak. Each is tried on
FakeTensors, with PyTorch's own ``checkpoint`` around the model's modules, and watched (``eager``):
what PyTorch holds of the results that a policy saves, though nobody reads some of them, is in the
prediction because it is held there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tinyckpt.errors import BudgetError
from tinyckpt.interop.torch.eager import record
from tinyckpt.interop.torch.modules import norms_in, not_averaging, recorded, unwrapped
from tinyckpt.interop.torch.preserving import preserving
from tinyckpt.interop.torch.wrapping import STATE_BYTES, Wrapping
from tinyckpt.planning.budget import budget_in_bytes
from tinyckpt.units import size_text

ATTENTION = "_scaled_dot_product"  # begins the names of attention's kernels, whichever it is
# By what is saved: names of operators; that of attention is the beginning of one.
SAVED: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "attention": (ATTENTION,),
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "convolution"),
    "matrix products and attention": ("mm", "addmm", "bmm", "baddbmm", "convolution", ATTENTION),
}


@dataclass(frozen=True, slots=True)
class Selective:
    """Modules to wrap, whose results of some operators are saved.

    Attributes:
        model: the name of the model's class.
        modules: names of the modules to wrap; none if the step fits as it is.
        saved: whose results are kept, one of ``SAVED``.
        peak: bytes at the peak of a training step, as in ``Advice``.
        cost: FLOPs of a step, in those of the plain one.
        plain_peak: bytes at the peak of the plain step.
        tried: what was looked at: whose results, peak and cost.
    """

    model: str
    modules: tuple[str, ...]
    saved: str
    peak: int
    cost: float
    plain_peak: int
    tried: tuple[tuple[str, int, float], ...] = field(repr=False)

    def __str__(self) -> str:
        if not self.modules:
            return f"{self.model}: {size_text(self.peak)} at the peak as it is; nothing to wrap"
        return (
            f"{self.model}: {size_text(self.peak)} at the peak instead of "
            f"{size_text(self.plain_peak)}, at {self.cost:.3f} times the FLOPs: "
            f"{len(self.modules)} modules wrapped, results of {self.saved} saved"
        )

    def policy(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Say of an operator whether its results are saved.

        For ``create_selective_checkpoint_contexts``::

            contexts = partial(create_selective_checkpoint_contexts, advice.policy)
            y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
        """
        return policy_of(self.saved)(context, operator)

    def apply(self, model: nn.Module) -> nn.Module:
        """Wrap the modules of a model, which may be another one of the same kind; return it.

        Running averages are updated once a step, as without wrapping.

        Raises:
            GraphError: if a module is not there, or is wrapped already; nothing is wrapped then.
        """
        for module in unwrapped(model, self.modules):
            wrap(module, self.saved)
        return model


@preserving
def selective(
    model: nn.Module,
    *args: Any,
    budget: str | int | float,
    modules: Sequence[str] | None = None,
    workspace: bool = True,
) -> Selective:
    """Return which operators' results to save, with all blocks under ``checkpoint``.

    The choice is the cheapest in FLOPs within the budget, of the few in ``SAVED``; ``advise``
    chooses among modules instead. The model is left as it is until ``Selective.apply``.

    Args:
        model, args, budget, workspace: as in ``advise``.
        modules: names of the modules to wrap; by default those that ``advise`` chooses from.

    Raises:
        BudgetError: if no choice is within the budget; says the smallest peak.
        GraphError: as ``advise``.
    """
    recording, names = recorded(model, args, modules, workspace)
    name, chosen = type(model).__name__, tuple(names)
    plain, flops = Wrapping(recording).evaluate(())
    limit = budget_in_bytes(budget, plain, recording.source_bytes)
    tried = []
    for saved in SAVED:
        with wrapped([model.get_submodule(each) for each in chosen], saved):
            peak, total = Wrapping(record(model, args, {}, workspace)).evaluate(())
        tried.append((saved, peak, total / max(flops, 1)))
    if plain <= limit:
        return Selective(name, (), "nothing", plain, 1.0, plain, tuple(tried))
    fitting = [each for each in tried if each[1] <= limit]
    if not fitting:
        what, least, _ = min(tried, key=lambda each: each[1])
        raise BudgetError(
            f"{name}: budget {size_text(limit)}: the smallest peak of {len(tried)} choices of what "
            f"to save in {len(chosen)} modules is {size_text(least)}, saving {what}; plans for "
            "compiled steps go lower",
            least,
        )
    saved, peak, cost = min(fitting, key=lambda each: (each[2], each[1]))
    return Selective(name, chosen, saved, peak, cost, plain, tuple(tried))


# Wrapping ----------------------------------------------------------------------------------------


def policy_of(saved: str) -> Callable[..., CheckpointPolicy]:
    """Return the policy that saves results of some operators, by their key in ``SAVED``."""
    names = SAVED[saved]

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kind = str(operator).split(".")[1]  # aten.mm.default
        if kind in names or (ATTENTION in names and kind.startswith(ATTENTION)):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy


class Again:
    """The contexts of a module's second evaluation, which ``checkpoint`` holds until its backward.

    Averages are not updated in it. While a step is recorded, it holds as much memory as the state
    of the generator that ``checkpoint`` keeps for as long, and another one while it is active:
    these are not made by operators, which is what a recording sees.
    """

    def __init__(self, module: nn.Module, saving: AbstractContextManager[Any], noting: bool):
        self.module, self.saving, self.noting = module, saving, noting
        self.kept = self.state()
        self.active = ExitStack()

    def state(self) -> torch.Tensor | None:
        """Return a tensor like a generator's state, if a step is recorded."""
        if not self.noting:
            return None
        return torch.empty(STATE_BYTES, dtype=torch.uint8, device="cpu")

    def __enter__(self) -> None:
        own = self.state()
        self.active.callback(lambda: own)
        self.active.enter_context(not_averaging(norms_in(self.module)))
        self.active.enter_context(self.saving)

    def __exit__(self, *error: Any) -> bool | None:
        return self.active.__exit__(*error)


def contexts(
    module: nn.Module, saved: str, noting: bool
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return contexts for both evaluations of a module."""
    first, second = create_selective_checkpoint_contexts(policy_of(saved))
    return first, Again(module, second, noting)


def wrap(module: nn.Module, saved: str, noting: bool = False) -> None:
    """Put a module's forward under ``checkpoint``, with results of some operators saved."""
    made = partial(contexts, module, saved, noting)
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, context_fn=made)


@contextmanager
def wrapped(modules: Sequence[nn.Module], saved: str) -> Iterator[None]:
    """While this is active, some modules are wrapped, to be recorded."""
    before = [vars(module).get("forward") for module in modules]
    try:
        for module in modules:
            wrap(module, saved, noting=True)
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                vars(module)["forward"] = forward
