"""Budgets as people write them: "64 MiB", bytes, "9 nodes", or a share of store-all's peak.

A budget is for what a schedule holds. With "in all", as in "24 GiB in all", it is for the sources
as well: parameters, the optimiser's state and the batch, which are there whatever is planned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Literal

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs, in_nodes
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import necessary, smallest_budget

UNITS = {
    "b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
BYTE_FORMS = (
    "'64 MiB', '24 GiB in all' (sources included), a number of bytes, '50 %', or a share from 0 to "
    "1 of store-all's peak"
)
FORMS = BYTE_FORMS.replace("bytes, ", "bytes, '9 nodes', ")
QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z%]*)\s*")


@dataclass(frozen=True, slots=True)
class Asked:
    """A budget as it is written, before it is known of what.

    Attributes:
        amount: how much: bytes, nodes, or a share from 0 to 1.
        unit: ``bytes``, ``nodes`` or ``share``, of store-all's peak; ``unsaid`` for a number alone,
            which is in the memory unit of whoever asks.
        for_all: whether it counts the sources, too.
    """

    amount: Fraction
    unit: Literal["bytes", "nodes", "share", "unsaid"]
    for_all: bool = False

    def left(self, whole: int, sources: int) -> int:
        """Return what a budget that is not in nodes leaves to a schedule, rounded down.

        Args:
            whole: the peak that a share is of, without the sources.
            sources: bytes of what the caller supplies.

        Raises:
            BudgetError: if it is for all, and the sources alone are more.
        """
        taken = sources if self.for_all else 0
        size = int(self.amount * (whole + taken if self.unit == "share" else 1))
        if size < taken:
            raise BudgetError(
                f"budget {memory_text(size, 'bytes')} in all: the sources alone are "
                f"{memory_text(sources, 'bytes')}"
            )
        return size - taken


def asked_for(budget: str | int | float, forms: str) -> Asked:
    """Return what a budget says.

    Raises:
        BudgetError: if it is not of the forms that there are; says those which are legal.
    """
    if isinstance(budget, Integral) and not isinstance(budget, bool) and budget >= 0:
        return Asked(Fraction(int(budget)), "unsaid")
    if isinstance(budget, Real) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return Asked(Fraction(float(budget)).limit_denominator(), "share")
    text, for_all = str(budget) if isinstance(budget, str) else "", is_for_all(budget)
    match = QUANTITY.fullmatch(" ".join(text.split()[:-2]) if for_all else text)
    if match:
        number, unit = Fraction(match[1]), match[2].lower()
        if unit in UNITS:
            return Asked(number * UNITS[unit], "bytes", for_all)
        if unit == "%" and number <= 100:
            return Asked(number / 100, "share", for_all)
        if unit in ("", "node", "nodes") and number.denominator == 1 and not for_all:
            return Asked(number, "nodes" if unit else "unsaid")
    raise BudgetError(f"budget {budget!r:.80}; legal are {forms}")


def parse_budget(graph: Graph, costs: Costs, budget: str | int | float) -> tuple[int, Costs]:
    """Return the budget as a number, and the costs in whose memory unit it is.

    Args:
        graph: whose store-all peak a share is of.
        costs: used as they are, unless the budget is in nodes.
        budget: an integer in the memory unit of the costs; a float from 0 to 1, or ``"50 %"``, for
            a share of store-all's peak; ``"64 MiB"`` or ``"64 MB"`` for bytes; ``"9 nodes"``. What
            is written in bytes or per cent may end in ``"in all"``.

    Raises:
        BudgetError: if it is none of these; or so few bytes that nothing fits, and nodes may have
            been meant; or if it is for all, and the sources alone are more.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> [parse_budget(graph, tc.cost.evaluations(graph), b)[0] for b in ("4 KiB", "9 nodes", 0.5)]
    [4096, 9, 2560]
    """
    asked = asked_for(budget, FORMS)
    if asked.unit == "nodes":
        return int(asked.amount), in_nodes(costs)
    if asked.unit == "unsaid":
        return checked_unit(graph, costs, int(asked.amount)), costs
    if costs.memory_unit != "bytes" and (asked.for_all or asked.unit == "bytes"):
        raise BudgetError(
            f"budget {budget!r:.80} is in bytes, and the costs are in {costs.memory_unit}; legal "
            f"are {FORMS}"
        )
    stored = 0
    if asked.unit == "share":
        stored = Problem(graph, costs).peak(range(len(graph.operators)))
    try:
        return asked.left(stored, graph.source_bytes), costs
    except BudgetError as error:
        needed = graph.source_bytes + smallest_budget(Problem(graph, costs), necessary(graph))
        raise BudgetError(
            f"{error}; any schedule needs at least {memory_text(needed, 'bytes')} in all", needed
        ) from None


def budget_in_bytes(budget: str | int | float, whole: int, sources: int) -> int:
    """Return a budget in bytes, for a step whose operators are no graph.

    Args:
        budget: as ``parse_budget`` takes it, nodes excepted.
        whole: the peak that a share is of, in bytes.
        sources: bytes of what the caller supplies, which ``in all`` counts, too.

    Raises:
        BudgetError: if it is none of the forms, or for all, and the sources alone are more.

    >>> [budget_in_bytes(budget, 1000, 200) for budget in ("1 KB", "50 %", 0.25, "1 KB in all")]
    [1000, 500, 250, 800]
    """
    asked = asked_for(budget, BYTE_FORMS)
    if asked.unit == "nodes":
        raise BudgetError(f"budget {budget!r:.80}; legal are {BYTE_FORMS}")
    return asked.left(whole, sources)


def checked_unit(graph: Graph, costs: Costs, number: int) -> int:
    """Return a number without a unit, unless as bytes it makes no sense and as nodes it would."""
    if costs.memory_unit == "bytes" and 0 < number <= len(graph.data):
        needed = smallest_budget(Problem(graph, costs), necessary(graph))
        if number < needed:
            raise BudgetError(
                f"budget {number}: bytes or nodes? '{number} nodes' counts values; as bytes it is "
                f"less than the {memory_text(needed, 'bytes')} that any schedule needs",
                needed,
            )
    return number


def is_for_all(budget: str | int | float) -> bool:
    """Whether a budget counts the sources, too."""
    return isinstance(budget, str) and budget.lower().split()[-2:] == ["in", "all"]


def with_sources(error: BudgetError, graph: Graph, budget: str | int | float) -> BudgetError:
    """Return the error about what a budget for all leaves to the schedule, as one about all."""
    sources = graph.source_bytes
    smallest = None if error.smallest is None else error.smallest + sources
    text = (
        f"budget {budget!r:.80}, of which the sources take {memory_text(sources, 'bytes')}: {error}"
    )
    if smallest is not None:
        text += f"; with the sources, {memory_text(smallest, 'bytes')} in all"
    return BudgetError(text, smallest, error.proven)
