"""CP-SAT model of dynamic storage allocation: rectangles that do not overlap in two dimensions.

Lifetimes are fixed intervals, offsets are variables. A cumulative constraint on sizes over time is
implied; it makes the solver reason about peaks. ``import ortools`` happens here only, at the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Integers = Any
WORKERS = 2


def least_height(
    begin: Integers, end: Integers, size: Integers, start: Integers, enough: int, seconds: float
) -> tuple[Integers, bool]:
    """Return the lowest packing found in some seconds, and whether it is proven optimal.

    Args:
        begin, end, size: of each block.
        start: a packing to begin with; returned if none is lower.
        enough: a height that is low enough; no packing lower than this is searched for.
        seconds: time limit.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    highest = int((start + size).max())
    height = model.new_int_var(min(enough, highest), highest, "height")
    times, addresses, offsets = [], [], []
    for block, (first, last, nbytes) in enumerate(
        zip(begin.tolist(), end.tolist(), size.tolist(), strict=True)
    ):
        offset = model.new_int_var(0, highest - nbytes, f"offset{block}")
        model.add(offset + nbytes <= height)
        model.add_hint(offset, int(start[block]))
        times.append(model.new_fixed_size_interval_var(first, last - first, f"time{block}"))
        addresses.append(model.new_fixed_size_interval_var(offset, nbytes, f"address{block}"))
        offsets.append(offset)
    model.add_no_overlap_2d(times, addresses)
    model.add_cumulative(times, size.tolist(), height)
    model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = WORKERS
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start, False
    found = np.array([solver.value(offset) for offset in offsets], np.int64)
    # At ``enough`` the solver stops: lower packings are not excluded.
    return found, status == cp_model.OPTIMAL and solver.value(height) > enough
