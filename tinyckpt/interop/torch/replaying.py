"""Whether modules compute the same when ``checkpoint`` evaluates them again: tried on FakeTensors.

In: a model, arguments, modules. Out: for each module a ``Verdict``: why it must not be wrapped, or
which of its buffers have to be put back for its second evaluation.

A forward pass is made, and then each module is evaluated again as ``checkpoint`` would: with the
same objects for arguments, with the Python state as it is by then, until all is saved that was
saved the first time. What it evaluates, reads and saves has to be the same, from storages whose
contents are the same; and it has to leave nothing behind that a plain step would not. What a module
reads that changes with the numbers in tensors, or after many steps only, is not seen.
"""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tinyckpt.interop.torch import restoring
from tinyckpt.interop.torch.capture import (
    AVERAGING,
    DispatchMode,
    FakeMode,
    arguments_of,
    is_mutable,
    placed,
    storage_of,
    tree_leaves,
    tree_map,
    written_by,
)
from tinyckpt.interop.torch.checks import captured
from tinyckpt.interop.torch.eager import forwards, on_fakes
from tinyckpt.interop.torch.states import (
    HeldTensor,
    RandomState,
    State,
    changed,
    state_handed,
    state_of,
)

LIMIT = 40  # characters of a value in a reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of evaluating a module again.

    Attributes:
        reason: why it must not be wrapped; empty if it may be.
        restored: names in it of buffers to put back for its second evaluation.
        kept: which of the storages that it makes are still there after its second evaluation.
        saves: which of the values that it saves are so.
        dropped: which of the storages that its first evaluation made and left are gone after the
            second, each with the number of storages that this had made by then.
    """

    reason: str = ""
    restored: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    saves: tuple[int, ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()


class EnoughSavedError(Exception):
    """Ends a second evaluation, as ``checkpoint`` does."""


@dataclass(slots=True, eq=False)
class Evaluation:
    """One evaluation of a module.

    Attributes:
        number: that of the next storage when it began.
        log: what was evaluated: operators with what they read, and what autograd saved.
        saves, saved: how often autograd saved, and what.
        made: places, in order, of the storages that it made, by number.
        dropped: by numbers of storages that went during it, how many it had made by then.
        writes: by number of a storage the operator that wrote to it last.
        versions: of storages when it began, where they were written to before.
        begin, end: the state of Python before and after it.
        handed: what it was handed, as it was before.
    """

    name: str
    module: nn.Module
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    log: list[Any] = field(default_factory=list)
    saves: int = 0
    saved: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    writes: dict[int, str] = field(default_factory=dict)
    versions: Counter[int] = field(default_factory=Counter)
    begin: State = field(default_factory=dict)
    end: State = field(default_factory=dict)
    handed: State = field(default_factory=dict)
    handed_after: State = field(default_factory=dict)
    slots: dict[str, torch.Tensor | None] = field(default_factory=dict)
    slots_after: dict[str, torch.Tensor | None] = field(default_factory=dict)
    copies: dict[Any, torch.Tensor | None] = field(default_factory=dict)
    grad: bool = True
    autocast: tuple[Any, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return what it is handed, by the names of its parameters."""
        try:
            bound = inspect.signature(self.forward).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return {f"argument {place}": x for place, x in enumerate(self.args)} | self.kwargs
        return dict(bound.arguments)


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor that an operator reads: storage, how often it was written to, and layout."""

    number: int
    version: int
    layout: tuple[Any, ...]


def verdicts(
    model: nn.Module, args: Sequence[Any], watched: Mapping[str, nn.Module]
) -> dict[str, Verdict]:
    """Return for each of some modules what comes of evaluating it again.

    Args:
        model, args: as ``record`` takes them.
        watched: modules that are called once in a step, by name.
    """
    if not watched:
        return {}
    name = type(model).__name__
    with captured(name, model), torch.random.fork_rng(), placed(model, args) as (args, mode):
        return Replays(mode).verdicts(model, args, watched)


class Replays(DispatchMode):  # type: ignore[misc]
    """Makes a forward pass, and evaluates modules again.

    Attributes:
        live: the numbers of storages by their addresses.
        version: how often each storage was written to, by number.
        writer: which module wrote to it last, and with which operator.
        names: what storages of parameters and buffers are called.
        running: the evaluation that is being made.
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

    def verdicts(
        self, model: nn.Module, args: Sequence[Any], watched: Mapping[str, nn.Module]
    ) -> dict[str, Verdict]:
        """Return for each module what comes of evaluating it again."""
        with on_fakes(model, args, self.mode) as given, self:
            for kind, named in (
                ("parameter", model.named_parameters()), ("buffer", model.named_buffers())
            ):  # fmt: skip
                for name, value in named:
                    self.names[self.number(value)] = f"the {kind} {name}"

            def call(name: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
                return self.first(Evaluation(name, watched[name], forward, args, kwargs))

            torch.clear_autocast_cache()
            with forwards(watched, call):
                model(*given)
            found = {}
            while self.evaluations:  # each goes with its arguments, and their graph with them
                each = self.evaluations.pop()
                found[each.name] = self.judged(each)
        return {name: found.get(name, Verdict()) for name in watched}

    # First evaluations ------------------------------------------------------------------------

    def first(self, made: Evaluation) -> Any:
        """Make a first evaluation."""
        if self.running is not None:  # it stands in another one, or in itself
            return made.forward(*made.args, **made.kwargs)
        self.evaluations.append(made)
        made.slots = dict(made.module.named_buffers(remove_duplicate=False))
        with self.unseen():
            made.copies = restoring.copies_of(
                {restoring.slot_of(made.module, name): x for name, x in made.slots.items()}
            )
        made.begin, made.handed = self.states(made)
        made.autocast, made.grad = autocast_state(), torch.is_grad_enabled()
        result = self.evaluate(made)
        made.end, made.handed_after = self.states(made)
        made.slots_after = dict(made.module.named_buffers(remove_duplicate=False))
        return result

    def states(self, made: Evaluation) -> tuple[State, State]:
        """Return the state of Python that an evaluation may read, and what it is handed."""
        return (
            state_of(made.module, made.forward, self.number),
            state_handed(made.given(), self.number),
        )

    def evaluate(self, made: Evaluation) -> Any:
        """Evaluate a module, and note what it does."""
        made.versions = Counter(self.version)
        self.running = made
        try:
            with saved_tensors_hooks(self.save, lambda value: value):
                return made.forward(*made.args, **made.kwargs)
        finally:
            self.running = None

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """While this is active, operators are not noted."""
        before, self.off = self.off, True
        try:
            yield
        finally:
            self.off = before

    # What happens -----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim" or self.off:
            return func(*args, **kwargs)
        read = tree_map(self.ref, (args, kwargs))
        result = func(*args, **kwargs)
        made = self.running
        for value in tree_leaves(result):
            known = self.count
            if is_tensor(value) and self.number(value) == known and made is not None:
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
        """Return what tells a tensor, or any other argument of an operator."""
        if isinstance(value, torch.Tensor):
            number = self.number(value)
            layout = tuple(value.shape), value.stride(), value.storage_offset(), value.dtype
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
        """Note that a storage is gone."""
        number = self.live.pop(key, None)
        if self.running is not None and number is not None:
            self.running.dropped[number] = len(self.running.made)

    def save(self, value: torch.Tensor) -> torch.Tensor:
        """Stand in for autograd's saving of a value."""
        made = self.running
        with self.unseen():
            kept = value.detach()
        if made is not None:
            made.log.append((None, self.ref(kept)))
            made.saves += 1
            made.saved.append(weakref.ref(kept))
            if made.saves == self.enough:
                raise EnoughSavedError
        return kept

    # Second evaluations -----------------------------------------------------------------------

    def judged(self, first: Evaluation) -> Verdict:
        """Return what comes of evaluating a module again."""
        if first.saves == 0 or not first.grad:  # then it is never evaluated again
            return Verdict()
        own = self.written_buffers(first)
        averages = self.averages(first, own)
        restored = tuple(name for name in own if name not in averages)
        found = self.again(first, restored, averages)
        if found.reason and averages:
            other = self.again(first, own, ())
            return found if other.reason else other
        return found

    def written_buffers(self, first: Evaluation) -> tuple[str, ...]:
        """Return the buffers of a module that its evaluation wrote to, or assigned anew."""
        return tuple(
            name
            for name, value in first.slots.items()
            if first.slots_after.get(name) is not value
            or (value is not None and self.number(value) in first.writes)
        )

    def averages(self, first: Evaluation, written: Sequence[str]) -> tuple[str, ...]:
        """Return those of some buffers that are running averages, which only norms read."""
        norms = set(restoring.norms_in(first.module))
        found = {
            name: self.number(value)
            for name in written
            if restoring.slot_of(first.module, name)[0] in norms
            and (value := first.slots[name]) is not None
            and first.slots_after.get(name) is value
        }
        for entry in first.log:
            numbers = numbers_in(entry)
            if not averages_only(entry):
                found = {name: number for name, number in found.items() if number not in numbers}
        owners = {restoring.slot_of(first.module, name)[0] for name in written if name not in found}
        return tuple(
            name for name in found if restoring.slot_of(first.module, name)[0] not in owners
        )

    def again(
        self, first: Evaluation, restored: tuple[str, ...], averages: Sequence[str]
    ) -> Verdict:
        """Evaluate a module again, and return what comes of it."""
        reason = self.changed_before(first)
        if reason:
            return Verdict(reason)
        second = Evaluation(first.name, first.module, first.forward, first.args, first.kwargs)
        before = set(self.live.values())
        second.begin, second.handed = self.states(second)
        with ExitStack() as stack:
            with self.unseen():
                kept, contexts = restoring.contexts(first.module, restored)
                if isinstance(kept, restoring.Kept):
                    kept.copies = {slot: first.copies[slot] for slot in kept.slots}
                stack.enter_context(contexts)
            now = dict(first.module.named_buffers(remove_duplicate=False))
            quiet = {self.number(first.slots[name]): "average" for name in averages}
            labels = [
                quiet | {self.number(x[name]): name for name in restored if x.get(name) is not None}
                for x in (first.slots, now)
            ]
            enter_autocast(stack, first.autocast)
            stack.enter_context(torch.enable_grad())
            self.enough = first.saves
            error = ""
            try:
                self.evaluate(second)
            except EnoughSavedError:
                pass
            except Exception as failed:
                text = " ".join(str(failed).split())[:100]
                error = f"fails when it is evaluated again: {type(failed).__name__}: {text}"
            finally:
                self.enough = -1
        second.end, second.handed_after = self.states(second)
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
        """Say which argument is not what it was, since the first evaluation."""
        values = first.given()
        now = state_handed(values, self.number)
        for path, old, new in changed(first.handed, first.handed_after):
            return handed_text(path, old, new, "{0} {1} that it is handed ({2})")
        for path, old, new in changed(first.handed_after, now):
            return handed_text(path, old, new, "is handed {1} ({2}) that its caller {0} afterwards")
        for value in first.args:
            if isinstance(value, torch.Tensor):
                number = self.number(value)
                if self.version[number] != first.versions[number] and number not in first.writes:
                    return self.written_text(number, "a tensor that it is handed")
        return ""

    def changed_by(self, first: Evaluation, second: Evaluation) -> str:
        """Say which Python state a second evaluation finds, or leaves, that is not as it was."""
        for path, old, new in changed(first.begin, first.end):
            if isinstance(old, RandomState):
                return changes(path, old, new)
        for path, old, new in changed(second.begin, second.end):
            if not isinstance(old, HeldTensor) and not isinstance(new, HeldTensor):
                return changes(path, old, new)
        for path, old, new in changed(first.begin, second.begin):
            if is_number(old) and is_number(new):
                return f"reads {path}, which changes in a step ({shown(old)}, then {shown(new)})"
        return ""

    def difference(
        self, first: Evaluation, second: Evaluation, labels: Sequence[Mapping[int, str]]
    ) -> str:
        """Say how a second evaluation differs from the first, as far as it went."""
        logs = [
            [entry for raw in each.log if (entry := Canonical(each, own).entry(raw)) is not None]
            for each, own in zip((first, second), labels, strict=True)
        ]
        raws = [
            [raw for raw in each.log if Canonical(each, own).entry(raw) is not None]
            for each, own in zip((first, second), labels, strict=True)
        ]
        for (one, other), (raw, raw_other) in zip(
            zip(*logs, strict=False), zip(*raws, strict=False), strict=True
        ):
            if any(isinstance(x, torch.Generator) for x in tree_leaves(raw[1])):
                return "draws from a torch.Generator, whose state checkpoint does not set back"
            if one != other:
                found = changed(first.begin, second.begin)
                text = self.described(first, raw, raw_other)
                return next((f"{text}: {path} is another one then" for path, *_ in found), text)
        if second.saves < first.saves:
            return f"saves {first.saves} tensors, and {second.saves} when it is evaluated again"
        return self.written_elsewhere(first, labels[0])

    def described(self, first: Evaluation, one: Any, other: Any) -> str:
        """Say how two evaluations of an operator differ."""
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
                        what = self.what_is(first, ref.number)
                        if self.written[ref.number] == {first.name}:
                            return f"writes to {what} ({first.writes[ref.number]})"
                        return self.written_text(ref.number, what)
                elif ref.layout == found.layout and ref.number not in first.made:
                    what = self.what_is(first, ref.number)
                    return f"reads {what} at first, but another tensor when it is evaluated again"
        return f"gives {one[0] or 'autograd'} something else when it is evaluated again"

    def written_elsewhere(self, first: Evaluation, labels: Mapping[int, str]) -> str:
        """Say which parameter or buffer it reads that others write to in the same step."""
        for entry in first.log:
            for number in numbers_in(entry):
                if number in self.names and labels.get(number) != "average":
                    others = self.written.get(number, set()) - {first.name}
                    if others:
                        return self.written_text(number, self.names[number], sorted(others)[0])
        return ""

    def written_again(self, second: Evaluation, labels: Mapping[int, str]) -> str:
        """Say what a second evaluation writes to that is not its own."""
        for number, operator in second.writes.items():
            if number not in second.made and labels.get(number, "average") == "average":
                return f"writes to {self.what_is(second, number)} ({operator})"
        return ""

    def what_is(self, each: Evaluation, number: int) -> str:
        """Say what a storage is to a module."""
        if number in self.names:
            return self.names[number]
        if number in {
            self.number(x) for x in tree_leaves((each.args, each.kwargs)) if is_tensor(x)
        }:
            return "what it is given"
        return "a tensor that it did not make"

    def written_text(self, number: int, what: str, where: str = "") -> str:
        """Say that a storage is written to after it was read."""
        name, operator = self.writer[number]
        by = f" by {where or name}" if where or name else ""
        return f"reads {what}, which is written to{by} ({operator})"


def writes_of(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Return the tensors that an operator writes to, of what it is given."""
    if func in AVERAGING:
        given = arguments_of(func, args, kwargs)
        averages = (given["running_mean"], given["running_var"])
        counts = given["training"] and given["momentum"] != 0
        return [x for x in averages if x is not None and counts]
    if not is_mutable(func):
        return []
    return [x for x in tree_leaves(written_by(func, args, kwargs)) if is_tensor(x)]


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, torch.Tensor)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or text."""
    return isinstance(value, bool | int | float | str)


def changes(path: str, old: Any, new: Any) -> str:
    """Say that a module changes some state when it is evaluated again."""
    if isinstance(old, RandomState):
        return f"draws from {path}, whose state checkpoint does not set back"
    return f"changes {path} each time it is evaluated ({shown(old)}, then {shown(new)})"


def handed_text(path: str, old: Any, new: Any, text: str) -> str:
    """Say that something is changed that a module was handed."""
    kinds = [str(x).rpartition(" ")[2] for x in (old, new)]
    what = {"elements": "list", "items": "dict"}.get(kinds[0], "object")
    grew = kinds[0] == kinds[1] and what == "list"
    does = "appends to" if grew else "adds to" if what == "dict" else "changes"
    return text.format(does, f"an {what}" if what == "object" else f"a {what}", path)


def shown(value: Any) -> str:
    """Return a value as reasons show it."""
    text = str(value)
    return text if len(text) <= LIMIT else f"{text[:LIMIT]}…"


def numbers_in(entry: Any) -> set[int]:
    """Return the numbers of storages in an entry of a log."""
    return {ref.number for ref in tree_leaves(entry[1]) if isinstance(ref, Ref)}


def averages_only(entry: Any) -> bool:
    """Whether an operator treats buffers of a norm as running averages, in training."""
    func, read = entry
    if func is None:
        return True  # what a batch norm saves for its backward, which does not read it either
    if func in AVERAGING:
        return bool(arguments_of(func, *read)["training"] == "True")
    return func is torch.ops.aten.add_.Tensor  # the number of batches


class Canonical:
    """Names tensors in a log independently of the evaluation."""

    def __init__(self, made: Evaluation, labels: Mapping[int, str]) -> None:
        self.made, self.labels = made, labels

    def entry(self, raw: Any) -> Any:
        """Return an entry of a log; None for one that need not be repeated."""
        func, read = raw
        if func in AVERAGING:
            given = arguments_of(func, *read)
            if self.is_average(given["running_mean"]):
                given["momentum"] = None
            read = given
        elif func is torch.ops.aten.add_.Tensor and self.is_average(read[0][0]):
            return None
        return func, tree_map(self.ref, read)

    def is_average(self, value: Any) -> bool:
        """Whether a tensor is a running average."""
        return isinstance(value, Ref) and self.labels.get(value.number) == "average"

    def ref(self, value: Any) -> Any:
        """Return what tells a tensor."""
        if not isinstance(value, Ref):
            return value
        made = self.made
        if value.number in made.made:
            return "made", made.made[value.number], value.version, value.layout
        if value.number in self.labels:
            label = self.labels[value.number]
            version = value.version - made.versions[value.number]
            return label, None if label == "average" else version, value.layout
        return value


def autocast_state() -> tuple[Any, ...]:
    """Return whether operators on a CPU and a GPU are cast, and to what."""
    return tuple(
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    )


def enter_autocast(stack: ExitStack, state: tuple[Any, ...]) -> None:
    """Cast what operators get as it was, with no cast in the cache."""
    torch.clear_autocast_cache()
    for was, (kind, on, dtype) in zip(state, autocast_state(), strict=True):
        if was != (kind, on, dtype):
            stack.enter_context(torch.autocast(kind, dtype=was[2], enabled=was[1]))
