"""Python state that a module's evaluation may read or change, as a table of paths and values.

Attributes of the module and of those inside it, of their classes, and of objects; lists and dicts
in any nesting; what their methods close over, and the globals that these name; generators of random
numbers; what the module is handed. ``checkpoint`` sets none of that back before it evaluates a
module again. Tensors are told by the storage that they are in.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from tinyckpt.interop.torch.preserving import GENERATORS, is_foreign, names_in

DEPTH, MOST = 8, 50_000  # of nesting, and of values: what is deeper is not seen
ATOMS = (bool, int, float, complex, str, bytes)
REGISTERED = {"_parameters", "_buffers", "_modules", "forward"}
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor in a state: the number of its storage."""

    storage: int | None


@dataclass(frozen=True, slots=True)
class RandomState:
    """What a generator of random numbers draws next."""

    state: int


def state_of(
    module: nn.Module, forward: Callable[..., Any], number: Callable[[Any], int | None]
) -> State:
    """Return the state that a module's evaluation may read, without what it is handed.

    Args:
        module, forward: what is evaluated.
        number: returns the number of a tensor's storage.
    """
    walk = Walk(number)
    walk.found["Python's random numbers"] = RandomState(hash(random.getstate()))
    walk.found["NumPy's random numbers"] = RandomState(
        hash(repr(np.random.get_state(legacy=False)))
    )
    for name, part in module.named_modules():
        path = f"{name}." if name else ""
        for key, value in vars(part).items():
            if key not in REGISTERED:
                walk.take(f"{path}{key}", value)
        for kind in type(part).__mro__:
            if not is_foreign(kind):
                walk.attributes(f"{kind.__name__}", vars(kind))
    walk.take("forward", forward)
    return walk.found


def state_handed(given: Mapping[str, Any], number: Callable[[Any], int | None]) -> State:
    """Return the state of what a module is handed, by the names of its arguments."""
    walk = Walk(number)
    for name, value in given.items():
        walk.take(name, value)
    return walk.found


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors that some arguments hold, inside objects, too."""
    walk = Walk(lambda tensor: None)
    walk.take("", value)
    return walk.tensors


class Walk:
    """Goes through values, and notes what they are by their paths."""

    def __init__(self, number: Callable[[Any], int | None]) -> None:
        self.number = number
        self.found: State = {}
        self.tensors: list[torch.Tensor] = []
        self.seen: set[int] = set()

    def take(self, path: str, value: Any, depth: int = 0) -> None:
        """Note a value, and what is in it."""
        kind = type(value)
        if depth > DEPTH or len(self.found) > MOST:
            return
        if value is None or isinstance(value, ATOMS):
            self.found[path] = repr(value) if isinstance(value, float) else value
            return
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self.found[path] = HeldTensor(self.number(value))
            return
        if id(value) in self.seen or isinstance(value, nn.Module):
            return
        self.seen.add(id(value))
        generator = next((kinds for kinds in GENERATORS if isinstance(value, kinds)), None)
        if generator is torch.Generator:
            return
        if generator is not None:
            self.found[path] = RandomState(hash(repr(GENERATORS[generator][0](value))))
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self.found[path] = hash(value.tobytes())
        elif isinstance(value, itertools.count):
            self.found[path] = repr(value)
        elif isinstance(value, Mapping):
            self.found[path] = f"{len(value)} items"
            for key, item in list(value.items()):
                self.take(f"{path}[{key!r:.40}]", item, depth + 1)
        elif isinstance(value, list | tuple | deque):
            if not isinstance(value, tuple):
                self.found[path] = f"{len(value)} elements"
            for place, item in enumerate(value):
                self.take(f"{path}[{place}]", item, depth + 1)
        elif isinstance(value, set | frozenset):
            self.found[path] = f"{len(value)} elements"
        elif isinstance(value, FunctionType | MethodType | partial):
            self.code(path, value, depth)
        elif not isinstance(value, type) and not is_foreign(kind):
            for key, item in attributes_of(value):
                self.take(f"{path}.{key}", item, depth + 1)

    def attributes(self, path: str, values: Mapping[str, Any]) -> None:
        """Note the attributes of a class, and what its methods name."""
        for key, value in values.items():
            if isinstance(value, property):
                value = value.fget
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, FunctionType) or not key.startswith("__"):
                self.take(f"{path}.{key}", value)

    def code(self, path: str, value: Any, depth: int) -> None:
        """Note what a function closes over, and globals that it names."""
        if isinstance(value, MethodType):
            self.take(path, value.__func__, depth)
            if not isinstance(value.__self__, nn.Module | type):
                self.take(path, value.__self__, depth + 1)
        elif isinstance(value, partial):
            for item in (value.func, value.args, value.keywords):
                self.take(path, item, depth + 1)
        elif not is_foreign(value):
            for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    self.take(key, cell.cell_contents, depth + 1)
                except ValueError:  # it is empty
                    continue
            for key in sorted(names_in(value.__code__) & value.__globals__.keys()):
                self.take(f"global {key}", value.__globals__[key], depth + 1)


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, in a dict and in slots."""
    for kind in type(value).__mro__:
        for key, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and hasattr(value, key):
                yield key, getattr(value, key)
    yield from list(getattr(value, "__dict__", {}).items())


def changed(before: State, after: State) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two states differ, with both values; None for what is not there."""
    for path in (*before, *(path for path in after if path not in before)):
        if before.get(path) != after.get(path):
            yield path, before.get(path), after.get(path)
