"""Buffer snapshots around recomputation, so that a checkpointed module updates its buffers once.

A recomputation must read buffers as they were before the first evaluation, and its writes to them
are discarded: copies are taken before the first evaluation, stand in for the buffers during the
second, and afterwards the current buffers are put back, even if it fails. Batch norms need no
copies, since training does not read running averages: momentum is 0 during the recomputation. For
``context_fn`` of ``torch.utils.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from tinyckpt.interop.torch.capture import NORMS
from tinyckpt.interop.torch.state_rollback import AttributesReplaced

Slot = tuple[nn.Module, str]  # where a module keeps a buffer
Copies = dict[Slot, torch.Tensor | None]


def contexts(
    module: nn.Module, restored: Sequence[str] = ()
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of a module's first and second evaluation, for one call of it.

    Args:
        module: under ``checkpoint``.
        restored: local names of buffers to restore for the second evaluation.
    """
    if not restored and not norms_in(module):
        return nullcontext(), nullcontext()
    copies: Copies = {}

    @contextmanager
    def first() -> Iterator[None]:
        copies.update(copies_of({slot: getattr(*slot) for slot in slots_of(module, restored)}))
        yield

    return first(), buffers_restored(copies, norms_to_freeze(module, restored))


class Reentrant(AbstractContextManager[None]):
    """Contexts that may be entered any number of times.

    They are entered once per backward pass: more than once if the graph is retained.
    """

    def __init__(self, *made: Callable[[], AbstractContextManager[Any]]) -> None:
        self.made, self.active = made, ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as entered:  # if one fails, those before it are left
            for make in self.made:
                entered.enter_context(make())
            self.active = entered.pop_all()

    def __exit__(self, *error: Any) -> bool | None:
        return self.active.__exit__(*error)


def buffers_restored(copies: Copies, norms: Sequence[nn.Module]) -> Reentrant:
    """Return a context in which further copies stand in for buffers, and running averages freeze.

    If they were not tracked at all, autograd would save fewer tensors than the first time, which
    ``checkpoint`` refuses.
    """
    frozen = {"momentum": 0.0, "num_batches_tracked": None}
    values = {(norm, name): value for norm in norms for name, value in frozen.items()}
    return Reentrant(
        lambda: AttributesReplaced(values), lambda: AttributesReplaced(copies_of(copies))
    )


def copies_of(values: Mapping[Slot, torch.Tensor | None]) -> Copies:
    """Clone buffers; a buffer in several slots is cloned once."""
    copies: dict[int, torch.Tensor | None] = {id(None): None}
    with torch.no_grad():
        for value in values.values():
            if value is not None and id(value) not in copies:
                copies[id(value)] = value.clone()
    return {slot: copies[id(value)] for slot, value in values.items()}


def slots_of(module: nn.Module, names: Sequence[str]) -> list[Slot]:
    """Return the owners and the local keys of buffers, by their names in a module."""
    split = [name.rpartition(".") for name in names]
    return [(module.get_submodule(path), key) for path, _, key in split]


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
    owners = {owner for owner, _ in slots_of(module, restored)}
    return [norm for norm in norms_in(module) if norm not in owners]
