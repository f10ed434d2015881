"""Keep, recompute or move the states of a chain: a dynamic program that gives the link a price.

Rotor's stages and memory (``chain_dp.rotor``), and two ways to keep a state: on the device, where
the stages behind it have less memory, or on the host, where they do not, and each byte that is
moved costs a price. What lies between two kept states is reversed as rotor does, in the memory that
is there. With D(s, m) the least price to reverse the stages from s on, state s on the device and
not counted in m, H(s, m) the same with state s on the host meanwhile, and Opt rotor's table:

- *advance to k*, and leave its state on the device, D(k, m - state k), or on the host, H(k, m) and
  the price of state k; then Opt(s, k-1, m), or Opt(s, k-1, m - state s) where s was on the host;
- *record s*: keep what its backward half reads, with state s+1, on the device or on the host.

Source: O. Beaumont, L. Eyraud-Dubois and A. Shilova, "Efficient combination of rematerialization
and offloading for training DNNs", NeurIPS 2021, is where the two are decided together, on a chain,
with rotor between the states that are moved. This is not that program: it has no notion of when a
copy ends, and so of idle time. Instead there is a plan for each of several prices. A high one moves
little, a low one much, and for each bandwidth some price is about right; ``timed`` tells which.

No plan depends on a budget or a bandwidth: they are for all levels of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import without_dead
from tinyckpt.planner.chain_dp.reversal import StageAction, order_of
from tinyckpt.planner.chain_dp.rotor import Table, rounding, scaled, shifted, unit_of
from tinyckpt.planner.heuristics.backward_order import frugal_problem, frugal_sequence, translated
from tinyckpt.planner.model.chain_stages import StageSizes, stage_sizes, stages, useful_cuts
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.offload.prefetch import movable_values

MOST_STAGES = 100  # tables of 50 MB, made in seconds
PRICED_LEVELS = 128
TABLE_SHARES = (1, 4)  # of store-all's peak, each with a table: the smaller, the finer
# Prices of a byte, in what all forward operators cost for each byte of all states.
LINK_PRICES = tuple(2.0**power for power in range(-4, 5))
MOST_PRICED_EVALUATIONS = 10_000_000  # of all plans together: 80 MB, if all of them are held
DEVICE, HOST = 0, 1  # where a state waits
RECORD = 0  # a choice: record the stage; k - s: advance to k; -1: none


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan: evaluations in order, and the values that wait on the host between the sweeps."""

    order: tuple[int, ...]
    moved: tuple[int, ...]
    cost: float


