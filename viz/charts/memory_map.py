"""Memory map of a schedule: address against steps, one rectangle per allocation.

With the arena (``tc.arena``) every address is planned; with the caching allocator (``tc.reserved``)
it is what PyTorch's would give, with a line where each segment begins. Empty space below the height
is a hole: memory that is reserved and unused at that step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import temporary_path
from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.arena import Arena, arena
from tinyckpt.codegen.reserved_memory import Reserved, reserved
from tinyckpt.core.schedule import EVALUATIONS, Schedule, recomputations

from ..scene import check_drawable, count_text, listed_titles
from ..theme import blend, css
from .style import (
    WIDTH,
    byte_unit,
    hatched,
    heading,
    legend_below,
    new_figure,
    style_axes,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.trace import Trace

    from ..theme import Theme

HEIGHT = 3.6  # inches
MOST_BYTES = 40_000  # of an SVG
FEW = 24  # allocations that have their names on them
MOST_RECTANGLES = 2000  # that are drawn one by one; of more, and of too large an SVG, an image
ROWS, COLUMNS = 200, 500  # of the image
Plan = Arena | Reserved
KINDS = ("forward value", "recomputed", "gradient", "workspace")


def memory_map(
    trace: Trace | Schedule | Plan | Sequence[Plan],
    path: str | os.PathLike[str] | None = None,
    *,
    allocator: str = "arena",
    theme: str = "light",
    width: float = WIDTH,
    title: str | Sequence[str] | None = None,
) -> Path:
    """Write the memory map of a trace or schedule: addresses against steps.

    What ``tc.arena`` or ``tc.reserved`` returned is drawn as it is; several, beside each other on
    one scale.

    The dashed line is the peak of live bytes, each size rounded up as the allocator does, which no
    addresses can go below; the solid one is the
    height: the buffer's size, or what is reserved.

    Args:
        trace: a trace, its schedule, or one or several plans of its addresses.
        path: ends in ``.png``, ``.svg`` or ``.pdf``; with none, the picture is an SVG in a folder
            of its own, and shows itself in a notebook.
        allocator: ``arena``, offsets in one buffer; or ``caching``, PyTorch's allocator of CUDA
            memory.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the sentence that says the result, of several one each; ``""`` for none.

    Raises:
        TinyckptError: if an option or the format is unknown, or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> schedule = tc.plan(tc.networks.chain(8), "sqrt_n")
    >>> with TemporaryDirectory() as folder:
    ...     viz.memory_map(schedule, f"{folder}/map.svg").name
    'map.svg'
    """
    from tinyckpt.core.replay import replay
    from tinyckpt.core.trace import Trace

    if allocator not in ("arena", "caching"):
        raise OptionError(f"allocator={allocator!r}; expected 'arena' or 'caching'")
    plans: list[Plan] = []
    if isinstance(trace, Schedule | Trace):
        drawn = replay(trace) if isinstance(trace, Schedule) else trace
        check_drawable([drawn], theme)
        schedule = drawn.schedule
        plans.append(arena(schedule) if allocator == "arena" else reserved(schedule))
    else:
        plans += trace if isinstance(trace, Sequence) else [trace]
        for each in plans:
            if not isinstance(each, Arena | Reserved):
                raise OptionError(f"expected a trace or a schedule, got a {type(each).__name__}")
        check_drawable([replay(each.schedule) for each in plans], theme)
    if path is None:
        path = temporary_path(".svg")
    texts = [sentences_of(each)[0] for each in plans]
    if title is not None:
        texts = listed_titles(title)
    if len(texts) != len(plans):
        raise OptionError(f"{len(texts)} titles of {len(plans)} maps")
    return write(
        path,
        theme,
        width,
        lambda colours: maps_figure(plans, colours, width, texts),
        [lambda colours: maps_figure(plans, colours, width, texts, 0)],
        MOST_BYTES,
    )


def sentences_of(plan: Plan) -> tuple[str, str]:
    """Return what a map shows: sizes, and what holes cost.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "sqrt_n")
    >>> sentences_of(tc.arena(schedule))
    ('4.5 KiB live in one buffer of 4.5 KiB', 'no memory is lost to holes')
    >>> sentences_of(tc.reserved(schedule))
    ('4.5 KiB live in segments of 2.0 MiB', '2.0 MiB more than is ever live')
    """
    live, height = size_text(plan.lower_bound), size_text(plan.nbytes)
    above = plan.nbytes - plan.lower_bound
    where = "one buffer" if isinstance(plan, Arena) else "segments"
    cost = f"{size_text(above)} more than is ever live" if above else "no memory is lost to holes"
    return f"{live} live in {where} of {height}", cost


def kinds_of(plan: Plan) -> list[int]:
    """Return the kind of each allocation, by its place in KINDS.

    A value is recomputed if its operator was evaluated before, and a gradient if the backward pass
    makes it: a cotangent, or a result of it.
    """
    graph, steps = plan.schedule.graph, plan.schedule.steps
    again = recomputations(steps)
    kinds = []
    for each in plan.allocations:
        if each.kind == "workspace":
            kinds.append(KINDS.index("workspace"))
            continue
        producer = graph.data[each.storage].producer
        backward = producer is not None and graph.operators[producer].phase == "backward"
        if backward:
            kinds.append(KINDS.index("gradient"))
        else:
            repeated = isinstance(steps[each.start], EVALUATIONS) and again[each.start]
            kinds.append(int(repeated))
    return kinds


def maps_figure(
    plans: Sequence[Plan],
    colours: Theme,
    width: float,
    titles: Sequence[str],
    most: int = MOST_RECTANGLES,
) -> Figure:
    """Return the figure of maps beside each other, on one scale; call it within ``looks()``."""
    figure = new_figure(colours, HEIGHT, width)
    highest = max(1, *(plan.nbytes for plan in plans))
    for number, (plan, title) in enumerate(zip(plans, titles, strict=True), 1):
        axis = figure.add_subplot(1, len(plans), number)
        style_axes(axis, colours)
        pairs = overlaps(plan)
        lost = f"{counted(len(pairs), 'overlap')}: no packing" if pairs else sentences_of(plan)[1]
        what = f"{plan.schedule.policy} of {plan.schedule.graph.name}"
        count = f"{count_text(len(plan.allocations))} allocations"
        heading(axis, colours, title, lost if len(plans) > 1 else f"{lost} · {what} · {count}")
        draw_map(axis, plan, highest, colours, most)
        if number > 1:
            axis.set_ylabel("")
    figure.tight_layout()
    for axis in figure.axes:
        drop_cut_names(axis)
    kinds = sorted({kind for plan in plans for kind in kinds_of(plan)})
    draw_legend(figure, kinds, "buffer" if isinstance(plans[0], Arena) else "reserved", colours)
    return figure


def draw_map(axis: Any, plan: Plan, highest: int, colours: Theme, most: int) -> None:
    """Draw a map into axes whose scale ends above the highest address of all maps."""
    unit, name = byte_unit(highest)
    steps = max(1, len(plan.schedule))
    axis.set_xlim(0, steps)
    axis.set_ylim(0, highest / unit * 1.08)
    kinds = np.array(kinds_of(plan), int)
    if len(plan.allocations) <= most:
        draw_rectangles(axis, plan, kinds, unit, colours)
        if len(plan.allocations) <= FEW:
            draw_names(axis, plan, unit, colours)
    else:
        draw_image(axis, plan, kinds, unit, colours)
    if isinstance(plan, Reserved):
        for segment in plan.segments:
            axis.plot(
                [segment.step, steps], [segment.address / unit] * 2, linewidth=0.6,
                color=css(blend(colours.muted, colours.panel, 0.5)), zorder=3,
            )  # fmt: skip
    axis.axhline(plan.nbytes / unit, color=css(colours.ink), linewidth=1.0, zorder=4)
    axis.axhline(
        plan.lower_bound / unit, color=css(colours.ink), linewidth=1.0, linestyle=(0, (4, 3)),
        zorder=4,
    )  # fmt: skip
    axis.set_xlabel("step")
    axis.set_ylabel(f"address, {name}")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.xaxis.set_major_formatter(lambda at, _: count_text(round(at)))


def look_of(kind: int, colours: Theme) -> dict[str, Any]:
    """Return the area style of a kind of allocation."""
    if KINDS[kind] == "recomputed":
        return hatched(colours.recomputed, colours.kept)
    fills = {
        "forward value": colours.kept,
        "gradient": colours.gradient,
        "workspace": colours.workspace,
    }
    return {
        "facecolor": css(fills[KINDS[kind]]), "edgecolor": css(colours.panel), "linewidth": 0.5,
    }  # fmt: skip


def draw_rectangles(axis: Any, plan: Plan, kinds: Any, unit: int, colours: Theme) -> None:
    """Draw each allocation as a rectangle."""
    from matplotlib.collections import PolyCollection

    for kind in sorted(set(kinds.tolist())):
        corners = []
        for place in np.flatnonzero(kinds == kind):
            each = plan.allocations[place]
            low = plan.offsets[place] / unit
            high = low + each.nbytes / unit
            corners.append(
                [(each.start, low), (each.stop, low), (each.stop, high), (each.start, high)]
            )
        axis.add_collection(PolyCollection(corners, zorder=2, **look_of(kind, colours)))


def overlaps(plan: Plan) -> list[tuple[int, int]]:
    """Return the pairs of allocations that share an address at a step; of a small plan only.

    A planner's plans have none; somebody's answer may.
    """
    if len(plan.allocations) > FEW:
        return []
    boxes = [(each.start, each.stop, low, low + each.nbytes)
             for each, low in zip(plan.allocations, plan.offsets, strict=True)]  # fmt: skip
    return [
        (one, other)
        for (one, a), (other, b) in combinations(enumerate(boxes), 2)
        if max(a[0], b[0]) < min(a[1], b[1]) and max(a[2], b[2]) < min(a[3], b[3])
    ]


def draw_names(axis: Any, plan: Plan, unit: int, colours: Theme) -> None:
    """Write the name of each value into its rectangle, and hatch what two of them share."""
    from matplotlib.patches import Rectangle

    places = [*zip(plan.allocations, plan.offsets, strict=True)]
    for pair in overlaps(plan):
        (a, low), (b, below) = (places[place] for place in pair)
        left, right = max(a.start, b.start), min(a.stop, b.stop)
        bottom, top = max(low, below), min(low + a.nbytes, below + b.nbytes)
        axis.add_patch(Rectangle(
            (left, bottom / unit), right - left, (top - bottom) / unit, zorder=3, linewidth=1.5,
            facecolor=css(colours.recomputing), edgecolor=css(colours.ink),
        ))  # fmt: skip
    labels = {
        "forward value": colours.kept_label, "recomputed": colours.recomputed_label,
        "gradient": colours.gradient_label,
    }  # fmt: skip
    for (each, low), kind in zip(places, kinds_of(plan), strict=True):
        if each.kind == "value":
            node = plan.schedule.graph.data[each.storage]
            text = axis.text(
                (each.start + each.stop) / 2, (low + each.nbytes / 2) / unit, node.name,
                ha="center", va="center", fontsize=8, color=css(labels[KINDS[kind]]), zorder=5,
            )  # fmt: skip
            if KINDS[kind] == "recomputed":  # on its hatch a name is not legible
                text.set_bbox({"facecolor": css(colours.recomputed), "linewidth": 0, "pad": 1.5})
            text.set_gid(f"{each.stop - each.start} {each.nbytes / unit}")


def drop_cut_names(axis: Any) -> None:
    """Remove the names that are wider or higher than their rectangles."""
    for text in [text for text in axis.texts if text.get_gid()]:
        wide, high = map(float, text.get_gid().split())
        text.set_gid(None)
        (left, bottom), (right, top) = axis.transData.transform([(0, 0), (wide, high)])
        box = text.get_window_extent()
        if box.width > right - left or box.height > (top - bottom) * 1.15:
            text.remove()


def draw_image(axis: Any, plan: Plan, kinds: Any, unit: int, colours: Theme) -> None:
    """Draw many allocations as cells of an image: each has the colour of what is at its middle."""
    steps = max(1, len(plan.schedule))
    rows, columns = ROWS, min(COLUMNS, steps)
    image = np.empty((rows, columns, 3), np.uint8)
    image[:] = colours.panel
    fills = (colours.kept, colours.recomputed, colours.gradient, colours.workspace)
    cell = max(plan.nbytes, 1) / rows
    for each, low, kind in zip(plan.allocations, plan.offsets, kinds.tolist(), strict=True):
        bottom, top = middles(low, low + each.nbytes, cell)
        left, right = middles(each.start, each.stop, steps / columns)
        image[bottom:top, left:right] = fills[kind]
    axis.imshow(
        image, extent=(0, steps, 0, plan.nbytes / unit), origin="lower", aspect="auto",
        interpolation="nearest", zorder=2,
    )  # fmt: skip


def middles(begin: float, end: float, cell: float) -> tuple[int, int]:
    """Return the range of cells whose middles are within a half-open range.

    >>> middles(0, 10, 4), middles(3, 5, 4)
    ((0, 2), (1, 1))
    """
    return round_up(begin / cell - 0.5), round_up(end / cell - 0.5)


def round_up(value: float) -> int:
    """Return the least whole number that is not less, and at least 0."""
    return max(0, -int(-value // 1))


def draw_legend(figure: Figure, kinds: Sequence[int], height: str, colours: Theme) -> None:
    """Draw the legend below the chart; only kinds that occur."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(label=KINDS[kind], **look_of(kind, colours)) for kind in kinds]
    line: dict[str, Any] = {"color": css(colours.ink), "linewidth": 1.0}
    dashes = (0, (4, 3))
    handles.append(Line2D([], [], label=height, **line))
    handles.append(Line2D([], [], label="peak of live bytes, rounded up", linestyle=dashes, **line))
    legend_below(figure, handles, colours, handlelength=1.4)
