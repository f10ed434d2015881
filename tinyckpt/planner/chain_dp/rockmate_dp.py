"""Rockmate's dynamic program: Rotor's chain reversal, with a choice of saved set per block.

Source: as in ``rotor`` (Beaumont et al. 2019, arXiv 1911.13214), with block options as in Rockmate
(Zhao et al. 2023, arXiv 2307.01236); ``block_options`` enumerates them. With Opt(s, t, m) the least
cost to reverse blocks s to t within m units of memory, state s not counted:

- *run s with option w*: run block s forward saving the values of w, solve (s+1, t) in the remaining
  memory, run block s backward;
- *keep state k*: advance from s to k, solve (k, t) in the remaining memory, then (s, k-1).

The policy ``blocks`` is this program on the blocks between separators. It is optimal for the
options it is given, up to the rounding of memory to levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from tinyckpt.base.deadline import DEFAULT_SECONDS, NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse, separators
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.block_options import BlockOption, BlockOptions
from tinyckpt.planner.chain_dp.chain_table import ChainTable, KeepState, least_error_unit, scaled
from tinyckpt.planner.chain_dp.reversal import unique_in_order
from tinyckpt.planner.heuristics.backward_order import (
    least_growth_order,
    least_growth_problem,
    to_original_order,
)
from tinyckpt.planner.heuristics.budget_grid import Candidate, cheapest_within, first_feasible
from tinyckpt.planner.model.budget import nothing_within
from tinyckpt.planner.model.chain_cuts import local_minimum_cuts
from tinyckpt.planner.model.chain_stages import Stages, stages
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.stage_sizes import StageSizes, stage_sizes
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_order, lower

# Blocks of a graph. The table takes time in proportion to their square: of more than MAX_BLOCKS
# neighbours are joined; doubled, four times the time. With fewer than MIN_BLOCKS separators, or
# more than MAX_APART forward operators between two, local minima of the cut size divide the graph
# instead; MIN_BLOCKS doubled, or MAX_APART halved: in more graphs.
MAX_BLOCKS, MIN_BLOCKS, MAX_APART = 130, 4, 200
# Levels of memory in the table. Sizes are rounded up to whole levels; doubled: half the rounding
# error, in twice the time and memory.
ROCKMATE_LEVELS = 256
# Separator intervals per block, a table each. Doubled: larger blocks, fewer checkpoints between.
BLOCK_LENGTHS = (1, 2)
SWEEPS = tuple((which, half) for which in range(len(BLOCK_LENGTHS)) for half in (False, True))


class BlockAction(NamedTuple):
    """One action on blocks: a ``StageAction`` with a block option.

    ``keep`` and ``advance`` are as there; ``record`` runs block ``first`` forward, ``back`` runs it
    backward, with the option ``option``.
    """

    verb: str
    first: int
    last: int = -1
    option: BlockOption | None = None


def block_cuts(problem: Problem) -> list[int]:
    """Return the forward operators after which to cut: at separators, if there are enough.

    Where all blocks read the same values, as layers do a mask or a rotary embedding, no single
    value separates them; the smallest cuts do. Of many, those are taken that are smallest over a
    longer stretch, so that equal layers are cut at equal places.
    """
    graph, flat = problem.graph, problem.flat
    places = sorted({producer_of(graph, data) for data in separators(graph)})
    apart = max(b - a for a, b in pairwise([-1, *places, graph.forward_count]))
    if len(places) < MIN_BLOCKS or apart > MAX_APART:
        reach = 1
        places = local_minimum_cuts(flat, problem.costs)
        while len(places) > MAX_BLOCKS // 2 and reach < MAX_APART:
            reach *= 2
            places = local_minimum_cuts(flat, problem.costs, reach)
    chosen: list[int] = []
    before = -1
    for place in places:
        if any(
            problem.root[data] == data
            for index in range(before + 1, place + 1)
            for data in graph.operators[index].outputs
        ):
            chosen.append(place)
        elif chosen:
            chosen[-1] = place  # only views since the last cut: move it to here
        before = place
    return chosen


class BlockTable:
    """The table Opt(s, t, m) for all blocks s <= t and memory levels m, with its choices."""

    def __init__(
        self,
        sizes: StageSizes,
        options: BlockOptions,
        unit: int,
        levels: int,
        deadline: Clock = NO_DEADLINE,
    ) -> None:
        self.unit, self.levels, self.options = unit, levels, options
        count = len(sizes.advance)
        both = [*options.through, *options.recomputed]
        advance, *costs = scaled(
            sizes.advance, *([option.cost for option in each] for each in both)
        )
        table = ChainTable(sizes, unit, levels, advance)
        memory, pending, later_results = table.memory, table.pending, table.later_results
        self.state = table.state
        self.saved = [
            table.rounded([option.saved_memory for option in each]) for each in options.through
        ]
        forward = [table.rounded([option.forward_peak for option in each]) for each in both]
        back = [table.rounded([option.backward_peak for option in each]) for each in both]
        # k - s: keep state k; -1 - w: run s with option w; 0: infeasible. Of a single block: w.
        self.choice = np.zeros(table.best.shape, np.int16)
        for s in range(count - 1, -1, -1):
            deadline.check()
            keep = KeepState(table, s)
            after_record = table.columns(self.saved[s])
            recomputed = costs[count + s][:, None] + np.zeros(len(memory))
            recomputed[memory < (back[count + s] + later_results[s])[:, None]] = np.inf
            table.store(s, s, recomputed.min(axis=0))
            self.choice[s, s] = recomputed.argmin(axis=0)
            back_from = (back[s] + later_results[s])[:, None]
            for t in range(s + 1, count):
                best, choice = keep.best(t)
                if len(self.saved[s]):
                    first = table.best[s + 1, t][after_record]
                    first = first + costs[s][:, None].astype(np.float32)
                    needed = np.maximum(pending[t] + forward[s][:, None], back_from)
                    first[memory < needed] = np.inf
                    option = first.argmin(axis=0)
                    through = np.take_along_axis(first, option[None], 0)[0]
                    better = through <= best
                    best[better], choice[better] = through[better], -1 - option[better]
                table.store(s, t, best)
                self.choice[s, t] = choice
        self.is_feasible = np.isfinite(table.best[0, -1, 1:]).tolist()

    def actions(self, level: int) -> list[BlockAction]:
        """Backtrack through the table: the actions of the best plan at a feasible memory level."""
        found = [BlockAction("keep", 0)]
        todo: list[tuple[int, int, int] | BlockAction] = [(0, len(self.choice) - 1, level)]
        while todo:
            item = todo.pop()
            if isinstance(item, BlockAction):
                found.append(item)
                continue
            s, t, memory = item
            choice = int(self.choice[s, t, memory + 1])
            if s == t:
                found.append(BlockAction("back", s, option=self.options.recomputed[s][choice]))
            elif choice < 0:
                option = self.options.through[s][-1 - choice]
                found.append(BlockAction("record", s, option=option))
                todo.append(BlockAction("back", s, option=option))
                todo.append((s + 1, t, memory - int(self.saved[s][-1 - choice])))
            else:
                k = s + choice
                found += [BlockAction("advance", s, k), BlockAction("keep", k)]
                todo.append((s, k - 1, memory))
                todo.append((k, t, memory - int(self.state[s, k])))
        return found


def order_of_actions(parts: Stages, actions: list[BlockAction]) -> list[int]:
    """Lower block actions to an order of evaluations."""
    order: list[int] = []
    # Operators that no later action evaluates, such as the loss: evaluated at the first pass.
    once = {i: own for i in range(len(parts)) if (own := parts.once.of(i, i + 1))}
    for verb, first, last, option in actions:
        if verb == "advance":
            for index in range(first, last):
                order += unique_in_order(parts.advance.of(index, index + 1), once.pop(index, ()))
        elif verb == "record":
            assert option is not None
            order += unique_in_order(option.record, once.pop(first, ()))
        elif verb == "back":
            assert option is not None
            just = once.pop(first, ())
            order += just
            skip = set(just)
            for operator in option.back:
                if operator in skip:
                    skip.discard(operator)
                else:
                    order.append(operator)
    return order


class RockmatePlans:
    """The block plans of one graph, from tables that do not depend on a budget.

    A block spans one separator interval, or two; more, where there are too many. A table covers
    memory up to store-all's peak or, at twice the resolution, up to half of it. The backward pass
    is in the order in which memory grows least.
    """

    def __init__(self, problem: Problem, deadline: Clock = NO_DEADLINE) -> None:
        self.problem, self.sequence = problem, least_growth_order(problem, deadline)
        self.reordered = least_growth_problem(problem, deadline)
        self.highest = problem.peak(range(len(self.sequence)))
        cuts = block_cuts(self.reordered)
        lengths = BLOCK_LENGTHS if len(cuts) <= MAX_BLOCKS else (-(-len(cuts) // MAX_BLOCKS),)
        self.cuts = [cuts[::-1][::length][::-1] for length in lengths]
        self.known: dict[int, tuple[Stages, StageSizes, BlockOptions]] = {}
        self.tables: dict[tuple[int, bool], BlockTable] = {}

    def divided(self, which: int, deadline: Clock) -> tuple[Stages, StageSizes, BlockOptions]:
        """Return the blocks of one length, their sizes, and their options, to be enumerated."""
        if which not in self.known:
            parts = stages(self.reordered.flat, self.cuts[which])
            sizes = stage_sizes(self.reordered, parts, deadline)
            self.known[which] = parts, sizes, BlockOptions(self.reordered, parts, self.sequence)
        return self.known[which]

    def repeats(self, which: int, deadline: Clock) -> bool:
        """Whether no more than half of the operators are in distinct blocks of one length."""
        if which >= len(self.cuts):
            return False
        examined = self.divided(which, deadline)[2].examined
        return 2 * sum(map(len, examined)) <= len(self.problem.graph.operators)

    def blocks(self, which: int, deadline: Clock) -> tuple[Stages, StageSizes, BlockOptions]:
        """Return the blocks of one length, their sizes and their options, enumerated once."""
        found = self.divided(which, deadline)
        found[2].enumerate(deadline)
        return found

    def table(self, which: int, half: bool, deadline: Clock) -> BlockTable:
        """Return the table for blocks of one length, for the whole or the lower half of memory."""
        if (which, half) not in self.tables:
            _, sizes, options = self.blocks(which, deadline)
            highest = self.highest // 2 if half else self.highest
            stored = [option.saved_memory for each in options.through for option in each]
            unit = least_error_unit([*sizes.state[0], *stored], highest, ROCKMATE_LEVELS, (1,))
            self.tables[which, half] = BlockTable(sizes, options, unit, ROCKMATE_LEVELS, deadline)
        return self.tables[which, half]

    def plans(
        self,
        which: int,
        half: bool,
        deadline: Clock = NO_DEADLINE,
        low: float = 0,
        high: float = inf,
    ) -> Iterator[Candidate]:
        """Yield plans, from little memory to much, skipping consecutive duplicates.

        Args:
            which: index of the block length.
            half: whether the table is for the lower half of memory.
            deadline: of the search.
            low, high: range of memory, lower end included, of the levels to plan for; the peaks of
                the plans are near them.

        Raises:
            OutOfTimeError: if the time is up.
            ScheduleError: if too many values cross the cuts.
        """
        if which >= len(self.cuts):
            return
        table, parts = self.table(which, half, deadline), self.blocks(which, deadline)[0]
        before: list[BlockAction] = []
        for level in range(ROCKMATE_LEVELS + 1):
            deadline.check()
            if not table.is_feasible[level] or not low <= level * table.unit < high:
                continue
            actions = table.actions(level)
            if actions != before:
                order = eliminate_dead_order(self.reordered.flat, order_of_actions(parts, actions))
                kept = sum(item.verb == "keep" for item in actions)
                note = f"{counted(len(parts), 'block')}, {counted(kept, 'state')} kept"
                yield Candidate("blocks", note, to_original_order(order.tolist(), self.sequence))
            before = actions


def plan_blocks(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Reverse the graph's blocks at the least cost within the budget.

    Args:
        graph: the training graph; a block lies between two separators.
        costs: of evaluations, and sizes of values.
        budget: the largest peak allowed, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible.
        time_limit: seconds after which the best so far is returned.

    Raises:
        BudgetError: if no schedule of this kind is within the budget.
        OutOfTimeError: if the time is up before there is any.
    """
    clock = Clock(checked_seconds(time_limit))
    problem = problem_of(graph, costs)
    stored = Candidate("blocks", "every operator is evaluated once", range(len(graph.operators)))
    highest = problem.peak(stored.order)

    def planned(room: int) -> Candidate:
        if nothing_to_reverse(graph) or highest <= room:
            return stored
        sweep = RockmatePlans(problem, clock)
        plans = (
            plan for which, half in SWEEPS for plan in sweep.plans(which, half, clock)
        )  # fmt: skip
        best, smallest = cheapest_within(problem, room, plans)
        if best is not None:
            return best
        least = highest if smallest is None else smallest
        raise nothing_within("blocks", room, least, costs.memory_unit)

    best = first_feasible(highest, planned, budget)
    return lower(graph, best.order, "blocks", {}, best.detail)


BLOCKS = Policy(
    "blocks",
    plan_blocks,
    "the least cost on a chain of blocks, each with a choice of what it saves (min-cuts)",
    "optimal for the block options that it enumerates, up to rounding",
    "O(m B^2 (B + w)) for B blocks, w options each and m levels of memory; B is at most 130",
    "Beaumont et al. 2019, arXiv 1911.13214, with options as in Zhao et al. 2023, arXiv 2307.01236",
)
