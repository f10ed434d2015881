"""What there is to choose from: schedules along the frontier, named policies, what is impossible.

For a page on which somebody drags a budget: everything is planned before, as far as that is small
enough to hand over. Nothing here is a new plan; all of it is what ``frontier`` and ``plan`` return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import expected_length
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Free, operator_title
from tinyckpt.core.trace import Trace
from tinyckpt.planner.heuristics.budget_grid import thinned
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import necessary, smallest_budget
from tinyckpt.planner.model.non_recomputable import NonRecomputable
from tinyckpt.planner.portfolio.pareto import Frontier, Point
from tinyckpt.planner.portfolio.plan import costs_of, frontier, plan
from tinyckpt.planner.portfolio.search import Progress

NAMED = ("store_all", "sqrt_n", "recompute_all")
# Of one schedule, and of all together: a page of as many is some 4 MB, and ready within seconds.
MOST_CHOICE_EVALUATIONS, MOST_IN_ALL = 200_000, 1_000_000
LONG = 20_000  # evaluations of a schedule; with such ones there are fewer points
MOST_POINTS, MOST_LONG_POINTS = 48, 20
BOUNDS = 12  # budgets with a lower bound, in graphs that are no chains


@dataclass(frozen=True, slots=True)
class Choices:
    """Schedules of one graph, and what is known about all others.

    Attributes:
        found: the whole frontier.
        points: those of its points whose schedules can be chosen, by peak, ascending.
        named: policies by their names, replayed.
        bounds: pairs of a budget and a cost that no schedule within it is below.
        smallest: a budget below which there is none, in the unit of the costs.
        proof: what proves that, and the bounds, as sentences.
    """

    found: Frontier
    points: tuple[Point, ...]
    named: tuple[tuple[str, Trace], ...]
    bounds: tuple[tuple[int, float], ...]
    smallest: int
    proof: tuple[str, str]


def choices(
    graph: Graph,
    costs: Costs | None = None,
    *,
    policies: Sequence[str] | None = None,
    points: int | None = None,
    time_limit: float = 6.0,
    progress: Progress | None = None,
) -> Choices:
    """Return what there is to choose from.

    Args:
        graph: a training graph.
        costs: as in ``plan``; what values weigh must be their bytes.
        policies: names of those to be shown besides the frontier; if not given, store-all, sqrt-n
            and recompute-all, the last one if it is short enough.
        points: how many schedules along the frontier at most; if not given, 48, or 20 where they
            are long. Of more they are spread evenly.
        time_limit: seconds for the search of the frontier, and as many for the bounds.
        progress: as in ``frontier``.

    Raises:
        OptionError: if the graph has nothing to choose, a policy moves values to the host, or the
            schedules are too long to be handed over.
        ScheduleError: as ``plan`` does.

    >>> import tinyckpt as tc
    >>> found = choices(tc.networks.chain(4))
    >>> [point.peak for point in found.points], [name for name, _ in found.named]
    ([1536, 2048, 2560, 3072], ['store_all', 'sqrt_n', 'recompute_all'])
    >>> found.proof[0]
    'b4 alone takes 1.5 KiB: inputs, outputs and workspace'
    """
    own = costs_of(graph, costs)
    check(graph, own, points)
    named = named_traces(graph, own, policies)
    found = frontier(graph, own, time_limit=time_limit, progress=progress)
    chosen = chosen_points(found, points)
    problem, needed = Problem(graph, own), necessary(graph)
    smallest = smallest_budget(problem, needed)
    most = BOUNDS if uniform_chain(graph, own) is None else 2 * len(found.points)
    bounds = falling(found.bounds(most, time_limit=time_limit))
    proof = proof_of(problem, needed, smallest)
    return Choices(found, chosen, named, bounds, smallest, proof)


def falling(bounds: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the bounds with what they say together: one holds for all smaller budgets."""
    highest = accumulate((bound for _, bound in reversed(bounds)), max)
    return tuple(zip((budget for budget, _ in bounds), reversed(list(highest)), strict=True))


