"""Optimality certificates: a schedule's cost, and a lower bound of any schedule's at its budget.

The bound is lazily evaluated: it may take as long as a plan, and many plans are never asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tinyckpt.base.units import cost_text, counted, memory_text

OPTIMAL_RATIO = 1 + 1e-12  # a cost that exceeds its bound by less is equal to it: rounding


class LazyBound:
    """Lazy evaluation of the fields that a proof gives: their slots are empty until first read.

    ``prove`` is no field of the dataclass, so that it is neither compared nor pickled.
    """

    __slots__ = ("prove",)
    prove: Callable[[], float]

    if not TYPE_CHECKING:  # a type checker would take any name to be an attribute

        def __getattr__(self, name: str) -> Any:
            """Fill the slots of status and bound; Python calls this for what it does not find."""
            if name not in ("status", "lower_bound"):
                raise AttributeError(f"a certificate has no attribute {name!r}")
            bound = min(self.prove(), self.cost)  # it may exceed the cost by rounding
            proven = "optimal in its class" if self.scope else "optimal"
            status = proven if self.cost <= bound * OPTIMAL_RATIO else "heuristic"
            object.__setattr__(self, "status", status)
            object.__setattr__(self, "lower_bound", bound)
            object.__setattr__(self, "prove", lambda: bound)  # frees what the proof needed
            return getattr(self, name)


@dataclass(frozen=True, slots=True)
class Certificate(LazyBound):
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
        scope: the class of schedules that status and bound refer to; empty for all schedules that
            move nothing to the host.
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

    @classmethod
    def lazy(
        cls, prove: Callable[[], float], cost: float, budget: int, unit: str, memory_unit: str,
        once: int = 0,
    ) -> Certificate:  # fmt: skip
        """Return a certificate whose lower bound, hence status, is computed when first read."""
        made = cls("heuristic", cost, 0.0, budget, unit, memory_unit, once=once)
        for name in ("status", "lower_bound"):
            object.__delattr__(made, name)
        object.__setattr__(made, "prove", prove)
        return made

    def among(self, restriction: str) -> Certificate:
        """Return the certificate restated for the schedules that its proof has considered."""
        made = Certificate.lazy(
            lambda: self.lower_bound, self.cost, self.budget, self.unit, self.memory_unit, self.once
        )
        object.__setattr__(made, "scope", f"{self.scope or 'schedules'} {restriction}")
        return made

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
        among = f" among {self.scope}" if self.scope else ""
        return (
            f"heuristic: {cost} {within}, at most {100 * self.gap:.3g} % above the optimum{among}; "
            f"none needs less than {cost_text(self.lower_bound, self.unit)}{once}"
        )
