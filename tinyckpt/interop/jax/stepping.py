"""A schedule as a JAX function: ``step``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.core.schedule import Compute, Free, Schedule
from tinyckpt.interop.frameworks import check_schedule, check_traced
from tinyckpt.interop.jax.capture import Value
from tinyckpt.interop.jax.tracing import Traced


def step(schedule: Schedule, traced: Traced) -> Callable[..., Any]:
    """Return a function of the arguments that were traced: (value, gradients), by a schedule.

    It may be run as it is, operator by operator, or under ``jax.jit``. There a barrier ties what a
    recomputation reads to what was computed before it, so that XLA neither merges it with the
    first evaluation nor moves it there.

    Args:
        schedule: of ``traced.graph``.
        traced: what ``trace`` returned.

    Raises:
        ScheduleError: if the schedule is none, is of another graph, is not legal, or moves values
            to the host; or if the second is not what ``trace`` returned. When called, a GraphError
            if arguments are not as they were traced, before anything runs.
    """
    check_traced(traced, Traced)
    check_schedule(schedule, traced.graph, "JAX")
    program = traced.program

    def run(*args: Any) -> Any:
        leaves, nesting = jax.tree_util.tree_flatten(args)
        if nesting != program.nestings[0]:
            raise GraphError(f"arguments nested as {nesting}; traced were {program.nestings[0]}")
        for path, variable, leaf in zip(program.paths, program.arguments, leaves, strict=True):
            check_like(leaf, variable.aval, path)
        values = dict(zip(program.arguments, leaves, strict=True)) | dict(program.constants)
        follow(schedule, traced, values)
        results = [read(values, result) for result in program.results]
        return jax.tree_util.tree_unflatten(program.nestings[1], results)

    return run


def check_like(leaf: Any, expected: Any, path: str) -> None:
    """Raise a GraphError unless a leaf of the arguments has the shape and dtype that was traced."""
    try:
        given = jax.typeof(leaf)
    except TypeError as error:
        raise GraphError(f"{path} is a {type(leaf).__name__}; traced was {expected}") from error
    if (given.shape, given.dtype) != (expected.shape, expected.dtype):
        raise GraphError(f"{path} is {given}; traced was {expected}")


def follow(schedule: Schedule, traced: Traced, values: dict[Value, Any]) -> None:
    """Do the steps of a schedule on the values that are there."""
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
    """Return what a value of the program is, or the number that a literal is."""
    return value.val if isinstance(value, Literal) else values[value]
