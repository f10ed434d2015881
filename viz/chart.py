"""Charts of traces, by matplotlib, in the theme's colours."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import TinyckptError
from tinyckpt.files import write_atomically
from viz.draw import as_list, check
from viz.scene import counts_nodes, live_of, subtitle_of, title_of
from viz.strip import KINDS, by_column, stacked
from viz.theme import THEMES, Theme, font_file

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

FORMATS = ("png", "svg")
MOST_COLUMNS = 1000  # about a pixel each in a PNG


def timeline(
    traces: Trace | Sequence[Trace], path: str | os.PathLike[str], *, theme: str = "light"
) -> Path:
    """Write live memory against steps, one chart a trace, on shared scales; PNG or SVG.

    Args:
        traces: one trace, or several to compare.
        path: ends in ``.png`` or ``.svg``; the file is replaced only once the new one is complete.
        theme: ``light`` or ``dark``.

    Raises:
        TinyckptError: if the theme or the format is unknown, or the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    shown = as_list(traces)
    check(shown, theme)
    form = Path(path).suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise TinyckptError(f"{path}: unknown format {form!r}; known are {', '.join(FORMATS)}")
    colours = THEMES[theme]
    in_nodes = counts_nodes(shown)
    largest = max(max(live_of(trace, in_nodes)) for trace in shown)
    unit, name = (1, "nodes") if in_nodes else byte_unit(largest)
    # Text as paths, so that an SVG looks the same wherever it is opened; no date, so that the same
    # trace gives the same file.
    for weight in ("Regular", "SemiBold"):
        matplotlib.font_manager.fontManager.addfont(font_file(weight))
    with matplotlib.rc_context(
        {"font.family": "Inter", "font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "0"}
    ):
        figure = Figure(figsize=(8, 0.5 + 1.9 * len(shown)), facecolor=css(colours.background))
        axes = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axis, trace in zip(axes, shown, strict=True):
            kinds = stacked(trace, in_nodes) / unit
            peak = max(live_of(trace, in_nodes)) / unit
            draw_timeline(axis, trace, colours, kinds, f"{peak:.4g} {name}")
            axis.axhline(peak, color=css(colours.muted), linewidth=0.8, linestyle=(0, (4, 3)))
            axis.set_ylabel(f"live {name}", color=css(colours.muted))
        axes[0].set_xlim(0, max(len(trace.steps) for trace in shown))
        axes[0].set_ylim(0, 1.18 * largest / unit)
        axes[-1].set_xlabel("step", color=css(colours.muted))
        handles = {
            label: handle
            for axis in axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        axes[0].legend(
            handles.values(), handles.keys(),
            frameon=False, labelcolor=css(colours.muted), ncols=3, loc="lower right",
            bbox_to_anchor=(1.0, 1.1), borderaxespad=0.1, handlelength=1.2,
        )  # fmt: skip
        figure.tight_layout()
        buffer = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(buffer, format=form, dpi=150, metadata=metadata)
    write_atomically(path, buffer.getvalue())
    return Path(path)


def css(colour: tuple[int, int, int]) -> str:
    """Return a colour as ``#RRGGBB``."""
    return "#{:02X}{:02X}{:02X}".format(*colour)


def draw_timeline(axis: Any, trace: Trace, colours: Theme, kinds: Any, peak: str) -> None:
    """Draw one trace: what is live at every step, by kind."""
    from matplotlib.font_manager import FontProperties

    steps = kinds.shape[1]
    columns = by_column(kinds, steps, min(steps, MOST_COLUMNS))
    fills = (colours.kept, colours.gradient, colours.workspace)
    shown = [entry for entry in zip(KINDS, fills, columns, strict=True) if entry[2].any()]
    # Each column is a bar from where it begins to where the next one does.
    edges = [steps * place / columns.shape[1] for place in range(columns.shape[1] + 1)]
    if not shown:  # nothing but views: no memory at any step
        shown = [(KINDS[0], fills[0], columns[0])]
    axis.stackplot(
        edges,
        [[*column, column[-1]] for _, _, column in shown],
        labels=[name for name, _, _ in shown],
        colors=[css(fill) for _, fill, _ in shown],
        step="post",
        linewidth=0,
    )
    muted = css(colours.muted)
    heading = {"fontproperties": FontProperties(fname=font_file("SemiBold"), size=12)}
    axis.set_title(title_of(trace), loc="left", color=css(colours.ink), pad=15, **heading)
    axis.text(0, 1.03, subtitle_of(trace), transform=axis.transAxes, color=muted, fontsize=8)
    axis.text(
        1, 1.03, f"peak {peak}", transform=axis.transAxes, color=muted, fontsize=8, ha="right"
    )
    axis.set_facecolor(css(colours.panel))
    axis.tick_params(colors=muted, labelsize=8)
    for side in axis.spines.values():
        side.set_visible(False)


def byte_unit(largest: int) -> tuple[int, str]:
    """Return the unit in which the largest value reads best."""
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if largest >= 2**power:
            return 2**power, name
    return 1, "B"
