"""HTML player: interactive animation of traces or pipelines, in one self-contained page."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import suffix_of, write_atomically

from ..charts.pipeline_lanes import as_pipelines
from ..layout.check_label_options import Grouping, Labels
from ..scene import Style, scene_of, stop_of
from ..theme import check_theme
from .measured import as_measured
from .page import page
from .pipelines import pipeline_page

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace
    from tinyckpt.documents.measured_memory import Measured
    from tinyckpt.pipeline import PipelineTrace
    from tinyckpt.planner.offload.simulate import Timeline

    Scheduled = Trace | Timeline
    Measurements = Measured | Sequence[Measured | None] | None
    Played = Scheduled | Sequence[Scheduled] | PipelineTrace | Sequence[PipelineTrace]

SUFFIXES = (".html", ".htm")
VIEWS = ("ledger", "graph")
FRAME = (
    '<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="{title}" '
    'style="width: 100%; height: {height}px; border: 0"></iframe>'
)
HEIGHT = 560  # of an iframe with one trace, in pixels; each further trace adds to it
HEIGHT_OF_TRACE = 260


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """A player as one HTML document, which a notebook displays.

    Attributes:
        html: the document.
        traces: the number of traces that it plays.
    """

    html: str
    traces: int

    def __repr__(self) -> str:
        return f"<Page that plays {self.traces} {'trace' if self.traces == 1 else 'traces'}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the player for a notebook: in a sandboxed iframe that may only run scripts."""
        height = HEIGHT + HEIGHT_OF_TRACE * (self.traces - 1)
        frame = FRAME.format(page=html.escape(self.html), title="Player", height=height)
        return {"text/plain": repr(self), "text/html": frame}


@overload
def player(
    traces: Played,
    path: None = None,
    *,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    view: str = "ledger",
    measured: Measurements = None,
    show: str | None = None,
    stop: str = "peak",
) -> Page: ...
@overload
def player(
    traces: Played,
    path: str | os.PathLike[str],
    *,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    view: str = "ledger",
    measured: Measurements = None,
    show: str | None = None,
    stop: str = "peak",
) -> Path: ...
def player(
    traces: Played,
    path: str | os.PathLike[str] | None = None,
    *,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    view: str = "ledger",
    measured: Measurements = None,
    show: str | None = None,
    stop: str = "peak",
) -> Path | Page:
    """Write traces as one HTML page: ledger, graph, memory, counters, steps and program, in step.

    Of pipelines, it plays the actions and the memory of each device over time. The file needs no
    network and no other file; browsers since 2023 play it, and without scripts it shows a still and
    a table.

    Two traces of one graph open as their difference, on one ledger, aligned at the first evaluation
    of each operator. Of three traces or more, one is open and the others are a row each; they are
    aligned so too where one takes over three times the steps of the open one. The page opens at the
    peak, and has stops: start, peak, first recomputation, end.

    A ``Timeline``, which ``tc.timed`` returns, also has lanes over time: evaluations, copies to the
    host and copies back, with stalls shaded.

    Args:
        traces: one trace or timeline, or several to compare; or what ``replay_pipeline`` returned,
            one or several.
        path: of the file, ending in ``.html``; it is replaced only once the new one is complete.
            Without it nothing is written: the result displays itself in a notebook.
        theme: ``light``, ``dark``, or ``auto`` for the preference of the reader's system.
        title: of the page; for one trace, it replaces the policy's name too.
        labels, group: labels and groups of nodes, as in ``viz.gif``; the groups inside an expanded
            group depend on its size. Not for pipelines.
        view: the initial view, ``ledger`` or ``graph``; the reader may change it. Not for
            pipelines.
        measured: measured memory, from ``tc.load_measured``: drawn as a line over the planned
            curve, with both ends aligned. One for all traces, or one each, or None. Memory is then
            counted in bytes. Not for pipelines.
        show: the policy that is open at first, ``"difference"`` of the first two, or ``"all"`` in
            full; by default the difference of two, and of more the first that recomputes. Not for
            pipelines.
        stop: the initial moment: ``start``, ``peak``, ``first recomputation`` or ``end``; the start
            where the policy has none. Not for pipelines.

    Raises:
        OptionError: if there is nothing to show, or an option is not legal.
        FormatError: if the file cannot be written.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> graph = tc.networks.chain(8)
    >>> traces = [tc.replay(tc.plan(graph, policy)) for policy in ("store_all", "sqrt_n")]
    >>> viz.player(traces)
    <Page that plays 2 traces>
    """
    listed: list[Any] = list(traces) if isinstance(traces, Iterable) else [traces]
    check_theme(theme, "auto")
    if view not in VIEWS:
        raise OptionError(f"unknown view {view!r}; known are {', '.join(VIEWS)}")
    stop = stop_of(stop)
    if path is not None and suffix_of(path) not in SUFFIXES:
        raise OptionError(f"{path}: the name of a page must end in .html")
    if any(hasattr(trace, "bubble") for trace in listed):
        if show is not None or stop != "peak":
            raise OptionError("show and stop are for traces; a pipeline opens at its peak")
        if labels is not None or group is not None:
            raise OptionError("labels and group are for graphs; a pipeline has devices and blocks")
        if measured is not None:
            raise OptionError("measured is for traces; a pipeline has several devices")
        text = pipeline_page(as_pipelines(listed), theme, title)
    else:
        own = title if len(listed) == 1 else None  # of a page of several, it belongs to none
        style = Style("dark" if theme == "dark" else "light", own, labels, group)
        text = trace_page(listed, style, theme, title, view, measured, show, stop)
    if path is None:
        return Page(text, len(listed))
    write_atomically(path, text.encode())
    return DrawnPath(path)


def trace_page(
    listed: Sequence[Any],
    style: Style,
    theme: str,
    title: str | None,
    view: str,
    measured: Measurements,
    show: str | None,
    stop: str,
) -> str:
    """Return the page that plays traces and timelines."""
    clocks = [item if hasattr(item, "stall") else None for item in listed]
    if len(units := dict.fromkeys(clock.unit for clock in clocks if clock)) > 1:
        raise OptionError(f"timelines in {', '.join(units)}: expected a common unit")
    traces = [item.trace if clock else item for item, clock in zip(listed, clocks, strict=True)]
    known = as_measured(measured, len(traces))
    scene = scene_of(traces, replace(style, in_bytes=any(known)))
    opening = {"show": shown_first(traces, show, view), "stop": stop}
    return page(scene, theme, title, clocks, view, measured=known, opening=opening)


def shown_first(traces: Sequence[Trace], show: str | None, view: str) -> int | str:
    """Return what a page shows first: the index of a trace, ``difference`` or ``all``."""
    alike = len(traces) > 1 and traces[0].graph == traces[1].graph
    if show is None:
        if len(traces) == 2:
            return "difference" if alike and view == "ledger" else "all"
        return next((i for i, trace in enumerate(traces) if trace.recomputations), 0)
    policies = [trace.schedule.policy for trace in traces]
    if show in policies:
        return policies.index(show)
    if show != "all" and not (show == "difference" and alike):
        legal = [*dict.fromkeys(policies), *(["difference"] if alike else []), "all"]
        raise OptionError(f"nothing to show as {show!r}; known are {', '.join(legal)}")
    return show
