"""A training step as plain PyTorch makes it, watched on FakeTensors: what is held, and by whom.

The model's own Python runs, and PyTorch's own autograd, with tensors that have everything but
numbers. So whatever decides how long a value lives is the real thing: local variables, in-place
operators, what each function saves for its backward, the order in which the engine lets go. What a
joint graph of AOTAutograd shows is close to it but not the same; dropout on a CPU, for one, is
another program there.

Two runs are watched. In the first one autograd saves as it always does. In the second one, which
has no backward half, what it saves is dropped at once: it shows how long values live by themselves,
as they do in a module under ``torch.utils.checkpoint``.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.errors import GraphError
from tinyckpt.interop.torch.capture import (
    DispatchMode,
    FakeMode,
    is_mutable,
    placed,
    storage_of,
    tree_leaves,
    tree_map,
    written_by,
)
from tinyckpt.interop.torch.checks import captured, check_loss
from tinyckpt.interop.torch.distinct import Operators
from tinyckpt.interop.torch.preserving import replaced

NEVER = 2**62  # a time after all others


@dataclass(slots=True)
class Storage:
    """Memory that an operator made. Times are counted in events, see ``Recording``.

    Attributes:
        nbytes: how much.
        place: which of its operator's results is in it.
        born: when its operator was evaluated.
        died: the last event at which it was there.
        alone: the same, if autograd had saved nothing.
    """

    nbytes: int
    place: int
    born: int
    died: int = NEVER
    alone: int = NEVER


@dataclass(slots=True)
class Saved:
    """What autograd saved once: a storage, from when until when, and when it was read first."""

    storage: int
    saved: int
    read: int = NEVER
    released: int = NEVER


@dataclass(slots=True)
class Called:
    """A call of a module that was watched: from when until when, and the storages it was given.

    ``writes`` names what it writes to that it did not make, such as its argument.
    """

    begin: int
    end: int = NEVER
    given: set[int] = field(default_factory=set)
    writes: str = ""


@dataclass(slots=True, eq=False)
class Recording:
    """A training step, event by event.

    Events are evaluations of operators, and autograd's saving of a value and its first reading.

    Attributes:
        flops, workspace: of every event; 0 for those that are no operator.
        forward: how many events the forward half has.
        storages: the memory that operators made, all of one device.
        saved: what autograd saved of it, in order, with None for what is not of it.
        calls: of every module that was watched.
        source_bytes: of parameters, buffers and arguments.
        on_cpu: whether the step is made on a CPU.
    """

    flops: list[int] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)
    forward: int = 0
    storages: list[Storage] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    calls: dict[str, list[Called]] = field(default_factory=dict)
    source_bytes: int = 0
    on_cpu: bool = True


def record(
    model: torch.nn.Module, args: Sequence[Any], watched: Mapping[str, Any], workspace: bool = True
) -> Recording:
    """Return what happens in a training step, without memory and without a trace in the model.

    Args:
        model: a module in training whose forward returns a scalar loss.
        args: what forward takes.
        watched: modules of the model, by name.
        workspace: whether to evaluate each distinct operator once, to see what its kernel holds.

    Raises:
        GraphError: if forward does not take the arguments, or does not return a loss.
    """
    name = type(model).__name__
    with captured(name, model), torch.random.fork_rng(), placed(model, args) as (args, mode):
        seen = Watch(mode, saving=True)
        seen.step(model, args, watched)
        bare = Watch(mode, saving=False)
        bare.step(model, args, watched)
        if [s.born for s in bare.made] != [s.born for s in seen.made[: len(bare.made)]]:
            raise GraphError(
                f"{name}: two forward passes evaluate different operators; legal is a forward that "
                "does the same each time"
            )
        for storage, alone in zip(seen.made, bare.made, strict=False):
            # What is there after a forward pass by itself, is until the end: the loss.
            storage.alone = alone.died if alone.died < NEVER else storage.died
        for storage in seen.made[len(bare.made) :]:
            storage.alone = storage.died
        return seen.recording(workspace)


class Ticket:
    """Stands for a value that autograd saved; gone when autograd lets go of it."""

    def __init__(self, value: Any, saved: Saved | None) -> None:
        self.value, self.saved = value, saved


class Watch(DispatchMode):  # type: ignore[misc]
    """Watches one step.

    Attributes:
        clock: how many events there were.
        made: storages that operators made, in order.
        live: which of them is at which address, and None for those that were given.
    """

    def __init__(self, mode: FakeMode, saving: bool) -> None:
        super().__init__()
        self.mode, self.saving = mode, saving
        self.clock = 0
        self.forward = 0
        self.made: list[Storage] = []
        self.saved: list[Saved] = []
        self.live: dict[int, int] = {}
        self.calls: dict[str, list[Called]] = {}
        self.active: list[Called] = []
        self.operators = Operators(mode)
        self.device = "cpu"
        self.source_bytes = 0
        self.over = False

    def step(self, model: torch.nn.Module, args: Sequence[Any], watched: Mapping[str, Any]) -> None:
        """Make the step: the forward half, and if autograd saves, the backward half."""
        with self.mode:
            faked = {id(x): self.fake(x) for x in (*model.parameters(), *model.buffers())}
            given = tree_map(self.fake, tuple(args))
        every = {found for x in tree_leaves((faked, given)) if (found := storage_of(x))}
        self.source_bytes = sum(nbytes for _, nbytes in every)
        self.device = next((x.device.type for x in faked.values()), "cpu")
        self.calls = {name: [] for name in watched}
        hooks = saved_tensors_hooks(self.save, self.read)
        with self.mode, ExitStack() as stack, warnings.catch_warnings():
            # From 2.14 on PyTorch warns that selective checkpoints will heed such hooks one day.
            warnings.filterwarnings("ignore", "A saved_tensors_hooks context", FutureWarning)
            stack.enter_context(self.watching(watched))
            stack.enter_context(replaced((model, given), faked))
            stack.enter_context(self)
            with hooks:
                loss = model(*given)
            self.forward = self.clock
            if self.saving:
                check_returned(loss, type(model).__name__)
                loss.backward()
            self.over = True  # what is there now is there at the end

    def fake(self, value: Any) -> Any:
        """Return a tensor without numbers in place of one."""
        if not isinstance(value, torch.Tensor):
            return value
        made = self.mode.from_tensor(value)
        made.grad = None
        return made

    def recording(self, measuring: bool) -> Recording:
        """Return what was seen; operators are measured only now."""
        workspace, flops, outputs = self.operators.measured(self.clock, measuring)
        for storage in self.made:
            # Some kernels make a result in memory larger than it, and never give that back.
            sizes = outputs.get(storage.born, ())
            storage.nbytes = max([storage.nbytes, *sizes[storage.place : storage.place + 1]])
        return Recording(
            flops, workspace, self.forward, self.made, self.saved, self.calls,
            self.source_bytes, self.device == "cpu",
        )  # fmt: skip

    # What happens -----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":  # a question about a tensor's device, and the like
            return func(*args, **(kwargs or {}))
        now = self.tick()
        inputs = tree_leaves((args, kwargs))
        before = {found[0] for x in inputs if (found := storage_of(x))}
        result = func(*args, **(kwargs or {}))
        mutable = is_mutable(func)
        if mutable:
            self.note_write(func, args, kwargs or {})
        new = False
        for place, value in enumerate(tree_leaves(result)):
            if (found := storage_of(value)) and found[0] not in before:
                self.register(value, place, now)
                new = True
        if new or mutable:
            self.operators.note(now, func, args, kwargs or {}, result)
        return result

    def tick(self) -> int:
        """Count an event; return its number."""
        self.clock += 1
        return self.clock - 1

    def register(self, value: torch.Tensor, place: int, now: int) -> None:
        """Note the storage that an operator made, unless it is there already."""
        found = storage_of(value)
        assert found is not None  # it is a tensor
        key, nbytes = found
        if key in self.live or value.device.type != self.device:
            return
        made = Storage(nbytes, place, now)
        self.live[key] = len(self.made)
        self.made.append(made)

        def gone() -> None:
            if not self.over:
                made.died = self.clock - 1
            self.live.pop(key, None)

        weakref.finalize(value.untyped_storage(), gone).atexit = False

    def number(self, value: Any) -> int | None:
        """Return which storage a value is in; None if no operator made it."""
        found = storage_of(value)
        return self.live.get(found[0]) if found else None

    def save(self, value: torch.Tensor) -> Ticket:
        """Stand in for autograd's saving of a value."""
        now, number = self.tick(), self.number(value)
        saved = Saved(-1 if number is None else number, now)
        self.saved.append(saved)
        ticket = Ticket(value if self.saving else None, saved)

        def released() -> None:
            saved.released = self.clock - 1

        weakref.finalize(ticket, released).atexit = False
        return ticket

    def read(self, ticket: Ticket) -> Any:
        """Stand in for autograd's reading of a value."""
        if ticket.saved is not None:
            ticket.saved.read = min(ticket.saved.read, self.tick())
        return ticket.value

    def note_write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note for the modules being called if an operator writes to what they did not make."""
        if not self.active:
            return
        for value in written_by(func, args, kwargs):
            number = self.number(value)
            for called in self.active:
                if number is not None and self.made[number].born < called.begin:
                    called.writes = str(func)

    @contextmanager
    def watching(self, watched: Mapping[str, Any]) -> Iterator[None]:
        """While this is active, note calls of modules."""

        def enter(name: str, args: Any, kwargs: Any) -> None:
            numbers = map(self.number, tree_leaves((args, kwargs)))
            called = Called(self.tick(), given={number for number in numbers if number is not None})
            self.calls[name].append(called)
            self.active.append(called)

        def leave() -> None:
            self.active.pop().end = self.tick()

        hooks = []
        for name, module in watched.items():
            hooks += [
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: enter(name, args, kwargs),
                    with_kwargs=True,
                ),
                module.register_forward_hook(
                    lambda module, args, result: leave(), always_call=True
                ),
            ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def check_returned(loss: Any, name: str) -> None:
    """Raise a GraphError unless a forward returned a scalar that can be differentiated."""
    leaves = [x for x in tree_leaves(loss) if isinstance(x, torch.Tensor)]
    single = isinstance(loss, torch.Tensor)
    check_loss(leaves if leaves else [loss], [loss] if single and loss.requires_grad else [], name)
