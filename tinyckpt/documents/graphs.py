"""Computation graphs as JSON (schema ``tinyckpt.graph``): import of profiled models, and export.

The document ``tinyckpt.graph``, version 2, is meant to be written by other programs;
docs/profile.json is a small one. In short::

    {"schema": "tinyckpt.graph", "version": 2, "name": "my model",
     "data": [{"name": "x", "bytes": 4096}, {"name": "h", "bytes": 8192}, ...],
     "operators": [{"name": "layer1", "inputs": ["x"], "outputs": ["h"], "cost": 3.5}, ...,
                   {"name": "layer1_grad", "inputs": ["x", "dh"], "outputs": ["dx"],
                    "phase": "backward", "adjoint_of": "layer1", "cost": 7.0}],
     "gradients": ["dx"]}

- A value of ``data`` has a unique ``name`` and either ``bytes`` or ``shape`` and ``dtype``.
  Optional: ``role`` (input, parameter or constant of a source; activation or cotangent of an
  operator's output), ``view_of`` (the value whose storage it shares), ``label`` (a name for
  policies).
- An entry of ``operators``, in a topological order, forward operators first, has a unique ``name``,
  ``inputs`` and ``outputs`` (names of values). Optional: ``kind``, ``adjoint_of`` (the forward
  operator whose vjp it is; an operator that has it is backward), ``phase`` (forward or backward),
  ``scope``, ``regions`` (ids of the enclosing checkpointed calls), ``flops``, ``workspace`` (bytes
  beyond inputs and outputs), ``cost`` (of one evaluation, in any unit, for all operators or none;
  the objective of plans), ``once`` (true for an operator that may not be evaluated twice: every
  plan saves its outputs until their last use).
- ``results`` and ``gradients`` are nestings of names: the graph's outputs. ``arguments``, a list,
  is optional.

A loaded graph has abstract operators: it plans, replays and draws, and refuses to execute.
Attributes such as axes are not in the document; a tuple of a nesting is loaded as a list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from tinyckpt.base.display import printable
from tinyckpt.base.errors import FormatError, GraphError, expect
from tinyckpt.base.quantities import LARGEST_MEMORY
from tinyckpt.base.spec import DTYPES, Spec
from tinyckpt.base.tree import Template, map_leaves
from tinyckpt.core.graph import SOURCES, DataNode, Graph, Operator, Phase, Role
from tinyckpt.documents.json_reader import LARGEST, Reader, read_bytes, write
from tinyckpt.documents.verifier import check_graph

DOCUMENT_KEYS = (
    "schema", "version", "name", "data", "operators", "arguments", "results", "gradients",
)  # fmt: skip
DATA_KEYS = ("name", "bytes", "shape", "dtype", "role", "view_of", "label")
OPERATOR_KEYS = (
    "name", "inputs", "outputs", "kind", "phase", "adjoint_of", "scope", "regions", "flops",
    "workspace", "cost", "once",
)  # fmt: skip

# Writing -----------------------------------------------------------------------------------------


def graph_document(graph: Graph) -> dict[str, Any]:
    """Convert a graph to JSON data; entries equal to their defaults are omitted."""
    names = [node.name for node in graph.data]
    name_of = names.__getitem__
    return {
        "name": graph.name,
        "data": [data_entry(graph, node) for node in graph.data],
        "operators": [operator_entry(graph, operator) for operator in graph.operators],
        "arguments": map_leaves(name_of, graph.arguments),
        "results": map_leaves(name_of, graph.results),
        "gradients": map_leaves(name_of, graph.gradients),
    }


def data_entry(graph: Graph, node: DataNode) -> dict[str, Any]:
    """Return the JSON entry of a data node."""
    entry: dict[str, Any] = {
        "name": node.name,
        "shape": node.spec.shape,
        "dtype": node.spec.dtype.name,
        "role": node.role,
    }
    if node.view_of is not None:
        entry["view_of"] = graph.data[node.view_of].name
    if node.label is not None:
        entry["label"] = node.label
    return entry


def operator_entry(graph: Graph, operator: Operator) -> dict[str, Any]:
    """Return the JSON entry of an operator."""
    adjoint_of = operator.adjoint_of
    entry = {
        "name": operator.name,
        "kind": operator.kind,
        "inputs": [graph.data[data].name for data in operator.inputs],
        "outputs": [graph.data[data].name for data in operator.outputs],
        "phase": operator.phase,
    }
    optional = {
        "adjoint_of": None if adjoint_of is None else graph.operators[adjoint_of].name,
        "scope": operator.scope,
        "regions": operator.regions,
        "flops": operator.flops,
        "workspace": operator.workspace,
        "cost": operator.cost,
        "once": operator.once,
    }
    empty = ("", (), 0)  # False too, since it equals 0
    kept = {k: v for k, v in optional.items() if v is not None and (k == "cost" or v not in empty)}
    return {**entry, **kept}


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph's structure as JSON; kernels and attributes are not written.

    >>> import tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save_graph(tc.networks.chain(2), f"{folder}/chain.json")
    ...     graph = tc.load_graph(f"{folder}/chain.json")
    >>> graph.name, len(graph.operators)
    ('chain:2', 5)
    """
    expect(graph, Graph)
    write("graph", graph_document(graph), path)


