"""The planning request: a graph with its costs, memory budget, deadline and warm starts.

``plan`` makes one at its door and hands it on: a budget is parsed once, and the flat arrays of the
graph (``Problem``) are built once, for the search, the policy, the schedule and its lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tinyckpt.base.deadline import Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.liveness import Problem

# Shares of the time for a plan, at least and at most, that are reserved for its lower bound and the
# schedule itself; between them, BOUND_SECONDS per operator. Doubled: tighter bounds for large
# graphs, and less time for the search.
BOUND_SHARE, MOST_BOUND_SHARE = 0.1, 0.25
BOUND_SECONDS = 3e-4

CheckedSeed = frozenset[int] | Schedule  # a set of forward values to save, or a schedule


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a schedule of the least cost within a budget, or for the whole frontier.

    Attributes:
        graph, costs: the graph, and the costs of its evaluations and sizes of its values.
        budget: the largest peak allowed, in the memory unit of the costs; None for all budgets.
        deadline: of the whole request, its certificate included.
        seeds: the caller's schedules and saved sets (warm starts).
        problem: graph and costs as flat arrays.
    """

    graph: Graph
    costs: Costs
    budget: int | None
    deadline: Clock
    seeds: tuple[CheckedSeed, ...]
    problem: Problem

    @property
    def budget_size(self) -> int:
        """The budget of a request that has one."""
        assert self.budget is not None, "a request for the whole frontier has no budget"
        return self.budget

    def seconds_to_search(self) -> float:
        """Return the seconds left for the search, beside the schedule and its lower bound."""
        left = self.deadline.left()
        return left if self.budget is None else max(0.0, left - reserved(self.graph, left))


def reserved(graph: Graph, seconds: float) -> float:
    """Return the part of a plan's time limit reserved for the schedule itself and its lower bound.

    Both take some such time on a graph of thousands of operators. An infinite time limit needs no
    reserve.
    """
    if seconds == inf:
        return 0.0
    wanted = min(BOUND_SECONDS * len(graph.operators), MOST_BOUND_SHARE * seconds)
    return max(BOUND_SHARE * seconds, wanted)
