"""A real Chromium for the tests of pages, and pages that must neither complain nor reach out."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import lacking, require

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
Open = Callable[..., Any]


def chromium_path() -> str | None:
    """Return where a Chromium is, if there is one."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a headless Chromium; skip without one, and fail in CI, which installs one."""
    require("playwright")
    path = chromium_path()
    if path is None:
        lacking("Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Return ``open_page(path, fragment, **context)``, which returns a page that has loaded.

    When the test ends, none of the pages may have complained, or asked for anything but its file.
    """
    contexts, complaints, requests = [], [], []

    def opened(path: Path, fragment: str = "", **options: Any) -> Any:
        options = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 800}} | options
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests
