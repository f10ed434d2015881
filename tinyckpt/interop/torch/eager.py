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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.capture import (
    DispatchMode,
    FakeMode,
    address_of,
    is_mutable,
    is_scaled,
    is_view,
    placed,
    saved_by,
    storage_of,
    tree_leaves,
    tree_map,
)
from tinyckpt.interop.torch.checks import captured, check_loss
from tinyckpt.interop.torch.distinct import Operators
from tinyckpt.interop.torch.preserving import replaced
from tinyckpt.interop.torch.states import tensors_in

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
        stays: whether it is there after a forward pass by itself.
    """

    nbytes: int
    place: int
    born: int
    died: int = NEVER
    alone: int = NEVER
    stays: bool = False


@dataclass(slots=True)
class Saved:
    """What autograd saved once: a storage, from when until when, and when it was read first.

    Attributes:
        used: until when the function that read it had it.
        reads: how often it was read.
        source: the address of its storage, as in ``Recording.sources``.
    """

    storage: int
    saved: int
    read: int = NEVER
    released: int = NEVER
    used: int = -1
    reads: int = 0
    source: int = 0


@dataclass(slots=True)
class Called:
    """A call of a module that was watched: from when until when, and the storages it was given."""

    begin: int
    end: int = NEVER
    given: set[int] = field(default_factory=set)


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
        sources: address and bytes of each parameter and buffer, by name.
        freed: what is let go of that was there before the step: events and bytes.
        kept: of modules, by name, which of the storages that they make a second evaluation leaves,
            which of the values that it saves, and which storages of the first are gone after it,
            each with how many storages the second had made by then.
        restored: of modules, by name, the buffers that are put back for a second evaluation.
    """

    flops: list[int] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)
    forward: int = 0
    storages: list[Storage] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    calls: dict[str, list[Called]] = field(default_factory=dict)
    source_bytes: int = 0
    on_cpu: bool = True
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    freed: list[tuple[int, int]] = field(default_factory=list)
    kept: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    restored: dict[str, tuple[str, ...]] = field(default_factory=dict)


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
        seen = StepWatch(mode, saving=True)
        seen.step(model, args, watched)
        bare = StepWatch(mode, saving=False)
        bare.step(model, args, watched)
        if [s.born for s in bare.made] != [s.born for s in seen.made[: len(bare.made)]]:
            raise GraphError(
                f"{name}: two forward passes evaluate different operators; legal is a forward that "
                "does the same each time"
            )
        for storage, alone in zip(seen.made, bare.made, strict=False):
            # What is there after a forward pass by itself, is until the end: the loss.
            storage.stays = alone.died == NEVER
            storage.alone = storage.died if storage.stays else alone.died
        for storage in seen.made[len(bare.made) :]:
            storage.alone = storage.died
        for storage in seen.numbers:
            storage.alone = storage.died
    return seen.recording(workspace)


class Lasting:
    """Is there as long as what has it."""


class Ticket:
    """Stands for a value that autograd saved; gone when autograd lets go of it."""

    def __init__(self, value: Any, saved: Saved) -> None:
        self.value, self.saved = value, saved


