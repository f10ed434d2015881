"""Snapshot and rollback of Python state: everything reachable from a model, restored after a call.

A forward that runs on FakeTensors has the side effects of any forward: attributes, lists, caches,
counters. None of them may persist. ``ObjectState`` snapshots all objects reachable from a model and
its arguments, by identity, so that an object under several names is one: attributes of modules, of
their classes and of plain objects; lists, dicts, sets and arrays in any nesting; closures and
globals of methods and hooks; random generators. Tensor data are not copied: operators run on
FakeTensors instead. NumPy arrays are copied up to ``COPIED`` bytes; further ones are read-only
until the rollback, in the outermost call.

Side effects elsewhere persist, such as files, or attributes of imported modules.
"""

from __future__ import annotations

import gc
import pickle
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, lru_cache, partial, wraps
from operator import itemgetter
from threading import RLock
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import torch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
ATOMS = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size}
# Other objects of classes of these packages are opaque: locks, threads, handles.
FOREIGN = (sys.stdlib_module_names - {"collections", "types"}) | {"numpy", "torch", "tinyckpt"}
# An object with an attribute from one of these, such as a lock, may be shared, and is left alone.
SHARED = {"_queue", "_thread", "asyncio", "concurrent", "multiprocessing", "queue", "threading"}
LOCK = RLock()  # held by the thread whose call writes to models
ABSENT = object()  # sentinel for a missing attribute
CELL: Any = vars(CellType)["cell_contents"]  # a closure cell's value, as a slot
CACHED = type(lru_cache(len))

