"""Chain decomposition of any graph: the forward pass cut into stages, with backward operators each.

Chain planners (Revolve, Rotor, Chen's recursion) know three moves per stage: advance through it,
advance and record its residuals, run its backward. This module linearises any training graph into
such stages and measures their costs and sizes for Rotor. A cut lies after a forward operator; the
values that cross it are computed before it and read by a forward operator after it. At a separator
(dominator) that is one value; in a U-Net or a dense net it is several, and the stage passes on
several. Cuts are placed where the crossing memory is a local minimum, or after operators whose
outputs are residuals.

A backward operator belongs to the stage that computes the forward values it reads, or to the stage
after the cut that they cross. So on the canonical chain ``b_i``, which reads ``f_i``, belongs to
the stage after ``f_i``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import MAX_CROSSINGS, pinned_values
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.liveness import FlatGraph, Problem


class ChainStage(NamedTuple):
    """Forward operators between two cuts, with the backward operators that belong to them.

    Attributes:
        forward: the stage's forward operators, in build order; the last stage may have none.
        backward: the backward operators of the stage, in build order.
        cut: forward values that cross the cut after the stage; empty for the last stage.
        tape: forward values that the stage's backward reads and that do not cross the cut before
            the stage (its residuals).
        advance: forward operators that compute the cut.
        record: forward operators that compute the cut and the tape.
        replay: forward operators that compute the tape alone.
        once: forward operators that none of these evaluates and the first forward pass must: for
            instance the loss, and non-recomputable operators.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    cut: tuple[int, ...]
    tape: tuple[int, ...]
    advance: tuple[int, ...]
    record: tuple[int, ...]
    replay: tuple[int, ...]
    once: tuple[int, ...]


class Column(NamedTuple):
    """One attribute of all stages in CSR layout: stage i has ``items[first[i] : first[i + 1]]``."""

    items: tuple[int, ...]
    first: tuple[int, ...]

    def of(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the items of the stages from ``begin`` up to ``end``."""
        return self.items[self.first[begin] : self.first[end]]


class Stages(Sequence[ChainStage]):
    """Stages of a graph, stored by column, since a long chain has tens of thousands.

    Attributes:
        forward, backward, cut, tape, advance, record, replay, once: as in a ``ChainStage``, for all
            stages.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        (
            self.forward, self.backward, self.cut, self.tape,
            self.advance, self.record, self.replay, self.once,
        ) = columns  # fmt: skip

    def __len__(self) -> int:
        return len(self.forward.first) - 1

    @overload
    def __getitem__(self, index: int) -> ChainStage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ChainStage]: ...
    def __getitem__(self, index: int | slice) -> ChainStage | list[ChainStage]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return ChainStage(*(column.of(places, places + 1) for column in self.columns))
        return [self[place] for place in places]


class Pairs(NamedTuple):
    """Pairs (stage, value or operator), ascending, as two arrays."""

    stage: Integers
    item: Integers

    def column(self, count: int) -> Column:
        """Group the items by stage, for ``count`` stages."""
        first = np.searchsorted(self.stage, np.arange(count + 1))
        return Column(tuple(self.item.tolist()), tuple(first.tolist()))


def stages(flat: FlatGraph, cuts: Iterable[int]) -> Stages:
    """Cut a training graph into chain stages.

    Args:
        flat: a training graph.
        cuts: ids of the forward operators after which to cut.

    Raises:
        ScheduleError: if there are too many pairs of a cut and a value that crosses it.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(3)  # operators 0 to 6: f1 f2 f3 l b3 b2 b1
    >>> [(stage.forward, stage.backward) for stage in stages(FlatGraph(graph), [0, 1])]
    [((0,), ()), ((1,), (6,)), ((2,), (5,)), ((), (3, 4))]
    """
    graph = flat.graph
    if not graph.forward_count:
        return Stages([Column((), (0,))] * len(ChainStage._fields))
    at_end = graph.forward_count - 1
    ends = sorted({*cuts, at_end})
    if not ends_in_result(graph):
        ends.append(at_end)  # a last stage of backward operators only
    count = len(ends)
    within = Cutting(flat, ends)
    cut = within.crossing()
    place = within.place_backward()
    tape = within.tape(place)
    advance = within.needed(cut)
    once = within.needed_once(tape) & ~advance
    pairs = [
        Pairs(within.stage_of, np.arange(graph.forward_count)),
        Pairs(np.sort(place), np.argsort(place, kind="stable") + graph.forward_count),
        cut,
        tape,
        within.by_stage(advance),
        within.by_stage(within.needed(cut, tape)),
        within.by_stage(within.needed(tape)),
        within.by_stage(once),
    ]
    return Stages([each.column(count) for each in pairs])


