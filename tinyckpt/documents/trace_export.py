"""Export of traces: Chrome trace events for Perfetto, and CSV for spreadsheets (write only).

**Trace events** open in https://ui.perfetto.dev and in chrome://tracing. An evaluation is a
complete event (``X``) on one of the tracks forward, backward and recomputation; a transfer to or
from the host is one on a fourth track. Live memory by kind and the number of live values are
counters (``C``) with an event for every step; each live range of a value on the device is an
asynchronous span (``b`` to ``e``), with its bytes. Time is in microseconds: as measured, if the
trace has seconds; otherwise each evaluation and each transfer takes one millisecond, and every
other step none.
The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

**CSV** (RFC 4180, UTF-8) has one row per step; ``CSV_HEADER`` names the columns. A name that a
spreadsheet would evaluate as a formula is written with an apostrophe before it, which makes it text
there (CSV injection): only a malicious graph has such names, and the column ``id`` identifies the
operator or value in any case.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

from tinyckpt.base.errors import expect
from tinyckpt.base.files import write_atomically
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, recomputations, step_text
from tinyckpt.core.trace import Trace

CSV_HEADER = (
    "step", "verb", "id", "name", "recomputation", "live_nodes", "activation_bytes",
    "cotangent_bytes", "output_bytes", "workspace_bytes", "live_bytes", "host_bytes", "evaluations",
    "seconds",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that is a formula
TRACKS = ("forward", "backward", "recomputation", "transfer")
UNMEASURED = 1000.0  # microseconds that an evaluation takes in a trace that was not timed
MEMORY = ("activation", "cotangent", "output", "workspace")

Event = dict[str, Any]


def save_csv(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as CSV, one row per step, with the columns ``CSV_HEADER``.

    ``recomputation`` is 0 or 1; ``seconds`` is empty if they were not measured.

    Raises:
        FormatError: if the file cannot be written.

    >>> import pathlib, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "trace.csv"
    ...     tc.save_csv(tc.replay(tc.plan(tc.networks.chain(2))), path)
    ...     rows = path.read_text().splitlines()
    >>> rows[1]
    '0,compute,0,f1,0,1,512,0,0,0,512,0,1,'
    """
    expect(trace, Trace)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(CSV_HEADER)
    writer.writerows(csv_rows(trace))
    write_atomically(path, text.getvalue().encode("utf-8", "backslashreplace"))


def csv_rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each step, in the columns of CSV_HEADER."""
    seconds = trace.seconds or ("",) * len(trace.steps)
    columns = zip(
        trace.nodes, trace.activation, trace.cotangent, trace.output, trace.workspace,
        trace.live_bytes, trace.host, trace.evaluations_so_far, seconds, strict=True,
    )  # fmt: skip
    for position, (step, again, entries) in enumerate(
        zip(trace.steps, recomputations(trace.steps), columns, strict=True)
    ):
        verb, name = step_text(trace.graph, step)
        target = step.operator if isinstance(step, EVALUATIONS) else step.data
        yield position, verb, target, escape_formula(name), int(again), *entries


def escape_formula(name: str) -> str:
    """Escape a name that a spreadsheet would evaluate as a formula.

    >>> escape_formula("tanh_3"), escape_formula("=1+1")
    ('tanh_3', "'=1+1")
    """
    return f"'{name}" if name.startswith(FORMULA) else name


def save_chrome_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as Chrome trace events, for Perfetto and chrome://tracing.

    Raises:
        FormatError: if the file cannot be written.

    >>> import json, pathlib, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "trace.chrome.json"
    ...     tc.save_chrome_trace(tc.replay(tc.plan(tc.networks.chain(2))), path)
    ...     events = json.loads(path.read_text())["traceEvents"]
    >>> [event["name"] for event in events if event["ph"] == "X"]
    ['f1', 'f2', 'l', 'b2', 'b1']
    """
    expect(trace, Trace)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "graph": trace.graph.name,
            "policy": trace.schedule.policy,
            "time": "measured" if trace.seconds else "1 ms an evaluation, not measured",
        },
    }
    head = json.dumps(document)[:-1]
    # One event per line, generated and encoded one at a time: a trace may have millions.
    events = ",\n".join(json.dumps(event) for event in chrome_events(trace))
    write_atomically(path, f'{head}, "traceEvents": [\n{events}\n]}}\n'.encode())


