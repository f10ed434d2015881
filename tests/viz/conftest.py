"""Fixtures of browser tests: a real Chromium, pages that must not log errors or use the network."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import lacking, require

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
HEADLESS = "chromium-headless-shell"  # the same engine without windows: half the processor time
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
MOST_CONTEXTS = 4  # kept from test to test
OF_A_PAGE = ("color_scheme", "reduced_motion")  # options that a page can have by itself, as a size
Open = Callable[..., Any]
USUAL: dict[str, Any] = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 800}}


def chromium_path(*preferred: str) -> str | None:
    """Return the path of a Chromium, if there is one: of the preferred ones, or of the usual."""
    names = (*preferred, *CHROMIUM)
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a headless Chromium; skip without one, and fail in CI, which installs one."""
    require("playwright")
    path = chromium_path(HEADLESS)
    if path is None:
        lacking("Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


class Contexts:
    """Pool of browser contexts by their options, reused from test to test.

    Each keeps an empty page: next to it a new page is a tab, which opens in two thirds of the time
    of a window. Size, colours and motion are options of a page, so that few contexts are made: one
    takes the time of two pages.
    """

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.known: dict[str, Any] = {}

    def of(self, **options: Any) -> Any:
        """Return the context with the given options, in addition to the defaults."""
        key = json.dumps(options, sort_keys=True)
        context = self.known.pop(key, None)
        if context is None:
            context = self.browser.new_context(**USUAL | options)
            context.new_page()
        self.known[key] = context  # the last that was asked for is the last to be closed
        return context

    def new_page(self, **options: Any) -> Any:
        """Return an empty page with the given options, of a context or of a page."""
        viewport = options.pop("viewport", None)
        media = {name: options.pop(name) for name in OF_A_PAGE if name in options}
        page = self.of(**options).new_page()
        if viewport is not None:
            page.set_viewport_size(viewport)
        if media:
            page.emulate_media(**media)
        return page

    def close_old(self) -> None:
        """Close all but the most recently used contexts."""
        while len(self.known) > MOST_CONTEXTS:
            self.known.pop(next(iter(self.known))).close()


@pytest.fixture(scope="session")
def contexts(browser: Any) -> Contexts:
    """Return the shared contexts; pages in them leave nothing behind."""
    return Contexts(browser)


@pytest.fixture
def open_page(contexts: Contexts) -> Iterator[Open]:
    """Return ``open_page(path, fragment, **context)``, which returns a page that has loaded.

    When the test ends, no page may have logged an error, or requested anything but its file.
    """
    pages, complaints, requests = [], [], []

    def opened(path: Path, fragment: str = "", **options: Any) -> Any:
        page = contexts.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for page in pages:
        page.close()
    contexts.close_old()
    assert complaints == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests


def assert_accessible(
    page: Any, within: str | None = None, *, minor: bool = False, **options: Any
) -> None:
    """Assert that axe finds no violation in a page or a part; with ``minor``, no serious one.

    Options are axe's own.
    """
    require("axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"]} | options  # what is as it should be is not listed
    found = Axe().run(page, context=within, options=options).response["violations"]
    grave = [rule for rule in found if not minor or rule["impact"] != "minor"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in grave] == []
