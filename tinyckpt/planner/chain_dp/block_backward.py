"""The way back through a block as a small graph of its own, run in less and less memory.

What waits for the block is given, by an operator too dear to be evaluated again, so that it can be
given up when it has been read. The block's state is there in any case, as sources are. What a
backward operator makes of forward values alone is made when it is asked for, and may be made again
like they are.
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

GIVEN = 2  # operators that give what waits: storages, then views of them
BLOCK_SCORES = (by_distance(0.0), by_distance(0.5))
MOST_RUNS = 12  # with one sequence and score, each in less memory
LESS = 15, 16  # of the memory that a run took, the next may take so much


class Passage:
    """The way back through a block.

    Attributes:
        problem: the block as a graph, and its costs.
        own: for each operator of it which one of the whole graph it is; -1 for those that give.
        sequence: the operators to evaluate; others are when they are asked for.
    """

    def __init__(
        self, whole: Problem, operators: Sequence[int], state: Collection[int],
        waits: Collection[int], cotangents: Collection[int], after: Collection[int],
    ) -> None:  # fmt: skip
        """Make the graph.

        Args:
            whole: the whole graph, with its costs.
            operators: of the block, in order.
            state: what is held in any case.
            waits: what is there at first.
            cotangents: of these, what backward operators made.
            after: what must be there at the end.
        """
        graph, costs, root = whole.graph, whole.costs, whole.root
        held = {root[data] for data in state}
        given = {d for d in waits if root[d] not in held and not graph.data[root[d]].is_source}
        given |= {root[data] for data in given}
        touched = [
            data for i in operators
            for data in (*graph.operators[i].inputs, *graph.operators[i].outputs)
        ]  # fmt: skip
        storages = sorted(data for data in given if root[data] == data)
        views = sorted(data for data in given if root[data] != data)
        values = list(dict.fromkeys([*storages, *views, *touched]))
        number = {data: place for place, data in enumerate(values)}
        self.own = [-1] * GIVEN
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
            # Of a view of what is there in any case it is enough that it weighs nothing.
            shared = base is not None and base != data and root[data] not in held
            view_of = number.get(base) if shared and base is not None else None
            nodes.append(replace(node, id=place, producer=producer.get(place), view_of=view_of))
        kept = [number[data] for data in after if data in number]
        dear = 1.0 + sum(costs.operators[i] for i in operators)
        small = Graph("block", tuple(nodes), tuple(made), (), sorted(kept))
        self.problem = Problem(small, Costs(
            tuple(
                costs.operators[i] if i >= 0 and not graph.operators[i].once else dear * len(made)
                for i in self.own
            ),
            tuple(0 if root[data] in held else costs.data[data] for data in values),
            tuple(costs.workspace[i] if i >= 0 else 0 for i in self.own),
            costs.unit, costs.memory_unit,
        ))  # fmt: skip
        flowing = {number[data] for data in cotangents if data in number}
        wanted, anything = set(kept), not flowing
        self.sequence: list[int] = []
        for operator in made[GIVEN:]:
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
        """Yield ways back as operators of the whole graph, and the most memory they hold.

        Args:
            built: for every operator of the whole graph its place in another order to try.
            budget: twice of it is where each series of runs begins; each may take less than
                that before.
            runs: about how many there may be.
        """
        sequences = [self.sequence, sorted(self.sequence, key=lambda i: built[self.own[i]])]
        given = list(range(GIVEN))
        for sequence, score in product(sequences, BLOCK_SCORES):
            most = 2 * budget
            for _ in range(min(MOST_RUNS, runs // (len(sequences) * len(BLOCK_SCORES)))):
                try:
                    order = Eviction(self.problem, most, score, [*given, *sequence]).run()
                except BudgetError:
                    break
                if min(order[GIVEN:], default=GIVEN) < GIVEN:
                    break  # it would take what was given up
                peak = self.problem.peak(order)
                yield [self.own[i] for i in order[GIVEN:]], peak
                most = peak * LESS[0] // LESS[1]
