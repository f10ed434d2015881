"""What the stages of a graph cost and hold: the numbers that Rotor trades.

All sizes are in the memory unit of the costs. A storage counts once, however many views and cuts it
is in; sources count nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.core.graph import Graph
from tinyckpt.core.once import pinned_values
from tinyckpt.planner.model.chain_stages import Stages
from tinyckpt.planner.model.liveness import Problem


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

    def __init__(self, problem: Problem, limit: Clock) -> None:
        self.limit = limit
        self.graph, self.costs, self.root = problem.graph, problem.costs, problem.root
        self.size = problem.size.tolist()
        self.pinned = self.roots(forward_values(problem.graph, pinned_values(problem.graph)))

    def roots(self, values: Iterable[int]) -> set[int]:
        """Return the storages of some values."""
        return {self.root[data] for data in values}

    def memory(self, values: Iterable[int], held: Collection[int] = ()) -> int:
        """Return the memory of some values besides the storages that are held anyway."""
        self.limit.check()
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


def stage_sizes(problem: Problem, parts: Stages, limit: Clock = ENDLESS) -> StageSizes:
    """Return what Rotor needs to know of the stages.

    Raises:
        OutOfTimeError: if the limit's time is up.
    """
    graph, costs = problem.graph, problem.costs
    measure = Measure(problem, limit)
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
