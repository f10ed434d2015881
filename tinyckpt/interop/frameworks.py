"""What is asked of any framework, whose own package stands beside this file; it imports none."""

from __future__ import annotations

from typing import Any

from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.replay import replay
from tinyckpt.schedule import Compute, Free, Schedule, step_text


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
