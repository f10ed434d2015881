"""A model's state as Python holds it: taken before a call, put back after it, however it ends.

A forward that runs on FakeTensors writes what forwards write: attributes, lists, caches, counters.
None of that may stay. ``ObjectState`` takes all that can be reached from a model and its arguments,
by identity, so that an object under several names is one: attributes of modules, of their classes
and of plain objects; lists, dicts, sets and arrays in any nesting; what methods and hooks close
over, and the globals that they name; generators of random numbers. Numbers in tensors are not
copied: operators run on FakeTensors, which are others. Arrays of NumPy are copied up to ``COPIED``
bytes; further ones are read-only until they are put back, in the outermost call.

What a forward writes elsewhere stays, such as files, or attributes of imported modules.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
GLOBAL: dict[str, Pair] = {
    "torch": (torch.get_rng_state, torch.set_rng_state),
    "random": (random.getstate, random.setstate),
    "numpy.random": (np.random.get_state, np.random.set_state),
    "grad mode": (
        torch.is_grad_enabled,
        lambda on: on == torch.is_grad_enabled() or torch.set_grad_enabled(on),
    ),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
}
ON_GPU: dict[str, Pair] = {
    "torch.cuda": (torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
}
COPIED = 16 * 2**20  # bytes of arrays that are copied at most; further ones are made read-only

Put = Callable[[], Iterable[Any]]  # puts something back, and returns what of it was not as before


def preserving(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Have a function leave its arguments, a model among them, and random numbers as they are.

    Whether it returns or raises; and if it is interrupted while things are put back, they all are.
    One thread at a time: hooks and modes are those of the process, and a model may be shared.
    """

    @wraps(call)
    def preserved(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with ALONE:
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
def replaced(roots: Any, others: Mapping[int, torch.Tensor]) -> Iterator[ObjectState]:
    """While this is active, tensors that some objects hold are others, given by the ids of these.

    They are under all of their names. Afterwards the objects are as they were before, and the state
    that this yields says what was not.
    """
    state = ObjectState(roots)
    try:
        state.replace(others)
        yield state
    finally:
        state.restore()


class ObjectState:
    """What some objects are now, with all that can be reached from them.

    Attributes:
        puts: for everything that can be written to, it and what puts it back.
        places: by a tensor's id, what puts another one where lists and dicts hold it.
        others: by a tensor's id, which one was put in its places; it lives no longer for this.
        seen: the objects by id, which keeps them alive, so that no other one gets the id of one.
        origins: by an object's id, the object in which it was found first.
        copied: how many bytes of arrays were copied.
        large: the arrays that are too large for that, with how many others each is a view of.
        changes: what was not as before when it was put back: objects, and what of each.
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
        for name, (get, put) in {
            **GLOBAL,
            **(ON_GPU if torch.cuda.is_initialized() else {}),
        }.items():
            self.puts.append((name, partial(put_state, get, put, get())))
        left = deque((None, root) for root in roots)
        while left:
            origin, found = left.popleft()
            if type(found) not in ATOMS and id(found) not in self.seen:
                self.seen[id(found)], self.origins[id(found)] = found, origin
                left += [(found, part) for part in self.take(found)]

    def protect(self) -> None:
        """Make the arrays read-only that are too large to be copied, until they are restored."""
        for _, array in self.large:
            array.flags.writeable = False

    def restore(self) -> None:
        """Put everything back, noting what was not as before.

        This may be interrupted, and done again.
        """
        for _, array in sorted(self.large, key=itemgetter(0)):  # a view only after what it is of
            array.flags.writeable = True
        for found, put in self.puts:
            for what in put():
                self.changes[id(found), str(what)] = found, what

    def replace(self, others: Mapping[int, torch.Tensor]) -> None:
        """Put other tensors where lists and dicts hold some, given by the ids of these."""
        self.others.update(others)
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
            self.puts.append((found, partial(put_items, base, found, items, self.others)))
            self.note_places(found, base, items)
            return [part for item in items for part in item]
        if issubclass(kind, list | deque):
            base = deque if issubclass(kind, deque) else list
            members = list(base.__iter__(found))
            self.puts.append((found, partial(put_sequence, base, found, members, self.others)))
            self.note_places(found, base, enumerate(members))
            return members
        if issubclass(kind, set):
            members = list(set.__iter__(found))
            self.puts.append((found, partial(put_set, found, members)))
            return members
        if issubclass(kind, tuple | frozenset):
            base = tuple if issubclass(kind, tuple) else frozenset
            return list(base.__iter__(found))
        if issubclass(kind, torch.Tensor):
            if found.is_leaf:  # of others a gradient is not kept
                own = found.requires_grad, found.grad
                self.puts.append((found, partial(put_leaf, found, *own)))
            return ()
        if issubclass(kind, np.ndarray) and not issubclass(kind, np.memmap):
            return self.take_array(found)
        for generator, (get, put) in GENERATORS.items():
            if issubclass(kind, generator):
                self.puts.append(
                    (
                        found,
                        partial(put_state, partial(get, found), partial(put, found), get(found)),
                    )
                )
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

    def take_array(self, found: Any) -> list[Any]:
        """Take a copy of an array, if it can still be copied; return what it is a view of."""
        if found.flags.writeable:
            self.copied += found.nbytes
            if self.copied <= COPIED:
                self.puts.append((found, partial(put_array, found, found.copy())))
            else:
                self.copied -= found.nbytes
                self.large.append((views_in(found), found))
        return [] if found.base is None else [found.base]

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
        self.puts.append((owner, partial(put_slot, member, owner, value)))
        return value

    def take_class(self, found: Any) -> list[Any]:
        """Take the attributes of a class, unless others made it; its parents follow."""
        own = {} if is_foreign(found) else dict(vars(found))
        if own:
            self.puts.append((found, partial(put_class, found, own)))
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
            self.puts.append((found, partial(put_cache, found, found.cache_info().misses)))
            return [found.__wrapped__]
        if hasattr(type(found), "__next__"):  # what it has left is not seen
            self.puts.append((found, lambda: ("",)))
        if not isinstance(found, FunctionType) or is_foreign(found):
            return []
        own = found.__globals__
        refers: list[Any] = [found.__defaults__, found.__kwdefaults__, vars(found)]
        for cell in found.__closure__ or ():
            self.seen[id(cell)] = cell
            self.origins.setdefault(id(cell), found)
            refers.append(self.take_slot(CELL, cell))
        for name in names_in(found.__code__) & own.keys():
            self.puts.append((found, partial(put_global, own, name, own[name])))
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


def views_in(array: Any) -> int:
    """Return how many arrays an array is a view of."""
    count = 0
    while isinstance(array := array.base, np.ndarray):
        count += 1
    return count


# Putting back ------------------------------------------------------------------------------------
# Nothing is written that is as it was: others may be reading it. Each returns what was not.


def put_items(
    base: Any, found: Any, items: list[tuple[Any, Any]], others: Mapping[int, Any]
) -> list[Any]:
    """Put the items of a dict back; tensors in place of theirs are no change."""
    now = list(base.items(found))
    if len(now) == len(items) and all(
        key is other and value is another
        for (key, value), (other, another) in zip(now, items, strict=True)
    ):
        return []
    base.clear(found)
    for key, value in items:
        base.__setitem__(found, key, value)
    # By ids: a key may have an unusual equality.
    before, after = ({id(key): (key, value) for key, value in part} for part in (items, now))
    changed = [
        key
        for which, (key, value) in {**after, **before}.items()
        if which not in after
        or which not in before
        or after[which][1] is not others.get(id(value), value)
    ]
    return changed or ([""] if list(before) != list(after) else [])


def put_sequence(
    base: Any, found: Any, members: list[Any], others: Mapping[int, Any]
) -> Iterable[Any]:
    """Put the members of a list or deque back; tensors in place of theirs are no change."""
    now = list(map(id, base.__iter__(found)))
    if now == list(map(id, members)):
        return ()
    base.clear(found)
    base.extend(found, members)
    return () if now == [id(others.get(id(each), each)) for each in members] else ("",)


def put_set(found: set[Any], members: list[Any]) -> Iterable[Any]:
    """Put the members of a set back."""
    if set(map(id, set.__iter__(found))) == set(map(id, members)):
        return ()
    set.clear(found)
    set.update(found, members)
    return ("",)


def put_leaf(
    found: torch.Tensor, requires_grad: bool, gradient: torch.Tensor | None
) -> Iterable[str]:
    """Put back whether a tensor requires a gradient, and which it has."""
    if found.requires_grad != requires_grad:
        found.requires_grad_(requires_grad)
        yield "requires_grad"
    if found.is_leaf and found.grad is not gradient:
        found.grad = gradient
        yield "grad"


def put_array(found: Any, copy: Any) -> Iterable[str]:
    """Put the elements of an array back."""
    if found.tobytes() == copy.tobytes():
        return ()
    np.copyto(found, copy)
    return ("",)


def put_state(get: Callable[[], Any], put: Callable[[Any], Any], before: Any) -> Iterable[str]:
    """Put a state of the process or of a generator back; PyTorch's are not looked at."""
    tensors = isinstance(before, torch.Tensor | list)
    changed = not tensors and pickle.dumps(get()) != pickle.dumps(before)
    put(before)
    return ("",) if changed else ()


def put_slot(member: Any, owner: Any, value: Any) -> Iterable[str]:
    """Put back what was in a slot, or in a cell."""
    try:
        now = member.__get__(owner)
    except (AttributeError, ValueError):
        now = ABSENT
    if now is value:
        return ()
    if value is ABSENT:
        member.__delete__(owner)
    else:
        member.__set__(owner, value)
    return ("" if member is CELL else member.__name__,)


def put_class(found: type, own: dict[str, Any]) -> list[str]:
    """Put the attributes of a class back."""
    now, changed = dict(vars(found)), []
    for name in now.keys() | own.keys():
        if name.startswith("__") or now.get(name, ABSENT) is own.get(name, ABSENT):
            continue
        if name in own:
            type.__setattr__(found, name, own[name])
        else:
            type.__delattr__(found, name)
        changed.append(name)
    return sorted(changed)


def put_global(own: dict[str, Any], name: str, value: Any) -> Iterable[str]:
    """Put a global of a module back."""
    if own.get(name, ABSENT) is value:
        return ()
    own[name] = value
    return (name,)


def put_cache(found: Any, misses: int) -> Iterable[str]:
    """Empty the cache of a function if it has more in it than before."""
    if found.cache_info().misses == misses:
        return ()
    found.cache_clear()
    return ("",)
