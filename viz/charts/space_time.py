"""Space-time diagram of a schedule (checkpointing ledger): operators against evaluations.

Up: the forward operators. To the right: evaluations. A bar is a live value, a cell is an
evaluation: the forward sweep climbs, the backward sweep comes down again, and recomputations are
the little climbs in between. Compare figure 1 of A. Griewank and A. Walther, Revolve, 2000,
doi:10.1145/347837.347846.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..scene import as_list, check_drawable, count_text, subtitle_of
from ..theme import RGB, css
from .residency import EvaluationKind, ResidencyRows, ledger_of
from .style import (
    WIDTH,
    Titles,
    hatched,
    heading,
    legend_below,
    names_of,
    new_figure,
    shown,
    style_axes,
    titles_of,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.trace import Trace

    from ..theme import Theme

MOST_ROWS = 36
MOST_CELLS = 420  # evaluations that are drawn one by one; with more, several share a cell
COLUMNS = 1000  # of an aggregated ledger: about a pixel each in a PNG
ROW = 0.135  # inches
FAINTEST = 0.2  # least opacity of any live memory
BAR = 0.62  # of a row's height
AROUND = 0.68  # inches for headings and ticks


def ledger(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write the space-time diagram of traces, one chart per trace, on one time scale.

    Every row is a forward operator with its backward operators. In a graph of many operators it is
    a scope, or a run of operators, whose shade of blue is the live share of its bytes; and in a
    long trace a cell is several evaluations, and shows a recomputation if any of them is one.

    Args:
        traces: one trace, or several to compare.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the policies' names, one per trace; ``""`` for none.

    Raises:
        TinyckptError: if the theme or the format is unknown, or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(8), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.ledger(trace, f"{folder}/ledger.svg").name
    'ledger.svg'
    """
    listed = as_list(traces)
    check_drawable(listed, theme)
    names = titles_of(names_of(listed), title)
    return write(path, theme, width, lambda colours: ledger_figure(listed, colours, width, names))


