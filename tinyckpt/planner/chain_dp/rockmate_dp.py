"""Blocks: Rotor's dynamic program over blocks that may be gone through in many ways.

See ``chain_dp.block_options`` for the ways, and ``rotor`` for the program. With Opt(s, t, m) the
least cost to go back through the blocks s to t from m units of memory, state s not counted:

- *go through s in a way w*: evaluate block s saving what w saves, solve (s+1, t) with what remains,
  go back through s;
- *keep state k*: advance from s to k, solve (k, t) with what remains, then (s, k-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from tinyckpt.base.deadline import DEFAULT_SECONDS, ENDLESS, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.lowering import alive_order, from_order, kept_values
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.block_options import Way, Ways
from tinyckpt.planner.chain_dp.reversal import nothing_to_reverse, unique_in_order
from tinyckpt.planner.chain_dp.rotor import UNITS_TRIED, rounding, scaled, shifted
from tinyckpt.planner.heuristics.backward_order import frugal_problem, frugal_sequence, translated
from tinyckpt.planner.heuristics.budget_grid import Candidate, cheapest, first_that_fits
from tinyckpt.planner.model.chain_stages import Stages, StageSizes, cheap_cuts, stage_sizes, stages
from tinyckpt.planner.model.liveness import Problem

MOST_BLOCKS, FEWEST_BLOCKS = 130, 4
ROCKMATE_LEVELS = 256
LENGTHS = (1, 2)  # of blocks, in separators
SWEEPS = tuple((which, half) for which in range(len(LENGTHS)) for half in (False, True))


class Pass(NamedTuple):
    """One thing to do: keep state ``first``, advance from it to ``last``, go there, go back."""

    verb: str
    first: int
    last: int = -1
    way: Way | None = None


def block_cuts(problem: Problem) -> list[int]:
    """Return the forward operators behind which to cut: at separators, if there are enough."""
    graph, flat = problem.graph, problem.flat
    places = sorted({producer_of(graph, data) for data in separators(graph)})
    if len(places) < FEWEST_BLOCKS:
        places = cheap_cuts(flat, problem.costs)
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
            chosen[-1] = place  # nothing but views since: the later of the two
        before = place
    return chosen


class BlockTable:
    """Opt(s, t, m) for all blocks s <= t and all levels of memory m, and how it is reached."""

    def __init__(
        self, sizes: StageSizes, ways: Ways, unit: int, levels: int, deadline: Clock = ENDLESS
    ) -> None:
        self.unit, self.levels, self.ways = unit, levels, ways
        count = len(sizes.advance)
        rounded = rounding(unit)
        made = np.array([0, *accumulate(rounded(sizes.results))])
        behind = made[-1] - made[1:]
        self.state = rounded(sizes.state)
        pending, advance_peak = rounded(sizes.pending) + behind, rounded(sizes.advance_peak)
        both = [*ways.through, *ways.alone]
        advance, *costs = scaled(sizes.advance, *([way.cost for way in each] for each in both))
        advanced = np.concatenate([[0.0], np.cumsum(advance)]).astype(np.float32)
        self.held = [rounded([way.held for way in each]) for each in ways.through]
        there = [rounded([way.there_peak for way in each]) for each in both]
        back = [rounded([way.back_peak for way in each]) for each in both]
        # Column 0 stands for "less than nothing" and is never feasible.
        memory = np.arange(-1, levels + 1)
        best_of = np.full((count, count, len(memory)), np.inf, np.float32)
        lowered = np.full_like(best_of, np.inf)
        # k - s: keep state k; -1 - w: go through s in way w; 0: infeasible. Of a single block w.
        self.choice = np.zeros(best_of.shape, np.int16)
        for s in range(count - 1, -1, -1):
            deadline.check()
            own_state = shifted(memory, self.state[0, s : s + 1])[0]
            sharing = np.flatnonzero(self.state[s, s + 1 :] != self.state[0, s + 1 :])
            columns = shifted(memory, self.state[s, s + 1 + sharing])
            after_record = shifted(memory, self.held[s])
            alone = costs[count + s][:, None] + np.zeros(len(memory))
            alone[memory < (back[count + s] + behind[s])[:, None]] = np.inf
            best_of[s, s], self.choice[s, s] = alone.min(axis=0), alone.argmin(axis=0)
            lowered[s, s] = best_of[s, s, own_state]
            held = np.append(0, self.state[s, s + 1 :])
            passing = np.maximum.accumulate(advance_peak[s:] + held)
            back_from = (back[s] + behind[s])[:, None]
            for t in range(s + 1, count):
                cost = lowered[s + 1 : t + 1, t] + best_of[s, s:t]
                for place, column in zip(sharing, columns, strict=True):
                    if place < t - s:
                        cost[place] = best_of[s + 1 + place, t, column] + best_of[s, s + place]
                cost += (advanced[s + 1 : t + 1] - advanced[s])[:, None]
                cost[memory < (pending[t] + passing[: t - s])[:, None]] = np.inf
                pick = cost.argmin(axis=0)
                best = np.take_along_axis(cost, pick[None], 0)[0]
                choice = (pick + 1).astype(np.int16)
                if len(self.held[s]):
                    first = best_of[s + 1, t][after_record] + costs[s][:, None].astype(np.float32)
                    first[memory < np.maximum(pending[t] + there[s][:, None], back_from)] = np.inf
                    way = first.argmin(axis=0)
                    through = np.take_along_axis(first, way[None], 0)[0]
                    better = through <= best
                    best[better], choice[better] = through[better], -1 - way[better]
                best_of[s, t], self.choice[s, t] = best, choice
                lowered[s, t] = best[own_state]
        self.is_feasible = np.isfinite(best_of[0, -1, 1:]).tolist()

    def passes(self, level: int) -> list[Pass]:
        """Return what to do in the best plan from a level of memory, which must be feasible."""
        found = [Pass("keep", 0)]
        todo: list[tuple[int, int, int] | Pass] = [(0, len(self.choice) - 1, level)]
        while todo:
            item = todo.pop()
            if isinstance(item, Pass):
                found.append(item)
                continue
            s, t, memory = item
            choice = int(self.choice[s, t, memory + 1])
            if s == t:
                found.append(Pass("back", s, way=self.ways.alone[s][choice]))
            elif choice < 0:
                way = self.ways.through[s][-1 - choice]
                found.append(Pass("there", s, way=way))
                todo.append(Pass("back", s, way=way))
                todo.append((s + 1, t, memory - int(self.held[s][-1 - choice])))
            else:
                k = s + choice
                found += [Pass("advance", s, k), Pass("keep", k)]
                todo.append((s, k - 1, memory))
                todo.append((k, t, memory - int(self.state[s, k])))
        return found


def order_of_passes(parts: Stages, passes: list[Pass]) -> list[int]:
    """Return the order of evaluations that some passes amount to."""
    order: list[int] = []
    # What nothing asks for again, such as the loss, is evaluated when the sweep first comes by.
    once = {i: own for i in range(len(parts)) if (own := parts.once.of(i, i + 1))}
    for verb, first, last, way in passes:
        if verb == "advance":
            for index in range(first, last):
                order += unique_in_order(parts.advance.of(index, index + 1), once.pop(index, ()))
        elif verb == "there":
            assert way is not None
            order += unique_in_order(way.record, once.pop(first, ()))
        elif verb == "back":
            assert way is not None
            just = once.pop(first, ())
            order += just
            skip = set(just)
            for operator in way.back:
                if operator in skip:
                    skip.discard(operator)
                else:
                    order.append(operator)
    return order


def unit_of(sizes: StageSizes, ways: Ways, largest: int) -> int:
    """Return the size of a level, such that what is kept is near whole numbers of it.

    It is between one and two shares of the largest.
    """
    share = max(1, -(-largest // ROCKMATE_LEVELS))
    held = [way.held for each in ways.through for way in each]
    kept, times = np.unique(np.array([*sizes.state[0], *held]), return_counts=True)
    units = np.unique(np.linspace(share, 2 * share, UNITS_TRIED).astype(np.int64))
    remainder = kept % units[:, None]
    error = (np.minimum(remainder, units[:, None] - remainder) * times).sum(axis=1)
    return int(units[error.argmin()])


class RockmatePlans:
    """The plans of one graph, from tables that no budget decides.

    The blocks lie between separators, or are twice as long; longer, where those are too many. A
    table is for all of store-all's peak, or finer, for the lower half of it. The backward half is
    in the order in which memory grows least.
    """

    def __init__(self, problem: Problem, deadline: Clock = ENDLESS) -> None:
        self.problem, self.sequence = problem, frugal_sequence(problem, deadline)
        self.reordered = frugal_problem(problem, deadline)
        self.highest = problem.peak(range(len(self.sequence)))
        cuts = block_cuts(self.reordered)
        lengths = LENGTHS if len(cuts) <= MOST_BLOCKS else (-(-len(cuts) // MOST_BLOCKS),)
        self.cuts = [cuts[::-1][::length][::-1] for length in lengths]
        self.known: dict[int, tuple[Stages, StageSizes, Ways]] = {}
        self.tables: dict[tuple[int, bool], BlockTable] = {}

    def blocks(self, which: int, deadline: Clock) -> tuple[Stages, StageSizes, Ways]:
        """Return the blocks of one of the lengths, what they hold and the ways through them."""
        if which not in self.known:
            parts = stages(self.reordered.flat, self.cuts[which])
            sizes = stage_sizes(self.reordered, parts, deadline)
            ways = Ways(self.reordered, parts, self.sequence, deadline)
            self.known[which] = parts, sizes, ways
        return self.known[which]

    def table(self, which: int, half: bool, deadline: Clock) -> BlockTable:
        """Return the table for blocks of a length, and for all of memory or the lower half."""
        if (which, half) not in self.tables:
            _, sizes, ways = self.blocks(which, deadline)
            highest = self.highest // 2 if half else self.highest
            unit = unit_of(sizes, ways, highest)
            self.tables[which, half] = BlockTable(sizes, ways, unit, ROCKMATE_LEVELS, deadline)
        return self.tables[which, half]

    def plans(
        self, which: int, half: bool, deadline: Clock = ENDLESS, low: float = 0, high: float = inf
    ) -> Iterator[Candidate]:
        """Yield plans, from little memory to much, those next to each other not alike.

        Args:
            which: of the lengths of blocks.
            half: whether the table is for the lower half of memory.
            deadline: of the search.
            low, high: memory from which, and below which, plans are made; about what they take.

        Raises:
            OutOfTimeError: if the time is up.
            ScheduleError: if too much crosses the cuts.
        """
        if which >= len(self.cuts):
            return
        table, parts = self.table(which, half, deadline), self.blocks(which, deadline)[0]
        before: list[Pass] = []
        for level in range(ROCKMATE_LEVELS + 1):
            deadline.check()
            if not table.is_feasible[level] or not low <= level * table.unit < high:
                continue
            passes = table.passes(level)
            if passes != before:
                order = alive_order(self.reordered.flat, order_of_passes(parts, passes))
                kept = sum(item.verb == "keep" for item in passes)
                note = f"{counted(len(parts), 'block')}, {counted(kept, 'state')} kept"
                yield Candidate("blocks", note, translated(order.tolist(), self.sequence))
            before = passes


def plan_blocks(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Go back through the graph's blocks at the least cost within the budget.

    Args:
        graph: the training graph; a block lies between two separators.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible.
        time_limit: seconds after which the best so far is returned.

    Raises:
        BudgetError: if no schedule of this kind is within the budget.
        OutOfTimeError: if the time is up before there is any.
    """
    clock = Clock(checked_seconds(time_limit))
    problem = Problem(graph, costs)
    stored = Candidate("blocks", "every operator is evaluated once", range(len(graph.operators)))
    highest = problem.peak(stored.order)

    def planned(room: int) -> Candidate:
        if nothing_to_reverse(graph) or highest <= room:
            return stored
        sweep = RockmatePlans(problem, clock)
        plans = (
            plan for which, half in SWEEPS for plan in sweep.plans(which, half, clock)
        )  # fmt: skip
        best, smallest = cheapest(problem, room, plans)
        if best is not None:
            return best
        least = highest if smallest is None else smallest
        raise BudgetError(
            f"blocks finds nothing within {memory_text(room, costs.memory_unit)}; the smallest "
            f"peak it finds is {memory_text(least, costs.memory_unit)}",
            least,
        )

    best = first_that_fits(highest, planned, budget)
    kept = kept_values(graph, best.order)
    return from_order(graph, best.order, "blocks", {}, best.detail, kept)


BLOCKS = Policy(
    "blocks",
    plan_blocks,
    "the least cost on a chain of blocks, each kept in part as minimum cuts and runs suggest",
    "optimal for the ways through the blocks that it looks at, up to rounding",
    "O(m B^2 (B + w)) for B blocks, w ways through each and m levels of memory; B is at most 130",
    "Beaumont et al. 2019, arXiv 1911.13214, with ways as in Zhao et al. 2023, arXiv 2307.01236",
)
