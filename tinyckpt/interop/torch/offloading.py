"""Activation offloading: saved tensors wait in host memory until the backward pass, as in vDNN.

In: a model, arguments, a budget. Out: an ``Offload``: the first modules of a step, as few as meet
the budget, whose saved tensors are moved to the host and back, or, with recomputation, the inputs
that ``checkpoint`` keeps of them. Each candidate runs on FakeTensors under the very hooks of later
training, and is recorded (``eager``).

A storage is moved once, however many tensors are saved of it; parameters and buffers stay. When
backward reads the first tensor of a module's call, those of the call before it are fetched, too
(prefetch). On a GPU copies run on a stream of their own, beside the computation, which waits where
more than ``IN_FLIGHT`` storages are leaving: their memory is taken until they have left. Source:
Rhu et al., "vDNN: Virtualized deep neural networks for scalable, memory-efficient neural network
design", MICRO 2016, arXiv 1602.08124.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.base.errors import BudgetError, GraphError
from tinyckpt.base.units import size_text
from tinyckpt.interop.torch import candidate_modules
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.candidate_modules import (
    candidates_by_depth,
    core_of,
    modules_to_wrap,
    switch_off_caches,
)
from tinyckpt.interop.torch.capture import (
    DispatchMode,
    FakeTensor,
    address_of,
    evaluated_node,
    is_mutable,
    version_of,
    written_by,
)
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.cuda_devices import device_of
from tinyckpt.interop.torch.eager import Recording, forwards_restored, record
from tinyckpt.interop.torch.pytrees import tensor_leaves
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.planner.model.budget import budget_in_bytes

# Storages on their way to the host, whose memory is still taken. Twice as many: less waiting where
# one operator takes longer than several copies, and a peak that is larger by two storages.
IN_FLIGHT = 2
TRIED = 12  # numbers of modules, if none that bisection comes to meets the budget
PLAIN = (torch.Tensor, nn.Parameter, FakeTensor)  # tensors of other classes stay where they are


@dataclass(frozen=True, slots=True)
class Offload:
    """Modules whose saved tensors, or whose inputs, wait in host memory.

    Attributes:
        model: the name of the model's class.
        modules: their names; none if the step fits without.
        peak: peak bytes of a training step on the device, as in ``Advice``.
        moved: bytes that a step moves to the host, and back.
        cost: FLOPs of a step, as a multiple of the plain step's; 1 without recomputation.
        plain_peak: peak bytes of the plain step.
        recompute: whether the modules are under ``checkpoint``, too.
        at_least: the bytes of the smallest storage that is moved.
        restored, core, uncached: as in ``Advice``.

    >>> Offload("GPT", ("blocks.0",), 2**20, moved=2**18, cost=1.0, plain_peak=2**21).modules
    ('blocks.0',)
    """

    model: str
    modules: tuple[str, ...]
    peak: int
    moved: int
    cost: float
    plain_peak: int
    recompute: bool = False
    at_least: int = 0
    restored: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), repr=False)
    core: str = field(default="", repr=False)
    uncached: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if not self.modules:
            how = "with no cache" if self.uncached else "as it is"
            return f"{self.model}: {size_text(self.peak)} at the peak {how}; nothing to move"
        what = "inputs of" if self.recompute else "saved tensors of"
        cost = f", at {self.cost:.3f} times the FLOPs" if self.recompute else ""
        return (
            f"{self.model}: {size_text(self.peak)} at the peak instead of "
            f"{size_text(self.plain_peak)}{cost}: {what} {len(self.modules)} modules wait on the "
            f"host, {size_text(self.moved)} moved there and back"
        )

    def apply(self, model: nn.Module) -> nn.Module:
        """Wrap the modules of a model, which may be another one of the same kind; return it.

        Gradients are those of the plain step, to the bit.

        Raises:
            GraphError: if a module is absent or already wrapped; then nothing is wrapped.
        """
        chosen = modules_to_wrap(model, self.modules, dict(self.restored), self.core)
        wrap_all(chosen, HostHooks(self.at_least), self.recompute)
        if self.uncached:
            switch_off_caches(model)
        return model


@preserving
def offload(
    model: nn.Module,
    *args: Any,
    budget: str | int | float,
    modules: Sequence[str] | None = None,
    recompute: bool = False,
    at_least: int = 2**20,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    device: str | os.PathLike[str] | None = None,
    **named: Any,
) -> Offload:
    """Choose the modules whose saved tensors wait on the host: the first ones, as few as suffice.

    Their tensors wait longest, so that there is most time to move them. The model is left unchanged
    until ``Offload.apply``. How long a step takes is not predicted.

    Args:
        model, args, named, loss, targets, budget, workspace: as in ``advise``.
        modules: names of the modules, in any order; by default the candidates of ``advise``.
        recompute: whether to put the modules under ``checkpoint``, and move what that keeps.
        at_least: smaller storages are not moved, in bytes: a copy takes some time of any size.
        device: as in ``advise``, for sizes and for what is saved; the budget is for a step alone.

    Raises:
        BudgetError: if moving those of all modules does not meet the budget; says the smallest
            peak.
        GraphError: as ``advise``.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> def block():
    ...     wide = torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    ...     return torch.nn.Sequential(*wide)
    >>> model = torch.nn.Sequential(block(), block(), block(), block(), Loss(8, 1))
    >>> found = tct.offload(model, torch.ones(64, 8), budget="90 %", at_least=0, workspace=False)
    >>> found.modules, found.moved  # the input, 64 x 8 float32, and tanh's output, 64 x 64
    (('0',), 18432)
    """
    check_calls("offload")
    if not isinstance(at_least, int) or at_least < 0:
        raise GraphError(f"at_least={at_least!r:.40}; expected a number of bytes")
    cuda = device is not None
    if device is not None:
        device_of(device)  # for its errors: of a step's memory, devices differ in nothing known
    with returning_loss(model, args, named, loss, targets) as packed:
        found = candidates_by_depth(
            model, packed, modules, workspace and not cuda, recomputing=recompute, cuda=cuda
        )
        recording, reasons = next(found)
        plain, flops = Wrapping(recording, reasons).evaluate(())
        budget_size = budget_in_bytes(budget, plain, recording.source_bytes)
        restored, names = recording.restored, in_order_of_calls(recording, reasons)
        name = type(model).__name__

        @cache
        def moving(count: int) -> tuple[int, int, int]:
            """Return peak, FLOPs and moved bytes of a step with the first modules wrapped."""
            if not count:
                return plain, flops, 0
            hooks = HostHooks(at_least, on_gpu=cuda)
            watch = partial(WriteWatch, hooks, name)
            chosen = {each: model.get_submodule(each) for each in names[:count]}
            with forwards_restored(chosen.values()):
                own = [(module, restored.get(each, ())) for each, module in chosen.items()]
                wrap_all(own, hooks, recompute)
                step = record(model, packed, {}, workspace, cuda=cuda, around=lambda _: watch())
            return *Wrapping(step).evaluate(()), hooks.moved // 2  # by two forward passes

        least, most = 0, len(names)
        while least < most:
            middle = (least + most) // 2
            if moving(middle)[0] <= budget_size:
                most = middle
            else:
                least = middle + 1
        if moving(least)[0] > budget_size:  # peaks need not fall with each module
            some = sorted({len(names) * place // TRIED for place in range(TRIED + 1)})
            smallest = min(moving(count)[0] for count in some)
            if smallest > budget_size:
                raise BudgetError(
                    f"{name}: budget {size_text(budget_size)}: the smallest peak with the first of "
                    f"{len(names)} modules offloaded is {size_text(smallest)}",
                    smallest,
                )
            least = next(count for count in some if moving(count)[0] <= budget_size)
        peak, total, moved = moving(least)
        chosen = tuple(names[:least])
        return Offload(
            name, chosen, peak, moved, total / max(flops, 1), plain, recompute, at_least,
            tuple((each, restored[each]) for each in chosen if each in restored), core_of(model),
            recording.uncached,
        )  # fmt: skip


def in_order_of_calls(recording: Recording, reasons: Mapping[str, str]) -> list[str]:
    """Return the modules that may be wrapped, in the order of their first calls."""
    usable = (each for each, reason in reasons.items() if not reason)  # a reason if never called
    return sorted(usable, key=lambda each: recording.calls[each][0].begin)


class WriteWatch(DispatchMode):  # type: ignore[misc]
    """Dispatch mode that refuses writes to what has been moved, which its copy does not have.

    Autograd notices such writes itself, except those to ``data``.
    """

    def __init__(self, hooks: HostHooks, name: str) -> None:
        super().__init__()
        self.hooks, self.name = hooks, name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_mutable(func) and evaluated_node() is None:
            moved = {address for address, _ in self.hooks.known}
            for value in tensor_leaves(written_by(func, args, kwargs or {})):
                if address_of(value) in moved:
                    raise GraphError(
                        f"{self.name}: a tensor that is saved for the backward pass is written to "
                        f"afterwards ({func}), and would be moved to the host before"
                    )
        return func(*args, **(kwargs or {}))


# Wrapping ----------------------------------------------------------------------------------------


def wrap_all(
    modules: Sequence[tuple[nn.Module, Sequence[str]]], hooks: HostHooks, recompute: bool
) -> None:
    """Wrap modules, in the order of their calls, with the names of what ``checkpoint`` restores."""
    for place, (module, restored) in enumerate(modules, 1):
        wrap(module, hooks, recompute, restored, place == len(modules))


def wrap(
    module: nn.Module,
    hooks: HostHooks,
    recompute: bool,
    restored: Sequence[str] = (),
    last: bool = False,
) -> None:
    """Have what a module saves wait on the host; with ``recompute``, under ``checkpoint``.

    After the ``last`` module's calls, nothing is on its way to the host any more.
    """
    if recompute:
        candidate_modules.wrap(module, restored)
    module.forward = partial(offloaded, module, hooks, last, module.forward)


def offloaded(
    module: nn.Module,
    hooks: HostHooks,
    last: bool,
    forward: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call a module's forward; what autograd saves meanwhile waits on the host."""
    try:
        with hooks.around(module) if torch.is_grad_enabled() else nullcontext():
            found = forward(*args, **kwargs)
    except BaseException:  # such as of memory: a smaller batch is not to find it taken
        hooks.abandon()
        raise
    if last:
        hooks.release(0)
    return found


