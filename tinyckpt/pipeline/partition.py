"""Where to cut a training graph into stages: the most balanced cuts that fit.

A cut lies behind a forward operator; each backward operator goes with the stage of the forward
operator whose adjoint it is part of. Of all ways to cut into K stages, found is one whose dearest
stage is as cheap as can be, among those whose stages each stay within a cap of memory. Stage k's
memory is what its parameters take, and what its backward half reads of its forward half as often as
micro-batches are in flight there.

Whether stages of at most a given cost exist is seen in one pass: each takes as many operators as it
may. So the least such cost is bisected for, down to the last bit of a float, and memory grows with
operators and stages, not with their product. The passes from either end say between which operators
each cut may lie; there it is put where what is left is shared out most evenly.

Source: the problem is that of PipeDream's partitioner, Narayanan et al., SOSP 2019,
doi:10.1145/3341301.3359646, with one replica a stage and no cost of communication. The pass within
a search is how chains are partitioned since Iqbal, "Approximate algorithms for partitioning
problems", Int. J. Parallel Programming 20, 1991, doi:10.1007/BF01407899.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from tinyckpt.base.errors import BudgetError, GraphError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.core.costs import Costs, given
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.pipeline.program import Integers
from tinyckpt.planner.model.saved_values import saved_values


def stage_of_operators(graph: Graph, cuts: Sequence[int]) -> list[int]:
    """Return the stage of every operator.

    A backward operator goes with its forward operator; or with an earlier stage, if it reads a
    cotangent that only that one has: on the way back, values go towards the first stage.

    Args:
        graph: with a backward half.
        cuts: before which forward operators a new stage begins, ascending.

    Raises:
        OptionError: if they are not ascending, or a stage has no forward operator.
    """
    if any(before >= cut for before, cut in pairwise([0, *cuts, graph.forward_count])):
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
    """Return before which forward operators the stages begin, but for the first.

    >>> import tinyckpt as tc
    >>> from tinyckpt.pipeline import partition
    >>> partition(tc.networks.chain(8), 3)
    (3, 6)

    Args:
        graph: loss and gradients of one micro-batch.
        stages: how many to cut into; each gets a forward operator.
        costs: of the operators, as for ``plan``: FLOPs, or one each, if not given.
        cap: the most bytes that a stage may take: of parameters, and of what is saved.
        in_flight: for every stage how many micro-batches are in flight; 1F1B's if not given, with
            no end of micro-batches: K - k. A later stage has no more than an earlier one.

    Raises:
        OptionError: if there are more stages than forward operators.
        BudgetError: if no cuts fit the cap.
    """
    count = graph.forward_count
    if graph.gradients is None or graph.updates:
        raise GraphError(
            f"{graph.name}: a pipeline is made of a graph with a backward half and no updates, "
            "such as tc.differentiate returns"
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
            f"in_flight={flight!r:.80}: a later stage has no more than an earlier one"
        )
    if cap is not None and type(cap) is not int:
        raise OptionError(f"cap={cap!r:.80}; it is a whole number of bytes, or None")
    spent = np.append(0.0, np.cumsum(cost_by_operator(graph, costs or given(graph))))
    if not np.isfinite(spent[-1]):
        raise OptionError(f"{graph.name}: all costs together are more than a float can hold")
    load = Load(spent, *bytes_by_operator(graph), flight, cap)
    found = balanced(load)
    if found is None:
        most = int(load.parameters[-1] + flight[0] * load.saved[-1])  # of a stage that has all
        smallest = bisect_left(range(most), True, key=lambda cap: is_possible(load, cap))
        raise BudgetError(
            f"{graph.name} cannot be cut into {stages} stages of at most {size_text(cap or 0)}: "
            f"all of it has {size_text(load.parameters[-1])} of parameters and saves "
            f"{size_text(load.saved[-1])} a micro-batch, of which the first stage holds "
            f"{flight[0]}; stages of {size_text(smallest)} are possible, or have more of them, or "
            "recompute",
            smallest,
            True,
        )
    return tuple(found[1:-1])


@dataclass(frozen=True, slots=True)
class Load:
    """What stages may take of a line of operators.

    Attributes:
        spent: cost of the first i operators.
        parameters, saved: their bytes of parameters, and of saved values.
        flight: for every stage how many micro-batches hold what is saved; none more than before.
        cap: of a stage's bytes, or None.
    """

    spent: Integers
    parameters: Sequence[int]
    saved: Sequence[int]
    flight: Sequence[int]
    cap: int | None

    def fits(self, stage: int, begin: int, end: int) -> bool:
        """Whether the operators from one to another fit into a stage's memory."""
        parameters = self.parameters[end] - self.parameters[begin]
        saved = self.saved[end] - self.saved[begin]
        return self.cap is None or parameters + self.flight[stage] * saved <= self.cap

    def forth(self, stage: int, begin: int, end: int) -> int:
        """Return up to where a stage may go that begins somewhere; at most to a given end."""
        if begin == end or self.fits(stage, begin, end):
            return end
        span = range(begin + 1, end + 1)
        return begin + bisect_left(span, True, key=lambda at: not self.fits(stage, begin, at))

    def back(self, stage: int, begin: int, end: int) -> int:
        """Return from where a stage may come that ends somewhere; at least from a given begin."""
        if begin == end or self.fits(stage, begin, end):
            return begin
        return begin + bisect_left(
            range(begin, end), True, key=lambda at: self.fits(stage, at, end)
        )


