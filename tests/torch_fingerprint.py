"""Fingerprint of a PyTorch model, by bits and identities, to compare before and after a call.

Independent of tinyckpt, which it checks::

    before = fingerprint(model, *args)
    tct.trace(model, *args)
    assert changes(before, fingerprint(model, *args)) == []
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as hooks_of_all

NOTHING_INSIDE = (type, torch.dtype, torch.device, torch.Generator, np.dtype)
HOOKS = [name for name in vars(hooks_of_all) if name.startswith("_global_") and "hook" in name]


@dataclass(slots=True)
class Fingerprint:
    """What was found, by where it was.

    Attributes:
        found: by path, such as ``blocks.0 ['weight'] grad``, what is equal if nothing changed.
        alive: the objects whose ids were noted, so that no other one gets them.
    """

    found: dict[str, Any] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)


def fingerprint(model: torch.nn.Module, *others: Any) -> Fingerprint:
    """Fingerprint a model: modules, all objects they refer to, random state, modes, hooks."""
    made = Fingerprint()
    seen: dict[int, str] = {}
    left = [(f"args[{i}]", other) for i, other in enumerate(others)]
    for name, module in model.named_modules(remove_duplicate=False):
        left.append((name or "model", module))
    while left:
        path, value = left.pop()
        made.alive.append(value)
        if isinstance(value, bool | int | float | complex | str | bytes | None):
            made.found[path] = type(value), repr(value)
            continue
        first = seen.setdefault(id(value), path)
        made.found[path] = type(value), id(value)
        if first == path:
            left += [(f"{path} {part}", inner) for part, inner in inside(value)]
    made.found |= {f"surroundings: {name}": value for name, value in surroundings()}
    return made


def changes(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return the paths at which two fingerprints differ, and how."""
    absent = "(absent)"
    return [
        f"{path}: {before.found.get(path, absent)!r:.100} -> {after.found.get(path, absent)!r:.100}"
        for path in dict.fromkeys((*before.found, *after.found))
        if before.found.get(path, absent) != after.found.get(path, absent)
    ]


def inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object, or the objects it refers to, by name."""
    if isinstance(value, torch.Tensor):
        yield from of_tensor(value)
    elif isinstance(value, np.ndarray):
        yield "bytes", digest(value)
    elif isinstance(value, dict):
        yield "keys", " ".join(f"{type(key).__name__}:{key!r:.80}" for key in value)
        yield from ((f"[{key!r:.80}]", inner) for key, inner in value.items())
    elif isinstance(value, set | frozenset):
        yield "members", " ".join(sorted(f"{id(member)}" for member in value))
    elif isinstance(value, list | tuple | deque):
        yield "length", len(value)
        yield from ((f"[{position}]", inner) for position, inner in enumerate(value))
    elif isinstance(value, random.Random):
        yield "state", repr(value.getstate())
    elif isinstance(value, np.random.Generator):
        yield "state", repr(value.bit_generator.state)
    elif isinstance(value, torch.Generator):
        yield "state", digest(value.get_state().numpy())
    elif isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, MethodType):
        yield from (("self", value.__self__), ("func", value.__func__))
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"closes over {name}", cell.cell_contents
    elif not isinstance(value, NOTHING_INSIDE):
        if type(value).__module__.partition(".")[0] in ("tests", "benchmarks", "__main__"):
            for base in type(value).__mro__[:-1]:
                if base.__module__ == type(value).__module__:
                    names = [name for name in vars(base) if not name.startswith("__")]
                    yield f"class {base.__name__} names", " ".join(sorted(names))
                    yield from ((f"class {base.__name__} {n}", vars(base)[n]) for n in names)
        if hasattr(value, "__dict__"):
            yield "vars", vars(value)
        for name in getattr(type(value), "__slots__", ()):
            yield name, getattr(value, name, "(absent)")


def of_tensor(value: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Yield the properties of a tensor; its data as a hash."""
    if torch.nn.parameter.is_lazy(value):
        return  # a parameter without a shape
    yield "layout", f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device}"
    yield "flags", f"requires_grad {value.requires_grad} leaf {value.is_leaf}"
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type == "meta":
        return  # a subclass without numbers
    yield "storage", f"{value.untyped_storage().data_ptr()} at {value.storage_offset()}"
    yield "version", value._version
    yield "bytes", digest(value.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    yield "hooks", value._backward_hooks
    if value.is_leaf:
        yield "grad", value.grad


def digest(array: np.ndarray[Any, Any]) -> str:
    """Return a hash of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def surroundings() -> Iterator[tuple[str, Any]]:
    """Yield the global state of the process: random generators, modes, global module hooks."""
    yield "torch's random numbers", digest(torch.get_rng_state().numpy())
    yield "Python's random numbers", hash(random.getstate())
    yield "NumPy's random numbers", repr(np.random.get_state())
    if torch.cuda.is_initialized():
        yield "CUDA's random numbers", [digest(s.numpy()) for s in torch.cuda.get_rng_state_all()]
    yield "grad mode", (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    yield "default dtype", torch.get_default_dtype()
    yield "default device", torch.get_default_device()
    yield "autocast", [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
    yield "dispatch modes", torch._C._len_torch_dispatch_stack()
    yield "function modes", torch._C._len_torch_function_stack()
    yield "hooks", [(name, list(getattr(hooks_of_all, name) or ())) for name in HOOKS]
    yield "what an operator makes", type(torch.ones(1) + 1)
