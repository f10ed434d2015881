"""Shared pytest configuration: Hypothesis profiles, samples of cases, and skips that fail in CI."""

import gc
import importlib.util
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from math import inf
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
Once = Callable[[str, Callable[[Path], None]], Path]
FEWER = 5  # in the default profile a fifth of the examples that a test asks for
settings.register_profile(
    "default",
    max_examples=100 // FEWER,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
DEEPER = 20  # times as many examples in the deep profile, which also draws new ones in each run
settings.register_profile(
    "deep",
    parent=settings.get_profile("default"),
    max_examples=DEEPER * 100,
    derandomize=False,
)
settings.load_profile(PROFILE)


def examples(count: int, least: int = 3) -> int:
    """Scale a number of Hypothesis examples by the active profile; a few at least."""
    return DEEPER * count if PROFILE == "deep" else max(min(count, least), count // FEWER)


def with_fixtures(count: int, least: int = 3) -> settings:
    """Return the settings of a test that draws a number of examples and shares its fixtures."""
    checks = [HealthCheck.function_scoped_fixture]
    return settings(max_examples=examples(count, least), suppress_health_check=checks)


HURRIED = 1.0  # seconds


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each search after a second, whatever its limit: what it finds by then is a plan too."""
    from tinyckpt.base.deadline import Clock

    begin = Clock.__init__

    def sooner(self: Clock, seconds: float = inf) -> None:
        begin(self, seconds if seconds == inf else min(seconds, HURRIED))

    monkeypatch.setattr(Clock, "__init__", sooner)


def require(module: str) -> None:
    """Skip the test if an optional package is missing; in CI, which installs all, fail.

    Called in a module, before it imports the package, it does so for all tests of the module.
    """
    if importlib.util.find_spec(module) is None:
        lacking(module)


def lacking(what: str) -> NoReturn:
    """Skip the test for a missing feature; in CI, which installs the newest of all, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"CI has {what}, but it is not there")
    pytest.skip(f"needs {what}", allow_module_level=True)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sample cases; skip GPU tests, visibly, where there is none; begin with the longest tests."""
    sampled = defaultdict(list)
    is_asked_for = any("::" in arg for arg in config.args)
    for item in items:
        marked = item.get_closest_marker("sampled") and not item.get_closest_marker("nightly")
        if marked and not is_asked_for:
            sampled[item.nodeid.partition("[")[0]].append(item)
    for name, cases in sampled.items():
        count = cases[0].get_closest_marker("sampled").args[0]  # type: ignore[union-attr]
        chosen = set(Random(name).sample(range(len(cases)), min(count, len(cases))))
        for place, item in enumerate(cases):
            if place not in chosen and PROFILE != "deep":
                item.add_marker(pytest.mark.nightly)
    # Begun late, they would run alone at the end.
    items.sort(
        key=lambda item: item.path.name not in ("test_site.py", "test_newcomer.py", "test_docs.py")
    )
    from tinyckpt.base.errors import BackendError
    from tinyckpt.core.backend import get_backend

    if any(item.get_closest_marker("gpu") for item in items):
        try:
            get_backend("cupy")
        except BackendError as error:
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """Freeze existing objects for the garbage collector (``gc.freeze``) before a module's tests.

    That is thousands of tests, and frameworks with what they cache. Tests that measure memory
    collect before they begin, and each look at all this takes a second.
    """
    freeze()


def freeze() -> None:
    """Collect garbage, and leave out of later collections what there is now."""
    global modules_at_freeze
    gc.collect()
    gc.freeze()
    modules_at_freeze = len(sys.modules)


MANY = 100  # modules: a framework, not a test's own imports
modules_at_freeze = 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Freeze once more what the fixtures of a test, or the test before it, imported."""
    if len(sys.modules) > modules_at_freeze + MANY:
        freeze()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Return ``once(name, fill)``: a folder that one process of the run fills, for all of them."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # a process has a folder of its own in that of the run

    def filled(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture(scope="session")
def distributions(once: Once) -> Path:
    """Return the folder with the wheel and the sdist of this tree."""
    require("hatchling")

    def build(folder: Path) -> None:
        from hatchling.builders.sdist import SdistBuilder
        from hatchling.builders.wheel import WheelBuilder

        for builder in (WheelBuilder, SdistBuilder):
            list(builder(str(ROOT)).build(directory=str(folder), versions=["standard"]))

    return once("distributions", build)


@pytest.fixture(scope="session")
def demo(once: Once) -> Path:
    """Return the folder with what ``tinyckpt demo`` draws, and in ``demo.txt`` what it prints."""
    from tinyckpt.cli.main import main

    def run(folder: Path) -> None:
        with (
            pytest.MonkeyPatch.context() as patch,
            (folder / "demo.txt").open("w", encoding="utf-8") as printed,
            redirect_stdout(printed),
        ):
            patch.setattr("tinyckpt.cli.demo.PLANNING", 1.0)
            patch.setattr("tinyckpt.cli.demo.GPT_STEPS", 30)
            assert main(["demo", "-o", str(folder / "new" / "folder")]) == 0

    return once("demo", run)
