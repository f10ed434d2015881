"""The widget in a real JupyterLab and in marimo: a click in the page is read by Python.

``make nightly`` installs both, with anywidget; without them these tests fail.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.nightly]
ROOT = Path(__file__).parents[3]
MAKE = """import tinyckpt as tc
from tinyckpt import viz
widget = viz.widget(tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n")))
"""
# What Python has read is written to a file: the page is the only way to it.
WATCH = """import json, pathlib
def told(change):
    kept = {"kept": widget.kept, "step": widget.step, "peak": widget.trace.peak_nodes}
    pathlib.Path(%r).write_text(json.dumps(kept))
widget.observe(told, ["kept", "step"])
"""
LONGEST = 180_000  # milliseconds: a server, its page and its kernel on a slow machine
MARIMO = """import marimo
app = marimo.App()


@app.cell
def _():
{cell}
    widget
    return
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def served(command: list[str], address: str, folder: Path) -> Iterator[None]:
    """Run a server, from when its address answers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    environment |= {"IPYTHONDIR": str(folder), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            for _ in range(LONGEST // 1000):
                try:
                    urllib.request.urlopen(address, timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    time.sleep(1)
            else:
                raise AssertionError(f"{address} does not answer: {(folder / 'log').read_text()}")
            yield
        finally:
            process.terminate()
            process.wait(30)


def told(path: Path, page: Any, wanted: dict[str, Any]) -> None:
    """Wait until Python has read some values."""
    found: Any = None
    for _ in range(60):
        if path.exists() and (text := path.read_text(encoding="utf-8")):
            found = json.loads(text)
            if wanted.items() <= found.items():
                return
        page.wait_for_timeout(500)
    raise AssertionError(f"Python has read {found}, not {wanted}")


def drive(page: Any, path: Path) -> None:
    """Click a tile and move the slider, and see that Python has read and answered."""
    page.wait_for_selector("tiny-ckpt .keeps button", timeout=LONGEST)
    page.get_by_label("keep layer 8", exact=True).click()
    told(path, page, {"kept": [4, 12], "peak": 10})
    heading = page.locator("tiny-ckpt .heading").nth(1)
    heading.filter(has_text="Keep 2 of 16 layers").wait_for(timeout=LONGEST)
    page.locator("tiny-ckpt .slider").press("End")
    step = page.locator("tiny-ckpt").evaluate("widget => widget.step")
    told(path, page, {"step": step})


def test_widget_goes_both_ways_in_jupyterlab(browser: Any, tmp_path: Path) -> None:
    from playwright.sync_api import TimeoutError

    path = tmp_path / "told.json"
    sources = [MAKE + WATCH % str(path) + "widget", "widget.step = -1"]
    cells = [
        {"cell_type": "code", "id": f"cell{k}", "metadata": {}, "source": source,
         "outputs": [], "execution_count": None}
        for k, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    port = free_port()
    command = [
        "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1",
        "--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with served(command, f"http://127.0.0.1:{port}/api", tmp_path):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"http://127.0.0.1:{port}/lab/tree/a.ipynb", timeout=LONGEST)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=LONGEST)
        for _ in range(8):  # a cell that is run before the kernel is connected may never be
            page.locator(".jp-Notebook .jp-Cell .jp-InputArea-editor").first.click()
            page.keyboard.press("Shift+Enter")
            with suppress(TimeoutError):
                page.wait_for_selector("tiny-ckpt", timeout=LONGEST / 8)
                break
        drive(page, path)
        # The cell below sets the step: the page follows.
        page.keyboard.press("Escape")
        page.locator(".jp-Notebook .jp-Cell .jp-InputArea-editor").nth(1).click()
        page.keyboard.press("Shift+Enter")
        told(path, page, {"step": -1})
        page.wait_for_function("document.querySelector('tiny-ckpt').place === 0", timeout=LONGEST)
        page.close()


def test_widget_goes_both_ways_in_marimo(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "told.json"
    cell = "".join(f"    {line}\n" for line in (MAKE + WATCH % str(path)).splitlines())
    (tmp_path / "a.py").write_text(MARIMO.format(cell=cell.rstrip()))
    port = free_port()
    command = ["marimo", "run", "a.py", "--headless", "--no-token", f"--port={port}"]
    with served(command, f"http://127.0.0.1:{port}/health", tmp_path):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"http://127.0.0.1:{port}", timeout=LONGEST)
        drive(page, path)
        page.close()
