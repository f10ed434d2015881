"""Lab pages of some networks, each written once for all tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

import tinyckpt as tc
import viz


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the lab page of a network by name; each is written once."""
    folder, known = tmp_path_factory.mktemp("lab"), {}

    def lab_of(network: str) -> Path:
        if network not in known:
            path = folder / f"{len(known)}.html"
            graph = tc.networks.network_from_text(network)[0]
            known[network] = viz.lab(graph, path, network=network, time_limit=2, points=20)
        return known[network]

    return lab_of
