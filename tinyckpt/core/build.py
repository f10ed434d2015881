"""From an ordinary Python function to a Graph: the function is called once, with shapes.

``build`` hands the function one ``Var`` for every array of its arguments. A Var has a shape and a
dtype but no numbers; arithmetic on it adds operators to the graph being built. Nothing is evaluated
here: what is evaluated, when and how often is the schedule's business alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Tree, check_depth, fill, leaves, leaves_with_paths, map_leaves
from tinyckpt.core.builder import Builder
from tinyckpt.core.calls import Call, bound, call_of, function_name
from tinyckpt.core.graph import Graph, Spec
from tinyckpt.core.marks import checked_text, checkpoint, name, once, scope
from tinyckpt.core.var import Var
from tinyckpt.ops.shape import in_memory_of_their_own

__all__ = ["Builder", "Var", "build", "checkpoint", "name", "once", "scope", "spec_of"]


def build(
    function: Callable[..., Any],
    *args: Any,
    graph_name: str | None = None,
    static: str | Collection[str] = (),
    **named: Any,
) -> Graph:
    """Trace a function into its forward graph by calling it once with shapes.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns a Var, or Vars nested in
            dicts, lists and tuples.
        args: its arguments: arrays, numbers or ``Spec(shape, dtype)``, nested in dicts, lists and
            tuples. Only shapes and dtypes are looked at.
        graph_name: what pictures call the graph; the function's name if not given.
        static: names of arguments that are no arrays, such as ``("train",)``: the function gets
            them as they are, and the graph, which is for these values, has no arguments for them.
        named: arguments by keyword. The graph's arguments are all by position, in the order of the
            function's parameters.

    Raises:
        GraphError: if the function does with a Var what only numbers can do, if shapes or dtypes
            do not fit, if it returns something else than Vars, or if a static argument cannot be.

    >>> import tinyckpt as tc
    >>> print(tc.build(lambda x: tc.tanh(x) * 2.0, tc.Spec((3,)), graph_name="double"))
    double: 2 operators, 4 data nodes
      tanh_1 = tanh(x)   float64[3]
      multiply_1 = multiply(tanh_1, 2.0)   float64[3]
    """
    return trace(call_of(function, args, named, static), graph_name)


def trace(call: Call, graph_name: str | None = None) -> Graph:
    """Return the forward graph of one call of a function."""
    bound(call.function, call.args, call.named)  # says what does not fit the function's parameters
    name = checked_text("graph_name", graph_name or function_name(call.function))
    builder = Builder(name)
    for path, argument in zip(call.names, call.arguments, strict=True):
        check_depth(path, argument)
    weak = weak_float(call.arguments)
    variables = [
        named_sources(builder, path, argument, weak)
        for path, argument in zip(call.names, call.arguments, strict=True)
    ]
    with builder.active():
        result = call.again(variables)
        check_depth(f"what {builder.graph_name} returned", result)
        result = map_leaves(lambda leaf: returned_var(builder, leaf), result)
        result = in_memory_of_their_own(result)
    arguments = tuple(map_leaves(lambda variable: variable.node.id, tree) for tree in variables)
    results = map_leaves(lambda variable: variable.node.id, result)
    if not leaves(results):
        raise GraphError(f"{builder.graph_name} returned nothing; return the Var to be computed")
    return builder.seal(arguments, results)


def named_sources(builder: Builder, name: str, argument: Any, weak: Any) -> Any:
    """Return the argument with a source in the place of every array."""
    pairs = list(leaves_with_paths(argument, name))
    created = [builder.add_source(path, spec_of(path, leaf, weak), "input") for path, leaf in pairs]
    positions = iter(range(len(created)))
    return fill(map_leaves(lambda leaf: next(positions), argument), created)


def weak_float(tree: Tree) -> np.dtype[Any]:
    """Return the dtype of Python floats among the arguments: that of the floating arrays there.

    So a learning rate of 0.5 beside float32 parameters is a float32, as NumPy and NEP 50 have it;
    float64 where there is no such array. Python integers stay int64: they may be seeds or labels.
    """
    dtypes = {getattr(leaf, "dtype", None) for leaf in leaves(tree)}
    floats = [dtype for dtype in dtypes if isinstance(dtype, np.dtype) and dtype.kind == "f"]
    return np.result_type(*floats) if floats else np.dtype("float64")


def spec_of(path: str, leaf: Any, weak: Any = "float64") -> Spec:
    """Return the spec of one argument, or raise a GraphError that names it.

    ``weak`` is the dtype of a Python float.
    """
    if isinstance(leaf, Spec):
        return leaf
    if type(leaf) is float:
        return Spec((), weak)
    if isinstance(leaf, Var):
        raise GraphError(f"{path}: a Var of another build; pass an array or a tc.Spec")
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        if not isinstance(leaf, bool | int | float | np.generic):
            raise GraphError(
                f"{path}: expected an array, a number or a tc.Spec, got a {type(leaf).__name__}; "
                "an argument that is none of them is to be named in static=(...)"
            )
        leaf = np.asarray(leaf)
    try:
        return Spec(tuple(leaf.shape), leaf.dtype)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def returned_var(builder: Builder, leaf: Any) -> Var:
    """Return something the function returned as a Var; a plain number becomes a constant."""
    if isinstance(leaf, Var | bool | int | float | np.ndarray | np.generic):
        return builder.as_var(leaf)
    raise GraphError(
        f"{builder.graph_name} returned a {type(leaf).__name__}; return Vars, nested in dicts, "
        "lists and tuples"
    )
