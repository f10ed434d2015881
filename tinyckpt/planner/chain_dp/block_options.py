"""The ways to go through a block: what it saves for its backward half, and what that takes.

Rotor records a stage whole or not at all. A block of a real network can save the products of
matrices and make the rest again, or half of those, and so on: each way takes another amount of
memory while it waits, another while the block is gone back through, and costs another amount.

Source: X. Zhao, T. Le Hellard, L. Eyraud-Dubois, J. Gusak and O. Beaumont, "Rockmate: an efficient,
fast, automatic and generic tool for re-materialization in PyTorch", ICML 2023, arXiv 2307.01236,
whose blocks have such ways, made by an integer program. Here they are the minimum cuts of
``saving``, what is next to them, and the runs of ``passage`` in less and less memory. Blocks that
are alike, such as the layers of a transformer, are looked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.planner.chain_dp.block_backward import Passage
from tinyckpt.planner.chain_dp.min_cut import Making, SavedSet, best_choices, chosen
from tinyckpt.planner.model.chain_stages import ChainStage, Measure, Stages, waiting_cotangents
from tinyckpt.planner.model.liveness import Problem

MOST_WAYS = 40  # through a block, besides those that take least of something
# What differs by less than this share of store-all's peak is as good as equal.
GRAINS = 512
# Runs over a block times its operators, for all shapes of blocks together: some seconds.
OPTION_EVALUATIONS = 400_000


@dataclass(frozen=True, slots=True)
class Way:
    """One way to go through a block. Memory is without the block's own state and others' results.

    Attributes:
        saved: the values that wait for the backward half, what holds their memory among them.
        record: the forward operators to evaluate on the way there, in order.
        back: the operators to evaluate on the way back, in order: those of the backward half, and
            those that make again what it reads.
        held: memory of what is saved and of the cut behind the block.
        cost: of all evaluations there and back, but for one of each backward operator.
        there_peak, back_peak: most memory on the way there and on the way back.
    """

    saved: tuple[int, ...]
    record: tuple[int, ...]
    back: tuple[int, ...]
    held: int
    cost: float
    there_peak: int
    back_peak: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stage, and what is there when it is gone back through.

    Attributes:
        stage: the stage.
        state: the values that cross the cut before it.
        behind: backward values that wait for it or stages before it.
        waiting: backward values that wait for stages before it.
    """

    stage: ChainStage
    state: tuple[int, ...]
    behind: frozenset[int]
    waiting: frozenset[int]


