"""Scene model: traces as data to draw, made once: style, scales, curves, limits, texts, frames.

Traces and a ``Style`` come in; a frozen ``Scene`` goes out, with a ``Row`` per trace. Layout, GIF,
stills, SVG, player and charts read it, and check, count and word nothing by themselves. A picture
at one moment is a ``Frame``: what changed since the frame before. A frame can be printed and
compared in a test.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import cost_text, memory_text, size_text
from tinyckpt.codegen.in_place import InPlace

from .captions import Captions
from .layout.check_label_options import Grouping, Labels, Naming, check_naming
from .layout.drawn_nodes import Cell, printable
from .memory_curve import BANDS, Curve, Limit, memory_bands
from .node_looks import (
    CellLooks,
    NodeLook,
    checkpoints_of,
    moved_values,
    names_checkpoints,
)
from .theme import check_theme
from .time_axis import MOVES, Span, chosen_frames, recomputations, steps_by_tick

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

TITLES = {
    "store_all": "store all",
    "recompute_all": "recompute all",
    "sqrt_n": "√n checkpointing",
    "retain": "hand-picked",
}
FARTHEST = 1.5  # of the highest peak: a budget beyond it would flatten the curves
NARROWEST, WIDEST = 320, 3840  # pixels
SCALES = (1, 2, 3)
ARRANGEMENTS = ("stacked", "side by side")
ASPECTS = 0.25, 4.0  # width by height
STOPS = ("start", "peak", "first recomputation", "end")  # moments at which a picture may open
COUNTERS = ("step", "evaluations", "in memory", "peak so far")
HOST_COUNTER = "on the host"  # of traces that offload values


@dataclass(frozen=True, slots=True)
class Style:
    """Display options of a picture; ``viz.gif`` documents the accepted values.

    ``in_bytes`` counts memory in bytes even where all values have one size.
    """

    theme: str = "light"
    title: str | Sequence[str] | None = None
    labels: Labels = None
    group: Grouping = None
    scale: int = 1
    width: int | None = None
    aspect: str | None = None
    arrange: str | None = None
    in_bytes: bool = False

    @property
    def naming(self) -> Naming:
        """Labels and groups of nodes."""
        return Naming(self.labels, self.group)

    @property
    def ratio(self) -> float | None:
        """The requested width divided by the height; 0 if it is none."""
        if self.aspect is None:
            return None
        found = re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,3})", str(self.aspect))
        return int(found[1]) / int(found[2]) if found else 0.0


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class Row:
    """One trace of a scene.

    Attributes:
        title: its heading.
        moves: whether it offloads values.
        live: live memory at every step, in values or bytes.
        budget: that it was planned for, if it has one in the same unit.
        totals: its evaluations and peak, for the last frame: the longest form first.
        card: the lines of its title card.
        host: its curve of host memory.
        subtitles: its cost in one line: the longest form first, for narrower pictures.
        memory: its curve of device memory.
        captions: of its steps.
        naming: labels and groups of its nodes.
        trace: the trace itself, for whatever depends on its steps.
        shown: the step at every tick until its end; ticks are steps, unless aligned by progress.
        end: the first tick at which it has ended.
    """

    title: str
    moves: bool
    live: tuple[int, ...]
    budget: int | None
    totals: tuple[str, ...]
    card: tuple[str, ...]
    host: Curve
    subtitles: tuple[str, ...]
    memory: Curve
    captions: Captions
    naming: Naming
    trace: Trace
    shown: Sequence[int]
    end: int

    def step_at(self, tick: int) -> int:
        """Return the step at a tick; -1 before the first."""
        return self.shown[min(tick, len(self.shown) - 1)] if tick >= 0 else -1


@dataclass(frozen=True, slots=True)
class Scene:
    """Traces as data to draw, on shared scales.

    Attributes:
        style: the display options, checked.
        rows: one per trace.
        in_nodes: whether memory is counted in values and not in bytes.
        longest: ticks: where traces are not aligned by progress, the steps of the longest.
        highest: the largest amount of memory that is shown.
        host: the largest host memory of any trace, in bytes.
        counters: by a counter's name, every text that it may show.
        steps: the ticks that have a frame; -1 is the moment before the first step.
        slow: the first recomputation of each trace, as places in ``steps``.
        waits: by tick, where a trace recomputes, what those say that wait for it.
        note: which frames are shown if some are left out, in words.
    """

    style: Style
    rows: tuple[Row, ...]
    in_nodes: bool
    longest: int
    highest: int
    host: int
    counters: Mapping[str, Collection[str]]
    steps: tuple[int, ...] = ()
    slow: frozenset[int] = frozenset()
    waits: Mapping[int, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment: differences from the frame before, and the counters.

    Attributes:
        step: position in the schedule; -1 before the first step.
        changed: the new look of every cell that looks different than in the frame before.
        evaluations, live, peak: in numbers, as texts; the peak so far.
        host: host memory, as text.
        counters: the texts of all counters.
        active: the cell whose operator is evaluated, if it is among the cells.
        reads: the other cells from which it reads.
        freed: by cell, the bytes freed last, by one step or several consecutive ones; empty at the
            next step.
    """

    step: int
    changed: dict[int, NodeLook]
    evaluations: str
    live: str
    peak: str
    host: str
    counters: tuple[str, ...] = ()
    active: int | None = None
    reads: tuple[int, ...] = ()
    freed: Mapping[int, int] = field(default_factory=dict)


