"""Which modules of a model to put under ``torch.utils.checkpoint``, for plain eager training.

In: a model, arguments, a budget. Out: an ``Advice``, which says what to write, and does it. Its
peak is what PyTorch's allocator will hand out, to the byte, since what is held follows from a
recording of PyTorch's own autograd (``eager``, ``wrapping``).

It does not move or reorder operators, as plans for compiled steps do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from tinyckpt.errors import BudgetError
from tinyckpt.interop.torch.choosing import Choosing
from tinyckpt.interop.torch.modules import norms_in, not_averaging, recorded, unwrapped
from tinyckpt.interop.torch.preserving import preserving
from tinyckpt.interop.torch.wrapping import Wrapping
from tinyckpt.planning.budget import budget_in_bytes
from tinyckpt.units import size_text


@dataclass(frozen=True, slots=True)
class Advice:
    """Modules to wrap, and what comes of it.

    Attributes:
        model: the name of the model's class.
        modules: names of the modules to wrap, as ``get_submodule`` takes them.
        peak: bytes at the peak of a training step: activations, gradients, workspace; parameters,
            buffers and arguments are not in it.
        cost: FLOPs of a step, in those of the plain one.
        plain_peak: bytes at the peak of the plain step.
        source_bytes: of parameters, buffers and arguments.
        candidates: the modules that were to choose from.
        optimal: whether every choice of them was looked at.
        averaging: those of the modules that have running averages, as BatchNorm.
    """

    model: str
    modules: tuple[str, ...]
    peak: int
    cost: float
    plain_peak: int
    source_bytes: int
    candidates: tuple[str, ...] = field(repr=False)
    optimal: bool = False
    averaging: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        head = (
            f"{self.model}: {size_text(self.peak)} at the peak"
            if not self.modules
            else f"{self.model}: {size_text(self.peak)} at the peak instead of "
            f"{size_text(self.plain_peak)}, at {self.cost:.3f} times the FLOPs"
        )
        found = (
            f"the cheapest of all {2 ** len(self.candidates)} choices"
            if self.optimal
            else f"found by a search among 2**{len(self.candidates)} choices"
        )
        if not self.modules:
            return f"{head} as it is; nothing to wrap"
        lines = [
            f"{head}; {found}.",
            f"Wrap {len(self.modules)} of {len(self.candidates)} modules:",
            "",
            self.source,
        ]
        if self.averaging:
            lines += [
                "",
                "Their running averages (BatchNorm) would then be updated twice a step; "
                "Advice.apply(model) wraps them so that they are not.",
            ]
        return "\n".join(lines)

    @property
    def source(self) -> str:
        """The lines to write, once the model is there."""
        names = "".join(f'    "{name}",\n' for name in self.modules)
        return (
            "from functools import partial\n"
            "from torch.utils.checkpoint import checkpoint\n"
            "\n"
            f"for name in (\n{names}):\n"
            "    module = model.get_submodule(name)\n"
            "    module.forward = partial(checkpoint, module.forward, use_reentrant=False)"
        )

    def apply(self, model: nn.Module) -> nn.Module:
        """Wrap the modules of a model, which may be another one of the same kind; return it.

        Running averages are updated once a step, as without wrapping.

        Raises:
            GraphError: if a module is not there, or is wrapped already; nothing is wrapped then.
        """
        for module in unwrapped(model, self.modules):
            wrap(module)
        return model


@preserving
def advise(
    model: nn.Module,
    *args: Any,
    budget: str | int | float,
    modules: Sequence[str] | None = None,
    workspace: bool = True,
) -> Advice:
    """Return which modules to put under ``torch.utils.checkpoint`` to stay within a budget.

    No kernel runs but, once each and alone, those whose temporaries are to be known; the model is
    left as it is until ``Advice.apply``. The cost that is least is that in FLOPs, as PyTorch's own
    counter counts them.

    Args:
        model: a module in training whose forward returns a scalar loss.
        args: what forward takes.
        budget: of a step's peak: ``"24 GiB"``, ``"24 GiB in all"`` with parameters, buffers and
            arguments, bytes, ``"50 %"`` or 0.5 of the plain step's peak.
        modules: names of modules to choose from; by default the elements of the outermost lists
            and sequences of modules, and what stands beside them.
        workspace: whether to see which memory kernels hold besides inputs and outputs. Without,
            no kernel runs, and peaks are somewhat too small.

    Raises:
        BudgetError: if no choice of modules was found within the budget; says the smallest.
        GraphError: if a module is unknown, is never called or more than once, stands in another
            one, or writes to its arguments; or the model cannot be run as a training step.
    """
    return watched(model, args, modules, workspace).within(budget)


@dataclass(frozen=True, slots=True)
class Watched:
    """A step that was recorded once, for advice on any number of budgets.

    Attributes:
        model: the module.
        wrapping: what the step holds for any choice of modules.
        choosing: the modules to choose from, and the choices that were evaluated.
    """

    model: nn.Module
    wrapping: Wrapping
    choosing: Choosing

    def within(self, budget: str | int | float) -> Advice:
        """Return the cheapest choice of modules within a budget.

        Raises:
            BudgetError: if none was found; says the smallest.
        """
        choosing, sources = self.choosing, self.wrapping.recording.source_bytes
        plain, flops = self.wrapping.evaluate(())
        limit = budget_in_bytes(budget, plain, sources)
        name, found = type(self.model).__name__, choosing.search(limit)
        if found is None:
            raise unreachable(name, choosing, limit)
        averaging = tuple(n for n in found.names if norms_in(self.model.get_submodule(n)))
        return Advice(
            name, found.names, found.peak, found.flops / max(flops, 1), plain, sources,
            choosing.names, choosing.exact, averaging,
        )  # fmt: skip


def watched(
    model: nn.Module, args: Sequence[Any], modules: Sequence[str] | None, workspace: bool
) -> Watched:
    """Record a step, and return what there is to choose from; ``advise`` says what is what."""
    recording, usable = recorded(model, args, modules, workspace)
    wrapping = Wrapping(recording)
    if modules is None:
        usable = [each for each in usable if wrapping.modules[each].inside]
    return Watched(model, wrapping, Choosing(usable, wrapping.evaluate))


def unreachable(name: str, choosing: Choosing, limit: int) -> BudgetError:
    """Return the error about a budget that no choice of modules reaches."""
    best = choosing.smallest()
    what = "any choice" if choosing.exact else "the choices tried"
    return BudgetError(
        f"{name}: budget {size_text(limit)}: the smallest peak of {what} of "
        f"{len(choosing.names)} modules is {size_text(best.peak)}, with {best.count} wrapped; "
        "other modules can be named (modules=), and plans for compiled steps go lower",
        best.peak,
        choosing.exact,
    )


# Wrapping ----------------------------------------------------------------------------------------


def wrap(module: nn.Module) -> None:
    """Put a module's forward under ``checkpoint``."""
    context: dict[str, Callable[[], Any]] = {}
    if norms_in(module):
        context["context_fn"] = partial(once_averaging, module)
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, **context)


def once_averaging(
    module: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return contexts for both evaluations of a module; averages are not updated in the second."""
    return nullcontext(), not_averaging(norms_in(module))
