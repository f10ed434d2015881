"""Which values of a block to save: the minimum cut for every price of memory.

Between a block's forward and its backward half, each value that the backward reads is either saved,
for its memory, or made again from what is saved, for the cost of its operator, whose inputs are
then wanted in turn. At a price per unit of memory the best choice is a minimum cut, as in
``model.lower_bounds``; PyTorch's partitioner (``min_cut_rematerialization_partition``) chooses so
at one price. Here all prices are gone through: the choices are the corners of the lower convex hull
of memory against cost, of all that evaluate nothing more than twice.

A view counts as what it is a view of, and is free to make.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf

from tinyckpt.base.deadline import ENDLESS, Clock

MOST_CORNERS = 24  # of the hull; a block of a transformer has about ten


@dataclass(frozen=True, slots=True)
class Making:
    """How values are made from each other.

    Attributes:
        reads: for every operator the values that it reads, those aside that are there anyway.
        maker: for every value the operator that makes it.
        cost: of every operator.
        size: of every value.
    """

    reads: Mapping[int, Sequence[int]]
    maker: Mapping[int, int]
    cost: Mapping[int, float]
    size: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SavedSet:
    """What is saved, what that takes, and what it costs to make the rest again."""

    saved: frozenset[int]
    memory: int
    cost: float


def best_choices(
    making: Making, wanted: Collection[int], deadline: Clock = ENDLESS
) -> list[SavedSet]:
    """Return the corners of memory against cost, the most memory first.

    Of more than ``MOST_CORNERS`` those that are spread over the whole of it: what lies between two
    corners is looked at where it may differ most, in memory times cost.

    Args:
        making: how values are made.
        wanted: values that must be there, or be made again.
        deadline: of the search; an OutOfTimeError is raised when it is up.
    """
    ends = [cut(making, wanted, 0.0), cut(making, wanted, inf)]
    found = {choice.saved: choice for choice in ends}
    order = count()  # of what is as large, the first comes first
    todo = [(0.0, next(order), ends[0], ends[1])]
    while todo and len(found) < MOST_CORNERS:
        deadline.check()
        _, _, more, less = heappop(todo)
        if more.memory <= less.memory or less.cost <= more.cost:
            continue
        price = (less.cost - more.cost) / (more.memory - less.memory)
        middle = cut(making, wanted, price)
        at_ends = more.cost + price * more.memory
        if middle.cost + price * middle.memory >= at_ends * (1 - 1e-9):
            continue  # nothing is below the line between the two
        found[middle.saved] = middle
        for one, other in ((more, middle), (middle, less)):
            room = (one.memory - other.memory) * (other.cost - one.cost)
            heappush(todo, (-room, next(order), one, other))
    return sorted(found.values(), key=lambda choice: (-choice.memory, choice.cost))


def cut(making: Making, wanted: Collection[int], price: float) -> SavedSet:
    """Return the best choice at a price of memory; of equals, that which saves least.

    At no price everything is saved that costs anything to make again; at an infinite one nothing
    that has a size is.
    """
    values = closure(making, wanted)
    operators = {making.maker[value] for value in values}
    if price in (0.0, inf):
        free = {value for value in values if not making.size[value]}
        saved = free if price else free | {v for v in wanted if making.cost[making.maker[v]] > 0}
        if not price:
            saved |= dear_ancestors(making, wanted)
        return chosen(making, wanted, saved)
    network = FlowNetwork()
    for value in wanted:
        network.add("source", ("value", value), inf)
    for value in values:
        network.add(("value", value), ("maker", making.maker[value]), price * making.size[value])
    for operator in operators:
        network.add(("maker", operator), "sink", making.cost[operator])
        for value in making.reads[operator]:
            network.add(("maker", operator), ("value", value), inf)
    network.fill("source", "sink")
    # The side of the sink, as far as it reaches back, is what is not made again: then the least
    # is saved of all minimum cuts.
    kept_side = network.reaching("sink")
    saved = {
        value
        for value in values
        if ("value", value) not in kept_side and ("maker", making.maker[value]) in kept_side
    }
    return chosen(making, wanted, saved)


def closure(making: Making, wanted: Collection[int]) -> list[int]:
    """Return some values and all that they are made from."""
    found = dict.fromkeys(wanted)
    todo = list(found)
    while todo:
        for value in making.reads[making.maker[todo.pop()]]:
            if value not in found:
                found[value] = None
                todo.append(value)
    return list(found)


def dear_ancestors(making: Making, wanted: Collection[int]) -> set[int]:
    """Return the values to save so that all others cost nothing to make again."""
    saved: set[int] = set()
    seen = set(wanted)
    todo = list(seen)
    while todo:
        value = todo.pop()
        if making.cost[making.maker[value]] > 0:
            saved.add(value)
            continue
        for read in making.reads[making.maker[value]]:
            if read not in seen:
                seen.add(read)
                todo.append(read)
    return saved


def chosen(making: Making, wanted: Collection[int], saved: Collection[int]) -> SavedSet:
    """Return a choice with what it takes: what is saved and read, and what is made again."""
    read: set[int] = set()
    again: set[int] = set()
    todo = list(wanted)
    while todo:
        value = todo.pop()
        if value in saved:
            read.add(value)
        elif making.maker[value] not in again:
            again.add(making.maker[value])
            todo.extend(making.reads[making.maker[value]])
    return SavedSet(
        frozenset(read),
        sum(making.size[value] for value in read),
        sum(making.cost[operator] for operator in again),
    )


class FlowNetwork:
    """A flow network. Source: Y. Dinitz, "Algorithm for solution of a problem of maximum flow in
    networks with power estimation", 1970: shortest ways first, as many at once as there are."""

    def __init__(self) -> None:
        self.number: dict[object, int] = {}
        self.edges: list[list[int]] = []
        self.head: list[int] = []
        self.room: list[float] = []

    def node(self, name: object) -> int:
        """Return the number of a node, a new one if it has none."""
        if name not in self.number:
            self.number[name] = len(self.edges)
            self.edges.append([])
        return self.number[name]

    def add(self, tail: object, head: object, room: float) -> None:
        """Add an edge; the one back, of no room, has the next number."""
        for start, end, own in ((tail, head, room), (head, tail, 0.0)):
            self.edges[self.node(start)].append(len(self.head))
            self.head.append(self.node(end))
            self.room.append(own)

    def fill(self, source: object, sink: object) -> None:
        """Push as much flow as fits."""
        start, end = self.node(source), self.node(sink)
        while (level := self.levels(start))[end] >= 0:
            place = [0] * len(self.edges)
            while self.push(start, end, level, place):
                pass

    def levels(self, start: int) -> list[int]:
        """Return how far each node is along edges that have room; -1 if it is not to be reached."""
        level = [-1] * len(self.edges)
        level[start] = 0
        todo = deque([start])
        while todo:
            node = todo.popleft()
            for edge in self.edges[node]:
                if self.room[edge] > 0 and level[self.head[edge]] < 0:
                    level[self.head[edge]] = level[node] + 1
                    todo.append(self.head[edge])
        return level

    def push(self, start: int, end: int, level: list[int], place: list[int]) -> bool:
        """Push flow along one shortest way; return whether there was one."""
        way: list[int] = []
        node = start
        while node != end:
            edges = self.edges[node]
            while place[node] < len(edges):
                edge = edges[place[node]]
                if self.room[edge] > 0 and level[self.head[edge]] == level[node] + 1:
                    break
                place[node] += 1
            if place[node] < len(edges):
                way.append(edges[place[node]])
                node = self.head[way[-1]]
            elif way:
                node = self.head[way.pop() ^ 1]
                place[node] += 1
            else:
                return False
        least = min(self.room[edge] for edge in way)
        for edge in way:
            self.room[edge] = 0.0 if self.room[edge] == least else self.room[edge] - least
            self.room[edge ^ 1] += least
        return True

    def reaching(self, sink: object) -> set[object]:
        """Return the nodes from which the sink can be reached along edges that have room."""
        names = list(self.number)
        found = {self.node(sink)}
        todo = list(found)
        while todo:
            for edge in self.edges[todo.pop()]:
                # The edge back: it leads here, from where this one goes.
                if self.room[edge ^ 1] > 0 and self.head[edge] not in found:
                    found.add(self.head[edge])
                    todo.append(self.head[edge])
        return {names[node] for node in found}
