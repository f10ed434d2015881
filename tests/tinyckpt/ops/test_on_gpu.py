"""Every operator on CuPy: NumPy's results to rounding; the same bits run, compiled, in a buffer."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.ops.cases import CASES, training_graph
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.backend import get_backend


def failure_of(graph: tc.TrainingGraph, args: tuple[Any, ...]) -> str | None:
    """Say what differs of a graph's results; None if nothing does."""
    backend = get_backend("cupy")
    schedule = tc.plan(graph)
    host = tc.run(schedule, *args, check_nan=False)
    found = tc.run(schedule, *args, backend=backend, check_nan=False)
    if found.trace != tc.replay(schedule):
        return "another trace than that of replay"
    expected = leaves([host.value, host.gradients])
    first = [backend.to_host(each) for each in leaves([found.value, found.gradients])]
    for array, other in zip(first, expected, strict=True):
        if array.dtype != other.dtype or array.shape != other.shape:
            return f"{array.dtype}{array.shape} instead of {other.dtype}{other.shape}"
        if not np.allclose(array, other, rtol=1e-6, atol=1e-8, equal_nan=True):
            return f"off by {np.abs(array - other).max():.1e}"
    moved = map_leaves(backend.to_device, args)
    for has_arena in (False, True):
        program = tc.compile(schedule, backend, arena=has_arena)
        for _ in range(2):
            again = [backend.to_host(each) for each in leaves(list(program(*moved)))]
            if [each.tobytes() for each in again] != [each.tobytes() for each in first]:
                return f"other bits of the program, arena={has_arena}"
    return None


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_every_operator_gives_numpys_results_on_a_gpu() -> None:
    failures = {}
    for name, (function, args) in CASES.items():
        try:
            failure = failure_of(training_graph(function, args), tuple(map(np.asarray, args)))
        except Exception as error:  # each is reported by its name
            failure = f"{type(error).__name__}: {str(error)[:300]}"
        if failure:
            failures[name] = failure
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())
