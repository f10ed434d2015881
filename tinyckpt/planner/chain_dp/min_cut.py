"""Parametric min-cut rematerialization of a block: saved sets on the convex memory-cost hull.

Each value that a block's backward pass reads is either saved, at the price of its memory, or
recomputed from saved values, at the cost of its operator, whose inputs are then wanted in turn. At
a given price per unit of memory the best choice is a minimum s-t cut (max-flow by Dinic's
algorithm), as in ``model.lower_bounds``; PyTorch's partitioner
(``min_cut_rematerialization_partition``) chooses so at one price. Here all prices are swept
(parametric min-cut): the choices are the corners of the lower convex hull of memory against cost,
among all that evaluate no operator more than twice.

Comes in: a ``RecomputeGraph`` of the block, and the values its backward pass reads. Goes out: one
``SavedSet`` per corner. A view counts as the value whose storage it shares, and is free to
recompute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf

from tinyckpt.base.deadline import NO_DEADLINE, Clock

# Corners of the convex hull of (memory, cost) that are computed, one min-cut each. A transformer
# block has about ten. Doubled: more options for blocks that have more.
MAX_HULL_CORNERS = 24


@dataclass(frozen=True, slots=True)
class RecomputeGraph:
    """The recompute graph: which operator makes which value, from which values, at what cost.

    Attributes:
        reads: for every operator the values that it reads, without those that are resident anyway.
        maker: for every value the operator that makes it.
        cost: of every operator.
        size: of every value, in units of memory.
    """

    reads: Mapping[int, Sequence[int]]
    maker: Mapping[int, int]
    cost: Mapping[int, float]
    size: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SavedSet:
    """A set of saved values, its memory, and the cost of recomputing all other values read."""

    saved: frozenset[int]
    memory: int
    cost: float


def hull_corners(
    recompute: RecomputeGraph, wanted: Collection[int], deadline: Clock = NO_DEADLINE
) -> list[SavedSet]:
    """Sweep the price: return the corners of the memory-cost hull, the most memory first.

    Recursive bisection of the hull: two neighbouring corners give the slope of the line between
    them, and a minimum cut at that price tells whether a choice lies below it. At most
    ``MAX_HULL_CORNERS`` are returned, spread over the whole hull: the pair whose rectangle of
    memory times cost is largest is bisected first.

    Args:
        recompute: the recompute graph.
        wanted: values that must be saved or recomputed.
        deadline: of the search; an OutOfTimeError is raised when it is up.
    """
    ends = [minimum_cut(recompute, wanted, 0.0), minimum_cut(recompute, wanted, inf)]
    found = {choice.saved: choice for choice in ends}
    order = count()  # tie-breaker of the heap: first in, first out
    todo = [(0.0, next(order), ends[0], ends[1])]
    while todo and len(found) < MAX_HULL_CORNERS:
        deadline.check()
        _, _, more, less = heappop(todo)
        if more.memory <= less.memory or less.cost <= more.cost:
            continue
        price = (less.cost - more.cost) / (more.memory - less.memory)
        middle = minimum_cut(recompute, wanted, price)
        at_ends = more.cost + price * more.memory
        if middle.cost + price * middle.memory >= at_ends * (1 - 1e-9):
            continue  # no choice lies below the line between the two corners
        found[middle.saved] = middle
        for one, other in ((more, middle), (middle, less)):
            area = (one.memory - other.memory) * (other.cost - one.cost)
            heappush(todo, (-area, next(order), one, other))
    return sorted(found.values(), key=lambda choice: (-choice.memory, choice.cost))


def minimum_cut(recompute: RecomputeGraph, wanted: Collection[int], price: float) -> SavedSet:
    """Return the minimum cut at a price of memory; among ties, the cut that saves least.

    At price 0 everything is saved whose recomputation costs anything; at an infinite price nothing
    is saved that has a size.
    """
    values = closure(recompute, wanted)
    operators = {recompute.maker[value] for value in values}
    if price in (0.0, inf):
        free = {value for value in values if not recompute.size[value]}
        saved = (
            free if price else free | {v for v in wanted if recompute.cost[recompute.maker[v]] > 0}
        )
        if not price:
            saved |= nearest_costly_ancestors(recompute, wanted)
        return evaluate_choice(recompute, wanted, saved)
    network = FlowNetwork()
    for value in wanted:
        network.add("source", ("value", value), inf)
    for value in values:
        network.add(
            ("value", value), ("maker", recompute.maker[value]), price * recompute.size[value]
        )
    for operator in operators:
        network.add(("maker", operator), "sink", recompute.cost[operator])
        for value in recompute.reads[operator]:
            network.add(("maker", operator), ("value", value), inf)
    network.fill("source", "sink")
    # Of all minimum cuts, the one with the largest sink side recomputes the most, so it saves
    # the least. The sink side are the values that are not recomputed.
    kept_side = network.reaching("sink")
    saved = {
        value
        for value in values
        if ("value", value) not in kept_side and ("maker", recompute.maker[value]) in kept_side
    }
    return evaluate_choice(recompute, wanted, saved)


def closure(recompute: RecomputeGraph, wanted: Collection[int]) -> list[int]:
    """Return wanted values and all their ancestors: the transitive closure of the reads."""
    found = dict.fromkeys(wanted)
    todo = list(found)
    while todo:
        for value in recompute.reads[recompute.maker[todo.pop()]]:
            if value not in found:
                found[value] = None
                todo.append(value)
    return list(found)


def nearest_costly_ancestors(recompute: RecomputeGraph, wanted: Collection[int]) -> set[int]:
    """Return the nearest ancestors with a cost: saving them makes all other recomputation free."""
    saved: set[int] = set()
    seen = set(wanted)
    todo = list(seen)
    while todo:
        value = todo.pop()
        if recompute.cost[recompute.maker[value]] > 0:
            saved.add(value)
            continue
        for read in recompute.reads[recompute.maker[value]]:
            if read not in seen:
                seen.add(read)
                todo.append(read)
    return saved


def evaluate_choice(
    recompute: RecomputeGraph, wanted: Collection[int], saved: Collection[int]
) -> SavedSet:
    """Evaluate a choice: its memory, the saved values that are read, and its recomputation cost."""
    read: set[int] = set()
    again: set[int] = set()
    todo = list(wanted)
    while todo:
        value = todo.pop()
        if value in saved:
            read.add(value)
        elif recompute.maker[value] not in again:
            again.add(recompute.maker[value])
            todo.extend(recompute.reads[recompute.maker[value]])
    return SavedSet(
        frozenset(read),
        sum(recompute.size[value] for value in read),
        sum(recompute.cost[operator] for operator in again),
    )


class FlowNetwork:
    """A flow network with Dinic's maximum-flow algorithm: blocking flows along shortest paths.

    Source: Y. Dinitz, "Algorithm for solution of a problem of maximum flow in networks with power
    estimation", 1970.

    Edges are stored as pairs: edge e and its reverse e ^ 1; ``capacity`` is the residual capacity.
    """

    def __init__(self) -> None:
        self.number: dict[object, int] = {}
        self.edges: list[list[int]] = []
        self.head: list[int] = []
        self.capacity: list[float] = []

    def node(self, name: object) -> int:
        """Return the index of a node, adding it if it is new."""
        if name not in self.number:
            self.number[name] = len(self.edges)
            self.edges.append([])
        return self.number[name]

    def add(self, tail: object, head: object, capacity: float) -> None:
        """Add an edge; its reverse edge, of capacity 0, has the next index."""
        for start, end, own in ((tail, head, capacity), (head, tail, 0.0)):
            self.edges[self.node(start)].append(len(self.head))
            self.head.append(self.node(end))
            self.capacity.append(own)

    def fill(self, source: object, sink: object) -> None:
        """Compute a maximum flow: blocking flows until the sink cannot be reached."""
        start, end = self.node(source), self.node(sink)
        while (level := self.levels(start))[end] >= 0:
            place = [0] * len(self.edges)
            while self.push(start, end, level, place):
                pass

    def levels(self, start: int) -> list[int]:
        """Return the BFS distance of each node in the residual graph; -1 if it is unreachable."""
        level = [-1] * len(self.edges)
        level[start] = 0
        todo = deque([start])
        while todo:
            node = todo.popleft()
            for edge in self.edges[node]:
                if self.capacity[edge] > 0 and level[self.head[edge]] < 0:
                    level[self.head[edge]] = level[node] + 1
                    todo.append(self.head[edge])
        return level

    def push(self, start: int, end: int, level: list[int], place: list[int]) -> bool:
        """Augment along one shortest path; return whether there was one."""
        path: list[int] = []
        node = start
        while node != end:
            edges = self.edges[node]
            while place[node] < len(edges):
                edge = edges[place[node]]
                if self.capacity[edge] > 0 and level[self.head[edge]] == level[node] + 1:
                    break
                place[node] += 1
            if place[node] < len(edges):
                path.append(edges[place[node]])
                node = self.head[path[-1]]
            elif path:
                node = self.head[path.pop() ^ 1]
                place[node] += 1
            else:
                return False
        least = min(self.capacity[edge] for edge in path)
        for edge in path:
            self.capacity[edge] = (
                0.0 if self.capacity[edge] == least else self.capacity[edge] - least
            )
            self.capacity[edge ^ 1] += least
        return True

    def reaching(self, sink: object) -> set[object]:
        """Return the sink side of the cut: nodes with a path of residual capacity to the sink."""
        names = list(self.number)
        found = {self.node(sink)}
        todo = list(found)
        while todo:
            for edge in self.edges[todo.pop()]:
                # Its reverse e ^ 1 leads here, from the head of this edge.
                if self.capacity[edge ^ 1] > 0 and self.head[edge] not in found:
                    found.add(self.head[edge])
                    todo.append(self.head[edge])
        return {names[node] for node in found}
