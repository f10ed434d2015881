"""Load balancing of pipeline stages: chains-on-chains partitioning within a memory cap; Iqbal 1991.

A cut lies after a forward operator; each backward operator belongs to the stage of the forward
operator whose vjp it is part of. Among all partitions into K stages whose stages each fit the cap,
the result minimises the cost of the most expensive stage (the bottleneck). The memory of stage k is
that of its parameters, plus that of its saved values times the micro-batches in flight there.

Whether stages of at most a given cost exist is decided by one greedy pass (a probe): each stage
takes as many operators as it may. So the least such cost is found by bisection, down to the last
bit of a float; and memory grows with operators plus stages, not with their product. The greedy
passes from either end bound the position of each cut; within these bounds it is placed where the
remaining load is shared most evenly.

Source: the problem is that of PipeDream's partitioner, Narayanan et al., SOSP 2019,
doi:10.1145/3341301.3359646, with one replica per stage and no communication cost. Bisection with a
greedy probe is how chains are partitioned since Iqbal, "Approximate algorithms for partitioning
problems", Int. J. Parallel Programming 20, 1991, doi:10.1007/BF01407899.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from tinyckpt.base.errors import BudgetError, GraphError, OptionError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.units import size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.pipeline.program import Integers
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.model.saved_values import saved_values


def stage_of_operators(graph: Graph, cuts: Sequence[int]) -> list[int]:
    """Assign every operator to a stage, given the cuts.

    A backward operator belongs to the stage of its forward operator; or to an earlier one, if it
    reads a cotangent of that: in the backward pass, values flow towards the first stage only.

    Args:
        graph: with a backward pass.
        cuts: for every stage but the first its first forward operator, ascending.

    Raises:
        OptionError: if the cuts are no ascending integers, or a stage has no forward operator.
    """
    is_whole = all(as_integer(cut) is not None for cut in cuts)
    ends = [0, *cuts, graph.forward_count]
    if not is_whole or any(before >= cut for before, cut in pairwise(ends)):
        raise OptionError(
            f"cuts={tuple(cuts)!r:.80}: they ascend, from 1 to {graph.forward_count - 1} in "
            f"{graph.name}, so that every stage has a forward operator"
        )
    last = len(cuts)
    numbers = np.searchsorted(np.asarray(cuts, np.int64), np.arange(graph.forward_count), "right")
    found: list[int] = numbers.tolist()
    for operator in graph.operators[graph.forward_count :]:
        own = operator.adjoint_of
        at_most = [last if own is None or own >= graph.forward_count else found[own]]
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is not None and producer >= graph.forward_count:
                at_most.append(found[producer])
        found.append(min(at_most))
    return found


def partition(
    graph: TrainingGraph,
    stages: int,
    *,
    costs: Costs | None = None,
    cap: int | None = None,
    in_flight: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Balance a training graph's stages; return the first forward operator of each but the first.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import partition
    >>> partition(tc.networks.chain(8), 3)
    (3, 6)

    Args:
        graph: loss and gradients of one micro-batch.
        stages: number of stages K; each gets at least one forward operator.
        costs: of the operators, as for ``plan``: FLOPs, or one each, if not given.
        cap: the largest memory of a stage in bytes: parameters, and saved values in flight.
        in_flight: for every stage the number of micro-batches in flight; if not given K - k, as in
            1F1B with at least K micro-batches. It must not increase from stage to stage.

    Raises:
        OptionError: if there are more stages than forward operators.
        BudgetError: if no cuts fit the cap; names the smallest cap that is feasible.
    """
    count = graph.forward_count
    if graph.gradients is None or graph.updates:
        raise GraphError(
            f"{graph.name}: a pipeline needs a graph with a backward pass and no updates, such as "
            "tc.differentiate returns"
        )
    if type(stages) is not int or not 1 <= stages <= count:
        raise OptionError(
            f"stages={stages!r}; {graph.name} has {count} forward operators, so it can be cut into "
            f"1 to {count} stages"
        )
    flight = list(range(stages, 0, -1)) if in_flight is None else list(in_flight)
    if len(flight) != stages:
        raise OptionError(f"in_flight has {len(flight)} numbers; there are {stages} stages")
    if any(later > own for own, later in pairwise(flight)) or not all(n >= 0 for n in flight):
        raise OptionError(
            f"in_flight={flight!r:.80}: it must not increase from stage to stage, and be 0 or more"
        )
    if cap is not None and type(cap) is not int:
        raise OptionError(f"cap={cap!r:.80}; it must be an integer, in bytes, or None")
    spent = np.append(0.0, np.cumsum(cost_by_operator(graph, costs or given(graph))))
    if not np.isfinite(spent[-1]):
        raise OptionError(f"{graph.name}: the total of all costs overflows a float")
    load = Load(spent, *bytes_by_operator(graph), flight, cap)
    found = balanced(load)
    if found is None:
        most = int(load.parameters[-1] + flight[0] * load.saved[-1])  # of a single stage
        smallest = bisect_left(range(most), True, key=lambda cap: is_feasible(load, cap))
        raise BudgetError(
            f"{graph.name} cannot be cut into {stages} stages of at most {size_text(cap or 0)}: "
            f"it has {size_text(load.parameters[-1])} of parameters and saves "
            f"{size_text(load.saved[-1])} per micro-batch, with {flight[0]} in flight in stage 0; "
            f"stages of {size_text(smallest)} are feasible, or use more stages, or recompute",
            smallest,
            True,
        )
    return tuple(found[1:-1])


