"""Gantt chart of a pipeline schedule: compute blocks, bubbles, micro-batch numbers, messages.

Draws what ``pipeline_lanes`` extracts onto matplotlib axes, for ``pipeline``. With too many devices
or blocks to be drawn one by one, it draws utilisation instead: an image of the share of each kind
of work over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from ..scene import count_text
from ..theme import RGB, Theme, blend, contrast, css, rgb
from .compact_svg import HALO
from .pipeline_lanes import WORK, DeviceLane, blocks_of, lane_of, messages_of, shares_of, ticks_of
from .style import LETTER, SMALL

if TYPE_CHECKING:
    from tinyckpt.pipeline import PipelineTrace

MOST_LANES = 16  # devices with a lane and a curve each; with more, several share one
FILLED = 0.78  # of a lane's height; the rest is between it and the next
NUMBER = 6.5  # points, of a micro-batch's number in its block
DIGIT = 0.62  # width of a digit, as a share of its size
APART = 10.0  # points per message, with which there is room for arrows
HAIRLINE = 0.3  # points
ODD = 0.8  # opacity of every second micro-batch's fill
FAINT = 0.3  # opacity of a block in the rows of the other stages of its lane
MOST_STAGES = 4  # of a device, up to which each has a row in its lane


class Detail(NamedTuple):
    """How much of a chart is drawn one by one.

    Attributes:
        apart: whether every block stands alone, with its number and shade, and messages are drawn;
            else neighbours of a kind are joined.
        blocks: per device, drawn at all; with more, a column shows shares of time.
        rows, columns: of a utilisation image.
        inks: its colours; None for as many as it has.
        corners: of a memory curve; with more, those that share a column are the highest of them.
    """

    apart: bool = True
    blocks: int = 420
    rows: int = 256
    columns: int = 1000  # about a pixel each in a PNG
    inks: int | None = None
    corners: int = 8000


FULL = Detail()
# What an SVG leaves out until it is small enough: numbers, messages, bounds of blocks; then blocks,
# of which columns mix the colours; then columns.
COARSER = (
    Detail(apart=False, corners=500),
    Detail(False, 0, rows=128, columns=500, inks=64, corners=250),
    Detail(False, 0, rows=48, columns=250, inks=32, corners=100),
    Detail(False, 0, rows=16, columns=125, inks=16, corners=40),
)


class BlockLook(NamedTuple):
    """Style of a kind of block: fill, and optionally a hatch and its colour, for greyscale."""

    fill: RGB
    hatch: str = ""
    strokes: RGB | None = None


def looks_of(colours: Theme) -> dict[str, BlockLook]:
    """Return the style of each kind of work."""
    pale = blend(colours.gradient, colours.background, 0.4)
    return {
        "forward": BlockLook(colours.kept),
        "recomputation": BlockLook(
            colours.recomputing, "////", blend(colours.background, colours.recomputing, 0.6)
        ),
        "backward": BlockLook(colours.gradient),
        "backward (inputs)": BlockLook(colours.gradient),
        "backward (weights)": BlockLook(pale, "....", colours.gradient),
        "update": BlockLook(colours.workspace),
    }


def idle_of(colours: Theme) -> RGB:
    """Return the fill of a bubble: equally dark in either theme."""
    share = 0.35 if colours.name == "light" else 0.6
    return blend(colours.not_yet_outline, colours.background, share)


def draws_blocks(trace: PipelineTrace, detail: Detail) -> bool:
    """Whether every device has its own lane and every block is drawn."""
    return trace.pipeline.devices <= MOST_LANES and blocks_of(trace) <= detail.blocks


def rows_of(trace: PipelineTrace) -> int:
    """Return the rows per lane: the most stages of a device, or 1 if these are too many."""
    most = int(np.bincount(trace.pipeline.device_of).max())
    return most if most <= MOST_STAGES else 1


def idle_texts(trace: PipelineTrace) -> list[str]:
    """Return the bubble share of each device: idle time over makespan, in percent."""
    shares = [100 * (1 - float(busy / trace.makespan)) for busy in trace.busy]
    # Near 0 and 100 % with a decimal, so that they are not rounded to 0 or 100.
    return [f"{share:.{int(0 < share < 1 or 99 < share < 100)}f} % idle" for share in shares]


def draw_lanes(
    axis: Any, trace: PipelineTrace, per: float, ticks: float, colours: Theme, detail: Detail
) -> None:
    """Draw the lane of each device, from the top; ``per`` ticks are one unit of the axis."""
    devices = trace.pipeline.devices
    axis.set_ylim(devices - 0.5, -0.5)
    for device, text in enumerate(idle_texts(trace) if devices <= MOST_LANES else ()):
        write_right(axis, device, text, colours)
    if not draws_blocks(trace, detail):
        label_devices(axis, list(range(devices)) if devices <= MOST_LANES else None, colours)
        draw_shares(axis, trace, per, ticks, colours, detail)
        return
    lanes = [lane_of(trace, device) for device in range(devices)]
    if rows_of(trace) > 1:
        label_stages(axis, trace, lanes, colours)
    else:
        label_devices(axis, list(range(devices)), colours)
    idle = [
        boxes_of(lane.idle[:, 0], lane.idle[:, 1], lane.device - FILLED / 2, FILLED)
        for lane in lanes
    ]
    add_boxes(axis, idle, per, BlockLook(idle_of(colours)), "idle", colours)
    for name, look in looks_of(colours).items():
        works = [np.isin(lane.kind, WORK[name]) & (lane.end > lane.begin) for lane in lanes]
        if rows_of(trace) > 1:
            pale = BlockLook(blend(look.fill, colours.background, FAINT))
            whole = [
                boxes_of(lane.begin[at], lane.end[at], lane.device - FILLED / 2, FILLED)
                for lane, at in zip(lanes, works, strict=True)
            ]
            add_boxes(axis, whole, per, pale, "other stages", colours)
        for odd in (False, True) if detail.apart else (False,):
            boxes = []
            for lane, at in zip(lanes, works, strict=True):
                top, height = rows_at(trace, lane)
                if detail.apart:
                    at = at & (lane.micro_batch % 2 == odd)
                    spans = lane.begin[at], lane.end[at], top[at]
                else:
                    spans = joined(lane.begin[at], lane.end[at], top[at])
                boxes.append(boxes_of(*spans, height))
            fill = blend(look.fill, colours.background, ODD) if odd else look.fill
            add_boxes(axis, boxes, per, look._replace(fill=fill), name, colours)


def label_stages(
    axis: Any, trace: PipelineTrace, lanes: Sequence[DeviceLane], colours: Theme
) -> None:
    """Label each row of each lane with its stage."""
    height = FILLED / rows_of(trace)
    names = {
        lane.device - FILLED / 2 + height * (row + 0.5): count_text(stage)
        for lane in lanes
        for row, stage in enumerate(lane.stages)
    }
    axis.set_yticks(list(names), list(names.values()))
    axis.tick_params(axis="y", length=0, labelsize=NUMBER)
    long = "stage; a lane is a device"
    points = axis.get_window_extent().height * 72 / axis.figure.dpi
    axis.set_ylabel(long if len(long) * LETTER <= points else "stage", color=css(colours.muted))


def rows_at(trace: PipelineTrace, lane: DeviceLane) -> tuple[Any, float]:
    """Return the upper edge of each block's row, downwards, and the height of rows."""
    rows = rows_of(trace)
    height = FILLED / rows
    number = np.searchsorted(lane.stages, lane.stage) if rows > 1 else np.zeros(len(lane.stage))
    return lane.device - FILLED / 2 + height * number, height


