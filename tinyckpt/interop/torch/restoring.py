"""Contexts for a module's two evaluations under ``checkpoint``, so that buffers are written once.

A recomputation reads buffers as they were before the first evaluation, and what it writes to them
is dropped: copies are taken before the first one (``Kept``), are in their places during the second
(``Again``), and afterwards those are back which were there before it, however it ends. Batch norms
need no copies, since training does not read running averages: the batch counts nothing the second
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from tinyckpt.interop.torch.capture import NORMS, own_buffers

Slot = tuple[nn.Module, str]  # where a module keeps a buffer


def contexts(
    module: nn.Module, restored: Sequence[str] = ()
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return contexts for both evaluations of a module, for one call of it.

    Args:
        module: which is under ``checkpoint``.
        restored: names in it of buffers that are put back for the second evaluation.
    """
    slots = {name: slot_of(module, name) for name in restored}
    owners = {owner for owner, _ in slots.values()}
    norms = [norm for norm in norms_in(module) if norm not in owners]
    if not slots and not norms:
        return nullcontext(), nullcontext()
    kept = Kept(list(slots.values()))
    return kept, Again(kept, norms)


def slot_of(module: nn.Module, name: str) -> Slot:
    """Return where a buffer is kept, by its name in a module."""
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


class Kept:
    """Takes copies of buffers when it is entered, which is before a first evaluation."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.copies: dict[Slot, torch.Tensor | None] = {}

    def __enter__(self) -> None:
        self.copies = copies_of({slot: own_buffers(slot[0]).get(slot[1]) for slot in self.slots})

    def __exit__(self, *error: object) -> None:
        pass


class Again:
    """Has copies in place of buffers while it is active, as often as it is entered.

    That is once a backward pass: more than once if the graph is retained.
    """

    def __init__(self, kept: Kept, norms: Sequence[nn.Module]) -> None:
        self.kept, self.norms = kept, norms
        self.active = ExitStack()

    def __enter__(self) -> None:
        self.active.enter_context(not_averaging(self.norms))
        self.active.enter_context(in_place(copies_of(self.kept.copies)))

    def __exit__(self, *error: Any) -> bool | None:
        return self.active.__exit__(*error)


def copies_of(values: Mapping[Slot, torch.Tensor | None]) -> dict[Slot, torch.Tensor | None]:
    """Return copies of buffers; one that stands in several places is copied once."""
    copies: dict[int, torch.Tensor | None] = {id(None): None}
    with torch.no_grad():
        for value in values.values():
            if value is not None and id(value) not in copies:
                copies[id(value)] = value.clone()
    return {slot: copies[id(value)] for slot, value in values.items()}


@contextmanager
def in_place(values: Mapping[Slot, torch.Tensor | None]) -> Iterator[None]:
    """While this is active, other tensors stand where some buffers did."""
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
    """Return the modules in one that keep running averages."""
    return [
        part
        for part in module.modules()
        if isinstance(part, NORMS) and part.training and part.track_running_stats
    ]


@contextmanager
def not_averaging(norms: Sequence[Any]) -> Iterator[None]:
    """While this is active, running averages take up nothing: the batch counts with factor 0.

    Were they not tracked at all, autograd would save less than the first time, which ``checkpoint``
    does not allow.
    """
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    try:
        for norm in norms:
            norm.momentum, norm.num_batches_tracked = 0.0, None
        yield
    finally:
        for norm, momentum, batches in before:
            norm.momentum, norm.num_batches_tracked = momentum, batches