class Cutting:
    """Forward pass of a graph with cuts after given operators: live ranges counted in stages.

    Attributes:
        stage_of: stage of each forward operator.
        made: for each value, the stage that computes it; -1 if no forward operator does.
        until: for each value, the last stage whose forward operators read it; the stage that
            computes it if none does.
    """

    def __init__(self, flat: FlatGraph, ends: Sequence[int]) -> None:
        self.flat, self.last_stage = flat, len(ends) - 1
        self.forward_count = flat.graph.forward_count
        self.stage_of = np.searchsorted(ends, np.arange(self.forward_count))
        is_forward = (flat.producer >= 0) & (flat.producer < self.forward_count)
        self.made = np.full(len(flat.producer), -1)
        self.made[is_forward] = self.stage_of[flat.producer[is_forward]]
        last = last_forward_readers(flat)
        self.until = np.where(last >= 0, self.stage_of[last], self.made)
        if len(ends) > 1 and ends[-1] == ends[-2] and not ends_in_result(flat.graph):
            # The last operator's outputs are passed on to a stage without forward operators.
            self.until[list(flat.graph.operators[ends[-1]].outputs)] = self.last_stage
        reads, self.readers = flat.reads.take(np.arange(self.forward_count))
        makers = flat.producer[reads]
        inside = self.stage_of[makers] == self.stage_of[self.readers]
        self.edges = list(zip(makers[inside].tolist(), self.readers[inside].tolist(), strict=True))
        self.edges.reverse()
        self.once = [index for index in flat.graph.once if index < self.forward_count]

    def crossing(self) -> Pairs:
        """Return the values that cross the cut after each stage."""
        values = np.flatnonzero(self.until > self.made)
        cuts = (self.until - self.made)[values]
        if (pairs := int(cuts.sum())) > MAX_CROSSINGS:
            raise ScheduleError(
                f"{self.flat.graph.name}: {len(values):,} values cross {self.last_stage:,} cuts "
                f"in {pairs:,} places; the limit is {MAX_CROSSINGS:,}"
            )
        value = np.repeat(values, cuts)
        behind = np.arange(len(value)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        return self.sorted_pairs(self.made[value] + behind, value)

    def place_backward(self) -> Integers:
        """Assign each backward operator to a stage.

        That is the latest stage in which the forward values that it reads are available: the stage
        that computes them, or one after a cut that they cross. It is never a later stage than those
        of the backward operators from which it reads: so an operator that reads what all stages
        share, such as a rotary embedding, is in the stage of its cotangent.
        """
        reads, readers = self.backward_reads()
        makers = self.flat.producer[reads]
        is_forward = makers < self.forward_count
        count = len(self.flat.graph.operators) - self.forward_count
        first, last = np.full(count, -1), np.full(count, self.last_stage)
        value, reader = reads[is_forward], readers[is_forward]
        np.maximum.at(first, reader, np.minimum(self.made + 1, self.until)[value])
        np.minimum.at(last, reader, self.until[value])
        place = np.maximum(first, last).tolist()
        earlier = (makers[~is_forward] - self.forward_count).tolist()
        for maker, after in zip(earlier, readers[~is_forward].tolist(), strict=True):
            place[after] = min(place[after], place[maker])
        return np.array(place, np.int64)

    def tape(self, place: Integers) -> Pairs:
        """Return the forward values that a stage's backward reads and no earlier cut carries."""
        reads, readers = self.backward_reads()
        is_forward = self.flat.producer[reads] < self.forward_count
        value, stage = reads[is_forward], place[readers[is_forward]]
        crosses = (self.made[value] < stage) & (stage <= self.until[value])
        return self.sorted_pairs(stage[~crosses], value[~crosses])

    def backward_reads(self) -> tuple[Integers, Integers]:
        """Return the values read by backward operators, and the readers' backward positions.

        A reader's position counts from the first operator of the backward pass.
        """
        operators = np.arange(self.forward_count, len(self.flat.graph.operators))
        return self.flat.reads.take(operators)

    def needed(self, *targets: Pairs) -> Any:
        """Mask the operators that compute the targets, each stage from the cut before it.

        Targets that another stage computes are ignored, and so are non-recomputable operators,
        whose outputs are resident.
        """
        return self.reached(self.made_here(*targets), frozenset(self.once))

    def made_here(self, *targets: Pairs) -> Any:
        """Mask the operators that compute the targets, of those in the targets' own stages."""
        wanted = np.zeros(self.forward_count, bool)
        for stage, value in targets:
            wanted[self.flat.producer[value[self.made[value] == stage]]] = True
        return wanted

    def reached(self, wanted: Any, there: Collection[int] = ()) -> Any:
        """Mask some operators and their ancestors within the same stage (backward reachability).

        Args:
            wanted: a mask of the operators.
            there: operators whose outputs are resident: the traversal stops there.
        """
        wanted[list(there)] = False
        if not self.edges:
            return wanted
        found = wanted.tolist()
        for maker, reader in self.edges:
            if found[reader] and maker not in there:
                found[maker] = True
        return np.array(found)

    def needed_once(self, tape: Pairs) -> Any:
        """Mask the operators that the first forward pass must evaluate in any case.

        These compute results of the graph, values on the tape of another stage, and the outputs of
        non-recomputable operators.
        """
        results = np.array([d for d in self.flat.graph.outputs if self.made[d] >= 0], np.int64)
        elsewhere = tape.item[self.made[tape.item] != tape.stage]
        targets = np.concatenate([results, elsewhere])
        wanted = self.made_here(Pairs(self.made[targets], targets))
        wanted[self.once] = True
        return self.reached(wanted)

    def by_stage(self, is_chosen: Any) -> Pairs:
        """Pair the forward operators of a mask with their stages."""
        operators = np.flatnonzero(is_chosen)
        return Pairs(self.stage_of[operators], operators)

    def sorted_pairs(self, stage: Integers, value: Integers) -> Pairs:
        """Sort pairs and remove duplicates, by packing (stage, value) into one integer key."""
        scale = len(self.made)
        return Pairs(*np.divmod(np.unique(stage * scale + value), scale))


def ends_in_result(graph: Graph) -> bool:
    """Whether the last forward operator computes a result of the graph, not an intermediate."""
    outputs = set(graph.outputs)
    return any(data in outputs for data in graph.operators[graph.forward_count - 1].outputs)


def last_forward_readers(flat: FlatGraph) -> Integers:
    """Return for each value the last forward operator that reads it, or -1."""
    last = np.full(len(flat.producer), -1)
    reads, readers = flat.reads.take(np.arange(flat.graph.forward_count))
    last[reads] = readers  # ascending: NumPy keeps the last assignment of an index
    return last


def residual_cuts(flat: FlatGraph, costs: Costs, most: int = 200) -> list[int]:
    """Return cuts after every operator whose outputs the backward pass reads.

    A checkpoint at such a cut is also a residual. If there are more than ``most`` cuts, they are
    divided into ``most`` runs of equal length, and each run keeps the cut of least crossing memory:
    no part of the graph is left without a cut, whatever the sizes of its values.

    Args:
        flat: a training graph.
        costs: the sizes of the values.
        most: the largest number of cuts.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(6)
    >>> residual_cuts(FlatGraph(graph), tc.cost.evaluations(graph), most=3)
    [0, 1, 3]
    """
    graph = flat.graph
    places = [
        operator.id
        for operator in graph.operators[: max(graph.forward_count - 1, 0)]
        if any(
            graph.consumers[data] and graph.consumers[data][-1] >= graph.forward_count
            for data in operator.outputs
        )
    ]
    if len(places) <= most:
        return places
    weights = crossing_weights(flat, costs)
    edges = [len(places) * run // most for run in range(most + 1)]
    return [min(places[a:b], key=lambda place: weights[place]) for a, b in pairwise(edges)]


def crossing_weights(flat: FlatGraph, costs: Costs) -> Integers:
    """Return the memory that crosses the cut after each forward operator but the last.

    A view that crosses keeps its base alive.
    """
    graph = flat.graph
    last = last_forward_readers(flat)
    if costs.memory_unit == "bytes":
        for node in reversed([node for node in graph.data if node.view_of is not None]):
            last[node.view_of] = max(last[node.view_of], last[node.id])
    live = np.flatnonzero((flat.producer >= 0) & (last > flat.producer))
    size = np.array(costs.data, np.int64)[live]
    change = np.zeros(graph.forward_count + 1, np.int64)
    np.add.at(change, flat.producer[live], size)
    np.subtract.at(change, last[live], size)
    return np.cumsum(change)[: max(graph.forward_count - 1, 0)]


def local_minimum_cuts(flat: FlatGraph, costs: Costs, reach: int = 1) -> list[int]:
    """Return the cuts whose crossing memory is a local minimum.

    On a chain of blocks these are the separators between the blocks; where there are none, as in a
    U-Net, they are the smallest cuts of several values.

    Args:
        flat: a training graph.
        costs: the sizes of the values.
        reach: over how many cuts, before and after, each is the minimum.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(3)
    >>> local_minimum_cuts(FlatGraph(graph), tc.cost.evaluations(graph))
    [0, 1]
    """
    weights = crossing_weights(flat, costs)
    if not len(weights):
        return []
    padded = np.pad(weights, reach, mode="edge")
    least = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).min(axis=1)
    cuts: list[int] = np.flatnonzero(weights <= least).tolist()
    return cuts


# ------------------------------------------------------------------------------------------------
# Costs and sizes of stages: the inputs of Rotor's dynamic program.
#
# All sizes are in the memory unit of the costs. A storage counts once, however many views and cuts
# contain it; sources are not counted.


@dataclass(frozen=True, slots=True)
class StageSizes:
    """Cost model of a chain for Rotor; sizes in the memory unit of the costs.

    State i is the cut before stage i.

    Attributes:
        advance, record, replay: cost of each stage's forward operators that compute its cut, its
            cut and tape, its tape alone.
        state: ``state[i][j]``: additional memory of state j while state i is resident.
        recorded: additional memory of a stage's tape and cut while its own state is resident.
        advance_peak, record_peak, replay_peak, back_peak: peak memory of each move, excluding the
            stage's own state and results of the graph.
        pending: memory of the cotangents computed after a stage and read by it or by earlier ones.
        results: memory of the results that a stage's backward operators compute; they stay.
        loss: memory of the results that the forward pass computes and of its non-recomputable
            values; included in none of the others.
    """

    advance: list[float]
    record: list[float]
    replay: list[float]
    state: list[list[int]]
    recorded: list[int]
    advance_peak: list[int]
    record_peak: list[int]
    replay_peak: list[int]
    back_peak: list[int]
    pending: list[int]
    results: list[int]
    loss: int


class StorageMeter:
    """Memory of sets of values: each storage counted once, sources and pinned values excluded."""

    def __init__(self, problem: Problem, deadline: Clock) -> None:
        self.deadline = deadline
        self.graph, self.costs, self.root = problem.graph, problem.costs, problem.root
        self.pinned = self.roots(forward_values(problem.graph, pinned_values(problem.graph)))
        self.size = problem.size.tolist()
        for root in self.pinned:
            self.size[root] = 0
        self.touched = [(*one.inputs, *one.outputs) for one in problem.graph.operators]

    def roots(self, values: Iterable[int]) -> set[int]:
        """Return the storages of some values, each by its root value."""
        return {self.root[data] for data in values}

    def memory(self, values: Iterable[int], excluded: Collection[int] = ()) -> int:
        """Return the memory of some values, excluding the storages in ``excluded``."""
        self.deadline.check()
        return sum(self.size[root] for root in self.roots(values) if root not in excluded)

    def peak(
        self, operators: Sequence[int], before: Iterable[int], after: Collection[int],
        excluded: Collection[int],
    ) -> int:  # fmt: skip
        """Return the peak memory of evaluating some operators.

        Args:
            operators: operator ids, in order of evaluation.
            before: live-in values.
            after: live-out values; all others are freed after their last reader.
            excluded: storages that are resident throughout and not counted.
        """
        size, root_of, workspace = self.size, self.root, self.costs.workspace
        last = {
            data: position
            for position, index in enumerate(operators)
            for data in self.touched[index]
        }
        freed: list[list[int]] = [[] for _ in operators]
        for data, position in last.items():
            if data not in after:
                freed[position].append(data)
        live = {data for data in before if data in last or data in after}
        holders = Counter(root_of[data] for data in live)
        peak = memory = self.memory(live, excluded)
        for index, dying in zip(operators, freed, strict=True):
            for data in self.graph.operators[index].outputs:
                if data in live:
                    continue
                live.add(data)
                root = root_of[data]
                if not holders[root] and root not in excluded:
                    memory += size[root]
                holders[root] += 1
            peak = max(peak, memory + workspace[index])
            for data in dying:
                if data not in live:
                    continue
                live.discard(data)
                root = root_of[data]
                holders[root] -= 1
                if not holders[root] and root not in excluded:
                    memory -= size[root]
        return peak


def stage_sizes(problem: Problem, parts: Stages, deadline: Clock = NO_DEADLINE) -> StageSizes:
    """Measure costs, sizes and peaks of the stages for Rotor.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    graph, costs = problem.graph, problem.costs
    measure = StorageMeter(problem, deadline)
    outputs = set(graph.outputs)
    cuts: list[tuple[int, ...]] = [(), *(stage.cut for stage in parts)]
    state_roots = [measure.roots(cut) for cut in cuts]
    waiting = pending_cotangents(graph, parts)
    kept_outputs: set[int] = set()
    back_peak, results = [0] * len(parts), [0] * len(parts)
    for index in range(len(parts) - 1, -1, -1):
        stage = parts[index]
        behind = waiting[index + 1] if index + 1 < len(parts) else set()
        own = {data for i in stage.backward for data in graph.operators[i].outputs} & outputs
        before = kept_outputs | measure.roots(outputs_of_forward(graph))
        back_peak[index] = measure.peak(
            stage.backward,
            {*behind, *stage.tape},
            {*waiting[index], *own},
            state_roots[index] | before,
        )
        results[index] = measure.memory(own, before)
        kept_outputs |= measure.roots(own)
    cost = costs.operators

    def forward_peak(index: int, operators: Sequence[int], after: Collection[int]) -> int:
        return measure.peak(operators, (), after, state_roots[index])

    return StageSizes(
        advance=[sum(cost[i] for i in stage.advance) for stage in parts],
        record=[sum(cost[i] for i in stage.record) for stage in parts],
        replay=[sum(cost[i] for i in stage.replay) for stage in parts],
        state=[[measure.memory(cut, own) for cut in cuts[:-1]] for own in state_roots[:-1]],
        recorded=[
            measure.memory({*stage.tape, *stage.cut}, state_roots[i])
            for i, stage in enumerate(parts)
        ],
        advance_peak=[forward_peak(i, s.advance, set(s.cut)) for i, s in enumerate(parts)],
        record_peak=[forward_peak(i, s.record, {*s.cut, *s.tape}) for i, s in enumerate(parts)],
        replay_peak=[forward_peak(i, s.replay, set(s.tape)) for i, s in enumerate(parts)],
        back_peak=back_peak,
        pending=[
            measure.memory(waiting[i + 1]) if i + 1 < len(parts) else 0 for i in range(len(parts))
        ],
        results=results,
        loss=measure.memory(outputs_of_forward(graph))
        + sum(measure.size[root] for root in measure.pinned),
    )


def outputs_of_forward(graph: Graph) -> list[int]:
    """Return the results of the graph that forward operators compute."""
    return forward_values(graph, graph.outputs)


def forward_values(graph: Graph, values: Iterable[int]) -> list[int]:
    """Select the values that forward operators compute."""
    result = []
    for data in values:
        producer = graph.data[data].producer
        if producer is not None and producer < graph.forward_count:
            result.append(data)
    return result


def pending_cotangents(graph: Graph, parts: Stages) -> list[set[int]]:
    """Return for each stage the backward values that earlier stages read, results excluded."""
    stage_of = {operator: i for i, stage in enumerate(parts) for operator in stage.backward}
    outputs = set(graph.outputs)
    waiting: list[set[int]] = [set() for _ in parts]
    for operator, made_in in stage_of.items():
        for data in graph.operators[operator].outputs:
            readers = [stage_of[reader] for reader in graph.consumers[data]]
            if readers and data not in outputs:
                for index in range(min(readers) + 1, made_in + 1):
                    waiting[index].add(data)
    return waiting