class StepWatch(DispatchMode):  # type: ignore[misc]
    """Watches one step.

    Attributes:
        clock: how many events there were.
        made: storages that operators made, in order.
        numbers: of these the tensors that were Python's numbers, which autograd makes itself.
        scaled: the last operator, if it was given a tensor and a number.
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
        self.operators = Operators(mode)
        self.device = "cpu"
        self.source_bytes = 0
        self.sources: dict[str, tuple[int, int]] = {}
        self.freed: list[tuple[int, int]] = []
        self.over = False
        self.off = False
        self.scaled: Any = None
        self.numbers: list[Storage] = []

    def step(self, model: torch.nn.Module, args: Sequence[Any], watched: Mapping[str, Any]) -> None:
        """Make the step: the forward half, and if autograd saves, the backward half."""
        self.calls = {name: [] for name in watched}
        hooks = saved_tensors_hooks(self.save, self.read)
        with ExitStack() as stack, warnings.catch_warnings():
            # From 2.14 on PyTorch warns that selective checkpoints will heed such hooks one day.
            warnings.filterwarnings("ignore", "A saved_tensors_hooks context", FutureWarning)
            given = stack.enter_context(on_fakes(model, args, self.mode))
            self.note_sources(model, given)
            stack.enter_context(self.watching(watched))
            stack.enter_context(states_taken(lambda state: self.register(state, 0, self.tick())))
            stack.enter_context(self)
            torch.clear_autocast_cache()
            with hooks:
                loss = model(*given)
            torch.clear_autocast_cache()
            self.forward = self.clock
            if self.saving:
                with uncast():
                    loss_of(loss, type(model).__name__).backward()
            self.over = True  # what is there now is there at the end

    def note_sources(self, model: torch.nn.Module, given: Sequence[Any]) -> None:
        """Note the storages of parameters, buffers and arguments."""
        state = [*model.named_parameters(), *model.named_buffers(remove_duplicate=False)]
        self.sources = {name: (address_of(x), x.nbytes) for name, x in state}
        for storage in {x.untyped_storage() for x in attributes_of(model)}:
            weakref.finalize(storage, self.let_go, storage.nbytes()).atexit = False
        leaves = tree_leaves(([value for _, value in state], given))
        every = {found for x in leaves if (found := storage_of(x))}
        self.source_bytes = sum(nbytes for _, nbytes in every)
        self.device = next((x.device.type for _, x in state), "cpu")

    def recording(self, measuring: bool) -> Recording:
        """Return what was seen; operators are measured only now."""
        workspace, flops, outputs = self.operators.measured(self.clock, measuring)
        for storage in self.made:
            # Some kernels make a result in memory larger than it, and never give that back.
            sizes = outputs.get(storage.born, ())
            storage.nbytes = max([storage.nbytes, *sizes[storage.place : storage.place + 1]])
        return Recording(
            flops, workspace, self.forward, [*self.made, *self.numbers], self.saved, self.calls,
            self.source_bytes, self.device == "cpu", self.sources, self.freed,
        )  # fmt: skip

    def let_go(self, nbytes: int) -> None:
        """Note that something from before the step is gone."""
        if not self.over:
            self.freed.append((self.clock - 1, nbytes))

    # What happens -----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.off or func.namespace == "prim":  # that asks for a tensor's device, and the like
            return func(*args, **(kwargs or {}))
        now = self.tick()
        inputs = tree_leaves((args, kwargs))
        before = {found[0] for x in inputs if (found := storage_of(x))}
        result = func(*args, **(kwargs or {}))
        mutable = is_mutable(func)
        new = False
        for place, value in enumerate(tree_leaves(result)):
            if (found := storage_of(value)) and found[0] not in before:
                self.register(value, place, now)
                new = True
        if new or mutable:
            self.operators.note(now, func, args, kwargs or {}, result)
        scaled = is_scaled(func, args) and torch.is_grad_enabled()  # else its node is another's
        self.scaled = (func, args, weakref.ref(result), now) if scaled else None
        return result

    def tick(self) -> int:
        """Count an event; return its number."""
        if self.scaled is not None:
            self.note_number(*self.scaled)
            self.scaled = None
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

    def note_number(self, func: Any, args: Any, result: Any, now: int) -> None:
        """Note the tensor that autograd makes of a Python number and saves, hooks or not."""
        value = result()
        # A view that was written to gets its node when somebody asks for it, under a lock that
        # whoever asks right now may hold; its number, of eight bytes, is left out.
        node = None if value is None or is_view(value) else value.grad_fn
        place = next(place for place, x in enumerate(args) if not isinstance(x, torch.Tensor))
        saved = saved_by(node, func, place)
        if node is None or not isinstance(saved, torch.Tensor) or self.device != "cpu":
            return
        # While the operator runs, the number is part of its workspace.
        made = Storage(saved.untyped_storage().nbytes(), 0, now + 1)
        self.numbers.append(made)

        def gone(*gradients: Any) -> None:
            made.died = min(made.died, NEVER if self.over else self.clock - 1)

        node.register_hook(gone)  # it lets go of the number once it was evaluated, or with itself
        node.metadata["tinyckpt"] = lasting = Lasting()
        weakref.finalize(lasting, gone).atexit = False

    def number(self, value: Any) -> int | None:
        """Return which storage a value is in; None if no operator made it."""
        found = storage_of(value)
        return self.live.get(found[0]) if found else None

    def save(self, value: torch.Tensor) -> Ticket:
        """Stand in for autograd's saving of a value."""
        now, number, found = self.tick(), self.number(value), storage_of(value)
        saved = Saved(-1 if number is None else number, now, source=found[0] if found else 0)
        self.saved.append(saved)
        ticket = Ticket(value if self.saving else None, saved)

        def released() -> None:
            saved.released = self.clock - 1

        weakref.finalize(ticket, released).atexit = False
        return ticket

    def read(self, ticket: Ticket) -> Any:
        """Stand in for autograd's reading of a value."""
        if ticket.value is None:
            raise GraphError(
                "forward differentiates by itself (torch.autograd.grad); legal is a forward that "
                "leaves that to the step. trace takes such models"
            )
        saved = ticket.saved
        saved.read, saved.reads = min(saved.read, self.tick()), saved.reads + 1
        return self.stand_in(ticket.value, saved)

    def stand_in(self, value: torch.Tensor, saved: Saved) -> torch.Tensor:
        """Return a tensor of its own in place of what was saved, to see how long it is used.

        Under ``checkpoint`` the value is gone then: what it evaluates again it hands out once.
        """
        made = self.made[saved.storage] if saved.storage >= 0 else None
        before, self.off = self.off, True
        try:
            size = value.untyped_storage().nbytes() // max(value.element_size(), 1)
            flat = torch.empty(size, dtype=value.dtype, device=value.device)
            stand = flat.as_strided(value.shape, value.stride(), value.storage_offset())
        finally:
            self.off = before
        key = address_of(stand)
        if made is not None:
            self.live[key] = saved.storage

        def gone() -> None:
            now = NEVER if self.over else self.clock - 1
            saved.used = max(saved.used, now)
            if made is not None and made.died < min(now, self.clock - 1):
                made.died = now  # what was saved lives on as a gradient
            self.live.pop(key, None)

        weakref.finalize(stand.untyped_storage(), gone).atexit = False
        return stand

    @contextmanager
    def watching(self, watched: Mapping[str, Any]) -> Iterator[None]:
        """While this is active, note calls of modules."""

        def call(name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
            given = map(self.number, tensors_in((args, kwargs)))
            called = Called(self.tick(), given={number for number in given if number is not None})
            self.calls[name].append(called)
            try:
                return forward(*args, **kwargs)
            finally:
                called.end = self.tick()

        with forwards(watched, call):
            yield


@contextmanager
def uncast() -> Iterator[None]:
    """While this is active, there is no autocast: it stands around forward, not around backward."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def states_taken(note: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """While this is active, tell of each state of the generator that ``checkpoint`` takes.

    No operator makes it.
    """
    take = torch.get_rng_state

    def taken() -> torch.Tensor:
        state = take()
        note(state)
        return state

    try:
        torch.get_rng_state = torch.random.get_rng_state = taken
        yield
    finally:
        torch.get_rng_state = torch.random.get_rng_state = take


@contextmanager
def forwards(watched: Mapping[str, torch.nn.Module], call: Callable[..., Any]) -> Iterator[None]:
    """While this is active, modules call something else, which is given their name and forward.

    That is where ``checkpoint`` stands when it is around them: inside of their hooks.
    """
    before = {name: vars(module).get("forward") for name, module in watched.items()}
    try:
        for name, module in watched.items():
            vars(module)["forward"] = partial(call, name, module.forward)
        yield
    finally:
        for name, module in watched.items():
            vars(module).pop("forward", None)
            if before[name] is not None:
                vars(module)["forward"] = before[name]


@contextmanager
def on_fakes(
    model: torch.nn.Module, args: Sequence[Any], mode: FakeMode
) -> Iterator[tuple[Any, ...]]:
    """While this is active, parameters, buffers and arguments, yielded, have no numbers.

    Nothing else refers to them, and whatever else a forward writes is put back.
    """

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with warnings.catch_warnings():  # of one that an earlier forward left, which is no leaf
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            made = mode.from_tensor(value)
            made.grad = None
        return made

    with mode:
        faked = {id(x): fake(x) for x in attributes_of(model)}
        given = tree_map(fake, tuple(args))
        with replaced((model, given), faked):
            faked.clear()
            yield given


def attributes_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters and buffers, and tensors that stand in modules as plain attributes."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (x for x in vars(module).values() if isinstance(x, torch.Tensor))


def loss_of(returned: Any, name: str) -> Any:
    """Return the scalar that a forward returned, which may be the one tensor of a dict or tuple.

    Raises:
        GraphError: if it is none, or there is nothing to differentiate.
    """
    leaves = [x for x in tree_leaves(returned) if isinstance(x, torch.Tensor)]
    check_loss(leaves if leaves else [returned], [x for x in leaves if x.requires_grad], name)
    return leaves[0]
