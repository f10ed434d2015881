"""Block options (Rockmate): alternative saved sets of a block, each with its memory and cost.

Rotor records a stage completely or not at all. A block of a real network can save the matrix
products and recompute the rest, or save half of them, and so on: each option takes other amounts of
memory between the two passes and during each of them, and another recomputation cost.
``rockmate_dp`` chooses one option per block.

Source: X. Zhao, T. Le Hellard, L. Eyraud-Dubois, J. Gusak and O. Beaumont, "Rockmate: an efficient,
fast, automatic and generic tool for re-materialization in PyTorch", ICML 2023, arXiv 2307.01236,
whose blocks have such options, made by an integer program. Here they are the minimum cuts of
``min_cut``, the best of their neighbours (one value more or less saved), and the evictions of
``block_backward`` in less and less memory. Of identical blocks, such as the layers of a
transformer, only the first is examined; the others take over its options (memoisation by
structure). Options dominated in cost and all three memories are dropped (Pareto filter).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.core.graph import Graph
from tinyckpt.planner.chain_dp.block_backward import BlockBackward
from tinyckpt.planner.chain_dp.min_cut import (
    RecomputeGraph,
    SavedSet,
    evaluate_choice,
    hull_corners,
)
from tinyckpt.planner.model.chain_stages import ChainStage, Stages
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.stage_sizes import StorageMeter, pending_cotangents

# Options per block, in addition to those with the least of each memory. Doubled: the dynamic
# program takes twice the time for options between those that it has.
MAX_BLOCK_OPTIONS = 40
# Pareto layers of the sets of saved values, memory against cost, that become options. Doubled: half
# as much time again where blocks do not repeat; plans change by 0.1 % either way.
CHOICE_LAYERS = 3
# Memory differences below store-all's peak divided by this count as none: half a level of the
# table. Doubled: more options that the table cannot tell apart.
MEMORY_GRAINS = 512
# Evaluations of the eviction runs on all distinct blocks together: some seconds. Doubled: more runs
# on graphs of many distinct blocks, in twice the time; nothing changes where all runs fit.
OPTION_EVALUATIONS = 400_000
# Seconds to enumerate the options of a block, per pair of its operators; ten times as many per
# operator and value that its backward pass reads. If distinct blocks would take longer than there
# is time, nothing is begun. Doubled: graphs that do not repeat, such as a tree of LSTM cells, are
# left to other policies in twice the time.
ENUMERATION_SECONDS = 5e-6


@dataclass(frozen=True, slots=True)
class BlockOption:
    """One option for a block. Memory excludes the block's input state and results of other blocks.

    Attributes:
        saved: the values saved for the backward pass, with the values that own their storage.
        record: the forward operators to evaluate in the forward pass, in order.
        back: the operators to evaluate in the backward pass, in order: its own, and recomputations
            of what they read.
        saved_memory: memory of the saved values and of the cut after the block.
        cost: of all evaluations in both passes, without one evaluation per backward operator.
        forward_peak, backward_peak: peak memory of the forward pass and of the backward pass.
    """

    saved: tuple[int, ...]
    record: tuple[int, ...]
    back: tuple[int, ...]
    saved_memory: int
    cost: float
    forward_peak: int
    backward_peak: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stage with the values that are live around its backward pass.

    Attributes:
        stage: the stage.
        state: the values that cross the cut before it: its input state.
        cotangents_in: live-in cotangents: backward values for this stage or earlier ones.
        cotangents_out: those that are live afterwards: backward values for earlier stages.
        maker: for every value that the forward pass of the stage makes, the operator.
        reads: of every operator of its backward pass, which of these values it reads.
    """

    stage: ChainStage
    state: tuple[int, ...]
    cotangents_in: frozenset[int]
    cotangents_out: frozenset[int]
    maker: Mapping[int, int]
    reads: Sequence[tuple[int, tuple[int, ...]]]


