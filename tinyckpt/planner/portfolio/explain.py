"""Explanation of a schedule: saved residuals, values at the peak, cost of recomputations.

The listing of the values that the backward pass reads is that of
``jax.ad_checkpoint.print_saved_residuals``, and adds what JAX cannot know: the fate of each, step
by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinyckpt.base.deadline import Clock, checked_seconds
from tinyckpt.base.display import html_escaped, spoken
from tinyckpt.base.errors import expect
from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.units import cost_text, memory_text, size_text
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.costs import Costs
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Schedule, step_title
from tinyckpt.core.trace import Trace
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.plan_request import reserved
from tinyckpt.planner.model.value_fates import (
    Recomputed,
    Residual,
    operator_words,
    recomputed_operators,
    residual_fates,
    value_words,
)
from tinyckpt.planner.portfolio.plan import certified, costs_of, frontier, peak_of, unbounded

MAX_ROWS = 16  # rows of each list in the text; the data have all; doubled: longer texts


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of ``explain``; ``print`` shows it as text.

    >>> import tinyckpt as tc
    >>> found = tc.explain(tc.plan(tc.networks.chain(4), "sqrt_n"))
    >>> found.cost, found.at_peak[0]
    (10.0, ('f2', 512))

    Attributes:
        trace: the replayed trace.
        costs: the costs and units of the numbers.
        cost: of the schedule.
        certificate: the proven gap to the optimum; None if it moves values to the host, or
            computes in place and was planned without.
        residuals: the forward values that the backward pass reads, in the order they are made.
        recomputed: operators that are evaluated again, the most expensive first.
        at_peak: titles and bytes of the values live at the peak, largest first.
        best_cost: cost of the cheapest known schedule within the same peak.
        next_budget, next_cost: the next larger peak with a cheaper schedule, and its cost; None if
            nothing cheaper is known.
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
        """Return the notebook display: text and tables."""
        parts = [f"<p>{html_escaped(line)}</p>" for line in self.head().splitlines()]
        for title, header, rows in self.tables():
            parts += [f"<p>{html_escaped(title)}</p>"] if title else []
            parts.append(html_table(header, rows))
        parts += [f"<p>{html_escaped(self.advice())}</p>"] if self.trace.steps else []
        return {"text/plain": str(self), "text/html": "\n".join(parts)}

    def head(self) -> str:
        """Return the totals, the policy's note, and the certificate."""
        schedule = self.trace.schedule
        lines = [self.trace.summary(), schedule.note]
        if schedule.steps:
            known = self.certificate or f"{unbounded(schedule)}: no bound on the optimum is known"
            lines.append(str(known))
        return "\n".join(lines)

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return title, header and rows of each table; none of a schedule without steps."""
        schedule, unit = self.trace.schedule, self.costs.unit
        if not schedule.steps:
            return []
        step = schedule.steps[self.trace.peak_step]
        verb, name = step_title(schedule.graph, step)
        if isinstance(step, EVALUATIONS):
            name = operator_words(schedule.graph, step.operator)
        live = [[n, size_text(b)] for n, b in self.at_peak]
        read = [[r.name, r.shape, size_text(r.nbytes), r.made_by, r.reason] for r in self.residuals]
        names = [operator_words(schedule.graph, entry.operator) for entry in self.recomputed]
        again = [
            [
                title,
                str(r.times),
                cost_text(r.cost, unit),
                listed([spoken(n) for n in r.needed_for]),
            ]
            for title, r in zip(names, self.recomputed, strict=True)
        ]
        title = f"At the peak, step {self.trace.peak_step} ({verb} {name}), live values:"
        found = [
            (title, ["value", "memory"], live),
            (
                "Values that the backward pass reads, and their fate:",
                ["value", "shape", "memory", "made by", "fate"],
                read,
            ),
            ("", ["recomputed", "times", "cost", "for"], again),
        ]
        return [(text, header, shortened(rows)) for text, header, rows in found if rows or text]

    def advice(self) -> str:
        """Return the saving that a larger budget would buy."""
        unit = self.costs.unit
        if self.best_cost < self.cost:
            return (
                f"Within the same memory {cost_text(self.best_cost, unit)} would do instead of "
                f"{cost_text(self.cost, unit)}: plan with a budget."
            )
        if self.next_budget is None or self.next_cost is None:
            return "No cheaper schedule is known with more memory."
        more = self.next_budget - peak_of(self.trace, self.costs)
        return (
            f"With {memory_text(more, self.costs.memory_unit)} more, "
            f"{cost_text(self.next_cost, unit)} would do instead of {cost_text(self.cost, unit)}."
        )


@short_traceback
def explain(
    schedule: Schedule,
    costs: Costs | None = None,
    *,
    nodes: bool | None = None,
    time_limit: float = 6.0,
) -> Explanation:
    """Explain a schedule: saved and recomputed values, the peak, and the distance to the optimum.

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
        time_limit: seconds to search for cheaper schedules with more memory, and for a lower bound;
            results of planning the same graph before are reused at once.

    Raises:
        PolicyOptionError: if the time limit is invalid.
        ScheduleError: if the schedule is illegal.
    """
    expect(schedule, Schedule)
    clock = Clock(checked_seconds(time_limit))
    certificate = schedule.certificate
    if nodes is None:
        nodes = certificate is not None and certificate.memory_unit == "nodes"
    resolved = costs_of(schedule.graph, costs, nodes)
    trace = replay(schedule)
    cost = cost_of(schedule, resolved)
    requested = cost, resolved.unit, resolved.memory_unit
    given = certificate and (certificate.cost, certificate.unit, certificate.memory_unit)
    peak = peak_of(trace, resolved)
    live = trace.resident_at(trace.peak_step) if trace.steps else frozenset()
    graph = schedule.graph
    if trace.steps and isinstance(overwriting := schedule.steps[trace.peak_step], InPlace):
        live -= {overwriting.data}
    held = [(value_words(graph, data), graph.data[data].nbytes) for data in sorted(live)]
    step = schedule.steps[trace.peak_step] if trace.steps else None
    if isinstance(step, EVALUATIONS):
        workspace = schedule.graph.operators[step.operator].workspace
        held += [("workspace", workspace)] if workspace else []
    residuals = residual_fates(schedule, resolved)
    recomputed = recomputed_operators(schedule, resolved)
    # Last, since it takes all remaining time.
    is_certified = given == requested  # else it is about other costs, or missing
    reserve = 0.0 if is_certified else reserved(graph, clock.seconds)
    points = frontier(graph, resolved, time_limit=max(0.0, clock.left() - reserve)).points
    best = min([cost, *(point.cost for point in points if point.peak <= peak)])
    cheaper = (p for p in points if p.peak > peak and p.cost < best)
    following = next(cheaper, None)
    if not is_certified:
        problem = problem_of(graph, resolved)
        certificate = certified(schedule, problem, peak, clock).certificate
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
    """Return the first three names, comma-separated."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """Return the first rows, and a row that counts the rest."""
    if len(rows) <= MAX_ROWS:
        return rows
    rest = [f"… {len(rows) - MAX_ROWS + 1} more", *[""] * (len(rows[0]) - 1)]
    return [*rows[: MAX_ROWS - 1], rest]
