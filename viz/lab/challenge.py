"""Scoring of a hand-made schedule against the best one found within a budget (challenge).

The page of the lab judges every choice as it is made; ``challenge`` does the same for a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import cost_text, memory_text
from tinyckpt.core.replay import replay
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.portfolio.plan import costs_of, plan

if TYPE_CHECKING:
    from tinyckpt.core.costs import Costs
    from tinyckpt.core.schedule import Schedule
    from tinyckpt.planner.portfolio.precomputed_choices import Choices

TIGHT = 1e-9  # relative tolerance for rounding errors


def challenge(
    schedule: Schedule,
    budget: str | int | float,
    *,
    costs: Costs | None = None,
    time_limit: float = 2.0,
) -> str:
    """Compare a schedule with a budget and its optimum: over budget, or how far from optimal.

    Args:
        schedule: of a training graph; such as ``tc.plan(graph, "retain", keep=...)``.
        budget: as in ``tc.plan``.
        costs: costs of evaluations, as in ``tc.plan``.
        time_limit: seconds of the search for the best schedule within the budget.

    Raises:
        BudgetError: if it is no budget, or no schedule is within it.

    >>> import tinyckpt as tc
    >>> chain = tc.networks.chain(16)
    >>> for keep in (["f8"], ["f4", "f8", "f12"], ["f3", "f7", "f11", "f14"]):
    ...     print(challenge(tc.plan(chain, "retain", keep=keep), "7 values"))
    3 values too much: the optimum within 7 values takes 44 evaluations
    1 value too much: the optimum within 7 values takes 44 evaluations
    the optimum: nothing within 7 values takes less than 44 evaluations
    """
    trace = replay(schedule)
    graph = schedule.graph
    budget_size, problem = parse_budget(graph, costs_of(graph, costs), budget)
    own = problem.costs
    best = plan(graph, costs=costs, budget=budget, time_limit=time_limit)
    peak = trace.peak_nodes if own.memory_unit == "nodes" else trace.peak_bytes
    mine, least = cost_of(schedule, own), cost_of(best, own)
    proven = best.certificate is not None and least <= best.certificate.lower_bound * (1 + TIGHT)
    name = "optimum" if proven else "best known"
    within = f"within {memory_text(budget_size, own.memory_unit, 'value')}"
    if peak > budget_size:
        over = memory_text(peak - budget_size, own.memory_unit, "value")
        return f"{over} too much: the {name} {within} takes {cost_text(least, own.unit)}"
    if mine <= least * (1 + TIGHT):
        if proven:
            return f"the optimum: nothing {within} takes less than {cost_text(mine, own.unit)}"
        return f"as good as the best known {within}: it takes {cost_text(mine, own.unit)}"
    above = f"{100 * (mine / least - 1):.1f} % above the {name}"
    return f"{within} and {above}: {cost_text(mine, own.unit)}, where that takes " + cost_text(
        least, own.unit
    )


def budget_bytes(offered: Choices, budget: str | int | float) -> int:
    """Return a budget within which there is a schedule, in bytes.

    Raises:
        BudgetError: if it is none, is in nodes where values differ in size, or no schedule is
            within it.
    """
    found = offered.found
    budget_size, problem = parse_budget(found.graph, found.costs, budget)
    if problem.costs.memory_unit == "nodes":
        sizes = {node.nbytes for node in found.graph.data if not node.is_source}
        if len(sizes) != 1:
            raise BudgetError(
                f"budget {budget!r:.80}: values of {found.graph.name} differ in size; expected "
                "bytes, or a share of store-all's peak"
            )
        budget_size *= sizes.pop()
    least = found.points[0].peak
    if budget_size < least:
        raise BudgetError(
            f"budget {budget!r:.80}: the smallest peak found is {memory_text(least, 'bytes')}",
            least,
        )
    return budget_size
