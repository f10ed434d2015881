"""Tensor lifetimes of an eager PyTorch step, recorded on FakeTensors by a dispatch mode.

The model's own Python and PyTorch's own autograd run on tensors that have everything except data.
So every cause of a lifetime is the real one: local variables, in-place operators, the tensors that
each autograd function saves, the order in which the engine releases them. AOTAutograd's joint graph
is close to that but not the same; dropout on a CPU, for one, is another program there.

Two passes are recorded. In the first, autograd saves as usual. In the second, which is a forward
pass only, saved tensors are dropped at once: it shows how long values live by themselves, as in a
module under ``torch.utils.checkpoint``. Out: a ``Recording``.
"""

from __future__ import annotations

import warnings
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from inspect import currentframe
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.base.errors import GraphError
from tinyckpt.codegen.caching_allocator import rounded
from tinyckpt.interop.torch import isolated_worker
from tinyckpt.interop.torch.capture import (
    CONTIGUOUS,
    CONTIGUOUS_AS_INPUT,
    DispatchMode,
    FakeMode,
    FakeTensor,
    address_of,
    autocast_left,
    base_of,
    current_node,
    current_node_number,
    evaluated_node,
    has_scalar_operand,
    is_mutable,
    is_view,
    kind_of,
    meta_on_cpu,
    next_node_number,
    returns_operands,
    saved_by,
    storage_of,
)
from tinyckpt.interop.torch.costs import OperatorCall
from tinyckpt.interop.torch.cuda_functions import AUTOCAST_OF_CUDA, functions_of_cuda
from tinyckpt.interop.torch.infer_shapes import WRAPPERS, infer, stand_in
from tinyckpt.interop.torch.known_values import KnownValues, true_elements, with_count
from tinyckpt.interop.torch.python_state import random_states, tensors_in
from tinyckpt.interop.torch.pytrees import map_tensors, tensor_leaves, tree_leaves
from tinyckpt.interop.torch.state_rollback import AttributesReplaced, ObjectState
from tinyckpt.interop.torch.validate_model import (
    DIFFERENTIATES,
    captured,
    check_loss,
    check_measurable,
)
from tinyckpt.interop.torch.workspace import DistinctOperators

AUTOGRAD = str(Path(torch.autograd.__file__).parent)
aten = torch.ops.aten
SCATTERS = {
    aten.index_add.default, aten.scatter_add.default, aten.scatter.src, aten.scatter.value,
    aten.index_put.default, aten.masked_scatter.default, aten.put.default,
}  # fmt: skip
# Operators whose derivatives are other programs if a tensor is of a subclass, as FakeTensors are:
# else they read values, to do without what only zeros need, or write to what they have made.
# They are measured, as kernels are.
DIFFERENTIATED = {
    aten.prod.default, aten.prod.dim_int, aten.cumprod.default, aten.clamp.Tensor,
    aten.max.default, aten.min.default, aten.median.default, aten.nanmedian.default,
    aten.masked_fill.Tensor, aten.linalg_householder_product.default, aten.ormqr.default,
    aten.trace.default,
    aten.binary_cross_entropy.default, aten.binary_cross_entropy_with_logits.default,
}  # fmt: skip
DIVIDED = {"prod", "cumprod"}  # by factors: the quick program
# The same where nothing is measured, as for a CUDA device: what they write to.
IN_PLACE = {
    "BinaryCrossEntropyWithLogitsBackward0": {
        aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor,
    },
}  # fmt: skip
READS_FACTOR = {aten.mul_.Tensor, aten.div_.Tensor}  # their derivatives do
MANY = 20_000  # events of a forward pass, a minute of recording or more
NEVER = 2**62  # sentinel: an event number after all others


@dataclass(slots=True)
class Storage:
    """Memory allocated by an operator. Times are counted in events, see ``Recording``.

    Attributes:
        nbytes: its size in bytes.
        place: the index, among the operator's results, of the result stored in it.
        born: the event of its operator.
        died: the last event at which it is live.
        alone: the same, if autograd had saved nothing.
        stays: whether it outlives a forward pass by itself.
    """

    nbytes: int
    place: int
    born: int
    died: int = NEVER
    alone: int = NEVER
    stays: bool = False


