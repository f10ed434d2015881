"""Moccasin: rematerialization by constraint programming over retention intervals, with CP-SAT.

A baseline for ``layered.py``: Bartan, Li, Teague, Lott and Dilkina, "Moccasin: efficient
tensor rematerialization for neural networks", ICML 2023, arXiv 2304.14463.

An operator v is evaluated up to C times; each evaluation begins a retention interval [start, end]
during which its value is resident; all but the first are optional. With staged starts:

- Operators are evaluated for the first time in the order given. Stage j ends with that of the j-th;
  before it, in the same stage, operators with smaller numbers may be evaluated again, in their
  order. Event j (j + 1) / 2 + k is the evaluation of k in stage j, so first starts are fixed, and
  others are from a list.
- An evaluation of v needs, for each u that it reads, an interval of u around its start. The paper
  states that some interval of u has start(u) < start(v) <= end(u); here this is one Boolean for
  each choice, of which one holds.
- All intervals with the memory of their values are within the budget: a cumulative constraint.
- Phase 1 minimises the larger of the peak and the budget, from the order without recomputations;
  phase 2 begins with its solution and minimises the cost of all evaluations.

Values that are results of the graph stay to the end. One value per operator, no views, no
workspace, as in the paper's graphs.

    pip install ortools
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ortools.sat.python import cp_model

import tinyckpt as tc

REPEATS = 2  # evaluations of an operator at most: C in the paper
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """Retention interval: from an evaluation to the end of its value's residency; optional."""

    start: Any
    end: Any
    active: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a search.

    Attributes:
        order: operators as they are evaluated; empty if nothing was found within the budget.
        status: what the solver said at the end: OPTIMAL is for the order of first evaluations that
            was given and at most REPEATS evaluations.
        phases: seconds that building the model and each phase took.
    """

    order: tuple[int, ...]
    status: str
    phases: tuple[float, ...]


def moccasin(graph: tc.Graph, budget: int, seconds: float, workers: int = WORKERS) -> Outcome:
    """Return the evaluations that the model finds, in the graph's order of first evaluations.

    Args:
        graph: operators with one result each, and costs.
        budget: in bytes.
        seconds: for the model and both phases.
        workers: of the solver.
    """
    begin = perf_counter()
    costs = [int(operator.cost or 0) for operator in graph.operators]
    model, intervals, peak = model_of(graph, budget)
    model.minimize(peak)
    hint_first(model, intervals, graph)
    built = perf_counter()
    solver = solver_for(seconds - (built - begin), workers)
    status = solver.solve(model)
    first = perf_counter()
    phases = (built - begin, first - built)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.value(peak) > budget:
        return Outcome((), solver.status_name(status), phases)
    order = order_of(solver, intervals)
    model.clear_hints()
    for variable in every_variable(intervals):
        model.add_hint(variable, solver.value(variable))
    model.add(peak <= budget)
    again = [(costs[v], each.active) for v, some in enumerate(intervals) for each in some[1:]]
    model.minimize(sum(cost * active for cost, active in again))
    solver = solver_for(seconds - (perf_counter() - begin), workers)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = order_of(solver, intervals)
    return Outcome(order, solver.status_name(status), (*phases, perf_counter() - first))


def model_of(graph: tc.Graph, budget: int) -> tuple[Any, list[list[Interval]], Any]:
    """Return the model, the intervals of each operator, and the larger of peak and budget."""
    model = cp_model.CpModel()
    count, sizes = len(graph.operators), [node.nbytes for node in graph.data]
    intervals = [intervals_of(model, operator, count) for operator in range(count)]
    peak = model.new_int_var(budget, max(budget, sum(sizes)), "peak")
    held = [
        (size, model.new_optional_interval_var(
            each.start, model.new_int_var(1, horizon(count), ""), each.end + 1, each.active, ""
        ))
        for size, operator in zip(sizes, graph.operators, strict=True)
        for each in intervals[operator.id]
    ]  # fmt: skip
    model.add_cumulative([interval for _, interval in held], [size for size, _ in held], peak)
    for operator in graph.operators:
        for source in dict.fromkeys(operator.inputs):
            for reader in intervals[operator.id]:
                add_cover(model, intervals[source], reader)
    for result in graph.outputs:
        model.add_bool_or([stays(model, each, count) for each in intervals[result]])
    return model, intervals, peak


def horizon(count: int) -> int:
    """Return the number of events."""
    return count * (count + 1) // 2


def intervals_of(model: Any, operator: int, count: int) -> list[Interval]:
    """Return the intervals of an operator: the first is mandatory, and begins with its stage."""
    last = horizon(count) - 1
    starts = [stage * (stage + 1) // 2 + operator for stage in range(operator, count)]
    found = [Interval(
        model.new_constant(starts[0]), model.new_int_var(starts[0], last, ""), model.new_constant(1)
    )]  # fmt: skip
    for _ in range(1, REPEATS):
        if len(starts) > 1:
            domain = cp_model.Domain.from_values(starts[1:])
            again = Interval(
                model.new_int_var_from_domain(domain, ""),
                model.new_int_var(starts[1], last, ""),
                model.new_bool_var(""),
            )
            model.add(found[-1].end < again.start).only_enforce_if(again.active)
            if len(found) > 1:
                model.add_implication(again.active, found[-1].active)
            found.append(again)
    return found


def add_cover(model: Any, sources: list[Interval], reader: Interval) -> None:
    """Say that one of the intervals of a source is around the start of a reader, if that is there.

    Which one the reader reads is a Boolean each.
    """
    chosen = []
    for source in sources:
        is_read = model.new_bool_var("")
        model.add(source.start < reader.start).only_enforce_if(is_read)
        model.add(source.end >= reader.start).only_enforce_if(is_read)
        model.add_implication(is_read, source.active)
        chosen.append(is_read)
    model.add_bool_or([*chosen, reader.active.negated()])


def stays(model: Any, interval: Interval, count: int) -> Any:
    """Return a Boolean that implies that an interval lasts to the end."""
    is_last = model.new_bool_var("")
    model.add(interval.end == horizon(count) - 1).only_enforce_if(is_last)
    model.add_implication(is_last, interval.active)
    return is_last


def hint_first(model: Any, intervals: list[list[Interval]], graph: tc.Graph) -> None:
    """Hint at the schedule without recomputations, which is a solution of phase 1."""
    count = len(graph.operators)
    for operator, some in enumerate(intervals):
        readers = graph.consumers[graph.operators[operator].outputs[0]]
        last = max(readers, default=count - 1)
        model.add_hint(some[0].end, last * (last + 1) // 2 + last)
        for each in some[1:]:
            model.add_hint(each.active, 0)


def every_variable(intervals: list[list[Interval]]) -> list[Any]:
    """Return the variables of all intervals, for hints."""
    ends = [each.end for some in intervals for each in some]
    later = [part for some in intervals for each in some[1:] for part in (each.start, each.active)]
    return [*ends, *later]


def solver_for(seconds: float, workers: int) -> Any:
    """Return a solver with a time limit and a number of workers."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    solver.parameters.num_workers = workers
    return solver


def order_of(solver: Any, intervals: list[list[Interval]]) -> tuple[int, ...]:
    """Return the operators by the starts of their intervals."""
    starts = [
        (solver.value(each.start), operator)
        for operator, some in enumerate(intervals)
        for each in some
        if solver.value(each.active)
    ]
    return tuple(operator for _, operator in sorted(starts))
