"""Prefetch placement (latency hiding): how early the copy back of each offloaded value is issued.

``insert_offloads`` places each ``Fetch`` right before its value is read, so that computation waits
for the whole copy. Here each ``Fetch`` moves up the schedule: early enough for its copy to end by
the time the value is read, if nothing stalls; but no earlier, and never to where memory does not
allow it. Fetches stay in the order in which values are read, which is the order of an engine's
queue."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from tinyckpt.core.costs import Costs
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule, Step
from tinyckpt.planner.model.link import Link


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
    live, graph = trace.live_bytes, schedule.graph
    if budget is None and link is None:
        budget = trace.peak_bytes
    order: list[int] = []  # the operator of each evaluation
    rows: list[int] = []
    left: dict[int, int] = {}
    fetches: list[tuple[int, int, int]] = []  # value, evaluations before it left, and is read
    for position, step in enumerate(schedule.steps):
        if isinstance(step, EVALUATIONS):
            order.append(step.operator)
            rows.append(live[position])
        elif isinstance(step, Offload):
            left[step.data] = len(order)
        elif isinstance(step, Fetch):
            fetches.append((step.data, left[step.data], len(order)))
    sizes = [graph.data[data].spec.nbytes for data, _, _ in fetches]
    if link is None:
        phases = (graph.operators[operator].phase for operator in order)
        turn = next((i for i, phase in enumerate(phases) if phase == "backward"), 0)
        wanted = [turn] * len(fetches)
    else:
        durations = [Fraction(costs.operators[operator]) for operator in order]
        copies = [link.duration(nbytes) for nbytes in sizes]
        wanted = copy_starts(durations, copies, [read_at for _, _, read_at in fetches])
    room = PrefetchRoom(rows, budget)
    before: dict[int, list[Step]] = {}
    for (data, left_at, read_at), nbytes, target in zip(fetches, sizes, wanted, strict=True):
        place = room.take(nbytes, max(left_at, target), read_at)
        before.setdefault(place, []).append(Fetch(data))
    return replace(schedule, steps=tuple(with_fetches(schedule.steps, before)))


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
    durations: Sequence[Fraction], copies: Sequence[Fraction], read_at: Sequence[int]
) -> list[int]:
    """Return the evaluation before which each copy must start so as to end when it is read.

    Args:
        durations: of all evaluations.
        copies: durations of the copies of one queue, in its order.
        read_at: the index of the evaluation that reads each; they ascend.
    """
    begins = list(accumulate(durations, initial=Fraction(0)))
    found, due = [], begins[-1]
    for duration, reader in zip(reversed(copies), reversed(read_at), strict=True):
        due = min(due, begins[reader]) - duration
        found.append(max(0, bisect_right(begins, due, hi=len(durations)) - 1))
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
