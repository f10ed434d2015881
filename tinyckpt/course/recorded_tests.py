"""The tests of a part as questions: assertions record what they compare, and compare nothing.

The tests that students run (``course/part_2/test_part_2.py``) are rewritten, so that each assertion
records its operands as data. They run so on a student's file, in a process of its own, and on the
solution; the two records are compared here. What a test draws at random is drawn from another seed
in every run. A schedule is recorded with its graph, and replayed here.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from textwrap import shorten
from types import SimpleNamespace
from typing import Any

import numpy as np

import tinyckpt as tc
from tinyckpt.core.schedule import step_text
from tinyckpt.course.mistakes import difference, first_mistake, peak_told, schedule_of
from tinyckpt.course.rows import Rows

SEEDED = ("Random", "default_rng")
STEP = ("compute", "free")
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "LtE": operator.le, "Lt": operator.lt, "GtE": operator.ge, "Gt": operator.gt,
}  # fmt: skip


def task_of(test: str) -> str:
    """Return the task of a test.

    >>> task_of("test_2_1_each_value_is_freed")
    '2.1'
    """
    return ".".join(test.split("_")[1:3])


def names_of_tests(source: str) -> list[str]:
    """Return the names of the tests in a file."""
    nodes = ast.parse(source).body
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    return [name for name in names if re.match(r"test_\d_\d_", name)]


class Rewriting(ast.NodeTransformer):
    """Assertions become calls of ``record``, and seeds the one that is given."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Replace an assertion by ``record(line, relation, locals(), operands, their source)``."""
        test = node.test
        relations = [type(each).__name__ for each in getattr(test, "ops", ())]
        relation = relations[0] if len(relations) == 1 else ""
        operands = list(map(ast.unparse, self.operands(test)))
        values = ", ".join(operands)
        code = f"record({node.lineno}, {relation!r}, locals(), [{values}], {operands})"
        return ast.copy_location(self.generic_visit(ast.parse(code).body[0]), node)

    def operands(self, test: ast.expr) -> list[ast.expr]:
        """Return what an assertion compares: both sides, or the arguments of its function."""
        if isinstance(test, ast.Compare):
            return [test.left, *test.comparators]
        if isinstance(test, ast.Call) and not isinstance(test.func, ast.Subscript):
            return [each for argument in test.args for each in self.operands(argument)]
        return [test]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace the seed of a random generator."""
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in SEEDED and node.args and isinstance(node.args[0], ast.Constant):
            node.args = [ast.Constant(self.seed)]
        return self.generic_visit(node)


def run_recorded(source: str, test: str, seed: int) -> list[Any]:
    """Run a test of a file of tests; return what its assertions record."""
    rows: list[Any] = []

    def record(
        line: int, relation: str, names: dict[str, Any], operands: list[Any], sources: list[str]
    ) -> None:
        graph = names.get("graph")
        rows.append([line, relation, [as_plain(each, graph) for each in operands], sources])

    @contextmanager
    def raises(kind: type[BaseException], match: str = "") -> Iterator[SimpleNamespace]:
        """Record, in place of ``pytest.raises``, the part of the message that matters."""
        caught, told = SimpleNamespace(value=None), "no error"
        try:
            yield caught
        except kind as error:
            found = re.search(match, str(error)[:1000])
            caught.value, told = error, found[0] if found else "an error of another message"
        record(0, "", {}, [[f"{kind.__name__} with {match!r}", told]], [""])

    tree = ast.fix_missing_locations(Rewriting(seed).visit(ast.parse(source)))
    tree.body = [
        node for node in tree.body
        if not (isinstance(node, ast.Import) and node.names[0].name == "pytest")
    ]  # fmt: skip
    pytest = SimpleNamespace(raises=raises)
    names: dict[str, Any] = {"__name__": "tests", "record": record, "pytest": pytest}
    exec(compile(tree, "tests", "exec"), names)
    rows.clear()
    names[test]()
    return rows


def as_plain(value: Any, graph: Any = None) -> Any:
    """Convert what a test compares to lists, numbers and texts.

    Sets and dicts are sorted; a graph becomes its operators; a schedule is there with its graph. An
    array without axes is a number: where ``np.ones(())`` solves a task, so does ``1.0``.
    """
    if isinstance(value, list) and value and all(is_step(each) for each in value) and graph:
        return ["a schedule", graph_data(graph), [[verb, int(index)] for verb, index in value]]
    if hasattr(value, "operators") and hasattr(value, "forward_count"):
        return graph_data(value)
    if isinstance(value, np.ndarray) and value.ndim:
        return [list(value.shape), *map(as_plain, value.ravel().tolist())]
    if isinstance(value, np.generic | np.ndarray):
        return as_plain(value.item())
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Fraction | BaseException):
        return str(value)
    if isinstance(value, dict):
        return sorted((as_plain(item) for item in value.items()), key=str)
    if isinstance(value, set | frozenset):
        return sorted((as_plain(item) for item in value), key=str)
    if hasattr(value, "kind") and hasattr(value, "output"):  # an operator of part 1
        return [value.kind, as_plain(value.inputs), value.output]
    if callable(value):
        return "a function"
    return [as_plain(item, graph) for item in value]


def is_step(value: Any) -> bool:
    """Whether a value is a step of part 2."""
    return isinstance(value, tuple) and len(value) == 2 and value[0] in STEP


def graph_data(graph: Any) -> list[Any]:
    """Return a graph of part 1 as data."""
    operators = [[op.kind, list(map(int, op.inputs)), int(op.output)] for op in graph.operators]
    return [operators, list(graph.sources), list(graph.results), int(graph.forward_count)]


# Comparing ----------------------------------------------------------------------------------------


def judge(expected: Any, got: Any) -> str:
    """Compare the records of a test on the solution and on a student's file; say what differs."""
    for index, (line, relation, best, sources) in enumerate(expected):
        if index >= len(got):
            return f"line {line} of the test is not reached"
        _, _, mine, _ = got[index]
        for one, other, source in zip(best, mine, sources, strict=True):
            is_schedule = isinstance(one, list) and one[:1] == ["a schedule"]
            found = judge_schedule(one, other) if is_schedule else difference(one, other)
            if found and not holds(relation, best, mine):
                # The message on a schedule names steps and values; others only say what they are.
                what = "" if is_schedule else f", {shorten(source, 72, placeholder=' ...')}"
                return f"line {line} of the test{what}: {found}" if line else found
    return "" if len(expected) == len(got) else "the test compares more than with the solution"


