"""Stages: the forward half cut into pieces, each with the backward operators that go with it.

Chain planners (Revolve, Rotor, Chen's recursion) know only stages: advance through one, advance and
keep what its backward needs, go back through it. This module makes that view of any graph. A cut
lies behind a forward operator; what crosses it are the values that an operator before it makes and
a forward operator behind it reads. At a separator that is one value; in a U-Net or a dense net it
is several, and a stage simply hands over several.

What a backward operator reads decides where it goes: with a stage, if it reads what is made inside
of it; with the stage behind, if it reads what crosses the cut between the two. So on the canonical
chain ``b_i``, which reads ``f_i``, goes with the stage behind ``f_i``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import pinned_values
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.liveness import Flat, Problem

# Of a value that crosses a cut some hundred bytes are held: these take a gigabyte. Where more is
# held in so many places, a graph is no chain.
MOST_CROSSING = 10_000_000


class ChainStage(NamedTuple):
    """What lies between two cuts.

    Attributes:
        forward: the stage's forward operators, in build order; the last stage may have none.
        backward: the backward operators that are evaluated when the sweep comes back to it.
        cut: forward values that cross the cut behind it; empty behind the last stage.
        tape: forward values that its backward operators read and the cut before it does not hold.
        advance: the forward operators that it takes to make the cut.
        record: those that it takes to make the cut and the tape.
        replay: those that it takes to make the tape alone.
        once: those that nothing of this evaluates, and the first sweep must: the loss, say, and
            what may not be evaluated twice.
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
    """What one of the attributes of a Stage is for each of them, end to end."""

    items: tuple[int, ...]
    first: tuple[int, ...]

    def of(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the items of the stages from ``begin`` up to ``end``."""
        return self.items[self.first[begin] : self.first[end]]


class Stages(Sequence[ChainStage]):
    """The stages of a graph. A long chain has tens of thousands: they are held by columns.

    Attributes:
        forward, backward, cut, tape, advance, record, replay, once: as in a Stage, for all of them.
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
    """Pairs of a stage and a value or operator, ascending, as two arrays."""

    stage: Integers
    item: Integers

    def column(self, count: int) -> Column:
        """Return the items by stage, of which there are ``count``."""
        first = np.searchsorted(self.stage, np.arange(count + 1))
        return Column(tuple(self.item.tolist()), tuple(first.tolist()))


def stages(flat: Flat, cuts: Iterable[int]) -> Stages:
    """Return the stages between some cuts.

    Args:
        flat: a training graph.
        cuts: the forward operators behind which to cut.

    Raises:
        ScheduleError: if too many values cross too many of them.
    """
    graph = flat.graph
    if not graph.forward_count:
        return Stages([Column((), (0,))] * len(ChainStage._fields))
    at_end = graph.forward_count - 1
    ends = sorted({*cuts, at_end})
    if not ends_in_result(graph):
        ends.append(at_end)  # a last stage that holds backward operators only
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
    """The forward half of a graph, cut behind some operators.

    Attributes:
        stage_of: the stage of every forward operator.
        made: for every value the stage that makes it; -1 unless a forward operator does.
        until: the last stage whose forward operators read it; that which makes it, if none does.
    """

    def __init__(self, flat: Flat, ends: Sequence[int]) -> None:
        self.flat, self.last_stage = flat, len(ends) - 1
        self.forward_count = flat.graph.forward_count
        self.stage_of = np.searchsorted(ends, np.arange(self.forward_count))
        is_forward = (flat.producer >= 0) & (flat.producer < self.forward_count)
        self.made = np.full(len(flat.producer), -1)
        self.made[is_forward] = self.stage_of[flat.producer[is_forward]]
        last = last_forward_readers(flat)
        self.until = np.where(last >= 0, self.stage_of[last], self.made)
        if len(ends) > 1 and ends[-1] == ends[-2] and not ends_in_result(flat.graph):
            # What the last operator makes is handed on to a stage without forward operators.
            self.until[list(flat.graph.operators[ends[-1]].outputs)] = self.last_stage
        reads, self.readers = flat.reads.take(np.arange(self.forward_count))
        makers = flat.producer[reads]
        inside = self.stage_of[makers] == self.stage_of[self.readers]
        self.edges = list(zip(makers[inside].tolist(), self.readers[inside].tolist(), strict=True))
        self.edges.reverse()
        self.once = [index for index in flat.graph.once if index < self.forward_count]

    def crossing(self) -> Pairs:
        """Return what crosses the cut behind each stage."""
        values = np.flatnonzero(self.until > self.made)
        cuts = (self.until - self.made)[values]
        if (pairs := int(cuts.sum())) > MOST_CROSSING:
            raise ScheduleError(
                f"{self.flat.graph.name}: {len(values):,} values cross {self.last_stage:,} cuts "
                f"in {pairs:,} places; stages are made of up to {MOST_CROSSING:,}"
            )
        value = np.repeat(values, cuts)
        behind = np.arange(len(value)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        return self.sorted_pairs(self.made[value] + behind, value)

    def place_backward(self) -> Integers:
        """Return for every backward operator the stage that it goes with.

        That is the first in which the forward values that it reads are found: the one that makes
        them, or behind the first cut that they cross. But it cannot go with a later stage than the
        backward operators it reads from.
        """
        reads, readers = self.backward_reads()
        makers = self.flat.producer[reads]
        is_forward = makers < self.forward_count
        home = np.minimum(self.made + 1, self.until)
        wanted = np.full(len(self.flat.graph.operators) - self.forward_count, -1)
        np.maximum.at(wanted, readers[is_forward], home[reads[is_forward]])
        place = np.where(wanted < 0, self.last_stage, wanted).tolist()
        earlier = (makers[~is_forward] - self.forward_count).tolist()
        for maker, reader in zip(earlier, readers[~is_forward].tolist(), strict=True):
            place[reader] = min(place[reader], place[maker])
        return np.array(place, np.int64)

    def tape(self, place: Integers) -> Pairs:
        """Return the forward values that a stage's backward reads and no cut before it holds."""
        reads, readers = self.backward_reads()
        is_forward = self.flat.producer[reads] < self.forward_count
        value, stage = reads[is_forward], place[readers[is_forward]]
        held = (self.made[value] < stage) & (stage <= self.until[value])
        return self.sorted_pairs(stage[~held], value[~held])

    def backward_reads(self) -> tuple[Integers, Integers]:
        """Return what backward operators read, and the positions of those in the backward half."""
        operators = np.arange(self.forward_count, len(self.flat.graph.operators))
        return self.flat.reads.take(operators)

    def needed(self, *targets: Pairs) -> Any:
        """Return which operators it takes to make the targets, each stage from its state: a mask.

        Targets that another stage makes are not its business, nor what may not be evaluated twice:
        that is there.
        """
        return self.reached(self.made_here(*targets), frozenset(self.once))

    def made_here(self, *targets: Pairs) -> Any:
        """Return which operators make the targets, of those in their stages: a mask."""
        wanted = np.zeros(self.forward_count, bool)
        for stage, value in targets:
            wanted[self.flat.producer[value[self.made[value] == stage]]] = True
        return wanted

    def reached(self, wanted: Any, there: Collection[int] = ()) -> Any:
        """Return some operators and all that they depend on in their stages: a mask.

        Args:
            wanted: a mask of them.
            there: those whose results are there, which leads no further.
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
        """Return which operators the first sweep must evaluate whatever the backward reads: a mask.

        Those make results of the graph, what another stage has on its tape, and what may not be
        evaluated twice.
        """
        results = np.array([d for d in self.flat.graph.outputs if self.made[d] >= 0], np.int64)
        elsewhere = tape.item[self.made[tape.item] != tape.stage]
        targets = np.concatenate([results, elsewhere])
        wanted = self.made_here(Pairs(self.made[targets], targets))
        wanted[self.once] = True
        return self.reached(wanted)

    def by_stage(self, is_chosen: Any) -> Pairs:
        """Return some forward operators with their stages."""
        operators = np.flatnonzero(is_chosen)
        return Pairs(self.stage_of[operators], operators)

    def sorted_pairs(self, stage: Integers, value: Integers) -> Pairs:
        """Return pairs in order, each once."""
        scale = len(self.made)
        return Pairs(*np.divmod(np.unique(stage * scale + value), scale))


def crossing_values(flat: Flat, ends: Sequence[int]) -> list[tuple[int, ...]]:
    """Return what crosses the cut behind each of some forward operators, ascending."""
    behind = [*ends, flat.graph.forward_count - 1]
    crossing = Cutting(flat, behind).crossing().column(len(behind))
    return [crossing.of(index, index + 1) for index in range(len(ends))]


def ends_in_result(graph: Graph) -> bool:
    """Whether the last forward operator makes a result, and not something that is handed on."""
    outputs = set(graph.outputs)
    return any(data in outputs for data in graph.operators[graph.forward_count - 1].outputs)


def last_forward_readers(flat: Flat) -> Integers:
    """Return for every value the last forward operator that reads it, or -1."""
    last = np.full(len(flat.producer), -1)
    reads, readers = flat.reads.take(np.arange(flat.graph.forward_count))
    last[reads] = readers  # in ascending order: the last one stays
    return last


def useful_cuts(flat: Flat, costs: Costs, most: int = 200) -> list[int]:
    """Return places to cut: behind every operator whose results the backward half will read.

    A state kept at such a place is kept for the backward's sake as well. If there are too many
    places, they are divided into as many runs of equal length, and in each that place stays where
    least crosses: no stretch of the graph is left without a cut, whatever its values weigh.

    Args:
        flat: a training graph.
        costs: tells what the values weigh.
        most: the largest number of cuts.
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


def crossing_weights(flat: Flat, costs: Costs) -> Integers:
    """Return how much memory crosses the cut behind every forward operator but the last.

    A view that crosses holds what it is a view of.
    """
    graph = flat.graph
    last = last_forward_readers(flat)
    if costs.memory_unit == "bytes":
        for node in reversed([node for node in graph.data if node.view_of is not None]):
            last[node.view_of] = max(last[node.view_of], last[node.id])
    held = np.flatnonzero((flat.producer >= 0) & (last > flat.producer))
    size = np.array(costs.data, np.int64)[held]
    change = np.zeros(graph.forward_count + 1, np.int64)
    np.add.at(change, flat.producer[held], size)
    np.subtract.at(change, last[held], size)
    return np.cumsum(change)[: max(graph.forward_count - 1, 0)]


def cheap_cuts(flat: Flat, costs: Costs) -> list[int]:
    """Return the places to cut where no less crosses at the operators next to them.

    On a chain of blocks these are the separators between the blocks; where there are none, as in a
    U-Net, they are the cheapest cuts of several values.
    """
    weights = crossing_weights(flat, costs)
    padded = np.pad(weights, 1, mode="edge") if len(weights) else weights
    cuts: list[int] = np.flatnonzero((weights <= padded[:-2]) & (weights <= padded[2:])).tolist()
    return cuts


# ------------------------------------------------------------------------------------------------
# What the stages of a graph cost and hold: the numbers that Rotor trades.
#
# All sizes are in the memory unit of the costs. A storage counts once, however many views and cuts
# it is in; sources count nothing.


@dataclass(frozen=True, slots=True)
class StageSizes:
    """What Rotor knows of a chain; sizes in the memory unit of the costs.

    Attributes:
        advance, record, replay: cost of each stage's forward operators, for the cut behind it, for
            cut and tape, for the tape alone.
        state: ``state[i][j]``: memory of state j while state i is held.
        recorded: memory of a stage's tape and the cut behind it while its own state is held.
        advance_peak, record_peak, replay_peak, back_peak: most memory during each, without the
            stage's own state and without results.
        pending: memory of the cotangents that wait behind a stage for it and those before it.
        results: memory of the results that a stage's backward half makes; they stay.
        loss: memory of the results that the forward half makes, and of what it makes that may not
            be evaluated twice; that is in none of the others.
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


class Measure:
    """Memory of sets of values: each storage counted once, sources not at all."""

    def __init__(self, problem: Problem, deadline: Clock) -> None:
        self.deadline = deadline
        self.graph, self.costs, self.root = problem.graph, problem.costs, problem.root
        self.size = problem.size.tolist()
        self.pinned = self.roots(forward_values(problem.graph, pinned_values(problem.graph)))

    def roots(self, values: Iterable[int]) -> set[int]:
        """Return the storages of some values."""
        return {self.root[data] for data in values}

    def memory(self, values: Iterable[int], held: Collection[int] = ()) -> int:
        """Return the memory of some values besides the storages that are held anyway."""
        self.deadline.check()
        roots = self.roots(values) - self.pinned
        return sum(self.size[root] for root in roots if root not in held)

    def peak(
        self, operators: Sequence[int], before: Iterable[int], after: Collection[int],
        held: Collection[int],
    ) -> int:  # fmt: skip
        """Return the most memory while some operators are evaluated.

        Args:
            operators: to evaluate, in order.
            before: values that are there at the beginning.
            after: values that stay to the end; all others go with their last reader.
            held: storages that are held anyway and not counted.
        """
        last: dict[int, int] = {}
        for position, index in enumerate(operators):
            operator = self.graph.operators[index]
            for data in (*operator.inputs, *operator.outputs):
                last[data] = position
        live = {data for data in before if data in last or data in after}
        peak = self.memory(live, held)
        for position, index in enumerate(operators):
            operator = self.graph.operators[index]
            live.update(operator.outputs)
            peak = max(peak, self.memory(live, held) + self.costs.workspace[index])
            for data in (*operator.inputs, *operator.outputs):
                if last[data] == position and data not in after:
                    live.discard(data)
        return peak


def stage_sizes(problem: Problem, parts: Stages, deadline: Clock = ENDLESS) -> StageSizes:
    """Return what Rotor needs to know of the stages.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    graph, costs = problem.graph, problem.costs
    measure = Measure(problem, deadline)
    outputs = set(graph.outputs)
    cuts: list[tuple[int, ...]] = [(), *(stage.cut for stage in parts)]
    held = [measure.roots(cut) for cut in cuts]
    waiting = waiting_cotangents(graph, parts)
    kept_outputs: set[int] = set()
    back_peak, results = [0] * len(parts), [0] * len(parts)
    for index in range(len(parts) - 1, -1, -1):
        stage = parts[index]
        behind = waiting[index + 1] if index + 1 < len(parts) else set()
        own = {data for i in stage.backward for data in graph.operators[i].outputs} & outputs
        before = kept_outputs | measure.roots(outputs_of_forward(graph))
        back_peak[index] = measure.peak(
            stage.backward, {*behind, *stage.tape}, {*waiting[index], *own}, held[index] | before
        )
        results[index] = measure.memory(own, before)
        kept_outputs |= measure.roots(own)
    cost = costs.operators

    def forward_peak(index: int, operators: Sequence[int], after: Collection[int]) -> int:
        return measure.peak(operators, (), after, held[index])

    return StageSizes(
        advance=[sum(cost[i] for i in stage.advance) for stage in parts],
        record=[sum(cost[i] for i in stage.record) for stage in parts],
        replay=[sum(cost[i] for i in stage.replay) for stage in parts],
        state=[[measure.memory(cut, own) for cut in cuts[:-1]] for own in held[:-1]],
        recorded=[
            measure.memory({*stage.tape, *stage.cut}, held[i]) for i, stage in enumerate(parts)
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
    """Return the results that forward operators make."""
    return forward_values(graph, graph.outputs)


def forward_values(graph: Graph, values: Iterable[int]) -> list[int]:
    """Return those of some values that forward operators make."""
    result = []
    for data in values:
        producer = graph.data[data].producer
        if producer is not None and producer < graph.forward_count:
            result.append(data)
    return result


def waiting_cotangents(graph: Graph, parts: Stages) -> list[set[int]]:
    """Return for every stage the backward values that wait for stages before it, results aside."""
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
