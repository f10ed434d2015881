"""Graphs, schedules, traces and plans go through pickle and copy, and come back equal."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.tree import leaves


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


COPIES = (pickled, copy.deepcopy, copy.copy)


@settings(max_examples=examples(20))
@given(training_graphs())
def test_a_copy_is_equal_and_runs_to_the_same_bits(case: Any) -> None:
    graph, args = case
    for policy in ("store_all", "sqrt_n"):
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, *args)
        for copied in COPIES:
            again = copied(schedule)
            assert again == schedule
            assert again.graph == graph
            assert copied(graph) == graph
            assert copied(result.trace) == result.trace == tc.replay(again)
            compiled = tc.compile(schedule)
            found = tc.run(again, *args)
            for value, gradients in (
                (found.value, found.gradients), compiled(*args), copied(compiled)(*args),
            ):  # fmt: skip
                for array, other in zip(
                    leaves([value, gradients]),
                    leaves([result.value, result.gradients]),
                    strict=True,
                ):
                    assert np.array_equal(array, other)


@pytest.mark.long
def test_what_plans_return_goes_through_pickle() -> None:
    graph = tc.networks.mlp(4, 8).graph()
    planned = tc.plan(graph, budget=0.8, time_limit=0.5)
    frontier = tc.frontier(graph, time_limit=0.5)
    for copied in COPIES:
        assert copied(planned) == planned
        assert copied(planned).certificate == planned.certificate
        again = copied(frontier)
        for point, other in zip(again.points, frontier.points, strict=True):
            assert (point.peak, point.cost) == (other.peak, other.cost)
            assert np.array_equal(point.order, other.order)
        assert copied(graph.operators[0].primitive) is graph.operators[0].primitive
    for large in (pickled(tc.networks.resnet50()), pickled(tc.networks.chain(20_000))):
        assert tc.replay(tc.plan(large)).evaluations == len(large.operators)


def double(xp: Any, x: Any) -> Any:
    return x + x


def same(x: tc.Spec) -> tuple[tc.Spec, ...]:
    return (x,)


OWN = tc.Primitive("double", double, same)


@pytest.mark.parametrize("copied", COPIES)
def test_a_primitive_of_ones_own_is_pickled_by_its_functions(copied: Callable[[Any], Any]) -> None:
    schedule = tc.plan(tc.build(lambda x: tc.apply(OWN, x), tc.Spec(3)))
    again = copied(schedule)
    assert again == schedule
    assert tc.run(again, np.ones(3)).value.tolist() == [2.0, 2.0, 2.0]