def holds(relation: str, best: Sequence[Any], mine: Sequence[Any]) -> bool:
    """Whether an order relation holds between each side of a student's and the solution's other."""
    if relation not in RELATIONS:
        return False
    sides = [(mine[0], best[1]), (best[0], mine[1])]
    if isinstance(best[0], list):  # sets
        sides = [(set(map(str, left)), set(map(str, right))) for left, right in sides]
    return all(RELATIONS[relation](left, right) for left, right in sides)


def judge_schedule(expected: Any, got: Any) -> str:
    """Replay a schedule on the solution's graph; say its first mistake, or where it differs."""
    if not isinstance(got, list) or got[:1] != ["a schedule"]:
        return difference(expected, got) or "it is no schedule"
    graph, data = named_graph(expected[1]), expected[1]
    ids = {each: place for place, each in enumerate([*data[1], *(op[2] for op in data[0])])}
    best, mine = (schedule_of(graph, steps, ids) for steps in (expected[2], got[2]))
    found = difference(expected[2], got[2])
    if not found:
        return ""
    mistake = first_mistake(mine)
    if mistake:
        return mistake
    trace, peak = tc.replay(mine), tc.replay(best).peak_nodes
    if trace.peak_nodes > peak:
        told = peak_told(trace, nodes=True)
        return f"the peak is {trace.peak_nodes} values; {peak} are enough: {told}"
    for position, (one, other) in enumerate(zip(best.steps, mine.steps, strict=False)):
        if one != other:
            told, wanted = (" ".join(step_text(graph, step)) for step in (other, one))
            return f"step {position} is {told}; expected {wanted}"
    return f"{len(mine.steps)} steps; expected {len(best.steps)}"


def named_graph(data: Sequence[Any]) -> tc.Graph:
    """Return a graph of part 1, given as data, as one of tinyckpt; values are named by operators.

    The adjoint of ``tanh_3`` is ``b_tanh_3``; if there are two, the second is ``b_tanh_3_2``.
    """
    operators, sources, results, forward = data
    producer = {output: index for index, (_, _, output) in enumerate(operators)}
    counted: Counter[str] = Counter()
    names: list[str] = []
    for kind, inputs, _ in operators:
        read = [producer[each] for each in inputs if producer.get(each, forward) < forward]
        stem = f"b_{names[max(read)]}" if len(names) >= forward and read else kind
        counted[stem] += 1
        first = stem.startswith("b_") and counted[stem] == 1
        names.append(stem if first else f"{stem}_{counted[stem]}")
    name = {each: f"source {each}" for each in sources} | dict(zip(producer, names, strict=True))
    made = Rows(list(name.values())[: len(sources)], 8)
    for index, (_, inputs, output) in enumerate(operators):
        adjoint = min(producer.get(each, 0) for each in inputs) if index >= forward else None
        made.add(names[index], [name[each] for each in inputs], [(name[output], 8)], 1, adjoint)
    return made.graph("your graph", [name[each] for each in results])
