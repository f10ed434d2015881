"""Budgets as people write them: "64 MiB", bytes, "9 nodes", or a share of store-all's peak.

A budget is for what a schedule holds. With "in all", as in "24 GiB in all", it is for the sources
as well: parameters, the optimiser's state and the batch, which are there whatever is planned.
"""

from __future__ import annotations

import re
from fractions import Fraction
from numbers import Integral, Real

from tinyckpt.analysis.bounds import necessary, smallest_budget
from tinyckpt.analysis.liveness import Problem
from tinyckpt.cost import Costs, in_nodes
from tinyckpt.errors import BudgetError
from tinyckpt.graph import Graph
from tinyckpt.units import memory_text

UNITS = {
    "b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
BYTE_FORMS = (
    "'64 MiB', '24 GiB in all' (sources included), a number of bytes, '50 %', or a share from 0 to "
    "1 of store-all's peak"
)
FORMS = BYTE_FORMS.replace("bytes, ", "bytes, '9 nodes', ")


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
    if is_for_all(budget):
        return without_sources(graph, costs, str(budget)), costs
    if isinstance(budget, str):
        number, unit = quantity(budget)
        if unit in ("node", "nodes") and number.denominator == 1:
            return int(number), in_nodes(costs)
        if unit in UNITS and costs.memory_unit == "bytes":
            return int(number * UNITS[unit]), costs
        if unit == "" and number >= 0 and number.denominator == 1:
            return checked_unit(graph, costs, int(number)), costs
        if unit == "%" and number <= 100:
            return share_of_store_all(graph, costs, number / 100), costs
    elif isinstance(budget, Integral) and not isinstance(budget, bool) and budget >= 0:
        return checked_unit(graph, costs, int(budget)), costs
    elif isinstance(budget, Real) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return share_of_store_all(graph, costs, Fraction(float(budget)).limit_denominator()), costs
    raise BudgetError(f"budget {budget!r:.80}; legal are {FORMS}")


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
    if is_for_all(budget):
        text = " ".join(str(budget).split()[:-2])
        limit = budget_in_bytes(text, whole + sources, 0)
        if limit < sources:
            raise too_little(budget, sources, limit)
        return limit - sources
    number, unit = Fraction(-1), ""
    if isinstance(budget, str):
        number, unit = quantity(budget)
    elif isinstance(budget, Integral) and not isinstance(budget, bool):
        number = Fraction(int(budget))
    elif isinstance(budget, Real) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return int(whole * Fraction(float(budget)).limit_denominator())
    if unit == "%" and 0 <= number <= 100:
        return int(whole * number / 100)
    if number >= 0 and (unit in UNITS or (unit == "" and number.denominator == 1)):
        return int(number * UNITS.get(unit, 1))
    raise BudgetError(f"budget {budget!r:.80}; legal are {BYTE_FORMS}")


def quantity(text: str) -> tuple[Fraction, str]:
    """Return the number and the unit of a text, in small letters; -1 if it is not of that form."""
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z%]*)\s*", text)
    return (Fraction(match[1]), match[2].lower()) if match else (Fraction(-1), "")


def too_little(budget: str | int | float, sources: int, limit: int) -> BudgetError:
    """Return the error about a budget for all that is less than the sources."""
    return BudgetError(
        f"budget {budget!r:.80}: the sources alone are {memory_text(sources, 'bytes')} "
        f"({memory_text(limit, 'bytes')} in all is less than that)"
    )


def checked_unit(graph: Graph, costs: Costs, number: int) -> int:
    """Return a number without a unit, unless as bytes it makes no sense and as nodes it would."""
    if costs.memory_unit == "bytes" and 0 < number <= len(graph.data):
        needed = smallest_budget(Problem(graph, costs), necessary(graph))
        if number < needed:
            raise BudgetError(
                f"budget {number}: bytes or nodes? '{number} nodes' counts values; as bytes it is "
                f"less than the {memory_text(needed, 'bytes')} that any schedule needs"
            )
    return number


def share_of_store_all(graph: Graph, costs: Costs, share: Fraction) -> int:
    """Return a share of store-all's peak, rounded down."""
    return int(share * Problem(graph, costs).peak(range(len(graph.operators))))


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


def without_sources(graph: Graph, costs: Costs, budget: str) -> int:
    """Return what a budget for everything leaves to the schedule."""
    text, sources = " ".join(budget.split()[:-2]), graph.source_bytes
    if costs.memory_unit != "bytes" or not text or text[-1].isdigit() or "node" in text:
        raise BudgetError(f"budget {budget!r:.80}; what is for all is in bytes; legal are {FORMS}")
    limit = parse_budget(graph, costs, text)[0]
    if text.endswith("%"):
        stored = share_of_store_all(graph, costs, Fraction(1)) + sources
        limit = int(Fraction(text[:-1].strip()) / 100 * stored)
    if limit < sources:
        raise too_little(budget, sources, limit)
    return limit - sources
