"""Interactive planning page (lab): drag the memory budget, choose the saved values, see the effect.

A training graph comes in; a player goes out that also contains the Pareto frontier found for the
graph, and a planner in JavaScript (lowering and replay of chosen saved values), so that it works
offline. Candidates are searched here, once; the page searches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import suffix_of, write_atomically
from tinyckpt.core.replay import replay
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.precomputed_choices import Choices, choices

from ..layout.check_label_options import Grouping, Labels, check_naming
from ..player import SUFFIXES, Page
from ..player.data import shown
from ..player.measured import as_measured
from ..player.page import Addition, asset, page
from ..scene import Style, scene_of
from ..theme import check_theme
from .challenge import budget_bytes
from .data import lab_data
from .fallback_table import CAPTION, offered_table

if TYPE_CHECKING:
    from tinyckpt.core.costs import Costs
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace
    from tinyckpt.documents.measured_memory import Measured

BEGIN = "lab_begin"  # makes a lab


@overload
def lab(
    graph: Graph,
    path: None = None,
    *,
    costs: Costs | None = None,
    policies: Sequence[str] | None = None,
    points: int | None = None,
    challenge: str | int | float | Mapping[str, Any] | None = None,
    time_limit: float = 6.0,
    network: str | None = None,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    measured: Measured | None = None,
    show: str | int | float | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Page: ...
@overload
def lab(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    costs: Costs | None = None,
    policies: Sequence[str] | None = None,
    points: int | None = None,
    challenge: str | int | float | Mapping[str, Any] | None = None,
    time_limit: float = 6.0,
    network: str | None = None,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    measured: Measured | None = None,
    show: str | int | float | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Path: ...
def lab(
    graph: Graph,
    path: str | os.PathLike[str] | None = None,
    *,
    costs: Costs | None = None,
    policies: Sequence[str] | None = None,
    points: int | None = None,
    challenge: str | int | float | Mapping[str, Any] | None = None,
    time_limit: float = 6.0,
    network: str | None = None,
    theme: str = "auto",
    title: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    measured: Measured | None = None,
    show: str | int | float | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Path | Page:
    """Write an interactive page: drag the budget, click values to save or recompute them.

    It is a player with a choice of schedules: along the frontier of peak against cost, policies by
    name, or by clicks on nodes. A choice by clicks is planned and replayed by the page itself, as
    policy ``retain`` does; a link, a command and a Python program reproduce the same schedule.

    Args:
        graph: a training graph.
        path: of the file, ending in ``.html``. Without it nothing is written: the result displays
            itself in a notebook.
        costs: costs of evaluations, as in ``tc.plan``; sizes of values are bytes.
        policies: names of policies shown with the frontier.
        points: the most schedules along the frontier, 2 to 200; by default 48, or 20 where they
            have more than 20,000 evaluations.
        challenge: a budget as in ``tc.plan``. The page begins with nothing saved, asks for a
            schedule within it with as little recomputation as possible, and hides the frontier
            until one is found. Or a task whose optimum is known, as ``tc.puzzles.task`` returns it:
            every choice is scored, and the best one shown when it is found.
        time_limit: seconds for the search of the frontier, and as many for lower bounds.
        network: the name of the graph on the command line, such as ``"chain:16"``, for the command
            and the program to copy.
        theme, title, labels, group: as in ``viz.player``.
        measured: measured memory, as in ``viz.player``.
        show: the schedule that is shown first: a policy by name, or the best within a budget as in
            ``tc.plan``; by default the best in half of store-all's memory. Not with a challenge.
        progress: called as ``progress(policy, points)`` after every attempt of the search.

    Raises:
        OptionError: if there is nothing to choose, an option is not legal, or schedules are too
            long for a page.
        BudgetError: if the challenge is no budget, or no schedule found is within it.
        FormatError: if the file cannot be written.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> viz.lab(tc.networks.chain(4), time_limit=0.1)
    <Page that plays 1 trace>
    """
    check_theme(theme, "auto")
    if path is not None and suffix_of(path) not in SUFFIXES:
        raise OptionError(f"{path}: the name of a page must end in .html")
    if not hasattr(graph, "forward_count"):
        raise OptionError(
            f"expected a graph, got a {type(graph).__name__}: give tc.differentiate(...)"
        )
    if title is not None and not isinstance(title, str):
        raise OptionError(f"title {title!r:.80}: expected a text")
    if challenge is not None and show is not None:
        raise OptionError("show and challenge exclude each other: that begins with nothing saved")
    style = Style("dark" if theme == "dark" else "light", labels=labels, group=group)
    check_naming(style.naming, [graph])
    offered = choices(
        graph, costs, policies=policies, points=points, time_limit=time_limit, progress=progress
    )
    task = challenge if isinstance(challenge, Mapping) else None
    limit: Any = challenge if task is None else task.get("budget", task)
    asked = None if limit is None else budget_bytes(offered, limit)
    heading = title if title is not None else f"{shown(graph.name)}: what to keep"
    addition = Addition(
        heading,
        BEGIN,
        ("lab.css",),
        asset("lab.html"),
        {"lab": lab_data(offered, network, asked, title) | {"task": task}},
        # The table would give away the answer to a challenge.
        (CAPTION, offered_table(offered)) if asked is None else None,
    )
    held = as_measured(measured, 1)
    first, budget = first_shown(offered, show) if asked is None else (nothing_saved(offered), None)
    opening: dict[str, int | str] = {"show": 0, "stop": "peak"}
    opening |= {} if budget is None else {"budget": budget}
    scene = scene_of(first, replace(style, in_bytes=any(held)))
    text = page(scene, theme, None, addition=addition, measured=held, opening=opening)
    if path is None:
        return Page(text, 1)
    write_atomically(path, text.encode())
    return DrawnPath(path)


def first_shown(offered: Choices, show: str | int | float | None) -> tuple[Trace, int | None]:
    """Return the page's first trace, and its budget in bytes if it is shown for one.

    Without a wish: the cheapest found in half of store-all's memory, else the smallest.
    """
    named = dict(offered.named)
    if show is None:
        half = offered.points[-1].peak / 2  # of the cheapest
        within = [point for point in offered.points if point.peak <= half]
        budget = (within or offered.points[:1])[-1].peak
    elif isinstance(show, str) and show in named:
        return named[show], None
    else:
        budget = budget_bytes(offered, show)
    return replay(offered.found.schedule(budget, certified=False)), budget


def nothing_saved(offered: Choices) -> Trace:
    """Return the initial trace of a challenge: no value is saved."""
    return replay(plan(offered.found.graph, "retain", costs=offered.found.costs, keep=[]))