def check(graph: Graph, costs: Costs, points: int | None) -> None:
    """Raise an OptionError unless there is something to choose, in bytes."""
    if graph.forward_count == len(graph.operators):
        raise OptionError(
            f"{graph.name} has no backward half: there is nothing to keep; differentiate it first"
        )
    weights = tuple(node.nbytes for node in graph.data)
    workspace = tuple(operator.workspace for operator in graph.operators)
    if (costs.data, costs.workspace, costs.memory_unit) != (weights, workspace, "bytes"):
        raise OptionError(
            "the costs weigh values otherwise than by their bytes; choose other costs of operators "
            "alone, as tc.cost.custom(graph, costs) does"
        )
    if points is not None and (isinstance(points, bool) or not 2 <= points <= 200):
        raise OptionError(f"points={points!r}: legal are 2 to 200")


def named_traces(
    graph: Graph, costs: Costs, policies: Sequence[str] | None
) -> tuple[tuple[str, Trace], ...]:
    """Return policies replayed, by name; of those that are not asked for, none that is too long."""
    given = (policies,) if isinstance(policies, str) else policies
    asked = NAMED if given is None else tuple(dict.fromkeys(given))
    if policies is None and expected_length(graph) > LONG:
        asked = tuple(name for name in asked if name != "recompute_all")
    found = []
    for name in asked:
        trace = replay(plan(graph, name, costs=costs))
        if not all(isinstance(step, (*EVALUATIONS, Free)) for step in trace.steps):
            raise OptionError(f"{name} moves values to the host; here all stays on the device")
        check_short(trace.evaluations, name)
        found.append((name, trace))
    return tuple(found)


def check_short(evaluations: int, what: str) -> None:
    """Raise an OptionError if a schedule is too long to be handed over."""
    if evaluations > MOST_CHOICE_EVALUATIONS:
        raise OptionError(
            f"{what} takes {evaluations:,} evaluations; a schedule to choose may have "
            f"{MOST_CHOICE_EVALUATIONS:,}"
        )


def chosen_points(found: Frontier, most: int | None) -> tuple[Point, ...]:
    """Return the points to choose from: spread evenly, and none that is too long.

    Raises:
        OptionError: if none is short enough, or those that were asked for are too many.
    """
    short = [point for point in found.points if len(point.order) <= MOST_CHOICE_EVALUATIONS]
    if not short:
        check_short(min(len(point.order) for point in found.points), "the shortest schedule")
    long = any(len(point.order) > LONG for point in short)
    count = most or (MOST_LONG_POINTS if long else MOST_POINTS)
    while True:
        chosen = thinned(short, count)
        total = sum(len(point.order) for point in chosen)
        if total <= MOST_IN_ALL:
            return tuple(chosen)
        if most is not None or count <= 2:
            raise OptionError(
                f"{len(chosen)} schedules with {total:,} evaluations together; there may be "
                f"{MOST_IN_ALL:,}: ask for fewer points"
            )
        count -= 1


def proof_of(problem: Problem, needed: Sequence[int], smallest: int) -> tuple[str, str]:
    """Return why nothing is below the smallest budget, and nothing below the bounds."""
    graph, unit = problem.graph, problem.costs.memory_unit
    pinned = NonRecomputable(problem, needed)
    amount = memory_text(smallest, unit)
    most = max(needed, key=lambda index: (pinned.need(index), -index))
    alone = f"{operator_title(graph, most)} alone takes {amount}: inputs, outputs and workspace"
    if pinned.need(most) < smallest:
        alone = f"the results, which are all there at the end, take {amount}"
    if uniform_chain(graph, problem.costs) is not None:
        return alone, "Griewank and Walther's closed form for chains, 2000"
    return alone, "minimum cuts: what must be kept, or made again, at some moment"
