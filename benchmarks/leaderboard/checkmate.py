"""Checkmate: optimal rematerialization in a fixed order by mixed-integer programming, with HiGHS.

Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys
2020, arXiv 1910.02653, section 4. Stage t ends with the first evaluation of operator t. R[t, v]
says that v is evaluated in stage t, S[t, v] that its value is saved into stage t, FREE[t, u, k]
that u is freed in stage t after k, and U[t, k] is the memory while k is evaluated:

    minimise the sum of cost[v] R[t, v], with R[t, t] = 1, and R[t, v] = S[t, v] = 0 for later v,
    R[t, v] <= R[t, u] + S[t, u]                          for each u that v reads
    S[t + 1, v] <= S[t, v] + R[t, v]
    U[t, k + 1] = U[t, k] - the sum of size[u] FREE[t, u, k] + size[k + 1] R[t, k + 1] <= budget

FREE[t, u, k] is 1 exactly where none of its hazards is: k is not evaluated, u is saved into the
next stage, or a later reader of u is evaluated in this one. Results are saved into the stage after
the last. An optimum is one of the schedules in the given order that evaluate an operator at most
once per stage.

Variables number about 3 n^2 / 2 + n edges / 2; a model of more than MOST_VARIABLES is refused
before anything is built.

    pip install scipy
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.leaderboard.instances import Instance

# HiGHS solves the linear relaxation of larger models in more than a minute on one processor.
MOST_VARIABLES = 25_000
RESERVED = 1.0  # seconds of the time limit for what follows the solver


class TooLargeError(Exception):
    """The model would have too many variables."""


@dataclass(slots=True)
class Rows:
    """Linear constraints, each a row of coefficients between two bounds."""

    row: list[int]
    column: list[int]
    value: list[float]
    low: list[float]
    high: list[float]

    def add(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        """Add a constraint."""
        for column, value in terms:
            self.row.append(len(self.low))
            self.column.append(column)
            self.value.append(value)
        self.low.append(low)
        self.high.append(high)


class Model:
    """Variables by number: R, S, U and FREE, in this order."""

    def __init__(self, instance: Instance) -> None:
        self.instance, count = instance, len(instance.costs)
        self.readers: list[list[int]] = [[] for _ in range(count)]
        for operator, values in enumerate(instance.reads):
            for value in values:
                self.readers[value].append(operator)
        self.freed = [sorted({*values, own}) for own, values in enumerate(instance.reads)]
        pairs = count * (count + 1) // 2
        frees = sum(len(values) * (count - own) for own, values in enumerate(self.freed))
        self.size = 3 * pairs + frees
        if self.size > MOST_VARIABLES:
            raise TooLargeError(
                f"a model of {self.size:,} variables; at most {MOST_VARIABLES:,} are tried"
            )
        self.pairs = pairs
        self.free: dict[tuple[int, int, int], int] = {}
        for stage in range(count):
            for own in range(stage + 1):
                for value in self.freed[own]:
                    self.free[stage, value, own] = 3 * pairs + len(self.free)

    def r(self, stage: int, own: int) -> int:
        """Return the variable that says that an operator is evaluated in a stage."""
        return stage * (stage + 1) // 2 + own

    def s(self, stage: int, value: int) -> int | None:
        """Return the variable that says that a value is saved into a stage, None for later ones."""
        return self.pairs + (stage - 1) * stage // 2 + value if value < stage else None

    def u(self, stage: int, own: int) -> int:
        """Return the memory while an operator is evaluated in a stage."""
        return 2 * self.pairs + stage * (stage + 1) // 2 + own

    def terms(self, stage: int, value: int, factor: float) -> list[tuple[int, float]]:
        """Return S as a term, of a stage up to the one after the last."""
        variable = self.s(stage, value)
        return [] if variable is None else [(variable, factor)]


def constraints(model: Model, unit: int) -> Rows:
    """Return all constraints; memory is counted in ``unit`` bytes."""
    rows, instance = Rows([], [], [], [], []), model.instance
    count, size = len(instance.costs), [nbytes / unit for nbytes in instance.sizes]
    for stage in range(count):
        for own in range(stage + 1):
            evaluated = model.r(stage, own)
            for value in instance.reads[own]:
                made = [(model.r(stage, value), -1.0), *model.terms(stage, value, -1.0)]
                rows.add([(evaluated, 1.0), *made], -np.inf, 0.0)
            saved = model.s(stage + 1, own)
            if saved is not None:
                made = [(evaluated, -1.0), *model.terms(stage, own, -1.0)]
                rows.add([(saved, 1.0), *made], -np.inf, 0.0)
            for value in model.freed[own]:
                add_free(model, rows, stage, value, own)
        add_memory(model, rows, stage, size)
    for result in instance.results:
        rows.add(model.terms(count, result, 1.0), 1.0, 1.0)
    return rows


def add_free(model: Model, rows: Rows, stage: int, value: int, own: int) -> None:
    """Say that a value is freed after an operator exactly where nothing is a hazard."""
    later = [reader for reader in model.readers[value] if own < reader <= stage]
    hazards = [*model.terms(stage + 1, value, 1.0), *((model.r(stage, k), 1.0) for k in later)]
    hazards.append((model.r(stage, own), -1.0))  # and 1 more: that it is not evaluated
    free, most = model.free[stage, value, own], float(len(hazards))
    rows.add([*hazards, (free, 1.0)], 0.0, np.inf)  # 1 - free <= hazards
    rows.add([*hazards, (free, most)], -np.inf, most - 1.0)  # most (1 - free) >= hazards


def add_memory(model: Model, rows: Rows, stage: int, size: list[float]) -> None:
    """Count the memory while each operator of a stage is evaluated."""
    saved = [
        (variable, -size[value])
        for value in range(stage)
        if (variable := model.s(stage, value)) is not None
    ]
    rows.add([(model.u(stage, 0), 1.0), *saved, (model.r(stage, 0), -size[0])], 0.0, 0.0)
    for own in range(stage):
        freed = [(model.free[stage, value, own], size[value]) for value in model.freed[own]]
        made = (model.r(stage, own + 1), -size[own + 1])
        before = (model.u(stage, own), -1.0)
        rows.add([(model.u(stage, own + 1), 1.0), before, *freed, made], 0.0, 0.0)


def bounds(model: Model, room: float) -> Iterator[tuple[float, float]]:
    """Yield the bounds of every variable."""
    count = len(model.instance.costs)
    for stage in range(count):
        for own in range(stage + 1):
            yield (1.0, 1.0) if own == stage else (0.0, 1.0)
    for _ in range(model.pairs):
        yield 0.0, 1.0
    for _ in range(model.pairs):
        yield 0.0, room
    for _ in model.free:
        yield 0.0, 1.0


def checkmate(instance: Instance, budget: int, seconds: float) -> tuple[list[int], str]:
    """Return the evaluations that the solver finds, empty if none, and what it says of them.

    Raises:
        TooLargeError: if the model would have too many variables.
    """
    begin = perf_counter()
    model = Model(instance)

    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    unit, price = max(instance.sizes), max(*instance.costs, 1)
    rows = constraints(model, unit)
    objective = np.zeros(model.size)
    count = len(instance.costs)
    for stage in range(count):
        for own in range(stage + 1):
            objective[model.r(stage, own)] = instance.costs[own] / price
    integral = np.ones(model.size)
    integral[2 * model.pairs : 3 * model.pairs] = 0  # U
    low, high = np.array(list(bounds(model, budget / unit))).T
    matrix = coo_array(
        (rows.value, (rows.row, rows.column)), shape=(len(rows.low), model.size)
    ).tocsr()
    left = seconds - (perf_counter() - begin) - RESERVED
    found: Any = milp(
        objective,
        integrality=integral,
        bounds=Bounds(low, high),
        constraints=LinearConstraint(matrix, np.array(rows.low), np.array(rows.high)),
        options={"time_limit": max(left, 0.0)},
    )
    said = f"{model.size:,} variables; {' '.join(str(found.message).split())}"
    if found.x is None:
        return [], said
    order = [
        own
        for stage in range(count)
        for own in range(stage + 1)
        if found.x[model.r(stage, own)] > 0.5
    ]
    return order, said
