"""Parsing of memory budgets: bytes, "64 MiB", "9 nodes" (live values), a share of store-all's peak.

Text or a number comes in, an integer in the memory unit of the costs goes out. A budget limits a
schedule's peak. With "total", as in "24 GiB total", it includes the sources: parameters, optimizer
state and the batch, which are resident under every schedule.
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
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.lower_bounds import smallest_budget

UNITS = {
    "b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
BYTE_FORMS = (
    "'64 MiB', '24 GiB total' (sources included), a number of bytes, '50 %', or a share from 0 to "
    "1 of store-all's peak"
)
FORMS = BYTE_FORMS.replace("bytes, ", "bytes, '9 nodes', ")
# A budget without a unit of up to this many bytes that no schedule meets may have been meant in
# another unit, and the error names them. Doubled: so do errors of slightly larger budgets.
MOST_UNITLESS = 100
QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z%]*)\s*")


@dataclass(frozen=True, slots=True)
class WrittenBudget:
    """Parsed budget, independent of any graph.

    Attributes:
        amount: bytes, nodes, or a share from 0 to 1.
        unit: ``bytes``, ``nodes`` or ``share`` (of store-all's peak); ``unsaid`` for a number
            without a unit, which is in the memory unit of the costs.
        is_total: whether the budget includes the sources.
    """

    amount: Fraction
    unit: Literal["bytes", "nodes", "share", "unsaid"]
    is_total: bool = False

    def left(self, whole: int, sources: int, named: str = "the sources") -> int:
        """Return the bytes available to a schedule, rounded down, for a budget not in nodes.

        Args:
            whole: bytes: the peak of which a share is taken, sources excluded.
            sources: bytes of the values that the caller supplies.
            named: what they are, for the error message.

        Raises:
            BudgetError: if the budget is a total and the sources alone exceed it.
        """
        taken = sources if self.is_total else 0
        size = int(self.amount * (whole + taken if self.unit == "share" else 1))
        if size < taken:
            raise BudgetError(
                f"budget {memory_text(size, 'bytes')} total: {named} alone are "
                f"{memory_text(sources, 'bytes')}"
            )
        return size - taken


def parse_written_budget(budget: str | int | float, forms: str) -> WrittenBudget:
    """Parse a budget without a graph.

    Args:
        budget: text or a number.
        forms: the accepted forms, for the error message.

    Raises:
        BudgetError: if the budget has none of the accepted forms; names them.

    >>> parse_written_budget("24 GiB total", FORMS).amount == 24 * 2**30
    True
    """
    if isinstance(budget, Integral) and not isinstance(budget, bool) and budget >= 0:
        return WrittenBudget(Fraction(int(budget)), "unsaid")
    if isinstance(budget, Real) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return WrittenBudget(Fraction(float(budget)).limit_denominator(), "share")
    text, total = split_total(budget) if isinstance(budget, str) else ("", False)
    match = QUANTITY.fullmatch(text)
    if match:
        number, unit = Fraction(match[1]), match[2].lower()
        if unit in UNITS:
            return WrittenBudget(number * UNITS[unit], "bytes", total)
        if unit == "%" and number <= 100:
            return WrittenBudget(number / 100, "share", total)
        if re.fullmatch("(node|value)s?|", unit) and number.denominator == 1 and not total:
            return WrittenBudget(number, "nodes" if unit else "unsaid")
    raise BudgetError(f"budget {budget!r:.80}; expected {forms}")


def parse_budget(
    graph: Graph, costs: Costs, budget: str | int | float, in_order: bool = False
) -> tuple[int, Problem]:
    """Parse a budget for a graph: the number, and the problem in whose memory unit it counts.

    Args:
        graph: supplies the store-all peak of which a share is taken.
        costs: those of the problem, unless the budget is in nodes.
        budget: an integer in the memory unit of the costs; a float from 0 to 1, or ``"50 %"``, for
            a share of store-all's peak; ``"64 MiB"`` or ``"64 MB"`` for bytes; ``"9 nodes"``. Bytes
            and per cent may be followed by ``"total"``.
        in_order: whether first evaluations have to come in the order that the graph gives.

    Raises:
        BudgetError: if the budget has none of these forms; if it is so few bytes that no schedule
            fits and nodes may have been meant; or if it is a total and the sources alone exceed it.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> [parse_budget(graph, tc.cost.evaluations(graph), b)[0] for b in ("4 KiB", "9 nodes", 0.5)]
    [4096, 9, 2560]
    """
    written = parse_written_budget(budget, FORMS)
    counted = in_nodes(costs) if written.unit == "nodes" else costs
    problem = problem_of(graph, counted, in_order)
    if written.unit == "nodes":
        return int(written.amount), problem
    if written.unit == "unsaid":
        return checked_unit(problem, int(written.amount)), problem
    if costs.memory_unit != "bytes" and (written.is_total or written.unit == "bytes"):
        raise BudgetError(
            f"budget {budget!r:.80} is in bytes, and the costs are in {costs.memory_unit}; "
            f"expected {FORMS}"
        )
    stored = 0
    if written.unit == "share":
        stored = problem.peak(range(len(graph.operators)))
    try:
        return written.left(stored, graph.source_bytes), problem
    except BudgetError as error:
        needed = graph.source_bytes + smallest_budget(problem)
        raise BudgetError(
            f"{error}; any schedule needs at least {memory_text(needed, 'bytes')} total", needed
        ) from None


def budget_in_bytes(
    budget: str | int | float, whole: int, sources: int, named: str = "the sources"
) -> int:
    """Parse a budget in bytes for a training step of which no graph is available.

    Args:
        budget: as for ``parse_budget``, nodes excepted.
        whole: bytes: the peak of which a share is taken.
        sources: bytes of the values that the caller supplies, which ``total`` includes.
        named: what they are, for the error message.

    Raises:
        BudgetError: if the budget has none of the accepted forms, or is a total and the sources
            alone exceed it.

    >>> [budget_in_bytes(budget, 1000, 200) for budget in ("1 KB", "50 %", 0.25, "1 KB total")]
    [1000, 500, 250, 800]
    """
    written = parse_written_budget(budget, BYTE_FORMS)
    if written.unit == "nodes":
        raise BudgetError(f"budget {budget!r:.80}; expected {BYTE_FORMS}")
    return written.left(whole, sources, named)


def checked_unit(problem: Problem, number: int) -> int:
    """Return a budget without a unit; raise BudgetError if it is infeasible as bytes.

    The check applies only to numbers small enough to have been meant as a count of nodes.
    """
    if problem.costs.memory_unit == "bytes" and 0 < number <= len(problem.graph.data):
        needed = smallest_budget(problem)
        if number < needed:
            raise BudgetError(
                f"{other_units(number)}; as bytes it is less than the "
                f"{memory_text(needed, 'bytes')} that any schedule needs",
                needed,
            )
    return number


def nothing_within(policy: str, budget: int, smallest: int, unit: str) -> BudgetError:
    """Return the error of a policy whose smallest peak exceeds the budget."""
    return BudgetError(
        f"{policy} finds nothing within {memory_text(budget, unit)}; the smallest peak it finds is "
        f"{memory_text(smallest, unit)}",
        smallest,
    )


def other_units(number: int) -> str:
    """Say in which other units a budget without a unit may have been meant.

    >>> other_units(9)
    "budget 9: bytes or nodes? '9 nodes' counts values, '9 %' is of store-all's peak, or '9 MiB'"
    """
    share = f", '{number} %' is of store-all's peak" if number <= 100 else ""
    return (
        f"budget {number}: bytes or nodes? '{number} nodes' counts values{share}, or '{number} MiB'"
    )


def with_units(error: BudgetError, budget: str | int | float, costs: Costs) -> BudgetError:
    """Restate an error about a budget of few bytes without a unit: another may have been meant."""
    try:
        number = int(budget)
    except ValueError:  # it has a unit
        return error
    if isinstance(budget, float) or costs.memory_unit != "bytes" or number > MOST_UNITLESS:
        return error
    if str(error).startswith("budget "):  # it says so already
        return error
    return BudgetError(f"{other_units(number)}; as bytes: {error}", error.smallest, error.proven)


def split_total(budget: str) -> tuple[str, bool]:
    """Split a trailing ``total`` off a budget: the rest, and whether the word was there.

    >>> split_total("24 GiB total")
    ('24 GiB', True)
    """
    words = budget.split()
    for name in (["total"], ["in", "all"]):
        if [word.lower() for word in words[-len(name) :]] == name:
            if len(name) == 2:
                new = " ".join([*words[:-2], "total"])
                text = (
                    f"budget {budget!r:.80}: write {new!r:.80}; "
                    "'in all' is deprecated: this is the last version that accepts it"
                )
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return " ".join(words[: -len(name)]), True
    return budget, False


def is_total(budget: str | int | float) -> bool:
    """Whether a budget includes the sources."""
    return isinstance(budget, str) and split_total(budget)[1]


def with_sources(error: BudgetError, graph: Graph, budget: str | int | float) -> BudgetError:
    """Restate an error about the schedule's share of a total budget in terms of the total."""
    sources = graph.source_bytes
    smallest = None if error.smallest is None else error.smallest + sources
    text = (
        f"budget {budget!r:.80}, of which the sources take {memory_text(sources, 'bytes')}: {error}"
    )
    if smallest is not None:
        text += f"; with the sources, {memory_text(smallest, 'bytes')} total"
    return BudgetError(text, smallest, error.proven)
