"""Graphs, schedules and traces as JSON documents, with a schema name and a version.

A document holds structure, sizes and counts, no arrays and no kernels: a graph that is loaded has
abstract operators. It plans, replays and draws; it does not execute. Nestings keep lists and
objects; a tuple becomes a list, and an integer key a string. A document that is damaged,
cut short, hostile or of a newer version gives one FormatError that says where.

The documents, version 1 (all ids are positions in their lists):

- ``tinyckpt.graph``: ``name``; ``data``, each ``[name, shape, dtype, role, nbytes, producer,
  view_of, label]``; ``operators``, each ``[name, kind, inputs, outputs, phase, adjoint_of, scope,
  flops, workspace]``; ``arguments``, ``results``, ``gradients``: nestings of data ids.
- ``tinyckpt.schedule``: ``graph``; ``steps``, each ``["compute" | "free" | "offload" | "fetch",
  id]``; ``policy``, ``options``, ``note``, ``checkpoints``.
- ``tinyckpt.trace``: ``schedule`` and one list a column, as in ``Trace``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from tinyckpt.errors import FormatError, GraphError, TinyckptError
from tinyckpt.files import write_atomically
from tinyckpt.graph import DTYPES, DataNode, Graph, Operator, Phase, Role, Spec, check_graph
from tinyckpt.replay import replay
from tinyckpt.schedule import Compute, Fetch, Free, Offload, Schedule, Step, compute, free
from tinyckpt.trace import COLUMNS, Trace
from tinyckpt.tree import leaves

VERSION = 1
LARGEST = 2**63  # bytes and extents from here on belong to no machine
STEPS: dict[str, Callable[[int], Step]] = {
    "compute": compute,
    "free": free,
    "offload": Offload,
    "fetch": Fetch,
}
STEP_NAMES = {Compute: "compute", Free: "free", Offload: "offload", Fetch: "fetch"}

# Writing -----------------------------------------------------------------------------------------


def graph_document(graph: Graph) -> dict[str, Any]:
    """Return a graph as plain JSON data."""
    return {
        "name": graph.name,
        "data": [
            [
                n.name,
                n.spec.shape,
                n.spec.dtype.name,
                n.role,
                n.nbytes,
                n.producer,
                n.view_of,
                n.label,
            ]
            for n in graph.data
        ],
        "operators": [
            [
                o.name,
                o.kind,
                o.inputs,
                o.outputs,
                o.phase,
                o.adjoint_of,
                o.scope,
                o.flops,
                o.workspace,
            ]
            for o in graph.operators
        ],
        "arguments": graph.arguments,
        "results": graph.results,
        "gradients": graph.gradients,
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as plain JSON data."""
    return {
        "graph": graph_document(schedule.graph),
        "policy": schedule.policy,
        "options": dict(schedule.options),
        "note": schedule.note,
        "checkpoints": schedule.checkpoints,
        "steps": [
            [STEP_NAMES[type(s)], s.operator if isinstance(s, Compute) else s.data]
            for s in schedule.steps
        ],
    }


def trace_document(trace: Trace) -> dict[str, Any]:
    """Return a trace as plain JSON data."""
    columns = {column: getattr(trace, column) for column in (*COLUMNS, "seconds")}
    return {"schedule": schedule_document(trace.schedule), **columns}