def scene_of(traces: Any, style: Style = PLAIN, span: Span | None = None) -> Scene:
    """Return one trace or several as a scene; without a span, no frames are selected.

    Raises:
        OptionError: if there is nothing to draw, or an option has no legal value.
    """
    listed = as_list(traces)
    check_drawable(listed, style.theme)
    check_style(style, listed)
    shown = steps_by_tick(listed, span)
    steps, slow, thinned = chosen_frames(listed, shown, span)
    in_nodes = counts_nodes(listed) and not style.in_bytes
    titles = headings(listed, style.title)
    highest, host = highest_of(listed, in_nodes), max(max(trace.host) for trace in listed)
    longest = max(map(len, shown))
    note = thinned_text(*thinned)
    limits = [limits_of(trace, listed, in_nodes, highest) for trace in listed]
    rows = tuple(
        Row(
            title=title,
            moves=moves(trace),
            live=live_of(trace, in_nodes),
            budget=budget_of(trace, in_nodes),
            totals=tuple(results_of(trace, in_nodes)),
            card=tuple(lines_of_card(trace, title, in_nodes, note)),
            host=Curve(
                limits=(host_limit_of(trace),),
                words=("on the host",),
                fills=("kept",),
                bands=np.array([trace.host])[:, own],
                longest=longest,
                highest=host,
                striped=True,
            ),
            subtitles=tuple(subtitles_of(trace)),
            memory=Curve(
                limits=tuple(levels),
                words=(
                    "live memory",
                    *([note] if note else []),
                    "outline: to come",
                    *(["grey: workspace"] if any(trace.workspace) else []),
                ),
                fills=tuple(BANDS.values()),
                bands=memory_bands(trace, in_nodes)[:, own],
                longest=longest,
                highest=highest,
            ),
            captions=Captions(trace),
            naming=style.naming,
            trace=trace,
            shown=own,
            end=own.index(len(trace.steps) - 1),
        )
        for title, levels, trace, own in zip(titles, limits, listed, shown, strict=True)
    )
    counters, waits = counter_texts(rows, in_nodes), waiting_texts(rows, steps)
    return Scene(style, rows, in_nodes, longest, highest, host, counters, steps, slow, waits, note)


def as_list(traces: Any) -> list[Trace]:
    """Return one trace or several as a list.

    Raises:
        OptionError: if they are something else, such as schedules.
    """
    found = list(traces) if isinstance(traces, Iterable) else [traces]
    for trace in found:
        if hasattr(trace, "stall"):
            raise OptionError(
                f"expected a trace or several, got a {type(trace).__name__}; its .trace is one, "
                "and viz.timeline and viz.player show its times"
            )
        if not hasattr(trace, "live_bytes"):
            raise OptionError(
                f"expected a trace or several, got a {type(trace).__name__}; tc.replay(schedule) "
                "makes one of a schedule, tc.replay(tc.plan(graph, policy)) of a graph"
            )
    return found


