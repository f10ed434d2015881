"""Schedule execution in JAX, with optimization barriers against XLA's CSE of recomputations.

In: a schedule and the trace that it was planned on. Out: a function (value, gradients) that can be
jitted. Without the barriers XLA would merge each recomputation with the first evaluation (CSE), as
``jax.checkpoint(prevent_cse=True)`` prevents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.core.schedule import Compute, Free, Schedule
from tinyckpt.interop.importer_checks import check_schedule, check_traced
from tinyckpt.interop.jax.capture import Value
from tinyckpt.interop.jax.tracing import Traced


def step(schedule: Schedule, traced: Traced) -> Callable[..., Any]:
    """Return the function of the traced arguments that runs a schedule: (value, gradients).

    It may be called as it is, operator by operator, or under ``jax.jit``. There an optimization
    barrier makes the operands of a recomputation depend on the latest value before it, so that XLA
    neither merges it with the first evaluation nor hoists it there.

    Args:
        schedule: of ``traced.graph``.
        traced: the result of ``trace``.

    Raises:
        ScheduleError: if the schedule is none, is of another graph, is not legal, or offloads
            values; or if ``traced`` is not the result of ``trace``. When called, a GraphError if
            the arguments differ from the traced ones in nesting, shape or dtype, before anything
            runs.

    >>> import jax.numpy as jnp
    >>> import tinyckpt as tc
    >>> from tinyckpt.interop.jax import trace
    >>> w = jnp.ones(3)
    >>> found = trace(lambda w: (w * w).sum(), w)
    >>> value, gradient = step(tc.plan(found.graph, "store_all"), found)(w)
    >>> float(value), gradient.tolist()
    (3.0, [2.0, 2.0, 2.0])
    """
    check_traced(traced, Traced)
    check_schedule(schedule, traced.graph, "JAX")
    program = traced.program

    def run(*args: Any) -> Any:
        leaves, nesting = jax.tree_util.tree_flatten(args)
        if nesting != program.nestings[0]:
            raise GraphError(f"arguments nested as {nesting}; traced as {program.nestings[0]}")
        for path, variable, leaf in zip(program.paths, program.arguments, leaves, strict=True):
            check_like(leaf, variable.aval, path)
        values = dict(zip(program.arguments, leaves, strict=True)) | dict(program.constants)
        interpret(schedule, traced, values)
        results = [read(values, result) for result in program.results]
        return jax.tree_util.tree_unflatten(program.nestings[1], results)

    return run


def check_like(leaf: Any, expected: Any, path: str) -> None:
    """Raise a GraphError unless an argument leaf has the traced shape and dtype."""
    try:
        given = jax.typeof(leaf)
    except TypeError as error:
        raise GraphError(f"{path} is a {type(leaf).__name__}; traced as {expected}") from error
    if (given.shape, given.dtype) != (expected.shape, expected.dtype):
        raise GraphError(f"{path} is {given}; traced as {expected}")


def interpret(schedule: Schedule, traced: Traced, values: dict[Value, Any]) -> None:
    """Interpret the steps of a schedule on an environment of values, in place."""
    of = {
        data: value
        for operator, equation in zip(traced.graph.operators, traced.equations, strict=True)
        for data, value in zip(operator.outputs, equation.outputs, strict=True)
    }
    seen: set[int] = set()
    latest: Any = None
    for taken in schedule.steps:
        if isinstance(taken, Free):
            del values[of[taken.data]]
        elif isinstance(taken, Compute):
            equation = traced.equations[taken.operator]
            operands = [read(values, value) for value in equation.inputs]
            if taken.operator in seen:
                *operands, latest = jax.lax.optimization_barrier((*operands, latest))
            seen.add(taken.operator)
            made = equation.primitive.bind(*operands, **equation.params)
            made = made if equation.primitive.multiple_results else [made]
            values.update(zip(equation.outputs, made, strict=True))
            latest = made[0]


def read(values: dict[Value, Any], value: Any) -> Any:
    """Look up a value in the environment; a literal is its own number."""
    return value.val if isinstance(value, Literal) else values[value]
