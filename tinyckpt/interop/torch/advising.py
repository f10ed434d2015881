"""Which modules of a model to put under ``torch.utils.checkpoint``, for plain eager training.

In: a model, arguments, a budget. Out: an ``Advice``, which says what to write, and does it. Its
peak is what PyTorch's allocator will hand out, to the byte, since what is held follows from a
recording of PyTorch's own autograd (``eager``, ``wrapping``).

It does not move or reorder operators, as plans for compiled steps do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import size_text
from tinyckpt.interop.torch.choose_modules import Choosing
from tinyckpt.interop.torch.modules import (
    check_restored,
    listed,
    recorded,
    refusals,
    unwrapped,
    wrap,
)
from tinyckpt.interop.torch.preserving import preserving
from tinyckpt.interop.torch.restoring import norms_in, slot_of
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.interop.torch.wrapping import Wrapping
from tinyckpt.planner.model.budget import budget_in_bytes


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
        restored: those of the modules that write to buffers of theirs, and the names of these.
        refused: modules that could not be chosen, and why.
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
    restored: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), repr=False)
    refused: tuple[tuple[str, str], ...] = field(default=(), repr=False)

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
            lines = [f"{head} as it is; nothing to wrap"]
        else:
            lines = [
                f"{head}; {found}.",
                f"Wrap {len(self.modules)} of {len(self.candidates)} modules:",
                "",
                self.source,
            ]
        return "\n".join([*lines, *refusals(self.refused)])

    @property
    def source(self) -> str:
        """The lines to write, once the model is there.

        They are all that is to do, unless modules write to buffers: then they say so, and that
        ``apply`` takes care of it.
        """
        names = "".join(f'    "{name}",\n' for name in self.modules)
        return (
            f"{self.caution}"
            "from functools import partial\n"
            "from torch.utils.checkpoint import checkpoint\n"
            "\n"
            f"for name in (\n{names}):\n"
            "    module = model.get_submodule(name)\n"
            "    module.forward = partial(checkpoint, module.forward, use_reentrant=False)"
        )

    @property
    def caution(self) -> str:
        """Comments on what the lines do not take care of; empty if nothing."""
        text = ""
        if self.restored:
            names = [f"{name}.{buffer}" for name, buffers in self.restored for buffer in buffers]
            text += (
                "# Wrong as it stands: the second evaluation would read and update these buffers\n"
                f"# once more: {listed(names)}.\n"
                "# Advice.apply(model) wraps so that all stays as in plain steps.\n"
            )
        if self.averaging:
            text += (
                "# Running averages (BatchNorm) of these modules would be updated twice a step:\n"
                f"# {listed(self.averaging)}.\n"
                "# Advice.apply(model) wraps so that they are not.\n"
            )
        return text

    def apply(self, model: nn.Module) -> nn.Module:
        """Wrap the modules of a model, which may be another one of the same kind; return it.

        Buffers that are written in forward, such as running averages, are updated once a step, as
        without wrapping, and gradients are those without wrapping.

        Raises:
            GraphError: if a module is not there, or is wrapped already; nothing is wrapped then.
        """
        restored = dict(self.restored)
        modules = unwrapped(model, self.modules)
        check_restored(model, restored)
        for name, module in zip(self.modules, modules, strict=True):
            wrap(module, restored.get(name, ()))
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
        budget: of a step's peak: ``"24 GiB"``, ``"24 GiB total"`` with parameters, buffers and
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
    check_calls("advise")
    return watched(model, args, modules, workspace).within(budget)


@dataclass(frozen=True, slots=True)
class Watched:
    """A step that was recorded once, for advice on any number of budgets.

    Attributes:
        model: the module.
        wrapping: what the step holds for any choice of modules.
        choosing: the modules to choose from, and the choices that were evaluated.
        refused: modules that cannot be wrapped, and why.
    """

    model: nn.Module
    wrapping: Wrapping
    choosing: Choosing
    refused: tuple[tuple[str, str], ...] = ()

    def within(self, budget: str | int | float) -> Advice:
        """Return the cheapest choice of modules within a budget.

        Raises:
            BudgetError: if none was found; says the smallest.
        """
        choosing, sources = self.choosing, self.wrapping.recording.source_bytes
        plain, flops = self.wrapping.evaluate(())
        budget_size = budget_in_bytes(budget, plain, sources)
        name, found = type(self.model).__name__, choosing.search(budget_size)
        if found is None:
            raise unreachable(name, choosing, budget_size)
        restored = {n: own for n, own in self.wrapping.recording.restored.items() if own}
        return Advice(
            name, found.names, found.peak, found.flops / max(flops, 1), plain, sources,
            choosing.names, choosing.exact,
            tuple(n for n in found.names if averaging(self.model, n, restored)),
            tuple((n, restored[n]) for n in found.names if n in restored),
            self.refused,
        )  # fmt: skip


def watched(
    model: nn.Module, args: Sequence[Any], modules: Sequence[str] | None, workspace: bool
) -> Watched:
    """Record a step, and return what there is to choose from; ``advise`` says what is what."""
    recording, reasons = recorded(model, args, modules, workspace)
    wrapping = Wrapping(recording)
    usable = [each for each, reason in reasons.items() if not reason]
    refused = tuple((each, reason) for each, reason in reasons.items() if reason)
    if modules is None:
        usable = [each for each in usable if wrapping.modules[each].inside]
    return Watched(model, wrapping, Choosing(usable, wrapping.evaluate), refused)


def averaging(model: nn.Module, name: str, restored: Mapping[str, Sequence[str]]) -> bool:
    """Whether a module has running averages that are not put back as other buffers are."""
    module = model.get_submodule(name)
    owners = {slot_of(module, own)[0] for own in restored.get(name, ())}
    return any(norm not in owners for norm in norms_in(module))


def unreachable(name: str, choosing: Choosing, budget_size: int) -> BudgetError:
    """Return the error about a budget that no choice of modules reaches."""
    best = choosing.smallest()
    what = "any choice" if choosing.exact else "the choices tried"
    return BudgetError(
        f"{name}: budget {size_text(budget_size)}: the smallest peak of {what} of "
        f"{len(choosing.names)} modules is {size_text(best.peak)}, with {best.count} wrapped; "
        "other modules can be named (modules=), and plans for compiled steps go lower",
        best.peak,
        choosing.exact,
    )
