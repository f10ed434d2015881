"""Schedules and traces as JSON (schemas ``tinyckpt.schedule``, ``tinyckpt.trace``).

The documents, version 2 (ids are positions in the lists of the graph):

- ``tinyckpt.graph``: see ``tinyckpt.documents.graphs``.
- ``tinyckpt.schedule``: ``graph``; ``steps``, each ``["compute" | "update", id of an operator]``,
  ``["free" | "offload" | "fetch", id of a data node]`` or ``["inplace", id of an operator, id of
  the data node that it overwrites]``; ``policy``, ``options``, ``note``,
  ``checkpoints``. An option that is a fraction is ``{"fraction": [numerator, denominator]}``.
- ``tinyckpt.trace``: ``schedule`` and one list per column of ``Trace``.

They contain no arrays and no kernels: a loaded schedule replays and draws; it executes if it is
loaded with the graph that it was planned for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tinyckpt.base.errors import FormatError, TinyckptError, expect
from tinyckpt.base.tree import leaves
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Fetch,
    Offload,
    Schedule,
    Step,
    compute,
    free,
    update,
)
from tinyckpt.core.trace import COLUMNS, Trace
from tinyckpt.documents.graphs import graph_document, load_graph, read_graph, save_graph
from tinyckpt.documents.json_reader import Reader, write

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

# Writing -----------------------------------------------------------------------------------------


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Convert a schedule to JSON data."""
    return {
        "graph": graph_document(schedule.graph),
        "policy": schedule.policy,
        "options": {name: written(value) for name, value in schedule.options.items()},
        "note": schedule.note,
        "checkpoints": schedule.checkpoints,
        "steps": list(map(step_document, schedule.steps)),
    }


def step_document(step: Step) -> list[Any]:
    """Convert a step to JSON data."""
    target = step.operator if isinstance(step, EVALUATIONS) else step.data
    over = [step.data] if isinstance(step, InPlace) else []
    return [type(step).__name__.lower(), target, *over]


def written(option: Any) -> Any:
    """Convert an option to JSON data; types that JSON lacks, fractions excepted, become text."""
    if isinstance(option, Fraction):
        return {"fraction": [option.numerator, option.denominator]}
    return option


def trace_document(trace: Trace) -> dict[str, Any]:
    """Convert a trace to JSON data."""
    columns = {column: getattr(trace, column) for column in (*COLUMNS, "seconds")}
    return {"schedule": schedule_document(trace.schedule), **columns}


def save_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule and its graph's structure as JSON.

    >>> import tempfile, tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(4), "sqrt_n")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_schedule(schedule, f"{folder}/schedule.json")
    ...     tc.load_schedule(f"{folder}/schedule.json").steps == schedule.steps
    True
    """
    expect(schedule, Schedule)
    write("schedule", schedule_document(schedule), path)


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace, its schedule and its graph's structure as JSON.

    >>> import tempfile, tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_trace(trace, f"{folder}/trace.json")
    ...     tc.load_trace(f"{folder}/trace.json").peak_bytes == trace.peak_bytes
    True
    """
    expect(trace, Trace)
    write("trace", trace_document(trace), path)


# Reading -----------------------------------------------------------------------------------------


def read_schedule(reader: Reader, document: Any, where: str) -> Schedule:
    """Parse the schedule of a document."""
    graph = read_graph(reader, reader.get(document, "graph", dict, where), f"{where}.graph")
    limits = {  # of the id of a step: an operator's or a data node's
        verb: len(graph.operators if isinstance(make(0), EVALUATIONS) else graph.data)
        for verb, make in STEPS.items()
    }
    steps: list[Step] = []
    for index, value in enumerate(reader.get(document, "steps", list, where)):
        at = f"{where}.steps[{index}]"
        if isinstance(value, list) and value[:1] == ["inplace"]:
            _, target, over = reader.row(value, 3, at)
            operator = reader.count(target, at, len(graph.operators))
            steps.append(InPlace(operator, reader.count(over, at, len(graph.data))))
            continue
        verb, target = reader.row(value, 2, at)
        make = STEPS[reader.one_of(verb, tuple(STEPS), at)]
        steps.append(make(reader.count(target, at, limits[verb])))
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
    """Parse the options of a document; fractions are restored."""
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
        FormatError: if the file is not such a document, is damaged, or is for another graph.

    >>> import tempfile, tinyckpt as tc
    >>> graph = tc.networks.chain(4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_schedule(tc.plan(graph, "sqrt_n"), f"{folder}/schedule.json")
    ...     tc.load_schedule(f"{folder}/schedule.json", graph).graph is graph
    True
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
    """Return the structure that graphs must share for a schedule of one to be legal for the other.

    Attributes such as axes are not in the documents: equality is by shapes and names.
    """
    nestings = (graph.arguments, graph.results, graph.gradients)
    return graph.data, graph.operators, [leaves(nesting) for nesting in nestings]


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace, and verify its numbers by replaying its schedule.

    Raises:
        FormatError: if the file is not such a document, is damaged, or its numbers are not those
            of its schedule.

    >>> import tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_trace(tc.replay(tc.plan(tc.networks.chain(4))), f"{folder}/trace.json")
    ...     tc.load_trace(f"{folder}/trace.json").evaluations
    9
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
