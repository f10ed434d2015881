"""Pages with a widget: the file that ``viz.widget`` writes, in a browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.viz.conftest import Open
from tinyckpt import viz

Show = Callable[..., Any]


@pytest.fixture
def show(open_page: Open, tmp_path: Path) -> Show:
    """Return ``show(traces, before="", after="", context={}, **options)``, a page with a widget."""

    def shown(
        traces: Any,
        before: str = "",
        after: str = "",
        context: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        path = viz.widget(traces, tmp_path / "widget.html", **options)
        text = path.read_text(encoding="utf-8").replace(
            '<html lang="en">', '<html lang="en" data-ready>'
        )
        text = text.replace("<main>", f"<main><h1>Memory</h1>{before}").replace(
            "</main>", f"{after}</main>"
        )
        path.write_text(text, encoding="utf-8")
        return open_page(path, **(context or {}))

    return shown