class Ways:
    """The ways through all blocks of a graph.

    Attributes:
        through: for every block the ways to go there and later back.
        alone: for every block the ways to go back through it from its state, nothing saved.
    """

    def __init__(
        self, problem: Problem, parts: Stages, built: Sequence[int], deadline: Clock = ENDLESS
    ) -> None:
        """Find the ways.

        Args:
            problem: graph and costs.
            parts: the blocks.
            built: for every operator a number: another order of the backward half to try.
            deadline: of the search; an OutOfTimeError is raised when it is up.
        """
        self.problem, self.built, self.deadline = problem, built, deadline
        self.grain = max(1, problem.peak(range(len(problem.graph.operators))) // GRAINS)
        self.measure = Measure(problem, deadline)
        self.outputs = set(problem.graph.outputs)
        waiting = [*map(frozenset, waiting_cotangents(problem.graph, parts)), frozenset[int]()]
        blocks = [
            Block(stage, parts[i - 1].cut if i else (), waiting[i + 1], waiting[i])
            for i, stage in enumerate(parts)
        ]
        shapes = [self.shape(block) for block in blocks]
        # Of each shape the block that is looked at: its operators and values, in order.
        first = {shape: place for place, (shape, _, _) in reversed(list(enumerate(shapes)))}
        work = sum(len(shapes[place][1]) for place in first.values())
        self.runs = OPTION_EVALUATIONS // max(work, 1)
        found = {shape: self.made(blocks[place]) for shape, place in first.items()}
        self.through: list[list[Way]] = []
        self.alone: list[list[Way]] = []
        for shape, operators, values in shapes:
            _, own_operators, own_values = shapes[first[shape]]
            to_operator = dict(zip(own_operators, operators, strict=True))
            to_value = dict(zip(own_values, values, strict=True))
            for ways, those in zip((self.through, self.alone), found[shape], strict=True):
                ways.append([translated(way, to_operator, to_value) for way in those])

    def shape(self, block: Block) -> tuple[object, list[int], list[int]]:
        """Return what blocks that are alike have in common, and the operators and values in order.

        Two blocks are alike if their operators, in order, cost and weigh the same, and read the
        same of each other and of what is held for the same reason.
        """
        graph, costs, root = self.problem.graph, self.problem.costs, self.problem.root
        stage = block.stage
        roles = [set(each) for each in (
            block.behind, block.state, stage.cut, block.waiting, stage.tape, self.outputs,
        )]  # fmt: skip
        number: dict[int, int] = {}
        said: list[object] = []
        operators = [*stage.forward, *stage.backward]
        for place, operator in enumerate(operators):
            touched = graph.operators[operator]
            weight = costs.operators[operator], costs.workspace[operator], len(touched.inputs)
            said.append((place < len(stage.forward), operator in stage.once, weight))
            for data in (*touched.inputs, *touched.outputs):
                if data not in number and not graph.data[data].is_source:
                    number[data] = len(number)
                    base = root[data]
                    said.append((
                        costs.data[data], number.setdefault(base, len(number)), costs.data[base],
                        *(data in role for role in roles),
                    ))  # fmt: skip
                said.append(number.get(data))
        return tuple(said), operators, list(number)

    def made(self, block: Block) -> tuple[list[Way], list[Way]]:
        """Return the ways through a block, and those from its state alone."""
        making, wanted = self.making(block)
        corners = best_choices(making, wanted, self.deadline)
        nothing = chosen(making, wanted, set())
        choices = neighbouring_choices(making, wanted, corners, self.deadline)
        through = [self.way(block, choice.saved) for choice in choices]
        alone = [self.way(block, nothing.saved)]
        runs = self.runs // (len(corners) + 1)
        frugal = [self.frugal(block, self.way(block, choice.saved), runs) for choice in corners]
        through += [way for ways in frugal for way in ways]
        alone += self.frugal(block, alone[0], runs)
        return worth_it(through, self.grain), worth_it(alone, self.grain)

    def making(self, block: Block) -> tuple[Making, list[int]]:
        """Return how a block makes its storages, and those that its backward half reads."""
        graph, root, costs = self.problem.graph, self.problem.root, self.problem.costs
        there = self.measure.roots(block.state)
        maker = {
            data: operator
            for operator in block.stage.forward
            for data in graph.operators[operator].outputs
            if root[data] == data and data not in there
        }
        reads = {
            operator: [
                data
                for data in dict.fromkeys(root[d] for d in graph.operators[operator].inputs)
                if data in maker
            ]
            for operator in maker.values()
        }
        wanted = dict.fromkeys(root[data] for data in block.stage.tape)
        # What may not be evaluated twice is saved in any case; no sum of others is as dear.
        cost = {operator: float(costs.operators[operator]) for operator in reads}
        dear = 1.0 + 2.0 * sum(cost.values())
        cost.update((operator, dear) for operator in cost if graph.operators[operator].once)
        size = {data: costs.data[data] for data in maker}
        return Making(reads, maker, cost, size), [data for data in wanted if data in maker]

    def way(self, block: Block, storages: Collection[int]) -> Way:
        """Return the way that saves some storages of a block, and all views of them, for nothing.

        What a backward operator reads and is not there is made right before it, and stays.
        """
        self.deadline.check()
        graph, costs, stage = self.problem.graph, self.problem.costs, block.stage
        kept = set(storages)
        if costs.memory_unit == "bytes":
            for operator in stage.forward:
                own = graph.operators[operator].outputs
                kept.update(data for data in own if graph.data[data].view_of in kept)
        record = sorted({*stage.advance, *self.producers(stage, kept, set(block.state))})
        there = kept.union(block.state, (d for d in stage.tape if not self.makes(stage, d)))
        before, back = frozenset(there | block.behind), list[int]()
        for target in stage.backward:
            missing = sorted(self.producers(stage, graph.operators[target].inputs, there))
            there.update(data for i in missing for data in graph.operators[i].outputs)
            back += [*missing, target]
        evaluated = [*record, *(i for i in back if i < graph.forward_count)]
        held = self.measure.roots(block.state)
        waits, after = {*kept, *stage.cut}, block.waiting | self.results(stage)
        return Way(
            saved=tuple(sorted(kept)),
            record=tuple(record),
            back=tuple(back),
            held=self.measure.memory(waits, held),
            cost=sum(costs.operators[i] for i in evaluated),
            there_peak=self.measure.peak(record, (), waits, held),
            back_peak=self.measure.peak(back, before, after, held),
        )

    def frugal(self, block: Block, way: Way, runs: int) -> list[Way]:
        """Return the ways that save the same and go back in less memory."""
        stage, cost = block.stage, self.problem.costs.operators
        elsewhere = {data for data in stage.tape if not self.makes(stage, data)}
        passage = Passage(
            self.problem, [*stage.forward, *stage.backward], block.state,
            elsewhere.union(way.saved, block.behind), block.behind,
            block.waiting | self.results(stage),
        )  # fmt: skip
        once = sum(cost[i] for i in (*way.record,)) - sum(cost[i] for i in stage.backward)
        found = []
        for back, peak in passage.orders(self.built, way.back_peak, runs):
            self.deadline.check()
            total = once + sum(cost[i] for i in back)
            found.append(replace(way, back=tuple(back), cost=total, back_peak=peak))
        return found

    def results(self, stage: ChainStage) -> set[int]:
        """Return the results of the graph that a stage's backward half makes."""
        operators = self.problem.graph.operators
        return {data for i in stage.backward for data in operators[i].outputs} & self.outputs

    def makes(self, stage: ChainStage, data: int) -> bool:
        """Whether a stage's forward half makes a value."""
        producer = self.problem.graph.data[data].producer
        forward = stage.forward
        return producer is not None and bool(forward) and forward[0] <= producer <= forward[-1]

    def producers(
        self, stage: ChainStage, wanted: Iterable[int], there: Collection[int]
    ) -> set[int]:
        """Return the forward operators of a stage that make some values from what is there."""
        graph = self.problem.graph
        found: set[int] = set()
        todo = list(wanted)
        while todo:
            data = todo.pop()
            producer = graph.data[data].producer
            if producer is None or data in there or producer in found:
                continue
            if self.makes(stage, data):
                found.add(producer)
                todo.extend(graph.operators[producer].inputs)
        return found


def worth_it(ways: Iterable[Way], grain: int) -> list[Way]:
    """Return the ways that no other is as good as in all respects, the cheapest first.

    Of more than ``MOST_WAYS`` those that are spread from the cheapest to the dearest, and those
    that take least of one kind of memory: without them less would fit.

    Args:
        ways: any.
        grain: memory that makes no difference.
    """
    best: list[tuple[tuple[float, ...], Way]] = []
    for way in sorted(ways, key=lambda way: (way.cost, *memory_of(way))):
        own = (way.cost, *(size // grain for size in memory_of(way)))
        if not any(all(a <= b for a, b in zip(o, own, strict=True)) for o, _ in best):
            best.append((own, way))
    if len(best) <= MOST_WAYS:
        return [way for _, way in best]
    last = len(best) - 1
    places = {place * last // (MOST_WAYS - 1) for place in range(MOST_WAYS)}
    for sizes in zip(*(own for own, _ in best), strict=True):
        places.add(sizes.index(min(sizes)))
    return [best[place][1] for place in sorted(places)]


def memory_of(way: Way) -> tuple[int, int, int]:
    """Return all that a way takes of memory."""
    return way.held, way.back_peak, way.there_peak


def neighbouring_choices(
    making: Making, wanted: Collection[int], corners: Sequence[SavedSet], deadline: Clock
) -> list[SavedSet]:
    """Return some choices, and those with one value more or less saved."""
    found = {choice.saved: choice for choice in corners}
    for corner in corners:
        for value in wanted:
            deadline.check()
            choice = chosen(making, wanted, corner.saved ^ {value})
            found.setdefault(choice.saved, choice)
    return list(found.values())


def translated(way: Way, to_operator: dict[int, int], to_value: dict[int, int]) -> Way:
    """Return a way through a block as one through another that is alike."""
    return replace(
        way,
        saved=tuple(to_value[data] for data in way.saved),
        record=tuple(to_operator[operator] for operator in way.record),
        back=tuple(to_operator[operator] for operator in way.back),
    )
