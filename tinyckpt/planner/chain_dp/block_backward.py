"""Backward schedules of one block at shrinking memory budgets, by eviction (for Rockmate).

The block options of Rockmate (``block_options``) need backward passes of one block at many peaks. A
block becomes a graph of its own, on which the eviction planner (``heuristics.eviction``) runs with
a shrinking budget. Live-in values (saved values and cotangents from outside the block) are produced
by pseudo-operators too expensive to be evaluated again, so that they can be evicted once they have
been read. The block's input state weighs nothing, as sources do. Values that backward operators
make of forward values alone are evaluated on demand, and can be recomputed like forward values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

from tinyckpt.base.errors import BudgetError
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import by_distance
from tinyckpt.planner.model.liveness import Problem

LIVE_IN_OPERATORS = 2  # pseudo-operators that produce live-in values: storages, views
BLOCK_HEURISTICS = (by_distance(0.0), by_distance(0.5))
# Eviction runs per sequence and heuristic, each in less memory. Doubled: blocks that need more than
# twelve steps of BUDGET_SHRINK have cheaper options in little memory, in up to twice the time.
MAX_EVICTION_RUNS = 12
# Ratio of the next run's budget to the peak of the run before. A step twice as large, 7/8: half the
# runs, and options further apart than a level of Rockmate's table.
BUDGET_SHRINK = 15, 16


class BlockBackward:
    """The backward pass of one block as a graph to plan.

    Attributes:
        problem: the block as a graph, and its costs.
        own: for each of its operators the id in the whole graph; -1 for the pseudo-operators that
            produce live-in values.
        sequence: the operators to evaluate, in order; all others are evaluated on demand.
    """

    def __init__(
        self, whole: Problem, operators: Sequence[int], state: Collection[int],
        live_in: Collection[int], cotangents: Collection[int], live_out: Collection[int],
    ) -> None:  # fmt: skip
        """Build the graph of the block.

        Args:
            whole: the whole graph, with its costs.
            operators: of the block, in order.
            state: values that are resident throughout.
            live_in: values that are resident when the backward pass of the block begins.
            cotangents: those of the live-in values that backward operators made.
            live_out: values that are resident at the end.
        """
        graph, costs, root = whole.graph, whole.costs, whole.root
        held = {root[data] for data in state}
        given = {d for d in live_in if root[d] not in held and not graph.data[root[d]].is_source}
        given |= {root[data] for data in given}
        touched = [
            data for i in operators
            for data in (*graph.operators[i].inputs, *graph.operators[i].outputs)
        ]  # fmt: skip
        storages = sorted(data for data in given if root[data] == data)
        views = sorted(data for data in given if root[data] != data)
        values = list(dict.fromkeys([*storages, *views, *touched]))
        number = {data: place for place, data in enumerate(values)}
        self.own = [-1] * LIVE_IN_OPERATORS
        made = [
            Operator(place, f"given_{place}", "given", (), tuple(number[data] for data in some))
            for place, some in enumerate((storages, views))
        ]
        for i in operators:
            outputs = [d for d in graph.operators[i].outputs if d not in given]
            if outputs:
                self.own.append(i)
                inputs = tuple(number[data] for data in graph.operators[i].inputs)
                made.append(
                    Operator(len(made), f"{i}", "block", inputs, tuple(number[d] for d in outputs))
                )
        producer = {data: operator.id for operator in made for data in operator.outputs}
        nodes = []
        for place, data in enumerate(values):
            node = graph.data[data]
            base = root[data] if data in given else node.view_of
            # A view of a value that is resident throughout needs no root: it weighs nothing.
            shared = base is not None and base != data and root[data] not in held
            view_of = number.get(base) if shared and base is not None else None
            nodes.append(replace(node, id=place, producer=producer.get(place), view_of=view_of))
        kept = [number[data] for data in live_out if data in number]
        prohibitive = 1.0 + sum(costs.operators[i] for i in operators)
        small = Graph("block", tuple(nodes), tuple(made), (), sorted(kept))
        self.problem = Problem(small, Costs(
            tuple(
                costs.operators[i]
                if i >= 0 and not graph.operators[i].once
                else prohibitive * len(made)
                for i in self.own
            ),
            tuple(0 if root[data] in held else costs.data[data] for data in values),
            tuple(costs.workspace[i] if i >= 0 else 0 for i in self.own),
            costs.unit, costs.memory_unit,
        ))  # fmt: skip
        flowing = {number[data] for data in cotangents if data in number}
        wanted, anything = set(kept), not flowing
        self.sequence: list[int] = []
        for operator in made[LIVE_IN_OPERATORS:]:
            if self.own[operator.id] >= graph.forward_count and (
                anything
                or not flowing.isdisjoint(operator.inputs)
                or not wanted.isdisjoint(operator.outputs)
            ):
                flowing.update(operator.outputs)
                self.sequence.append(operator.id)

    def orders(
        self, built: Sequence[int], budget: int, runs: int
    ) -> Iterator[tuple[list[int], int]]:
        """Yield backward passes as operators of the whole graph, each with its peak memory.

        Args:
            built: for every operator of the whole graph its position in another order to try.
            budget: each series of runs begins at twice this budget; every further run has a smaller
                one than the run before it.
            runs: upper limit of the number of runs, approximately.
        """
        sequences = [self.sequence, sorted(self.sequence, key=lambda i: built[self.own[i]])]
        runs = min(MAX_EVICTION_RUNS, runs // (len(sequences) * len(BLOCK_HEURISTICS)))
        given = list(range(LIVE_IN_OPERATORS))
        if sequences[0] == sequences[1]:
            del sequences[1]
        for sequence, score in product(sequences, BLOCK_HEURISTICS):
            most = 2 * budget
            for _ in range(runs):
                eviction = Eviction(self.problem, most, score, [*given, *sequence])
                try:
                    order = eviction.run()
                except BudgetError:
                    break
                if min(order[LIVE_IN_OPERATORS:], default=LIVE_IN_OPERATORS) < LIVE_IN_OPERATORS:
                    break  # it would read a live-in value that was evicted
                yield [self.own[i] for i in order[LIVE_IN_OPERATORS:]], eviction.peak
                most = eviction.peak * BUDGET_SHRINK[0] // BUDGET_SHRINK[1]
