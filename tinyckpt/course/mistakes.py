"""Diagnosis of schedules: the first illegal step, what fills the peak, the first difference.

The sentences name steps, operators and values, and speak to the person who wrote the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tinyckpt as tc

LIST_OF_WORDS = 3  # spaces in a text that is compared word by word: an order, such as f1 f2 l b2


def schedule_of(graph: tc.Graph, steps: Any, ids: Mapping[int, int] | None = None) -> tc.Schedule:
    """Return a schedule of steps given as data, ``["compute", 3]`` and ``["free", 5]``.

    Args:
        graph: that the steps refer to.
        steps: anything.
        ids: from the ids of values in the data to those in the graph; the same, if not given.

    Raises:
        ScheduleError: names the first entry that is no step of the graph.
    """
    known = {data.id: data.id for data in graph.data} if ids is None else ids
    made: list[tc.Compute | tc.Free] = []
    for position, step in enumerate(steps):
        verb, index = step if isinstance(step, list) and len(step) == 2 else (None, None)
        if verb == "compute" and type(index) is int and 0 <= index < len(graph.operators):
            made.append(tc.Compute(index))
        elif verb == "free" and type(index) is int and index in known:
            made.append(tc.Free(known[index]))
        else:
            raise tc.ScheduleError(f"step {position}: {str(step)[:60]} is not a step of this graph")
    return tc.Schedule(graph, tuple(made), "your answer")


def first_mistake(schedule: tc.Schedule) -> str:
    """Name the first illegal step of a schedule of computes and frees; empty if it is legal.

    >>> graph = tc.networks.chain(2)
    >>> steps = [tc.Compute(0), tc.Compute(1), tc.Free(1), tc.Compute(2), tc.Compute(3)]
    >>> first_mistake(tc.Schedule(graph, (*steps, tc.Compute(4)), "mine"))
    'step 2: you freed f1, which b1 reads at step 5'
    """
    graph = schedule.graph
    since: dict[int, int] = {}  # resident values, and the step that computed each
    freed: dict[int, int] = {}
    for position, step in enumerate(schedule.steps):
        if isinstance(step, tc.Free):
            name = graph.data[step.data].name
            if graph.data[step.data].is_source:
                return f"step {position}: you free {name}, which is a source and stays in memory"
            if step.data not in since:
                when = f"since step {freed[step.data]}" if step.data in freed else "yet"
                return f"step {position}: you free {name}, which is not in memory {when}"
            del since[step.data]
            freed[step.data] = position
        elif isinstance(step, tc.Compute):
            operator = graph.operators[step.operator]
            for data in operator.inputs:
                name = graph.data[data].name
                if data in since or graph.data[data].is_source:
                    continue
                if data in freed:
                    reads = f"which {operator.name} reads at step {position}"
                    return f"step {freed[data]}: you freed {name}, {reads}"
                return f"step {position}: {operator.name} reads {name}, which is not computed yet"
            for data in operator.outputs:
                if data in since:
                    return (
                        f"step {position}: you compute {operator.name} again while its value "
                        f"{graph.data[data].name} is in memory, since step {since[data]}"
                    )
                since[data] = position
        else:
            return f"step {position}: {step!r:.80} is neither compute nor free"
    for data in graph.outputs:
        if data not in since and not graph.data[data].is_source:
            name = graph.data[data].name
            if data in freed:
                return f"step {freed[data]}: you freed {name}, which is a result"
            return f"the schedule ends without {name}, which is a result"
    return ""


def peak_told(trace: tc.Trace, nodes: bool) -> str:
    """Say at which step the peak is, and which values are in memory then.

    Args:
        trace: of a legal schedule.
        nodes: whether the peak is counted in values, or in bytes.

    >>> peak_told(tc.replay(tc.plan(tc.networks.chain(2))), nodes=True)
    'step 3, b2, with f1, f2, l, b2 in memory'
    """
    graph = trace.graph
    step = trace.nodes.index(trace.peak_nodes) if nodes else trace.peak_step
    at = trace.steps[step]
    assert isinstance(at, tc.Compute)
    resident = some([graph.data[data].name for data in sorted(trace.resident_at(step))])
    return f"step {step}, {graph.operators[at.operator].name}, with {resident} in memory"


def some(names: list[str], most: int = 12) -> str:
    """Join names by commas; of many, the first and their number."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def difference(expected: Any, got: Any, where: str = "") -> str:
    """Say where two nestings of lists first differ; empty if they do not. Floats may be rounded.

    A pair of a text and a value is named by the text.

    >>> difference([["live values", [1, 2, 3]]], [["live values", [1, 2, 2]]])
    'live values: entry 2 is 2; expected 3'
    >>> difference([4.0, 1], [4.0])
    '1 entries; expected 2'
    >>> difference("f1 f2 l b2 b1", "f1 f2 l b2")
    '4 words; expected 5'
    """
    if isinstance(expected, str) and isinstance(got, str) and expected.count(" ") >= LIST_OF_WORDS:
        return difference(expected.split(), got.split(), "word")
    if not isinstance(expected, list) or not isinstance(got, list):
        numbers = isinstance(expected, float | int) and isinstance(got, float | int)
        if expected == got or (numbers and math.isclose(expected, got, rel_tol=1e-6)):
            return ""
        return f"{where or 'it'} is {str(got)[:60]}; expected {str(expected)[:60]}"
    named = len(expected) == 2 and isinstance(expected[0], str) and expected[:1] == got[:1]
    for index in range(named, min(len(expected), len(got))):
        inside = f"{where} {index}" if where == "word" else f"{where}entry {index}"
        if named:
            inside = expected[0]
        nested = isinstance(expected[index], list) and isinstance(got[index], list)
        found = difference(expected[index], got[index], f"{inside}: " if nested else inside)
        if found:
            return found
    if len(expected) != len(got):
        counted = f"{len(got)} words" if where == "word" else f"{where} {len(got)} entries"
        return f"{counted.lstrip()}; expected {len(expected)}"
    return ""
