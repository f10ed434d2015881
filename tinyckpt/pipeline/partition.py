"""Where to cut a training graph into stages: the most balanced cuts that fit.

A cut lies behind a forward operator; each backward operator goes with the stage of the forward
operator whose adjoint it is part of. Of all ways to cut into K stages, found is one whose dearest
stage is as cheap as can be, among those whose stages each stay within a cap of memory. Stage k's
memory is what its parameters take, and what its backward half reads of its forward half as often as
micro-batches are in flight there.

The dynamic program has a row for each number of stages: the least for the first i operators in k
stages is that over all j of the dearer of: the first j in k - 1, and the operators between. The one
grows with j, the other falls, so the best j lies where they meet, and is bisected for.

Source: the problem is that of PipeDream's partitioner, Narayanan et al., SOSP 2019,
doi:10.1145/3341301.3359646, with one replica a stage and no cost of communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from tinyckpt.analysis.saved import saved_values
from tinyckpt.cost import Costs, given
from tinyckpt.errors import BudgetError, GraphError, OptionError
from tinyckpt.graph import Graph, TrainingGraph
from tinyckpt.pipeline.program import Integers
from tinyckpt.units import size_text

NEVER = np.inf


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
    spent = np.append(0.0, np.cumsum(cost_by_operator(graph, costs or given(graph))))
    parameters, saved = bytes_by_operator(graph)
    room = [parameters + weight * saved for weight in flight]
    best = np.full(count + 1, NEVER)
    best[0] = 0.0
    choices = []
    for stage in range(stages):
        earliest = np.zeros(count + 1, np.int64)
        if cap is not None:
            earliest = np.searchsorted(room[stage], room[stage] - cap, "left")
        best, chosen = row(best, spent, np.maximum(earliest, stage))
        choices.append(chosen)
    if best[count] == NEVER:
        raise BudgetError(
            f"{graph.name} cannot be cut into {stages} stages of at most {size_text(cap or 0)}: "
            f"all of it has {size_text(int(parameters[-1]))} of parameters and saves "
            f"{size_text(int(saved[-1]))} a micro-batch, of which the first stage holds "
            f"{flight[0]}; have more stages, or recompute"
        )
    ends = accumulate(reversed(choices), lambda end, chosen: int(chosen[end]), initial=count)
    return tuple(sorted(ends)[1:-1])


def row(best: Integers, spent: Integers, earliest: Integers) -> tuple[Integers, Integers]:
    """Return the least cost of the dearest stage, with one stage more, and where that begins.

    Args:
        best: for the first i operators, with the stages so far; it never falls, where it is known.
        spent: cost of the first i operators.
        earliest: where a stage that ends at i may begin, by its memory.
    """
    ends = np.arange(len(best))
    low, high = np.minimum(earliest, ends), ends.copy()
    # The first begin from where on what is before costs as much as the stage.
    while (low < high).any():
        middle = (low + high) // 2
        is_dearer = best[middle] >= spent[ends] - spent[middle]
        low, high = np.where(is_dearer, low, middle + 1), np.where(is_dearer, middle, high)
    found, chosen = np.full(len(best), NEVER), np.zeros(len(best), np.int64)
    for begin in (low - 1, low):
        legal = (begin >= earliest) & (begin < ends)
        at = np.where(legal, begin, 0)
        cost = np.where(legal, np.maximum(best[at], spent[ends] - spent[at]), NEVER)
        chosen = np.where(cost < found, at, chosen)
        found = np.minimum(cost, found)
    return found, chosen


def cost_by_operator(graph: Graph, costs: Costs) -> list[float]:
    """Return the cost of every forward operator with its adjoint."""
    found = list(costs.operators[: graph.forward_count])
    if not found:
        return found
    places = stage_of_operators(graph, range(1, graph.forward_count))
    for operator in graph.operators[graph.forward_count :]:
        found[places[operator.id]] += costs.operators[operator.id]
    return found


def bytes_by_operator(graph: Graph) -> tuple[Integers, Integers]:
    """Return the bytes of parameters and of saved values that the first i operators have.

    A parameter counts where it is read first.
    """
    parameters = np.zeros(graph.forward_count + 1, np.int64)
    saved = np.zeros_like(parameters)
    for node in graph.data:
        if node.role == "parameter" and graph.consumers[node.id]:
            reader = min(graph.consumers[node.id][0], graph.forward_count - 1)
            parameters[reader + 1] += node.nbytes
    for node in saved_values(graph):
        if node.producer is not None:
            saved[node.producer + 1] += node.nbytes
    return np.cumsum(parameters), np.cumsum(saved)
