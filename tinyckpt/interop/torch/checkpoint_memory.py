"""Memory model of ``torch.utils.checkpoint``: peak and FLOPs of a step per set of wrapped modules.

In: one recording of the plain step. Out: ``evaluate``, for any subset of modules, without running
anything again. A wrapped module drops the tensors that autograd saved inside it, and keeps its
arguments instead; when the backward pass first reads one of the dropped tensors, the module is
recomputed up to the last tensor that it had saved, and these stay until they are released, as in
the plain step. A module that is called several times is recomputed once for each.

This is PyTorch's checkpoint with ``use_reentrant=False``, its default ``early_stop`` included. Live
bytes are prefix sums of changes per event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tinyckpt.codegen.caching_allocator import Interval
from tinyckpt.interop.torch.eager import NEVER, ModuleCall, Recording

# Generator state that a wrapped module saves, so that its recomputation draws the same numbers.
STATE_BYTES = torch.get_rng_state().nbytes


@dataclass(frozen=True, slots=True)
class WrappedCall:
    """The effect of wrapping a module on lifetimes and FLOPs, of one of its calls.

    Attributes:
        begin, end: the events of the call in the forward pass.
        stop: the last event that is recomputed.
        read: the event of the backward pass before which it is recomputed; ``NEVER`` if its
            backward reads nothing.
        released: the event at which all that it saved is freed, and its arguments with it.
        given: the storages of its arguments.
        inside: storages made and saved inside it, each with its last release; and as arrays.
        copies: storages that its recomputation makes and leaves, each with its last use.
        replaced: other storages whose last use it changes, and the new one: earlier values of
            attributes that it overwrites, and values from outside that it saves.
        changes: of the live bytes by what it makes in addition: events, and bytes.
        recompute_peak: peak bytes of its recomputation, beyond the bytes live before it.
        flops: of its recomputation.
    """

    begin: int
    end: int
    stop: int
    read: int
    released: int
    given: np.ndarray
    inside: dict[int, int]
    saved: tuple[np.ndarray, np.ndarray]
    copies: dict[int, int]
    replaced: tuple[np.ndarray, np.ndarray]
    changes: tuple[np.ndarray, np.ndarray]
    recompute_peak: int
    flops: int


class Wrapping:
    """Peak and FLOPs of a step for any choice of wrapped modules.

    Args:
        recording: of the plain step.
        names: of the modules to choose from, disjoint ones; None: all whose calls were recorded.

    Attributes:
        afterwards: peak bytes after the backward pass, in the optimizer's step.
    """

    def __init__(self, recording: Recording, names: Iterable[str] | None = None) -> None:
        self.recording, self.afterwards = recording, 0
        events = len(recording.flops)
        self.last = events - 1
        self.state = STATE_BYTES if recording.on_cpu else 0
        self.nbytes = np.array([s.nbytes for s in recording.storages], dtype=np.int64)
        self.born = np.array([s.born for s in recording.storages], dtype=np.int64)
        self.workspace = np.array(recording.workspace, dtype=np.int64)
        self.allocated = np.zeros(self.last + 2, dtype=np.int64)
        np.add.at(self.allocated, self.born, self.nbytes)
        for event, nbytes in recording.freed:
            self.allocated[event + 1] -= nbytes
        self.flops = sum(recording.flops)
        self.modules = {
            name: tuple(self.wrapped_call(name, called) for called in recording.calls[name])
            for name in (recording.calls if names is None else names)
        }
        self.fixed = self.ends_all_wrapped()

    def clamped(self, time: int) -> int:
        """Clamp a time to the step's events: a value never freed is live at the last one."""
        return min(time, self.last)

    def wrapped_call(self, name: str, called: ModuleCall) -> WrappedCall:
        """Return the effect of wrapping a module, of one of its calls."""
        record = self.recording
        saved = [s for s in record.saved if called.begin <= s.saved <= called.end]
        read = min((s.read for s in saved), default=NEVER)
        stop = max((s.saved for s in saved), default=called.begin)
        released = max((self.clamped(s.released) for s in saved), default=called.end)
        inside: dict[int, int] = {}
        copies: dict[int, int] = {}
        for each in saved:
            number = each.storage
            if number >= 0 and record.storages[number].born >= called.begin:
                inside[number] = max(inside.get(number, -1), self.clamped(each.released))
                # A recomputed value is handed out once.
                used = self.clamped(each.used if each.reads else each.released)
                copies[number] = max(copies.get(number, -1), used)
        stays, replaced, going = self.surviving_storages(name, called, read)
        copies |= dict.fromkeys(stays, self.last)
        buffers = dict(record.sources[f"{name}.{own}"] for own in record.restored.get(name, ()))
        kept = sum(buffers.values())
        lives = [(called.begin, released, self.state + kept)]  # first and last event, and bytes
        recompute_peak = flops = 0
        if read < NEVER:
            flops = sum(record.flops[called.begin : stop + 1])
            recompute_peak = self.recomputation_peak(called.begin, stop, copies, going) + kept
            of_buffers: dict[int, int] = {}  # that autograd saves: the last use
            for each in saved:
                if each.storage < 0 and each.source in buffers:
                    used = self.clamped(each.used if each.reads else each.released)
                    of_buffers[each.source] = max(of_buffers.get(each.source, -1), used)
            # Recomputed right before it is read.
            lives += [(read + 1, max(end, read), buffers[n]) for n, end in of_buffers.items()]
            lives += [(read + 1, max(end, read), self.nbytes[n]) for n, end in copies.items()]
        changes = [(first, nbytes) for first, _, nbytes in lives]
        changes += [(last + 1, -nbytes) for _, last, nbytes in lives]
        given = np.array([*called.given], dtype=np.int64)
        return WrappedCall(
            called.begin, called.end, stop, read, released, given, inside, arrays(inside.items()),
            copies, arrays(replaced.items()), arrays(changes), recompute_peak, flops,
        )  # fmt: skip

    def surviving_storages(
        self, name: str, called: ModuleCall, read: int
    ) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Return the storages that a recomputation leaves, and changed last uses of the first ones.

        A recomputation leaves values that a module keeps in attributes, for example, and tensors
        that their graph saves. Third: the earlier values of such attributes, each with the event of
        the recomputation that frees it.
        """
        record = self.recording
        own = [n for n, s in enumerate(record.storages) if called.begin <= s.born <= called.end]
        places, saves, dropped = record.kept.get(name, ((), (), ())) if read < NEVER else [()] * 3
        replaced, going = {}, {}
        for place, made in dropped:
            number, storage = own[place], record.storages[own[place]]
            if storage.stays and storage.died == NEVER:
                outside = [
                    self.clamped(s.released)
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

    def recomputation_peak(
        self, begin: int, stop: int, copies: Collection[int], going: Mapping[int, int]
    ) -> int:
        """Return the peak bytes of a recomputation's own values.

        Args:
            begin, stop: the first and the last event that is recomputed.
            copies: storages that it makes and leaves.
            going: storages that it frees, each after an event.
        """
        change = np.zeros(stop - begin + 3, dtype=np.int64)
        for number, storage in enumerate(self.recording.storages):
            if begin <= storage.born <= stop:
                end = stop if number in copies else min(storage.alone, stop)
                change[storage.born - begin] += storage.nbytes
                change[end + 1 - begin] -= storage.nbytes
            if number in going:
                change[min(going[number], stop) + 1 - begin] -= storage.nbytes
        live = np.cumsum(change[: stop - begin + 1]) + self.workspace[begin : stop + 1]
        # fork_rng saves the current generator state meanwhile.
        return int(live.max()) + self.state

    def ends_all_wrapped(self) -> np.ndarray:
        """Return every storage's last use if all modules were wrapped, arguments aside."""
        ends = np.array([self.clamped(s.alone) for s in self.recording.storages], dtype=np.int64)
        for each in self.recording.saved:
            if each.storage >= 0 and not any(
                module.begin <= each.saved <= module.end and each.storage in module.inside
                for calls in self.modules.values()
                for module in calls
            ):
                ends[each.storage] = max(ends[each.storage], self.clamped(each.released))
        return ends

    def ends(self, chosen: Collection[str], wrapped: Sequence[WrappedCall]) -> np.ndarray:
        """Return every storage's last use, of its first evaluation, with some modules wrapped."""
        ends: np.ndarray = self.fixed.copy()
        for module in wrapped:
            numbers, last = module.replaced
            ends[numbers] = last
        for module in wrapped:
            ends[module.given] = np.maximum(ends[module.given], module.released)
        for name, calls in self.modules.items():
            for module in calls if name not in chosen else ():
                numbers, last = module.saved
                ends[numbers] = np.maximum(ends[numbers], last)
        return ends

    def live(self, chosen: Collection[str] = ()) -> np.ndarray:
        """Return the bytes live at each event with some modules wrapped, workspace excluded."""
        wrapped = [module for name in chosen for module in self.modules[name]]
        change = self.allocated.copy()
        np.subtract.at(change, self.ends(chosen, wrapped) + 1, self.nbytes)
        for module in wrapped:
            np.add.at(change, *module.changes)
        return np.cumsum(change[:-1])

    def evaluate(self, chosen: Collection[str]) -> tuple[int, int]:
        """Return peak bytes and FLOPs of a step with some modules wrapped."""
        live = self.live(chosen)
        peak = int((live + self.workspace).max())
        flops = self.flops
        for module in [module for name in chosen for module in self.modules[name]]:
            if module.read < NEVER:
                peak = max(peak, int(live[module.read]) + module.recompute_peak)
                flops += module.flops
        return max(peak, self.afterwards), flops

    def intervals(self, chosen: Collection[str]) -> list[Interval]:
        """Return the memory that a step with some modules wrapped allocates, workspace aside.

        Times are events; those of a recomputation lie between the event that reads its values and
        the next.
        """
        wrapped = [module for name in chosen for module in self.modules[name]]
        storages = self.recording.storages

        def interval(begin: float, last: float, number: int) -> Interval:
            return Interval(begin, None if last >= self.last else last + 1, storages[number].nbytes)

        ends = self.ends(chosen, wrapped)
        found = [interval(s.born, int(ends[number]), number) for number, s in enumerate(storages)]
        for module in wrapped:
            if module.read == NEVER:
                continue
            inner = module.stop - module.begin + 2

            def moment(event: int, module: WrappedCall = module, inner: int = inner) -> float:
                return module.read + (event - module.begin + 1) / (inner + 1)

            for number, storage in enumerate(storages):
                if not module.begin <= storage.born <= module.stop:
                    continue
                begin = moment(storage.born)
                if number in module.copies:
                    found.append(interval(begin, max(module.copies[number], module.read), number))
                else:
                    end = moment(min(storage.alone, module.stop) + 1)
                    found.append(Interval(begin, end, storage.nbytes))
        return found


def arrays(pairs: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second members of pairs, as arrays."""
    first, second = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
    return first, second
