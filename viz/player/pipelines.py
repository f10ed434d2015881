"""HTML player of pipeline schedules: animated Gantt chart, messages and memory per device."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.program import Kind

from ..charts.pipeline import pipeline_figure
from ..charts.pipeline_gantt import idle_texts, rows_of
from ..charts.pipeline_lanes import (
    counters_of,
    lane_of,
    moments_of,
    ready_of,
    scale_of,
    subtitles_of,
    ticks_of,
    title_of,
)
from ..charts.style import DPI, METADATA, looks
from ..scene import count_text
from ..theme import THEMES
from .data import shown
from .packing import Packed, bundle_columns, packed
from .page import FRESH, filled, json_text, table_of

if TYPE_CHECKING:
    from tinyckpt.pipeline import PipelineTrace

SCRIPT = "pipeline"
LEFT_OUT = ("export", "rows")  # modules of controls that a pipeline does not have
HEADER = ("schedule", "devices", "micro-batches", "makespan", "bubble", "highest peak")
# Limits of a page: some 2 MB, and a canvas that every browser supports.
MOST_BLOCKS, MOST_DEVICES = 100_000, 128
COLOURS = 64  # of the fallback picture


def pipeline_page(traces: Sequence[PipelineTrace], theme: str, title: str | None) -> str:
    """Return the page; ``theme`` is ``auto``, ``light`` or ``dark``.

    Raises:
        OptionError: if there is more than a page can hold.
    """
    check_size(traces)
    names = list(dict.fromkeys(title_of(trace) for trace in traces))
    heading = title if title is not None else f"{', '.join(names)}: pipelines over time"
    rows = [
        (
            title_of(trace),
            count_text(trace.pipeline.devices),
            count_text(trace.pipeline.micro_batches),
            *(text for _, text in counters_of(trace)),
        )
        for trace in traces
    ]
    return filled(
        "pipeline.html",
        styles=("player.css", "touch.css", "present.css", "pipeline.css"),
        scripts=[FRESH, SCRIPT],
        left_out=LEFT_OUT,
        step_back="Back to the last change",
        step="To the next change",
        theme=theme,
        title=html.escape(shown(heading)),
        data=json_text(bundle_columns(page_data(traces, title))),
        still=still(traces, theme),
        table=table_of(HEADER, rows),
    )


def check_size(traces: Sequence[PipelineTrace]) -> None:
    """Raise OptionError if there are more blocks or devices than a page holds."""
    blocks = sum(int(np.count_nonzero(trace.pipeline.kind <= Kind.UPDATE)) for trace in traces)
    devices = max(trace.pipeline.devices for trace in traces)
    if blocks > MOST_BLOCKS or devices > MOST_DEVICES:
        raise OptionError(
            f"{blocks:,} forwards and backwards on {devices:,} devices; a page holds at most "
            f"{MOST_BLOCKS:,} on {MOST_DEVICES:,}: have fewer micro-batches or stages, or draw all "
            'of it with viz.pipeline(traces, "pipeline.png")'
        )


def page_data(traces: Sequence[PipelineTrace], title: str | None) -> dict[str, Any]:
    """Return all data of a page; ``title`` replaces the schedule's name, for one."""
    longest = max(float(trace.makespan) for trace in traces)
    factor, measure = scale_of(traces[0], longest)
    named = title if len(traces) == 1 else None
    return {
        "longest": longest / factor,
        "highest": max(1, *(max(trace.peaks) for trace in traces)),
        "traces": [trace_data(trace, factor, measure, named) for trace in traces],
    }


def trace_data(
    trace: PipelineTrace, factor: float, measure: str, title: str | None
) -> dict[str, Any]:
    """Return a schedule's blocks, device by device; times are indices into its moments."""
    own = trace.pipeline
    lanes = [lane_of(trace, device) for device in range(own.devices)]
    columns = {
        name: np.concatenate([getattr(lane, name) for lane in lanes])
        for name in ("kind", "stage", "micro_batch", "begin", "end")
    }
    read, taken = ready_of(trace)
    ready = np.maximum(read, taken)
    every = [columns.pop("begin"), columns.pop("end"), ready[ready >= 0], [0, ticks_of(trace)]]
    moments, places = moments_of(np.concatenate(every))
    count = len(ready)
    at = np.full(count, -1)
    at[ready >= 0] = places[2 * count : 2 * count + int((ready >= 0).sum())]
    per = trace.unit * factor
    return {
        "title_text": shown(title if title is not None else title_of(trace)),
        "subtitle": subtitles_of(trace)[0],
        "measure": measure,
        "bubble": dict(counters_of(trace))["bubble"],
        "counts": trace.footprints is None,
        "folded": own.folded,
        "makespan": ticks_of(trace) / per,
        "way": float(trace.costs.communication) / factor,
        "stages": own.stages,
        "depth": own.stages // own.replicas,
        "micro_batches": own.micro_batches,
        "rows": rows_of(trace),
        "stages_of": [list(lane.stages) for lane in lanes],
        "device_of": own.device_of.tolist(),
        "peaks": list(trace.peaks),
        "idle": idle_texts(trace),
        "moments": numbers([float(moment) / per for moment in moments]),
        "first": packed([0, *np.cumsum([len(lane.kind) for lane in lanes])]),
        **{name: packed(column.astype(np.int64)) for name, column in columns.items()},
        "begin": packed(places[:count]),
        "end": packed(places[count : 2 * count]),
        "ready": packed(at),
        "by_message": packed((taken > read).astype(np.int64)),
        "during": packed(np.concatenate([lane.held[1:-1:2] for lane in lanes])),
        "after": packed(np.concatenate([lane.held[2:-1:2] for lane in lanes])),
    }


def numbers(values: list[float]) -> Packed:
    """Pack numbers that need not be integers."""
    return {"type": "texts", "bytes": json.dumps(values).encode()}


def still(traces: Sequence[PipelineTrace], theme: str) -> str:
    """Return a picture of the whole schedule, as the fallback without scripts."""
    from PIL import Image

    colours = THEMES["dark" if theme == "dark" else "light"]
    buffer = io.BytesIO()
    with looks():
        figure = pipeline_figure(traces, colours)
        figure.savefig(buffer, format="png", dpi=DPI, metadata=METADATA["png"])
    small = io.BytesIO()
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    names = html.escape(shown(", ".join(title_of(trace) for trace in traces)), quote=True)
    content = base64.b64encode(small.getvalue()).decode()
    return f'<img src="data:image/png;base64,{content}" alt="Devices against time: {names}">'
