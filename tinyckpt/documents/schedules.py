"""Schedules and traces as JSON documents.

The documents, version 2 (ids are positions in the lists of the graph):

- ``tinyckpt.graph``: see ``tinyckpt.documents.graphs``.
- ``tinyckpt.schedule``: ``graph``; ``steps``, each ``["compute" | "update", id of an operator]`` or
  ``["free" | "offload" | "fetch", id of a data node]``; ``policy``, ``options``, ``note``,
  ``checkpoints``. An option that is a fraction is ``{"fraction": [above, below]}``.
- ``tinyckpt.trace``: ``schedule`` and one list a column, as in ``Trace``.

No arrays and no kernels are in them: a schedule that is read plans, replays and draws; it executes
if it is given the graph that it was made for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tinyckpt.base.errors import FormatError, TinyckptError
from tinyckpt.base.tree import leaves
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Compute,
    Fetch,
    Free,
    Offload,
    Schedule,
    Step,
    Update,
    compute,
    free,
    update,
)
from tinyckpt.core.trace import COLUMNS, Trace
from tinyckpt.documents.graphs import graph_document, load_graph, read_graph, save_graph
from tinyckpt.documents.reader import Reader, write

__all__ = [
    "load_graph",
    "load_schedule",
    "load_trace",
    "save_graph",
    "save_schedule",
    "save_trace",
]

STEPS: dict[str, Callable[[int], Step]] = {
    "compute": compute,
    "update": update,
    "free": free,
    "offload": Offload,
    "fetch": Fetch,
}
EVALUATED = (compute, update)  # they name an operator; the others name a data node
STEP_NAMES = {
    Compute: "compute",
    Update: "update",
    Free: "free",
    Offload: "offload",
    Fetch: "fetch",
}

# Writing -----------------------------------------------------------------------------------------


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as plain JSON data."""
    return {
        "graph": graph_document(schedule.graph),
        "policy": schedule.policy,
        "options": {name: written(value) for name, value in schedule.options.items()},
        "note": schedule.note,
        "checkpoints": schedule.checkpoints,
        "steps": [
            [STEP_NAMES[type(s)], s.operator if isinstance(s, EVALUATIONS) else s.data]
            for s in schedule.steps
        ],
    }


def written(option: Any) -> Any:
    """Return an option as JSON data; what JSON lacks, but for fractions, is written as text."""
    if isinstance(option, Fraction):
        return {"fraction": [option.numerator, option.denominator]}
    return option


def trace_document(trace: Trace) -> dict[str, Any]:
    """Return a trace as plain JSON data."""
    columns = {column: getattr(trace, column) for column in (*COLUMNS, "seconds")}
    return {"schedule": schedule_document(trace.schedule), **columns}


def save_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule and its graph's structure as JSON."""
    write("schedule", schedule_document(schedule), path)


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace, its schedule and its graph's structure as JSON."""
    write("trace", trace_document(trace), path)


# Reading -----------------------------------------------------------------------------------------


def read_schedule(reader: Reader, document: Any, where: str) -> Schedule:
    """Return the schedule of a document."""
    graph = read_graph(reader, reader.get(document, "graph", dict, where), f"{where}.graph")
    steps: list[Step] = []
    for index, value in enumerate(reader.get(document, "steps", list, where)):
        at = f"{where}.steps[{index}]"
        verb, target = reader.row(value, 2, at)
        make = STEPS[reader.one_of(verb, tuple(STEPS), at)]
        limit = len(graph.operators) if make in EVALUATED else len(graph.data)
        steps.append(make(reader.count(target, at, limit)))
    return Schedule(
        graph,
        tuple(steps),
        reader.get(document, "policy", str, where),
        read_options(reader, reader.get(document, "options", dict, where), f"{where}.options"),
        reader.get(document, "note", str, where),
        reader.counts(
            reader.get(document, "checkpoints", list, where),
            f"{where}.checkpoints",
            len(graph.data),
        ),
    )


def read_options(reader: Reader, options: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the options of a document."""
    read = {}
    for name, option in options.items():
        read[name] = option
        if isinstance(option, dict) and set(option) == {"fraction"}:
            at = f"{where}.{name}.fraction"
            above, below = reader.row(option["fraction"], 2, at)
            reader.check(above, int, f"{at}[0]")
            if not reader.count(below, f"{at}[1]"):
                reader.fail(f"{at}[1]", "0 is below no fraction")
            read[name] = Fraction(above, below)
    return read


def load_schedule(path: str | os.PathLike[str], graph: Graph | None = None) -> Schedule:
    """Read a schedule, for its own abstract graph or for an equal graph that can execute.

    Raises:
        FormatError: if the file is not such a document, is damaged, or is about another graph.
    """
    reader = Reader(path)
    schedule = read_schedule(reader, reader.document("schedule"), "schedule")
    if graph is None:
        return schedule
    if shape_of(graph) != shape_of(schedule.graph):
        raise FormatError(
            f"{path}: the schedule is for another graph than {graph.name}: "
            f"{len(schedule.graph.operators)} operators against {len(graph.operators)}, or other "
            "shapes or names"
        )
    return replace(schedule, graph=graph)


def shape_of(graph: Graph) -> tuple[Any, ...]:
    """Return what two graphs must share for one's schedule to be the other's.

    Attributes such as axes are not in the documents; shapes and names have to tell.
    """
    nestings = (graph.arguments, graph.results, graph.gradients)
    return graph.data, graph.operators, [leaves(nesting) for nesting in nestings]


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace, and replay its schedule to see that the numbers are its own.

    Raises:
        FormatError: if the file is not such a document, is damaged, or its numbers are not those
            of its schedule.
    """
    reader = Reader(path)
    document = reader.document("trace")
    schedule = read_schedule(reader, reader.get(document, "schedule", dict, "trace"), "schedule")
    columns = {
        column: reader.counts(reader.get(document, column, list, "trace"), f"trace.{column}")
        for column in COLUMNS
    }
    seconds = reader.get(document, "seconds", list, "trace")
    if seconds:  # none, where they were not measured
        reader.row(seconds, len(schedule.steps), "trace.seconds")
    for index, value in enumerate(seconds):
        reader.number(value, f"trace.seconds[{index}]")
    try:
        replayed = replay(schedule)
    except TinyckptError as error:
        raise FormatError(f"{path}: the schedule is not legal: {error}") from error
    trace = Trace(schedule, **columns, seconds=tuple(seconds))
    if trace != replayed:
        raise FormatError(f"{path}: the numbers are not those of its schedule; was it edited?")
    return trace
