"""Optimality certificates: a schedule's cost, and a lower bound of any schedule's at its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinyckpt.base.units import cost_text, counted, memory_text


@dataclass(frozen=True, slots=True)
class Certificate:
    """Optimality certificate of a schedule: its cost, and a lower bound at the same budget.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(4)
    >>> certificate = tc.plan(graph, budget="4 nodes").certificate
    >>> certificate.status, certificate.cost, certificate.lower_bound, certificate.gap
    ('optimal', 11.0, 11, 0.0)

    Attributes:
        status: ``optimal``; ``optimal in its class``, the class being ``scope``; or ``heuristic``.
        cost: the schedule's cost.
        lower_bound: no schedule in ``scope`` within the budget costs less.
        budget: the largest peak allowed.
        unit, memory_unit: units of the costs and of the budget.
        scope: the class of schedules that status and bound refer to; empty for all schedules.
        once: number of operators that no schedule may evaluate twice.
    """

    status: Literal["optimal", "optimal in its class", "heuristic"]
    cost: float
    lower_bound: float
    budget: int
    unit: str
    memory_unit: str
    scope: str = ""
    once: int = 0

    @property
    def gap(self) -> float:
        """Return the relative optimality gap, cost / lower bound - 1: 0.02 means at most 2 %."""
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else 0.0

    def __str__(self) -> str:
        once = f"; {counted(self.once, 'operator')} may not be evaluated twice" if self.once else ""
        within = f"within {memory_text(self.budget, self.memory_unit)}"
        cost = cost_text(self.cost, self.unit)
        if self.status == "optimal":
            return f"optimal: no schedule {within} costs less than {cost}{once}"
        if self.status == "optimal in its class":
            return f"optimal {within} among {self.scope}: {cost}{once}"
        return (
            f"heuristic: {cost} {within}, at most {100 * self.gap:.3g} % above the optimum; none "
            f"needs less than {cost_text(self.lower_bound, self.unit)}{once}"
        )
