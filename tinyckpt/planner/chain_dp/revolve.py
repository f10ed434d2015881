"""Revolve: binomial checkpointing, the fewest forward evaluations to reverse a chain from s slots.

Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical
Software 26(1), 2000, doi:10.1145/347837.347846: l steps are reversed from s slots with ``t(l, s) =
r l - C(s + r, r - 1)`` advances, where r is the smallest integer with ``C(s + r, s) >= l``. **The
slot of the initial state is one of the s**, although here the initial state is the sources, which
cost nothing.

Revolve assumes that all stages are equal. Where they differ in cost or size, Rotor does better.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from tinyckpt.base.deadline import (
    DEFAULT_SECONDS,
    MOST_EVALUATIONS,
    NO_DEADLINE,
    Clock,
    check_length,
    checked_seconds,
    length_error_text,
)
from tinyckpt.base.errors import BudgetError, PolicyOptionError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.reversal import StageAction, order_of, schedule_of
from tinyckpt.planner.model.binomial_bound import (
    advances,
    fewest_evaluations,
    repetitions,
    uniform_chain,
)
from tinyckpt.planner.model.chain_cuts import local_minimum_cuts
from tinyckpt.planner.model.chain_stages import Stages, stages
from tinyckpt.planner.model.liveness import FlatGraph, Problem, problem_of

# Evaluations of the longest plan that is tried for a budget: longer ones would take minutes. They
# can be requested by their number of slots. Doubled: smaller budgets are feasible, in twice the
# time.
MAX_TRIED_EVALUATIONS = 600_000


def split(steps: int, slots: int) -> int:
    """Return the number of steps to advance before the next checkpoint (Revolve's split point).

    Several distances give the fewest advances; among those, this is one with the fewest states
    written. With b(s, r) = C(s + r, s): between b(s, r-2) and b(s, r-1), and such that b(s-1, r-1)
    + b(s-2, r-1) steps remain, if that lies between the two.
    """
    r = repetitions(steps, slots)
    fewest = comb(slots + r - 2, slots) if r >= 2 else 1
    most = comb(slots + r - 1, slots)
    remaining = comb(slots + r - 2, r - 1) + comb(slots + r - 3, r - 1)
    return min(max(steps - remaining, fewest), most)


def reversal(steps: int, slots: int) -> Iterator[StageAction]:
    """Yield the actions that reverse a chain of equal steps.

    Args:
        steps: number of stages, 1 or more.
        slots: states stored at once, the initial one included; 1 or more.
    """
    yield StageAction("keep", 0)
    splits: dict[tuple[int, int], int] = {}
    # Stack entries: reverse the steps from first to last with this many slots, its state stored.
    todo = [(0, steps, slots)]
    while todo:
        first, last, free = todo.pop()
        length = last - first
        if length == 1:
            yield StageAction("back", first)
        elif free == 1 or length == 2:
            for end in range(last - 1, first, -1):
                yield StageAction("advance", first, end)
                yield StageAction("back", end)
            yield StageAction("back", first)
        else:
            key = length, free
            if key not in splits:
                splits[key] = split(length, free)
            middle = first + splits[key]
            yield StageAction("advance", first, middle)
            yield StageAction("keep", middle)
            todo.append((first, middle, free))
            todo.append((middle, last, free - 1))


def plan_revolve(
    graph: Graph,
    costs: Costs,
    *,
    slots: int | None = None,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Store at most ``slots`` states, or as many as fit the budget, placed by Revolve.

    On ``chain(n)`` with s slots: (n+1) + t(n+1, s) evaluations, peak at most s+2 nodes, and no
    schedule with that peak has fewer.

    Args:
        graph: the training graph; its stages lie between the cuts where the fewest bytes cross.
        costs: sizes of values, for the choice of the cuts; stages count as equal.
        slots: states stored at once, the sources included; by default, as many as the budget
            allows, or about the number with which no stage is advanced through more than twice.
        budget: the largest peak allowed, in the memory unit of the costs.
        time_limit: seconds for the search for the largest number of slots within the budget.

    Raises:
        PolicyOptionError: if ``slots`` is not an integer of 1 or more.
        ScheduleError: if they are so few that the schedule would be too long.
        BudgetError: if even the fewest slots exceed the budget.
        OutOfTimeError: if the time is up.
    """
    if slots is not None and (type(slots) is not int or slots < 1):
        raise PolicyOptionError(f"revolve: slots={slots!r}; expected an integer of 1 or more")
    deadline = Clock(checked_seconds(time_limit))
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "revolve")
    # A number of slots needs no memory of the values, and so no ``Problem``.
    problem = None if slots is not None or budget is None else problem_of(graph, costs)
    flat = FlatGraph(graph) if problem is None else problem.flat
    parts = stages(flat, local_minimum_cuts(flat, costs))
    if problem is None or budget is None:
        chosen = slots or slots_for(len(parts), 2)
    else:
        chosen = largest_feasible_slots(problem, parts, budget, deadline)
    what = f"revolve on {graph.name} with {counted(chosen, 'slot')}"
    check_length(estimated_evaluations(graph, len(parts), chosen), what)
    actions = reversal(len(parts), min(chosen, len(parts)))
    note = revolve_note(len(parts), chosen)
    return schedule_of(flat, parts, actions, "revolve", {"slots": chosen}, note)


