"""Custom element ``<tiny-ckpt>``: the explainer live in any page or notebook.

Traces come in; a file of trace data, a page, the element as HTML or, in a notebook, a live widget
comes out. ``data`` is the story of the traces as at most 8 KB of JSON, ``assets`` the element in
one script without dependencies, ``live`` the widget of a notebook, which Python reads and sets.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.base.files import suffix_of, write_atomically

from ..explainer.drawing import heading_of, picture, svg_of
from ..explainer.story import story_of
from ..player.page import json_text
from ..scene import stop_of
from ..theme import LIGHT, THEMES, check_theme
from .data import json_bytes, row_shown, traces_of, widget_data
from .element_script import element_script

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

    from .data import Shown
    from .live import Widget

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.4 system-ui, sans-serif; margin: 1rem; background: canvas }}
</style>
<main>
{tag}
</main>
<script>{script}</script>
</html>
"""


@overload
def widget(
    traces: Shown,
    path: None = None,
    *,
    stop: str = "first recomputation",
    policy: str | None = None,
    budget: str | int | float | None = None,
    compare: str | None = None,
    theme: str = "auto",
) -> Widget: ...
@overload
def widget(
    traces: Shown,
    path: str | os.PathLike[str],
    *,
    stop: str = "first recomputation",
    policy: str | None = None,
    budget: str | int | float | None = None,
    compare: str | None = None,
    theme: str = "auto",
) -> Path: ...
def widget(
    traces: Shown,
    path: str | os.PathLike[str] | None = None,
    *,
    stop: str = "first recomputation",
    policy: str | None = None,
    budget: str | int | float | None = None,
    compare: str | None = None,
    theme: str = "auto",
) -> Path | Widget:
    """Show traces in a notebook, or write what ``<tiny-ckpt>`` shows in a page.

    Args:
        traces: a trace, which is compared with store-all of its graph; up to eight of one graph; or
            a frontier, of which eight schedules are shown.
        path: of a file: the data in ``.json``, or a page of its own in ``.html``. Without it
            nothing is written: the result displays itself in a notebook, and Python reads and sets
            its ``step``, ``budget`` and ``kept`` tiles.
        stop: the initial moment: ``start``, ``peak``, ``first recomputation`` or ``end``.
        policy, budget: choose the schedule that is shown: of a policy, or the cheapest within a
            budget, such as ``9`` values, ``"50 %"`` or ``0.5`` of store-all's peak, ``"1.5 GiB"``.
        compare: the policy above it, if not store-all; ``"none"`` for none.
        theme: ``light``, ``dark``, or ``auto`` for that of the page.

    Raises:
        OptionError: if there is nothing to compare, or an option is not legal.
        FormatError: if the file cannot be written.
        BackendError: in a notebook, without the package anywidget.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.widget(trace, f"{folder}/chain16.json").stat().st_size
    1007
    """
    suffix = None if path is None else suffix_of(path)
    if suffix not in (None, ".json", ".html"):
        raise OptionError(f"{path}: expected a name in .json (the data) or .html (a page)")
    shown = traces_of(traces)
    data = widget_data(shown, steps=path is None)
    attributes = checked_attributes(data, stop, policy, budget, compare, theme)
    if path is None:
        try:
            from .live import Widget
        except ImportError as error:
            raise BackendError(
                "a widget in a notebook needs anywidget: pip install 'tinyckpt[notebook]'"
            ) from error
        return Widget(shown, data, attributes)
    if suffix == ".json":
        write_atomically(path, json_bytes(data))
        return DrawnPath(path)
    tag = element(shown, data, attributes, None)
    title = html.escape(f"{data['name']}: gradient checkpointing")
    text = PAGE.format(title=title, tag=tag, script=widget_script().replace("</", "<\\/"))
    write_atomically(path, text.encode())
    return DrawnPath(path)


def widget_tag(
    traces: Shown,
    *,
    src: str | None = None,
    stop: str = "first recomputation",
    policy: str | None = None,
    budget: str | int | float | None = None,
    compare: str | None = None,
    theme: str = "auto",
) -> str:
    """Return the element ``<tiny-ckpt>`` as HTML, with a still picture where no script runs.

    Args:
        traces, stop, policy, budget, compare, theme: as in ``viz.widget``.
        src: the address of the data; without it they are inside the element.

    Raises:
        OptionError: as ``viz.widget``.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    >>> viz.widget_tag(trace, src="chain16.json", stop="peak").partition("<svg")[0]
    '<tiny-ckpt src="chain16.json" stop="peak">'
    """
    shown = traces_of(traces)
    data = widget_data(shown)
    return element(shown, data, checked_attributes(data, stop, policy, budget, compare, theme), src)


@overload
def widget_script(path: None = None) -> str: ...
@overload
def widget_script(path: str | os.PathLike[str]) -> Path: ...
def widget_script(path: str | os.PathLike[str] | None = None) -> str | Path:
    """Return the script of the element ``<tiny-ckpt>``, or write it: one file, no dependency.

    Raises:
        FormatError: if the file cannot be written.

    >>> from tinyckpt import viz
    >>> len(viz.widget_script()) < 40_000
    True
    """
    text = f"(() => {{\n{element_script()}}})();\n"
    if path is None:
        return text
    write_atomically(path, text.encode())
    return DrawnPath(path)


def element(
    shown: Sequence[Trace], data: Mapping[str, Any], attributes: dict[str, str], src: str | None
) -> str:
    """Return the element with its data and a still picture."""
    listed = {**({"src": src} if src is not None else {}), **attributes}
    names = "".join(f' {name}="{html.escape(value)}"' for name, value in listed.items())
    inside = f'<script type="application/json">{json_text(data)}</script>' if src is None else ""
    row = row_shown(data, attributes.get("policy"), attributes.get("budget"))
    story = story_of([shown[0], shown[row]])
    place = story.at(attributes.get("stop", "first recomputation"))
    theme = THEMES.get(attributes.get("theme", ""), LIGHT)
    still = svg_of(picture(story, place, theme), heading_of(story, 1), theme)
    still = still.replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    return f"<tiny-ckpt{names}>{inside}{still.strip()}</tiny-ckpt>"


def checked_attributes(
    data: Mapping[str, Any],
    stop: str,
    policy: str | None,
    budget: str | int | float | None,
    compare: str | None,
    theme: str,
) -> dict[str, str]:
    """Return the options as attributes of the element; what is usual is left out."""
    row_shown(data, policy, budget)
    if compare != "none":
        row_shown(data, compare)
    if isinstance(budget, float):
        budget = f"{100 * budget:g} %"
    stop = stop_of(stop)
    check_theme(theme, "auto")
    given = {"policy": policy, "budget": budget, "compare": compare}
    attributes = {name: str(value) for name, value in given.items() if value is not None}
    if stop != "first recomputation":
        attributes["stop"] = stop
    if theme != "auto":
        attributes["theme"] = theme
    return attributes
