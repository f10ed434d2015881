"""Activation checkpointing advice for eager PyTorch: which modules to checkpoint within a budget.

In: a model, arguments, a budget. Out: an ``Advice``: the modules to put under
``torch.utils.checkpoint``, the lines to write, and ``apply``, which wraps them. The predicted peak
is what PyTorch's allocator hands out, to the byte, since lifetimes come from a recording of
PyTorch's own autograd (``eager``) and the checkpoint model in ``checkpoint_memory``.

Operators are neither moved nor reordered; plans for compiled steps do that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from torch import nn

from tinyckpt.base.errors import BudgetError, GraphError
from tinyckpt.base.text_table import table
from tinyckpt.base.units import size_text
from tinyckpt.interop.torch.advice_code import (
    CHECKPOINT,
    WRAPPED,
    advice_code,
    cache_lines,
    loop,
)
from tinyckpt.interop.torch.buffer_snapshots import norms_to_freeze
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.candidate_modules import (
    UNUSED,
    candidates_by_depth,
    core_of,
    lines_by_reason,
    modules_to_wrap,
    shortened_list,
    switch_off_caches,
    wrap,
)
from tinyckpt.interop.torch.capture import storage_of
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.choose_modules import ModuleSearch
from tinyckpt.interop.torch.cuda_devices import (
    CudaDevice,
    DeviceMemory,
    device_of,
    memory_on,
)
from tinyckpt.interop.torch.optimizer_memory import Optimizer, optimizer_bytes
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.planner.model.budget import budget_in_bytes

Budget = str | int | float | Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Advice:
    """Modules to checkpoint, with the predicted peak and cost of a training step.

    Attributes:
        model: the name of the model's class.
        modules: names of the modules to wrap, as ``get_submodule`` takes them.
        peak: peak bytes of a training step: activations, gradients, workspace, or the gradients and
            temporaries of the optimizer's step, if there is one; without what is resident.
        cost: FLOPs of a step, as a multiple of the plain step's.
        plain_peak: peak bytes of the plain step.
        source_bytes: bytes of parameters, buffers and arguments.
        candidates: the modules that the search chose from.
        optimal: whether the search was exhaustive.
        averaging: chosen modules with running averages, such as BatchNorm.
        restored: chosen modules that write to their buffers, with the names of these buffers.
        refused: modules that could not be candidates, and why.
        layers: modules that transformers can checkpoint itself, if the model is one of its own.
        core: the name of the innermost module that the model only wraps, such as "module"; if none,
            "".
        resident: what is in memory during the whole step, and its bytes: parameters, buffers,
            arguments, the optimizer's state, the gradient buckets of ``DistributedDataParallel``.
        device: what it takes of a device, if it was asked for one.
        caveat: why other steps may take more, as where forward draws how many layers it runs.
        uncached: modules whose ``config.use_cache`` is to be False, as in transformers' own
            checkpointing; "" is the model. All numbers are of steps without the cache.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> model = torch.nn.Sequential(torch.nn.Tanh(), Loss(4, 1))
    >>> advice = tct.advise(model, torch.ones(8, 4), budget="1 MiB", workspace=False)
    >>> advice.modules, advice.cost  # the plain step fits
    ((), 1.0)
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
    layers: tuple[str, ...] = field(default=(), repr=False)
    core: str = field(default="", repr=False)
    resident: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    device: DeviceMemory | None = field(default=None, repr=False)
    caveat: str = field(default="", repr=False)
    uncached: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        count, head = len(self.candidates), f"{self.model}: {size_text(self.peak)} at the peak"
        lines = [f"{head} as it is; nothing to wrap"]
        if self.uncached:
            lines = [f"{head} with no cache; nothing to wrap:", "", self.source]
        if self.modules:
            found = f"found by a search among 2**{count} choices"
            if self.optimal:
                found = f"the cheapest of all {2**count} choices"
            lines = [
                f"{head} instead of {size_text(self.plain_peak)}, at {self.cost:.3f} times the "
                f"FLOPs; {found}.",
                f"Wrap {len(self.modules)} of {count} modules:",
                "",
                self.source,
            ]
        if self.device is not None:
            lines += ["", str(self.device)]
        if self.caveat:
            lines += ["", self.caveat]
        return "\n".join([*lines, *lines_by_reason(self.refused)])

    @property
    def ledger(self) -> str:
        """What a total budget counts, as a table: in plain steps, and as advised."""
        peaks = self.plain_peak, self.peak
        rows = [[what, *[size_text(nbytes)] * 2] for what, nbytes in self.resident if nbytes]
        other = sum(nbytes for _, nbytes in self.resident)
        rows.append(["activations, gradients, workspace", *map(size_text, peaks)])
        rows.append(["total", *(size_text(other + peak) for peak in peaks)])
        return table(["at the peak", "now", "advised"], rows)

    @property
    def source(self) -> str:
        """The lines to write after the model is built.

        They are complete, unless modules write to buffers: then comments say so, and that ``apply``
        handles it.
        """
        uncached = cache_lines(self.uncached)
        if uncached and not self.modules:
            return uncached.rstrip()
        return self.caution + CHECKPOINT + uncached + loop(self.modules, WRAPPED)

    def code(self, form: str = "torch") -> str:
        """Return lines that wrap the modules of ``model``, without tinyckpt.

        Args:
            form: what they are written for: ``"torch"``, ``"transformers"``, ``"torchtitan"`` (a
                subclass of its full activation checkpointing) or ``"torch_remat"``.

        Raises:
            OptionError: if the form is unknown, or cannot express the advice; says why.
        """
        return advice_code(self, form)

    @property
    def caution(self) -> str:
        """Comments on side effects that the lines do not handle; empty if there are none."""
        text = ""
        if self.restored:
            names = [f"{name}.{buffer}" for name, buffers in self.restored for buffer in buffers]
            text += (
                "# Wrong as it stands: the second evaluation would read and update these buffers\n"
                f"# once more: {shortened_list(names)}.\n"
                "# Advice.apply(model) wraps so that all stays as in plain steps.\n"
            )
        if self.averaging:
            text += (
                "# Running averages (BatchNorm) of these modules would be updated twice a step:\n"
                f"# {shortened_list(self.averaging)}.\n"
                "# Advice.apply(model) wraps so that they are not.\n"
            )
        return text

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
            wrap(module, own)
        if self.uncached:
            switch_off_caches(model)
        return model


