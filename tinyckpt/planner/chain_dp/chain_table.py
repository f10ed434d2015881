"""What the dynamic programs over a chain share: levels of memory, and the choice to keep a state.

Rotor, Rockmate and the program with a host fill tables Opt(s, t, m): the least cost to reverse the
stages s to t within m units of memory, state s not counted. They differ in how a stage is recorded.
Here are the other choice, *keep state k*: advance from s to k, solve (k, t) in the remaining
memory, then (s, k-1); the rounding of sizes to units of memory; and the choice of the unit.

Column m + 1 of a table is level m; column 0 is a sentinel for negative memory and never feasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import frexp
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.planner.model.stage_sizes import StageSizes

# Units of memory that are tried for a level, from one share of the memory to two, and to four: that
# with the least rounding error is taken. Doubled: a slightly smaller error.
UNITS_TRIED = 500


class ChainTable:
    """The table Opt(s, t, m), filled for one s after another, the last first.

    The m of the table counts the results of the stages after t as free; their memory is subtracted
    where m is compared. So the left part of a split has the m of the whole.

    Attributes:
        memory: the level of each column.
        rounded: the function that rounds sizes to units.
        best: costs; single precision, since the plans found are costed exactly afterwards.
        lowered: the same after subtracting the memory of state s, where no other state shares part
            of it: in the columns ``beside_state``.
        state: ``state[s, k]``: additional memory of state k while state s is resident.
        later_results: for each stage, the memory of the results of the stages after it.
        pending: for each stage, that of the cotangents that are live before its backward, and of
            those results.
    """

    def __init__(self, sizes: StageSizes, unit: int, levels: int, advance: Any) -> None:
        self.rounded, count = rounding(unit), len(sizes.advance)
        self.memory = np.arange(-1, levels + 1)
        self.best = np.full((count, count, len(self.memory)), np.inf, np.float32)
        self.lowered = np.full_like(self.best, np.inf)
        self.state, self.advance_peak = self.rounded(sizes.state), self.rounded(sizes.advance_peak)
        self.beside_state = self.columns(self.state[0])
        results = np.array([0, *accumulate(self.rounded(sizes.results))])
        self.later_results = results[-1] - results[1:]
        self.pending = self.rounded(sizes.pending) + self.later_results
        self.advanced = np.concatenate([[0.0], np.cumsum(advance)]).astype(np.float32)

    def columns(self, less: Integers) -> Integers:
        """Return the columns after subtracting sizes from memory: one row per size."""
        return shifted(self.memory, less)

    def store(self, s: int, t: int, best: Any) -> None:
        """Store the costs for stages s to t."""
        self.best[s, t] = best
        self.lowered[s, t] = self.best[s, t, self.beside_state[s]]


class KeepState:
    """The choice, for stages s to any t, of the state k to keep."""

    def __init__(self, table: ChainTable, s: int) -> None:
        self.table, self.s = table, s
        state = table.state
        kept = np.append(0, state[s, s + 1 :])
        self.passing = np.maximum.accumulate(table.advance_peak[s:] + kept)
        # Later states that share values with this one: skip connections.
        self.sharing = np.flatnonzero(state[s, s + 1 :] != state[0, s + 1 :])
        self.columns = table.columns(state[s, s + 1 + self.sharing])

    def best(self, t: int) -> tuple[Any, Any]:
        """Return the least cost of each column, and the k - s that attains it."""
        table, s = self.table, self.s
        # The right part has less memory by state k, the left the same.
        cost = table.lowered[s + 1 : t + 1, t] + table.best[s, s:t]
        for place, column in zip(self.sharing, self.columns, strict=True):
            if place < t - s:
                cost[place] = table.best[s + 1 + place, t, column] + table.best[s, s + place]
        cost += (table.advanced[s + 1 : t + 1] - table.advanced[s])[:, None]
        cost[table.memory < (table.pending[t] + self.passing[: t - s])[:, None]] = np.inf
        pick = cost.argmin(axis=0)
        return np.take_along_axis(cost, pick[None], 0)[0], (pick + 1).astype(np.int16)


def scaled(*costs: Sequence[float]) -> list[Any]:
    """Scale costs by a common power of two, so that the largest fits single precision."""
    exponent = frexp(max(map(max, costs)))[1]
    return [np.ldexp(np.asarray(each, np.float64), -exponent) for each in costs]


def shifted(memory: Integers, less: Integers) -> Integers:
    """Return the table columns after subtracting sizes from memory: one row per size."""
    return np.asarray(np.maximum(memory - less[:, None], -1) + 1)


def rounding(unit: int) -> Any:
    """Return a function that rounds sizes to the nearest number of units."""
    return lambda sizes: (np.asarray(sizes, np.int64) + unit // 2) // unit


def least_error_unit(
    sizes: Iterable[int], largest: int, levels: int, multiples: Sequence[int]
) -> int:
    """Return the bytes per level with the least total rounding error of the sizes.

    Tried are units from each multiple of the largest memory's share per level to twice that.
    """
    share = max(1, -(-largest // levels))
    size, times = np.unique(np.array([*sizes]), return_counts=True)
    tried = [np.linspace(low * share, 2 * low * share, UNITS_TRIED) for low in multiples]
    units = np.unique(np.concatenate(tried).astype(np.int64))
    remainder = size % units[:, None]
    error = (np.minimum(remainder, units[:, None] - remainder) * times).sum(axis=1)
    return int(units[error.argmin()])
