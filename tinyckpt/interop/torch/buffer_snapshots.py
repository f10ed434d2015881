"""Buffer snapshots around recomputation, so that a checkpointed module updates its buffers once.

A recomputation must read buffers as they were before the first evaluation, and its writes to them
are discarded: copies are taken before the first evaluation (``BufferSnapshot``), stand in for the
buffers during the second (``RestoredBuffers``), and afterwards the current buffers are put back,
even if it fails. Batch norms need no copies, since training does not read running averages:
momentum is 0 during the recomputation. For ``context_fn`` of ``torch.utils.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from tinyckpt.interop.torch.capture import NORMS, own_buffers
from tinyckpt.interop.torch.state_rollback import attributes_replaced

Slot = tuple[nn.Module, str]  # where a module keeps a buffer


def contexts(
    module: nn.Module, restored: Sequence[str] = ()
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of a module's first and second evaluation, for one call of it.

    Args:
        module: under ``checkpoint``.
        restored: local names of buffers to restore for the second evaluation.
    """
    slots, norms = [slot_of(module, name) for name in restored], norms_to_freeze(module, restored)
    if not slots and not norms:
        return nullcontext(), nullcontext()
    kept = BufferSnapshot(slots)
    return kept, RestoredBuffers(kept, norms)


def slot_of(module: nn.Module, name: str) -> Slot:
    """Return the owner and the local key of a buffer, by its name in a module."""
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


class BufferSnapshot:
    """Context of the first evaluation: copies buffers on entry."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.copies: dict[Slot, torch.Tensor | None] = {}

    def __enter__(self) -> None:
        self.copies = copies_of({slot: own_buffers(slot[0]).get(slot[1]) for slot in self.slots})

    def __exit__(self, *error: object) -> None:
        pass


class RestoredBuffers:
    """Context of the second evaluation: copies stand in for buffers; reentrant.

    It is entered once per backward pass: more than once if the graph is retained.
    """

    def __init__(self, kept: BufferSnapshot, norms: Sequence[nn.Module]) -> None:
        self.kept, self.norms = kept, norms
        self.active = ExitStack()

    def __enter__(self) -> None:
        self.active.enter_context(running_averages_frozen(self.norms))
        self.active.enter_context(buffers_replaced(copies_of(self.kept.copies)))

    def __exit__(self, *error: Any) -> bool | None:
        return self.active.__exit__(*error)


def copies_of(values: Mapping[Slot, torch.Tensor | None]) -> dict[Slot, torch.Tensor | None]:
    """Clone buffers; a buffer in several slots is cloned once."""
    copies: dict[int, torch.Tensor | None] = {id(None): None}
    with torch.no_grad():
        for value in values.values():
            if value is not None and id(value) not in copies:
                copies[id(value)] = value.clone()
    return {slot: copies[id(value)] for slot, value in values.items()}


@contextmanager
def buffers_replaced(values: Mapping[Slot, torch.Tensor | None]) -> Iterator[None]:
    """Replace buffers by other tensors within this context."""
    before = {(owner, key): own_buffers(owner).get(key) for owner, key in values}
    try:
        for (owner, key), value in values.items():
            own_buffers(owner)[key] = value
        yield
    finally:
        for (owner, key), value in before.items():
            own_buffers(owner)[key] = value


# Norms -------------------------------------------------------------------------------------------


def norms_in(module: nn.Module) -> list[nn.Module]:
    """Return the norms within a module that update running averages."""
    return [
        part
        for part in module.modules()
        if isinstance(part, NORMS) and part.training and part.track_running_stats
    ]


def norms_to_freeze(module: nn.Module, restored: Sequence[str]) -> list[nn.Module]:
    """Return the norms within a module of whose buffers none are restored, by local names."""
    owners = {slot_of(module, name)[0] for name in restored}
    return [norm for norm in norms_in(module) if norm not in owners]


def running_averages_frozen(norms: Sequence[nn.Module]) -> AbstractContextManager[None]:
    """Return a context in which running averages are frozen: momentum is 0.

    If they were not tracked at all, autograd would save fewer tensors than the first time, which
    ``checkpoint`` refuses.
    """
    frozen = {"momentum": 0.0, "num_batches_tracked": None}
    return attributes_replaced(
        {(norm, name): value for norm in norms for name, value in frozen.items()}
    )