@dataclass(frozen=True, slots=True)
class Load:
    """A chain of operators as prefix sums of cost and memory, and the limits of stages.

    Attributes:
        spent: cost of the first i operators.
        parameters, saved: bytes of their parameters and of their saved values.
        flight: for every stage the micro-batches in flight; non-increasing.
        cap: the largest memory of a stage in bytes, or None.
    """

    spent: Integers
    parameters: Sequence[int]
    saved: Sequence[int]
    flight: Sequence[int]
    cap: int | None

    def fits(self, stage: int, begin: int, end: int) -> bool:
        """Whether operators ``begin`` to ``end - 1`` fit into a stage's memory."""
        parameters = self.parameters[end] - self.parameters[begin]
        saved = self.saved[end] - self.saved[begin]
        return self.cap is None or parameters + self.flight[stage] * saved <= self.cap

    def forth(self, stage: int, begin: int, end: int) -> int:
        """Return the largest end, up to a given one, of a stage that fits from a begin."""
        if begin == end or self.fits(stage, begin, end):
            return end
        span = range(begin + 1, end + 1)
        return begin + bisect_left(span, True, key=lambda at: not self.fits(stage, begin, at))

    def back(self, stage: int, begin: int, end: int) -> int:
        """Return the smallest begin, down to a given one, of a stage that fits up to an end."""
        if begin == end or self.fits(stage, begin, end):
            return begin
        return begin + bisect_left(
            range(begin, end), True, key=lambda at: self.fits(stage, at, end)
        )


def is_feasible(load: Load, cap: int) -> bool:
    """Whether stages within a memory cap exist, at any cost."""
    return latest_boundaries(replace(load, cap=cap), float(load.spent[-1])) is not None


def balanced(load: Load) -> list[int] | None:
    """Bisect for the least bottleneck; return the boundaries of stages, None if none fit."""
    count, stages = len(load.spent) - 1, len(load.flight)
    whole = float(load.spent[-1])
    if latest_boundaries(load, whole) is None:
        return None
    # Bounds of the bottleneck: an even share of the total from below, the total from above.
    low, high = whole / stages, whole
    if latest_boundaries(load, low) is not None:
        high = low
    while low < (middle := low + (high - low) / 2) < high:
        if latest_boundaries(load, middle) is None:
            low = middle
        else:
            high = middle
    last, first = latest_boundaries(load, high), earliest_boundaries(load, high)
    assert last is not None
    reach = furthest_ends(load, high)
    found = [0]
    for stage in range(stages - 1):
        begin = found[-1]
        share = (whole - load.spent[begin]) / (stages - stage)
        even = int(np.searchsorted(load.spent[:-1], load.spent[begin] + share))
        # The nearer one of the two operators around an even share.
        is_nearer = (
            2 * (load.spent[begin] + share) < load.spent[even] + load.spent[max(even - 1, 0)]
        )
        most = min(last[stage + 1], load.forth(stage, begin, int(reach[begin])))
        found.append(min(max(even - bool(is_nearer), first[stage + 1], begin + 1), most))
    return [*found, count]


def furthest_ends(load: Load, bottleneck: float) -> Integers:
    """Return for each operator the largest end of a stage from there whose cost is bounded."""
    return np.searchsorted(load.spent, load.spent + bottleneck, "right") - 1


def latest_boundaries(load: Load, bottleneck: float) -> list[int] | None:
    """Greedy probe from the front: the latest boundaries of stages of at most a given cost.

    None if there are no such stages. Stages left empty take one operator each from the one before:
    that fits, because a later stage has no more micro-batches in flight.
    """
    reach: list[int] = furthest_ends(load, bottleneck).tolist()
    ends = [0]
    for stage in range(len(load.flight)):
        ends.append(load.forth(stage, ends[-1], reach[ends[-1]]))
        if ends[-1] <= stage:  # fewer operators than stages
            return None
    if ends[-1] < len(load.spent) - 1:
        return None
    for stage in range(len(ends) - 2, 0, -1):
        ends[stage] = min(ends[stage], ends[stage + 1] - 1)
    return ends


def earliest_boundaries(load: Load, bottleneck: float) -> list[int]:
    """Greedy pass from the back: the earliest boundaries of stages of at most a given cost.

    Such stages must exist.
    """
    reach = furthest_ends(load, bottleneck)
    begins = [len(load.spent) - 1]
    for stage in reversed(range(len(load.flight))):
        begin = int(np.searchsorted(reach, begins[-1]))
        begins.append(load.back(stage, begin, begins[-1]))
    begins.reverse()
    begins[0] = 0
    for stage in range(1, len(begins)):
        begins[stage] = max(begins[stage], begins[stage - 1] + 1)
    return begins


def cost_by_operator(graph: Graph, costs: Costs) -> list[float]:
    """Return the cost of every forward operator, its backward operators included."""
    found = list(costs.operators[: graph.forward_count])
    if not found:
        return found
    places = stage_of_operators(graph, range(1, graph.forward_count))
    for operator in graph.operators[graph.forward_count :]:
        found[places[operator.id]] += costs.operators[operator.id]
    return found


def bytes_by_operator(graph: Graph) -> tuple[list[int], list[int]]:
    """Return prefix sums over forward operators of the bytes of parameters and of saved values.

    A parameter counts at its first reader.
    """
    parameters, saved = [0] * (graph.forward_count + 1), [0] * (graph.forward_count + 1)
    for node in graph.data:
        if node.role == "parameter" and graph.consumers[node.id]:
            reader = min(graph.consumers[node.id][0], graph.forward_count - 1)
            parameters[reader + 1] += node.nbytes
    for node in saved_values(graph):
        if node.producer is not None:
            saved[node.producer + 1] += node.nbytes
    return list(accumulate(parameters)), list(accumulate(saved))
