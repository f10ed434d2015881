"""The means that plan a graph as it is: store-all, recomputation, offload, and both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.tree import map_leaves
from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.numpy_source import compile
from tinyckpt.core.backend import Backend, moved
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import offloading
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.means.case import Begin, Case, Planned, own_cost, peak_of
from tinyckpt.planner.offload.offload_known import leaving_order, moved_within
from tinyckpt.planner.offload.plan_with_host import plan_with_host
from tinyckpt.planner.offload.prefetch import movable_values
from tinyckpt.planner.offload.simulate import timed
from tinyckpt.planner.portfolio.plan import plan

# What waits for what is told in time that grows with the square of the values on their way: some
# ten seconds for so many.
MOST_MOVABLE = 10_000


def store_all(case: Case) -> Planned:
    """Keep everything that the backward half reads: what the others are compared with."""
    return of_schedule(case, case.stored)


def recomputation(case: Case) -> Planned:
    """Recompute so as to stay within the budget."""
    return of_schedule(case, within(case, case.graph))


def offload(case: Case) -> Planned:
    """Move as few values to the host as the budget asks for; or as the least peak does."""
    link, costs, stored = case.known_link, case.costs_of(case.graph), case.stored
    movable = movable_of(case) if link.bandwidth else set()
    order = leaving_order(stored, movable)
    least = peak_of(offloading(stored, set(order)))
    goal = max(case.budget, least)
    schedule = stored
    if goal < peak_of(stored):
        schedule = moved_within(stored, order, goal, costs) or stored
    return of_copies(case, schedule, max(goal, peak_of(schedule)))


def recomputation_and_offload(case: Case) -> Planned:
    """Keep, recompute or move, within the budget."""
    link, costs = case.known_link, case.costs_of(case.graph)
    movable_of(case)
    own: dict[str, Any] = {"budget": f"{case.budget} B", "time_limit": case.time_limit}
    return of_copies(case, plan_with_host(case.graph, link, costs=costs, **own), case.budget)


def movable_of(case: Case) -> set[int]:
    """Return the values that can wait on the host.

    Raises:
        ScheduleError: if they are so many that telling when each is copied would take long.
    """
    found = set(movable_values(case.graph))
    if len(found) > MOST_MOVABLE:
        raise ScheduleError(
            f"{len(found):,} values could be moved, and copies of {MOST_MOVABLE:,} are timed here"
        )
    return found


def within(
    case: Case,
    graph: Graph,
    besides: int = 0,
    seconds: float | None = None,
    seeds: Sequence[Schedule] = (),
) -> Schedule:
    """Return the best schedule of a graph that is found within the budget.

    Args:
        case: whose budget it is.
        graph: what is planned.
        besides: bytes of the budget that something else takes.
        seconds: to search for it; the case's time limit if not given.
        seeds: schedules of the graph that are known, and compared with what is found.

    Raises:
        BudgetError: if none was found, with the smallest peak that was, ``besides`` included.
    """
    if case.budget < besides:
        raise BudgetError(f"{size_text(besides)} are held besides", besides)
    try:
        return plan(
            graph,
            budget=f"{case.budget - besides} B",
            costs=case.costs_of(graph),
            time_limit=case.time_limit if seconds is None else seconds,
            progress=case.progress,
            seeds=seeds,
        )
    except BudgetError as error:
        smallest = None if error.smallest is None else error.smallest + besides
        raise BudgetError(str(error), smallest, error.proven) from None


def of_schedule(case: Case, schedule: Schedule, begin: Begin | None = None) -> Planned:
    """Return what a schedule that moves nothing takes; of another graph too."""
    again = replay(schedule).recomputations
    return Planned(
        peak=peak_of(schedule),
        cost=own_cost(case, schedule),
        takes=counted(again, "recomputation") if again else "",
        schedules=((schedule, 1),),
        begin=begin or partial(begin_run, schedule),
    )


def of_copies(case: Case, schedule: Schedule, budget: int | None) -> Planned:
    """Return what a schedule takes whose copies go on beside its evaluations.

    Args:
        case: with a link.
        schedule: of the case's graph.
        budget: what has no room within it waits; None if nothing waits.
    """
    line = timed(schedule, case.known_link, case.costs_of(case.graph), budget=budget)
    trace = replay(schedule)
    host = max(trace.host, default=0)
    words = [counted(trace.recomputations, "recomputation")] if trace.recomputations else []
    words += [f"{size_text(host)} of the host"] if host else []
    return Planned(
        peak=line.peak_bytes,
        cost=float(line.makespan),
        takes=", ".join(words),
        schedules=((schedule, 1),),
        host_bytes=host,
        begin=partial(begin_run, schedule),
    )


def begin_run(schedule: Schedule, arrays: tuple[Any, ...], backend: Backend) -> Any:
    """Return a step that runs a schedule on arrays, and returns its gradients."""
    program = compile(schedule, backend)
    own = on_device(arrays, backend)
    return lambda: program(*own)[1]


def on_device(arrays: Any, backend: Backend) -> Any:
    """Return arrays, in their nesting, where a backend computes."""
    return map_leaves(partial(moved, backend), arrays)
