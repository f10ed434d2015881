"""Rotor: optimal persistent checkpointing of a heterogeneous chain, a dynamic program over memory.

Source: O. Beaumont, L. Eyraud-Dubois, J. Herrmann, A. Joly and A. Shilova, "Optimal checkpointing
for heterogeneous chains: how to train deep neural networks with limited memory", 2019, arXiv
1911.13214, theorem 1; also "Rotor", github.com/hiepacs-team/rotor. With Opt(s, t, m) the least cost
to reverse stages s to t within m units of memory, state s not counted:

- *record first*: evaluate stage s saving its tape, solve (s+1, t) in the remaining memory, run
  stage s backward;
- *keep state k*: advance from s to k, solve (k, t) in the remaining memory, then (s, k-1).

Persistent means that a checkpoint, once stored, stays until the backward sweep has come back to it.
Without that restriction the problem is NP-hard, and better schedules may exist.

Beyond the paper, so that any training graph is a chain of stages: a state may be several values,
shared with earlier states (a skip connection is stored once, however many cuts it crosses); results
such as gradients stay, so that less memory remains for earlier stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import numpy as np

from tinyckpt.base.deadline import DEFAULT_SECONDS, NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.chain_table import ChainTable, KeepState, least_error_unit, scaled
from tinyckpt.planner.chain_dp.reversal import StageAction, first_kept, order_of
from tinyckpt.planner.heuristics.backward_order import (
    least_growth_order,
    least_growth_problem,
    to_original_order,
)
from tinyckpt.planner.model.budget import nothing_within
from tinyckpt.planner.model.chain_cuts import residual_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.stage_sizes import StageSizes, stage_sizes
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations

# Levels of memory in a table. Sizes are rounded up to whole levels; doubled: half the rounding
# error, in twice the time and memory.
ROTOR_LEVELS = 256
# Levels that a user may ask for: with these, the tables of 200 stages take 400 MB; doubled, 800.
MAX_ROTOR_LEVELS = 1_000
# Divisors of store-all's peak, with one table each. Most budgets are in the half; a finer table is
# for budgets where the half finds nothing, since its levels are larger than the values. Doubled:
# tables of less memory, with nothing for budgets above a quarter.
HALVES, FINER = (1, 2), (4, 8, 16, 32)


class RotorTable:
    """The table Opt(s, t, m) for all stages s <= t and memory levels m, with its choices."""

    def __init__(
        self, sizes: StageSizes, unit: int, levels: int, deadline: Clock = NO_DEADLINE
    ) -> None:
        self.unit, self.levels = unit, levels
        advance, record, replay = scaled(sizes.advance, sizes.record, sizes.replay)
        table = ChainTable(sizes, unit, levels, advance)
        memory, pending, rounded = table.memory, table.pending, table.rounded
        self.best, self.state, self.recorded = table.best, table.state, rounded(sizes.recorded)
        back_peak = rounded(sizes.back_peak) + table.later_results
        replay_peak, record_peak = rounded(sizes.replay_peak), rounded(sizes.record_peak)
        # 0: record first; k - s: keep state k; -1: infeasible, or a single stage.
        self.choice = np.full(self.best.shape, -1, np.int16)
        for s in range(len(self.best) - 1, -1, -1):
            deadline.check()
            keep = KeepState(table, s)
            after_record = table.columns(self.recorded[s : s + 1])[0]
            is_feasible = memory >= max(pending[s] + replay_peak[s], back_peak[s])
            table.store(s, s, np.where(is_feasible, replay[s], np.inf))
            for t in range(s + 1, len(self.best)):
                best, choice = keep.best(t)
                first = self.best[s + 1, t, after_record] + np.float32(record[s])
                first[memory < max(pending[t] + record_peak[s], back_peak[s])] = np.inf
                better = first <= best
                best[better], choice[better] = first[better], 0
                choice[~np.isfinite(best)] = -1
                table.store(s, t, best)
                self.choice[s, t] = choice

    def actions(self, level: int, first: int = 0, last: int | None = None) -> list[StageAction]:
        """Backtrack through the table: the actions of least cost, once the first state is kept.

        Args:
            level: of memory; a feasible one: ``best[first, last, level + 1]`` is finite.
            first, last: stages; all of them if not given. If ``last`` precedes ``first``, run only
                the backward of stage ``first``, which was recorded.
        """
        actions: list[StageAction] = []
        # Stack entries: solve (s, t) at a level; or, with t < s, reverse the recorded stage s.
        todo = [(first, len(self.best) - 1 if last is None else last, level)]
        while todo:
            s, t, memory = todo.pop()
            if t <= s:
                actions.append(StageAction("back", s))
                continue
            offset = int(self.choice[s, t, memory + 1])
            if offset == 0:
                actions.append(StageAction("record", s))
                todo.append((s, s - 1, 0))
                todo.append((s + 1, t, memory - int(self.recorded[s])))
            else:
                k = s + offset
                actions.append(StageAction("advance", s, k))
                actions.append(StageAction("keep", k))
                todo.append((s, k - 1, memory))
                todo.append((k, t, memory - int(self.state[s, k])))
        return actions


def unit_of(sizes: StageSizes, largest: int, levels: int) -> int:
    """Choose the bytes per memory level so that stored sizes are close to multiples of it.

    Of the units between one and four shares of the largest memory, it has the least total rounding
    error: above two mostly on a long chain of equal stages. Or it is exact (the greatest common
    divisor of all sizes) if that needs no more levels than allowed.
    """
    exact = gcd(
        *sizes.recorded, *sizes.advance_peak, *sizes.record_peak, *sizes.replay_peak,
        *sizes.back_peak, *sizes.pending, *sizes.results, *(n for row in sizes.state for n in row),
    )  # fmt: skip
    if exact and largest <= exact * levels:
        return exact
    return least_error_unit([*sizes.state[0], *sizes.recorded], largest, levels, (1, 2))


class RotorPlans:
    """Rotor's plans of one graph, from tables that do not depend on a budget.

    One table covers memory up to store-all's peak, and others, each at a finer resolution, up to
    half of it, a quarter, and so on. The backward pass is in the order in which memory grows least.
    """

    def __init__(self, problem: Problem, deadline: Clock = NO_DEADLINE) -> None:
        self.problem, self.sequence = problem, least_growth_order(problem, deadline)
        self.reordered = least_growth_problem(problem, deadline)
        flat = self.reordered.flat
        self.parts = stages(flat, residual_cuts(flat, self.reordered.costs))
        self.sizes = stage_sizes(self.reordered, self.parts, deadline)
        self.highest = problem.peak(range(len(self.sequence)))

    def plans(
        self, share: int, levels: int = ROTOR_LEVELS, deadline: Clock = NO_DEADLINE
    ) -> Iterator[tuple[list[int], list[StageAction]]]:
        """Yield orders of evaluations and their actions, from much memory to little, each once.

        Args:
            share: the table covers memory up to one ``share``-th of store-all's peak,
                approximately.
            levels: number of levels that range is divided into.
            deadline: of the search.

        Raises:
            OutOfTimeError: if the time is up.
        """
        largest, unit = self.highest // share, self.unit(share, levels)
        if share in FINER and unit == self.unit(2, levels):
            return  # no finer than the table of the half
        table = RotorTable(self.sizes, unit, levels, deadline)
        graph, before = self.reordered.graph, None
        for level in range(min(levels, (largest - self.sizes.loss) // unit), -1, -1):
            deadline.check()
            if not np.isfinite(table.best[0, -1, level + 1]):
                return
            actions = [StageAction("keep", 0), *table.actions(level)]
            if actions != before:
                order = eliminate_dead_recomputations(graph, order_of(self.parts, actions))
                yield to_original_order(order, self.sequence), actions
            before = actions

    def unit(self, share: int, levels: int) -> int:
        """Return the bytes per level of memory."""
        return unit_of(self.sizes, self.highest // share, levels)

    def note(self, actions: list[StageAction]) -> str:
        """Return the note of a Rotor schedule: stages, and states kept."""
        states = sum(action.verb == "keep" for action in actions)
        return f"{counted(len(self.parts), 'stage')}, {counted(states, 'state')} kept"


def plan_rotor(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    levels: int = ROTOR_LEVELS,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Reverse the graph's stages at the least cost within the budget, by Rotor's dynamic program.

    Args:
        graph: the training graph; a stage is a forward operator, or several if there are many.
        costs: of evaluations, and sizes of values.
        budget: the largest peak allowed, in the memory unit of the costs; if not given, half of
            store-all's peak, or the smallest that is found.
        levels: number of levels that store-all's peak, or the lower half of it, is divided into; or
            a smaller share of it, if half has no plan within the budget. Sizes are rounded to
            levels; the peak is checked exactly.
        time_limit: seconds after which the search gives up.

    Raises:
        PolicyOptionError: if an option is invalid.
        BudgetError: if no schedule of this kind is within the budget.
        OutOfTimeError: if the time is up.
    """
    if type(levels) is not int or not 1 <= levels <= MAX_ROTOR_LEVELS:
        raise PolicyOptionError(f"rotor: levels={levels!r}; expected 1 to {MAX_ROTOR_LEVELS}")
    clock = Clock(checked_seconds(time_limit))
    problem = problem_of(graph, costs)
    stored = list(range(len(graph.operators)))
    budget_size = problem.peak(stored) // 2 if budget is None else budget
    if nothing_to_reverse(graph) or problem.peak(stored) <= budget_size:
        return from_order(graph, stored, "rotor", note="every operator is evaluated once")
    sweep = RotorPlans(problem, clock)
    smallest: tuple[int, list[int], list[StageAction]] = (sweep.highest, stored, [])
    fine = [share for share in FINER if sweep.highest // share >= budget_size]
    shares = [*HALVES, *fine[-1:]]
    if budget_size <= sweep.highest // 2:
        shares.append(shares.pop(0))
    for share in shares:
        if share == 1 and smallest[2]:
            break  # the table of the whole is the coarsest: no smaller peak
        for order, actions in sweep.plans(share, levels, clock):
            peak = problem.peak(order)
            if peak <= budget_size:
                return rotor_schedule(sweep, levels, order, actions)
            smallest = min(smallest, (peak, order, actions), key=lambda entry: entry[0])
    if budget is None:
        return rotor_schedule(sweep, levels, *smallest[1:])
    raise nothing_within("rotor", budget_size, smallest[0], costs.memory_unit)


def rotor_schedule(
    sweep: RotorPlans, levels: int, order: list[int], actions: list[StageAction]
) -> Schedule:
    """Lower an order to the schedule of the policy ``rotor``, with its note and checkpoints."""
    graph, kept = sweep.problem.graph, first_kept(sweep.parts, actions)
    return from_order(graph, order, "rotor", {"levels": levels}, sweep.note(actions), kept)


ROTOR = Policy(
    "rotor",
    plan_rotor,
    "the least cost on a chain of unequal stages, by dynamic programming over memory",
    "optimal for the stages among schedules whose states persist in device memory, up to rounding",
    "O(m L^3) for L stages and m levels of memory; L is at most 200",
    "Beaumont et al. 2019, arXiv 1911.13214",
)
