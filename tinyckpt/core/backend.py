"""Array backends, NumPy and others by a table; and validation of a call's arguments.

A ``Backend`` is an array module with the copies between it and NumPy. ``bind_sources`` binds a
call's arguments to a graph's sources, and checks nesting, shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from tinyckpt.base.errors import BackendError, GraphError
from tinyckpt.base.spec import Spec, unmasked
from tinyckpt.base.tree import leaves, leaves_like, same_nesting
from tinyckpt.core.graph import Graph


@dataclass(frozen=True, slots=True)
class Backend:
    """An array library; instances are accepted wherever a backend name is.

    Picklable if its functions are: the module is imported again on unpickling.

    Attributes:
        name: the module's import name.
        xp: the module. One that is not NumPy needs ``asnumpy``, as CuPy has it.
        to_host: copies an array of the library into a new NumPy array.
        to_device: converts a NumPy array to an array of the library.
        synchronize: waits until the device has finished all queued work; None if it is synchronous.
        host: creates the store of values that a run offloads; NumPy copies, if not given.
        by_name: whether it is pickled as its name in ``BACKENDS``.
    """

    name: str
    xp: Any
    to_host: Callable[[Any], Any]
    to_device: Callable[[Any], Any]
    synchronize: Callable[[], None] | None
    host: Callable[[], Any] | None = None
    by_name: bool = field(default=False, init=False, compare=False, repr=False)

    def __reduce__(self) -> Any:
        """Pickle a built-in backend by name, any other with the name of its module."""
        if self.by_name:
            return get_backend, (self.name,)
        rest = self.to_host, self.to_device, self.synchronize, self.host
        return unpickle_backend, (self.name, self.xp.__name__, *rest)


def unpickle_backend(name: str, module: str, *rest: Any) -> Backend:
    """Rebuild a pickled backend, importing its module."""
    return Backend(name, import_module(module), *rest)


def as_contiguous(array: Any) -> Any:
    """Return the array in C order, as the graph's views assume: itself, or a copy."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def to_backend(backend: Backend, array: Any) -> Any:
    """Convert any library's array to a C-contiguous one of the backend.

    Raises:
        GraphError: if the conversion fails: it is on another device, or is a PyTorch tensor
            that requires grad.
    """
    try:
        return as_contiguous(backend.to_device(unmasked(array)))
    except (TypeError, RuntimeError, ValueError) as error:
        kind = f"{type(array).__module__}.{type(array).__name__}"
        raise GraphError(
            f"an argument is a {kind}, which cannot be converted to an array of {backend.name}: "
            f"{error}; convert it first"
        ) from error


def pickled_by_name(backend: Backend) -> Backend:
    """Mark a backend as that of its name in ``BACKENDS``; a changed copy is not marked."""
    object.__setattr__(backend, "by_name", True)
    return backend


NUMPY = pickled_by_name(Backend("numpy", np, np.array, np.asarray, None))
# Backends by name; ``storage`` adds CuPy, whose host memory is pinned.
BACKENDS: dict[str, Callable[[], Backend]] = {"numpy": lambda: NUMPY}


def get_backend(name: str | Backend) -> Backend:
    """Return a backend by name; a Backend as it is.

    Raises:
        BackendError: if the name is unknown, or the backend cannot be used here.
    """
    if isinstance(name, Backend):
        return name
    if not isinstance(name, str) or name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}; expected one of {', '.join(BACKENDS)}")
    return BACKENDS[name]()


# --------------------------------------------------------------------------------------------------
# Argument checking: from a call's arguments to the arrays of the graph's sources.


def bind_sources(graph: Graph, args: tuple[Any, ...]) -> dict[int, Any]:
    """Bind a call's arguments to the graph's sources: arrays by data id, with all checks made.

    Nesting, shapes and dtypes must match: arrays are not converted. A Python number is what NumPy
    makes of it; an int or float for a floating-point scalar takes the scalar's dtype.

    Raises:
        GraphError: names the first argument that differs from what the graph was built for.
    """
    ids = leaves(graph.arguments)
    try:
        specs = [graph.data[data].spec for data in ids]
        # Nesting first: it stops where the graph's template does, while an argument may be cyclic.
        if same_nesting(graph.arguments, args):
            arrays = leaves(args)
            if all(
                a.shape == s.shape and a.dtype == s.dtype and type(a) is not Spec
                for a, s in zip(arrays, specs, strict=True)
            ):
                return dict(zip(ids, arrays, strict=True))
    except AttributeError:
        pass  # a plain number, or not an array: the slow path tells which
    if len(args) != len(graph.arguments):
        raise GraphError(
            f"{graph.name} takes {len(graph.arguments)} arguments, "
            f"({', '.join(argument_names(graph))}), got {len(args)}"
        )
    result: dict[int, Any] = {}
    for name, template, argument in zip(argument_names(graph), graph.arguments, args, strict=True):
        for data, path, leaf in leaves_like(template, argument, name):
            result[data] = checked_array(graph, data, path, leaf)
    return result


def argument_names(graph: Graph) -> list[str]:
    """Return the parameter names of the traced function's positional arguments."""
    names = []
    for position, template in enumerate(graph.arguments):
        first = next(iter(leaves(template)), None)
        name = f"arg{position}" if first is None else graph.data[first].name
        names.append(name.split("[")[0])
    return names


def checked_array(graph: Graph, data: int, path: str, leaf: Any) -> Any:
    """Convert one argument to an array of the source's spec, or raise a GraphError."""
    spec = graph.data[data].spec
    if isinstance(leaf, Spec):
        raise GraphError(f"{path}: a tc.Spec has no numbers; pass an array of {spec} to run this")
    array = leaf if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else np.asarray(leaf)
    if type(leaf) in (int, float) and spec.dtype.kind == "f":
        array = np.asarray(leaf, spec.dtype)
    if array.dtype.kind == "O":
        raise GraphError(f"{path}: expected an array of {spec}, got a {type(leaf).__name__}")
    if tuple(array.shape) != spec.shape or array.dtype != spec.dtype:
        got = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        raise GraphError(
            f"{path}: expected {spec}, as when the graph was built, got {got}; "
            "build the graph again for other shapes, or convert with .astype"
        )
    return array
