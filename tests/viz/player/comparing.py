"""Reference implementation for comparing schedules of one graph: progress, differences."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

import tinyckpt as tc
from tests.random_dags import training_graphs
from tests.tinyckpt.core.test_schedule_mutations import with_moves
from tinyckpt.core.schedule import EVALUATIONS

POLICIES = ("store_all", "sqrt_n", "recompute_all", "offload")


def any_order(graph: tc.Graph, draw: Any) -> list[int]:
    """Draw a random topological order of all operators."""
    left = set(range(len(graph.operators)))
    made = {node.id for node in graph.data if node.is_source}
    order = []
    while left:
        ready = sorted(i for i in left if made.issuperset(graph.operators[i].inputs))
        chosen = ready[draw(st.integers(0, len(ready) - 1))]
        left.remove(chosen)
        order.append(chosen)
        made.update(graph.operators[chosen].outputs)
    return order


class Compared(list[tc.Trace]):
    """Traces of one graph, with a short repr."""

    def __repr__(self) -> str:
        steps = [", ".join(map(str, trace.schedule.steps)) for trace in self]
        return f"<{[text[:400] for text in steps]}>"


@st.composite
def compared(draw: Any, most: int = 2) -> list[tc.Trace]:
    """Generate traces of one graph: by policies, in any order, with offloading."""
    graph, _ = draw(training_graphs())
    traces = []
    for _ in range(draw(st.integers(2, most))):
        policy = draw(st.sampled_from((*POLICIES, "any order")))
        own = any_order(graph, draw) if policy == "any order" else None
        schedule = tc.plan(graph, policy if own is None else lambda graph, own=own: own)
        if draw(st.booleans()):
            schedule = tc.Schedule(graph, with_moves(schedule, draw), "drawn")
        traces.append(tc.replay(schedule))
    return Compared(traces)


def evaluated(trace: tc.Trace) -> list[int]:
    """Return the operator of each evaluation of a trace."""
    return [step.operator for step in trace.steps if isinstance(step, EVALUATIONS)]


def longest_rising(items: Sequence[int], key: Sequence[int]) -> list[int]:
    """Return a longest increasing subsequence by keys (patience sorting)."""
    ends: list[int] = []
    tops: list[int] = []
    before: dict[int, int | None] = {}
    for item in items:
        at = bisect_left(ends, key[item])
        before[item] = tops[at - 1] if at else None
        ends[at:] = [key[item], *ends[at + 1 :]]
        tops[at:] = [item, *tops[at + 1 :]]
    found: list[int] = []
    last = tops[-1] if tops else None
    while last is not None:
        found.insert(0, last)
        last = before[last]
    return found


def parts(traces: Sequence[tc.Trace]) -> Iterator[tuple[list[list[int]], bool]]:
    """Yield the evaluations of each trace up to what all begin in one order, and at last the rest.

    An evaluation is its position; the second entry says whether the part ends in such a one.
    """
    orders = [evaluated(trace) for trace in traces]
    firsts = [
        {operator: order.index(operator) for operator in dict.fromkeys(order)} for order in orders
    ]
    common = list(firsts[0])
    for first in firsts[1:]:
        common = longest_rising([operator for operator in common if operator in first], first)
    begins = [0] * len(traces)
    for operator in common:
        ends = [first[operator] + 1 for first in firsts]
        yield [list(range(*pair)) for pair in zip(begins, ends, strict=True)], True
        begins = ends
    yield (
        [list(range(begin, len(order))) for begin, order in zip(begins, orders, strict=True)],
        False,
    )


def progress(traces: Sequence[tc.Trace]) -> list[list[int]]:
    """Return the progress coordinate of each evaluation of each trace."""
    places: list[list[int]] = [[] for _ in traces]
    at = 0
    for part, closed in parts(traces):
        wide = max(map(len, part))
        for own, place in zip(part, places, strict=True):
            waits = wide - len(own) if closed else 0
            place += [at + waits + i for i in range(len(own))]
        at += wide
    return places


def only_evaluated(traces: Sequence[tc.Trace]) -> list[Counter[int]]:
    """Return by operator the evaluations that only one of two traces has."""
    orders = [evaluated(trace) for trace in traces]
    only: list[Counter[int]] = [Counter(), Counter()]
    for part, _ in parts(traces):
        own, other = (
            Counter(order[i] for i in some) for order, some in zip(orders, part, strict=True)
        )
        only[0] += own - other
        only[1] += other - own
    return only
