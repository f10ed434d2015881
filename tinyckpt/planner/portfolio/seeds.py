"""Warm starts (seeds): the caller's schedules or saved sets, as further candidates of a search.

A seed is a schedule of the graph, or a set of forward values to save. A plan with seeds never costs
more than a seed in the same memory; answers to requests without them do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tinyckpt.base.deadline import Clock
from tinyckpt.base.errors import PolicyOptionError, ScheduleError
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.cuts import nothing_to_reverse, retaining_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule
from tinyckpt.planner.heuristics.budget_grid import Candidate
from tinyckpt.planner.manual.retain import Keep, resolve_keep
from tinyckpt.planner.model.plan_request import CheckedSeed
from tinyckpt.planner.model.vectorised_lowering import saved_values_of_order
from tinyckpt.planner.portfolio.pareto import Point

Seed = Keep | Schedule  # as given by the user

SEED_RANK = 10**9  # after all tasks: of equal points, the one the search finds itself is shown


def checked_seeds(graph: Graph, seeds: Any) -> tuple[CheckedSeed, ...]:
    """Check ``seeds``: return its schedules, and the values of each set.

    Raises:
        PolicyOptionError: if it is no collection of either; if a set contains other than forward
            values, or a schedule is of another graph, or moves values to the host.
        ScheduleError: if a schedule is illegal.
    """
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise PolicyOptionError(
            f"seeds={seeds!r:.80}; expected sets of values to save, such as [['h1', 'h2']], "
            "or schedules"
        )
    return tuple(
        checked_schedule(graph, seed)
        if isinstance(seed, Schedule)
        else frozenset(resolve_keep(graph, seed, "seeds"))
        for seed in seeds
    )


def checked_schedule(graph: Graph, seed: Schedule) -> Schedule:
    """Check that a schedule is of this graph, on one device.

    Raises:
        PolicyOptionError, ScheduleError: as ``checked_seeds``.
    """
    if seed.graph is not graph and seed.graph != graph:
        raise PolicyOptionError(
            f"seeds: a schedule of {seed.graph.name} is not of the graph {graph.name} that is "
            "planned; expected schedules of the very same graph"
        )
    if any(isinstance(step, Offload | Fetch) for step in seed.steps):
        raise PolicyOptionError(
            f"seeds: the schedule {seed.policy} moves values to the host; expected schedules "
            "with compute and free steps only"
        )
    if any(isinstance(step, InPlace) for step in seed.steps):
        raise PolicyOptionError(
            f"seeds: the schedule {seed.policy} computes in place, which lowers its peak; expected "
            "one that was planned without in_place=True"
        )
    replay(seed)
    return seed


def seed_points(
    graph: Graph,
    seeds: Sequence[CheckedSeed],
    point_of: Callable[[Candidate, tuple[int, int]], Point],
    clock: Clock,
) -> list[Point]:
    """Score the schedules that seeds are, at least one, and those they make as time allows.

    Args:
        graph: the graph of the seeds.
        seeds: as ``checked_seeds`` returns them.
        point_of: scores a schedule of a rank.
        clock: the time.
    """
    points: list[Point] = []
    given = sum(isinstance(seed, Schedule) for seed in seeds)
    for place, candidate in enumerate(seed_candidates(graph, seeds)):
        points.append(point_of(candidate, (SEED_RANK, place)))
        if place + 1 >= given and clock.left() == 0:
            break
    return points


def seed_candidates(graph: Graph, seeds: Iterable[CheckedSeed]) -> Iterator[Candidate]:
    """Yield given schedules; then the schedules that save exactly a set of values.

    A set is a seed of its own, or what a given schedule saves: its checkpoints, and all of it.
    """
    sets: dict[frozenset[int], None] = {}
    for seed in seeds:
        if not isinstance(seed, Schedule):
            sets[seed] = None
            continue
        order = [step.operator for step in seed.steps if isinstance(step, EVALUATIONS)]
        yield Candidate(seed.policy, "as given", order)
        if seed.checkpoints:
            sets[frozenset(seed.checkpoints)] = None
        if len(order) > len(graph.operators):
            sets[frozenset(saved_values_of_order(graph, order))] = None
    if nothing_to_reverse(graph):
        return
    for saved in sets:
        for reuse in (True, False):
            try:
                order = retaining_order(graph, saved, reuse)
            except ScheduleError:  # too long
                continue
            yield Candidate("retain", f"{len(saved)} values kept, as given", order)