def check_drawable(traces: Sequence[Trace], theme: str) -> None:
    """Raise OptionError unless there is something to draw, in a known theme."""
    if not traces or not all(trace.steps for trace in traces):
        raise OptionError("nothing to draw: give at least one trace, with at least one step")
    check_theme(theme)


def check_style(style: Style, traces: Sequence[Trace]) -> None:
    """Raise OptionError unless the options are legal for these traces."""
    scale, width, arrange, ratio = style.scale, style.width, style.arrange, style.ratio
    if not is_integer(scale) or scale not in SCALES:
        raise OptionError(f"scale {scale!r}: expected 1, 2 or 3")
    if width is not None and (not is_integer(width) or not NARROWEST <= width <= WIDEST):
        raise OptionError(f"width {width!r}: expected {NARROWEST} to {WIDEST} pixels")
    if width is not None and scale != 1:
        raise OptionError(f"width {width} and scale {scale}: give one of them")
    if arrange is not None and arrange not in ARRANGEMENTS:
        raise OptionError(f"arrange {arrange!r}: expected {', '.join(ARRANGEMENTS)}")
    least = NARROWEST * len(traces)
    if arrange == ARRANGEMENTS[1] and width is not None and width < least:
        raise OptionError(f"width {width}: {len(traces)} traces side by side need at least {least}")
    if ratio is not None and not ASPECTS[0] <= ratio <= ASPECTS[1]:
        raise OptionError(
            f"aspect {style.aspect!r}: expected width:height such as 16:9, from 1:4 to 4:1"
        )
    check_naming(style.naming, [trace.graph for trace in traces])


def stop_of(stop: str, *others: str) -> str:
    """Return the name of a stop, one of STOPS or of others; ``recomputation`` is the first one.

    Raises:
        OptionError: if there is no such stop.

    >>> stop_of("recomputation")
    'first recomputation'
    """
    name = "first recomputation" if stop == "recomputation" else stop
    if name not in (*STOPS, *others):
        raise OptionError(f"unknown stop {stop!r}; known are {', '.join((*STOPS, *others))}")
    return name


def is_integer(number: object) -> bool:
    """Whether a value is an integer and not a bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def listed_titles(title: object) -> list[str]:
    """Return a title, or several, as a list; raise an OptionError if they are no texts."""
    titles = [title] if isinstance(title, str) else title
    if not isinstance(titles, list | tuple) or not all(isinstance(text, str) for text in titles):
        raise OptionError(f"title {title!r:.80}: expected a text, or several")
    return list(titles)


def headings(traces: Sequence[Trace], title: str | Sequence[str] | None) -> list[str]:
    """Return the heading of each trace.

    Raises:
        OptionError: if there are titles, but not one for each trace.
    """
    if title is None:
        return [title_of(trace) for trace in traces]
    titles = listed_titles(title)
    if len(titles) != len(traces):
        raise OptionError(
            f"{len(titles)} {'title' if len(titles) == 1 else 'titles'} for {len(traces)} "
            f"{'trace' if len(traces) == 1 else 'traces'}: give one for each, in order, or none"
        )
    return titles


def moves(trace: Trace) -> bool:
    """Whether a trace offloads values to host memory."""
    return any(isinstance(step, MOVES) for step in trace.steps)


def title_of(trace: Trace) -> str:
    """Return the policy's name as a heading."""
    return TITLES.get(trace.schedule.policy, trace.schedule.policy.replace("_", " "))


def subtitle_of(trace: Trace) -> str:
    """Return the cost of a schedule in one line, in its longest form."""
    return subtitles_of(trace)[0]


def subtitles_of(trace: Trace) -> list[str]:
    """Return the cost of a schedule in one line: the longest form first, for narrower pictures.

    A schedule that was planned for other costs than evaluations also gives its cost in their unit.
    """
    certificate = trace.schedule.certificate
    cost, what = cost_of(trace), what_of(trace)
    rings, moved = len(checkpoints_of(trace)), len(moved_values(trace))
    rings_text = f"{rings} {'checkpoint' if rings == 1 else 'checkpoints'}"
    if moved:
        rings_text = f"{moved} on the host"
    parts = [[what, rings_text, cost], [what, cost], [cost]]
    if not moved and not names_checkpoints(trace):
        parts = parts[1:]
    if certificate is not None:
        within = f"within {memory_text(certificate.budget, certificate.memory_unit, 'value')}"
        parts = [[*parts[0], within], [what, cost, within], *parts]
    return [" · ".join(some) for some in parts]