@preserving
def advise(
    model: nn.Module,
    *args: Any,
    budget: Budget | None = None,
    modules: Sequence[str] | None = None,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    optimizer: Optimizer | None = None,
    device: str | os.PathLike[str] | None = None,
    **named: Any,
) -> Advice:
    """Choose modules to put under ``torch.utils.checkpoint``: the fewest FLOPs within a budget.

    Runs no kernel except, once each and in isolation, those whose workspace is measured; the model
    is left unchanged until ``Advice.apply``. FLOPs are those of PyTorch's own counter.

    Args:
        model: a module in training mode, as it is.
        args, named: the arguments of forward, by position or by name, or a batch as one dict.
        loss: a function of what forward returns and of the targets, such as
            ``torch.nn.functional.cross_entropy``; by default forward returns the loss: as it is, as
            ``loss`` of a dict or of a ``ModelOutput``, or in a tuple, first or as its only scalar.
        targets: what ``loss`` takes beside the output: a tensor, or several in a tuple; an argument
            of forward, if that takes one of this name.
        budget: largest peak of a step: ``"24 GiB"``, ``"24 GiB total"`` with all that is resident,
            see ``Advice.ledger``, bytes, ``"50 %"`` or 0.5 of the plain step's peak; or a function
            that returns bytes, of that peak and the resident bytes. None: what a ``device`` has.
        modules: names of the candidates; by default the elements of the outermost module lists and
            sequences, and the modules beside them, or of lists in these, whichever is cheaper.
        workspace: whether to measure the kernels' temporary memory. Without it, no kernel runs, and
            peaks are somewhat too small.
        optimizer: whose state and step count, too: a class of ``torch.optim`` by its name, such as
            ``"AdamW"``, the optimizer, or a function that makes it of parameters.
        device: a CUDA device that is not here, such as ``"H100-80GB"``, or the .json file of its
            calibration: sizes are those of its allocator, dropout and attention save what they save
            there, and ``Advice.device`` says what the process takes of it, term by term. The model
            may be on the device ``meta``.

    Raises:
        BudgetError: if no choice of modules was found within the budget, or fits the device; says
            the smallest peak.
        GraphError: if a module is unknown, is never called, calls itself, is nested in another one,
            or writes to its arguments; or if the model cannot run as a training step.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> def block():
    ...     wide = torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8)
    ...     return torch.nn.Sequential(*wide)
    >>> model = torch.nn.Sequential(block(), block(), block(), Loss(8, 1))
    >>> advice = tct.advise(model, torch.ones(64, 8), budget="90 %", workspace=False)
    >>> advice.candidates, advice.peak <= 0.9 * advice.plain_peak
    (('0', '1', '2'), True)
    >>> model = advice.apply(model)
    """
    check_calls("advise")
    if budget is None and device is None:
        raise GraphError("advise needs a budget, such as budget='24 GiB total', or a device")
    known = None if device is None else device_of(device)
    with returning_loss(model, args, named, loss, targets) as packed:
        steps = record_steps(model, packed, modules, workspace, optimizer, known is not None)
        return cheapest(steps, lambda step: step.advise(budget, known))


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded training step, from which advice for any number of budgets follows.

    Attributes:
        model: the module.
        wrapping: the memory model of the step under any choice of modules.
        choosing: the candidates, and the choices evaluated so far.
        refused: modules that cannot be wrapped, and why.
        state_bytes: of the optimizer.
    """

    model: nn.Module
    wrapping: Wrapping
    choosing: ModuleSearch
    refused: tuple[tuple[str, str], ...] = ()
    state_bytes: int = 0

    def advise(self, budget: Budget | None, device: CudaDevice | None = None) -> Advice:
        """Return the cheapest choice within a budget, on a device, or both; as ``advise``."""
        if device is not None:
            return self.on(device, budget)
        assert budget is not None
        return self.within(budget)

    @property
    def resident(self) -> dict[str, int]:
        """The bytes that are in memory during a whole step, by what they are."""
        sources = self.wrapping.recording.source_bytes
        return resident_bytes(self.model, sources) | {"optimizer state": self.state_bytes}

    def bytes_of(self, budget: Budget) -> int:
        """Return a budget for a step in bytes."""
        plain, other = self.wrapping.evaluate(())[0], sum(self.resident.values())
        return budget(plain, other) if callable(budget) else budget_in_bytes(budget, plain, other)

    def within(self, budget: Budget) -> Advice:
        """Return the cheapest choice of modules within a budget.

        Raises:
            BudgetError: if none was found; says the smallest peak.
        """
        choosing, budget_size = self.choosing, self.bytes_of(budget)
        sources = self.wrapping.recording.source_bytes
        plain, flops = self.wrapping.evaluate(())
        name, found = type(self.model).__name__, choosing.search(budget_size)
        if found is None:
            raise budget_error(name, choosing, budget_size, self.refused)
        restored = self.wrapping.recording.restored
        return Advice(
            name, found.names, found.peak, found.flops / max(flops, 1), plain, sources,
            choosing.names, choosing.exact,
            tuple(
                n for n in found.names
                if norms_to_freeze(self.model.get_submodule(n), restored.get(n, ()))
            ),
            tuple((n, restored[n]) for n in found.names if n in restored),
            self.refused, layers_of_transformers(self.model), core_of(self.model),
            tuple(self.resident.items()), caveat=self.wrapping.recording.caveat,
            uncached=self.wrapping.recording.uncached,
        )  # fmt: skip

    def on(self, device: CudaDevice, budget: Budget | None) -> Advice:
        """Return the cheapest choice of modules that fits a device, and a budget if there is one.

        Raises:
            BudgetError: if none was found.
        """
        tensors = [p.nbytes for p in self.model.parameters() if p.requires_grad]
        shares = self.state_bytes, self.wrapping.afterwards - sum(tensors)
        state, temporaries = (
            [nbytes * max(whole, 0) // max(sum(tensors), 1) for nbytes in tensors]
            for whole in shares
        )
        sources = self.wrapping.recording.source_bytes
        room = device.capacity - device.context - device.workspaces - sources - self.state_bytes
        if budget is not None and self.bytes_of(budget) < room:
            room = self.within(budget).peak
        while True:
            try:
                advice = self.within(max(room, 1))
            except BudgetError as error:
                raise self.device_error(device, error) from error
            taken = memory_on(device, self.wrapping, advice.modules, state, temporaries)
            if taken.fits:
                return replace(advice, device=taken)
            room = advice.peak - max(taken.total - device.capacity, 1)

    def device_error(self, device: CudaDevice, error: BudgetError) -> BudgetError:
        """Return the BudgetError for a device on which no choice of modules fits."""
        other = sum(self.resident.values())
        beside = device.context + device.workspaces
        text = (
            f"{type(self.model).__name__} does not fit {device.name}, which has "
            f"{size_text(device.capacity)}: {size_text(other)} of parameters, buffers, arguments "
            f"and the optimizer's state, {size_text(beside)} of CUDA context and cuBLAS, and a "
            f"step of at least {size_text(error.smallest or 0)}"
        )
        if self.wrapping.afterwards and self.wrapping.afterwards >= (error.smallest or 0):
            text += (
                ", which is what gradients and the optimizer's temporaries take in its own step; "
                "fused=True has fewer"
            )
        return BudgetError(text, error.smallest, error.proven)


def cheapest(steps: Iterable[RecordedStep], advise: Callable[[RecordedStep], Advice]) -> Advice:
    """Return the cheapest of what is advised for each step, the first one of equals.

    The steps are of one model, each with finer candidates than the one before. No more are taken
    once nothing has to be recomputed.

    Raises:
        BudgetError: if none meets the budget: that with the smallest peak.
    """
    found: list[Advice] = []
    errors: list[BudgetError] = []
    for step in steps:
        try:
            found.append(advise(step))
        except BudgetError as error:
            # Its frames refer to this list, and would keep the tensors of a recording.
            errors.append(error.with_traceback(None))
        if found and not found[-1].modules:
            break
    if not found:
        raise min(errors, key=lambda each: each.smallest or 0)
    return min(found, key=attrgetter("cost"))


def record_steps(
    model: nn.Module,
    args: Sequence[Any],
    modules: Sequence[str] | None,
    workspace: bool,
    optimizer: Optimizer | None = None,
    cuda: bool = False,
) -> Iterator[RecordedStep]:
    """Record a step; yield it with the candidates of each depth. Arguments as in ``advise``."""
    recorded = candidates_by_depth(model, args, modules, workspace and not cuda, cuda=cuda)
    for recording, reasons in recorded:
        wrapping, state = Wrapping(recording, reasons), 0
        if optimizer is not None:
            state, temporaries = optimizer_bytes(optimizer, model, cuda)
            wrapping.afterwards = trainable_bytes(model) + temporaries
        usable = [each for each, reason in reasons.items() if not reason]
        refused = tuple((each, reason) for each, reason in reasons.items() if reason)
        if modules is None:
            usable = [n for n in usable if any(call.inside for call in wrapping.modules[n])]
        search = ModuleSearch(usable, wrapping.evaluate)
        yield RecordedStep(model, wrapping, search, refused, state)


def resident_bytes(model: nn.Module, sources: int) -> dict[str, int]:
    """Return the bytes that are in memory during a whole step, by what they are.

    ``DistributedDataParallel`` copies gradients into buckets, which it keeps from step to step.

    Args:
        model: the model, which may be in such a wrapper.
        sources: bytes of parameters, buffers and arguments.
    """
    parameters, state = (
        sum(nbytes for _, nbytes in set(filter(None, map(storage_of, each))))
        for each in (list(model.parameters()), [*model.parameters(), *model.buffers()])
    )
    parallel = any(
        isinstance(part, nn.parallel.DistributedDataParallel) for part in model.modules()
    )
    return {
        "parameters": parameters,
        "buffers": state - parameters,
        "arguments": sources - state,
        "gradient buckets": trainable_bytes(model) * parallel,
    }


def trainable_bytes(model: nn.Module) -> int:
    """Return the bytes of the parameters that get gradients."""
    return sum(p.nbytes for p in model.parameters() if p.requires_grad)


def layers_of_transformers(model: nn.Module) -> tuple[str, ...]:
    """Return the names of a model's layers that transformers can checkpoint; none of others."""
    if not hasattr(model, "activation_checkpointing_enable"):
        return ()
    return tuple(
        name
        for name, module in model.named_modules()
        if any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)
    )


def budget_error(
    name: str, choosing: ModuleSearch, budget_size: int, refused: Sequence[tuple[str, str]]
) -> BudgetError:
    """Return the BudgetError for a budget that no choice of modules meets."""
    best = choosing.smallest()
    what = "any choice" if choosing.exact else "the choices tried"
    called = [each for each in refused if each[1] != UNUSED]
    why = f"; {len(called)} cannot be wrapped: {' '.join(called[0])}" if called else ""
    if "past_key_values" in why or "layer_past" in why:  # a decoder's cache of keys and values
        why += ": pass use_cache=False"
    return BudgetError(
        f"{name}: budget {size_text(budget_size)}: the smallest peak of {what} of "
        f"{len(choosing.names)} modules is {size_text(best.peak)}, with {best.count} wrapped; "
        f"other modules can be named (modules=), and plans for compiled steps go lower{why}",
        best.peak,
        choosing.exact,
    )
