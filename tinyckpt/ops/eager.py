"""Eager evaluation: an operator that is called on arrays, outside of a trace, is computed at once.

Public operators are decorated with ``eager``. While a function is traced they add to its graph;
outside, where there is no graph to add to, the call becomes a graph of its own, which is evaluated:
``tc.tanh(np.ones(3))`` is an array. So a function over operators can be tried on arrays, line by
line, before it is traced. Nothing is differentiated or planned. It is also the one place where
Python's error about an argument becomes one that names the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from tinyckpt.base.errors import GraphError, TinyckptError
from tinyckpt.base.tracebacks import shortened
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.costs import evaluations
from tinyckpt.core.execute import execute
from tinyckpt.core.policies import plan_store_all
from tinyckpt.core.primitive import ARITHMETIC, RULE_ERRORS
from tinyckpt.core.tracing import ACTIVE_BUILDER, Builder, Var

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Make an operator compute at once, with arrays as results, when called outside of a trace.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.maximum(np.array([-1.0, 2.0]), 0)
    array([0., 2.])
    """

    @wraps(function)
    def operator(*args: P.args, **options: P.kwargs) -> R:
        traced = ACTIVE_BUILDER.get() is not None
        try:
            if traced:
                return function(*args, **options)
            return cast(R, evaluated(function, args, options))
        except TinyckptError as error:
            if traced:
                raise
            raise shortened(error) from error.__cause__
        except (*RULE_ERRORS, MemoryError) as error:  # an argument of a type that is not legal
            raise GraphError(f"{function.__name__}: {error}") from error

    return operator


def evaluated(function: Callable[..., Any], args: Any, options: Mapping[str, Any]) -> Any:
    """Call an operator on arrays, in a trace of its own, and evaluate the graph.

    The arrays are constants of the graph, which copies them: results never alias arguments.
    """
    builder = Builder(function.__name__)
    with builder.active():
        result = function(*args, **options)
        if not any(isinstance(leaf, Var) for leaf in leaves(result)):
            return result
        result = ARITHMETIC["unalias"](map_leaves(builder.as_var, result))
    graph = builder.seal((), map_leaves(lambda variable: variable.node.id, result))
    values, _ = execute(plan_store_all(graph, evaluations(graph)), {})
    values = {**graph.constants, **values}
    return map_leaves(values.__getitem__, graph.results)