def revolve_note(stages: int, slots: int) -> str:
    """Return the note of a Revolve schedule: stages, slots and advances."""
    return (
        f"{counted(stages, 'stage')} from {counted(slots, 'slot')}: "
        f"{counted(advances(stages, slots), 'advance')}, the fewest if all stages were equal"
    )


def estimated_evaluations(graph: Graph, stages: int, slots: int) -> float:
    """Return the approximate number of evaluations to reverse a number of equal stages."""
    share = graph.forward_count / max(stages, 1)
    return advances(stages, slots) * share + len(graph.operators)


def slot_grid(graph: Graph, stages: int) -> list[int]:
    """Return the slot counts to try: all small ones, sparser towards large; no schedule too long.

    On a uniform chain each of them is optimal for some budget; there the closed form tells which.
    """
    numbers = geometric_grid(stages)
    short = [n for n in numbers if estimated_evaluations(graph, stages, n) <= MAX_TRIED_EVALUATIONS]
    return short or numbers[-1:]


def geometric_grid(count: int) -> list[int]:
    """Return a roughly geometric grid from 1 to ``count``: all small numbers, few large ones."""
    numbers = []
    number = 1
    while number < count:
        numbers.append(number)
        number = max(number + 1, round(number * 1.05))
    return [*numbers, max(count, 1)]


def slots_for(steps: int, most: int) -> int:
    """Return the fewest slots with which no step is advanced through more than ``most`` times."""
    slots = 1
    while repetitions(steps, slots) > most:
        slots += 1
    return slots


def largest_feasible_slots(
    problem: Problem, parts: Stages, budget: int, deadline: Clock = NO_DEADLINE
) -> int:
    """Search for the largest number of slots, among those tried, whose peak is within the budget.

    The peak almost always grows with the slots, but not always; so the result is checked, and is
    the largest number below which a bisection saw the peak grow.

    Raises:
        BudgetError: if even the fewest slots exceed the budget.
        OutOfTimeError: if the time is up.
    """
    chain = uniform_chain(problem.graph, problem.costs)
    if chain is not None and budget >= 3 * chain[1]:
        return optimal_slots(problem, budget, *chain)
    tried = slot_grid(problem.graph, len(parts))

    def peak(slots: int) -> int:
        deadline.check()
        return problem.peak(order_of(parts, reversal(len(parts), slots)))

    low, high = 0, len(tried) + 1  # invariant: the grid's first `low` fit, `high` do not
    while high - low > 1:
        # Few slots make long schedules: halve from above until one fits, then bisect.
        middle = high // 2 if low == 0 else (low + high) // 2
        if peak(tried[middle - 1]) <= budget:
            low = middle
        else:
            high = middle
    if low == 0:
        smallest, unit = peak(tried[0]), problem.costs.memory_unit
        raise BudgetError(
            f"revolve needs {memory_text(smallest, unit)} with {counted(tried[0], 'slot')}, which "
            f"is more than the budget of {memory_text(budget, unit)}",
            smallest,
        )
    return tried[low - 1]


def optimal_slots(problem: Problem, budget: int, n: int, size: int) -> int:
    """Return the slots with which Revolve is optimal on ``chain(n)`` within a budget.

    Raises:
        BudgetError: if the schedule would be too long; with the smallest budget for which it is
            not.
    """
    room = short = min(budget // size, n + 2)
    evaluations = fewest_evaluations(n, room)
    if evaluations > MOST_EVALUATIONS:
        while fewest_evaluations(n, short) > MOST_EVALUATIONS:
            short += 1
        unit = problem.costs.memory_unit
        what = f"the best of {problem.graph.name} within {memory_text(budget, unit)}"
        raise BudgetError(
            f"{length_error_text(evaluations, what)}; the smallest budget for which it is short "
            f"enough is {memory_text(short * size, unit)}",
            short * size,
        )
    return room - 2


REVOLVE = Policy(
    "revolve",
    plan_revolve,
    "binomial checkpointing: states in slots, placed for the fewest advances on equal stages",
    "optimal on uniform chains, without offloading, with the fewest states written; else a "
    "heuristic",
    "O(V + E) and the schedule",
    "Griewank and Walther 2000, doi:10.1145/347837.347846",
)