def is_possible(load: Load, cap: int) -> bool:
    """Whether there are stages of at most so many bytes, whatever they cost."""
    return latest(replace(load, cap=cap), float(load.spent[-1])) is not None


def balanced(load: Load) -> list[int] | None:
    """Return where the most balanced stages begin, and where the last ends; None if none fit."""
    count, stages = len(load.spent) - 1, len(load.flight)
    whole = float(load.spent[-1])
    if latest(load, whole) is None:
        return None
    # No stage is dearer than all; the dearest is no cheaper than an even share.
    low, high = whole / stages, whole
    if latest(load, low) is not None:
        high = low
    while low < (middle := low + (high - low) / 2) < high:
        if latest(load, middle) is None:
            low = middle
        else:
            high = middle
    last, first = latest(load, high), earliest(load, high)
    assert last is not None
    reach = reaches(load, high)
    found = [0]
    for stage in range(stages - 1):
        begin = found[-1]
        share = (whole - load.spent[begin]) / (stages - stage)
        even = int(np.searchsorted(load.spent[:-1], load.spent[begin] + share))
        # Of the two places around an even share the nearer one.
        is_nearer = (
            2 * (load.spent[begin] + share) < load.spent[even] + load.spent[max(even - 1, 0)]
        )
        most = min(last[stage + 1], load.forth(stage, begin, int(reach[begin])))
        found.append(min(max(even - bool(is_nearer), first[stage + 1], begin + 1), most))
    return [*found, count]


def reaches(load: Load, dearest: float) -> Integers:
    """Return up to where a stage of at most some cost may go from each operator on."""
    return np.searchsorted(load.spent, load.spent + dearest, "right") - 1


def latest(load: Load, dearest: float) -> list[int] | None:
    """Return where each stage of at most some cost begins at the latest; and where all end.

    None, if there are no such stages. A stage that another leaves nothing for takes one operator
    of it: a later stage holds no more of it than an earlier one.
    """
    reach: list[int] = reaches(load, dearest).tolist()
    ends = [0]
    for stage in range(len(load.flight)):
        ends.append(load.forth(stage, ends[-1], reach[ends[-1]]))
        if ends[-1] <= stage:  # too few operators for as many stages
            return None
    if ends[-1] < len(load.spent) - 1:
        return None
    for stage in range(len(ends) - 2, 0, -1):
        ends[stage] = min(ends[stage], ends[stage + 1] - 1)
    return ends


def earliest(load: Load, dearest: float) -> list[int]:
    """Return where each stage of at most some cost begins at the earliest, if there are such."""
    reach = reaches(load, dearest)
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
    """Return the cost of every forward operator with its adjoint."""
    found = list(costs.operators[: graph.forward_count])
    if not found:
        return found
    places = stage_of_operators(graph, range(1, graph.forward_count))
    for operator in graph.operators[graph.forward_count :]:
        found[places[operator.id]] += costs.operators[operator.id]
    return found


def bytes_by_operator(graph: Graph) -> tuple[list[int], list[int]]:
    """Return the bytes of parameters and of saved values that the first i operators have.

    A parameter counts where it is read first.
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
