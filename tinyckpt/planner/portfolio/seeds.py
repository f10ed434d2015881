"""What others know of a graph, among what a search compares: ``seeds`` of plans and frontiers.

A seed is a schedule of the graph, or a set of forward values to save. Whoever gives one gets no
plan that costs more than it in the same memory; nobody else's answer depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tinyckpt.base.deadline import Clock
from tinyckpt.base.errors import PolicyOptionError, ScheduleError
from tinyckpt.core.cuts import Keep, retaining_order, selected
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule
from tinyckpt.planner.chain_dp.reversal import nothing_to_reverse
from tinyckpt.planner.heuristics.budget_grid import Candidate
from tinyckpt.planner.portfolio.pareto import Point

Seed = Keep | Schedule  # as users give them
Checked = frozenset[int] | Schedule

LAST = 10**9  # behind all tasks: a schedule that is found anyway stands for one that was given


def checked_seeds(graph: Graph, seeds: Any) -> tuple[Checked, ...]:
    """Return the schedules that ``seeds`` has, and the values of each set.

    Raises:
        PolicyOptionError: if it is no collection of either; if a set is not one of forward values,
            or a schedule is of another graph, or moves values to the host.
        ScheduleError: if a schedule is not legal.
    """
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise PolicyOptionError(
            f"seeds={seeds!r:.80}; give several sets of values to save, such as [['h1', 'h2']], "
            "or schedules"
        )
    return tuple(
        checked_schedule(graph, seed)
        if isinstance(seed, Schedule)
        else frozenset(selected(graph, seed, "seeds"))
        for seed in seeds
    )


def checked_schedule(graph: Graph, seed: Schedule) -> Schedule:
    """Return a schedule that is one of the graph, on one device.

    Raises:
        PolicyOptionError, ScheduleError: as ``checked_seeds``.
    """
    if seed.graph is not graph and seed.graph != graph:
        raise PolicyOptionError(
            f"seeds: a schedule of {seed.graph.name} is none of the graph {graph.name} that is "
            "planned; legal are those of the very same graph"
        )
    if any(isinstance(step, Offload | Fetch) for step in seed.steps):
        raise PolicyOptionError(
            f"seeds: the schedule {seed.policy} moves values to the host; legal are those that "
            "compute and free alone"
        )
    replay(seed)
    return seed


def points_given(
    graph: Graph,
    seeds: Sequence[Checked],
    point_of: Callable[[Candidate, tuple[int, int]], Point],
    clock: Clock,
) -> list[Point]:
    """Return the schedules that seeds are or make: one, or as many as there is time for.

    Args:
        graph: whose seeds they are.
        seeds: as ``checked_seeds`` returns them.
        point_of: scores a schedule of a rank.
        clock: the time.
    """
    points: list[Point] = []
    for place, candidate in enumerate(candidates(graph, seeds)):
        points.append(point_of(candidate, (LAST, place)))
        if clock.left() == 0:
            break
    return points


def candidates(graph: Graph, seeds: Iterable[Checked]) -> Iterator[Candidate]:
    """Yield schedules as they were given; then those that save a set of values, and no others.

    A set is that of a seed, or the checkpoints of a schedule.
    """
    sets: dict[frozenset[int], None] = {}
    for seed in seeds:
        if isinstance(seed, Schedule):
            order = [step.operator for step in seed.steps if isinstance(step, EVALUATIONS)]
            yield Candidate(seed.policy, "as given", order)
            seed = frozenset(seed.checkpoints)
            if not seed:
                continue
        sets[seed] = None
    if nothing_to_reverse(graph):
        return
    for saved in sets:
        for reuse in (True, False):
            try:
                order = retaining_order(graph, saved, reuse)
            except ScheduleError:  # too long
                continue
            yield Candidate("retain", f"{len(saved)} values kept, as given", order)
