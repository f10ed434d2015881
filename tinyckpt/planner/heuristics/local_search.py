"""Less memory by small changes to an order: evaluate later, earlier, or once more, looking ahead.

Online eviction drops a value when there is no room, and finds out later what it takes to have it
again; on graphs whose values are read far from where they are made, that ends in recomputing almost
everything. Here all is known beforehand. An order of evaluations holds too much at some places. Of
all values that are held there without being read, one goes until just before its next reader; that
its operator is evaluated again there takes its inputs, which are held for longer or evaluated again
as well, whatever weighs less at the places that are too full. Where a value is not read before that
place, its first evaluation moves there, for nothing. And operators that free more than they make
are moved to an earlier place.

Each change is scored by what it takes off the places that are too full, for the cost that it adds;
the best few are tried exactly, and the best of these is made, until all is within the budget. Where
no change is for the better, scores are multiplied by random weights, and recomputations left out.
``improved`` then goes on from an order within the budget: it leaves out the recomputations of a
stretch and makes new changes, and keeps what costs less.

The measure of excess is the sum of squares of what is too much, so that the highest peaks go first.
The scores are those of values in memory of their own; views are only judged exactly. Its source is
this project; that values are better kept or evaluated again by looking at the whole order is from
Checkmate (Jain et al., 2020, arXiv 1910.02653) and Moccasin (Bartan et al., 2023, arXiv
2304.14463), who ask a solver.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.core.lowering import without_dead
from tinyckpt.planner.model.liveness import Problem

TRIED, TRIED_WHEN_STUCK = 8, 24  # changes that are tried exactly at each step
PATIENCE = 40  # steps without a change for the better
KICKED_EVERY, KICKED_SHARE = 10, 8  # of those steps; one recomputation in so many is left out
DEPTH = 3  # operators in a row that are evaluated again for one value
MOST_EVALUATIONS_EACH = 3  # evaluations an operator, on average, after which the budget is given up
# What a place just below the budget weighs, beside 1 for a place above: down to 0 at 1 % below.
NEARLY_FULL, NEAR = 0.3, 0.01
# A change that costs nothing is scored as if it cost this share of a mean evaluation.
FREE_CHANGE_COST = 0.02
# Random noise on scores grows by this with each step in a row without a change for the better.
NOISE_PER_FAILURE = 0.02
# How much a cost weighs, beside memory, in what is evaluated again for one value.
THRIFT = 0.1


class OrderChange(NamedTuple):
    """A change of an order: operators come in before a place, and one evaluation goes.

    Attributes:
        score: what it takes off, for its cost; higher is better.
        place: position before which the operators come.
        operators: in the order of their evaluation.
        taken: position, at the place or after it, of the evaluation that goes; -1 for none.
    """

    score: float
    place: int
    operators: list[int]
    taken: int = -1


class Sight(NamedTuple):
    """An order and all that follows from it.

    Attributes:
        order: operator ids.
        excess: the sum of squares of what is held above the budget, as a share of it.
        events: for each value its spans: positions of an evaluation and of what reads that result.
        begins: the first of each.
        weight: at i, the sum of what the places before position i weigh.
        full: at i, how many places before position i are above the budget.
        price: what a unit of cost weighs, beside memory.
    """

    order: list[int]
    excess: float
    events: list[list[list[int]]]
    begins: list[list[int]]
    weight: list[float]
    full: list[int]
    price: float


class Ahead:
    """The search on one graph for one budget.

    Args:
        problem: a graph without updates, and costs.
        budget: the peak to stay within.
        seed: of the random weights.
        deadline: of the search; an OutOfTimeError is raised where that is up.
    """

    def __init__(
        self, problem: Problem, budget: int, seed: int = 0, deadline: Clock = ENDLESS
    ) -> None:
        graph = problem.graph
        self.problem, self.budget, self.deadline = problem, budget, deadline
        self.random = Random(seed)
        self.reads = [
            [d for d in dict.fromkeys(operator.inputs) if not graph.data[d].is_source]
            for operator in graph.operators
        ]
        self.writes = [operator.outputs for operator in graph.operators]
        self.once = [operator.once for operator in graph.operators]
        self.producer = [-1 if node.producer is None else node.producer for node in graph.data]
        self.size, self.cost = problem.size.tolist(), problem.cost.tolist()
        self.results = [data for data in graph.outputs if self.producer[data] >= 0]
        count = max(len(self.cost), 1)
        self.mean_size = sum(self.size) / count
        self.mean_cost = sum(self.cost) / count or 1.0

    def within(self, order: Sequence[int], noise: float = 0.0) -> list[int] | None:
        """Return an order within the budget that changes lead to from this one; None if none do.

        Args:
            order: a legal one.
            noise: how far random weights may be from 1 from the beginning.
        """
        sight, failures, spread = self.sight(list(order)), 0, noise
        while sight.excess:
            self.deadline.check()
            better = self.best(sight, spread, TRIED_WHEN_STUCK if failures else TRIED)
            if better is not None:
                sight, spread = better, noise
                if len(sight.order) > MOST_EVALUATIONS_EACH * len(self.cost):
                    return None
                continue
            failures += 1
            again = recomputations(sight.order)
            if failures > PATIENCE or not (again or self.has_moves(sight)):
                return None
            spread = min(0.9, 0.2 + NOISE_PER_FAILURE * failures)
            if failures % KICKED_EVERY == 0:
                dropped = self.random.sample(again, -(-len(again) // KICKED_SHARE))
                sight = self.sight(without_positions(sight.order, dropped))
        return sight.order

    def shaken(self, order: Sequence[int], noise: float = 0.3) -> list[int] | None:
        """Return an order within the budget that is another in a stretch; None if none is found."""
        stretch = max(2, len(order) // self.random.choice((4, 8, 16)))
        first = self.random.randrange(max(1, len(order) - stretch + 1))
        dropped = [place for place in recomputations(order) if first <= place < first + stretch]
        return self.within(without_positions(order, dropped), noise) if dropped else None

    def best(self, sight: Sight, spread: float, tried: int) -> Sight | None:
        """Return the order after the best of some changes; None if none is for the better."""
        moves = sorted(
            (*self.later(sight, spread), *self.earlier(sight, spread)),
            key=lambda move: -move.score,
        )
        found: tuple[float, list[int]] | None = None
        cost = self.problem.cost_of(sight.order)
        for move in moves[:tried]:
            after = without_dead(self.problem.graph, changed(sight.order, move))
            taken = sight.excess - excess_of(self.over(after))
            if taken <= 0:
                continue
            added = max(0.0, self.problem.cost_of(after) - cost)
            score = taken / (added + FREE_CHANGE_COST * self.mean_cost)
            if found is None or score > found[0]:
                found = score, after
        return None if found is None else self.sight(found[1])

    def has_moves(self, sight: Sight) -> bool:
        """Whether there is any change that may be for the better; random weights do not matter."""
        return any(True for _ in self.later(sight, 0.0)) or any(
            True for _ in self.earlier(sight, 0.0)
        )

    def over(self, order: list[int]) -> Any:
        """Return how far above the budget each evaluation is, as a share of it; an array."""
        return (self.problem.live(order) - self.budget) / max(self.budget, 1)

    def sight(self, order: list[int]) -> Sight:
        """Return an order with all that follows from it."""
        over = self.over(order)
        events: list[list[list[int]]] = [[] for _ in self.size]
        for position, operator in enumerate(order):
            for data in self.reads[operator]:
                events[data][-1].append(position)
            for data in self.writes[operator]:
                events[data].append([position])
        for data in self.results:
            events[data][-1].append(len(order))
        weight = np.where(over > 0, 1.0, NEARLY_FULL * np.clip(1 + over / NEAR, 0.0, 1.0))
        return Sight(
            order,
            excess_of(over),
            events,
            [[span[0] for span in spans] for spans in events],
            [*accumulate(weight.tolist(), initial=0.0)],
            [*accumulate((over > 0).tolist(), initial=0)],
            THRIFT * self.mean_size * int((over > 0).sum()) / self.mean_cost,
        )

    def later(self, sight: Sight, spread: float) -> Iterator[OrderChange]:
        """Yield moves by which a value goes, and is evaluated again where it is read next.

        Or earlier, where one of the inputs is held for the last time.
        """
        weight, full = sight.weight, sight.full
        for data, spans in enumerate(sight.events):
            operator, size = self.producer[data], self.size[data]
            if operator < 0 or not size or self.once[operator]:
                continue
            for span in spans:
                for last, following in pairwise(span):
                    if following < last + 2 or full[following] == full[last + 1]:
                        continue
                    paid = last == span[0]  # then the evaluation moves, and is no other
                    for place in self.places(sight, operator, last, following):
                        gain = size * (weight[place] - weight[last + 1])
                        taken, operators = self.needed(sight, operator, place, gain, DEPTH)
                        net = (gain - taken) * self.random.uniform(1 - spread, 1 + spread)
                        if net > 0:
                            every = [*dict.fromkeys(operators), operator]
                            cost = sum(self.cost[other] for other in every)
                            cost -= self.cost[operator] if paid else 0.0
                            yield OrderChange(
                                net / (cost + FREE_CHANGE_COST * self.mean_cost), place, every
                            )

    def places(self, sight: Sight, operator: int, last: int, following: int) -> list[int]:
        """Return the places for an evaluation between two positions: where inputs end, or last."""
        places = {following}
        for data in self.reads[operator]:
            end = span_before(sight, data, following)[-1]
            if last < end < following - 1:
                places.add(end + 1)
        return sorted(places)

    def needed(
        self, sight: Sight, operator: int, place: int, most: float, depth: int
    ) -> tuple[float, list[int]]:
        """Return what it weighs to have an operator's inputs at a place, and what is evaluated.

        What is not there is held until then, or evaluated again, and so on. Beyond ``most`` the
        exact weight is of no interest, and infinity is returned.
        """
        total, operators = 0.0, list[int]()
        weight = sight.weight
        for data in self.reads[operator]:
            end = span_before(sight, data, place)[-1]
            if end >= place:
                continue
            held = self.size[data] * (weight[place] - weight[end + 1])
            maker = self.producer[data]
            paid = sight.price * self.cost[maker]
            if depth and paid < held and not self.once[maker]:
                taken, others = self.needed(sight, maker, place, held - paid, depth - 1)
                if taken + paid < held:
                    held = taken + paid
                    operators += [*others, maker]
            total += held
            if total >= most:
                return inf, []
        return total, operators

    def earlier(self, sight: Sight, spread: float) -> Iterator[OrderChange]:
        """Yield moves of operators that free more than they make to where nothing was freed yet."""
        weight = sight.weight
        for position, operator in enumerate(sight.order):
            made = sum(self.size[data] for data in self.writes[operator])
            first, freed = 0, list[tuple[int, int]]()
            for data in self.reads[operator]:
                span = span_before(sight, data, position)
                first = max(first, span[0] + 1)
                if span[-1] == position:
                    freed.append((span[-2], self.size[data]))
            if sum(size for _, size in freed) <= made:
                continue
            for data in self.writes[operator]:
                if sight.begins[data][0] < position:
                    first = max(first, span_before(sight, data, position)[-1] + 1)
            for place in sorted({first, *(max(first, last + 1) for last, _ in freed)}):
                if place >= position:
                    continue
                gain = -made * (weight[position] - weight[place])
                for last, size in freed:
                    gain += size * (weight[position] - weight[max(last + 1, place)])
                gain *= self.random.uniform(1 - spread, 1 + spread)
                if gain > 0:
                    yield OrderChange(
                        gain / (FREE_CHANGE_COST * self.mean_cost), place, [operator], position
                    )


def excess_of(over: Any) -> float:
    """Return the sum of squares of what is too much."""
    return float((np.maximum(over, 0.0) ** 2).sum())


def span_before(sight: Sight, data: int, place: int) -> list[int]:
    """Return the span of a value that begins last before a place."""
    return sight.events[data][bisect_left(sight.begins[data], place) - 1]


def changed(order: list[int], move: OrderChange) -> list[int]:
    """Return the order after a move."""
    found = [*order[: move.place], *move.operators, *order[move.place :]]
    if move.taken >= 0:
        del found[move.taken + len(move.operators)]
    return found


def recomputations(order: Sequence[int]) -> list[int]:
    """Return the positions of evaluations that are not the first of their operators.

    >>> recomputations([0, 1, 0, 2, 1])
    [2, 4]
    """
    seen: set[int] = set()
    found = []
    for position, operator in enumerate(order):
        if operator in seen:
            found.append(position)
        seen.add(operator)
    return found


def without_positions(order: Sequence[int], dropped: Sequence[int]) -> list[int]:
    """Return the order without some positions."""
    gone = set(dropped)
    return [operator for position, operator in enumerate(order) if position not in gone]
