"""Pareto frontier of peak memory against cost, over all schedules that the portfolio finds.

``plan(graph, budget=...)`` is a look-up in it. The search does not depend on the requested budget:
families of schedules from every policy, and plans at a fixed grid of budgets. Therefore the
cheapest schedule within a budget never costs more than the cheapest within a smaller one, whatever
the heuristics do (monotone in the budget). Certificates compare a cost with the lower bound of
``model.lower_bounds``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import inf, isnan
from numbers import Real
from typing import Any

from tinyckpt.base.deadline import NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.units import cost_text, memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import evenly_spaced
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound, needed_operators, smallest_budget
from tinyckpt.planner.model.vectorised_lowering import lower

FRONTIER_HEADER = ("found by", "peak", "cost", "of store-all")


@dataclass(frozen=True, slots=True)
class Point:
    """One schedule on a frontier.

    >>> import tinyckpt as tc
    >>> point = tc.frontier(tc.networks.chain(4), nodes=True).within(4)
    >>> point.peak, point.cost, point.policy
    (4, 11.0, 'chen_recursive')

    Attributes:
        peak: in the memory unit of the costs.
        cost: in their unit.
        policy: the policy that made it.
        detail: the options it was made with.
        order: the evaluations, as operator ids.
        rank: number of the attempt that found it: of equal points the first is shown.
    """

    peak: int
    cost: float
    policy: str
    detail: str
    order: Integers = field(repr=False)
    rank: tuple[int, int] = field(default=(0, 0), repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Frontier:
    """The Pareto frontier of the schedules found: along the points peak rises and cost falls.

    >>> import tinyckpt as tc
    >>> found = tc.frontier(tc.networks.chain(4), nodes=True)
    >>> found, found.complete
    (<Frontier of chain:4, 4 points>, True)

    Attributes:
        graph, costs: the graph, and the costs it was planned for.
        points: by peak, ascending; each costs less than all before it.
        complete: whether the search ended by itself, and not by its time limit or an interrupt.
        tried: the policies that had been tried by then, if it did not.
    """

    graph: Graph
    costs: Costs
    points: tuple[Point, ...]
    complete: bool
    tried: tuple[str, ...] = field(default=(), compare=False)

    def within(self, budget: int) -> Point:
        """Return the cheapest point within a budget.

        Raises:
            BudgetError: if there is none; with the smallest peak found, and whether that is proven.
        """
        if not isinstance(budget, Real) or isnan(budget):
            raise BudgetError(f"budget {budget!r:.80}; expected a number (schedule takes texts)")
        index = bisect_right([point.peak for point in self.points], budget) - 1
        if index >= 0:
            return self.points[index]
        unit = self.costs.memory_unit
        needed = smallest_budget(problem_of(self.graph, self.costs))
        smallest = self.points[0].peak
        known = (
            "which is proven to be the smallest there is"
            if smallest == needed
            else f"and less than {memory_text(needed, unit)} is proven to be impossible"
        )
        cut = more = ""
        if not self.complete and budget >= needed:
            cut = " in the time given"
            were = "was" if len(self.tried) == 1 else "were"
            more = f"only {', '.join(self.tried)} {were} tried; give it more (time_limit=...); "
        raise BudgetError(
            f"no schedule of {self.graph.name} was found{cut} within "
            f"{memory_text(budget, unit)}: {more}the smallest peak found is "
            f"{memory_text(smallest, unit)}, {known}",
            smallest,
            smallest == needed,
        )

    def schedule(
        self, budget: str | int | float, certified: bool = True, *, time_limit: float = inf
    ) -> Schedule:
        """Return the cheapest schedule within a budget, with its certificate.

        Args:
            budget: as in ``plan``; in nodes, if memory is counted so here.
            certified: whether to compute a lower bound.
            time_limit: seconds for that, and for the schedule; a bound found by then is valid too.
                For a transformer of 10,000 operators all of it takes about a second, for one of
                30,000 four.

        Raises:
            PolicyOptionError: if the time limit is invalid.
            BudgetError: if no schedule is within the budget.
        """
        clock = Clock(checked_seconds(time_limit))
        amount, problem = parse_budget(self.graph, self.costs, budget)
        if problem.costs.memory_unit != self.costs.memory_unit:
            raise BudgetError(f"this frontier counts memory in {self.costs.memory_unit}")
        return self.cheapest(amount, certified, clock)

    def cheapest(
        self, budget: int, certified: bool = True, deadline: Clock = NO_DEADLINE
    ) -> Schedule:
        """Return the cheapest schedule within a budget in the memory unit of the costs.

        As ``schedule`` does, which parses the budget.
        """
        point = self.within(budget)
        note = f"{point.detail}; peak {memory_text(point.peak, self.costs.memory_unit)}"
        if not self.complete:
            note += "; the search was cut short, more time may find more"
        options = {"budget": budget, "memory_unit": self.costs.memory_unit}
        schedule = lower(self.graph, point.order.tolist(), point.policy, options, note)
        if not certified:
            return schedule
        problem = problem_of(self.graph, self.costs)
        certificate = certificate_of(problem, point.cost, budget, deadline)
        return replace(schedule, certificate=certificate)

    def bounds(self, most: int = 32, *, time_limit: float = inf) -> tuple[tuple[int, float], ...]:
        """Return budgets, each with a lower bound on the cost of every schedule within it.

        The budgets are the points' own, the last ones before each, where the bound is infinite if
        nothing can be within them, and one that is enough for everything. A bound for a budget
        holds for all smaller ones.

        Args:
            most: about how many budgets; thinned evenly where the points are more. In a graph of
                500 operators each takes about half a second.
            time_limit: seconds; each bound found by then is valid too.

        Raises:
            PolicyOptionError: if the time limit is invalid.
        """
        clock = Clock(checked_seconds(time_limit))
        peaks = [point.peak for point in self.points]
        budgets = sorted({budget for peak in peaks for budget in (peak - 1, peak)})
        found = []
        problem = problem_of(self.graph, self.costs)
        everything = sum(self.costs.data) + sum(self.costs.workspace)
        asked = (*evenly_spaced(budgets, most), max(everything, budgets[-1] + 1))
        for number, budget in enumerate(asked):
            index = bisect_right(peaks, budget) - 1
            share = Clock(clock.left() / (len(asked) - number))
            bound = cost_bound(problem, budget, share)
            # A tight bound may exceed the cost by rounding.
            found.append((budget, min(bound, self.points[index].cost) if index >= 0 else bound))
        return tuple(found)

    def __str__(self) -> str:
        """Return a table: policies, budgets and costs."""
        return table(FRONTIER_HEADER, self.rows())

    def __repr__(self) -> str:
        return f"<Frontier of {self.graph.name}, {len(self.points)} points>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the notebook display: the table."""
        return {"text/plain": str(self), "text/html": html_table(FRONTIER_HEADER, self.rows())}

    def rows(self) -> list[list[str]]:
        """Return the points as rows of a table, thinned where they are many."""
        least = sum(self.costs.operators)
        return [
            [
                f"{point.policy}: {point.detail}",
                memory_text(point.peak, self.costs.memory_unit),
                cost_text(point.cost, self.costs.unit),
                f"{point.cost / least:.4f}" if least else "",
            ]
            for point in evenly_spaced(self.points, 24)
        ]


def certificate_of(
    problem: Problem, cost: float, budget: int, deadline: Clock = NO_DEADLINE
) -> Certificate:
    """Return the certificate of a cost within a budget: optimal, or heuristic with a lower bound.

    The bound is computed when first read, in the seconds that are left now. If none are, it is a
    closed form where there is one; else, that each operator on which a result depends is evaluated
    once.
    """
    graph, costs, seconds = problem.graph, problem.costs, deadline.left()

    def prove() -> float:
        if seconds or uniform_chain(graph, costs, once=True) is not None:
            bound = cost_bound(problem, budget, Clock(seconds))
        else:
            bound = sum(costs.operators[index] for index in needed_operators(graph))
        assert bound <= cost * (1 + 1e-9), "a schedule within the budget is below the lower bound"
        return bound

    return Certificate.lazy(
        prove, cost, budget, costs.unit, costs.memory_unit, once=len(graph.once)
    )
