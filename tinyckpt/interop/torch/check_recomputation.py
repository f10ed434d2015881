"""Recomputation safety check: whether evaluating a module again computes the same result.

In: a model, arguments, modules. Out: for each module a ``Verdict``: why it must not be wrapped, or
the buffers to restore for its second evaluation.

Runs a forward pass on FakeTensors, then evaluates each module again as ``checkpoint`` would: with
the same argument objects, with the Python state as it is by then, until all that was saved the
first time is saved again (early stop). The second evaluation must evaluate, read and save the same,
from storages with the same contents, and must leave no side effect that a plain step does not have.
Not detected: dependence on the data in tensors, and changes after many steps only.
"""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import string_at
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.torch.buffer_snapshots import (
    Copies,
    buffers_restored,
    copies_of,
    norms_in,
    norms_to_freeze,
    slots_of,
)
from tinyckpt.interop.torch.capture import (
    AVERAGING,
    DispatchMode,
    FakeMode,
    FakeTensor,
    arguments_of,
    autocast_left,
    is_mutable,
    meta_on_cpu,
    storage_of,
    written_by,
)
from tinyckpt.interop.torch.eager import fake_tensors, forwards_replaced
from tinyckpt.interop.torch.infer_shapes import infer
from tinyckpt.interop.torch.python_state import (
    RandomState,
    State,
    TensorRef,
    state_differences,
    state_of,
    state_of_arguments,
)
from tinyckpt.interop.torch.pytrees import tensor_leaves, tree_leaves, tree_map
from tinyckpt.interop.torch.state_rollback import ObjectState
from tinyckpt.interop.torch.validate_model import captured

LIMIT = 40  # the most characters of a value in a reason
MOST_BYTES = 1 << 20  # of a tensor that is compared by its contents


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of evaluating a module twice.

    Attributes:
        reason: why it must not be wrapped; empty if it may be.
        restored: local names of buffers to restore for its second evaluation.
        kept: the storages that it makes which are still live after its second evaluation.
        saves: the values that it saves which are, likewise.
        dropped: the storages that the first evaluation left and the second frees, each with the
            number of storages that the second had made by then.
    """

    reason: str = ""
    restored: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    saves: tuple[int, ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()


class EnoughSavedError(Exception):
    """Early stop: ends a second evaluation at its last saved value, as ``checkpoint`` does."""


class Moment(NamedTuple):
    """What an evaluation may read, before or after it.

    Attributes:
        state: the Python state.
        handed: that of its arguments.
        buffers: the module's buffers, by local name.
    """

    state: State
    handed: State
    buffers: Mapping[str, torch.Tensor | None]


@dataclass(slots=True, eq=False)
class Evaluation:
    """One evaluation of a module, with a log of its effects.

    Attributes:
        log: operators with their operands, and the values that autograd saved, in order.
        saved: weak references to these values.
        made: for the number of each storage that it made, its position among these.
        dropped: for that of each storage freed during it, how many it had made by then.
        writes: by number of a storage, the operator that wrote to it last.
        versions: write counts of storages when it began.
        before, after: what it may read, before and after it.
        copies: of the module's buffers as they were before it, by slot.
        grad, autocast: whether gradients were enabled, and the autocast that was active.
    """

    name: str
    module: nn.Module
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    log: list[Any] = field(default_factory=list)
    saved: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    writes: dict[int, str] = field(default_factory=dict)
    versions: Counter[int] = field(default_factory=Counter)
    before: Moment = field(init=False)
    after: Moment = field(init=False)
    copies: Copies = field(default_factory=dict)
    grad: bool = True
    autocast: tuple[Any, ...] = ()

    def given(self) -> dict[str, Any]:
        """Bind its arguments to the names of its parameters."""
        try:
            bound = inspect.signature(self.forward).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return {f"argument {place}": x for place, x in enumerate(self.args)} | self.kwargs
        return dict(bound.arguments)


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor operand: storage, version (the number of writes to it so far), and layout."""

    number: int
    version: int
    layout: tuple[Any, ...]


