"""What is asked of any framework, whose own package stands beside this file; it imports none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any

from tinyckpt.base.errors import BackendError, GraphError, ScheduleError
from tinyckpt.core.graph import Graph, Spec, checked_dtype
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Compute, Free, Schedule, step_text


def check_installed(package: str, framework: str) -> None:
    """Do nothing if a framework is there: asked before anything of it is imported.

    Args:
        package: the name it is imported by, which is that of the extra, too.
        framework: its name, for errors.

    Raises:
        BackendError: says what to install.
    """
    if find_spec(package) is None:
        raise BackendError(
            f"tinyckpt.interop.{package} needs {framework}, which is not installed: "
            f"pip install 'tinyckpt[{package}]'"
        )


def spec_of(shape: Iterable[int], dtype: str, dense: int, held: int | None = None) -> Spec:
    """Return shape and dtype of a value, or as many bytes where that is not what it takes.

    Args:
        shape, dtype: as the framework says them.
        dense: bytes of its elements.
        held: bytes of the memory that it owns, if those may be others.
    """
    if held in (None, dense) and is_known(dtype):
        return Spec(tuple(shape), dtype)
    return Spec((dense if held is None else held,), "uint8")


@cache
def is_known(dtype: str) -> bool:
    """Whether a dtype is one of tinyckpt's; bfloat16 needs a package of its own."""
    try:
        checked_dtype(dtype)
    except GraphError:
        return False
    return True


def check_schedule(schedule: Any, graph: Graph, framework: str) -> None:
    """Do nothing if a schedule can run as a program of a framework, which computes and frees.

    Args:
        schedule: what was given as one.
        graph: that was traced; the schedule's is this one, or equal to it, as one read from a file.
        framework: its name, for errors.

    Raises:
        ScheduleError: if it is no schedule, is of another graph, is not legal, or moves values.
    """
    if not isinstance(schedule, Schedule):
        raise ScheduleError(
            f"expected a schedule of {graph.name}, such as tc.plan(traced.graph, budget=...), got "
            f"a {type(schedule).__name__}"
        )
    if schedule.graph is not graph and schedule.graph != graph:
        raise ScheduleError(
            f"the schedule is of another graph than the traced one, {graph.name}; plan the one "
            "that trace returned"
        )
    replay(schedule)
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, Compute | Free):
            verb, name = step_text(graph, step)
            raise ScheduleError(
                f"step {position}: {verb} {name}; programs of {framework} compute and free alone"
            )


def check_traced(traced: Any, expected: type) -> None:
    """Raise a ScheduleError unless something is what a framework's ``trace`` returned."""
    if not isinstance(traced, expected):
        raise ScheduleError(f"expected what trace returned, got a {type(traced).__name__}")
