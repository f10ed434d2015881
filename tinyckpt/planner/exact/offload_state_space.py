"""State space of the offload search: which values are on device and host, and the transitions.

A placement is a pair of bit sets: the values on the device, and those on the host. Transitions are
the steps of schedules: an evaluation, a copy to the host, a copy back. Each also frees values:
minimal sets of forward values, to make room for what takes memory, or to keep it from waiting for
copies; and values with no readers left. So no backward operator is ever evaluated a second time.
Results are not moved, but are recomputed if that helps.

The transitions depend on the placement alone, and are memoised: ``offload_astar`` asks for them
with many different times, and ``astar_bound`` traverses them in reverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from fractions import Fraction
from itertools import combinations
from math import inf, lcm
from typing import NamedTuple

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.schedule import Compute, Fetch, Free, Offload, Step
from tinyckpt.planner.exact.reduced_graph import as_set, members
from tinyckpt.planner.model.lower_bounds import needed_operators
from tinyckpt.planner.offload.link import Link


class MoveKind(Enum):
    """The kind of a transition, besides frees."""

    OFFLOAD = auto()
    FETCH = auto()
    EVALUATE = auto()


class Transition(NamedTuple):
    """A transition, and the placement after it.

    Attributes:
        kind: offload, fetch or evaluate.
        which: the value, or the operator.
        freed: values that are freed before it.
        device, host: sets of values: the placement after it.
        dead: values that are freed after it, since nothing reads them any more.
    """

    kind: MoveKind
    which: int
    freed: int
    device: int
    host: int
    dead: int = 0

    def steps(self) -> list[Step]:
        """Return the transition as steps of a schedule."""
        makers: dict[MoveKind, type[Offload | Fetch | Compute]]
        makers = {MoveKind.OFFLOAD: Offload, MoveKind.FETCH: Fetch, MoveKind.EVALUATE: Compute}
        step = makers[self.kind](self.which)
        return [*map(Free, members(self.freed)), step, *map(Free, members(self.dead))]


class OffloadStateSpace:
    """A graph as a search space: values and their sets as integers, times in ticks.

    Args:
        graph, costs: what to evaluate; see ``offload_astar.is_searched``.
        link: to the host.
        budget, host_budget: bytes.
    """

    def __init__(
        self, graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float = inf
    ) -> None:
        self.graph, self.link = graph, link
        self.budget, self.host_budget = budget, host_budget
        made = [0 if node.is_source else costs.data[node.id] for node in graph.data]
        self.size, self.workspace = made, costs.workspace
        self.forward = as_set(
            node.id
            for node in graph.data
            if node.producer is not None and node.producer < graph.forward_count
        )
        self.goal = as_set(d for d in graph.outputs if not graph.data[d].is_source)
        produced = as_set(node.id for node in graph.data if node.producer is not None)
        self.movable = produced & ~self.goal if link.bandwidth > 0 else 0
        lasts = {d: link.duration(made[d]) for d in members(self.movable)}
        times = [Fraction(cost) for cost in costs.operators]
        self.ticks = lcm(*(time.denominator for time in [*times, *lasts.values(), Fraction(1)]))
        self.cost = [int(time * self.ticks) for time in times]
        self.lasts = {data: int(time * self.ticks) for data, time in lasts.items()}
        self.reads = [
            as_set(d for d in o.inputs if not graph.data[d].is_source) for o in graph.operators
        ]
        self.makes = [as_set(o.outputs) for o in graph.operators]
        self.operators = needed_operators(graph)
        self.readers = {
            data: [o for o in self.operators if self.reads[o] >> data & 1]
            for data in range(len(graph.data))
        }
        self.known_useful: dict[int, int] = {}
        self.known_moves: dict[tuple[int, int, int], tuple[Transition, ...]] = {}
        self.weights: dict[int, int] = {}

    def moves(self, device: int, host: int, arriving: int = 0) -> tuple[Transition, ...]:
        """Return the transitions from a placement, memoised.

        Args:
            device, host: the placement.
            arriving: values on the device whose copies have not ended, and which stay until then.
        """
        key = device, host, arriving
        if key not in self.known_moves:
            self.known_moves[key] = tuple(self.found_moves(device, host, arriving))
        return self.known_moves[key]

    def found_moves(self, device: int, host: int, arriving: int) -> Iterator[Transition]:
        """Enumerate the transitions from a placement."""
        useful = self.useful(device | host)
        for data in members(device & self.movable & useful & ~arriving):
            if self.weight(host | 1 << data) <= self.host_budget:
                yield Transition(MoveKind.OFFLOAD, data, 0, device & ~(1 << data), host | 1 << data)
        for data in members(host & useful):
            for freed in self.eviction_sets(device, host, 1 << data, 0, arriving):
                there = device & ~freed | 1 << data
                yield Transition(MoveKind.FETCH, data, freed, there, host & ~(1 << data))
        for operator in self.operators:
            reads, makes = self.reads[operator], self.makes[operator]
            if reads & ~device or makes & (host | arriving) or not makes & useful & ~device:
                continue
            stale = makes & device  # outputs still resident are freed first
            fixed = arriving | reads | stale
            for freed in self.eviction_sets(device, host, makes, self.workspace[operator], fixed):
                there = device & ~freed | makes
                dead = there & ~self.useful(there | host) & ~(arriving & ~reads)
                yield Transition(
                    MoveKind.EVALUATE, operator, freed | stale, there & ~dead, host, dead
                )

    def useful(self, present: int) -> int:
        """Return the values that may still be read, or are results, given the values present.

        Inputs of a forward operator may be read as long as its outputs may: it can be evaluated
        again.
        """
        if present not in self.known_useful:
            useful, seen = self.goal, set()
            todo = members(self.goal & (self.forward | ~present))
            while todo:
                operator = producer_of(self.graph, todo.pop())
                if operator in seen:
                    continue
                seen.add(operator)
                useful |= self.reads[operator]
                todo += members(self.reads[operator] & (self.forward | ~present))
            self.known_useful[present] = useful
        return self.known_useful[present]

    def eviction_sets(
        self, device: int, host: int, more: int, workspace: int, fixed: int
    ) -> Iterator[int]:
        """Enumerate minimal sets of values to free so that there is room in the end, or at once.

        Copies to the host may still occupy the memory of values on the host: up to that much more
        can be worth freeing, and no value beyond.
        """
        excess = self.weight(device | more) + workspace - self.budget
        most = max(0, excess) + self.weight(host)
        candidates = members(device & self.forward & ~fixed)
        for count in range(len(candidates) + 1):
            for chosen in combinations(candidates, count):
                freed = as_set(chosen)
                weight = self.weight(freed)
                least = min((self.size[data] for data in chosen), default=0)
                if weight >= excess and (not freed or weight - least < most):
                    yield freed

    def weight(self, values: int) -> int:
        """Return the memory of a set of values, memoised."""
        if values not in self.weights:
            self.weights[values] = sum(self.size[data] for data in members(values))
        return self.weights[values]