GetterAndSetter = tuple[Callable[..., Any], Callable[..., Any]]  # (get, set) of a state
GENERATORS: dict[type, GetterAndSetter] = {
    random.Random: (random.Random.getstate, random.Random.setstate),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
}
GLOBAL: dict[str, GetterAndSetter] = {
    "torch": (torch.get_rng_state, torch.set_rng_state),
    "random": (random.getstate, random.setstate),
    "numpy.random": (np.random.get_state, np.random.set_state),
    "grad mode": (
        torch.is_grad_enabled,
        lambda on: on == torch.is_grad_enabled() or torch.set_grad_enabled(on),
    ),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
}
ON_GPU: dict[str, GetterAndSetter] = {
    "torch.cuda": (torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
}
COPIED = 16 * 2**20  # the most bytes of arrays copied; further arrays are made read-only

Put = Callable[[], Iterable[Any]]  # restores an object, and returns its changed parts
Values = dict[str, Any]  # attributes of an object, or globals of a module


def preserving(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to restore its arguments (a model) and random generators afterwards.

    They are restored whether it returns or raises; a KeyboardInterrupt during the rollback is
    raised only after the rollback is complete. One thread at a time: hooks and modes are global to
    the process, and a model may be shared.
    """

    @wraps(call)
    def preserved(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with LOCK, heap_frozen():
            state, done, interrupt = ObjectState(args, kwargs), False, None
            try:
                state.protect()
                return call(*args, **kwargs)
            finally:
                while not done:
                    try:
                        state.restore()
                        done = True
                    except KeyboardInterrupt as error:
                        interrupt = error
                if interrupt is not None:
                    raise interrupt

    return preserved


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Exempt all objects that exist from garbage collection in this context.

    A large package leaves a million after its import, and a full collection visits them all, which
    takes half a second; what a snapshot and a recording allocate would set off several. Objects
    made in this context are collected as ever.
    """
    if gc.get_freeze_count():  # by an outer call, or by the caller, whose freeze it is to end
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class AttributesReplaced(AbstractContextManager[None]):
    """Context in which attributes, by owner and name, have other values.

    It is no generator, whose end would also run when it is collected: after an interrupt that may
    be later than a rollback, and would put a stand-in back into a model.

    >>> with AttributesReplaced({(torch, "equal"): torch.allclose}):
    ...     torch.equal(torch.tensor(1.0), torch.tensor(1.000001))
    True
    """

    def __init__(self, values: Mapping[tuple[Any, str], Any]) -> None:
        self.values = values
        self.before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        self.before = [(owner, name, getattr(owner, name)) for owner, name in self.values]
        try:
            for (owner, name), value in self.values.items():
                setattr(owner, name, value)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        for owner, name, value in self.before:
            setattr(owner, name, value)


class ObjectState:
    """Snapshot of some objects and of everything reachable from them.

    Attributes:
        puts: for every mutable object, it and a function that restores it.
        places: by a tensor's id, setters of the list and dict entries that refer to it.
        others: by a tensor's id, its replacement, weakly referenced.
        seen: the objects by id, kept alive so that no id is reused.
        origins: by an object's id, the object in which it was found first.
        copied: bytes of arrays copied so far.
        large: the arrays too large to copy, each with its depth as a view.
        changes: differences found at the rollback: objects, and the changed part of each.
        takers, slots: what snapshots objects, and the slots that they have, by type.
    """

    def __init__(self, *roots: Any) -> None:
        self.puts: list[tuple[Any, Put]] = []
        self.places: dict[int, list[Callable[[Any], Any]]] = {}
        self.others: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()
        self.seen: dict[int, Any] = {}
        self.origins: dict[int, Any] = {}
        self.copied = 0
        self.large: list[tuple[int, Any]] = []
        self.changes: dict[tuple[int, Any], tuple[Any, Any]] = {}
        states = GLOBAL | (ON_GPU if torch.cuda.is_initialized() else {})
        for name, (get, put) in states.items():
            self.puts.append((name, partial(put_state, get, put, get())))
        self.takers: dict[type, Taker] = {}
        self.slots: dict[type, list[Any]] = {}
        left = deque((None, root) for root in roots)
        while left:
            origin, found = left.popleft()
            if id(found) not in self.seen:
                self.seen[id(found)], self.origins[id(found)] = found, origin
                for part in self.take(found):
                    if type(part) not in ATOMS and id(part) not in self.seen:
                        left.append((found, part))

    def protect(self) -> None:
        """Make the arrays that are too large to copy read-only until the rollback."""
        for _, array in self.large:
            array.flags.writeable = False

    def restore(self) -> None:
        """Roll everything back, recording what had changed.

        This is idempotent: it may be interrupted and repeated.
        """
        for _, array in sorted(self.large, key=itemgetter(0)):  # a view after its base
            array.flags.writeable = True
        for found, put in self.puts:
            for what in put():
                self.changes[id(found), str(what)] = found, what

    def replace(self, others: Mapping[int, torch.Tensor]) -> None:
        """Replace tensors, given by id, in all lists and dicts that refer to them."""
        self.others.update(others)
        for key, other in others.items():
            for place in self.places.get(key, ()):
                place(other)

    @contextmanager
    def replaced(self, others: Mapping[int, torch.Tensor]) -> Iterator[ObjectState]:
        """Replace tensors, given by id, in this context, and roll everything back after it.

        Every name of such a tensor is replaced. Afterwards ``changes`` are what had changed.
        """
        try:
            self.replace(others)
            yield self
        finally:
            self.restore()

    def take(self, found: Any) -> Iterable[Any]:
        """Snapshot an object; return the objects it refers to."""
        kind = type(found)
        if kind not in self.takers:
            self.takers[kind] = taker_of(kind)
        return self.takers[kind](self, found)

    def take_dict(self, found: Any, base: Any) -> list[Any]:
        """Snapshot the items of a dict; return keys and values."""
        items = list(base.items(found))
        self.puts.append((found, partial(put_items, base, found, items, self.others)))
        self.note_places(found, base, items)
        return [part for item in items for part in item]

    def take_members(self, found: Any, base: Any) -> list[Any]:
        """Snapshot the members of a list, deque or set; return them."""
        members = list(base.__iter__(found))
        self.puts.append((found, partial(put_members, base, found, members, self.others)))
        if base is not set:
            self.note_places(found, base, enumerate(members))
        return members

    def take_values(
        self, found: Any, read: Callable[[], Values], write: Callable[[str, Any], Any]
    ) -> Values:
        """Snapshot what a function reads of an object, by names; return it."""
        values = read()
        self.puts.append((found, partial(put_values, read, write, values)))
        return values

    def take_tensor(self, found: torch.Tensor) -> tuple[()]:
        """Snapshot what a tensor keeps beside its data: only leaves keep a gradient."""

        def read() -> Values:
            grad = found.grad if found.is_leaf else None
            return {"requires_grad": found.requires_grad, "grad": grad}

        if found.is_leaf:
            self.take_values(found, read, partial(setattr, found))
        return ()

    def take_generator(self, found: Any) -> tuple[()]:
        """Snapshot the state of a generator of random numbers."""
        get, put = next(own for kind, own in GENERATORS.items() if isinstance(found, kind))
        own = partial(get, found), partial(put, found)
        self.puts.append((found, partial(put_state, *own, get(found))))
        return ()

    def note_places(self, found: Any, base: Any, items: Iterable[tuple[Any, Any]]) -> None:
        """Record the entries of an object that are tensors."""
        for key, value in items:
            if isinstance(value, torch.Tensor):
                self.places.setdefault(id(value), []).append(partial(base.__setitem__, found, key))

    def take_array(self, found: Any) -> list[Any]:
        """Copy an array, if the limit allows; return its base if it is a view."""
        if found.flags.writeable:
            self.copied += found.nbytes
            if self.copied <= COPIED:
                self.puts.append((found, partial(put_array, found, found.copy())))
            else:
                self.copied -= found.nbytes
                self.large.append((view_depth(found), found))
        return [] if found.base is None else [found.base]

    def take_attributes(self, found: Any) -> list[Any]:
        """Snapshot the attributes of an object, in its dict, its slots, and its class."""
        kind = type(found)
        own: dict[str, Any] = {}
        with suppress(AttributeError):  # a class with slots only
            own = object.__getattribute__(found, "__dict__")
        if not issubclass(kind, torch.nn.Module) and any(
            package_of(type(value)) in SHARED for value in own.values()
        ):
            return []
        if kind not in self.slots:
            self.slots[kind] = [
                member
                for base in kind.__mro__
                if not is_foreign(base)
                for member in vars(base).values()
                if isinstance(member, MemberDescriptorType)
            ]
        return [kind, own, *(self.take_slot(member, found) for member in self.slots[kind])]

    def take_slot(self, member: Any, owner: Any) -> Any:
        """Snapshot a slot of an object, or a closure cell; return its value."""
        name = "" if member is CELL else member.__name__

        def read() -> Values:
            with suppress(AttributeError, ValueError):  # empty
                return {name: member.__get__(owner)}
            return {}

        def write(_: str, value: Any) -> None:
            if value is ABSENT:
                member.__delete__(owner)
            else:
                member.__set__(owner, value)

        return self.take_values(owner, read, write).get(name, ABSENT)

    def take_class(self, found: Any) -> list[Any]:
        """Snapshot the attributes of a class, unless a foreign package defines it; bases follow."""
        if is_foreign(found):
            return [*found.__bases__]

        def read() -> Values:
            return {name: value for name, value in vars(found).items() if name[:2] != "__"}

        def write(name: str, value: Any) -> None:
            if value is ABSENT:
                type.__delattr__(found, name)
            else:
                type.__setattr__(found, name, value)

        self.take_values(found, read, write)
        return [*found.__bases__, *vars(found).values()]

    def take_code(self, found: Any) -> list[Any]:
        """Snapshot a function's closure and the globals that it names; return their values."""
        if isinstance(found, MethodType):
            return [found.__self__, found.__func__]
        if isinstance(found, partial):
            return [found.func, found.args, found.keywords]
        if isinstance(found, staticmethod | classmethod):
            return [found.__func__]
        if isinstance(found, property):
            return [found.fget]
        if isinstance(found, cached_property):
            return [found.func]
        if isinstance(found, CACHED):
            self.puts.append((found, partial(put_cache, found, found.cache_info().misses)))
            return [found.__wrapped__]
        # An iterator, whose position cannot be read: always reported as changed.
        if hasattr(type(found), "__next__"):
            self.puts.append((found, lambda: ("",)))
        if not isinstance(found, FunctionType) or is_foreign(found):
            return []
        own = found.__globals__
        refers: list[Any] = [found.__defaults__, found.__kwdefaults__, vars(found)]
        for cell in found.__closure__ or ():
            self.seen[id(cell)] = cell
            self.origins.setdefault(id(cell), found)
            refers.append(self.take_slot(CELL, cell))
        names = names_in(found.__code__) & own.keys()
        values = self.take_values(
            found, lambda: {name: own.get(name, ABSENT) for name in names}, own.__setitem__
        )
        return [*refers, *values.values()]


Taker = Callable[[ObjectState, Any], Iterable[Any]]
# What snapshots objects, by the first of these classes that theirs is, or is derived from.
TAKERS: tuple[tuple[type, Taker], ...] = (
    (OrderedDict, partial(ObjectState.take_dict, base=OrderedDict)),
    (dict, partial(ObjectState.take_dict, base=dict)),
    (deque, partial(ObjectState.take_members, base=deque)),
    (list, partial(ObjectState.take_members, base=list)),
    (set, partial(ObjectState.take_members, base=set)),
    (tuple, lambda state, found: list(tuple.__iter__(found))),
    (frozenset, lambda state, found: list(frozenset.__iter__(found))),
    (torch.Tensor, ObjectState.take_tensor),
    (np.ndarray, ObjectState.take_array),
    *((generator, ObjectState.take_generator) for generator in GENERATORS),
    (type, ObjectState.take_class),
    (ModuleType, lambda state, found: ()),
    (torch.nn.Module, ObjectState.take_attributes),
)


def taker_of(kind: type) -> Taker:
    """Return what snapshots objects of a type; files mapped to memory are no arrays."""
    for base, taker in TAKERS:
        if issubclass(kind, base) and not issubclass(kind, np.memmap):
            return taker
    return ObjectState.take_code if is_foreign(kind) else ObjectState.take_attributes


def is_foreign(made: Any) -> bool:
    """Whether a class or function is defined in a package that snapshots do not enter."""
    return package_of(made) in FOREIGN


def package_of(made: Any) -> str:
    """Return the package that defines a class or function; "builtins" if it does not say."""
    module = made.__module__
    return module.partition(".")[0] if isinstance(module, str) else "builtins"


def names_in(code: CodeType) -> set[str]:
    """Return the global and attribute names in a code object, nested functions included."""
    inner = [names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


def view_depth(array: Any) -> int:
    """Return the depth of an array as a view: the number of arrays below it."""
    count = 0
    while isinstance(array := array.base, np.ndarray):
        count += 1
    return count


# Rollback ----------------------------------------------------------------------------------------
# Unchanged state is not written: other threads may be reading it. Each returns the changed parts.


def put_items(
    base: Any, found: Any, items: list[tuple[Any, Any]], others: Mapping[int, Any]
) -> list[Any]:
    """Restore the items of a dict; replaced tensors do not count as changes."""
    now = list(base.items(found))
    if len(now) == len(items) and all(
        key is other and value is another
        for (key, value), (other, another) in zip(now, items, strict=True)
    ):
        return []
    base.clear(found)
    for key, value in items:
        base.__setitem__(found, key, value)
    # By ids: keys may define __eq__.
    before, after = ({id(key): (key, value) for key, value in part} for part in (items, now))
    changed = [
        key
        for which, (key, value) in {**after, **before}.items()
        if which not in after
        or which not in before
        or after[which][1] is not others.get(id(value), value)
    ]
    return changed or ([""] if list(before) != list(after) else [])


def put_members(
    base: Any, found: Any, members: list[Any], others: Mapping[int, Any]
) -> Iterable[Any]:
    """Restore the members of a list, deque or set; replaced tensors do not count as changes."""
    kind: Any = set if base is set else list  # a set has no order
    now = kind(map(id, base.__iter__(found)))
    if now == kind(map(id, members)):
        return ()
    base.clear(found)
    (base.update if base is set else base.extend)(found, members)
    return () if now == kind(id(others.get(id(each), each)) for each in members) else ("",)


def put_values(
    read: Callable[[], Values], write: Callable[[str, Any], Any], before: Values
) -> list[str]:
    """Restore what differs now of what a function reads by names; return these names."""
    now = read()
    changed = sorted(
        name
        for name in now.keys() | before.keys()
        if now.get(name, ABSENT) is not before.get(name, ABSENT)
    )
    for name in changed:
        write(name, before.get(name, ABSENT))
    return changed


def put_array(found: Any, copy: Any) -> Iterable[str]:
    """Restore the elements of an array."""
    if found.tobytes() == copy.tobytes():
        return ()
    np.copyto(found, copy)
    return ("",)


def put_state(get: Callable[[], Any], put: Callable[[Any], Any], before: Any) -> Iterable[str]:
    """Restore a global or generator state; PyTorch's are not compared."""
    tensors = isinstance(before, torch.Tensor | list)
    changed = not tensors and pickle.dumps(get()) != pickle.dumps(before)
    put(before)
    return ("",) if changed else ()


def put_cache(found: Any, misses: int) -> Iterable[str]:
    """Clear a function's cache if it has more entries than before."""
    if found.cache_info().misses == misses:
        return ()
    found.cache_clear()
    return ("",)
