"""Chain stages of any training graph: forward operators between two cuts, with their backward ones.

Chain planners (Revolve, Rotor, Chen's recursion) know three moves per stage: advance through it,
advance and record its residuals, run its backward. This module linearises any training graph into
such stages; ``chain_cuts`` places the cuts, ``stage_sizes`` measures the stages. A cut lies after a
forward operator; the values that cross it are computed before it and read by a forward operator
after it. At a separator (dominator) that is one value; in a U-Net or a dense net it is several, and
the stage passes on several.

A backward operator belongs to the stage that computes the forward values it reads, or to the stage
after the cut that they cross. So on the canonical chain ``b_i``, which reads ``f_i``, belongs to
the stage after ``f_i``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.cuts import MAX_CROSSINGS
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.chain_cuts import last_forward_readers
from tinyckpt.planner.model.liveness import FlatGraph


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
        # The k-th cut that a value crosses is the one after the k-th stage from its own.
        stages_on = np.arange(len(value)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        return self.sorted_pairs(self.made[value] + stages_on, value)

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