def joined(begin: Any, end: Any, top: Any) -> tuple[Any, Any, Any]:
    """Return begin, end and top of a lane's blocks of a kind, those that touch in a row as one."""
    order = np.lexsort((begin, top))
    begin, end, top = begin[order], end[order], top[order]
    starts = np.append(True, (begin[1:] > end[:-1]) | (top[1:] != top[:-1]))[: len(begin)]
    return begin[starts], end[np.append(starts[1:], True)[: len(end)]], top[starts]


def boxes_of(begin: Any, end: Any, top: Any, height: float) -> Any:
    """Return the corners of rectangles, (boxes, 4, 2)."""
    top = np.broadcast_to(top, begin.shape)
    xs = np.stack([begin, end, end, begin], axis=1).astype(float)
    ys = np.stack([top, top, top + height, top + height], axis=1)
    return np.stack([xs, ys], axis=2)


def add_boxes(
    axis: Any, boxes: Sequence[Any], per: float, look: BlockLook, name: str, colours: Theme
) -> None:
    """Draw blocks of one style."""
    from matplotlib.collections import PolyCollection

    corners: Any = np.concatenate(boxes) / [per, 1.0]
    if not len(corners):
        return
    # A hairline keeps narrow blocks visible; matplotlib draws a hatch in the edge colour.
    edge, hairline = (css(look.strokes), 0.0) if look.strokes else (css(look.fill), HAIRLINE)
    axis.add_collection(
        PolyCollection(
            corners, facecolors=css(look.fill), edgecolors=edge, linewidth=hairline,
            hatch=look.hatch, label=name, zorder=2,
        )
    )  # fmt: skip


