"""Lagrangian dynamic program over a chain: keep, recompute or offload each of its states.

Rotor's stages and memory (``chain_dp.rotor``), and two places to store a state: on the device,
where later stages have less memory, or on the host, where they do not, and each byte moved costs a
price (a Lagrange multiplier for link time). Between two stored states the stages are reversed by
Rotor, in the memory that remains. With D(s, m) the least price to reverse all stages from s on,
state s on the device and not counted in m, H(s, m) the same with state s on the host meanwhile, and
Opt Rotor's table:

- *advance to k*, and leave its state on the device, D(k, m - state k), or on the host, H(k, m) and
  the price of state k; then Opt(s, k-1, m), or Opt(s, k-1, m - state s) where s was on the host;
- *record s*: save the tape of stage s, with state s+1, on the device or on the host.

Source: O. Beaumont, L. Eyraud-Dubois and A. Shilova, "Efficient combination of rematerialization
and offloading for training DNNs", NeurIPS 2021, is where the two are decided together, on a chain,
with Rotor between the states that are moved. This is not that program: it does not model when a
copy ends, and so no idle time. Instead there is one plan for each of several prices (Lagrangian
relaxation; Everett 1963). A high price moves little, a low one much, and for each bandwidth some
price is about right; ``timed`` tells which.

No plan depends on a budget or a bandwidth: they cover all levels of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.planner.chain_dp.chain_table import rounding, scaled, shifted
from tinyckpt.planner.chain_dp.reversal import StageAction, order_of
from tinyckpt.planner.chain_dp.rotor import RotorTable, unit_of
from tinyckpt.planner.heuristics.backward_order import (
    least_growth_order,
    least_growth_problem,
    to_original_order,
)
from tinyckpt.planner.model.chain_cuts import residual_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.stage_sizes import StageSizes, stage_sizes
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations
from tinyckpt.planner.offload.offload_saved_values import movable_values

# Stages of a chain, merged where there are more: tables of 50 MB, filled in seconds. Doubled: four
# times the memory of Rotor's table. At half of it, makespans of a chain of 64 are up to 5 % longer.
MAX_PRICED_STAGES = 100
# Levels of memory. Doubled: finer rounding of large graphs' sizes, in twice the time.
PRICED_LEVELS = 128
# Divisors of store-all's peak, one table each. One twice as large halves the rounding, and covers
# half the budgets; without the second, a chain of 400 within 3 % of its peak takes 49 % longer.
TABLE_SHARES = (1, 4)
# Prices per byte moved, in units of (cost of all forward operators) / (bytes of all states). Twice
# as many take twice the time; with every second one, makespans of a chain of 64 are up to 15 %
# longer, with the middle five up to 19 %.
LINK_PRICES = tuple(2.0**power for power in range(-4, 5))
# Evaluations, total over all plans: 80 MB if all are kept in memory. Doubled: more plans of graphs
# of thousands of operators, in twice the memory.
MAX_PRICED_EVALUATIONS = 10_000_000
DEVICE, HOST = 0, 1  # where a state is stored
RECORD = 0  # a choice: record the stage; else k - s: advance to k; -1: none


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan: evaluations in order, and the values on the host between the two passes."""

    order: tuple[int, ...]
    moved: tuple[int, ...]
    cost: float


