"""The style in which charts are written, for all tests of charts."""

from collections.abc import Iterator

import pytest

from viz.charts.style import looks


@pytest.fixture(autouse=True)
def as_written() -> Iterator[None]:
    """Apply the style of ``write``."""
    with looks():
        yield