def draw_shares(
    axis: Any, trace: PipelineTrace, per: float, ticks: float, colours: Theme, detail: Detail
) -> None:
    """Draw utilisation: an image of rows of devices and columns of time, by shares of work."""
    devices = trace.pipeline.devices
    own = float(ticks_of(trace))
    rows = min(devices, max(detail.rows, MOST_LANES))
    shares = shares_of(trace, rows, max(1, round(detail.columns * own / ticks)), own)
    fills = np.array([look.fill for look in looks_of(colours).values()], float)
    idle = np.clip(1 - shares.sum(axis=2, keepdims=True), 0, 1)
    image = (shares @ fills + idle * idle_of(colours)).round().astype(np.uint8)
    if detail.inks is not None:
        image = np.asarray(
            Image.fromarray(image).quantize(detail.inks, dither=Image.Dither.NONE).convert("RGB")
        )
    axis.imshow(
        image, extent=(0, own / per, devices - 0.5, -0.5), aspect="auto", interpolation="none",
        zorder=2, label="shares",
    )  # fmt: skip
    if devices <= MOST_LANES:
        for device in range(1, devices):
            axis.axhline(device - 0.5, color=css(colours.background), linewidth=2, zorder=4)


def label_devices(axis: Any, devices: Sequence[int] | None, colours: Theme) -> None:
    """Label lanes or curves with their devices; None for an axis of very many."""
    axis.set_ylabel("device", color=css(colours.muted))
    if devices is not None:
        axis.set_yticks(range(len(devices)), [count_text(device) for device in devices])
    axis.tick_params(axis="y", length=0)


def write_right(axis: Any, row: float, text: str, colours: Theme) -> None:
    """Write a text to the right of a lane or a curve."""
    axis.annotate(
        text, (1, row), (6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", fontsize=SMALL - 0.5, color=css(colours.muted),
    )  # fmt: skip


def draw_numbers(axis: Any, trace: PipelineTrace, per: float, colours: Theme) -> None:
    """Write micro-batch numbers into blocks that are wide enough, once the layout is final."""
    from matplotlib.patheffects import withStroke

    box = axis.get_window_extent()
    points = box.width * 72 / axis.figure.dpi / (axis.get_xlim()[1] * per)
    lane = box.height * 72 / axis.figure.dpi / trace.pipeline.devices
    longest = len(str(trace.pipeline.micro_batches - 1))
    if lane * FILLED / rows_of(trace) < NUMBER:
        return
    looks = looks_of(colours)
    names: dict[int, str] = {
        kind: name for name, kinds in WORK.items() for kind in kinds if name != "update"
    }
    for device in range(trace.pipeline.devices):
        found = lane_of(trace, device)
        top, height = rows_at(trace, found)
        wide = (found.end - found.begin) * points >= (longest * DIGIT + 0.5) * NUMBER
        for place in np.flatnonzero(wide).tolist():
            name = names.get(int(found.kind[place]))
            if name is None:
                continue
            micro_batch = int(found.micro_batch[place])
            look = looks[name]
            fill = blend(look.fill, colours.background, ODD) if micro_batch % 2 else look.fill
            text = axis.text(
                (float(found.begin[place]) + float(found.end[place])) / 2 / per,
                top[place] + height / 2, str(micro_batch), ha="center", va="center_baseline",
                fontsize=NUMBER, color=css(label_on(fill)), zorder=5,
            )  # fmt: skip
            if look.strokes:
                text.set_path_effects([withStroke(linewidth=2, foreground=css(fill))])
                text.set_gid(f"{HALO}{css(fill)}")  # an SVG has it from here


def label_on(fill: RGB) -> RGB:
    """Return black or white ink, whichever has more contrast on a fill (WCAG 2)."""
    black, white = rgb("#0A101C"), rgb("#FFFFFF")
    return white if contrast(white, fill) > contrast(black, fill) else black


def draw_messages(axis: Any, trace: PipelineTrace, per: float, colours: Theme) -> None:
    """Draw an arrow per message between neighbours if there is room, once the layout is final."""
    messages = messages_of(trace)
    near = messages[np.abs(messages[:, 1] - messages[:, 3]) == 1]
    if not len(near):
        return
    wide = axis.get_window_extent().width * 72 / axis.figure.dpi / (axis.get_xlim()[1] * per)
    if float(trace.makespan) * trace.unit * wide * (trace.pipeline.devices - 1) < APART * len(near):
        return
    for sent, source, there, target in near.tolist():
        down = 1 if target > source else -1
        axis.annotate(
            "", (there / per, target - down * FILLED / 2), (sent / per, source + down * FILLED / 2),
            arrowprops={
                "arrowstyle": "-|>,head_length=0.12,head_width=0.07", "linewidth": 0.6,
                "color": css(colours.ink), "shrinkA": 0, "shrinkB": 0,
            }, zorder=4, annotation_clip=False,
        )  # fmt: skip
