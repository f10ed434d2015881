"""Alignment of several traces on one time axis: tick by tick, by step or by progress.

Traces come in; for each, the step that it shows at every tick goes out. Progress is the number of
operators evaluated for the first time, as in the explainer: all traces are at a first evaluation
together, and before it the others wait for the one with the most frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError
from tinyckpt.core.schedule import EVALUATIONS

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

ALIGNMENTS = ("progress", "step")


def check_alignment(align: str | None, traces: Sequence[Trace], in_part: bool) -> str:
    """Return one of ALIGNMENTS; by default progress, for several traces of one graph.

    Args:
        align: the requested one, if any.
        traces: to be aligned.
        in_part: whether only a range of steps is shown.

    Raises:
        OptionError: if there is no such alignment, or these traces have none by progress.
    """
    if align not in (None, *ALIGNMENTS):
        raise OptionError(f"align {align!r}: expected {', '.join(ALIGNMENTS)}")
    of_one_graph = all(trace.graph == traces[0].graph for trace in traces)
    if align == "progress" and not (of_one_graph and not in_part):
        why = "first and last count steps" if of_one_graph else "the traces are of several graphs"
        raise OptionError(f"align 'progress': {why}; expected 'step'")
    by_step = len(traces) == 1 or in_part or not of_one_graph
    return "step" if by_step or align == "step" else "progress"


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


def first_recomputation(trace: Trace) -> int | None:
    """Return the step of the first recomputation; None if there is none.

    >>> import tinyckpt as tc
    >>> first_recomputation(tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n")))
    15
    """
    seen = set[int]()
    for position, step in enumerate(trace.steps):
        if isinstance(step, EVALUATIONS):
            if step.operator in seen:
                return position
            seen.add(step.operator)
    return None
