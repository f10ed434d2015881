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
USUAL: dict[str, Any] = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 800}}


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


@pytest.fixture(scope="session")
def usual_context(browser: Any) -> Any:
    """Return what most pages open in: they leave nothing there, and one more is slow to open."""
    return browser.new_context(**USUAL)


@pytest.fixture
def open_page(browser: Any, usual_context: Any) -> Iterator[Open]:
    """Return ``open_page(path, fragment, **context)``, which returns a page that has loaded.

    When the test ends, none of the pages may have complained, or asked for anything but its file.
    """
    opened_here, complaints, requests = [], [], []

    def opened(path: Path, fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(**USUAL | options) if options else usual_context
        page = context.new_page()
        opened_here.append(context if options else page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for one in opened_here:
        one.close()
    assert complaints == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests


def assert_accessible(
    page: Any, within: str | None = None, *, minor: bool = False, **options: Any
) -> None:
    """Assert that axe finds nothing in a page, or a part of it; or, with ``minor``, nothing worse.

    Options are axe's own.
    """
    require("axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, context=within, options=options or None).response["violations"]
    grave = [rule for rule in found if not minor or rule["impact"] != "minor"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in grave] == []