def block_of(
    graph: Graph,
    stage: ChainStage,
    state: tuple[int, ...],
    cotangents_in: frozenset[int],
    cotangents_out: frozenset[int],
) -> Block:
    """Return the block of a stage."""
    operators = graph.operators
    maker = {data: i for i in stage.forward for data in operators[i].outputs}
    reads = [
        (i, tuple(data for data in operators[i].inputs if data in maker)) for i in stage.backward
    ]
    return Block(stage, state, cotangents_in, cotangents_out, maker, reads)


class BlockOptions:
    """The options of all blocks of a graph.

    Attributes:
        through: for every block the options to run forward now and backward later.
        recomputed: for every block the options to run both passes from its input state, with
            nothing saved.
    """

    def __init__(self, problem: Problem, parts: Stages, built: Sequence[int]) -> None:
        """Find identical blocks.

        Args:
            problem: graph and costs.
            parts: the blocks.
            built: for every operator its position in another order of the backward pass to try.
        """
        self.problem, self.built = problem, built
        self.grain = max(1, problem.peak(range(len(problem.graph.operators))) // MEMORY_GRAINS)
        self.outputs = set(problem.graph.outputs)
        pending = pending_cotangents(problem.graph, parts)
        self.blocks = [
            block_of(
                problem.graph, stage, parts[i - 1].cut if i else (), pending[i + 1], pending[i]
            )
            for i, stage in enumerate(parts)
        ]
        self.shapes = [self.shape(block) for block in self.blocks]
        # The first block of each structure is the one examined; the others translate its options.
        self.first = {shape: i for i, (shape, _, _) in reversed(list(enumerate(self.shapes)))}
        self.through: list[list[BlockOption]] = []
        self.recomputed: list[list[BlockOption]] = []
        self.lacked = 0.0  # seconds in which they could not be enumerated

    @property
    def examined(self) -> list[list[int]]:
        """The operators of each distinct block."""
        return [self.shapes[place][1] for place in self.first.values()]

    def enumerate(self, deadline: Clock) -> None:
        """Enumerate the options, unless that has been done.

        Raises:
            OutOfTimeError: if the time is up, or the options would take longer to enumerate.
        """
        if self.through:
            return
        counts = [len(operators) for operators in self.examined]
        tapes = [len(self.blocks[place].stage.tape) for place in self.first.values()]
        pairs = sum(n * (n + 10 * tape) for n, tape in zip(counts, tapes, strict=True))
        seconds = max(ENUMERATION_SECONDS * pairs, self.lacked)
        deadline.check()
        if (left := deadline.left()) < seconds:
            raise OutOfTimeError(
                f"would take about {seconds:.3g} s to enumerate what its blocks can save, "
                f"and has {left:.3g} s for it"
            )
        self.deadline, self.measure = deadline, StorageMeter(self.problem, deadline)
        self.runs = OPTION_EVALUATIONS // max(sum(counts), 1)
        try:
            found = {key: self.enumerate_options(self.blocks[i]) for key, i in self.first.items()}
        except OutOfTimeError:
            self.lacked = left
            raise
        for shape, operators, values in self.shapes:
            _, own_operators, own_values = self.shapes[self.first[shape]]
            to_operator = dict(zip(own_operators, operators, strict=True))
            to_value = dict(zip(own_values, values, strict=True))
            for options, those in zip((self.through, self.recomputed), found[shape], strict=True):
                options.append([translated(option, to_operator, to_value) for option in those])

    def shape(self, block: Block) -> tuple[object, list[int], list[int]]:
        """Return the structural key of a block, and its operators and values in order.

        Two blocks are identical if their operators, in order, have equal costs and sizes, read each
        other's results at the same positions, and touch values in the same roles (input state,
        output cut, tape, cotangents, results of the graph).
        """
        graph, costs, root = self.problem.graph, self.problem.costs, self.problem.root
        stage = block.stage
        roles = [set(each) for each in (
            block.cotangents_in, block.state, stage.cut, block.cotangents_out, stage.tape,
            self.outputs,
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

    def enumerate_options(self, block: Block) -> tuple[list[BlockOption], list[BlockOption]]:
        """Enumerate a block's options that save values, and those from its input state alone."""
        recompute, wanted = self.recompute(block)
        corners = hull_corners(recompute, wanted, self.deadline)
        nothing = evaluate_choice(recompute, wanted, set())
        choices = pareto_layers(
            neighbouring_saved_sets(recompute, wanted, corners, self.deadline), CHOICE_LAYERS
        )
        through = [self.option(block, choice.saved) for choice in choices]
        recomputed = [self.option(block, nothing.saved)]
        runs = self.runs // (len(corners) + 1)
        frugal = [self.frugal(block, self.option(block, choice.saved), runs) for choice in corners]
        through += [option for options in frugal for option in options]
        recomputed += self.frugal(block, recomputed[0], runs)
        return pareto_front(through, self.grain), pareto_front(recomputed, self.grain)

    def recompute(self, block: Block) -> tuple[RecomputeGraph, list[int]]:
        """Return the recompute graph of a block's storages, and those its backward pass reads."""
        graph, root, costs = self.problem.graph, self.problem.root, self.problem.costs
        resident = self.measure.roots(block.state)
        maker = {
            data: operator
            for operator in block.stage.forward
            for data in graph.operators[operator].outputs
            if root[data] == data and data not in resident
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
        # An operator that may not be evaluated twice gets a cost above any sum of the others', so
        # that its values are saved in any case.
        cost = {operator: float(costs.operators[operator]) for operator in reads}
        prohibitive = 1.0 + 2.0 * sum(cost.values())
        cost.update((operator, prohibitive) for operator in cost if graph.operators[operator].once)
        size = {data: costs.data[data] for data in maker}
        return RecomputeGraph(reads, maker, cost, size), [data for data in wanted if data in maker]

    def option(self, block: Block, storages: Collection[int]) -> BlockOption:
        """Return the option that saves given storages of a block, and all their views.

        Views weigh nothing. A value that a backward operator reads and that is not resident is
        recomputed right before it, and stays.
        """
        self.deadline.check()
        graph, costs, stage = self.problem.graph, self.problem.costs, block.stage
        kept = set(storages)
        if costs.memory_unit == "bytes":
            for operator in stage.forward:
                own = graph.operators[operator].outputs
                kept.update(data for data in own if graph.data[data].view_of in kept)
        record = sorted({*stage.advance, *self.producers(block, kept, set(block.state))})
        resident = kept.union(block.state, (d for d in stage.tape if d not in block.maker))
        before, back = frozenset(resident | block.cotangents_in), list[int]()
        for target, read in block.reads:
            if not resident.issuperset(read):
                missing = sorted(self.producers(block, read, resident))
                resident.update(data for i in missing for data in graph.operators[i].outputs)
                back += missing
            back.append(target)
        evaluated = [*record, *(i for i in back if i < graph.forward_count)]
        state = self.measure.roots(block.state)
        live_out, after = {*kept, *stage.cut}, block.cotangents_out | self.results(stage)
        return BlockOption(
            saved=tuple(sorted(kept)),
            record=tuple(record),
            back=tuple(back),
            saved_memory=self.measure.memory(live_out, state),
            cost=sum(costs.operators[i] for i in evaluated),
            forward_peak=self.measure.peak(record, (), live_out, state),
            backward_peak=self.measure.peak(back, before, after, state),
        )

    def frugal(self, block: Block, option: BlockOption, runs: int) -> list[BlockOption]:
        """Return the options with the same saved values and a backward pass in less memory."""
        stage, cost = block.stage, self.problem.costs.operators
        elsewhere = {data for data in stage.tape if data not in block.maker}
        backward_pass = BlockBackward(
            self.problem, [*stage.forward, *stage.backward], block.state,
            elsewhere.union(option.saved, block.cotangents_in), block.cotangents_in,
            block.cotangents_out | self.results(stage),
        )  # fmt: skip
        once = sum(cost[i] for i in (*option.record,)) - sum(cost[i] for i in stage.backward)
        found = []
        for back, peak in backward_pass.orders(self.built, option.backward_peak, runs):
            self.deadline.check()
            total = once + sum(cost[i] for i in back)
            found.append(replace(option, back=tuple(back), cost=total, backward_peak=peak))
        return found

    def results(self, stage: ChainStage) -> set[int]:
        """Return the results of the graph that a stage's backward operators make."""
        operators = self.problem.graph.operators
        return {data for i in stage.backward for data in operators[i].outputs} & self.outputs

    def producers(self, block: Block, wanted: Iterable[int], resident: Collection[int]) -> set[int]:
        """Return the forward operators of a block that make wanted values from resident ones."""
        operators, maker = self.problem.graph.operators, block.maker
        found: set[int] = set()
        todo = [data for data in wanted if data in maker and data not in resident]
        while todo:
            producer = maker[todo.pop()]
            if producer not in found:
                found.add(producer)
                read = operators[producer].inputs
                todo += [data for data in read if data in maker and data not in resident]
        return found


def pareto_front(options: Iterable[BlockOption], grain: int) -> list[BlockOption]:
    """Return the Pareto front of the options: cost against three memories, the cheapest first.

    A front of more than ``MAX_BLOCK_OPTIONS`` is thinned evenly from the cheapest to the most
    expensive; the minimum of each kind of memory is kept, since without it small budgets would
    become infeasible.

    Args:
        options: options of one block, in any order.
        grain: memory differences below this count as none.
    """
    best: list[tuple[tuple[float, ...], BlockOption]] = []
    for option in sorted(options, key=lambda option: (option.cost, *memory_of(option))):
        own = (option.cost, *(size // grain for size in memory_of(option)))
        if not any(all(a <= b for a, b in zip(o, own, strict=True)) for o, _ in best):
            best.append((own, option))
    if len(best) <= MAX_BLOCK_OPTIONS:
        return [option for _, option in best]
    last = len(best) - 1
    places = {place * last // (MAX_BLOCK_OPTIONS - 1) for place in range(MAX_BLOCK_OPTIONS)}
    for sizes in zip(*(own for own, _ in best), strict=True):
        places.add(sizes.index(min(sizes)))
    return [best[place][1] for place in sorted(places)]


def memory_of(option: BlockOption) -> tuple[int, int, int]:
    """Return the three memories of an option: saved, backward peak, forward peak."""
    return option.saved_memory, option.backward_peak, option.forward_peak


def neighbouring_saved_sets(
    recompute: RecomputeGraph, wanted: Collection[int], corners: Sequence[SavedSet], deadline: Clock
) -> list[SavedSet]:
    """Return sets of saved values, and their neighbours: one value more or less saved."""
    found = {choice.saved: choice for choice in corners}
    for corner in corners:
        for value in wanted:
            deadline.check()
            choice = evaluate_choice(recompute, wanted, corner.saved ^ {value})
            found.setdefault(choice.saved, choice)
    return list(found.values())


def pareto_layers(choices: Iterable[SavedSet], count: int) -> list[SavedSet]:
    """Return the first Pareto layers of some choices: each is the front of what others leave.

    Peaks, which take longer to know, may make a choice better than one that has less memory and
    cost; rarely than several.
    """
    left = sorted(choices, key=lambda choice: (choice.cost, choice.memory))
    found: list[SavedSet] = []
    for _ in range(count):
        beyond: list[SavedSet] = []
        least = inf
        for choice in left:
            (found if choice.memory < least else beyond).append(choice)
            least = min(least, choice.memory)
        left = beyond
    return found


def translated(
    option: BlockOption, to_operator: dict[int, int], to_value: dict[int, int]
) -> BlockOption:
    """Return an option of one block as the option of another, identical block."""
    return replace(
        option,
        saved=tuple(to_value[data] for data in option.saved),
        record=tuple(to_operator[operator] for operator in option.record),
        back=tuple(to_operator[operator] for operator in option.back),
    )