def ledger_figure(
    traces: Sequence[Trace],
    colours: Theme,
    width: float = WIDTH,
    names: Sequence[str] | None = None,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    ledgers = [ledger_of(trace, MOST_ROWS) for trace in traces]
    heights = [max(5, len(book.rows)) * ROW + AROUND for book in ledgers]
    figure = new_figure(colours, sum(heights) + 0.55, width)
    names = names_of(traces) if names is None else names
    axes = figure.subplots(
        len(traces), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    longest = max(1, *(book.evaluations for book in ledgers))
    for axis, trace, book, name in zip(axes, traces, ledgers, names, strict=True):
        style_axes(axis, colours)
        heading(axis, colours, name, subtitle_of(trace))
        axis.set_xlim(0, longest)
        axis.set_ylim(-0.5, len(book.rows) - 0.5)
        label_rows(axis, book)
        if draws_marks(trace, longest):
            draw_bars(axis, book, colours)
            draw_marks(axis, book, colours)
        else:
            draw_cells(axis, trace, book, longest, colours)
    axes[-1].set_xlabel("evaluation")
    axes[-1].xaxis.set_major_formatter(lambda at, _: count_text(round(at)))
    figure.tight_layout()
    draw_legend(figure, ledgers, colours, all(draws_marks(trace, longest) for trace in traces))
    return figure


def draws_marks(trace: Trace, longest: int) -> bool:
    """Whether every operator has a row of its own, and every evaluation a cell."""
    return trace.graph.forward_count <= MOST_ROWS and longest <= MOST_CELLS


def label_rows(axis: Any, book: ResidencyRows) -> None:
    """Label the rows: all of them, since there are few enough."""
    axis.set_yticks(range(len(book.rows)), [shown(name, 26) for name in book.rows])
    axis.tick_params(axis="y", labelsize=6.5, length=0, pad=3)


def fill_of(kind: EvaluationKind, colours: Theme) -> RGB:
    """Return the colour of a kind of evaluation."""
    return {
        EvaluationKind.FORWARD: colours.evaluation,
        EvaluationKind.BACKWARD: colours.gradient,
        EvaluationKind.RECOMPUTATION: colours.recomputing,
    }[kind]


def draw_bars(axis: Any, book: ResidencyRows, colours: Theme) -> None:
    """Draw the live interval of each value: thick on the device, a thin line on the host."""
    for recomputed, on_host in ((False, False), (True, False), (False, True), (True, True)):
        look: dict[str, Any] = {"color": css(colours.kept), "linewidth": 0}
        if recomputed:
            look = hatched(colours.recomputed, colours.kept)
        bars = [b for b in book.bars if (b.recomputed, b.on_host) == (recomputed, on_host)]
        height = 0.1 if on_host else BAR
        axis.barh(
            [bar.row for bar in bars], [bar.end - bar.begin for bar in bars], height=height,
            left=[bar.begin for bar in bars], zorder=2, **look,
        )  # fmt: skip


def draw_marks(axis: Any, book: ResidencyRows, colours: Theme) -> None:
    """Draw each evaluation as a cell."""
    for kind in EvaluationKind:
        marks = [mark for mark in book.marks if mark.kind == kind]
        look: dict[str, Any] = {"color": css(fill_of(kind, colours)), "linewidth": 0}
        if kind is EvaluationKind.RECOMPUTATION:
            look = hatched(colours.recomputing, colours.background)
        axis.barh(
            [mark.row for mark in marks], [1.0] * len(marks), left=[mark.at for mark in marks],
            height=0.9, zorder=3, **look,
        )  # fmt: skip


def draw_cells(axis: Any, trace: Trace, book: ResidencyRows, longest: int, colours: Theme) -> None:
    """Draw an aggregated ledger: an image with a pixel per row and run of evaluations."""
    axis.imshow(
        cells_of(trace, book, longest, colours), extent=(0, longest, -0.5, len(book.rows) - 0.5),
        origin="lower", aspect="auto", interpolation="nearest", zorder=2,
    )  # fmt: skip
    for row in range(1, len(book.rows)):
        axis.axhline(row - 0.5, color=css(colours.background), linewidth=0.8, zorder=4)


def cells_of(trace: Trace, book: ResidencyRows, longest: int, colours: Theme) -> Any:
    """Return the image of an aggregated ledger, (rows, columns, 3), in 8-bit colours."""
    held, again = shares_of(trace, book, longest)
    kept, recomputed, panel = (
        np.array(colour, float) for colour in (colours.kept, colours.recomputed, colours.panel)
    )
    held, again = held[..., None], again[..., None]
    image = held * kept + again * recomputed + np.clip(1 - held - again, 0, 1) * panel
    image = image.round().astype(np.uint8)
    columns = image.shape[1]
    for mark in sorted(book.marks, key=lambda mark: mark.kind):
        begin = mark.at * columns // longest
        end = max(begin + 1, (mark.at + 1) * columns // longest)
        image[mark.row, begin:end] = fill_of(mark.kind, colours)
    return image


def shares_of(trace: Trace, book: ResidencyRows, longest: int) -> tuple[Any, Any]:
    """Return the live share of each row's bytes over time, and the part from recomputations."""
    graph = trace.graph
    columns = min(longest, COLUMNS)
    total = np.zeros(len(book.rows))
    for data, row in {bar.data: bar.row for bar in book.bars}.items():
        total[row] += graph.data[data].nbytes
    held = np.zeros((2, len(book.rows), columns + 1))
    for bar in book.bars:
        if not bar.on_host:
            begin = bar.begin * columns // longest
            end = max(begin + 1, -(-bar.end * columns // longest))
            held[int(bar.recomputed), bar.row, begin] += graph.data[bar.data].nbytes
            held[int(bar.recomputed), bar.row, end] -= graph.data[bar.data].nbytes
    shares = held.cumsum(axis=2)[..., :columns] / np.maximum(total, 1)[:, None]
    # Where several evaluations share a cell, a freed value and its successor may both be counted.
    shares /= np.maximum(shares.sum(axis=0), 1)
    # Small shares are raised, so that they can be told from 0.
    total_share = shares.sum(axis=0)
    wanted = np.where(total_share > 0, FAINTEST + (1 - FAINTEST) * total_share, 0)
    shares *= wanted / np.where(total_share > 0, total_share, 1)
    return shares[0], shares[1]


def draw_legend(
    figure: Figure, ledgers: Sequence[ResidencyRows], colours: Theme, detailed: bool
) -> None:
    """Draw the legend below the charts; only colours that occur."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    live = "value in memory" if detailed else "in memory (stronger: more of it)"
    kinds = {mark.kind for book in ledgers for mark in book.marks}
    bars = {(bar.recomputed, bar.on_host) for book in ledgers for bar in book.bars}
    entries = (
        (EvaluationKind.FORWARD in kinds, "forward evaluation", colours.evaluation),
        (EvaluationKind.RECOMPUTATION in kinds, "recomputation", colours.recomputing),
        (EvaluationKind.BACKWARD in kinds, "backward evaluation", colours.gradient),
        (any(not again for again, _ in bars), live, colours.kept),
        (any(again for again, _ in bars), "in memory, recomputed", colours.recomputed),
    )
    strokes = {"recomputation": colours.background, "in memory, recomputed": colours.kept}
    handles: list[Any] = [
        Patch(label=text, **hatched(fill, strokes[text]))
        if detailed and text in strokes
        else Patch(color=css(fill), label=text, linewidth=0)
        for there, text, fill in entries
        if there
    ]
    if detailed and any(on_host for _, on_host in bars):
        handles.append(Line2D([], [], color=css(colours.kept), label="on the host"))
    legend_below(figure, handles, colours, handlelength=1.0)
