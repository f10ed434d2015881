"""Length estimates of orders without reuse, before they are built."""

import pytest

import tinyckpt as tc
from tinyckpt.core.cuts import expected_length, retaining_order


@pytest.mark.long
@pytest.mark.parametrize("layers", [12, 24, 32, 48])
def test_expected_length_is_accurate_on_identical_layers(layers: int) -> None:
    # With a sample at equal distances, 48 layers were met only where nothing is recomputed.
    graph = tc.networks.transformer(layers, 16, length=8, batch=1).graph()
    length = len(retaining_order(graph, (), reuse=False))
    assert length / 4 < expected_length(graph) < 4 * length