@dataclass(slots=True)
class Saved:
    """A tensor that autograd saved: its storage, its lifetime, and its first read.

    Attributes:
        used: the last event at which the function that read it still refers to it.
        reads: the number of reads.
        source: the id of its storage, as in ``Recording.sources``.
    """

    storage: int
    saved: int
    read: int = NEVER
    released: int = NEVER
    used: int = -1
    reads: int = 0
    source: int = 0


@dataclass(slots=True)
class ModuleCall:
    """A watched call: its first and last event, and the storages of its arguments."""

    begin: int
    end: int = NEVER
    given: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Recording:
    """A training step as a list of events: an event-based memory trace.

    Events are evaluations of operators, autograd's saving of a tensor, and its first read.

    Attributes:
        flops, workspace: of every event; 0 for events that are no operator.
        forward: the number of events in the forward pass.
        storages: the memory that operators allocated, all on one device.
        saved: the tensors that autograd saved, in order; storage -1 for one that no operator made.
        calls: of every watched module.
        source_bytes: of parameters, buffers and arguments.
        on_cpu: whether the step runs on a CPU.
        sources: storage id and bytes of each parameter and buffer, by name.
        freed: releases of memory allocated before the step: events and bytes.
        kept: by module name: which of the storages that it makes survive a second evaluation, which
            of the values that it saves do, and which storages of the first evaluation are freed by
            the second, each with the number of storages that the second had made by then.
        restored: by name of a module that has some, the buffers to restore for a second evaluation.
        owners: the innermost module that each event belongs to, by name; only if asked for.
        gradients: bytes of the gradient of each parameter that has one, by name.
        operators: the operator of each event that evaluates one.
        drawn: random numbers that forward drew, and that other steps may take more for.
        divided: operators whose derivatives divide by factors, and take more where one is 0.
        uncached: modules whose ``config.use_cache`` was switched off for it, by name.
    """

    flops: list[int] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)
    forward: int = 0
    storages: list[Storage] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    calls: dict[str, list[ModuleCall]] = field(default_factory=dict)
    source_bytes: int = 0
    on_cpu: bool = True
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    freed: list[tuple[int, int]] = field(default_factory=list)
    kept: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    restored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    owners: list[str] = field(default_factory=list)
    gradients: dict[str, int] = field(default_factory=dict)
    operators: dict[int, Any] = field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    divided: tuple[str, ...] = ()
    uncached: tuple[str, ...] = ()

    @property
    def caveat(self) -> str:
        """Why other steps may take more; empty if they take the same."""
        found = []
        if self.drawn:
            drawn = " and ".join(self.drawn)
            found.append(f"Forward draws {drawn}; steps that draw others may take more.")
        if self.divided:
            divided = " and ".join(self.divided)
            found.append(f"The derivative of {divided} takes more where a factor is 0.")
        return " ".join(found)


def record(
    model: torch.nn.Module,
    args: Sequence[Any],
    watched: Mapping[str, Any],
    workspace: bool = True,
    cuda: bool = False,
    by_module: bool = False,
    around: Callable[[StepWatch], AbstractContextManager[None]] | None = None,
    state: ObjectState | None = None,
) -> Recording:
    """Record a training step on FakeTensors, which leaves no trace in the model.

    Args:
        model: a module in training mode whose forward returns a scalar loss.
        args: the arguments of forward.
        watched: modules of the model whose calls to record, by name.
        workspace: whether to evaluate each distinct operator once, to measure its workspace.
        cuda: whether the step is to be as on a CUDA device, which need not be here: in the sizes
            that its allocator hands out, without workspace.
        by_module: whether to find out which module each event belongs to.
        around: makes a context for each of the two passes, of what records it.
        state: a snapshot of the model and its arguments as they are, if there is one.

    Raises:
        GraphError: if forward does not take the arguments, or does not return a loss; with
            ``cuda``, if it needs what only such a device knows.
    """
    name = type(model).__name__
    recurrent = [type(each).__name__ for each in model.modules() if isinstance(each, nn.RNNBase)]
    if cuda and recurrent:
        raise GraphError(
            f"{name}: on a CUDA device {recurrent[0]} runs in cuDNN, which keeps more than can be "
            "known without it; a budget= without device= counts what it keeps on a CPU"
        )
    if cuda and torch.is_autocast_enabled("cpu"):
        raise GraphError(AUTOCAST_OF_CUDA)
    measuring = workspace and not cuda
    check_measurable(model, tree_leaves(tuple(args)), measuring)
    if measuring:
        isolated_worker.WORKER.start()
    with captured(name, model), torch.random.fork_rng(), meta_on_cpu(model, args) as (args, mode):
        state = state or ObjectState((model, args))
        seen = StepWatch(mode, saving=True, cuda=cuda, measuring=measuring)
        bare = StepWatch(mode, saving=False, cuda=cuda)
        for watch in (seen, bare):
            watch.owners = EventOwners() if by_module else None
            with around(watch) if around else nullcontext():
                watch.step(model, args, watched, state)
        if [s.born for s in bare.made] != [s.born for s in seen.made[: len(bare.made)]]:
            raise GraphError(
                f"{name}: two forward passes evaluate different operators; expected a forward that "
                "does the same each time"
            )
        for storage, alone in zip(seen.made, bare.made, strict=False):
            # A value that survives a forward pass by itself, such as the loss, is live to the end.
            storage.stays = alone.died == NEVER
            storage.alone = storage.died if storage.stays else alone.died
        for storage in (*seen.made[len(bare.made) :], *seen.numbers):
            storage.alone = storage.died
    return seen.finished()