offloaded.wraps_forward = True  # type: ignore[attr-defined]  # see candidate_modules.is_wrapped


class Waiting:
    """A storage whose bytes wait on the host.

    Attributes:
        host: its elements there; None for a FakeTensor, which has none.
        here: its elements on the device, once they are fetched.
        copied: on a GPU, the event of the last copy.
        stream: on a GPU, the stream that computes with the memory that is copied.
        call: of the module that saved it.
    """

    def __init__(self, value: torch.Tensor, call: SavingCall) -> None:
        self.count = value.untyped_storage().nbytes() // value.element_size()
        self.dtype, self.device, self.call = value.dtype, value.device, call
        self.host: torch.Tensor | None = None
        self.here: torch.Tensor | None = None
        self.copied: Any = None
        self.stream: Any = None
        if not isinstance(value, FakeTensor):
            with copying(self.device):
                self.host = on_host(value.detach().as_strided((self.count,), (1,), 0))
            self.note_copy()

    def __del__(self) -> None:
        # Its memory is given to others, whose kernels must not run while a copy still writes there.
        if self.here is not None:
            self.wait()

    def note_copy(self) -> None:
        """Note, on a GPU, which copy was the last, and who computes with its memory."""
        if self.device.type == "cuda":
            self.copied = copy_stream(self.device).record_event()
            self.stream = torch.cuda.current_stream(self.device)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(self.count * self.dtype.itemsize)

    def fetch(self) -> torch.Tensor:
        """Return its elements on the device; they stay there until nothing refers to them."""
        if self.here is None:
            self.here = torch.empty(self.count, dtype=self.dtype, device=self.device)
            if self.host is not None:
                with copying(self.device):
                    self.here.copy_(self.host, non_blocking=True)
                self.note_copy()
        return self.here

    def wait(self) -> None:
        """Have the stream that computes with the memory wait for the last copy; the host does not.

        The device that is current need not be that of the stream.
        """
        if self.copied is not None:
            self.stream.wait_event(self.copied)