class PricedTables:
    """D and H of one chain, for each price, and how they are reached.

    Attributes:
        table: rotor's.
        best: by price, place, stage and column of memory, as rotor's columns.
        choice: the stage advanced to, relative, or RECORD; -1 for none, or rotor alone.
        place: where the next state waits.
    """

    def __init__(self, sizes: StageSizes, unit: int, levels: int, deadline: Clock) -> None:
        self.table = Table(sizes, unit, levels, deadline)
        self.sizes, rounded = sizes, rounding(unit)
        count, self.memory = len(sizes.advance), np.arange(-1, levels + 1)
        advance, self.record, _ = scaled(sizes.advance, sizes.record, sizes.replay)
        self.advanced = np.concatenate([[0.0], np.cumsum(advance)])
        self.peak, self.recorded = rounded(sizes.advance_peak), rounded(sizes.recorded)
        self.record_needs = np.maximum(rounded(sizes.record_peak), rounded(sizes.back_peak))
        self.weight = np.array(sizes.state, np.float64)
        whole = max(float(self.weight[0].sum()), 1.0)
        self.prices = np.array(LINK_PRICES) * (float(self.advanced[-1]) / whole)
        shape = len(LINK_PRICES), 2, count, len(self.memory)
        self.best = np.full(shape, np.inf, np.float32)
        self.choice = np.full(shape, -1, np.int16)
        self.place = np.zeros(shape, np.int8)
        last = count - 1
        self.best[:, DEVICE, last] = self.table.best[last, last]
        for s in range(last - 1, -1, -1):
            deadline.check()
            for where in (DEVICE, HOST):
                self.fill(s, where)

    def fill(self, s: int, where: int) -> None:
        """Decide, for each price and column of memory, what is next after state s, and where."""
        columns, memory, last = np.arange(len(self.memory)), self.memory, len(self.advanced) - 2
        left = self.left(s, where)
        behind = np.arange(s + 1, last + 1)
        there = shifted(memory, self.table.state[s if where == DEVICE else 0, s + 1 :])
        after = {DEVICE: shifted(memory, self.recorded[s : s + 1])[0], HOST: columns}
        no_record = memory[self.beside(s, where)] < self.record_needs[s]
        for p, price in enumerate(self.prices):
            stays = self.best[p, DEVICE][behind[:, None], there]
            leaves = self.best[p, HOST, s + 1 :] + price * self.weight[s, s + 1 :, None]
            is_out = leaves < stays
            cost = left + np.where(is_out, leaves, stays)
            pick = cost.argmin(axis=0)
            best, choice = cost[pick, columns], pick + 1
            place = is_out[pick, columns].astype(np.int8)
            for to in (DEVICE, HOST):
                first = self.best[p, to, s + 1, after[to]]
                first = first + self.record[s] + to * price * self.sizes.recorded[s]
                first[no_record] = np.inf
                better = first < best
                best = np.where(better, first, best)
                choice[better], place[better] = RECORD, to
            if where == DEVICE:  # nothing more on the host
                alone = self.table.best[s, last] <= best
                best = np.where(alone, self.table.best[s, last], best)
                choice[alone] = -1
            self.best[p, where, s] = best
            self.choice[p, where, s], self.place[p, where, s] = choice, place

    def beside(self, s: int, where: int) -> Any:
        """Return the columns of the memory that there is beside state s, for each column."""
        if where == DEVICE:
            return np.arange(len(self.memory))
        return shifted(self.memory, self.table.state[0, s : s + 1])[0]

    def left(self, s: int, where: int) -> Any:
        """Return what it takes to advance to each state behind s, and to reverse up to it."""
        last, beside = len(self.advanced) - 2, self.beside(s, where)
        state = self.table.state[s, s + 1 : last]
        passing = np.maximum.accumulate(self.peak[s:last] + np.append(0, state))
        across = (self.advanced[s + 1 : last + 1] - self.advanced[s])[:, None]
        left = self.table.best[s, s:last][:, beside] + across
        left[self.memory[beside] < passing[:, None]] = np.inf
        return left

    def plan(self, price: int, level: int) -> tuple[list[StageAction], list[int], list[int]]:
        """Return the actions, the states, and the recorded stages, that wait on the host."""
        state = self.table.state
        actions = [StageAction("keep", 0)]
        states, tapes = [], []
        # What is left to be done, last first: stages s to t from a level; t < s is "go back".
        behind: list[tuple[int, int, int]] = []
        s, where, last = 0, DEVICE, len(state) - 1
        while True:
            column = level + 1
            choice = int(self.choice[price, where, s, column])
            to = int(self.place[price, where, s, column])
            beside = level if where == DEVICE else max(level - int(state[0, s]), -1)
            if choice < 0:
                behind.append((s, last, beside))
                break
            if choice == RECORD:
                actions.append(StageAction("record", s))
                behind.append((s, s - 1, 0))
                k, less = s + 1, int(self.table.recorded[s])
                tapes += [s] if to == HOST else []
            else:
                k = s + choice
                actions += [StageAction("advance", s, k), StageAction("keep", k)]
                behind.append((s, k - 1, beside))
                less = int(state[s if where == DEVICE else 0, k])
            if to == HOST:
                states.append(k)
            else:
                level -= less
            s, where = k, to
        while behind:
            s, t, own = behind.pop()
            actions += self.table.actions(own, s, t)
        return actions, states, tapes


def priced_plans(graph: Graph, costs: Costs, deadline: Clock = ENDLESS) -> Iterator[Priced]:
    """Yield plans with values on the host, each once.

    Raises:
        OutOfTimeError: if the time is up.
    """
    problem = Problem(graph, costs)
    sequence, own = frugal_sequence(problem, deadline), frugal_problem(problem, deadline)
    parts = stages(own.flat, useful_cuts(own.flat, own.costs, MOST_STAGES))
    if len(parts) < 2:
        return
    sizes = stage_sizes(own, parts, deadline)
    highest = problem.peak(range(len(graph.operators)))
    movable = set(movable_values(graph, recomputing=True))
    seen: set[object] = set()
    length = finest = 0
    for part in TABLE_SHARES:
        largest = max(highest // part, 1)
        unit = unit_of(sizes, largest, PRICED_LEVELS)
        levels = min(PRICED_LEVELS, (largest - sizes.loss) // unit)
        if levels < 0 or unit == finest:
            break  # nothing is rounded: the smaller table is a part of the larger one
        finest = unit
        program = PricedTables(sizes, unit, levels, deadline)
        for level in range(levels, -1, -1):
            for price in range(len(LINK_PRICES)):
                deadline.check()
                if not isfinite(program.best[price, DEVICE, 0, level + 1]):
                    continue
                actions, states, tapes = program.plan(price, level)
                if not states or (key := (tuple(actions), tuple(states))) in seen:
                    continue
                seen.add(key)
                values = {data for k in states for data in parts[k - 1].cut}
                values |= {data for s in tapes for data in parts[s].tape}
                order = translated(without_dead(own.graph, order_of(parts, actions)), sequence)
                length += len(order)
                if length > MOST_PRICED_EVALUATIONS:
                    return
                cost = sum(costs.operators[index] for index in order)
                yield Priced(tuple(order), tuple(sorted(values & movable)), cost)
