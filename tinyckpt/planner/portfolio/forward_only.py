"""Planning of inference (forward-only) graphs: low-memory topological orders, then local search.

A graph without a backward pass has no turning point that chain planners could reverse from. Instead
operators are reordered so that fewer values are live at once (beam search,
``heuristics.beam_toposort``), and what still exceeds the budget is evicted and recomputed
(``heuristics.local_search``). The budgets are a grid of shares of store-all's peak, so that the
result does not depend on the requested budget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from tinyckpt.base.deadline import Clock
from tinyckpt.base.units import counted
from tinyckpt.planner.heuristics.beam_toposort import (
    BEAM_WIDTHS,
    BlockDependencies,
    affordable_widths,
    beam_search_order,
)
from tinyckpt.planner.heuristics.budget_grid import SHARE_STEPS, BudgetGrid, Candidate
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.local_search import LocalSearch
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget

# Rounds of local search per budget, with different starting orders and random weights; doubled:
# slightly cheaper plans, in twice the time.
ROUNDS = 6
SHAKES = 12  # attempts to improve a round's result; doubled: as ROUNDS
QUICK_WIDTHS = BEAM_WIDTHS[:2]  # of beam searches, in states; the widest comes last
NOISE = 0.3  # largest deviation of random weights from 1; doubled: starts differ more

Attempts = Callable[[Clock], Iterator[Candidate]]


def forward_attempts(
    problem: Problem, levels: BudgetGrid
) -> Iterator[tuple[Attempts, int, int | None]]:
    """Yield attempts with their ranks and levels, as for tasks, the first rounds first."""
    if problem.graph.updates:
        return  # in-place updates come last in any order, which these searches do not model
    rounds = Rounds(problem, levels.highest)
    for width in rounds.widths:
        # The widest beams take longer than local search at the requested budget.
        yield reordered(rounds, width), 1 + (width not in QUICK_WIDTHS), None
    for number in range(ROUNDS):
        for budget in rounds.budgets:
            level = max(0, bisect_right(levels.budgets, budget) - 1)
            yield attempts_at(rounds, budget, number), 1 + (number > 0), level


class Rounds:
    """The starting points of all rounds, each computed once (memoised).

    Attributes:
        problem, widths: the graph, and the widths of the beam searches.
        budgets: shares of the peak in build order, descending.
    """

    def __init__(self, problem: Problem, highest: int) -> None:
        self.problem, self._blocks = problem, BlockDependencies(problem)
        self.widths = () if problem.in_order else affordable_widths(self._blocks)
        lowest = smallest_budget(problem)
        # Rounded down, as a requested budget of that share is.
        shares = {highest * part // SHARE_STEPS for part in range(1, SHARE_STEPS)}
        self.budgets = sorted((share for share in shares if share >= lowest), reverse=True)
        self._orders: dict[int, list[int]] = {}
        self._firsts: dict[int, list[int] | None] = {}

    def order(self, width: int, clock: Clock) -> list[int]:
        """Return the order found by the beam search of a width."""
        if width not in self._orders:
            self._orders[width] = beam_search_order(self._blocks, width, clock)
        return self._orders[width]

    def starts(self, clock: Clock) -> list[list[int]]:
        """Return the starting orders: build order, and those of the quick beams."""
        widths = [width for width in self.widths if width in QUICK_WIDTHS]
        stored = list(range(len(self.problem.graph.operators)))
        return [stored, *(self.order(width, clock) for width in widths)]

    def first(self, budget: int, clock: Clock) -> list[int] | None:
        """Return the result of the first round at a budget, from build order."""
        if budget not in self._firsts:
            start = range(len(self.problem.graph.operators))
            self._firsts[budget] = LocalSearch(self.problem, budget, deadline=clock).within(start)
        return self._firsts[budget]

    def is_hopeless(self, budget: int, clock: Clock) -> bool:
        """Whether the first round found nothing at a budget, nor at the next larger one."""
        larger = self.budgets[max(0, self.budgets.index(budget) - 1)]
        return self.first(budget, clock) is None and self.first(larger, clock) is None


def reordered(rounds: Rounds, width: int) -> Attempts:
    """Return the attempt that evaluates every operator once, in the order of a beam search."""

    def attempts(clock: Clock) -> Iterator[Candidate]:
        yield candidate(rounds.problem, rounds.order(width, clock))

    return attempts


def attempts_at(rounds: Rounds, budget: int, number: int) -> Attempts:
    """Return one round of local search at one budget.

    Rounds start from build order and from those of the beams in turn, later ones with random
    weights.
    """

    def attempts(clock: Clock) -> Iterator[Candidate]:
        problem, starts = rounds.problem, rounds.starts(clock)
        if any(problem.peak(start) <= budget for start in starts):
            return  # every operator once: optimal
        if number and rounds.is_hopeless(budget, clock):
            return
        search = LocalSearch(problem, budget, number, clock)
        noise = 0.0 if number < len(starts) else NOISE
        start = starts[number % len(starts)]
        found = search.within(start, noise) if number else rounds.first(budget, clock)
        if found is None:
            return
        best = drop_redundant_recomputes(problem, found, budget, clock)
        yield candidate(problem, best)
        for _ in range(SHAKES):
            if len(best) == len(starts[0]):
                return
            found = search.shaken(best, NOISE)
            if found is None:
                continue
            found = drop_redundant_recomputes(problem, found, budget, clock)
            if problem.cost_of(found) < problem.cost_of(best):
                best = found
                yield candidate(problem, best)

    return attempts


def candidate(problem: Problem, order: list[int]) -> Candidate:
    """Return an order as a candidate, with its note."""
    again = len(order) - len(problem.graph.operators)
    detail = counted(again, "recomputation") if again else "every operator once"
    return Candidate("ahead", f"{detail}, in another order", order)
