"""Time axis of an animation: alignment of several traces tick by tick, and selection of frames.

Traces and a ``Span`` come in; the step of each trace at every tick goes out, and the ticks that
have a frame. A tick is a step, or traces are aligned by progress, the number of operators evaluated
for the first time, as in the explainer: all are at a first evaluation together, and before it the
others wait for the one with the most frames.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

ALIGNMENTS = ("progress", "step")
MOVES = (Offload, Fetch)
SEEN = (*EVALUATIONS, *MOVES)  # kinds of steps that have a frame of their own
SLOW = 4  # frames from a trace's first recomputation on that are shown longer
MOST_FRAMES = 1500  # a minute at 25 frames per second: long enough to watch, and files stay small


@dataclass(frozen=True, slots=True)
class Span:
    """The frames of an animation.

    Attributes:
        first, last: the range of steps; its ends look as in stills of these steps.
        every: take every n-th frame; None for as many as leave about ``most``.
        most: frames.
        noted: whether the picture says which frames are left out.
        align: one of ALIGNMENTS; by default progress, for several whole traces of one graph.
    """

    first: int | None = None
    last: int | None = None
    every: int | None = None
    most: int = MOST_FRAMES
    noted: bool = False
    align: str | None = None


def steps_by_tick(traces: Sequence[Trace], span: Span | None) -> list[Sequence[int]]:
    """Return for every trace the step at each of its ticks: without a span, its own steps.

    Raises:
        OptionError: if there is no such alignment, or these traces have none by progress.
    """
    by_step: list[Sequence[int]] = [range(len(trace.steps)) for trace in traces]
    if span is None:
        return by_step
    if span.align not in (None, *ALIGNMENTS):
        raise OptionError(f"align {span.align!r}: expected {', '.join(ALIGNMENTS)}")
    of_one_graph = all(trace.graph == traces[0].graph for trace in traces)
    in_part = (span.first, span.last) != (None, None)
    if span.align == "progress" and not (of_one_graph and not in_part):
        why = "first and last count steps" if of_one_graph else "the traces are of several graphs"
        raise OptionError(f"align 'progress': {why}; expected 'step'")
    if len(traces) == 1 or in_part or not of_one_graph or span.align == "step":
        return by_step
    return by_progress(traces, [frame_steps(trace) for trace in traces])


def by_progress(traces: Sequence[Trace], frames: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the step of every trace at every tick, such that first evaluations meet.

    Args:
        traces: of one graph.
        frames: for every trace the steps that have a tick, ascending.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)
    >>> traces = [tc.replay(tc.plan(graph, name)) for name in ("store_all", "recompute_all")]
    >>> by_progress(traces, [range(len(trace.steps)) for trace in traces])
    [(0, 1, 1, 2, 3, 4, 5, 5, 6, 7, 8), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]
    """
    shown: list[list[int]] = [[] for _ in traces]
    for parts in zip_longest(*map(parts_of, traces, frames), fillvalue=()):
        most = max(map(len, parts))
        for own, part in zip(shown, parts, strict=True):
            *before, last = part or own[-1:]
            waits = before[-1] if before else own[-1] if own else last
            own += [*before, *[waits] * (most - 1 - len(before)), last]
    return [tuple(own) for own in shown]


def parts_of(trace: Trace, frames: Sequence[int]) -> list[list[int]]:
    """Return the frames up to each first evaluation, and those after the last."""
    parts: list[list[int]] = [[]]
    seen = set[int]()
    for frame in frames:
        parts[-1].append(frame)
        step = trace.steps[frame]
        if isinstance(step, EVALUATIONS) and step.operator not in seen:
            seen.add(step.operator)
            parts.append([])
    return parts


def recomputations(trace: Trace) -> Iterator[int]:
    """Yield the steps of recomputations.

    >>> import tinyckpt as tc
    >>> next(recomputations(tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))))
    15
    """
    seen = set[int]()
    for position, step in enumerate(trace.steps):
        if isinstance(step, EVALUATIONS):
            if step.operator in seen:
                yield position
            seen.add(step.operator)


def frame_steps(trace: Trace) -> list[int]:
    """Return the steps that have a frame: evaluations, transfers, the last free after each."""
    last = len(trace.steps) - 1
    return [
        position
        for position, step in enumerate(trace.steps)
        if isinstance(step, SEEN) or position == last or isinstance(trace.steps[position + 1], SEEN)
    ]


def chosen_frames(
    traces: Sequence[Trace], shown: Sequence[Sequence[int]], span: Span | None
) -> tuple[tuple[int, ...], frozenset[int], tuple[int, str]]:
    """Return the ticks that have a frame, the places of slow ones, and what to note of thinning.

    Args:
        traces: to be shown.
        shown: the step of each at every tick.
        span: the request; without one, no tick has a frame.
    """
    if span is None:
        return (), frozenset(), (1, "frame")
    moments, kept, firsts, seen = {-1}, set[int](), set[int](), set[int]()
    for trace, own in zip(traces, shown, strict=True):
        tick_of = {step: tick for tick, step in reversed([*enumerate(own)])}
        first = next(recomputations(trace), None)
        moments |= {tick_of[step] for step in frame_steps(trace)}
        firsts |= {tick_of[first]} if first is not None else set()
        kept |= {tick_of[trace.peak_step]} | firsts
        seen |= {tick_of[place] for place, s in enumerate(trace.steps) if isinstance(s, SEEN)}
    steps, thinned = select_frames(sorted(moments), kept, span, seen)
    begins = [steps.index(tick) for tick in firsts & set(steps)]
    slow = {place + more for place in begins for more in range(SLOW)} & {*range(1, len(steps) - 1)}
    return tuple(steps), frozenset(slow), thinned if span.noted else (1, "frame")


def select_frames(
    moments: Sequence[int], peaks: Collection[int], span: Span, seen: Collection[int]
) -> tuple[list[int], tuple[int, str]]:
    """Select the ticks that have a frame; also return the stride, and what it counts.

    The first of the range, its last and the peaks within it are always included. If there are more
    than ``span.most``, only those of ``seen`` are used, and of these evenly many.

    Args:
        moments: ascending, from -1, the moment before the first step, to the last step.
        peaks: the ticks that are always included, if they are in the range.
        span: the range, and how many.
        seen: the ticks that evaluate or transfer something.

    Raises:
        OptionError: if the range is empty or leaves the trace, or ``every`` is not positive.
    """
    first, last, every, end = span.first, span.last, span.every, moments[-1]
    for step in (first, last):
        if step is not None and (not isinstance(step, int) or not 0 <= step <= end):
            raise OptionError(f"step {step!r} is out of range: expected 0 to {end}")
    if first is not None and last is not None and first > last:
        raise OptionError(f"no steps from {first} to {last}: the range ends before it begins")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise OptionError(f"every {every!r}: expected a positive integer")
    begin = 0 if first is None else bisect_right(moments, first) - 1
    stop = len(moments) if last is None else bisect_right(moments, last)
    shown = list(moments[begin:stop])
    ends = {shown[0], shown[-1], *(set(peaks) & set(shown))}
    if every is not None or len(shown) <= span.most:
        return sorted({*shown[::every], *ends}), (every or 1, "frame")
    kept = [step for step in shown if step in seen]
    stride = -(-len(kept) // max(span.most - len(ends), 1))
    return sorted({*kept[::stride], *ends}), (stride, "evaluation")
