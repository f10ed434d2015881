"""Memory breakdown chart: bytes by kind (parameters, gradients, activations, ...) at every step.

The kinds are those of ``tc.ledger``: parameters, optimizer state, gradients, activations,
cotangents, workspace. Unlike in the other charts, sources count here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError

from ..memory_curve import by_column
from ..scene import count_text
from ..theme import RGB, Theme, blend, css
from .style import (
    BESIDE,
    WIDTH,
    Titles,
    byte_unit,
    draw_peak_line,
    heading,
    legend,
    names_of,
    new_figure,
    style_axes,
    titles_of,
    write,
)
from .timeline import HEADROOM, columns_for, stack

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.training import Ledger


SMALLEST = 0.002  # of the peak: a smaller kind has no visible area


def fills_of(theme: Theme) -> dict[str, RGB]:
    """Return the fill of every kind of bytes, from the bottom up."""
    return {
        "parameters": blend(theme.muted, theme.panel, 0.75),
        "optimizer state": blend(theme.muted, theme.panel, 0.5),
        "accumulated gradients": blend(theme.staying, theme.panel, 0.55),
        "other sources": blend(theme.muted, theme.panel, 0.28),
        "gradients": theme.staying,
        "results": theme.evaluation,
        "activations": theme.kept,
        "cotangents": theme.gradient,
        "updates": theme.checkpoint,
        "workspace": theme.workspace,
    }


def breakdown(
    ledgers: Ledger | Sequence[Ledger],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write the memory breakdown of ledgers, one chart per ledger, on shared scales.

    Args:
        ledgers: what ``tc.ledger(schedule)`` returned; one, or several to compare.
        path: ends in ``.png``, ``.svg`` or ``.pdf``; the file is replaced only once the new one is
            complete.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the policies' names, one per ledger; ``""`` for none.

    Raises:
        TinyckptError: if there is nothing to draw, the theme or the format is unknown, or the file
            cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> ledger = tc.ledger(tc.plan(tc.networks.chain(4), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.breakdown(ledger, f"{folder}/bytes.svg").name
    'bytes.svg'
    """
    listed: list[Any] = list(ledgers) if isinstance(ledgers, Sequence) else [ledgers]
    for each in listed:
        if not hasattr(each, "sources"):
            given = type(each).__name__
            raise OptionError(f"expected a Ledger, as tc.ledger(schedule) makes; got a {given}")
    if not listed or not all(each.schedule.steps for each in listed):
        raise OptionError("nothing to draw: give at least one ledger, each with at least one step")
    names = titles_of(names_of(listed), title)
    return write(
        path, theme, width, lambda colours: breakdown_figure(listed, colours, width, names)
    )


def breakdown_figure(
    ledgers: Sequence[Ledger],
    colours: Theme,
    width: float = WIDTH,
    names: Sequence[str] = ("",),
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    largest = max(ledger.peak_bytes for ledger in ledgers)
    unit, unit_name = byte_unit(largest)
    figure = new_figure(colours, 0.6 + 2.1 * len(ledgers), width)
    axes = figure.subplots(len(ledgers), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    longest = max(len(ledger.schedule.steps) for ledger in ledgers)
    handles: dict[str, Any] = {}
    for axis, ledger, title in zip(axes, ledgers, names, strict=True):
        style_axes(axis, colours)
        heading(axis, colours, title, ledger.schedule.graph.name)
        for handle in draw_kinds(axis, ledger, unit, longest, colours):
            handles.setdefault(handle.get_label(), handle)
        axis.set_ylabel(unit_name)
    axes[0].set_xlim(0, longest)
    axes[0].set_ylim(0, HEADROOM * max(largest / unit, 1e-9))
    for axis, ledger in zip(axes, ledgers, strict=True):
        mark_peak(axis, ledger, unit, unit_name, colours)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_formatter(lambda step, _: count_text(round(step)))
    legend(axes[0], colours, [handles[name] for name in fills_of(colours) if name in handles])
    figure.tight_layout()
    return figure


def draw_kinds(axis: Any, ledger: Ledger, unit: int, longest: int, colours: Theme) -> list[Any]:
    """Stack the bytes of every kind that occurs; return the areas."""
    steps = len(ledger.schedule.steps)
    columns = {what: [nbytes] * steps for what, nbytes in ledger.sources.items()}
    columns.update({what: list(column) for what, column in ledger.held.items()})
    fills = fills_of(colours)
    least = SMALLEST * ledger.peak_bytes
    kinds = [what for what in fills if max(columns[what], default=0) > least]
    stacked = np.array([columns[what] for what in kinds]) / unit
    shown = by_column(stacked, steps, columns_for(steps, longest))
    entries = zip(kinds, [css(fills[what]) for what in kinds], shown, strict=True)
    return stack(axis, steps, list(entries))


def mark_peak(axis: Any, ledger: Ledger, unit: int, name: str, colours: Theme) -> None:
    """Mark the total peak with a line, its size, and the part that is sources."""
    height, step = ledger.peak_bytes / unit, ledger.peak_step
    sources = sum(ledger.sources.values()) / unit
    is_wide = axis.figure.get_figwidth() >= BESIDE
    text = f"peak {height:.4g} {name}" + (f", {sources:.4g} of it sources" if is_wide else "")
    draw_peak_line(axis, step + 0.5, height, text, colours)
