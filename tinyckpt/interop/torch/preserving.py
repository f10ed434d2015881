"""A model's state as Python holds it: taken before a call, put back after it, however it ends.

A forward that runs on FakeTensors writes what forwards write: attributes, lists, caches, counters.
None of that may stay. ``State`` takes all that can be reached from a model and its arguments, by
identity, so that an object under several names is one: attributes of modules, of their classes and
of plain objects; lists, dicts, sets and arrays in any nesting; what methods and hooks close over,
and the globals that they name; generators of random numbers. Numbers in tensors are not copied:
operators run on FakeTensors, which are others.

What a forward writes elsewhere stays, such as files, or attributes of imported modules.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache, partial, wraps
from threading import RLock
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
ATOMS = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size}
# Objects of other classes of these packages are not looked into: locks, threads, handles.
FOREIGN = (sys.stdlib_module_names - {"collections", "types"}) | {"numpy", "torch", "tinyckpt"}
# An object that has one of these, such as a lock, may be written to by others meanwhile, and stays.
SHARED = {"_queue", "_thread", "asyncio", "concurrent", "multiprocessing", "queue", "threading"}
ALONE = RLock()  # of the thread whose call writes to models
ABSENT = object()  # in the place of an attribute that is not there
CELL: Any = vars(CellType)["cell_contents"]  # what a function closes over, as a slot
CACHED = type(lru_cache(len))

Pair = tuple[Callable[..., Any], Callable[..., Any]]  # what takes a state, and what puts it back
GENERATORS: dict[type, Pair] = {
    random.Random: (random.Random.getstate, random.Random.setstate),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
}
GLOBAL: tuple[Pair, ...] = (
    (torch.get_rng_state, torch.set_rng_state),
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.is_grad_enabled, lambda on: on == torch.is_grad_enabled() or torch.set_grad_enabled(on)),
    (torch.get_default_dtype, torch.set_default_dtype),
)
ON_GPU: Pair = (torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)


def preserving(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Have a function leave its arguments, a model among them, and random numbers as they are.

    Whether it returns or raises; and if it is interrupted while things are put back, they all are.
    One thread at a time: hooks and modes are those of the process, and a model may be shared.
    """

    @wraps(call)
    def preserved(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with ALONE:
            state, done, interrupt = State(args, kwargs), False, None
            try:
                return call(*args, **kwargs)
            finally:
                while not done:
                    try:
                        done = state.restore()
                    except KeyboardInterrupt as error:
                        interrupt = error
                if interrupt is not None:
                    raise interrupt

    return preserved


@contextmanager
def replaced(roots: Any, others: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """While this is active, tensors that some objects hold are others, given by the ids of these.

    They are under all of their names. Afterwards the objects are as they were before.
    """
    state = State(roots)
    try:
        state.replace(others)
        yield
    finally:
        state.restore()


class State:
    """What some objects are now, with all that can be reached from them.

    Attributes:
        puts: for everything that can be written to, what puts it back.
        places: by a tensor's id, what puts another one where lists and dicts hold it.
        seen: the objects by id, which keeps them alive, so that no other one gets the id of one.
    """

    def __init__(self, *roots: Any) -> None:
        self.puts: list[Callable[[], Any]] = []
        self.places: dict[int, list[Callable[[Any], Any]]] = {}
        self.seen: dict[int, Any] = {}
        for get, put in (*GLOBAL, *([ON_GPU] if torch.cuda.is_initialized() else [])):
            self.puts.append(partial(put, get()))
        left = list(roots)
        while left:
            found = left.pop()
            if type(found) not in ATOMS and id(found) not in self.seen:
                self.seen[id(found)] = found
                left += self.take(found)

    def restore(self) -> bool:
        """Put everything back; return True. This may be interrupted, and done again."""
        for put in self.puts:
            put()
        return True

    def replace(self, others: Mapping[int, torch.Tensor]) -> None:
        """Put other tensors where lists and dicts hold some, given by the ids of these."""
        for key, other in others.items():
            for place in self.places.get(key, ()):
                place(other)

    def take(self, found: Any) -> Iterable[Any]:
        """Take what an object is; return what it refers to."""
        kind = type(found)
        base: Any
        if issubclass(kind, dict):
            base = OrderedDict if issubclass(kind, OrderedDict) else dict
            items = list(base.items(found))
            self.puts.append(partial(put_items, base, found, items))
            self.note_places(found, base, items)
            return [part for item in items for part in item]
        if issubclass(kind, list | deque):
            base = deque if issubclass(kind, deque) else list
            members = list(base.__iter__(found))
            self.puts.append(partial(put_sequence, base, found, members))
            self.note_places(found, base, enumerate(members))
            return members
        if issubclass(kind, set):
            members = list(set.__iter__(found))
            self.puts.append(partial(put_set, found, members))
            return members
        if issubclass(kind, tuple | frozenset):
            base = tuple if issubclass(kind, tuple) else frozenset
            return list(base.__iter__(found))
        if issubclass(kind, torch.Tensor):
            if found.is_leaf:  # of others a gradient is not kept
                self.puts.append(partial(put_leaf, found, found.requires_grad, found.grad))
            return ()
        if issubclass(kind, np.ndarray) and not issubclass(kind, np.memmap):
            if found.flags.writeable:
                self.puts.append(partial(np.copyto, found, found.copy()))
            return ()
        for generator, (get, put) in GENERATORS.items():
            if issubclass(kind, generator):
                self.puts.append(partial(put, found, get(found)))
                return ()
        if issubclass(kind, type):
            return self.take_class(found)
        if issubclass(kind, ModuleType):
            return ()
        if issubclass(kind, torch.nn.Module) or not is_foreign(kind):
            return self.take_attributes(found)
        return self.take_code(found)

    def note_places(self, found: Any, base: Any, items: Iterable[tuple[Any, Any]]) -> None:
        """Note where an object holds tensors."""
        for key, value in items:
            if isinstance(value, torch.Tensor):
                self.places.setdefault(id(value), []).append(partial(base.__setitem__, found, key))

    def take_attributes(self, found: Any) -> list[Any]:
        """Take the attributes of an object, in a dict and in slots, and those of its class."""
        kind = type(found)
        own: dict[str, Any] = {}
        with suppress(AttributeError):  # if all of it is in slots
            own = object.__getattribute__(found, "__dict__")
        if not issubclass(kind, torch.nn.Module) and any(
            package_of(type(value)) in SHARED for value in own.values()
        ):
            return []
        members = (m for base in kind.__mro__ if not is_foreign(base) for m in vars(base).values())
        slots = [member for member in members if isinstance(member, MemberDescriptorType)]
        return [kind, own, *(self.take_slot(member, found) for member in slots)]

    def take_slot(self, member: Any, owner: Any) -> Any:
        """Take what is in a slot of an object, or in a cell, and return it."""
        try:
            value = member.__get__(owner)
        except (AttributeError, ValueError):  # there is nothing in it
            value = ABSENT
        self.puts.append(partial(put_slot, member, owner, value))
        return value

    def take_class(self, found: Any) -> list[Any]:
        """Take the attributes of a class, unless others made it; its parents follow."""
        own = {} if is_foreign(found) else dict(vars(found))
        if own:
            self.puts.append(partial(put_class, found, own))
        return [*found.__bases__, *own.values()]

    def take_code(self, found: Any) -> list[Any]:
        """Take what a function closes over, and the globals that it names."""
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
            self.puts.append(partial(put_cache, found, found.cache_info().misses))
            return [found.__wrapped__]
        if not isinstance(found, FunctionType) or is_foreign(found):
            return []
        own = found.__globals__
        refers: list[Any] = [found.__defaults__, found.__kwdefaults__, vars(found)]
        refers += [self.take_slot(CELL, cell) for cell in found.__closure__ or ()]
        for name in names_in(found.__code__) & own.keys():
            self.puts.append(partial(put_global, own, name, own[name]))
            refers.append(own[name])
        return refers


def is_foreign(made: Any) -> bool:
    """Whether a class or function is of a package that is not looked into."""
    return package_of(made) in FOREIGN


def package_of(made: Any) -> str:
    """Return the package in which a class or function is made; if it does not say, Python's."""
    module = made.__module__
    return module.partition(".")[0] if isinstance(module, str) else "builtins"


def names_in(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in a function, those inside it included."""
    inner = [names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


# Putting back ------------------------------------------------------------------------------------
# Nothing is written that is as it was: others may be reading it.


def put_items(base: Any, found: Any, items: list[tuple[Any, Any]]) -> None:
    """Put the items of a dict back."""
    now = list(base.items(found))
    if len(now) == len(items) and all(
        key is other and value is another
        for (key, value), (other, another) in zip(now, items, strict=True)
    ):
        return
    base.clear(found)
    for key, value in items:
        base.__setitem__(found, key, value)


def put_sequence(base: Any, found: Any, members: list[Any]) -> None:
    """Put the members of a list or deque back."""
    if list(map(id, base.__iter__(found))) != list(map(id, members)):
        base.clear(found)
        base.extend(found, members)


def put_set(found: set[Any], members: list[Any]) -> None:
    """Put the members of a set back."""
    if set(map(id, set.__iter__(found))) != set(map(id, members)):
        set.clear(found)
        set.update(found, members)


def put_leaf(found: torch.Tensor, requires_grad: bool, gradient: torch.Tensor | None) -> None:
    """Put back whether a tensor requires a gradient, and which it has."""
    if found.requires_grad != requires_grad:
        found.requires_grad_(requires_grad)
    if found.is_leaf and found.grad is not gradient:
        found.grad = gradient


def put_slot(member: Any, owner: Any, value: Any) -> None:
    """Put back what was in a slot, or in a cell."""
    try:
        now = member.__get__(owner)
    except (AttributeError, ValueError):
        now = ABSENT
    if now is value:
        return
    if value is ABSENT:
        member.__delete__(owner)
    else:
        member.__set__(owner, value)


def put_class(found: type, own: dict[str, Any]) -> None:
    """Put the attributes of a class back."""
    now = dict(vars(found))
    for name in now.keys() | own.keys():
        if name.startswith("__") or now.get(name, ABSENT) is own.get(name, ABSENT):
            continue
        if name in own:
            type.__setattr__(found, name, own[name])
        else:
            type.__delattr__(found, name)


def put_global(own: dict[str, Any], name: str, value: Any) -> None:
    """Put a global of a module back."""
    if own.get(name, ABSENT) is not value:
        own[name] = value


def put_cache(found: Any, misses: int) -> None:
    """Empty the cache of a function if it has more in it than before."""
    if found.cache_info().misses != misses:
        found.cache_clear()