def what_of(trace: Trace) -> str:
    """Return a description of the trained network."""
    name, _, size = trace.graph.name.partition(":")
    if name == "chain":
        return one_line(f"chain of {size} layer{'' if size == '1' else 's'}")
    return one_line(trace.graph.name)


def cost_of(trace: Trace) -> str:
    """Return the cost of a schedule, compared with that of store-all."""
    certificate = trace.schedule.certificate
    once = trace.evaluations - trace.recomputations
    ratio = trace.evaluations / max(once, 1)
    word = "evaluation" if trace.evaluations == 1 else "evaluations"
    cost = (
        f"{count_text(trace.evaluations)} {word} "
        f"= {ratio:.2f}× store-all"  # noqa: RUF001  # the sign of multiplication
    )
    if certificate is not None and certificate.unit != "evaluations":
        evaluations = count_text(trace.evaluations)
        cost = f"{cost_text(certificate.cost, certificate.unit)} in {evaluations} evaluations"
    return cost


def results_of(trace: Trace, in_nodes: bool) -> list[str]:
    """Return the totals of a schedule: evaluations, ratio to store-all, peak.

    The longest text first, for narrower pictures.
    """
    once = max(trace.evaluations - trace.recomputations, 1)
    times = f"{trace.evaluations / once:.2f}× store-all"  # noqa: RUF001  # multiplication
    evaluations, peak = count_text(trace.evaluations), peak_of(trace, in_nodes=False)
    return [
        f"{evaluations} evaluations = {times}, {peak_of(trace, in_nodes)}",
        f"{evaluations} evaluations = {times}, {peak}",
        f"{times}, {peak}",
    ]


def peak_of(trace: Trace, in_nodes: bool) -> str:
    """Format the peak."""
    values = f"{count_text(trace.peak_nodes)} values = " if in_nodes else ""
    return f"peak {values}{size_text(trace.peak_bytes)}"


def lines_of_card(trace: Trace, title: str, in_nodes: bool, note: str) -> list[str]:
    """Return the lines of a card: a title, and lines below it."""
    lines = [one_line(title, 200), f"{what_of(trace)} · {peak_of(trace, in_nodes)}", cost_of(trace)]
    return [*lines, f"{note} is shown"] if note else lines