class PricedTables:
    """The tables D and H of one chain, for each price, and the choices that attain them.

    Attributes:
        table: Rotor's.
        best: by price, place (device or host), stage and column of memory, as Rotor's columns.
        choice: the stage advanced to, relative, or RECORD; -1 for none, or Rotor alone.
        place: where the next state is stored.
    """

    def __init__(self, sizes: StageSizes, unit: int, levels: int, deadline: Clock) -> None:
        self.table = RotorTable(sizes, unit, levels, deadline)
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
        """Fill state s's entries: for each price and memory, the next choice and its place."""
        columns, memory, last = np.arange(len(self.memory)), self.memory, len(self.advanced) - 2
        later = np.arange(s + 1, last + 1)
        reversal = self.reversal_cost(s, where)
        less = shifted(memory, self.table.state[s if where == DEVICE else 0, s + 1 :])
        after_record = {DEVICE: shifted(memory, self.recorded[s : s + 1])[0], HOST: columns}
        no_room = memory[self.remaining(s, where)] < self.record_needs[s]
        for p, price in enumerate(self.prices):
            # Advance to a later state, stored on the device or on the host.
            on_device = self.best[p, DEVICE][later[:, None], less]
            on_host = self.best[p, HOST, s + 1 :] + price * self.weight[s, s + 1 :, None]
            is_out = on_host < on_device
            cost = reversal + np.where(is_out, on_host, on_device)
            pick = cost.argmin(axis=0)
            best, choice = cost[pick, columns], pick + 1
            place = is_out[pick, columns].astype(np.int8)
            # Record stage s.
            for to in (DEVICE, HOST):
                first = self.best[p, to, s + 1, after_record[to]]
                first = first + self.record[s] + to * price * self.sizes.recorded[s]
                first[no_room] = np.inf
                better = first < best
                best = np.where(better, first, best)
                choice[better], place[better] = RECORD, to
            if where == DEVICE:  # no further state on the host
                alone = self.table.best[s, last] <= best
                best = np.where(alone, self.table.best[s, last], best)
                choice[alone] = -1
            self.best[p, where, s] = best
            self.choice[p, where, s], self.place[p, where, s] = choice, place

    def remaining(self, s: int, where: int) -> Any:
        """Return, for each column, the column of the memory that remains beside state s."""
        if where == DEVICE:
            return np.arange(len(self.memory))
        return shifted(self.memory, self.table.state[0, s : s + 1])[0]

    def reversal_cost(self, s: int, where: int) -> Any:
        """Return the cost to advance to each state after s, and to reverse the stages up to it."""
        last, remaining = len(self.advanced) - 2, self.remaining(s, where)
        state = self.table.state[s, s + 1 : last]
        passing = np.maximum.accumulate(self.peak[s:last] + np.append(0, state))
        across = (self.advanced[s + 1 : last + 1] - self.advanced[s])[:, None]
        cost = self.table.best[s, s:last][:, remaining] + across
        cost[self.memory[remaining] < passing[:, None]] = np.inf
        return cost

    def plan(self, price: int, level: int) -> tuple[list[StageAction], list[int], list[int]]:
        """Backtrack: return the actions, and the states and recorded stages stored on the host."""
        state = self.table.state
        actions = [StageAction("keep", 0)]
        states, tapes = [], []
        # Stages yet to be reversed: stages s to t at a level; t < s: the recorded stage s.
        stack: list[tuple[int, int, int]] = []
        s, where, last = 0, DEVICE, len(state) - 1
        while True:
            column = level + 1
            choice = int(self.choice[price, where, s, column])
            to = int(self.place[price, where, s, column])
            remaining = level if where == DEVICE else max(level - int(state[0, s]), -1)
            if choice < 0:
                stack.append((s, last, remaining))
                break
            if choice == RECORD:
                actions.append(StageAction("record", s))
                stack.append((s, s - 1, 0))
                k, less = s + 1, int(self.table.recorded[s])
                tapes += [s] if to == HOST else []
            else:
                k = s + choice
                actions += [StageAction("advance", s, k), StageAction("keep", k)]
                stack.append((s, k - 1, remaining))
                less = int(state[s if where == DEVICE else 0, k])
            if to == HOST:
                states.append(k)
            else:
                level -= less
            s, where = k, to
        while stack:
            s, t, own = stack.pop()
            actions += self.table.actions(own, s, t)
        return actions, states, tapes


def priced_plans(graph: Graph, costs: Costs, deadline: Clock = NO_DEADLINE) -> Iterator[PricedPlan]:
    """Yield plans with values on the host, each once.

    Raises:
        OutOfTimeError: if the time is up.
    """
    problem = Problem(graph, costs)
    sequence, own = least_growth_order(problem, deadline), least_growth_problem(problem, deadline)
    parts = stages(own.flat, residual_cuts(own.flat, own.costs, MAX_PRICED_STAGES))
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
            break  # sizes are exact: this table would be a part of the larger one
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
                order = to_original_order(
                    eliminate_dead_recomputations(own.graph, order_of(parts, actions)), sequence
                )
                length += len(order)
                if length > MAX_PRICED_EVALUATIONS:
                    return
                cost = sum(costs.operators[index] for index in order)
                yield PricedPlan(tuple(order), tuple(sorted(values & movable)), cost)
