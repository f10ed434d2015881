"""Where copies stand in a schedule: which values can leave, and how early each comes back.

``core.lowering.offloading`` brings a value back right before it is read, so that computation
waits for the whole copy. Here each ``Fetch`` goes up the schedule: so early that its copy ends by
the time that the value is read, if nothing stalls; and no earlier, nor where memory does not allow
it. Fetches stay in the order in which values are read, which is the order of an engine's line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, old_source
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule, Step
from tinyckpt.planner.offload.link import Link


def movable_values(graph: Graph, recomputing: bool = False) -> list[int]:
    """Return the forward values that the backward half reads and that can wait on the host.

    Not results of the graph, nor views of sources, which take no memory. Of a value and its views,
    of which one each copy is made, none if the copies would weigh more than what they are of.

    Args:
        graph: with a backward half.
        recomputing: whether forward values count too that forward operators alone read, which may
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
    """Return the value in whose memory a value is."""
    while (base := graph.data[data].view_of) is not None:
        data = base
    return data


def idle_copies(schedule: Schedule) -> set[int]:
    """Return the values that come back with no evaluation since they left: nothing is gained."""
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


def fetched_early(
    schedule: Schedule, costs: Costs, link: Link | None = None, budget: int | None = None
) -> Schedule:
    """Return the schedule with every ``Fetch`` as early as is of use.

    Args:
        schedule: with each ``Fetch`` right before the evaluation that reads the value.
        costs: the duration of each evaluation.
        link: how long copies take. Without one, they are as early in the backward half as memory
            allows.
        budget: bytes that must not be exceeded by this, as ``replay`` counts them; if not given,
            memory is no limit where there is a link, and what the schedule takes anyway is where
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
        wanted = starts(schedule, costs, link, fetches)
    room = PrefetchRoom(rows, budget)
    for (data, read_at), lowest, target in zip(fetches, earliest, wanted, strict=True):
        nbytes = schedule.graph.data[data].spec.nbytes
        place = room.take(nbytes, max(lowest, target), read_at)
        before.setdefault(place, []).append(Fetch(data))
    return replace(schedule, steps=tuple(with_fetches(steps, before)))


class PrefetchRoom:
    """Memory at each evaluation, of which fetches take more, one after another.

    Fetches come in the order in which they are read, and none is placed before the last one. So at
    an evaluation behind the last place, of those fetches alone which are read by then the memory is
    free again: what all that came before weigh when the evaluation is first come to. From then on
    all fetches add to it alike, and which evaluations have less room than others never changes.

    Attributes:
        rows: bytes at each evaluation, without what fetches take.
        budget: bytes; None without limit.
        taken: what all fetches so far weigh.
        last: the place of the last one.
        come_to: evaluations that have been come to.
        places, spare: evaluations which all behind them have more room than, and how much that is
            before fetches take of it; both ascend.
        first: the first of them that is of interest.
    """

    def __init__(self, rows: Sequence[int], budget: int | None) -> None:
        self.rows, self.budget = rows, budget
        self.taken = self.last = self.come_to = self.first = 0
        self.places: list[int] = []
        self.spare: list[int] = []

    def take(self, nbytes: int, lowest: int, read_at: int) -> int:
        """Return the earliest place for a fetch, and take its memory from there to its reading."""
        self.last = max(self.last, min(max(lowest, self.behind_full(nbytes, read_at)), read_at))
        self.taken += nbytes
        return self.last

    def behind_full(self, nbytes: int, read_at: int) -> int:
        """Return the place behind the last evaluation, before one, without room for some bytes."""
        if self.budget is None:
            return 0
        for place in range(self.come_to, read_at):
            spare = self.budget + self.taken - self.rows[place]
            while len(self.places) > self.first and self.spare[-1] >= spare:
                self.places.pop()
                self.spare.pop()
            self.places.append(place)
            self.spare.append(spare)
        self.come_to = max(self.come_to, read_at)
        while self.first < len(self.places) and self.places[self.first] < self.last:
            self.first += 1
        full = bisect_left(self.spare, self.taken + nbytes, self.first)
        return self.places[full - 1] + 1 if full > self.first else 0


def starts(
    schedule: Schedule, costs: Costs, link: Link, fetches: list[tuple[int, int]]
) -> list[int]:
    """Return before which evaluation each copy has to begin so as to end when it is read.

    Args:
        schedule, costs, link: as in ``fetched_early``.
        fetches: values and, counted in evaluations, where each is read; in that order.
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
    """Return the steps with their fetches before given evaluations, and nowhere else."""
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