def one_line(text: str, longest: int = 40) -> str:
    """Replace unprintable characters by spaces, and truncate to a length."""
    line = printable(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count_text(count: int) -> str:
    """Format a count with thin spaces between thousands.

    >>> count_text(1234567)
    '1\u2009234\u2009567'
    """
    return f"{count:,}".replace(",", "\u2009")


def counts_nodes(traces: Sequence[Trace]) -> bool:
    """Whether memory is counted in values: all have one size, and memory of their own."""
    sizes = {node.nbytes for trace in traces for node in trace.graph.data if not node.is_source}
    shared = any(isinstance(step, InPlace) for trace in traces for step in trace.steps)
    workspace = any(any(trace.workspace) for trace in traces)
    return len(sizes) <= 1 and 0 not in sizes and not shared and not workspace


def live_of(trace: Trace, in_nodes: bool) -> tuple[int, ...]:
    """Return live memory at every step, in values or in bytes."""
    return trace.nodes if in_nodes else trace.live_bytes


def live_text(amount: int, in_nodes: bool) -> str:
    """Format an amount of memory for a counter."""
    return count_text(amount) if in_nodes else size_text(amount)


def budget_of(trace: Trace, in_nodes: bool) -> int | None:
    """Return the budget that a schedule was planned for, if it has one in the same unit."""
    schedule, known = trace.schedule, trace.schedule.certificate
    options = schedule.options
    budget = options.get("budget") if known is None else known.budget
    unit = options.get("memory_unit") if known is None else known.memory_unit
    if not isinstance(budget, int) or unit != ("nodes" if in_nodes else "bytes"):
        return None
    return budget


def highest_of(traces: Sequence[Trace], in_nodes: bool) -> int:
    """Return the top of the memory curves: large enough for all peaks, and for near budgets."""
    peak = max(max(live_of(trace, in_nodes)) for trace in traces)
    budgets = [budget_of(trace, in_nodes) for trace in traces]
    return max([peak, *(b for b in budgets if b is not None and b <= FARTHEST * peak)])


def limits_of(
    trace: Trace, traces: Sequence[Trace], in_nodes: bool, highest: int
) -> Iterator[Limit]:
    """Yield the levels across a trace's curve: its peak, its budget, and the peak of store-all."""
    yield Limit("peak", max(live_of(trace, in_nodes)), peak_of(trace, in_nodes))
    others = [t for t in traces if t.graph is trace.graph and t.schedule.policy == "store_all"]
    amounts = {"budget": budget_of(trace, in_nodes)}
    if others and trace.schedule.policy != "store_all":
        amounts["store all"] = max(live_of(others[-1], in_nodes))
    for name, amount in amounts.items():
        if amount is not None and amount <= highest:
            yield Limit(name, amount, f"{name} {live_text(amount, in_nodes)}")


def host_limit_of(trace: Trace) -> Limit:
    """Return the level across a trace's curve of host memory: its maximum."""
    most = max(trace.host)
    return Limit("most", most, f"most {size_text(most)}")


def counter_texts(rows: Sequence[Row], in_nodes: bool) -> dict[str, set[str]]:
    """Return by the name of each counter the texts that it may show, or wider ones."""
    steps = {count_text(len(row.trace.steps) - 1) for row in rows}
    evaluations = {count_text(row.trace.evaluations) for row in rows}
    memory = {live_text(amount, in_nodes) for row in rows for amount in {0, *row.live}}
    ofs = [{f"{total} / {total}" for total in totals} for totals in (steps, evaluations)]
    texts = dict(zip(COUNTERS, (*ofs, memory, memory), strict=True))
    if any(row.moves for row in rows):
        texts[HOST_COUNTER] = {size_text(nbytes) for row in rows for nbytes in {0, *row.trace.host}}
    return texts


def waiting_texts(rows: Sequence[Row], ticks: Sequence[int]) -> dict[int, str]:
    """Return by tick, where a trace recomputes, what those say that wait for it."""
    again = [set(recomputations(row.trace)) for row in rows]
    texts = {}
    for before, tick in pairwise(ticks):
        steps = [(row.title, row.step_at(before), row.step_at(tick)) for row in rows]
        names = [
            title
            for (title, old, new), places in zip(steps, again, strict=True)
            if old != new and new in places
        ]
        if names:
            others = f"{names[0]} recomputes" if len(names) == 1 else "the others recompute"
            texts[tick] = f"waits while {others}"
    return texts


def thinned_text(number: int, what: str) -> str:
    """Return which frames are shown, in words: every n-th frame or evaluation; empty for all.

    >>> [thinned_text(number, "frame") for number in (1, 2, 11, 23)]
    ['', 'every 2nd frame', 'every 11th frame', 'every 23rd frame']
    """
    if number == 1:
        return "every evaluation" if what == "evaluation" else ""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"every {count_text(number)}{ending or 'th'} {what}"


def frames(
    trace: Trace, cells: Sequence[Cell], steps: Sequence[int], in_nodes: bool
) -> Iterator[Frame]:
    """Yield the frame before the first step, then one for each of ``steps``, ascending."""
    state = CellLooks(trace, cells)
    live = live_of(trace, in_nodes)
    last, every = count_text(len(trace.steps) - 1), count_text(trace.evaluations)
    peak = done = 0
    for step in (-1, *steps):
        while done <= step:
            state.take(done)
            peak = max(peak, live[done])
            done += 1
        begun = step >= 0
        evaluations = count_text(trace.evaluations_so_far[step] if begun else 0)
        now, most = live_text(live[step] if begun else 0, in_nodes), live_text(peak, in_nodes)
        host = size_text(trace.host[step] if begun else 0)
        # Steps are numbered from 0; before the first step there is none.
        number = count_text(step) if begun else "–"  # noqa: RUF001
        counters = (f"{number} / {last}", f"{evaluations} / {every}", now, most, host)
        doing = (state.active, state.reads, state.freed)
        yield Frame(step, state.changes(), evaluations, now, most, host, counters, *doing)
