"""Mutation testing of schedules: a mutant is refused, or computes bitwise equal results.

No machine may return a number that the legal schedule does not: where ``replay`` finds a mutant
illegal, ``execute`` and ``compile`` raise a ScheduleError too; where it finds it legal, they agree
with the original to the bit.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves
from tinyckpt.core.execute import execute

POLICIES = ("store_all", "recompute_all", "sqrt_n")
MUTANTS = 20  # of each schedule: 2,000 in the default profile, 40,000 in the deep one
Steps = tuple[Any, ...]


def with_moves(schedule: tc.Schedule, draw: Any) -> Steps:
    """Return the steps with some values moved to the host while nothing reads them."""
    graph, steps = schedule.graph, list(schedule.steps)
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(steps) - 1))
        resident = sorted(tc.replay(tc.Schedule(graph, tuple(steps), "")).resident_at(position))
        data = draw(st.sampled_from(resident or [None]))
        if data is None:
            continue
        back = next(
            (
                later
                for later in range(position + 1, len(steps))
                if touches(graph, steps[later], data)
            ),
            len(steps),
        )
        steps.insert(back, tc.Fetch(data))
        steps.insert(position + 1, tc.Offload(data))
    return tuple(steps)


def touches(graph: tc.Graph, step: Any, data: int) -> bool:
    """Whether a step reads or moves a value, or makes a view of it."""
    if isinstance(step, tc.Compute):
        return data in graph.operators[step.operator].inputs
    return bool(step.data == data)


def mutant(graph: tc.Graph, steps: Steps, draw: Any) -> Steps:
    """Return the steps with one thing changed."""
    mutated = list(steps)
    place = draw(st.integers(0, len(steps) - 1))
    other = draw(st.integers(0, len(steps) - 1))
    kind = draw(st.sampled_from(("delete", "duplicate", "copy", "swap", "operator", "data")))
    if kind == "delete":
        del mutated[place]
    elif kind == "duplicate":
        mutated.insert(place, mutated[place])
    elif kind == "copy":
        mutated.insert(other, mutated[place])
    elif kind == "swap":
        mutated[place], mutated[other] = mutated[other], mutated[place]
    elif kind == "operator":
        mutated[place] = tc.Compute(draw(st.integers(0, len(graph.operators) - 1)))
    else:
        step = draw(st.sampled_from((tc.Free, tc.Free, tc.Offload, tc.Fetch)))
        mutated[place] = step(draw(st.integers(0, len(graph.data) - 1)))
    return tuple(mutated)


@settings(max_examples=examples(50))
@given(training_graphs(), st.sampled_from(POLICIES), st.data())
def test_mutant_is_refused_or_computes_equal_results(case: Any, policy: str, data: Any) -> None:
    graph, args = case
    sources = dict(zip(leaves(graph.arguments), leaves(args), strict=True))
    steps = with_moves(tc.plan(graph, policy), data.draw)
    expected, _ = execute(tc.Schedule(graph, steps, policy), sources)
    for _ in range(MUTANTS):
        schedule = tc.Schedule(graph, mutant(graph, steps, data.draw), "mutant")
        try:
            trace = tc.replay(schedule)
        except tc.ScheduleError:
            with pytest.raises(tc.ScheduleError):
                execute(schedule, sources)
            with pytest.raises(tc.ScheduleError):
                tc.compile(schedule)
            continue
        found, measured = execute(schedule, sources)
        assert measured == trace
        compiled = leaves(list(tc.compile(schedule)(*args)))
        by_id = dict(zip(leaves([graph.results, graph.gradients]), compiled, strict=True))
        for output, array in expected.items():
            for other in (found[output], by_id[output]):
                assert other.dtype == array.dtype
                assert np.array_equal(other, array, equal_nan=True)


@pytest.mark.parametrize("function", [tc.where, lambda c, x, y: tc.where(x > y, x, y)])
def test_execute_refuses_freed_inputs(function: Any) -> None:
    # NumPy takes None for a number, a condition, or an object to compare with.
    def loss(c: Any, x: Any, y: Any) -> Any:
        return tc.sum(function(c > 0, x * 2.0, y * 3.0))

    args = (np.array([1.0, -1.0]), np.ones(2), np.ones(2))
    graph = tc.build(loss, *args)
    steps = tc.plan(graph).steps
    for operator in graph.operators:
        for name in {graph.data[data].name for data in operator.inputs if
                     graph.data[data].producer is not None}:  # fmt: skip
            freed = next(node.id for node in graph.data if node.name == name)
            place = steps.index(tc.Compute(operator.id))
            schedule = tc.Schedule(graph, (*steps[:place], tc.Free(freed), *steps[place:]), "early")
            with pytest.raises(
                tc.ScheduleError,
                match=f"compute {operator.name} needs {name}, which is not resident",
            ):
                tc.run(schedule, *args)