class LifetimeToken:
    """Token whose finalizer tells when its owner is freed."""


class SavedHandle:
    """Handle that autograd stores in place of a saved tensor; freed when autograd releases it."""

    def __init__(self, value: Any, saved: Saved) -> None:
        self.value, self.saved = value, saved


class EventOwners:
    """The innermost module that each event of a step belongs to, by name.

    In the forward pass, and in a recomputation, that is the module whose forward runs. An event of
    the backward pass belongs to the module whose forward made the autograd node that is evaluated:
    nodes are numbered as they are made. Where no numbered node is evaluated, as when a gradient is
    accumulated or two are added, it belongs to the module of the event before.

    Attributes:
        names: of every event.
        running: names of the modules whose forward runs, the innermost one last.
        marks: where the innermost module changes: the number of the next node, and its name.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.running: list[str] = []
        self.marks: list[tuple[int, str]] = [(-1, "")]

    def note(self) -> None:
        """Note which module the next event belongs to."""
        name = self.running[-1] if self.running else self.names[-1] if self.names else ""
        number = None if self.running else current_node_number()
        if number is not None:
            name = self.marks[bisect_right(self.marks, number, key=itemgetter(0)) - 1][1]
        self.names.append(name)

    def call(self, name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a module's forward."""
        self.running.append(name)
        self.marks.append((next_node_number(), name))
        try:
            return forward(*args, **kwargs)
        finally:
            self.running.pop()
            outer = self.running[-1] if self.running else ""
            self.marks.append((next_node_number(), outer))


