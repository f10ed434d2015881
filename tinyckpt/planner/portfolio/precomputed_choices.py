"""Precomputed plans for an interactive page: frontier schedules, named policies, lower bounds.

For a page on which a user drags a budget: everything is planned in advance, as far as that is small
enough to embed in the page. No plan is new here; all are results of ``frontier`` and ``plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tinyckpt.base.display import spoken
from tinyckpt.base.errors import OptionError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import expected_length
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Free, operator_title
from tinyckpt.core.trace import Trace
from tinyckpt.planner.heuristics.budget_grid import evenly_spaced
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.lower_bounds import needed_operators, smallest_budget
from tinyckpt.planner.model.non_recomputable import PinnedLiveness
from tinyckpt.planner.portfolio.pareto import Frontier, Point
from tinyckpt.planner.portfolio.plan import costs_of, frontier, plan
from tinyckpt.planner.portfolio.search import Progress

DEFAULT_POLICIES = ("store_all", "sqrt_n", "recompute_all")
# Evaluations per schedule, and total: a page with that many is some 4 MB, and ready within seconds.
# Doubled: more choices in the pages of large graphs, 8 MB.
MAX_CHOICE_EVALUATIONS, MAX_TOTAL_CHOICE_EVALUATIONS = 200_000, 1_000_000
# Points of the frontier in a page: fewer where a schedule has LONG evaluations or more. Doubled: a
# finer choice of budgets, in a page of twice the size.
LONG = 20_000
MAX_POINTS, MAX_LONG_POINTS = 48, 20
# Budgets with a lower bound, in graphs that are not chains, a fraction of a second each; doubled:
# a smoother curve.
NUM_BOUNDS = 12


@dataclass(frozen=True, slots=True)
class Choices:
    """Schedules of one graph, and lower bounds for all others.

    Attributes:
        found: the whole frontier.
        points: those of its points whose schedules can be chosen, by peak, ascending.
        named: policies by their names, replayed.
        bounds: pairs of a budget and a lower bound on the cost of every schedule within it.
        smallest: a budget below which no schedule exists, in the unit of the costs.
        proof: the proofs of that and of the bounds, as sentences.
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
    """Plan a sample of the frontier, named policies and lower bounds in advance.

    Args:
        graph: a training graph.
        costs: as in ``plan``; sizes of values must be their bytes.
        policies: names of policies to show beside the frontier; if not given, store-all, sqrt-n and
            recompute-all, the last one if it is short enough.
        points: the most schedules along the frontier; if not given, 48, or 20 where they are long.
            A larger frontier is thinned evenly.
        time_limit: seconds for the search of the frontier, and as many for the bounds.
        progress: as in ``frontier``.

    Raises:
        OptionError: if the graph has no backward pass, a policy moves values to the host, or the
            schedules are too long to embed.
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
    problem, needed = problem_of(graph, own), needed_operators(graph)
    smallest = smallest_budget(problem)
    most = NUM_BOUNDS if uniform_chain(graph, own) is None else 2 * len(found.points)
    bounds = monotone_bounds(found.bounds(most, time_limit=time_limit))
    proof = proof_of(problem, needed, smallest)
    return Choices(found, chosen, named, bounds, smallest, proof)


def monotone_bounds(bounds: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Make the bounds monotone: a bound for one budget holds for all smaller budgets."""
    highest = accumulate((bound for _, bound in reversed(bounds)), max)
    return tuple(zip((budget for budget, _ in bounds), reversed(list(highest)), strict=True))


def check(graph: Graph, costs: Costs, points: int | None) -> None:
    """Raise an OptionError unless there is something to choose, in bytes."""
    if graph.forward_count == len(graph.operators):
        raise OptionError(
            f"{graph.name} has no backward pass: there is nothing to save; differentiate it first"
        )
    weights = tuple(node.nbytes for node in graph.data)
    workspace = tuple(operator.workspace for operator in graph.operators)
    if (costs.data, costs.workspace, costs.memory_unit) != (weights, workspace, "bytes"):
        raise OptionError(
            "the costs must weigh values by their bytes; change the costs of operators alone, as "
            "tc.cost.custom(graph, costs) does"
        )
    if points is not None and as_integer(points) not in range(2, 201):
        raise OptionError(f"points={points!r:.80}: expected 2 to 200")


def named_traces(
    graph: Graph, costs: Costs, policies: Sequence[str] | None
) -> tuple[tuple[str, Trace], ...]:
    """Replay policies by name; default ones only if they are short enough."""
    if policies is None:
        long = expected_length(graph) > LONG
        asked = [name for name in DEFAULT_POLICIES if not long or name != "recompute_all"]
    else:
        given = [policies] if isinstance(policies, str) else policies
        asked = [*given] if isinstance(given, Iterable) else [given]
        if not all(isinstance(name, str) for name in asked):
            raise OptionError(f"policies={policies!r:.80}: expected names of policies, in a list")
    found = []
    for name in dict.fromkeys(asked):
        trace = replay(plan(graph, name, costs=costs))
        if not all(isinstance(step, (*EVALUATIONS, Free)) for step in trace.steps):
            raise OptionError(
                f"{name} moves values to the host; expected a schedule on the device alone"
            )
        check_short(trace.evaluations, name)
        found.append((name, trace))
    return tuple(found)


def check_short(evaluations: int, what: str) -> None:
    """Raise an OptionError if a schedule is too long to embed."""
    if evaluations > MAX_CHOICE_EVALUATIONS:
        raise OptionError(
            f"{what} takes {evaluations:,} evaluations; the limit per schedule is "
            f"{MAX_CHOICE_EVALUATIONS:,}"
        )


def chosen_points(found: Frontier, most: int | None) -> tuple[Point, ...]:
    """Return the points to choose from: thinned evenly, and none that is too long.

    Raises:
        OptionError: if none is short enough, or those requested are too many.
    """
    short = [point for point in found.points if len(point.order) <= MAX_CHOICE_EVALUATIONS]
    if not short:
        check_short(min(len(point.order) for point in found.points), "the shortest schedule")
    long = any(len(point.order) > LONG for point in short)
    count = most or (MAX_LONG_POINTS if long else MAX_POINTS)
    while True:
        chosen = evenly_spaced(short, count)
        total = sum(len(point.order) for point in chosen)
        if total <= MAX_TOTAL_CHOICE_EVALUATIONS:
            return tuple(chosen)
        if most is not None or count <= 2:
            raise OptionError(
                f"{len(chosen)} schedules with {total:,} evaluations in total; the limit is "
                f"{MAX_TOTAL_CHOICE_EVALUATIONS:,}: ask for fewer points"
            )
        count -= 1


def proof_of(problem: Problem, needed: Sequence[int], smallest: int) -> tuple[str, str]:
    """Return the proofs of the smallest budget and of the lower bounds, as sentences."""
    graph, unit = problem.graph, problem.costs.memory_unit
    pinned = PinnedLiveness(problem, needed)
    amount = memory_text(smallest, unit)
    most = max(needed, key=lambda index: (pinned.need(index), -index))
    title = spoken(operator_title(graph, most))
    alone = f"{title} alone takes {amount}: inputs, outputs and workspace"
    if pinned.need(most) < smallest:
        alone = f"the results, which are all there at the end, take {amount}"
    if uniform_chain(graph, problem.costs) is not None:
        return alone, "Griewank and Walther's closed form for chains, 2000"
    return alone, "minimum cuts: what must be kept, or made again, at some moment"