# Reading -----------------------------------------------------------------------------------------


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph; its operators are abstract.

    Raises:
        FormatError: if the file is not such a document, or is damaged; says where.

    >>> import json, pathlib, tempfile, tinyckpt as tc
    >>> profile = {
    ...     "schema": "tinyckpt.graph", "version": 2, "name": "one layer", "gradients": ["dx"],
    ...     "data": [{"name": name, "bytes": 4096} for name in ("x", "h", "dx")],
    ...     "operators": [
    ...         {"name": "layer", "inputs": ["x"], "outputs": ["h"]},
    ...         {"name": "vjp", "inputs": ["h"], "outputs": ["dx"], "adjoint_of": "layer"},
    ...     ],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "profile.json"
    ...     _ = path.write_text(json.dumps(profile))
    ...     graph = tc.load_graph(path)
    >>> tc.replay(tc.plan(graph)).peak_bytes
    8192
    """
    reader = Reader(path)
    return read_graph(reader, reader.document("graph"), "graph")


def read_graph(reader: Reader, document: Any, where: str) -> Graph:
    """Parse and validate the graph of a document."""
    data_rows = reader.get(document, "data", list, where)
    operator_rows = reader.get(document, "operators", list, where)
    data_ids = ids_by_name(reader, data_rows, f"{where}.data")
    operator_ids = ids_by_name(reader, operator_rows, f"{where}.operators")
    reader.only(document, DOCUMENT_KEYS, where)
    operators = tuple(
        read_operator(reader, row, i, data_ids, operator_ids, f"{where}.operators[{i}]")
        for i, row in enumerate(operator_rows)
    )
    producer: dict[int, Operator] = {}
    for operator in operators:
        at = f"{where}.operators[{operator.id}].outputs"
        if not operator.outputs:
            reader.fail(at, "an operator needs at least one output")
        for output in operator.outputs:
            if producer.setdefault(output, operator) is not operator:
                reader.fail(at, f"{data_rows[output]['name'][:80]!r} is an output of two operators")
    costed = sum(operator.cost is not None for operator in operators)
    if 0 < costed < len(operators):
        reader.fail(f"{where}.operators", f"{costed} of {len(operators)} have a cost: all or none")
    # Values may be listed in any order; in a Graph they are in order of production.
    new_ids = production_order(operators, len(data_rows))
    if new_ids is not None:
        data_rows = [data_rows[old] for old in sorted(range(len(new_ids)), key=new_ids.__getitem__)]
        data_ids = {name: new_ids[old] for name, old in data_ids.items()}
        operators = tuple(
            replace(
                operator,
                inputs=tuple([new_ids[data] for data in operator.inputs]),
                outputs=tuple([new_ids[data] for data in operator.outputs]),
            )
            for operator in operators
        )
        producer = {new_ids[data]: operators[made.id] for data, made in producer.items()}
    data = tuple(
        read_data(reader, row, i, data_ids, producer.get(i), f"{where}.data[{i}]")
        for i, row in enumerate(data_rows)
    )

    def template(name: str, kind: tuple[type, ...], default: Any) -> Template:
        nesting = reader.given(document, name, kind, default, where)
        at = f"{where}.{name}"
        try:
            return map_leaves(lambda leaf: id_of(reader, leaf, data_ids, at), nesting)
        except GraphError:
            reader.fail(at, "it is nested too deeply")

    memory = sum(node.spec.nbytes for node in data)
    memory += sum(operator.workspace for operator in operators)
    if memory >= LARGEST_MEMORY:
        reader.fail(where, "values and workspaces together have too many bytes")
    kinds = (list, dict, str, type(None))
    name = reader.get(document, "name", str, where)
    arguments = template("arguments", (list,), [])
    results, gradients = template("results", kinds, None), template("gradients", kinds, None)
    graph = Graph(name, data, operators, tuple(arguments), results, gradients)
    if not graph.outputs:
        reader.fail(where, "results and gradients name no value: there is nothing to compute")
    try:
        check_graph(graph)
    except GraphError as error:
        reader.fail(where, str(error))
    return graph


def production_order(operators: Sequence[Operator], count: int) -> list[int] | None:
    """Return new ids of the values, sources first, in order of production; None if they are so."""
    made = {data for operator in operators for data in operator.outputs}
    if all(
        data < min(operator.outputs)
        for operator in operators
        for data in operator.inputs
        if data in made
    ):
        return None
    sources = [data for data in range(count) if data not in made]
    order = [*sources, *(data for operator in operators for data in operator.outputs)]
    new_ids = [0] * count
    for place, data in enumerate(order):
        new_ids[data] = place
    return new_ids


def ids_by_name(reader: Reader, rows: list[Any], where: str) -> dict[str, int]:
    """Return the id of each name; a duplicate name is an error."""
    numbers: dict[str, int] = {}
    for index, row in enumerate(rows):
        name = printable(reader.get(row, "name", str, f"{where}[{index}]"))
        if numbers.setdefault(name, index) != index:
            reader.fail(f"{where}[{index}]", f"the name {name[:80]!r} is taken")
    return numbers


def id_of(reader: Reader, name: Any, numbers: Mapping[str, int], where: str) -> int:
    """Return the id of a name."""
    known = printable(name) if isinstance(name, str) else ""
    if known not in numbers:
        reader.fail(where, f"{str(name)[:80]!r} is not the name of anything in this document")
    return numbers[known]


def read_data(
    reader: Reader,
    row: Any,
    index: int,
    ids: Mapping[str, int],
    producer: Operator | None,
    at: str,
) -> DataNode:
    """Parse one data node."""
    reader.only(row, DATA_KEYS, at)
    shape: tuple[int, ...]
    if "bytes" in row:
        shape, dtype = (reader.count(row["bytes"], f"{at}.bytes", LARGEST),), "uint8"
    elif "shape" not in row:
        reader.fail(at, "'bytes' is missing, or 'shape' and 'dtype'")
    else:
        shape = reader.counts(reader.get(row, "shape", list, at), f"{at}.shape", LARGEST)
        dtype = reader.one_of(reader.get(row, "dtype", str, at), DTYPES, f"{at}.dtype")
    spec = Spec(shape, dtype)
    if spec.nbytes >= LARGEST:
        reader.fail(at, "its shape is too large")
    made: Role = "input"
    if producer is not None:
        made = "activation" if producer.phase == "forward" else "cotangent"
    role = reader.one_of(reader.given(row, "role", str, made, at), get_args(Role), f"{at}.role")
    if (role in SOURCES) != (producer is None):
        maker = "no operator makes it" if producer is None else f"{producer.name} makes it"
        reader.fail(f"{at}.role", f"{role} cannot be, since {maker}")
    base = row.get("view_of")
    view_of = None if base is None else id_of(reader, base, ids, f"{at}.view_of")
    return DataNode(
        index,
        row["name"],
        spec,
        role,
        spec.nbytes if view_of is None else 0,
        None if producer is None else producer.id,
        view_of,
        reader.given(row, "label", (str, type(None)), None, at),
    )


def read_operator(
    reader: Reader,
    row: Any,
    index: int,
    data_ids: Mapping[str, int],
    operator_ids: Mapping[str, int],
    at: str,
) -> Operator:
    """Parse one operator, abstract."""
    reader.only(row, OPERATOR_KEYS, at)

    def values(key: str) -> tuple[int, ...]:
        names = reader.get(row, key, list, at)
        return tuple(id_of(reader, name, data_ids, f"{at}.{key}") for name in names)

    def count(key: str) -> int:
        return reader.count(reader.given(row, key, int, 0, at), f"{at}.{key}", LARGEST)

    adjoint_of, cost = row.get("adjoint_of"), row.get("cost")
    phase = reader.given(row, "phase", str, "forward" if adjoint_of is None else "backward", at)
    return Operator(
        index,
        row["name"],
        reader.given(row, "kind", str, row["name"], at),
        values("inputs"),
        values("outputs"),
        reader.one_of(phase, get_args(Phase), f"{at}.phase"),
        None if adjoint_of is None else id_of(reader, adjoint_of, operator_ids, f"{at}.adjoint_of"),
        reader.given(row, "scope", str, "", at),
        count("flops"),
        count("workspace"),
        regions=reader.counts(reader.given(row, "regions", list, [], at), f"{at}.regions"),
        cost=None if cost is None else reader.number(cost, f"{at}.cost"),
        once=reader.given(row, "once", bool, False, at),
    )


def is_graph(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a JSON document with the schema of a graph."""
    try:
        content = Reader(path).parse(read_bytes(path))
    except FormatError:
        return False
    return isinstance(content, dict) and content.get("schema") == "tinyckpt.graph"
