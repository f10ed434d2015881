"""Prefetch placement: which values can be offloaded, and how early each copy back is issued.

``core.lowering.offloading`` places each ``Fetch`` right before its value is read, so that
computation waits for the whole copy. Here each ``Fetch`` moves up the schedule: early enough for
its copy to end by the time the value is read, if nothing stalls (latency hiding); but no earlier,
and never to where memory does not allow it. Fetches stay in the order in which values are read,
which is the order of an engine's queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule, Step
from tinyckpt.ops.update_steps import old_source
from tinyckpt.planner.offload.link import Link


def movable_values(graph: Graph, recomputing: bool = False) -> list[int]:
    """Return the forward values that the backward pass reads and that can be offloaded.

    Results of the graph are excluded, and views of sources, which take no memory. Each view is
    copied separately: of a value and its views, none is included if the copies would weigh more
    than the storage they share.

    Args:
        graph: with a backward pass.
        recomputing: whether to include forward values that forward operators alone read, which may
            be evaluated again.
    """
    outputs, first = set(graph.outputs), graph.forward_count
    families: dict[int, list[int]] = {}
    for node in graph.data:
        is_forward = node.producer is not None and node.producer < first
        readers = graph.consumers[node.id]
        is_read = readers and (recomputing or readers[-1] >= first)
        if not (is_forward and is_read) or node.id in outputs:
            continue
        if old_source(graph, node.id) is None:
            families.setdefault(owner_of(graph, node.id), []).append(node.id)
    return sorted(
        data
        for owner, family in families.items()
        if sum(graph.data[data].spec.nbytes for data in family) <= graph.data[owner].nbytes
        for data in family
    )


def owner_of(graph: Graph, data: int) -> int:
    """Return the value that owns the storage of a value (the root of its views)."""
    while (base := graph.data[data].view_of) is not None:
        data = base
    return data


def idle_copies(schedule: Schedule) -> set[int]:
    """Return the values fetched with no evaluation since they left: moving them gains nothing."""
    left: dict[int, int] = {}
    idle: set[int] = set()
    count = 0
    for step in schedule.steps:
        if isinstance(step, EVALUATIONS):
            count += 1
        elif isinstance(step, Offload):
            left[step.data] = count
        elif isinstance(step, Fetch) and left[step.data] == count:
            idle.add(step.data)
    return idle


def hoist_fetches(
    schedule: Schedule, costs: Costs, link: Link | None = None, budget: int | None = None
) -> Schedule:
    """Move every ``Fetch`` as early as is of use.

    Args:
        schedule: with each ``Fetch`` right before the evaluation that reads the value.
        costs: the duration of each evaluation.
        link: duration of copies. Without one, fetches are as early in the backward pass as memory
            allows.
        budget: bytes that the prefetches must not exceed, as ``replay`` counts them; if not given,
            memory is unlimited where there is a link, and limited by the schedule's own peak where
            there is none.
    """
    trace = replay(schedule)
    live = trace.live_bytes
    steps = schedule.steps
    evaluations = [p for p, step in enumerate(steps) if isinstance(step, EVALUATIONS)]
    rows = [live[p] for p in evaluations]
    if budget is None and link is None:
        budget = trace.peak_bytes
    fetches: list[tuple[int, int]] = []
    earliest: list[int] = []
    before: dict[int, list[Step]] = {}
    left: dict[int, int] = {}
    count = 0
    for step in steps:
        if isinstance(step, EVALUATIONS):
            count += 1
        elif isinstance(step, Offload):
            left[step.data] = count
        elif isinstance(step, Fetch):
            fetches.append((step.data, count))
            earliest.append(left[step.data])
    if link is None:
        order = [step.operator for step in steps if isinstance(step, EVALUATIONS)]
        operators = schedule.graph.operators
        turn = next((i for i, o in enumerate(order) if operators[o].phase == "backward"), 0)
        wanted = [turn] * len(fetches)
    else:
        wanted = copy_starts(schedule, costs, link, fetches)
    room = PrefetchRoom(rows, budget)
    for (data, read_at), lowest, target in zip(fetches, earliest, wanted, strict=True):
        nbytes = schedule.graph.data[data].spec.nbytes
        place = room.take(nbytes, max(lowest, target), read_at)
        before.setdefault(place, []).append(Fetch(data))
    return replace(schedule, steps=tuple(with_fetches(steps, before)))


class PrefetchRoom:
    """Free memory at each evaluation, reserved by one prefetch after another (monotonic queue).

    Fetches come in the order in which they are read, and none is placed before the previous one. So
    at an evaluation after the last place, the memory of exactly those fetches is free again that
    have been read by then: their total weight when the evaluation is first visited. From then on
    all fetches add to it alike, so which evaluations have less room than others never changes.

    Attributes:
        rows: bytes at each evaluation, without those of prefetches.
        budget: bytes; None without limit.
        taken: total weight of all fetches so far.
        last: the place of the last one.
        visited: number of evaluations visited.
        places, spare: evaluations that have less room than all later ones, and their room before
            prefetches; both ascend.
        first: index of the first of them still in question.
    """

    def __init__(self, rows: Sequence[int], budget: int | None) -> None:
        self.rows, self.budget = rows, budget
        self.taken = self.last = self.visited = self.first = 0
        self.places: list[int] = []
        self.spare: list[int] = []

    def take(self, nbytes: int, lowest: int, read_at: int) -> int:
        """Return the earliest place for a fetch, and reserve its memory from there to its read."""
        self.last = max(self.last, min(max(lowest, self.after_full(nbytes, read_at)), read_at))
        self.taken += nbytes
        return self.last

    def after_full(self, nbytes: int, read_at: int) -> int:
        """Return the place after the last evaluation before ``read_at`` that lacks room."""
        if self.budget is None:
            return 0
        for place in range(self.visited, read_at):
            spare = self.budget + self.taken - self.rows[place]
            while len(self.places) > self.first and self.spare[-1] >= spare:
                self.places.pop()
                self.spare.pop()
            self.places.append(place)
            self.spare.append(spare)
        self.visited = max(self.visited, read_at)
        while self.first < len(self.places) and self.places[self.first] < self.last:
            self.first += 1
        full = bisect_left(self.spare, self.taken + nbytes, self.first)
        return self.places[full - 1] + 1 if full > self.first else 0


def copy_starts(
    schedule: Schedule, costs: Costs, link: Link, fetches: list[tuple[int, int]]
) -> list[int]:
    """Return the evaluation before which each copy must start so as to end when it is read.

    Args:
        schedule, costs, link: as in ``hoist_fetches``.
        fetches: values, each with the index of the evaluation that reads it; in that order.
    """
    begins, now = [], Fraction(0)
    for step in schedule.steps:
        if isinstance(step, EVALUATIONS):
            begins.append(now)
            now += Fraction(costs.operators[step.operator])
    found, due = [], now
    for data, read_at in reversed(fetches):
        due = min(due, begins[read_at] if read_at < len(begins) else now)
        due -= link.duration(schedule.graph.data[data].spec.nbytes)
        found.append(max(0, bisect_right(begins, due) - 1))
    return found[::-1]


def with_fetches(steps: tuple[Step, ...], before: Mapping[int, list[Step]]) -> list[Step]:
    """Return the steps with fetches before given evaluations, and nowhere else."""
    made: list[Step] = []
    count = 0
    for step in steps:
        if isinstance(step, Fetch):
            continue
        if isinstance(step, EVALUATIONS):
            made += before.get(count, ())
            count += 1
        made.append(step)
    made += before.get(count, ())
    return made
