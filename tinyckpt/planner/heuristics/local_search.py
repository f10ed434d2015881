"""Local search over evaluation orders: evict, recompute or move operators until the peak fits.

Steepest descent with random perturbation (iterated local search). Online eviction drops a value
when memory is full and finds out later what recomputing it takes; on graphs whose values are read
far from their definitions that ends in recomputing almost everything. Here the whole order is
known. An order comes in that exceeds the budget at some positions. There are two kinds of moves:

- evict a value that is live but not read at a position over the budget, and recompute it just
  before its next reader. Its inputs then either stay live for longer or are recomputed as well,
  whichever adds less at the positions over the budget. If the value has no earlier reader, its
  first evaluation moves instead, at no cost;
- move an operator that frees more than it allocates to an earlier position.

Each move is scored by the excess that it removes per cost that it adds; the best few are evaluated
exactly, and the best of these is made, until the peak is within the budget. At a local minimum,
scores are multiplied by random weights, and some recomputations are dropped. ``LocalSearch.shaken``
then continues from an order within the budget: it drops the recomputations of a random window and
repairs the order by new moves (ruin and recreate); the caller keeps the cheaper order.

The objective is the sum of squares of the excess, so that the highest peaks shrink first. Scores
treat each value as owning its memory; views are accounted for only in the exact evaluation. Its
source is this project; choosing between keeping and recomputing by looking at the whole order is
from Checkmate (Jain et al., 2020, arXiv 1910.02653) and Moccasin (Bartan et al., 2023, arXiv
2304.14463), which use a solver.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations

# Moves evaluated exactly at each step, normally and at a local minimum. Larger: better moves,
# slower steps.
TRIALS, TRIALS_WHEN_STUCK = 8, 24
# Failed steps in total (no improving move) after which the search ends. Larger: more feasible
# budgets, a longer search at infeasible ones.
PATIENCE = 40
# Failed steps between two perturbations, each of which drops one recomputation in KICK_SHARE.
# Larger: rarer, and smaller, perturbations.
KICK_EVERY, KICK_SHARE = 10, 8
# Recursion depth: operators in a chain that are recomputed for one value. Larger: more moves,
# slower scoring.
DEPTH = 3
# Mean evaluations per operator above which the budget is given up. Larger: more expensive orders.
MOST_EVALUATIONS_EACH = 3
# Weight of a position at the budget, relative to 1 for a position above it; it falls linearly to 0
# at the relative distance NEAR below the budget. Larger: moves avoid nearly full positions more.
NEARLY_FULL, NEAR = 0.3, 0.01
# A move without cost is scored as if it cost this share of a mean evaluation. Larger: free moves
# are preferred less.
FREE_CHANGE_COST = 0.02
# Amplitude of the random weights after a failed step. Larger: more random moves.
NOISE_WHEN_STUCK = 0.2
# Weight of cost relative to memory in choosing whether an input stays live or is recomputed.
# Larger: fewer operators are recomputed for one value.
THRIFT = 0.1


class Move(NamedTuple):
    """Move of the local search: insert operators at a position, and delete at most one evaluation.

    Attributes:
        score: removed excess per added cost; higher is better.
        place: position before which the operators are inserted.
        operators: operator ids, in the order of evaluation.
        taken: position, at ``place`` or after it, of the evaluation that is deleted; -1 for none.
    """

    score: float
    place: int
    operators: list[int]
    taken: int = -1


class OrderState(NamedTuple):
    """An order with its liveness, objective and prefix sums.

    Attributes:
        order: operator ids.
        excess: objective: the sum of squares of live memory above the budget, relative to it.
        events: for each value, its live ranges: positions of an evaluation and of its readers.
        begins: for each value, the first position of each live range.
        weight: prefix sums: at i, the total weight of the positions before i.
        full: prefix sums: at i, the number of positions before i that are above the budget.
        price: weight of a unit of cost relative to memory.
    """

    order: list[int]
    excess: float
    events: list[list[list[int]]]
    begins: list[list[int]]
    weight: list[float]
    full: list[int]
    price: float


class LocalSearch:
    """Local search on one graph for one budget.

    Args:
        problem: a graph without updates, and costs.
        budget: the peak to stay within, in the memory unit of the costs.
        seed: of the random weights.
        deadline: of the search; once it has passed, methods raise an OutOfTimeError.

    Attributes:
        trials: moves evaluated exactly at each step. With fewer the random weights decide more.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(3)  # operators 0 to 6: f1 f2 f3 l b3 b2 b1
    >>> problem = Problem(graph, tc.cost.evaluations(graph))
    >>> LocalSearch(problem, 4 * 512).within(range(7))  # store-all's peak is 5 values
    [0, 1, 2, 3, 4, 5, 0, 6]
    """

    def __init__(
        self, problem: Problem, budget: int, seed: int = 0, deadline: Clock = NO_DEADLINE
    ) -> None:
        graph, lists = problem.graph, problem.lists
        self.problem, self.budget, self.deadline = problem, budget, deadline
        self.random, self.trials = Random(seed), TRIALS
        self.inputs, self.outputs, self.producer = lists.inputs, lists.outputs, lists.producer
        self.size, self.cost = lists.size, lists.cost
        self.once = [operator.once for operator in graph.operators]
        self.results = [data for data in graph.outputs if self.producer[data] >= 0]
        count = max(len(self.cost), 1)
        self.mean_size = sum(self.size) / count
        self.mean_cost = sum(self.cost) / count or 1.0

    def within(self, order: Sequence[int], noise: float = 0.0) -> list[int] | None:
        """Search from an order for one within the budget; None if none is found.

        Args:
            order: a legal order of evaluations.
            noise: initial amplitude of the random weights around 1.
        """
        state, failures, spread = self.analyse(list(order)), 0, noise
        while state.excess:
            self.deadline.check()
            better = self.best_move(state, spread, TRIALS_WHEN_STUCK if failures else self.trials)
            if better is not None:
                state, spread = better, noise
                if len(state.order) > MOST_EVALUATIONS_EACH * len(self.cost):
                    return None
                continue
            failures += 1
            again = recomputations(state.order)
            if failures > PATIENCE or not (again or self.has_moves(state)):
                return None
            spread = NOISE_WHEN_STUCK
            if failures % KICK_EVERY == 0:
                dropped = self.random.sample(again, -(-len(again) // KICK_SHARE))
                state = self.analyse(without_positions(state.order, dropped))
        return state.order

    def shaken(self, order: Sequence[int], noise: float = 0.3) -> list[int] | None:
        """Perturb an order (ruin and recreate); None if no order within the budget is found.

        Drops the recomputations of a random window, then searches on with random weights.
        """
        stretch = max(2, len(order) // self.random.choice((4, 8, 16)))
        first = self.random.randrange(max(1, len(order) - stretch + 1))
        dropped = [place for place in recomputations(order) if first <= place < first + stretch]
        return self.within(without_positions(order, dropped), noise) if dropped else None

    def thinned(self, order: Sequence[int], share: float, noise: float) -> list[int] | None:
        """Perturb an order as ``shaken``: drop a random share of all its recomputations."""
        dropped = [place for place in recomputations(order) if self.random.random() < share]
        return self.within(without_positions(order, dropped), noise) if dropped else None

    def best_move(self, state: OrderState, spread: float, tried: int) -> OrderState | None:
        """Apply the best of the ``tried`` highest-scored moves; None if none improves."""
        moves = sorted(
            (*self.eviction_moves(state, spread), *self.advance_moves(state, spread)),
            key=lambda move: -move.score,
        )
        found: tuple[float, list[int]] | None = None
        cost = self.problem.cost_of(state.order)
        for move in moves[:tried]:
            after = eliminate_dead_recomputations(
                self.problem.graph, apply_move(state.order, move), self.problem.in_order
            )
            taken = state.excess - excess_of(self.overflow(after))
            if taken <= 0:
                continue
            added = max(0.0, self.problem.cost_of(after) - cost)
            score = taken / (added + FREE_CHANGE_COST * self.mean_cost)
            if found is None or score > found[0]:
                found = score, after
        return None if found is None else self.analyse(found[1])

    def has_moves(self, state: OrderState) -> bool:
        """Whether any move has a positive score, whatever the random weights."""
        return any(True for _ in self.eviction_moves(state, 0.0)) or any(
            True for _ in self.advance_moves(state, 0.0)
        )

    def overflow(self, order: list[int]) -> Any:
        """Return the live memory above the budget at each position, relative to it; an array."""
        return (self.problem.live(order) - self.budget) / max(self.budget, 1)

    def analyse(self, order: list[int]) -> OrderState:
        """Compute liveness, objective and prefix sums of an order."""
        overflow = self.overflow(order)
        events: list[list[list[int]]] = [[] for _ in self.size]
        for position, operator in enumerate(order):
            for data in self.inputs[operator]:
                events[data][-1].append(position)
            for data in self.outputs[operator]:
                events[data].append([position])
        for data in self.results:
            events[data][-1].append(len(order))
        weight = np.where(overflow > 0, 1.0, NEARLY_FULL * np.clip(1 + overflow / NEAR, 0.0, 1.0))
        return OrderState(
            order,
            excess_of(overflow),
            events,
            [[span[0] for span in spans] for spans in events],
            [*accumulate(weight.tolist(), initial=0.0)],
            [*accumulate((overflow > 0).tolist(), initial=0)],
            THRIFT * self.mean_size * int((overflow > 0).sum()) / self.mean_cost,
        )

    def eviction_moves(self, state: OrderState, spread: float) -> Iterator[Move]:
        """Yield moves that evict a value and recompute it before its next reader.

        Or earlier, where the live range of one of its inputs ends.
        """
        weight, full, in_order = state.weight, state.full, self.problem.in_order
        for data, spans in enumerate(state.events):
            operator, size = self.producer[data], self.size[data]
            if operator < 0 or not size or self.once[operator]:
                continue
            for span in spans:
                for last, following in pairwise(span):
                    if following < last + 2 or full[following] == full[last + 1]:
                        continue
                    # No earlier reader: the evaluation moves, at no cost.
                    paid = last == span[0] and not (in_order and span is spans[0])
                    for place in self.recompute_positions(state, operator, last, following):
                        gain = size * (weight[place] - weight[last + 1])
                        taken, operators = self.input_weight(state, operator, place, gain, DEPTH)
                        net = (gain - taken) * self.random.uniform(1 - spread, 1 + spread)
                        if net > 0:
                            every = [*dict.fromkeys(operators), operator]
                            cost = sum(self.cost[other] for other in every)
                            cost -= self.cost[operator] if paid else 0.0
                            yield Move(
                                net / (cost + FREE_CHANGE_COST * self.mean_cost), place, every
                            )

    def recompute_positions(
        self, state: OrderState, operator: int, last: int, following: int
    ) -> list[int]:
        """Return candidate positions of a recomputation: where inputs' live ranges end, or last."""
        positions = {following}
        for data in self.inputs[operator]:
            end = span_before(state, data, following)[-1]
            if last < end < following - 1:
                positions.add(end + 1)
        return sorted(positions)

    def input_weight(
        self, state: OrderState, operator: int, place: int, most: float, depth: int
    ) -> tuple[float, list[int]]:
        """Return the weight of providing an operator's inputs at a position, with recomputations.

        The live range of an input that has ended is extended, or the input is recomputed,
        recursively. Beyond ``most``, infinity is returned.
        """
        total, operators = 0.0, list[int]()
        weight = state.weight
        for data in self.inputs[operator]:
            end = span_before(state, data, place)[-1]
            if end >= place:
                continue
            weight_added = self.size[data] * (weight[place] - weight[end + 1])
            maker = self.producer[data]
            paid = state.price * self.cost[maker]
            if depth and paid < weight_added and not self.once[maker]:
                taken, others = self.input_weight(
                    state, maker, place, weight_added - paid, depth - 1
                )
                if taken + paid < weight_added:
                    weight_added = taken + paid
                    operators += [*others, maker]
            total += weight_added
            if total >= most:
                return inf, []
        return total, operators

    def advance_moves(self, state: OrderState, spread: float) -> Iterator[Move]:
        """Yield moves of operators that free more than they allocate to earlier positions."""
        weight, seen, latest = state.weight, set[int](), 0
        for position, operator in enumerate(state.order):
            made = sum(self.size[data] for data in self.outputs[operator])
            first, freed = 0, list[tuple[int, int]]()
            if self.problem.in_order and operator not in seen:
                first, latest = latest, position + 1  # after the first evaluation before it
            seen.add(operator)
            for data in self.inputs[operator]:
                span = span_before(state, data, position)
                first = max(first, span[0] + 1)
                if span[-1] == position:
                    freed.append((span[-2], self.size[data]))
            if sum(size for _, size in freed) <= made:
                continue
            for data in self.outputs[operator]:
                if state.begins[data][0] < position:
                    first = max(first, span_before(state, data, position)[-1] + 1)
            for place in sorted({first, *(max(first, last + 1) for last, _ in freed)}):
                if place >= position:
                    continue
                gain = -made * (weight[position] - weight[place])
                for last, size in freed:
                    gain += size * (weight[position] - weight[max(last + 1, place)])
                gain *= self.random.uniform(1 - spread, 1 + spread)
                if gain > 0:
                    yield Move(
                        gain / (FREE_CHANGE_COST * self.mean_cost), place, [operator], position
                    )


def excess_of(overflow: Any) -> float:
    """Return the objective: the sum of squares of positive overflows."""
    return float((np.maximum(overflow, 0.0) ** 2).sum())


def span_before(state: OrderState, data: int, place: int) -> list[int]:
    """Return the live range of a value that begins last before a position."""
    return state.events[data][bisect_left(state.begins[data], place) - 1]


def apply_move(order: list[int], move: Move) -> list[int]:
    """Apply a move to an order.

    >>> apply_move([0, 1, 2, 3], Move(score=0.0, place=1, operators=[3], taken=3))
    [0, 3, 1, 2]
    """
    found = [*order[: move.place], *move.operators, *order[move.place :]]
    if move.taken >= 0:
        del found[move.taken + len(move.operators)]
    return found


def recomputations(order: Sequence[int]) -> list[int]:
    """Return the positions of recomputations: evaluations that are not their operator's first.

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
    """Drop some positions from an order."""
    gone = set(dropped)
    return [operator for position, operator in enumerate(order) if position not in gone]
