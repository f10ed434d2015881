"""Validation of integers, costs and sizes: finite, in the range that planners compute in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isnan
from numbers import Integral, Real
from operator import index
from typing import Any

from tinyckpt.base.errors import ScheduleError

LARGEST_COST = 1e300  # sums of such costs are still finite
# Bound on the total of all values and workspaces. A schedule may have two copies of a value alive
# (a view may keep an older evaluation's block), and planners sum over such sets: 64-bit integers
# leave a factor of 8 for that.
LARGEST_MEMORY = 2**60


def check_total(data: Sequence[int], workspace: Sequence[int], unit: str) -> None:
    """Raise a ScheduleError if the total memory exceeds the planners' integer range."""
    if unit not in ("bytes", "nodes"):
        raise ScheduleError(f"costs: memory_unit={unit!r:.80}; expected 'bytes' or 'nodes'")
    if (total := sum(data) + sum(workspace)) >= LARGEST_MEMORY:
        raise ScheduleError(
            f"all values and workspaces total {total:,} {unit}; "
            f"planners support less than {LARGEST_MEMORY:,}"
        )


def listed_numbers(numbers: Any, what: str) -> Sequence[Any]:
    """Return costs or sizes as a sequence; raise a ScheduleError if they are none."""
    if isinstance(numbers, list | tuple):
        return numbers
    if isinstance(numbers, Mapping) or not isinstance(numbers, Iterable):
        raise ScheduleError(f"costs: {what}={numbers!r:.80}; expected one number for each")
    return tuple(numbers)


def validated_costs(costs: Sequence[Any], names: Sequence[str] = ()) -> tuple[float, ...]:
    """Validate costs and convert them to Python numbers: integers as they are, others to floats.

    Raises:
        ScheduleError: names the first operator whose cost is invalid, or its position.
    """
    costs = numbers = listed_numbers(costs, "operators")
    if not set(map(type, costs)) <= {int, float}:  # rarely
        numbers = [to_python_number(cost) for cost in costs]
    distinct = set(numbers)  # checked in bulk: of 100,000 costs usually few are distinct
    in_range = min(distinct, default=0) >= 0 and max(distinct, default=0) < LARGEST_COST
    if in_range and not isnan(sum(distinct)):
        return tuple(numbers)
    for position, cost in enumerate(numbers):
        if not 0 <= cost < LARGEST_COST:
            who = names[position] if names else f"operator {position}"
            raise ScheduleError(
                f"costs: that of {who} is {costs[position]!r:.80}; it must be a finite number of 0 "
                f"or more, below {LARGEST_COST:g}"
            )
    return tuple(numbers)


def to_python_number(cost: Any) -> float:
    """Convert a cost to a Python number; infinity if it is not one or too large for a float."""
    if isinstance(cost, bool) or not isinstance(cost, Real):
        return inf
    if isinstance(cost, Integral):
        return int(cost)
    try:
        return float(cost)
    except OverflowError:
        return inf


def as_integer(number: Any) -> int | None:
    """Convert an integer, NumPy's too, to int; None for anything else."""
    try:
        return None if isinstance(number, bool) else index(number)
    except TypeError:
        return None


def validated_sizes(sizes: Sequence[Any], what: str) -> tuple[int, ...]:
    """Validate sizes and convert them to Python integers."""
    sizes = listed_numbers(sizes, what)
    if not set(map(type, sizes)) <= {int}:
        for size in sizes:
            if not isinstance(size, Integral) or isinstance(size, bool):
                raise ScheduleError(
                    f"costs: a size in {what} is {size!r:.80}; it must be an integer"
                )
        sizes = [int(size) for size in sizes]
    if min(sizes, default=0) < 0:
        raise ScheduleError(f"costs: a size in {what} is {min(sizes)}; it must be 0 or more")
    return tuple(sizes)
