"""Costs, sizes and peaks of chain stages: the inputs of Rotor's and Rockmate's dynamic programs.

All sizes are in the memory unit of the costs. A storage counts once, however many views and cuts
contain it; sources are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.core.cuts import pinned_values
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.chain_stages import Stages
from tinyckpt.planner.model.liveness import Problem


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
        self.outputs = [one.outputs for one in problem.graph.operators]
        self.touched = [
            # Sources are never live, and may be read by every operator.
            (*(data for data in one.inputs if not problem.graph.data[data].is_source), *one.outputs)
            for one in problem.graph.operators
        ]

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
        touched, all_outputs = self.touched, self.outputs
        last = {
            data: position for position, index in enumerate(operators) for data in touched[index]
        }
        last.update(dict.fromkeys(after, len(operators)))
        live = {data for data in before if data in last}
        peak = memory = self.memory(live, excluded)
        holders = Counter(root_of[data] for data in live)
        holders.update(excluded)  # one more holder, which stays: never counted
        for position, index in enumerate(operators):
            for data in all_outputs[index]:
                if data not in live:
                    live.add(data)
                    root = root_of[data]
                    count = holders.get(root, 0)
                    if not count:
                        memory += size[root]
                    holders[root] = count + 1
            if memory + workspace[index] > peak:
                peak = memory + workspace[index]
            for data in touched[index]:
                if last[data] == position and data in live:
                    live.remove(data)
                    root = root_of[data]
                    holders[root] -= 1
                    if not holders[root]:
                        memory -= size[root]
        return peak


def stage_sizes(problem: Problem, parts: Stages, deadline: Clock = NO_DEADLINE) -> StageSizes:
    """Measure costs, sizes and peaks of the stages.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    cost, measure = problem.costs.operators, StorageMeter(problem, deadline)
    cuts: list[tuple[int, ...]] = [(), *(stage.cut for stage in parts)]
    state_roots = [measure.roots(cut) for cut in cuts]
    pending = pending_cotangents(problem.graph, parts)
    back_peak, results = backward_sizes(measure, parts, state_roots, pending)

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
        pending=[measure.memory(values) for values in pending[1:]],
        results=results,
        loss=measure.memory(outputs_of_forward(problem.graph))
        + sum(measure.size[root] for root in measure.pinned),
    )


def backward_sizes(
    measure: StorageMeter,
    parts: Stages,
    state_roots: Sequence[set[int]],
    pending: Sequence[frozenset[int]],
) -> tuple[list[int], list[int]]:
    """Return the peak of each stage's backward operators, and the memory of their results."""
    graph, outputs = measure.graph, set(measure.graph.outputs)
    back_peak, results = [0] * len(parts), [0] * len(parts)
    resident = measure.roots(outputs_of_forward(graph))  # results so far
    for index in range(len(parts) - 1, -1, -1):
        stage = parts[index]
        own = {data for i in stage.backward for data in graph.operators[i].outputs} & outputs
        back_peak[index] = measure.peak(
            stage.backward,
            {*pending[index + 1], *stage.tape},
            {*pending[index], *own},
            state_roots[index] | resident,
        )
        results[index] = measure.memory(own, resident)
        resident |= measure.roots(own)
    return back_peak, results


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


def pending_cotangents(graph: Graph, parts: Stages) -> list[frozenset[int]]:
    """Return for each stage the backward values that earlier stages read, results excluded.

    After the last stage, where the backward pass begins, there are none.
    """
    stage_of = {operator: i for i, stage in enumerate(parts) for operator in stage.backward}
    outputs = set(graph.outputs)
    pending: list[set[int]] = [set() for _ in range(len(parts) + 1)]
    for operator, made_in in stage_of.items():
        for data in graph.operators[operator].outputs:
            readers = [stage_of[reader] for reader in graph.consumers[data]]
            if readers and data not in outputs:
                for index in range(min(readers) + 1, made_in + 1):
                    pending[index].add(data)
    return [*map(frozenset, pending)]
