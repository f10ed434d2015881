"""Checks shared by the PyTorch and JAX importers: installation, dtypes, schedules, errors.

This module imports no framework; each framework's package stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any

from tinyckpt.base.errors import BackendError, GraphError, ScheduleError
from tinyckpt.base.spec import Spec, checked_dtype
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Compute, Free, Schedule, step_text


def check_installed(package: str, framework: str) -> None:
    """Raise a BackendError unless a framework is installed; called before any import of it.

    Args:
        package: the name that it is imported by, which is also the name of the extra.
        framework: the framework's name, for errors.

    Raises:
        BackendError: if the package is absent; says what to install.
    """
    if find_spec(package) is None:
        raise BackendError(
            f"tinyckpt.interop.{package} needs {framework}, which is not installed: "
            f"pip install 'tinyckpt[{package}]'"
        )


def spec_of(shape: Iterable[int], dtype: str, dense: int, storage_bytes: int | None = None) -> Spec:
    """Return the Spec of a framework's value; raw bytes if its storage or dtype is not tinyckpt's.

    Args:
        shape, dtype: as the framework reports them.
        dense: bytes of its elements.
        storage_bytes: bytes of the storage that it owns, where that may differ from ``dense``.
    """
    if storage_bytes in (None, dense) and is_known(dtype):
        return Spec(tuple(shape), dtype)
    return Spec((dense if storage_bytes is None else storage_bytes,), "uint8")


@cache
def is_known(dtype: str) -> bool:
    """Whether tinyckpt has a dtype; bfloat16 needs a package of its own."""
    try:
        checked_dtype(dtype)
    except GraphError:
        return False
    return True


def check_schedule(schedule: Any, graph: Graph, framework: str) -> None:
    """Raise unless a schedule can run as a program of a framework, which only computes and frees.

    Args:
        schedule: the argument that the caller passed as one.
        graph: the traced graph; the schedule's must be the same object or equal to it, as one read
            from a file is.
        framework: the framework's name, for errors.

    Raises:
        ScheduleError: if it is no schedule, is of another graph, is not legal, or moves values
            (offload, fetch).
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
                f"step {position}: {verb} {name}; programs of {framework} only compute and free"
            )


def error_text(error: BaseException, most: int = 200) -> str:
    """Return the kind and the message of a framework's exception in one line, for another error.

    Args:
        error: the exception.
        most: characters of its message.

    >>> error_text(ValueError("shapes  differ: 2 and 3"), most=20)
    'ValueError: shapes differ: 2 and'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"


def check_traced(traced: Any, expected: type) -> None:
    """Raise a ScheduleError unless an object is the result of a framework's ``trace``."""
    if not isinstance(traced, expected):
        raise ScheduleError(f"expected the result of trace, got a {type(traced).__name__}")
