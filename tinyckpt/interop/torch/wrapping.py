"""What a training step holds if some of its modules are under ``torch.utils.checkpoint``.

From one recording follows every choice of modules, without running anything again. A module that is
wrapped drops what autograd saved inside it, and holds its arguments instead; when the backward half
first reads one of the dropped values, the module is evaluated again up to the last value that it
had saved, and these stay until they are released, as in the plain step.

This is PyTorch's checkpoint with ``use_reentrant=False``, its default ``early_stop`` included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from tinyckpt.interop.torch.eager import NEVER, Called, Recording

# The generator's state, which a wrapped module holds so as to draw the same numbers again.
STATE_BYTES = torch.get_rng_state().nbytes


@dataclass(frozen=True, slots=True)
class Module:
    """What wrapping one module changes.

    Attributes:
        begin, end: its call in the forward half.
        read: the event of the backward half before which it is evaluated again; ``NEVER`` if its
            backward reads nothing.
        released: the event with which all that it saved is gone, and its arguments with it.
        given: the storages of its arguments.
        inside: storages made inside it and saved there, each with its last release.
        copies: storages that its second evaluation makes and leaves, each with its last use.
        replaced: other storages that what it leaves changes the last use of: those that were in an
            attribute in its place, and those that it saves.
        again: bytes at the peak of its second evaluation, beyond what is there already.
        flops: of its second evaluation.
        kept: bytes of copies of buffers that are put back for its second evaluation.
        of_buffers: of those that autograd saves then, bytes, and the last use.
    """

    begin: int
    end: int
    read: int
    released: int
    given: tuple[int, ...]
    inside: dict[int, int]
    copies: dict[int, int]
    replaced: dict[int, int]
    again: int
    flops: int
    kept: int = 0
    of_buffers: tuple[tuple[int, int], ...] = ()


class Wrapping:
    """The step's peak and FLOPs for any choice of modules."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        events = len(recording.flops)
        self.last = events - 1
        self.state = STATE_BYTES if recording.on_cpu else 0
        self.nbytes = np.array([s.nbytes for s in recording.storages], dtype=np.int64)
        self.born = np.array([s.born for s in recording.storages], dtype=np.int64)
        self.workspace = np.array(recording.workspace, dtype=np.int64)
        self.flops = sum(recording.flops)
        self.modules = {
            name: self.module(name, calls[0])
            for name, calls in recording.calls.items()
            if len(calls) == 1
        }
        # Of every storage its last use, as far as it is not autograd's saving inside some module.
        self.saved_in: list[dict[str, int]] = [{} for _ in recording.storages]
        for name, module in self.modules.items():
            for storage, released in module.inside.items():
                self.saved_in[storage][name] = released
        self.fixed = self.fixed_ends()

    def until(self, time: int) -> int:
        """Return a time as an event of the step: what is never gone is there at the last."""
        return min(time, self.last)

    def module(self, name: str, called: Called) -> Module:
        """Return what wrapping one module changes."""
        record = self.recording
        saved = [s for s in record.saved if called.begin <= s.saved <= called.end]
        read = min((s.read for s in saved), default=NEVER)
        stop = max((s.saved for s in saved), default=called.begin)
        released = max((self.until(s.released) for s in saved), default=called.end)
        inside: dict[int, int] = {}
        copies: dict[int, int] = {}
        for each in saved:
            number = each.storage
            if number >= 0 and record.storages[number].born >= called.begin:
                inside[number] = max(inside.get(number, -1), self.until(each.released))
                # What is evaluated again is handed out once.
                used = self.until(each.used if each.reads else each.released)
                copies[number] = max(copies.get(number, -1), used)
        buffers = dict(record.sources[f"{name}.{own}"] for own in record.restored.get(name, ()))
        of_buffers: dict[int, int] = {}
        for each in saved:
            if each.storage < 0 and each.source in buffers:
                used = self.until(each.used if each.reads else each.released)
                of_buffers[each.source] = max(of_buffers.get(each.source, -1), used)
        stays, replaced, going = self.staying(name, called, read)
        copies |= dict.fromkeys(stays, self.last)
        again = flops = 0
        if read < NEVER:
            flops = sum(record.flops[called.begin : stop + 1])
            again = self.peak_again(called.begin, stop, copies, going) + sum(buffers.values())
        return Module(
            called.begin, called.end, read, released, tuple(sorted(called.given)), inside, copies,
            replaced, again, flops, sum(buffers.values()),
            tuple((buffers[source], end) for source, end in of_buffers.items()),
        )  # fmt: skip

    def staying(
        self, name: str, called: Called, read: int
    ) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Return which storages a second evaluation leaves, and until when the first ones are.

        They are what a module keeps in attributes, for example, and what their graph saves; what
        was in the same attribute before is gone then: third, after which event of the evaluation.
        """
        record = self.recording
        own = [n for n, s in enumerate(record.storages) if called.begin <= s.born <= called.end]
        places, saves, dropped = record.kept.get(name, ((), (), ())) if read < NEVER else [()] * 3
        replaced, going = {}, {}
        for place, made in dropped:
            number, storage = own[place], record.storages[own[place]]
            if storage.stays and storage.died == NEVER:
                outside = [
                    self.until(s.released)
                    for s in record.saved
                    if s.storage == number and not called.begin <= s.saved <= called.end
                ]
                replaced[number] = max([read, *outside])
                if replaced[number] == read:
                    going[number] = record.storages[own[made - 1]].born if made else called.begin
        saved = [s.storage for s in record.saved if called.begin <= s.saved <= called.end]
        replaced |= {
            saved[place]: self.last
            for place in saves
            if saved[place] >= 0 and saved[place] not in own
        }
        return [own[place] for place in places], replaced, going

    def peak_again(
        self, begin: int, stop: int, copies: Collection[int], going: Mapping[int, int]
    ) -> int:
        """Return the most bytes that a second evaluation holds of its own.

        Args:
            begin, stop: the first event that is evaluated again, and the last.
            copies: storages that it makes and leaves.
            going: storages that go after an event of it.
        """
        change = np.zeros(stop - begin + 3, dtype=np.int64)
        for number, storage in enumerate(self.recording.storages):
            if begin <= storage.born <= stop:
                end = stop if number in copies else min(storage.alone, stop)
                change[storage.born - begin] += storage.nbytes
                change[end + 1 - begin] -= storage.nbytes
            if number in going:
                change[min(going[number], stop) + 1 - begin] -= storage.nbytes
        held = np.cumsum(change[: stop - begin + 1]) + self.workspace[begin : stop + 1]
        # fork_rng notes the state that it comes back to.
        return int(held.max()) + self.state

    def fixed_ends(self) -> np.ndarray:
        """Return when every storage would be gone if all modules were wrapped, arguments aside."""
        ends = np.array([self.until(s.alone) for s in self.recording.storages], dtype=np.int64)
        for each in self.recording.saved:
            if each.storage >= 0 and not any(
                module.begin <= each.saved <= module.end and each.storage in module.inside
                for module in self.modules.values()
            ):
                ends[each.storage] = max(ends[each.storage], self.until(each.released))
        return ends

    def evaluate(self, chosen: Collection[str]) -> tuple[int, int]:
        """Return peak, in bytes, and FLOPs of a step with some modules wrapped."""
        ends = self.fixed.copy()
        for name, module in self.modules.items():
            if name in chosen:
                for number, end in module.replaced.items():
                    ends[number] = end
        for name, module in self.modules.items():
            if name in chosen:
                given = list(module.given)
                ends[given] = np.maximum(ends[given], module.released)
            elif module.inside:
                inside = list(module.inside)
                ends[inside] = np.maximum(ends[inside], list(module.inside.values()))
        change = np.zeros(self.last + 2, dtype=np.int64)
        for event, nbytes in self.recording.freed:
            change[event + 1] -= nbytes
        np.add.at(change, self.born, self.nbytes)
        np.subtract.at(change, ends + 1, self.nbytes)
        wrapped = [self.modules[name] for name in chosen]
        for module in wrapped:
            change[module.begin] += self.state + module.kept
            change[module.released + 1] -= self.state + module.kept
            for nbytes, released in module.of_buffers if module.read < NEVER else ():
                change[module.read + 1] += nbytes
                change[max(released, module.read) + 1] -= nbytes
            for storage, released in module.copies.items() if module.read < NEVER else ():
                # Computed again right before it is read.
                change[module.read + 1] += self.nbytes[storage]
                change[max(released, module.read) + 1] -= self.nbytes[storage]
        held = np.cumsum(change[:-1])
        peak = int((held + self.workspace).max())
        flops = self.flops
        for module in wrapped:
            if module.read < NEVER:
                peak = max(peak, int(held[module.read]) + module.again)
                flops += module.flops
        return peak, flops