@dataclass(slots=True, weakref_slot=True)
class SavingCall:
    """A call of a module: the storages that it saved, and the call before it."""

    waiting: list[weakref.ref[Waiting]]
    before: weakref.ref[SavingCall] | None

    def fetch(self) -> None:
        """Fetch all that it saved."""
        for each in self.waiting:
            waiting = each()
            if waiting is not None:
                waiting.fetch()


@dataclass(frozen=True, slots=True)
class Handle:
    """What autograd keeps in place of a saved tensor: a view of a storage that waits."""

    waiting: Waiting
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What autograd keeps of a tensor that is not moved."""

    value: torch.Tensor
    version: int


class HostHooks:
    """Hooks for saved tensors of some modules, which all calls of these share.

    Attributes:
        at_least: the bytes of the smallest storage that is moved.
        on_gpu: whether FakeTensors stand for tensors on a GPU.
        moved: bytes moved to the host so far.
        last: the last call.
        known: storages that wait, by the id and the version of what was saved.
        leaving: on a GPU, tensors that may be on their way to the host, and their versions.
        lock: of ``leaving``: each GPU has a thread in the backward pass.
    """

    def __init__(self, at_least: int, on_gpu: bool = False) -> None:
        self.at_least, self.on_gpu, self.moved = at_least, on_gpu, 0
        self.last: weakref.ref[SavingCall] | None = None
        self.known: dict[tuple[int, int], weakref.ref[Waiting]] = {}
        self.leaving: deque[tuple[torch.Tensor, int, Waiting]] = deque()
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:  # a copy of a model has hooks of its own
        return HostHooks, (self.at_least,)

    @contextmanager
    def around(self, module: nn.Module) -> Iterator[None]:
        """Move what autograd saves within this context."""
        call = SavingCall([], self.last)
        self.last = weakref.ref(call)
        # A buffer may be assigned anew meanwhile, and its id given to another storage.
        state = (*module.parameters(), *module.buffers())
        own = {address_of(x): weakref.ref(x.untyped_storage()) for x in state}
        with saved_tensors_hooks(lambda value: self.pack(value, call, own), self.unpack):
            yield

    def pack(
        self, value: torch.Tensor, call: SavingCall, own: Mapping[int, Callable[[], Any]]
    ) -> Handle | Kept:
        """Start moving a saved tensor's storage to the host, unless it is to stay."""
        storage = value.untyped_storage() if value.layout == torch.strided else None
        if (
            storage is None
            or type(value) not in PLAIN
            or storage.nbytes() < max(self.at_least, 1)
            or own.get(address_of(value), lambda: None)() is not None
        ):
            return Kept(value, version_of(value))
        key = address_of(value), version_of(value)
        waiting = self.known[key]() if key in self.known else None
        if waiting is None or waiting.dtype != value.dtype:
            with torch.no_grad():
                waiting = Waiting(value, call)
            self.moved += waiting.nbytes
            call.waiting.append(weakref.ref(waiting))
            self.known[key] = weakref.ref(waiting)
            # Another storage may get the same id.
            weakref.finalize(storage, self.known.pop, key, None).atexit = False
            if value.device.type == "cuda" or self.on_gpu:
                self.leaving.append((value.detach(), version_of(value), waiting))
                self.release(IN_FLIGHT)
        return Handle(waiting, value.shape, value.stride(), value.storage_offset())

    def release(self, left: int) -> None:
        """Drop all but the newest storages on their way to the host, once they are there.

        Raises:
            RuntimeError: if one was written to meanwhile: its copy may have parts of both.
        """
        with self.lock:
            old = [self.leaving.popleft() for _ in range(len(self.leaving) - left)]
        for value, version, waiting in old:
            waiting.wait()
            check_version(value, version)

    def abandon(self) -> None:
        """Drop all storages on their way to the host, once they are there, after an error."""
        with self.lock:
            for *_, waiting in self.leaving:
                waiting.wait()
            self.leaving.clear()

    def unpack(self, handle: Handle | Kept) -> torch.Tensor:
        """Return a saved tensor; fetch all of its module's call, and of the call before."""
        self.release(0)
        if isinstance(handle, Kept):
            check_version(handle.value, handle.version)
            return handle.value
        waiting = handle.waiting
        with torch.no_grad():
            here = waiting.fetch()
            before = waiting.call.before() if waiting.call.before is not None else None
            waiting.call.fetch()
            if before is not None:
                before.fetch()
            waiting.wait()
            if here.device.type == "cuda":
                now = torch.cuda.current_stream(here.device)
                if now != waiting.stream:
                    now.wait_event(waiting.copied)
                    here.record_stream(now)
            return here.as_strided(handle.shape, handle.stride, handle.offset)


def check_version(value: torch.Tensor, version: int) -> None:
    """Raise a RuntimeError if a saved tensor has been written to since, as autograd does."""
    if version_of(value) != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an "
            "inplace operation: it was saved in a module whose saved tensors are offloaded"
        )


def on_host(flat: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to host memory: pinned, if it is on a GPU.

    That of a tensor on the CPU is not PyTorch's: its allocator counts what is left.
    """
    if flat.device.type == "cpu":
        host = torch.from_numpy(np.empty(flat.nbytes, np.uint8)).view(flat.dtype)
    else:
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
    return host.copy_(flat, non_blocking=True)


# Streams -----------------------------------------------------------------------------------------


@cache
def copy_stream(device: torch.device) -> Any:
    """Return the stream of a GPU on which tensors leave and are fetched."""
    return torch.cuda.Stream(device)


def copying(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context whose copies run beside what a GPU computes, after what it has been told."""
    if device.type != "cuda":
        return nullcontext()
    stream = copy_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    context: AbstractContextManager[Any] = torch.cuda.stream(stream)
    return context
