"""Why a schedule is as it is: what it keeps, what fills its peak, what its recomputations cost.

The listing of the values that the backward half reads is what ``jax.ad_checkpoint
.print_saved_residuals`` shows of a function, with what JAX cannot know: their fate, step by step.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinyckpt.base.deadline import Clock, checked_seconds
from tinyckpt.base.units import cost_text, memory_text, size_text
from tinyckpt.core.costs import Costs, cost_of, in_nodes
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Certificate,
    Schedule,
    data_title,
    operator_title,
    step_title,
)
from tinyckpt.core.trace import Trace
from tinyckpt.planner.model.value_fates import Recomputed, Residual, recomputed_of, residuals_of
from tinyckpt.planner.portfolio.plan import certified, costs_of, frontier, peak_of
from tinyckpt.planner.portfolio.search import reserved
from tinyckpt.planner.portfolio.table import html_table, table

MOST_ROWS = 16  # of each list in the text; the data hold all


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``explain`` found; ``print`` shows it as text.

    Attributes:
        trace: the replayed trace.
        costs: what the numbers are counted in.
        cost: what the schedule costs.
        certificate: how far from the optimum it is at most; None if it moves values to the host.
        residuals: the forward values that the backward half reads, in the order they are made.
        recomputed: operators that are evaluated again, dearest first.
        at_peak: names and bytes of what is live at the peak, largest first.
        best_cost: what the cheapest schedule that is known costs within the same peak.
        next_budget, next_cost: the next larger peak at which less would be spent, and how much
            would be; None if nothing cheaper is known.
    """

    trace: Trace
    costs: Costs
    cost: float
    certificate: Certificate | None
    residuals: tuple[Residual, ...]
    recomputed: tuple[Recomputed, ...]
    at_peak: tuple[tuple[str, int], ...]
    best_cost: float
    next_budget: int | None
    next_cost: float | None

    def __str__(self) -> str:
        """Return everything as text, table by table."""
        parts = [self.head()]
        for title, header, rows in self.tables():
            parts.append("\n".join(filter(None, (title, table(header, rows)))))
        return "\n\n".join([*parts, self.advice()] if self.trace.steps else parts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return how a notebook shows it: as text and tables."""
        parts = [f"<p>{html.escape(line)}</p>" for line in self.head().splitlines()]
        for title, header, rows in self.tables():
            parts += [f"<p>{html.escape(title)}</p>"] if title else []
            parts.append(html_table(header, rows))
        parts += [f"<p>{html.escape(self.advice())}</p>"] if self.trace.steps else []
        return {"text/plain": str(self), "text/html": "\n".join(parts)}

    def head(self) -> str:
        """Return what it costs, what the policy did, and what is known of the optimum."""
        schedule = self.trace.schedule
        lines = [self.trace.summary(), schedule.note]
        if schedule.steps:
            known = self.certificate or "moves values to the host: nothing is known of the optimum"
            lines.append(str(known))
        return "\n".join(lines)

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return title, header and rows of each table; none of a schedule without steps."""
        schedule, unit = self.trace.schedule, self.costs.unit
        if not schedule.steps:
            return []
        verb, name = step_title(schedule.graph, schedule.steps[self.trace.peak_step])
        live = [[n, size_text(b)] for n, b in self.at_peak]
        read = [[r.name, r.shape, size_text(r.nbytes), r.made_by, r.reason] for r in self.residuals]
        names = [operator_title(schedule.graph, entry.operator) for entry in self.recomputed]
        again = [
            [title, str(r.times), cost_text(r.cost, unit), listed(r.needed_for)]
            for title, r in zip(names, self.recomputed, strict=True)
        ]
        title = f"At the peak, step {self.trace.peak_step} ({verb} {name}), these are live:"
        found = [
            (title, ["value", "memory"], live),
            (
                "What the backward half reads, and what becomes of it:",
                ["value", "shape", "memory", "made by", "fate"],
                read,
            ),
            ("", ["computed again", "times", "cost", "for"], again),
        ]
        return [(text, header, shortened(rows)) for text, header, rows in found if rows or text]

    def advice(self) -> str:
        """Return what one more unit of budget would buy."""
        unit = self.costs.unit
        if self.best_cost < self.cost:
            return (
                f"Within the same memory {cost_text(self.best_cost, unit)} would do instead of "
                f"{cost_text(self.cost, unit)}: plan with a budget."
            )
        if self.next_budget is None or self.next_cost is None:
            return "More memory would buy nothing that is known here."
        more = self.next_budget - peak_of(self.trace, self.costs)
        return (
            f"With {memory_text(more, self.costs.memory_unit)} more, "
            f"{cost_text(self.next_cost, unit)} would do instead of {cost_text(self.cost, unit)}."
        )


def explain(
    schedule: Schedule,
    costs: Costs | None = None,
    *,
    nodes: bool | None = None,
    time_limit: float = 6.0,
) -> Explanation:
    """Return what a schedule keeps, recomputes and holds at its peak, and why.

    >>> import tinyckpt as tc
    >>> found = tc.explain(tc.plan(tc.networks.chain(4), budget="4 nodes"))
    >>> [(value.name, value.fate) for value in found.residuals]
    [('f1', 'recomputed'), ('f2', 'kept'), ('f3', 'recomputed'), ('f4', 'kept')]
    >>> print(str(found).splitlines()[-1])
    With 1 node more, 10 evaluations would do instead of 11 evaluations.

    Args:
        schedule: a legal schedule, from any policy.
        costs: as in ``plan``.
        nodes: whether memory is counted in values instead of bytes; by default, as in the budget
            that the schedule was planned for.
        time_limit: seconds to look for what more memory would buy, and for how far from the optimum
            the schedule is; what is known of the graph from planning it is used at once.

    Raises:
        PolicyOptionError: if the time limit is none.
        ScheduleError: if the schedule is not legal.
    """
    clock = Clock(checked_seconds(time_limit))
    resolved = costs_of(schedule.graph, costs)
    trace = replay(schedule)
    certificate = schedule.certificate
    if nodes is None:
        nodes = certificate is not None and certificate.memory_unit == "nodes"
    resolved = in_nodes(resolved) if nodes else resolved
    cost = cost_of(schedule, resolved)
    asked = cost, resolved.unit, resolved.memory_unit
    given = certificate and (certificate.cost, certificate.unit, certificate.memory_unit)
    peak = peak_of(trace, resolved)
    live = trace.resident_at(trace.peak_step) if trace.steps else frozenset()
    graph = schedule.graph
    held = [(data_title(graph, data), graph.data[data].nbytes) for data in sorted(live)]
    step = schedule.steps[trace.peak_step] if trace.steps else None
    if isinstance(step, EVALUATIONS):
        workspace = schedule.graph.operators[step.operator].workspace
        held += [("workspace", workspace)] if workspace else []
    residuals, recomputed = residuals_of(schedule, resolved), recomputed_of(schedule, resolved)
    # Last, since it takes what time there is.
    is_certified = given == asked  # else the certificate is about other costs, or there is none
    reserve = 0.0 if is_certified else reserved(graph, clock.seconds)
    seconds_left = max(0.0, clock.left() - reserve)
    points = frontier(graph, resolved, time_limit=seconds_left).points
    best = min([cost, *(point.cost for point in points if point.peak <= peak)])
    dearer = (p for p in points if p.peak > peak and p.cost < best)
    following = next(dearer, None)
    if not is_certified:
        certificate = certified(schedule, resolved, peak, clock).certificate
    return Explanation(
        trace,
        resolved,
        cost,
        certificate,
        residuals,
        recomputed,
        tuple(sorted(held, key=lambda entry: -entry[1])),
        best,
        None if following is None else following.peak,
        None if following is None else following.cost,
    )


def listed(names: Sequence[str]) -> str:
    """Return a few names in a row."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """Return the first rows, and how many more there are."""
    if len(rows) <= MOST_ROWS:
        return rows
    rest = [f"… {len(rows) - MOST_ROWS + 1} more", *[""] * (len(rows[0]) - 1)]
    return [*rows[: MOST_ROWS - 1], rest]