def write(kind: str, document: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a document beside its destination and rename it there."""
    named = {"schema": f"tinyckpt.{kind}", "version": VERSION, **document}
    text = json.dumps(named, default=plain)
    write_atomically(path, text.encode())


def plain(value: Any) -> Any:
    """Return a NumPy number as Python's, and anything else that JSON lacks as its text."""
    return value.item() if hasattr(value, "item") else str(value)


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph's structure as JSON."""
    write("graph", graph_document(graph), path)


def save_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule and its graph's structure as JSON."""
    write("schedule", schedule_document(schedule), path)


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace, its schedule and its graph's structure as JSON."""
    write("trace", trace_document(trace), path)


# Reading -----------------------------------------------------------------------------------------


class Reader:
    """Takes values out of a document, and says where one is not what it must be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def fail(self, where: str, problem: str) -> NoReturn:
        """Raise the FormatError of one place in the document."""
        raise FormatError(f"{self.path}: {where}: {problem}")

    def document(self, kind: str) -> dict[str, Any]:
        """Return the document, after checking schema and version."""
        try:
            content = json.loads(Path(self.path).read_bytes())
        except OSError as error:
            raise FormatError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{self.path} is not a complete JSON document ({error}); was the file cut short?"
            ) from error
        if not isinstance(content, dict) or content.get("schema") != f"tinyckpt.{kind}":
            found = content.get("schema") if isinstance(content, dict) else type(content).__name__
            raise FormatError(
                f"{self.path}: the schema is {str(found)[:80]!r}; expected 'tinyckpt.{kind}'"
            )
        version = content.get("version")
        if not isinstance(version, int) or version > VERSION or version < 1:
            raise FormatError(
                f"{self.path}: version {str(version)[:80]} of {content['schema']}; this tinyckpt "
                f"reads version {VERSION}; upgrade it to read newer files"
            )
        return content

    def get(self, document: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
        """Return one entry of an object."""
        if not isinstance(document, dict):
            self.fail(where, f"expected an object, got {type(document).__name__}")
        if key not in document:
            self.fail(where, f"{key!r} is missing")
        return self.check(document[key], kind, f"{where}.{key}")

    def check(self, value: Any, kind: type | tuple[type, ...], where: str) -> Any:
        """Return a value after checking its type; a bool is no int here."""
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self.fail(where, f"got {type(value).__name__}, which is not legal here")
        return value

    def row(self, value: Any, length: int, where: str) -> list[Any]:
        """Return a list of a given length."""
        row: list[Any] = self.check(value, list, where)
        if len(row) != length:
            self.fail(where, f"expected {length} entries, got {len(row)}")
        return row

    def count(self, value: Any, where: str, limit: int | None = None) -> int:
        """Return an integer of 0 or more, below the limit if there is one."""
        number: int = self.check(value, int, where)
        if number < 0 or (limit is not None and number >= limit):
            bound = "" if limit is None else f" and less than {limit}"
            self.fail(where, f"{str(number)[:80]} must be at least 0{bound}")
        return number

    def counts(self, value: Any, where: str, limit: int | None = None) -> tuple[int, ...]:
        """Return a list of integers of 0 or more."""
        items = self.check(value, list, where)
        return tuple(self.count(item, f"{where}[{i}]", limit) for i, item in enumerate(items))

    def optional(self, value: Any, where: str, limit: int) -> int | None:
        """Return an integer of 0 or more, or None."""
        return None if value is None else self.count(value, where, limit)

    def one_of(self, value: Any, legal: tuple[str, ...], where: str) -> Any:
        """Return one of some strings."""
        if value not in legal:
            self.fail(where, f"{str(value)[:80]!r} must be one of {', '.join(legal)}")
        return value


def read_graph(reader: Reader, document: Any, where: str) -> Graph:
    """Return the graph of a document."""
    data_rows = reader.get(document, "data", list, where)
    operator_rows = reader.get(document, "operators", list, where)
    counts = len(data_rows), len(operator_rows)
    graph_arguments = (
        reader.get(document, "name", str, where),
        tuple(read_data(reader, row, i, counts, where) for i, row in enumerate(data_rows)),
        tuple(read_operator(reader, row, i, counts, where) for i, row in enumerate(operator_rows)),
        tuple(reader.get(document, "arguments", list, where)),
        reader.get(document, "results", (list, dict, int, type(None)), where),
        reader.get(document, "gradients", (list, dict, int, type(None)), where),
    )
    for name, template in zip(
        ("arguments", "results", "gradients"), graph_arguments[3:], strict=True
    ):
        for leaf in leaves(template):
            reader.count(leaf, f"{where}.{name}", counts[0])
    graph = Graph(*graph_arguments)
    try:
        check_graph(graph)
    except GraphError as error:
        reader.fail(where, str(error))
    return graph


def read_data(
    reader: Reader, value: Any, index: int, counts: tuple[int, int], where: str
) -> DataNode:
    """Return one data node."""
    at = f"{where}.data[{index}]"
    name, shape, dtype, role, nbytes, producer, view_of, label = reader.row(value, 8, at)
    try:
        spec = Spec(reader.counts(shape, at, LARGEST), reader.one_of(dtype, DTYPES, at))
    except GraphError as error:
        reader.fail(at, str(error))
    if spec.nbytes >= LARGEST:
        reader.fail(at, "its shape is too large")
    return DataNode(
        index,
        reader.check(name, str, at),
        spec,
        reader.one_of(role, get_args(Role), at),
        reader.count(nbytes, at),
        reader.optional(producer, at, counts[1]),
        reader.optional(view_of, at, index),
        reader.check(label, (str, type(None)), at),
    )


def read_operator(
    reader: Reader, value: Any, index: int, counts: tuple[int, int], where: str
) -> Operator:
    """Return one operator, abstract."""
    at = f"{where}.operators[{index}]"
    name, kind, inputs, outputs, phase, adjoint, scope, flops, workspace = reader.row(value, 9, at)
    return Operator(
        index,
        reader.check(name, str, at),
        reader.check(kind, str, at),
        reader.counts(inputs, f"{at} inputs", counts[0]),
        reader.counts(outputs, f"{at} outputs", counts[0]),
        reader.one_of(phase, get_args(Phase), at),
        reader.optional(adjoint, at, counts[1]),
        reader.check(scope, str, at),
        reader.count(flops, at),
        reader.count(workspace, at),
    )


def read_schedule(reader: Reader, document: Any, where: str) -> Schedule:
    """Return the schedule of a document."""
    graph = read_graph(reader, reader.get(document, "graph", dict, where), f"{where}.graph")
    steps: list[Step] = []
    for index, value in enumerate(reader.get(document, "steps", list, where)):
        at = f"{where}.steps[{index}]"
        verb, target = reader.row(value, 2, at)
        make = STEPS[reader.one_of(verb, tuple(STEPS), at)]
        limit = len(graph.operators) if verb == "compute" else len(graph.data)
        steps.append(make(reader.count(target, at, limit)))
    return Schedule(
        graph,
        tuple(steps),
        reader.get(document, "policy", str, where),
        reader.get(document, "options", dict, where),
        reader.get(document, "note", str, where),
        reader.counts(
            reader.get(document, "checkpoints", list, where),
            f"{where}.checkpoints",
            len(graph.data),
        ),
    )


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph; its operators are abstract.

    Raises:
        FormatError: if the file is not such a document, or is damaged; says where.
    """
    reader = Reader(path)
    return read_graph(reader, reader.document("graph"), "graph")


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
    for index, value in enumerate(seconds):
        reader.check(value, (int, float), f"trace.seconds[{index}]")
    try:
        replayed = replay(schedule)
    except TinyckptError as error:
        raise FormatError(f"{path}: the schedule is not legal: {error}") from error
    trace = Trace(schedule, **columns, seconds=tuple(seconds))
    if trace != replayed:
        raise FormatError(f"{path}: the numbers are not those of its schedule; was it edited?")
    return trace
