"""Driver of a stock Firefox by WebDriver BiDi (W3C), for browser tests.

Playwright drives a Firefox of its own build, not the system's. This module starts the latter and
speaks as much of the protocol as the tests need: open a file, evaluate a function in the page, move
the pointer, press keys; and it records console messages.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

FIREFOX = ("firefox", "firefox-esr")
STARTING = 60  # seconds
ANSWERING = 60
PREFERENCES = {
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "ui.prefersReducedMotion": 1,
    # A wheel's turn arrives as one event, not as an animation.
    "general.smoothScroll": False,
}
# Keys that are no characters, by the code points of WebDriver.
KEYS = {
    "Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "Escape": "\ue00c",
    "PageUp": "\ue00e", "PageDown": "\ue00f", "End": "\ue010", "Home": "\ue011",
    "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015",
    "Tab": "\ue004",
}  # fmt: skip
CALL = "async (given) => JSON.stringify((await ({function})(JSON.parse(given))) ?? null)"


def firefox_path() -> str | None:
    """Return the path of a Firefox, if there is one."""
    return next((found for name in FIREFOX if (found := shutil.which(name))), None)


class Firefox:
    """A running Firefox: commands are sequential; console messages are recorded.

    Requests that violate a page's own policy are reported there too.
    """

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.commands = 0
        self.complaints: list[str] = []
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command; return its result."""
        self.commands += 1
        self.socket.send(json.dumps({"id": self.commands, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=ANSWERING))
            if message["type"] == "event":
                told = message["params"]
                self.complaints.append(f"{told['level']}: {told['text']}")
            elif message["id"] == self.commands:
                assert message["type"] == "success", f"{method}: {message}"
                return message["result"]

    def open(self, path: Path, fragment: str = "", size: tuple[int, int] = (1280, 800)) -> "Tab":
        """Return a tab with a loaded page whose scripts have started."""
        context = self.send("browsingContext.create", type="tab")["context"]
        viewport = dict(zip(("width", "height"), size, strict=True))
        self.send("browsingContext.setViewport", context=context, viewport=viewport)
        url = path.as_uri() + fragment
        self.send("browsingContext.navigate", context=context, url=url, wait="complete")
        tab = Tab(self, context)
        tab.until("() => document.documentElement.dataset.ready", "true")
        return tab


class Tab:
    """An open page."""

    def __init__(self, browser: Firefox, context: str) -> None:
        self.browser = browser
        self.context = context

    def evaluate(self, function: str, given: Any = None) -> Any:
        """Evaluate a function in the page, with a JSON argument and result."""
        answer = self.browser.send(
            "script.callFunction",
            functionDeclaration=CALL.format(function=function),
            arguments=[{"type": "string", "value": json.dumps(given)}],
            target={"context": self.context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])

    def until(self, function: str, expected: object = True) -> None:
        """Wait until a function of the page returns a value."""
        end = monotonic() + ANSWERING
        while (found := self.evaluate(function)) != expected:
            assert monotonic() < end, f"{function} is {found}, not {expected}"

    def middle(self, selector: str) -> tuple[float, float]:
        """Return the centre of an element, once it is in view."""
        left, top = self.evaluate(
            """selector => {
                const element = document.querySelector(selector);
                element.scrollIntoView({ block: "nearest" });
                const { left, top, width, height } = element.getBoundingClientRect();
                return [left + width / 2, top + height / 2]; }""",
            selector,
        )
        return left, top

    def act(self, kind: str, actions: list[dict[str, Any]], **more: Any) -> None:
        source = {"type": kind, "id": kind, "actions": actions, **more}
        self.browser.send("input.performActions", context=self.context, actions=[source])

    def press(self, keys: str) -> None:
        """Press a key, with modifiers if named before it: ``Control+z``."""
        held = [KEYS.get(key, key) for key in re.split(r"(?<=.)\+", keys)]
        down = [{"type": "keyDown", "value": key} for key in held]
        up = [{"type": "keyUp", "value": key} for key in reversed(held)]
        self.act("key", [*down, *up])

    def drag(self, *places: tuple[float, float]) -> None:
        """Press the pointer at a point, move it over others, release it at the last."""
        moves = [{"type": "pointerMove", "x": round(x), "y": round(y)} for x, y in places]
        down, up = ({"type": f"pointer{way}", "button": 0} for way in ("Down", "Up"))
        self.act("pointer", [moves[0], down, *moves[1:], up])

    def click(self, selector: str) -> None:
        self.drag(self.middle(selector))

    def hover(self, place: tuple[float, float]) -> None:
        x, y = place
        self.act("pointer", [{"type": "pointerMove", "x": round(x), "y": round(y)}])

    def wheel(self, place: tuple[float, float], by: int) -> None:
        """Turn the wheel at a point, downwards if ``by`` is positive."""
        x, y = place
        turn = {"type": "scroll", "x": round(x), "y": round(y), "deltaX": 0, "deltaY": by}
        self.act("wheel", [turn])

    def close(self) -> None:
        self.browser.send("browsingContext.close", context=self.context)


@contextmanager
def running(program: str, profile: str) -> Iterator[Firefox]:
    """Run a headless Firefox with a temporary profile; stop it at the end."""
    from websockets.sync.client import connect

    lines = [f"user_pref({json.dumps(name)}, {json.dumps(v)});" for name, v in PREFERENCES.items()]
    Path(profile, "user.js").write_text("\n".join(lines), encoding="utf-8")
    command = [program, "--headless", "--no-remote", "--profile", profile]
    process = subprocess.Popen(
        [*command, "--remote-debugging-port=0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = iter(process.stderr.readline, "")
        known = (re.search(r"BiDi listening on (ws://\S+)", line) for line in said)
        address = next((found[1] for found in known if found), None)
        assert address, f"{program} ended before it listened"
        # Without pings, of another thread: they draw from ``random``, and Hypothesis holds that
        # against whatever test draws examples just then.
        with connect(
            f"{address}/session", max_size=None, open_timeout=STARTING, ping_interval=None
        ) as socket:
            yield Firefox(socket)
    finally:
        process.terminate()
        process.communicate(timeout=STARTING)
