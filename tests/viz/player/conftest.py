"""Player pages by what they show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import viz
from tests.viz.conftest import Open
from tests.viz.player.player_driver import from_the_start, traces_of

Player = Callable[..., Any]


@pytest.fixture
def player(open_page: Open, tmp_path: Path) -> Player:
    """Return ``player(shown, fragment, policies=..., view=..., theme=..., **context)``.

    It returns the open page of what is shown: traces, a pipeline, or a network by its name, by
    policies.
    """

    def opened(
        shown: Any, fragment: str = "", *, policies: Any = ("sqrt_n",), view: Any = "ledger",
        theme: Any = "auto", **context: Any,
    ) -> Any:  # fmt: skip
        traces = traces_of(shown, policies) if isinstance(shown, str) else shown
        options = from_the_start(traces, view=view, theme=theme)
        path = viz.player(traces, tmp_path / "player.html", **options)
        return open_page(path, fragment, **context)

    return opened