def verdicts(
    model: nn.Module, args: Sequence[Any], watched: Mapping[str, nn.Module], state: ObjectState
) -> dict[str, Verdict]:
    """Evaluate each of some modules twice; return a verdict by name.

    Args:
        model, args, state: as in ``record``.
        watched: modules that are called in a step, by name.
    """
    if not watched:
        return {}
    found: dict[str, list[Verdict]] = {name: [] for name in watched}
    with ExitStack() as stack:
        stack.enter_context(captured(type(model).__name__, model))
        stack.enter_context(torch.random.fork_rng())
        args, mode = stack.enter_context(meta_on_cpu(model, args))
        given, _ = stack.enter_context(fake_tensors(model, args, mode, state))
        replays = stack.enter_context(Replays(mode))
        for kind, named in (
            ("parameter", model.named_parameters()), ("buffer", model.named_buffers())
        ):  # fmt: skip
            for name, value in named:
                replays.names[replays.number(value)] = f"the {kind} {name}"

        def call(name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
            return replays.first(Evaluation(name, watched[name], forward, args, kwargs))

        torch.clear_autocast_cache()
        with forwards_replaced(watched, call):
            model(*given)
        with autocast_left():
            while replays.evaluations:  # popping frees its arguments, and their autograd graph
                each = replays.evaluations.pop()
                found[each.name].append(replays.verdict_of(each))
    return {name: verdict_of_calls(each) for name, each in found.items()}


def verdict_of_calls(found: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a module, given those on its calls.

    A module that is called several times must not change buffers or attributes: each of its second
    evaluations would find them as its last first evaluation left them.
    """
    bad = next((each for each in found if each.reason), None)
    if bad is not None or len(found) < 2:
        return bad or (found[0] if found else Verdict())
    if any(each.restored or each.kept or each.saves or each.dropped for each in found):
        return Verdict(f"is called {len(found)} times, and changes buffers or attributes each time")
    return Verdict()


class Replays(DispatchMode):  # type: ignore[misc]
    """Dispatch mode that runs a forward pass, then evaluates modules again.

    Attributes:
        live: the numbers of live storages, by id.
        version: the number of writes to each storage, by number.
        writer: the module that wrote to it last, and by which operator.
        written: all modules that wrote to it.
        names: names of the storages of parameters and buffers.
        running: the current evaluation.
        enough: the number of saved values that ends it; -1 of a first evaluation, which is whole.
        evaluations: the first evaluations, in order.
    """

    def __init__(self, mode: FakeMode) -> None:
        super().__init__()
        self.mode = mode
        self.count = 0
        self.live: dict[int, int] = {}
        self.version: Counter[int] = Counter()
        self.writer: dict[int, tuple[str, str]] = {}
        self.written: dict[int, set[str]] = {}
        self.names: dict[int, str] = {}
        self.running: Evaluation | None = None
        self.enough = -1
        self.off = False
        self.evaluations: list[Evaluation] = []

    # First evaluations ------------------------------------------------------------------------

    def first(self, made: Evaluation) -> Any:
        """Run a first evaluation."""
        if self.running is not None:  # nested in another evaluation, or recursive
            return made.forward(*made.args, **made.kwargs)
        self.evaluations.append(made)
        buffers = dict(made.module.named_buffers(remove_duplicate=False))
        slots = zip(slots_of(made.module, [*buffers]), buffers.values(), strict=True)
        with self.unlogged():
            made.copies = copies_of(dict(slots))
        made.before = self.moment(made)
        made.autocast, made.grad = autocast_state(), torch.is_grad_enabled()
        result = self.evaluate(made)
        made.after = self.moment(made)
        return result

    def moment(self, made: Evaluation) -> Moment:
        """Return what an evaluation may read now."""
        return Moment(
            state_of(made.module, made.forward, self.number),
            state_of_arguments(made.given(), self.number),
            dict(made.module.named_buffers(remove_duplicate=False)),
        )

    def evaluate(self, made: Evaluation) -> Any:
        """Evaluate a module, logging its effects."""
        made.versions = Counter(self.version)
        self.running = made
        try:
            with saved_tensors_hooks(self.save, lambda value: value):
                return made.forward(*made.args, **made.kwargs)
        finally:
            self.running = None

    @contextmanager
    def unlogged(self) -> Iterator[None]:
        """Log no operators within this context."""
        before, self.off = self.off, True
        try:
            yield
        finally:
            self.off = before

    # Events -----------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim" or self.off:
            return infer(self.mode, func, args, kwargs)
        read = tree_map(self.ref, (args, kwargs))
        result = infer(self.mode, func, args, kwargs)
        made = self.running
        for value in tensor_leaves(result):
            known = self.count  # the number of a storage that is seen first now
            if self.number(value) == known and made is not None:
                made.made[known] = len(made.made)
        for value in writes_of(func, args, kwargs):
            number = self.number(value)
            self.version[number] += 1
            name = made.name if made else ""
            self.writer[number] = name, str(func)
            self.written.setdefault(number, set()).add(name)
            if made is not None:
                made.writes[number] = str(func)
        if made is not None:
            made.log.append((func, read))
        return result

    def ref(self, value: Any) -> Any:
        """Return a hashable description of an operand: a ``Ref`` for a tensor, else its text.

        A tensor that is made of data in forward, as ``torch.tensor(2.0)``, is what it contains,
        unless it is large; then it is another one each time that it is made.
        """
        if found := storage_of(value):
            layout = tuple(value.shape), value.stride(), value.storage_offset(), value.dtype
            is_real = not isinstance(value, FakeTensor) and value.device.type == "cpu"
            if is_real and found[1] <= MOST_BYTES:
                return layout, string_at(value.untyped_storage().data_ptr(), found[1])
            number = self.number(value)
            return Ref(number, self.version[number], layout)
        return value if isinstance(value, torch.Generator) else repr(value)

    def number(self, value: torch.Tensor) -> int:
        """Return the number of a tensor's storage."""
        found = storage_of(value)
        assert found is not None  # it is a tensor
        key = found[0]
        if key not in self.live:
            self.live[key] = self.count
            self.count += 1
            weakref.finalize(value.untyped_storage(), self.drop, key).atexit = False
        return self.live[key]

    def drop(self, key: int) -> None:
        """Record that a storage is freed."""
        number = self.live.pop(key, None)
        if self.running is not None and number is not None:
            self.running.dropped[number] = len(self.running.made)

    def save(self, value: torch.Tensor) -> torch.Tensor:
        """Pack hook: stands in for autograd's saving of a tensor."""
        made = self.running
        with self.unlogged():
            kept = value.detach()
        if made is not None:
            made.log.append((None, self.ref(kept)))
            made.saved.append(weakref.ref(kept))
            if len(made.saved) == self.enough:
                raise EnoughSavedError
        return kept

    # Second evaluations -----------------------------------------------------------------------

    def verdict_of(self, first: Evaluation) -> Verdict:
        """Evaluate a module again, its running averages ignored or restored; return a verdict."""
        if not first.saved or not first.grad:  # never recomputed
            return Verdict()
        own = self.written_buffers(first)
        averages = self.averages(first, own)
        restored = tuple(name for name in own if name not in averages)
        found = self.evaluate_again(first, restored, averages)
        if found.reason and averages:
            other = self.evaluate_again(first, own, ())
            return found if other.reason else other
        return found

    def written_buffers(self, first: Evaluation) -> tuple[str, ...]:
        """Return the buffers of a module that its evaluation wrote to, or assigned anew."""
        return tuple(
            name
            for name, value in first.before.buffers.items()
            if first.after.buffers.get(name) is not value
            or (value is not None and self.number(value) in first.writes)
        )

    def averages(self, first: Evaluation, written: Sequence[str]) -> tuple[str, ...]:
        """Return the buffers that are running averages: only their norms read them."""
        before, after = first.before.buffers, first.after.buffers
        read = {n for each in first.log if not averages_only(each) for n in numbers_in(each)}
        owners = {name: slots_of(first.module, [name])[0][0] for name in written}
        norms = set(norms_in(first.module))
        others = {
            owners[name]
            for name in written
            if owners[name] not in norms
            or (value := before[name]) is None
            or after.get(name) is not value
            or self.number(value) in read
        }
        return tuple(name for name in written if owners[name] not in others)

    def evaluate_again(
        self, first: Evaluation, restored: tuple[str, ...], averages: Sequence[str]
    ) -> Verdict:
        """Evaluate a module a second time and compare; return a verdict."""
        reason = self.changed_before(first)
        if reason:
            return Verdict(reason)
        second = Evaluation(first.name, first.module, first.forward, first.args, first.kwargs)
        before = set(self.live.values())
        second.before = self.moment(second)
        with ExitStack() as stack:
            copies = {slot: first.copies[slot] for slot in slots_of(first.module, restored)}
            norms = norms_to_freeze(first.module, restored)
            with self.unlogged():
                stack.enter_context(buffers_restored(copies, norms))
            now = dict(first.module.named_buffers(remove_duplicate=False))
            old = first.before.buffers
            quiet = {self.number(old[name]): "average" for name in averages}
            labels = [
                quiet | {self.number(x[name]): name for name in restored if x.get(name) is not None}
                for x in (old, now)
            ]
            enter_autocast(stack, first.autocast)
            stack.enter_context(torch.enable_grad())
            self.enough = len(first.saved)
            error = ""
            try:
                self.evaluate(second)
            except EnoughSavedError:
                pass
            except Exception as failed:
                error = f"fails when it is evaluated again: {error_text(failed, 100)}"
            finally:
                self.enough = -1
        second.after = self.moment(second)
        del now
        live = set(self.live.values())
        return Verdict(
            self.changed_by(first, second)
            or self.difference(first, second, labels)
            or error
            or self.written_again(second, labels[1]),
            restored,
            tuple(place for number, place in second.made.items() if number in live),
            tuple(place for place, kept in enumerate(second.saved) if kept() is not None),
            tuple(
                (place, second.dropped.get(number, len(second.made)))
                for number, place in first.made.items()
                if number in before and number not in live
            ),
        )

    def changed_before(self, first: Evaluation) -> str:
        """Describe the argument that changed since the first evaluation, or ""."""
        values = first.given()
        now = state_of_arguments(values, self.number)
        for path, old, new in state_differences(first.before.handed, first.after.handed):
            return handed_text(path, old, new, "{0} {1} passed to it ({2})")
        for path, old, new in state_differences(first.after.handed, now):
            return handed_text(path, old, new, "is passed {1} ({2}) that its caller {0} afterwards")
        for value in first.args:
            if isinstance(value, torch.Tensor):
                number = self.number(value)
                if self.version[number] != first.versions[number] and number not in first.writes:
                    return self.written_text(number, "a tensor argument")
        return ""

    def changed_by(self, first: Evaluation, second: Evaluation) -> str:
        """Describe Python state that the second evaluation finds or leaves changed, or ""."""
        for path, old, new in state_differences(first.before.state, first.after.state):
            if isinstance(old, RandomState):
                return changes(path, old, new)
        for path, old, new in state_differences(second.before.state, second.after.state):
            if not isinstance(old, TensorRef) and not isinstance(new, TensorRef):
                return changes(path, old, new)
        for path, old, new in state_differences(first.before.state, second.before.state):
            if is_number(old) and is_number(new):
                return f"reads {path}, which changes in a step ({shown(old)}, then {shown(new)})"
        return ""

    def difference(
        self, first: Evaluation, second: Evaluation, labels: Sequence[Mapping[int, str]]
    ) -> str:
        """Describe the first difference between the logs of two evaluations, or ""."""
        logs = map(canonical, (first, second), labels)
        for (one, raw), (other, raw_other) in zip(*logs, strict=False):
            if any(isinstance(x, torch.Generator) for x in tree_leaves(raw[1])):
                return "draws from a torch.Generator, whose state checkpoint does not restore"
            if one != other:
                found = state_differences(first.before.state, second.before.state)
                text = self.described(first, raw, raw_other)
                return next((f"{text}: {path} has changed by then" for path, *_ in found), text)
        saves = [len(each.saved) for each in (first, second)]
        if saves[1] < saves[0]:
            return f"saves {saves[0]} tensors, and {saves[1]} when it is evaluated again"
        return self.written_elsewhere(first, labels[0])

    def described(self, first: Evaluation, one: Any, other: Any) -> str:
        """Describe how two evaluations of an operator differ."""
        if one[0] is not other[0]:
            names = [
                "saves a tensor" if each is None else f"evaluates {each}"
                for each in (one[0], other[0])
            ]
            return f"{names[0]} at first, but {names[1]} when it is evaluated again"
        for ref, found in zip(tree_leaves(one[1]), tree_leaves(other[1]), strict=False):
            if isinstance(ref, Ref) and isinstance(found, Ref):
                if ref.number == found.number and ref.number not in first.made:
                    if ref.version != found.version:
                        what = self.storage_text(first, ref.number)
                        if self.written[ref.number] == {first.name}:
                            return f"writes to {what} ({first.writes[ref.number]})"
                        return self.written_text(ref.number, what)
                elif ref.layout == found.layout and ref.number not in first.made:
                    what = self.storage_text(first, ref.number)
                    return f"reads {what} at first, but another tensor when it is evaluated again"
        return f"passes other operands to {one[0] or 'autograd'} when it is evaluated again"

    def written_elsewhere(self, first: Evaluation, labels: Mapping[int, str]) -> str:
        """Describe a parameter or buffer that it reads and other modules write to, or ""."""
        for entry in first.log:
            for number in numbers_in(entry):
                if number in self.names and labels.get(number) != "average":
                    others = self.written.get(number, set()) - {first.name}
                    if others:
                        return self.written_text(number, self.names[number], sorted(others)[0])
        return ""

    def written_again(self, second: Evaluation, labels: Mapping[int, str]) -> str:
        """Describe a write of the second evaluation to memory that is not its own, or ""."""
        for number, operator in second.writes.items():
            if number not in second.made and labels.get(number, "average") == "average":
                return f"writes to {self.storage_text(second, number)} ({operator})"
        return ""

    def storage_text(self, each: Evaluation, number: int) -> str:
        """Describe a storage from a module's point of view."""
        if number in self.names:
            return self.names[number]
        given = {self.number(value) for value in tensor_leaves((each.args, each.kwargs))}
        return "an argument" if number in given else "a tensor from outside"

    def written_text(self, number: int, what: str, where: str = "") -> str:
        """Describe a storage that is written to after it was read."""
        name, operator = self.writer[number]
        by = f" by {where or name}" if where or name else ""
        return f"reads {what}, which is written to{by} ({operator})"


def writes_of(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Return the tensors that an operator writes to, undeclared running averages included."""
    if func in AVERAGING:
        given = arguments_of(func, args, kwargs)
        averages = (given["running_mean"], given["running_var"])
        counts = given["training"] and given["momentum"] != 0
        return [x for x in averages if x is not None and counts]
    if not is_mutable(func):
        return []
    return tensor_leaves(written_by(func, args, kwargs))


def is_number(value: Any) -> bool:
    """Whether a value is a number or text."""
    return isinstance(value, bool | int | float | str)


def changes(path: str, old: Any, new: Any) -> str:
    """Describe the side effect of an evaluation on Python state."""
    if isinstance(old, RandomState):
        return f"draws from {path}, whose state checkpoint does not restore"
    return f"changes {path} each time it is evaluated ({shown(old)}, then {shown(new)})"


def handed_text(path: str, old: Any, new: Any, text: str) -> str:
    """Describe the change of a module's argument."""
    kinds = [str(x).rpartition(" ")[2] for x in (old, new)]
    what = {"elements": "list", "items": "dict"}.get(kinds[0], "object")
    grew = kinds[0] == kinds[1] and what == "list"
    does = "appends to" if grew else "adds to" if what == "dict" else "changes"
    return text.format(does, f"an {what}" if what == "object" else f"a {what}", path)


def shown(value: Any) -> str:
    """Return the text of a value, shortened for a reason."""
    text = str(value)
    return text if len(text) <= LIMIT else f"{text[:LIMIT]}…"


def numbers_in(entry: Any) -> set[int]:
    """Return the storage numbers in a log entry."""
    return {ref.number for ref in tree_leaves(entry[1]) if isinstance(ref, Ref)}


def averages_only(entry: Any) -> bool:
    """Whether an operator uses a norm's buffers as running averages only, in training."""
    func, read = entry
    if func is None:
        return True  # saved by a batch norm for its backward, which does not read it either
    if func in AVERAGING:
        return bool(arguments_of(func, *read)["training"] == "True")
    return func is torch.ops.aten.add_.Tensor  # the number of batches


def canonical(made: Evaluation, labels: Mapping[int, str]) -> Iterator[tuple[Any, Any]]:
    """Yield what equal evaluations have in common, of each log entry, and the entry itself.

    An update of a running average need not be repeated.
    """

    def is_average(value: Any) -> bool:
        return isinstance(value, Ref) and labels.get(value.number) == "average"

    def common(value: Any) -> Any:
        if not isinstance(value, Ref):
            return value
        if value.number in made.made:
            return "made", made.made[value.number], value.version, value.layout
        if value.number not in labels:
            return value
        version = value.version - made.versions[value.number]
        return labels[value.number], None if is_average(value) else version, value.layout

    for entry in made.log:
        func, read = entry
        if func in AVERAGING:
            read = arguments_of(func, *read)
            if is_average(read["running_mean"]):
                read["momentum"] = None
        elif func is torch.ops.aten.add_.Tensor and is_average(read[0][0]):
            continue
        yield (func, tree_map(common, read)), entry


def autocast_state() -> tuple[Any, ...]:
    """Return whether autocast is enabled on CPU and GPU, and its dtypes."""
    return tuple(
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    )


def enter_autocast(stack: ExitStack, state: tuple[Any, ...]) -> None:
    """Enter an earlier autocast state, with an empty cast cache."""
    torch.clear_autocast_cache()
    for was, (kind, on, dtype) in zip(state, autocast_state(), strict=True):
        if was != (kind, on, dtype):
            stack.enter_context(torch.autocast(kind, dtype=was[2], enabled=was[1]))
