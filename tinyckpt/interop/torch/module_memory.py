"""Memory of a training step per module: what each adds to the forward and the backward pass.

In: a model, as it is, and arguments. Out: a table with a row per module, its children included, of
the same recording as ``estimate``: peaks while its forward and its backward pass run, as PyTorch's
``MemTracker`` has them, the activations that autograd saves in it, and gradients of its parameters.
Rows add up: a tensor that several modules save counts where it is first saved, once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from torch import nn

from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.eager import Recording, record
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls

DEPTH = 3  # levels of modules that are printed, as torchinfo prints them
HEADER = ("module", "kind", "forward peak", "saved", "backward peak", "gradients", "FLOPs")


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """What a module takes in a training step, its children included; sizes are bytes.

    Attributes:
        name: as ``get_submodule`` takes it; empty for the model itself.
        kind: the name of its class.
        forward_peak: most memory that activations and workspace of the whole step take while its
            forward runs; 0 if nothing is evaluated in it.
        saved: activations stored from the forward to the backward pass, first saved in it.
        backward_peak: most memory, gradients included, while its backward pass runs.
        gradients: of its own parameters, which stay to the end of the step; of shared ones, those
            that no other module had before.
        flops: of its forward and backward pass, and of recomputations.
    """

    name: str
    kind: str
    forward_peak: int = 0
    saved: int = 0
    backward_peak: int = 0
    gradients: int = 0
    flops: int = 0

    @property
    def depth(self) -> int:
        """The number of modules that it lies in."""
        return len(self.name.split(".")) if self.name else 0


@dataclass(frozen=True, slots=True)
class MemoryByModule:
    """A training step's memory, module by module.

    Attributes:
        rows: of all modules, in the order of ``named_modules``; the first is the model.
        source_bytes: bytes of parameters, buffers and arguments, which no row counts.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> found = tct.memory_by_module(model, torch.ones(16, 4), loss=torch.mean, workspace=False)
    >>> print(found)
    module      kind        forward peak  saved  backward peak  gradients  FLOPs
    Sequential  Sequential       1.0 KiB  512 B        1.5 KiB      196 B  2,816
      0         Linear             512 B                 716 B      160 B  2,048
      1         Tanh             1.0 KiB  512 B        1.5 KiB
      2         Linear             576 B               1.1 KiB       36 B    768
    """

    rows: tuple[ModuleMemory, ...]
    source_bytes: int = 0

    @property
    def peak(self) -> int:
        """Peak bytes of the step, as in ``Estimate``."""
        return max(self.rows[0].forward_peak, self.rows[0].backward_peak)

    def table(self, depth: int = DEPTH) -> str:
        """Return a table of the modules down to a depth."""
        return table(HEADER, self.texts(depth))

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return html_table(HEADER, self.texts(DEPTH))

    def texts(self, depth: int) -> list[list[str]]:
        """Return the rows of the table; what is 0 is empty."""
        return [
            [
                "  " * row.depth + (row.name.rpartition(".")[2] or row.kind),
                row.kind,
                *(
                    size_text(size) if size else ""
                    for size in (row.forward_peak, row.saved, row.backward_peak, row.gradients)
                ),
                cost_text(row.flops, "FLOPs").removesuffix("FLOPs").strip() if row.flops else "",
            ]
            for row in self.rows
            if row.depth <= depth
        ]


@preserving
def memory_by_module(
    model: nn.Module,
    *args: Any,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> MemoryByModule:
    """Say what each module takes in a plain training step, which is not run.

    Args:
        model, args, named, loss, targets, workspace: as in ``advise``.

    Raises:
        GraphError: if the model cannot run as a training step.
    """
    check_calls("memory_by_module")
    with returning_loss(model, args, named, loss, targets) as packed:
        recording = record(model, packed, {}, workspace, by_module=True)
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    return MemoryByModule(rows_of(recording, kinds), recording.source_bytes)


def rows_of(recording: Recording, kinds: dict[str, str]) -> tuple[ModuleMemory, ...]:
    """Return the rows of a recording, for modules with their kinds, by name."""
    totals: dict[str, dict[str, int]] = {name: defaultdict(int) for name in kinds}
    within: dict[str, list[dict[str, int]]] = {}
    for name in kinds:
        parts = name.split(".") if name else []
        outer = (".".join(parts[:count]) for count in range(len(parts) + 1))
        within[name] = [totals[each] for each in outer if each in totals]
    wrapping = Wrapping(recording)
    taken = (wrapping.live() + wrapping.workspace).tolist()
    for event, (owner, size) in enumerate(zip(recording.owners, taken, strict=True)):
        peak = "forward_peak" if event < recording.forward else "backward_peak"
        for row in within[owner]:
            row["flops"] += recording.flops[event]
            row[peak] = max(row[peak], size)
    for event, size in saved_first(recording):
        for row in within[recording.owners[event]]:
            row["saved"] += size
    for name, size in recording.gradients.items():
        for row in within[name.rpartition(".")[0]]:
            row["gradients"] += size
    return tuple(ModuleMemory(name, kind, **totals[name]) for name, kind in kinds.items())


def saved_first(recording: Recording) -> list[tuple[int, int]]:
    """Return where each activation that the backward pass needs is saved first: event, bytes.

    What no hook saw, such as what ``checkpoint`` stores, counts where it was made.
    """
    first: dict[int, int] = {}
    for saved in recording.saved:
        if saved.saved < recording.forward:
            first.setdefault(saved.storage, saved.saved)
    return [
        (first.get(number, min(storage.born, recording.forward - 1)), storage.nbytes)
        for number, storage in enumerate(recording.storages)
        if storage.born < recording.forward <= storage.died
        and (number in first or not storage.stays)
    ]
