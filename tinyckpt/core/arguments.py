"""From a call's arguments to the arrays of a graph's sources, with every mismatch named."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import leaves, leaves_like, same_nesting
from tinyckpt.core.graph import Graph, Spec


def sources_of(graph: Graph, args: tuple[Any, ...]) -> dict[int, Any]:
    """Return the arguments' arrays by data id, as they are, after checking shapes and dtypes.

    Raises:
        GraphError: names the first argument that differs from what the graph was built for.
    """
    ids = leaves(graph.arguments)
    try:
        specs = [graph.data[data].spec for data in ids]
        # Nesting first: it has an end where the graph's has, an argument may contain itself.
        if same_nesting(graph.arguments, args):
            arrays = leaves(args)
            if all(
                a.shape == s.shape and a.dtype == s.dtype and type(a) is not Spec
                for a, s in zip(arrays, specs, strict=True)
            ):
                return dict(zip(ids, arrays, strict=True))
    except AttributeError:
        pass  # a plain number, or something that is no array: the slow way tells which
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
    """Return what the traced function calls its positional arguments."""
    names = []
    for position, template in enumerate(graph.arguments):
        first = next(iter(leaves(template)), None)
        name = f"arg{position}" if first is None else graph.data[first].name
        names.append(name.split("[")[0])
    return names


def checked_array(graph: Graph, data: int, path: str, leaf: Any) -> Any:
    """Return one argument as an array, or raise a GraphError."""
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
