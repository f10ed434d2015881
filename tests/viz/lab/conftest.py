"""Lab pages of some networks, and the empty one, each written once for all processes of a run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.conftest import Once
from tests.viz.conftest import Open

OpenLab = Callable[..., Any]


@pytest.fixture(scope="session")
def written(once: Once) -> Callable[[str], Path]:
    """Return the lab page of a network by name; each is written once."""

    def write(network: str, folder: Path) -> None:
        graph = tc.networks.network_from_text(network)[0]
        # The chain's frontier is known in a second: a busy machine may take longer over it.
        limit = 60 if network == "chain:16" else 2
        viz.lab(graph, folder / "lab.html", network=network, time_limit=limit, points=20)

    return lambda network: (
        once(f"lab-{network.replace(':', '-')}", partial(write, network)) / "lab.html"
    )


@pytest.fixture
def lab(written: Callable[[str], Path], open_page: Open) -> OpenLab:
    """Return ``lab(network, fragment, **context)``, which returns the open lab of a network."""
    return lambda network, *fragment, **context: open_page(written(network), *fragment, **context)


@pytest.fixture(scope="session")
def empty_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return viz.empty_lab(tmp_path_factory.mktemp("empty") / "lab.html")


@pytest.fixture
def empty(empty_page: Path, open_page: Open) -> OpenLab:
    """Return ``empty(**context)``, which returns the open empty lab."""
    return partial(open_page, empty_page)
