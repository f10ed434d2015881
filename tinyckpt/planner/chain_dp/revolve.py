"""Revolve: with s slots for states, the fewest evaluations that go back through a chain.

Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical
Software 26(1), 2000, doi:10.1145/347837.347846: l steps are reversed from s slots with
``t(l, s) = r l - C(s + r, r - 1)`` advances, where r is the smallest integer with
``C(s + r, s) >= l``. **The slot of the initial state is one of the s**, although here the initial
state is the sources, which cost nothing.

Revolve takes all stages for equal. On a graph where they are not, Rotor does better.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from tinyckpt.base.deadline import DEFAULT_SECONDS, ENDLESS, Clock, check_length, checked_seconds
from tinyckpt.base.errors import BudgetError, PolicyOptionError
from tinyckpt.base.units import counted, memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.reversal import (
    StageAction,
    nothing_to_reverse,
    order_of,
    schedule_of,
)
from tinyckpt.planner.model.binomial_bound import advances, repetitions, uniform_chain
from tinyckpt.planner.model.chain_stages import Stages, cheap_cuts, stages
from tinyckpt.planner.model.liveness import Flat, Problem

# Evaluations of the longest plan that is tried for a budget: minutes' worth of work would not be
# worth it. A longer one can be had by its number of slots.
LONGEST_TRIED = 600_000


def split(steps: int, slots: int) -> int:
    """Return how far to advance before the next state is kept.

    Several distances give the fewest advances; among those, this is one with the fewest states
    written. With b(s, r) = C(s + r, s): between b(s, r-2) and b(s, r-1), and such that b(s-1, r-1)
    + b(s-2, r-1) steps remain, if that lies between the two.
    """
    r = repetitions(steps, slots)
    fewest = comb(slots + r - 2, slots) if r >= 2 else 1
    most = comb(slots + r - 1, slots)
    remaining = comb(slots + r - 2, r - 1) + comb(slots + r - 3, r - 1)
    return min(max(steps - remaining, fewest), most)


def revolve_actions(steps: int, slots: int) -> list[StageAction]:
    """Return the actions that reverse a chain of equal steps, as ``reversal`` yields them."""
    return list(reversal(steps, slots))


def reversal(steps: int, slots: int) -> Iterator[StageAction]:
    """Yield the actions that reverse a chain of equal steps.

    Args:
        steps: number of stages, 1 or more.
        slots: number of states that may be held at once, the initial one included; 1 or more.
    """
    yield StageAction("keep", 0)
    splits: dict[tuple[int, int], int] = {}
    # Each entry: reverse the steps from first to last with this many slots; its state is held.
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
    """Keep at most ``slots`` states, or as many as the budget allows, and place them by Revolve.

    On ``chain(n)`` with s slots: (n+1) + t(n+1, s) evaluations, peak at most s+2 nodes, and no
    schedule with that peak has fewer.

    Args:
        graph: the training graph; its stages lie between the cuts where least crosses.
        costs: tells what values weigh; stages count as equal.
        slots: states held at once, the sources included; by default, what the budget allows, or
            about the number with which no stage is advanced through more than twice.
        budget: the peak to stay within, in the memory unit of the costs.
        time_limit: seconds that the search for the slots of a budget may take.

    Raises:
        PolicyOptionError: if ``slots`` is not an integer of 1 or more.
        ScheduleError: if they are so few that the schedule would be too long.
        BudgetError: if one slot is too many.
        OutOfTimeError: if the time is up.
    """
    if slots is not None and (type(slots) is not int or slots < 1):
        raise PolicyOptionError(f"revolve: slots={slots!r}; there must be at least 1, an integer")
    deadline = Clock(checked_seconds(time_limit))
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "revolve")
    flat = Flat(graph)
    parts = stages(flat, cheap_cuts(flat, costs))
    if slots is not None or budget is None:
        chosen = slots or slots_for(len(parts), 2)
    else:
        chosen = most_slots(Problem(graph, costs), parts, budget, deadline)
    what = f"revolve on {graph.name} with {counted(chosen, 'slot')}"
    check_length(evaluations_of(graph, len(parts), chosen), what)
    actions = reversal(len(parts), min(chosen, len(parts)))
    note = noted(len(parts), chosen)
    return schedule_of(flat, parts, actions, "revolve", {"slots": chosen}, note)


def noted(stages: int, slots: int) -> str:
    """Return what a plan says of itself."""
    return (
        f"{counted(stages, 'stage')} from {counted(slots, 'slot')}: "
        f"{counted(advances(stages, slots), 'advance')}, the fewest if all stages were equal"
    )


def evaluations_of(graph: Graph, stages: int, slots: int) -> float:
    """Return about how many evaluations it takes to go back through some equal stages."""
    share = graph.forward_count / max(stages, 1)
    return advances(stages, slots) * share + len(graph.operators)


def slots_tried(graph: Graph, stages: int) -> list[int]:
    """Return numbers of slots: all of the few, fewer and fewer of the many; none too long a plan.

    On a uniform chain all are the best for some budget; there the closed form tells which.
    """
    numbers = steps_up_to(stages)
    short = [n for n in numbers if evaluations_of(graph, stages, n) <= LONGEST_TRIED]
    return short or numbers[-1:]


def steps_up_to(count: int) -> list[int]:
    """Return numbers from 1 to ``count``: all of the small ones, fewer and fewer of the large."""
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


def most_slots(problem: Problem, parts: Stages, budget: int, deadline: Clock = ENDLESS) -> int:
    """Return the most slots, of those that are tried, whose peak is within the budget.

    The peak grows with the slots almost always, not always; what is found is checked, and is the
    largest number below which a bisection saw it grow.

    Raises:
        BudgetError: if the fewest slots are too many.
        OutOfTimeError: if the time is up.
    """
    chain = uniform_chain(problem.graph, problem.costs)
    if chain is not None and budget >= 3 * chain[1]:
        return min(budget // chain[1] - 2, chain[0])
    tried = slots_tried(problem.graph, len(parts))

    def peak(slots: int) -> int:
        deadline.check()
        return problem.peak(order_of(parts, reversal(len(parts), slots)))

    low, high = 0, len(tried) + 1  # so many of those that are tried fit, or fewer than so many
    while high - low > 1:
        # Few slots make long schedules: come from above, by ever larger steps down.
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


REVOLVE = Policy(
    "revolve",
    plan_revolve,
    "as many states as there are slots, placed for the fewest advances on equal stages",
    "optimal on uniform chains, with the fewest states written; a heuristic elsewhere",
    "O(V + E) and the schedule",
    "Griewank and Walther 2000, doi:10.1145/347837.347846",
)
