"""The frontier of a graph: peak against cost, of everything that the portfolio of policies finds.

``plan(graph, budget=...)`` is a look into it. What is searched does not depend on the budget that
is asked for: families of schedules from every policy, and plans at a fixed grid of budgets. The
cheapest schedule within a budget is then never dearer than the cheapest within a smaller one,
whatever the heuristics do.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tinyckpt.base.deadline import ENDLESS, Clock, checked_seconds
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import cost_text, memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order, kept_values
from tinyckpt.core.schedule import Certificate, Schedule
from tinyckpt.planner.heuristics.budget_grid import thinned
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import cost_bound, necessary, smallest_budget
from tinyckpt.planner.portfolio.table import html_table, table

FRONTIER_HEADER = ("found by", "peak", "cost", "of store-all")


@dataclass(frozen=True, slots=True)
class Point:
    """One schedule of a frontier.

    Attributes:
        peak: in the memory unit of the costs.
        cost: in their unit.
        policy: which policy made it.
        detail: with which options.
        order: the evaluations, as operator ids.
        rank: which attempt it is, so that of equals the first is shown.
    """

    peak: int
    cost: float
    policy: str
    detail: str
    order: Integers = field(repr=False)
    rank: tuple[int, int] = field(default=(0, 0), repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Frontier:
    """The best schedules found: along the points the peak rises and the cost falls.

    Attributes:
        graph, costs: what was planned, and what for.
        points: by peak, ascending; each costs less than all before it.
        complete: whether the search ended by itself, and not by its time limit or an interrupt.
        tried: the policies of which anything was tried, if it did not.
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
        index = bisect_right([point.peak for point in self.points], budget) - 1
        if index >= 0:
            return self.points[index]
        unit = self.costs.memory_unit
        problem = Problem(self.graph, self.costs)
        needed = smallest_budget(problem, necessary(self.graph))
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
            certified: whether to look for a lower bound.
            time_limit: seconds for that, and for the schedule; what has been found of the bound by
                then is true too. For a transformer of 10,000 operators all of it takes about a
                second, for one of 30,000 four.

        Raises:
            PolicyOptionError: if the time limit is none.
            BudgetError: if there is none.
        """
        clock = Clock(checked_seconds(time_limit))
        amount, costs = parse_budget(self.graph, self.costs, budget)
        if costs.memory_unit != self.costs.memory_unit:
            raise BudgetError(f"this frontier counts memory in {self.costs.memory_unit}")
        return self.cheapest(amount, certified, clock)

    def cheapest(self, budget: int, certified: bool = True, deadline: Clock = ENDLESS) -> Schedule:
        """Return the cheapest schedule within a budget that is in the unit of the costs.

        Args:
            budget: in the memory unit of the costs.
            certified: whether to look for a lower bound.
            deadline: of the search for that; what has been found of it then is true too.

        Raises:
            BudgetError: if there is none.
        """
        point = self.within(budget)
        note = f"{point.detail}; peak {memory_text(point.peak, self.costs.memory_unit)}"
        if not self.complete:
            note += "; the search was cut short, more time may find more"
        options = {"budget": budget, "memory_unit": self.costs.memory_unit}
        schedule = from_order(
            self.graph,
            point.order.tolist(),
            point.policy,
            options,
            note,
            kept_values(self.graph, point.order),
        )
        if not certified:
            return schedule
        # Last, since it takes what time there is.
        certificate = certificate_of(self.graph, self.costs, point.cost, budget, deadline)
        return replace(schedule, certificate=certificate)

    def bounds(self, most: int = 32, *, time_limit: float = inf) -> tuple[tuple[int, float], ...]:
        """Return budgets, and for each a cost that no schedule within it is below.

        The budgets are the points' own, the last ones before each, where the bound is infinite if
        nothing can be within them, and one that is enough for everything. What holds for a budget
        holds for all smaller ones.

        Args:
            most: about how many budgets; thinned evenly where the points are more. In a graph of
                500 operators each takes about half a second.
            time_limit: seconds; what has been found of each bound by then is true too.

        Raises:
            PolicyOptionError: if the time limit is none.
        """
        clock = Clock(checked_seconds(time_limit))
        peaks = [point.peak for point in self.points]
        budgets = sorted({budget for peak in peaks for budget in (peak - 1, peak)})
        found = []
        everything = sum(self.costs.data) + sum(self.costs.workspace)
        asked = (*thinned(budgets, most), max(everything, budgets[-1] + 1))
        for number, budget in enumerate(asked):
            index = bisect_right(peaks, budget) - 1
            share = Clock(clock.left() / (len(asked) - number))
            bound = cost_bound(self.graph, self.costs, budget, share)
            # A bound and the cost that it is the bound of may differ by rounding.
            found.append((budget, min(bound, self.points[index].cost) if index >= 0 else bound))
        return tuple(found)

    def __str__(self) -> str:
        """Return a table: budgets, costs, and which policy found them."""
        return table(FRONTIER_HEADER, self.rows())

    def __repr__(self) -> str:
        return f"<Frontier of {self.graph.name}, {len(self.points)} points>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return how a notebook shows the frontier: as its table."""
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
            for point in thinned(self.points, 24)
        ]


def certificate_of(
    graph: Graph, costs: Costs, cost: float, budget: int, deadline: Clock = ENDLESS
) -> Certificate:
    """Return what is known of a cost within a budget.

    If the time is up, that is a closed form where there is one; else, that each operator on which a
    result depends is evaluated once.
    """
    if deadline.left() or uniform_chain(graph, costs, once=True) is not None:
        bound = cost_bound(graph, costs, budget, deadline)
    else:
        bound = sum(costs.operators[index] for index in necessary(graph))
    assert bound <= cost * (1 + 1e-9), "a schedule within the budget is below the lower bound"
    bound = min(bound, cost)  # they may differ by rounding
    status = "optimal" if cost <= bound * (1 + 1e-12) else "heuristic"
    return Certificate(
        status,  # type: ignore[arg-type]
        cost, bound, budget, costs.unit, costs.memory_unit, once=len(graph.once),
    )  # fmt: skip
