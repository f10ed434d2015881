"""Python state that evaluating a module may read or change, flattened to paths and values.

Attributes of the module and its submodules, of their classes, and of objects; lists and dicts in
any nesting; closures of their methods, and the globals that these name; random generators; the
module's arguments. ``checkpoint`` restores none of that before it evaluates a module again, so
``check_recomputation`` compares such states. Tensors are identified by storage.
"""

from __future__ import annotations

import itertools
import pickle
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

from tinyckpt.interop.torch.state_rollback import GENERATORS, is_foreign, names_in
from tinyckpt.interop.torch.validate_model import REGISTERED

DEPTH, MOST = 8, 50_000  # limits of nesting and of table entries; beyond, changes go undetected
ATOMS = (bool, int, float, complex, str, bytes)
NOT_STATE = {*REGISTERED, "forward"}  # attributes of modules
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor in a state, identified by the number of its storage."""

    storage: int | None


@dataclass(frozen=True, slots=True)
class RandomState:
    """A hash of a random generator's state."""

    state: int


def random_states() -> dict[str, RandomState]:
    """Return the states of the random generators that are not PyTorch's, by what they draw."""
    state = pickle.dumps(np.random.get_state(legacy=False))
    return {
        "Python's random numbers": RandomState(hash(random.getstate())),
        "NumPy's random numbers": RandomState(hash(state)),
    }


def state_of(
    module: nn.Module, forward: Callable[..., Any], number: Callable[[Any], int | None]
) -> State:
    """Flatten the state that a module's evaluation may read, its arguments excluded.

    Args:
        module, forward: the module and its forward.
        number: returns the number of a tensor's storage.
    """
    walk = StateWalk(number)
    walk.found |= random_states()
    for name, part in module.named_modules():
        path = f"{name}." if name else ""
        for key, value in vars(part).items():
            if key not in NOT_STATE:
                walk.take(f"{path}{key}", value)
        for kind in type(part).__mro__:
            if not is_foreign(kind):
                walk.attributes(f"{kind.__name__}", vars(kind))
    walk.take("forward", forward)
    return walk.found


def state_of_arguments(given: Mapping[str, Any], number: Callable[[Any], int | None]) -> State:
    """Flatten the state of a module's arguments, by their names."""
    walk = StateWalk(number)
    for name, value in given.items():
        walk.take(name, value)
    return walk.found


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors within some arguments, those inside objects included."""
    walk = StateWalk(lambda tensor: None)
    walk.take("", value)
    return walk.tensors


class StateWalk:
    """Traversal that flattens objects to a table of paths and values."""

    def __init__(self, number: Callable[[Any], int | None]) -> None:
        self.number = number
        self.found: State = {}
        self.tensors: list[torch.Tensor] = []
        self.seen: set[int] = set()

    def take(self, path: str, value: Any, depth: int = 0) -> None:
        """Add a value and its parts to the table."""
        kind = type(value)
        if depth > DEPTH or len(self.found) > MOST:
            return
        if value is None or isinstance(value, ATOMS):
            self.found[path] = repr(value) if isinstance(value, float) else value
            return
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self.found[path] = TensorRef(self.number(value))
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
        elif isinstance(value, Mapping | list | tuple | deque | set | frozenset):
            what, parts = "elements", [*enumerate(value)]
            if isinstance(value, Mapping):
                what, parts = "items", list(value.items())
            if not isinstance(value, tuple):
                self.found[path] = f"{len(value)} {what}"
            if not isinstance(value, set | frozenset):
                for place, part in parts:
                    self.take(f"{path}[{place!r:.40}]", part, depth + 1)
        elif isinstance(value, FunctionType | MethodType | partial):
            self.code(path, value, depth)
        elif not isinstance(value, type) and not is_foreign(kind):
            for key, item in attributes_of(value):
                self.take(f"{path}.{key}", item, depth + 1)

    def attributes(self, path: str, values: Mapping[str, Any]) -> None:
        """Add the attributes of a class, and what its methods refer to."""
        for key, value in values.items():
            if isinstance(value, property):
                value = value.fget
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, FunctionType) or not key.startswith("__"):
                self.take(f"{path}.{key}", value)

    def code(self, path: str, value: Any, depth: int) -> None:
        """Add a function's closure and the globals that it names."""
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
                except ValueError:  # an empty cell
                    continue
            for key in sorted(names_in(value.__code__) & value.__globals__.keys()):
                self.take(f"global {key}", value.__globals__[key], depth + 1)


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, in its slots and its dict."""
    for kind in type(value).__mro__:
        for key, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and hasattr(value, key):
                yield key, getattr(value, key)
    yield from list(getattr(value, "__dict__", {}).items())


def state_differences(before: State, after: State) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two states differ, with both values; None where a path is absent."""
    for path in (*before, *(path for path in after if path not in before)):
        if before.get(path) != after.get(path):
            yield path, before.get(path), after.get(path)