class StepWatch(DispatchMode):  # type: ignore[misc]
    """Dispatch mode that records one step.

    Attributes:
        recording: of the step so far.
        clock: the number of events so far.
        made: storages that operators allocated, in order.
        numbers: tensors that autograd itself makes of Python numbers, as storages.
        scaled: the last operator, if it was called with a tensor and a Python number.
        sums: indices in ``made`` of a gradient and of what the engine makes of it in place.
        node: the derivative that the engine evaluates.
        began: the first event of each derivative.
        differentiated: by number of its node, an operator whose derivative is to be measured.
        derivatives: these, each with its first event.
        live: index in ``made`` of each live storage, by its id; sources are not in it.
        owners: the module of each event, if asked for.
    """

    def __init__(
        self, mode: FakeMode, saving: bool, cuda: bool = False, measuring: bool = False
    ) -> None:
        super().__init__()
        self.mode, self.saving, self.cuda = mode, saving, cuda
        self.clock = 0
        self.recording = Recording()
        self.made: list[Storage] = []
        self.live: dict[int, int] = {}
        self.operators = DistinctOperators(mode, measuring)
        self.device = "cpu"
        self.over = False
        self.off = False
        self.scaled: Any = None
        self.numbers: list[Storage] = []
        self.sums: list[tuple[int, int]] = []
        self.node: tuple[str, int] | None = None
        self.began: list[int] = [0]
        self.differentiated: dict[int, OperatorCall] = {}
        self.derivatives: list[tuple[int, OperatorCall]] = []
        self.owners: EventOwners | None = None

    def step(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        watched: Mapping[str, Any],
        state: ObjectState,
    ) -> None:
        """Run the step: the forward pass and, if autograd saves, the backward pass."""
        seen = self.recording
        seen.calls = {name: [] for name in watched}
        hooks = saved_tensors_hooks(self.save, self.read)
        with ExitStack() as stack, warnings.catch_warnings():
            # Since 2.14 PyTorch warns that selective checkpoints will respect such hooks one day.
            warnings.filterwarnings("ignore", "A saved_tensors_hooks context", FutureWarning)
            given, known = stack.enter_context(fake_tensors(model, args, self.mode, state))
            self.note_sources(model, given)
            stack.enter_context(self.watching(watched))
            if self.owners:
                every = dict(model.named_modules())
                stack.enter_context(forwards_replaced(every, self.owners.call))
            if self.cuda:
                stack.enter_context(functions_of_cuda())
            else:
                stack.enter_context(
                    generator_states_noted(lambda state: self.register(state, 0, self.tick()))
                )
            stack.enter_context(self)
            torch.clear_autocast_cache()
            before, start = random_states(), perf_counter()
            with hooks:
                loss = model(*given)
            now, seconds = random_states(), perf_counter() - start
            seen.drawn = tuple(what for what, state in now.items() if state != before[what])
            if known.decides_by_random:
                seen.drawn += ("PyTorch's random numbers to decide by, here just below 1",)
            torch.clear_autocast_cache()
            seen.forward = self.clock
            if self.saving and seen.forward > MANY:
                warnings.warn(
                    f"{type(model).__name__}: forward evaluates {seen.forward:,} operators and "
                    f"saved values, and was recorded in {seconds:.0f} s; the rest of the step "
                    "takes some four times as long. A loop of Python over a sequence does that: "
                    "a shorter one takes less",
                    stacklevel=2,
                )
            if self.saving:
                with autocast_left():
                    loss_of(loss, type(model).__name__).backward()
            self.over = True  # later frees are after the step
            trained = [(name, p.grad) for name, p in model.named_parameters()]
            seen.gradients = {name: grad.nbytes for name, grad in trained if grad is not None}
            del trained

    def note_sources(self, model: torch.nn.Module, given: Sequence[Any]) -> None:
        """Record the storages of parameters, buffers and arguments."""
        state = [*model.named_parameters(), *model.named_buffers(remove_duplicate=False)]
        self.recording.sources = {name: (address_of(x), x.nbytes) for name, x in state}
        for storage in {x.untyped_storage() for x in tensors_of_modules(model)}:
            weakref.finalize(storage, self.note_freed, storage.nbytes()).atexit = False
        leaves = tree_leaves(([value for _, value in state], given))
        every = {found for x in leaves if (found := storage_of(x))}
        self.recording.source_bytes = sum(nbytes for _, nbytes in every)
        self.device = next((x.device.type for _, x in state), "cpu")

    def finished(self) -> Recording:
        """Return the recording; the last operators are measured now."""
        # A derivative ends where the next one begins, or the engine adds what it has made.
        others = {*self.began, *(self.made[total].born for _, total in self.sums), self.clock}
        derivatives = [
            (began, next(now for now in range(began, self.clock) if now + 1 in others), call)
            for began, call in self.derivatives
        ]
        workspace, flops, outputs, whole = self.operators.measured(self.clock, derivatives)
        for storage in self.made:
            # Some kernels allocate a storage larger than the result, and do not shrink it.
            sizes = outputs.get(storage.born, ())
            storage.nbytes = max([storage.nbytes, *sizes[storage.place : storage.place + 1]])
        for began, last, _ in whole:
            for storage in self.made:
                if began <= storage.born <= last and storage.died <= last:
                    storage.nbytes = 0  # part of the workspace
                elif began <= storage.born <= last:
                    storage.born = began
        for first, total in self.sums:
            if self.made[first].died == self.made[total].born:  # the sum takes its place
                self.made[total].born += 1
        if self.cuda:
            for storage in self.made:
                storage.nbytes = rounded(storage.nbytes)
        found = self.recording
        found.divided = tuple(sorted({kind_of(c.operator) for *_, c in whole} & DIVIDED))
        found.flops, found.workspace, found.on_cpu = flops, workspace, self.on_cpu
        found.storages = [*self.made, *self.numbers]
        found.owners = self.owners.names if self.owners else []
        found.operators = {at: call.operator for at, call in self.operators.events.items()}
        return found

    @property
    def on_cpu(self) -> bool:
        """Whether the step is one on a CPU."""
        return self.device == "cpu" and not self.cuda

    def note_freed(self, nbytes: int) -> None:
        """Record that memory from before the step is freed."""
        if not self.over:
            self.recording.freed.append((self.clock - 1, nbytes))

    # Events -----------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.off or func.namespace == "prim":  # queries, such as a tensor's device
            return infer(self.mode, func, args, kwargs)
        now = self.tick()
        if self.recording.forward and (node := evaluated_node()) != self.node:
            self.node = node
            self.began.append(now)
            if node is not None and (call := self.differentiated.get(node[1])):
                self.derivatives.append((now, call))
        inputs = tree_leaves((args, kwargs))
        before = {found[0] for x in inputs if (found := storage_of(x))}
        result = infer(self.mode, func, args, kwargs)
        if func in CONTIGUOUS or (func in CONTIGUOUS_AS_INPUT and args[1].is_contiguous()):
            result = map_tensors(contiguous, result)
        mutable = is_mutable(func)
        new = False
        # FakeTensorMode makes a storage for a tensor from outside the model; a view is in that.
        # What torch.tensor makes of numbers is the step's own.
        is_foreign = any(isinstance(x, torch.Tensor) and type(x) is not FakeTensor for x in inputs)
        outside = is_foreign and returns_operands(func) and func is not aten.lift_fresh.default
        for place, value in enumerate(tree_leaves(result)):
            if (found := storage_of(value)) and found[0] not in before and not outside:
                self.register(value, place, now)
                new = True
        last = len(self.made) - 1
        if new and (
            self.is_gradient_sum(func, args)
            or self.is_scattered_gradient(func, args)
            or self.is_written_gradient(func, args)
        ):
            self.sums.append((self.live[address_of(args[0])], last))
        if new or mutable:
            self.operators.events[now] = self.operators.call(func, args, kwargs, result)
        if func in DIFFERENTIATED and self.operators.measuring and torch.is_grad_enabled():
            given = enumerate(tensor_leaves((args, kwargs)))
            by = tuple(place for place, x in given if x.requires_grad)
            call = self.operators.call(func, args, kwargs, result, by)
            self.differentiated[next_node_number() - 1] = call
        # Without grad mode it has no autograd node of its own.
        scaled = has_scalar_operand(func, args) and torch.is_grad_enabled()
        self.scaled = (func, args, weakref.ref(result), now) if scaled else None
        return result

    @property
    def derivative(self) -> str:
        """The name of the derivative that the engine evaluates; empty in a forward pass."""
        return self.node[0] if self.node else ""

    def is_gradient_sum(self, func: Any, args: Any) -> bool:
        """Whether the engine calls an operator, through this mode, to sum gradients of one value.

        It sums real tensors in place where nothing else refers to the memory of the first (a view's
        base does), FakeTensors never.
        """
        return (
            self.recording.forward > 0
            and func is aten.add.Tensor
            and not self.is_within_derivative(args)
            and called_by_engine()
            and self.number(args[0]) is not None
            and is_dense(args[0])
            and not is_view(args[0])
        )

    def is_within_derivative(self, args: Any) -> bool:
        """Whether a derivative itself, such as that of ``var_mean``, is a sum of what it has made.

        The engine sums what came from an earlier one with what this one has made; both are this
        one's only if it has two results for the same value.
        """
        node = current_node()
        wanted = [] if node is None else [each for each in node.next_functions if each[0]]
        born = [self.made[n].born for x in args[:2] if (n := self.number(x)) is not None]
        return len(born) == 2 and min(born) >= self.began[-1] and len(set(wanted)) == len(wanted)

    def is_scattered_gradient(self, func: Any, args: Any) -> bool:
        """Whether the engine, through this mode, puts a gradient into zeros that it has just made.

        In the derivatives of ``index_select``, ``gather`` and the like it does so in place, unless
        a tensor is of a subclass, as FakeTensors are.
        """
        number = self.number(args[0]) if func in SCATTERS and args else None
        return (
            self.recording.forward > 0
            and number == len(self.made) - 2
            and self.made[number].born == self.clock - 2
            and called_by_engine()
        )

    def is_written_gradient(self, func: Any, args: Any) -> bool:
        """Whether a derivative, through this mode, goes on with what it has just made.

        Some do so in place, unless a tensor is of a subclass.
        """
        number = self.number(args[0]) if func in IN_PLACE.get(self.derivative, ()) else None
        is_own = number is not None and self.made[number].born >= self.began[-1]
        return is_own and not self.operators.measuring and called_by_engine()

    def tick(self) -> int:
        """Count an event; return its number."""
        if self.scaled is not None:
            self.note_scalar(*self.scaled)
            self.scaled = None
        if self.owners:
            self.owners.note()
        self.clock += 1
        return self.clock - 1

    def register(self, value: torch.Tensor, place: int, now: int) -> None:
        """Record a storage that an operator allocated, unless it is known."""
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

    def note_scalar(self, func: Any, args: Any, result: Any, now: int) -> None:
        """Record the tensor that autograd makes of a Python number and saves without hooks."""
        value = result()
        if value is None or not self.on_cpu:
            return
        place = next(place for place, x in enumerate(args) if not isinstance(x, torch.Tensor))
        if is_view(value):
            # Written to, it makes its grad_fn on first access, under a lock that the caller may
            # hold right now (deadlock). That of its base stands, but exposes nothing as saved.
            node = base_of(value).grad_fn if func in READS_FACTOR else None
            nbytes = 16 if isinstance(args[place], complex) else 8
        else:
            node = value.grad_fn
            saved = saved_by(node, func, place)
            nbytes = saved.untyped_storage().nbytes() if isinstance(saved, torch.Tensor) else 0
        if node is None or not nbytes:
            return
        # While the operator runs, the number is part of its workspace.
        made = Storage(nbytes, 0, now + 1)
        self.numbers.append(made)

        def gone(*gradients: Any) -> None:
            made.died = min(made.died, NEVER if self.over else self.clock - 1)

        node.register_hook(gone)  # it frees the number after its evaluation, or with itself
        node.metadata["tinyckpt"] = token = LifetimeToken()
        weakref.finalize(token, gone).atexit = False

    def number(self, value: Any) -> int | None:
        """Return the index of a value's storage; None if no operator made it."""
        found = storage_of(value)
        return self.live.get(found[0]) if found else None

    def save(self, value: torch.Tensor) -> SavedHandle:
        """Pack hook: stands in for autograd's saving of a tensor."""
        now, number, found = self.tick(), self.number(value), storage_of(value)
        saved = Saved(-1 if number is None else number, now, source=found[0] if found else 0)
        self.recording.saved.append(saved)
        # Detached: an output that its own autograd node saves would keep that node alive.
        before, self.off = self.off, True
        kept = with_count(value.detach(), true_elements(value)) if self.saving else None
        handle = SavedHandle(kept, saved)
        self.off = before

        def released() -> None:
            saved.released = self.clock - 1

        weakref.finalize(handle, released).atexit = False
        return handle

    def read(self, handle: SavedHandle) -> Any:
        """Unpack hook: stands in for autograd's reading of a saved tensor."""
        if handle.value is None:
            raise RuntimeError(f"recordings do not {DIFFERENTIATES} here")
        saved = handle.saved
        saved.read, saved.reads = min(saved.read, self.tick()), saved.reads + 1
        return self.stand_in(handle.value, saved)

    def stand_in(self, value: torch.Tensor, saved: Saved) -> torch.Tensor:
        """Return a tensor of its own in place of a saved one, to see how long it is used.

        Under ``checkpoint`` the saved value is freed by then: a recomputed value is handed out
        once.
        """
        made = self.made[saved.storage] if saved.storage >= 0 else None
        stand = stand_in(self.mode, value)
        key = address_of(stand)
        if made is not None:
            self.live[key] = saved.storage

        def gone() -> None:
            now = NEVER if self.over else self.clock - 1
            saved.used = max(saved.used, now)
            if made is not None and made.died < min(now, self.clock - 1):
                made.died = now  # the saved value lives on as a gradient
            self.live.pop(key, None)

        weakref.finalize(stand.untyped_storage(), gone).atexit = False
        return stand

    def begin_call(self, given: Any) -> ModuleCall:
        """Record that a call begins, of a module or a function, with what it is given."""
        numbers = [self.number(tensor) for tensor in tensors_in(given)]
        return ModuleCall(self.tick(), given={n for n in numbers if n is not None})

    @contextmanager
    def watching(self, watched: Mapping[str, Any]) -> Iterator[None]:
        """Record calls of modules within this context."""

        def call(name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
            called = self.begin_call((args, kwargs))
            self.recording.calls[name].append(called)
            try:
                return forward(*args, **kwargs)
            finally:
                called.end = self.tick()

        with forwards_replaced(watched, call):
            yield


def generator_states_noted(
    note: Callable[[torch.Tensor], None],
) -> AbstractContextManager[None]:
    """Return a context in which each generator state that ``checkpoint`` saves is reported.

    No operator makes it, so that the dispatch mode does not see it.
    """
    take = torch.get_rng_state

    def taken() -> torch.Tensor:
        state = take()
        note(state)
        return state

    owners = torch, torch.random
    return AttributesReplaced({(owner, "get_rng_state"): taken for owner in owners})


@contextmanager
def forwards_replaced(
    watched: Mapping[str, torch.nn.Module], call: Callable[..., Any]
) -> Iterator[None]:
    """Replace modules' forward by a callback, given their name and forward, within this context.

    The callback stands where ``checkpoint`` does when it wraps them: inside their hooks.
    """
    with forwards_restored(watched.values()):
        for name, module in watched.items():
            vars(module)["forward"] = partial(call, name, module.forward)
        yield


@contextmanager
def forwards_restored(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Undo, after this context, what it assigned to ``forward`` of modules."""
    before = [(vars(module), vars(module).get("forward")) for module in modules]
    try:
        yield
    finally:
        for attributes, forward in before:
            attributes.pop("forward", None)
            if forward is not None:
                attributes["forward"] = forward


@contextmanager
def fake_tensors(
    model: torch.nn.Module, args: Sequence[Any], mode: FakeMode, state: ObjectState
) -> Iterator[tuple[tuple[Any, ...], KnownValues]]:
    """Replace parameters, buffers and arguments by FakeTensors in this context.

    Yields the arguments, and what is known of values. The state is a snapshot of the model and its
    arguments as they are.

    What forward reads of integer arguments, such as a mask, and of counters among the buffers, it
    reads as they are. Nothing else refers to them, and all other state that a forward writes is
    rolled back.

    What is compiled runs as it is written: under a dispatch mode Dynamo would give a frame up, and
    never compile it again in this process.
    """

    def fake(value: torch.Tensor) -> Any:
        with warnings.catch_warnings():  # about a non-leaf that an earlier forward left
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            made = mode.from_tensor(value)
            made.grad = None
        return made

    with torch.compiler.set_stance("force_eager"), mode:
        # Of modules that are no submodules, too, such as a loss function or a teacher in a list.
        modules = [each for each in state.seen.values() if isinstance(each, torch.nn.Module)]
        faked = {id(x): fake(x) for module in modules for x in tensors_of_modules(module)}
        given = map_tensors(fake, tuple(args))
        known = KnownValues(
            tree_leaves(given),
            tree_leaves(tuple(args)),
            [(faked[id(x)], x) for each in modules for x in each.buffers() if x.numel() == 1],
        )
        with state.replaced(faked):
            faked.clear()
            with known:
                yield given, known


def contiguous(value: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor of a tensor's shape, itself if it is one."""
    if value.is_contiguous():
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)


def called_by_engine() -> bool:
    """Whether autograd's engine is what called a method of this file, and no other Python code."""
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((__file__, *WRAPPERS)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(AUTOGRAD)


def is_dense(value: torch.Tensor) -> bool:
    """Whether the elements of a tensor lie next to each other, in any order, and none twice."""
    expected = 1
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def tensors_of_modules(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters, buffers, and tensors that are plain attributes of modules."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (x for x in vars(module).values() if isinstance(x, torch.Tensor))


def loss_of(returned: Any, name: str) -> Any:
    """Return the scalar that a forward returned, possibly the only tensor of a dict or tuple.

    Raises:
        GraphError: if there is none, or it is not differentiable.
    """
    leaves = tensor_leaves(returned)
    check_loss(leaves if leaves else [returned], [x for x in leaves if x.requires_grad], name)
    return leaves[0]
