"""Memory budgets as people write them: "64 MiB", bytes, "9 nodes", or a share of store-all's peak.

A budget limits what a schedule stores. With "total", as in "24 GiB total", it counts the sources
as well: parameters, the optimiser's state and the batch, which are resident whatever is planned.
"""

from __future__ import annotations

import re
import warnings
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
    "'64 MiB', '24 GiB total' (sources included), a number of bytes, '50 %', or a share from 0 to "
    "1 of store-all's peak"
)
FORMS = BYTE_FORMS.replace("bytes, ", "bytes, '9 nodes', ")
QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z%]*)\s*")


@dataclass(frozen=True, slots=True)
class WrittenBudget:
    """A budget as it is written, before the graph that it is for is known.

    Attributes:
        amount: how much: bytes, nodes, or a share from 0 to 1.
        unit: ``bytes``, ``nodes`` or ``share``, of store-all's peak; ``unsaid`` for a number alone,
            which is in the memory unit of the costs.
        is_total: whether it counts the sources, too.
    """

    amount: Fraction
    unit: Literal["bytes", "nodes", "share", "unsaid"]
    is_total: bool = False

    def left(self, whole: int, sources: int) -> int:
        """Return what a budget that is not in nodes leaves to a schedule, rounded down.

        Args:
            whole: the peak that a share is of, without the sources.
            sources: bytes of what the caller supplies.

        Raises:
            BudgetError: if it is a total, and the sources alone are more.
        """
        taken = sources if self.is_total else 0
        size = int(self.amount * (whole + taken if self.unit == "share" else 1))
        if size < taken:
            raise BudgetError(
                f"budget {memory_text(size, 'bytes')} total: the sources alone are "
                f"{memory_text(sources, 'bytes')}"
            )
        return size - taken


def written_budget(budget: str | int | float, forms: str) -> WrittenBudget:
    """Return a budget as it is written.

    Raises:
        BudgetError: if it is not of the forms that there are; says those which are legal.
    """
    if isinstance(budget, Integral) and not isinstance(budget, bool) and budget >= 0:
        return WrittenBudget(Fraction(int(budget)), "unsaid")
    if isinstance(budget, Real) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return WrittenBudget(Fraction(float(budget)).limit_denominator(), "share")
    text, total = without_total(budget) if isinstance(budget, str) else ("", False)
    match = QUANTITY.fullmatch(text)
    if match:
        number, unit = Fraction(match[1]), match[2].lower()
        if unit in UNITS:
            return WrittenBudget(number * UNITS[unit], "bytes", total)
        if unit == "%" and number <= 100:
            return WrittenBudget(number / 100, "share", total)
        if unit in ("", "node", "nodes") and number.denominator == 1 and not total:
            return WrittenBudget(number, "nodes" if unit else "unsaid")
    raise BudgetError(f"budget {budget!r:.80}; legal are {forms}")


def parse_budget(graph: Graph, costs: Costs, budget: str | int | float) -> tuple[int, Costs]:
    """Return the budget as a number, and the costs in whose memory unit it is.

    Args:
        graph: whose store-all peak a share is of.
        costs: used as they are, unless the budget is in nodes.
        budget: an integer in the memory unit of the costs; a float from 0 to 1, or ``"50 %"``, for
            a share of store-all's peak; ``"64 MiB"`` or ``"64 MB"`` for bytes; ``"9 nodes"``. What
            is written in bytes or per cent may end in ``"total"``.

    Raises:
        BudgetError: if it is none of these; or so few bytes that nothing fits, and nodes may have
            been meant; or if it is a total, and the sources alone are more.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> [parse_budget(graph, tc.cost.evaluations(graph), b)[0] for b in ("4 KiB", "9 nodes", 0.5)]
    [4096, 9, 2560]
    """
    written = written_budget(budget, FORMS)
    if written.unit == "nodes":
        return int(written.amount), in_nodes(costs)
    if written.unit == "unsaid":
        return checked_unit(graph, costs, int(written.amount)), costs
    if costs.memory_unit != "bytes" and (written.is_total or written.unit == "bytes"):
        raise BudgetError(
            f"budget {budget!r:.80} is in bytes, and the costs are in {costs.memory_unit}; legal "
            f"are {FORMS}"
        )
    stored = 0
    if written.unit == "share":
        stored = Problem(graph, costs).peak(range(len(graph.operators)))
    try:
        return written.left(stored, graph.source_bytes), costs
    except BudgetError as error:
        needed = graph.source_bytes + smallest_budget(Problem(graph, costs), necessary(graph))
        raise BudgetError(
            f"{error}; any schedule needs at least {memory_text(needed, 'bytes')} total", needed
        ) from None


def budget_in_bytes(budget: str | int | float, whole: int, sources: int) -> int:
    """Return a budget in bytes, for a step whose operators are no graph.

    Args:
        budget: as ``parse_budget`` takes it, nodes excepted.
        whole: the peak that a share is of, in bytes.
        sources: bytes of what the caller supplies, which ``total`` counts, too.

    Raises:
        BudgetError: if it is none of the forms, or a total, and the sources alone are more.

    >>> [budget_in_bytes(budget, 1000, 200) for budget in ("1 KB", "50 %", 0.25, "1 KB total")]
    [1000, 500, 250, 800]
    """
    written = written_budget(budget, BYTE_FORMS)
    if written.unit == "nodes":
        raise BudgetError(f"budget {budget!r:.80}; legal are {BYTE_FORMS}")
    return written.left(whole, sources)


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


def without_total(budget: str) -> tuple[str, bool]:
    """Split off the word ``total`` at the end of a budget, and tell whether it is there.

    >>> without_total("24 GiB total")
    ('24 GiB', True)
    """
    words = budget.split()
    for name in (["total"], ["in", "all"]):
        if [word.lower() for word in words[-len(name) :]] == name:
            if len(name) == 2:
                new = " ".join([*words[:-2], "total"])
                text = f"budget {budget!r:.80}: write {new!r:.80}; 'in all' ends with this version"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return " ".join(words[: -len(name)]), True
    return budget, False


def is_total(budget: str | int | float) -> bool:
    """Whether a budget counts the sources, too."""
    return isinstance(budget, str) and without_total(budget)[1]


def with_sources(error: BudgetError, graph: Graph, budget: str | int | float) -> BudgetError:
    """Return the error about what a total budget leaves to the schedule, as one about the total."""
    sources = graph.source_bytes
    smallest = None if error.smallest is None else error.smallest + sources
    text = (
        f"budget {budget!r:.80}, of which the sources take {memory_text(sources, 'bytes')}: {error}"
    )
    if smallest is not None:
        text += f"; with the sources, {memory_text(smallest, 'bytes')} total"
    return BudgetError(text, smallest, error.proven)
