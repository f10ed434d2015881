"""Random layered graphs have the size and density of the published instances."""

from random import Random

import pytest

import tinyckpt as tc
from tests.layered_graphs import VARIABILITY, layered_graph, layers_of

# Edges of the instances in the Moccasin paper's table, by their numbers of operators.
PUBLISHED = {100: 236, 250: 944, 500: 2461, 1000: 5875}


@pytest.mark.parametrize("count", PUBLISHED)
def test_density_equals_published_instances(count: int) -> None:
    edges = [
        sum(len(operator.inputs) for operator in layered_graph(count, seed).operators)
        for seed in range(5)
    ]
    assert 0.9 * PUBLISHED[count] < sum(edges) / len(edges) < 1.1 * PUBLISHED[count]


def test_first_and_last_layer_have_one_operator() -> None:
    for count in (4, 5, 17, 100):
        graph = layered_graph(count)
        assert len(graph.operators) == count
        assert [o.id for o in graph.operators if not o.inputs] == [0]
        assert graph.outputs == (count - 1,)
        assert tc.replay(tc.plan(graph)).evaluations == count


def test_layer_widths_stay_within_bounds() -> None:
    layers = layers_of(1000, 0.31, Random(0))
    mean = 1000 / 48
    assert [len(layer) for layer in (layers[0], layers[-1])] == [1, 1]
    assert max(map(len, layers)) <= mean * (1 + VARIABILITY)
    assert min(map(len, layers[1:-2])) >= mean * (1 - VARIABILITY)


def test_same_seed_gives_same_graph() -> None:
    assert layered_graph(100, 3) == layered_graph(100, 3) != layered_graph(100, 4)
