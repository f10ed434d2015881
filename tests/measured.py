"""Memory of single operators: tracemalloc against the workspace that primitives declare."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves
from tinyckpt.core.graph import Operator

# NumPy's buffers of 8,192 elements for each of three operands, and 64 KiB that Python may hold.
BUFFERS = 4 * 2**16


def evaluated(graph: tc.TrainingGraph, *args: Any) -> Iterator[tuple[Operator, int, int]]:
    """Yield every operator with the bytes of its outputs, and its peak of allocated bytes."""
    values: dict[int, Any] = dict(zip(leaves(graph.arguments), args, strict=True))
    values.update(graph.constants)
    for operator in graph.operators:
        inputs = [values[data] for data in operator.inputs]
        assert operator.primitive is not None
        results: Any = None
        tracemalloc.start()
        results = operator.primitive.forward(np, *inputs, **operator.attrs)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield operator, held, peak
        results = results if isinstance(results, tuple) else (results,)
        values.update(zip(operator.outputs, results, strict=True))


def check_workspace(function: Callable[..., Any], *args: Any) -> list[Operator]:
    """Check declared workspace against tracemalloc, in a training graph of a squared norm.

    Args:
        function: returns one array.
        args: arrays, each differentiated by.

    Returns:
        The operators of the graph.
    """

    def loss(*variables: Any) -> Any:
        return tc.half_squared_norm(function(*variables))

    graph = tc.differentiate(tc.build(loss, *args), tuple(range(len(args))))
    operators = []
    for operator, held, peak in evaluated(graph, *args):
        outputs = sum(graph.data[data].nbytes for data in operator.outputs)
        assert held == pytest.approx(outputs, abs=BUFFERS), operator
        assert peak == pytest.approx(outputs + operator.workspace, abs=BUFFERS), operator
        operators.append(operator)
    return operators