def chrome_events(trace: Trace) -> Iterator[Event]:
    """Yield the events of a trace, in order of time."""
    yield naming_event("process_name", 0, f"{trace.schedule.policy} on {trace.graph.name}")
    for thread, track in enumerate(TRACKS, start=1):
        yield naming_event("thread_name", thread, track)
        yield {**naming_event("thread_sort_index", thread, ""), "args": {"sort_index": thread}}
    spans = LiveSpans(trace)
    uses_host = any(trace.host)
    now = 0.0
    for position, again in enumerate(recomputations(trace.steps)):
        duration = microseconds(trace, position)
        if not isinstance(trace.steps[position], Free):
            yield evaluation(trace, position, again, now, duration)
        yield from spans.events(position, now)
        yield from counters(trace, position, now, uses_host)
        now += duration
    yield from spans.end(now)


def naming_event(kind: str, thread: int, name: str) -> Event:
    """Return the event that names a process or a track."""
    return {"name": kind, "ph": "M", "ts": 0, "pid": 1, "tid": thread, "args": {"name": name}}


def microseconds(trace: Trace, position: int) -> float:
    """Return the duration of a step, in microseconds."""
    if trace.seconds:
        return round(1e6 * trace.seconds[position], 3)
    return 0.0 if isinstance(trace.steps[position], Free) else UNMEASURED


def evaluation(trace: Trace, position: int, again: bool, now: float, duration: float) -> Event:
    """Return the complete event of an evaluation or a transfer."""
    step = trace.steps[position]
    verb, name = step_text(trace.graph, step)
    args: dict[str, Any] = {"step": position}
    if isinstance(step, EVALUATIONS):
        operator = trace.graph.operators[step.operator]
        track: str = "recomputation" if again else operator.phase
        args |= {"kind": operator.kind, "scope": operator.scope, "flops": operator.flops}
    else:
        track, name = "transfer", f"{verb} {name}"
        args |= {"bytes": trace.graph.data[step.data].nbytes}
    return {
        "name": name, "cat": track, "ph": "X", "ts": now, "dur": duration, "pid": 1,
        "tid": 1 + TRACKS.index(track), "args": args,
    }  # fmt: skip


def counters(trace: Trace, position: int, now: float, uses_host: bool) -> Iterator[Event]:
    """Yield the counter events of a step; host bytes only in traces that offload."""
    bytes_by_kind = {kind: getattr(trace, kind)[position] for kind in MEMORY}
    yield counter("live bytes", now, bytes_by_kind)
    yield counter("live values", now, {"nodes": trace.nodes[position]})
    if uses_host:
        yield counter("host bytes", now, {"host": trace.host[position]})


def counter(name: str, now: float, args: dict[str, int]) -> Event:
    """Return the event of a counter."""
    return {"name": name, "ph": "C", "ts": now, "pid": 1, "tid": 0, "args": args}


class LiveSpans:
    """The asynchronous spans of a trace: one per live range of a value on the device."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.numbers = count()
        self.open: dict[int, int] = {}  # the span's number, by value

    def events(self, position: int, now: float) -> Iterator[Event]:
        """Yield the begin and end events of the spans that a step opens and closes."""
        step = self.trace.steps[position]
        if isinstance(step, EVALUATIONS):
            for data in self.trace.graph.operators[step.operator].outputs:
                yield self.begin(data, now)
        elif isinstance(step, Fetch):
            yield self.begin(step.data, now)
        else:
            yield self.event("e", step.data, self.open.pop(step.data), now)

    def begin(self, data: int, now: float) -> Event:
        """Return the begin event of a new span."""
        self.open[data] = next(self.numbers)
        return self.event("b", data, self.open[data], now)

    def end(self, now: float) -> Iterator[Event]:
        """Yield the end events of the spans still open at the end of the run."""
        for data, number in self.open.items():
            yield self.event("e", data, number, now)

    def event(self, phase: str, data: int, number: int, now: float) -> Event:
        """Return the begin or end event of a span."""
        node = self.trace.graph.data[data]
        args = {"args": {"bytes": node.nbytes, "shape": str(node.spec)}} if phase == "b" else {}
        return {
            "name": node.name, "cat": f"held, {node.role}", "ph": phase, "ts": now, "pid": 1,
            "tid": 0, "id": f"0x{number:x}", **args,
        }  # fmt: skip
