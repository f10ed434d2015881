"""CP-SAT master problems with fixed, free or path-only order of first evaluations.

They differ in which first evaluations end the stages of the staged relaxation (``exact.cp_model``).
All of them (``whole_model``), in a given order or in any: then the model tells first evaluations
from later ones, and where the order is free the solver chooses a permutation. Or those along a
longest path of the graph (``path_model``), whose order is fixed by their dependencies: a weaker
model without a permutation in it, whose linear relaxation is strong. All are relaxations, of all
schedules or of those in the given order; the constraints within their stages are in
``exact.cp_model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyckpt.planner.exact.cp_model import (
    Master,
    Term,
    add_stage,
    assemble_master,
    is_always,
    solver_module,
)
from tinyckpt.planner.exact.reduced_graph import Reduced, as_set, members


def whole_model(reduced: Reduced, order: Sequence[int] | None) -> Master:
    """Return the model in which every first evaluation ends a stage.

    Args:
        reduced: the reduced graph.
        order: the order of the first evaluations; None for any. A given order may include
            evaluations that are of no use by themselves.
    """
    count = len(reduced.operators)
    model = solver_module().CpModel()
    if order is None:
        earliest = [before.bit_count() for before in reduced.ancestors]
        latest = [count - 1 - after.bit_count() for after in reduced.descendants]
    else:
        earliest = [0] * count
        for stage, operator in enumerate(order):
            earliest[operator] = stage
        latest = earliest
    first: list[dict[int, Term]] = [{} for _ in range(count + 1)]
    for operator in range(count):
        low, high = earliest[operator], latest[operator]
        for stage in range(low, high + 1):
            first[stage][operator] = 1 if low == high else model.new_bool_var("")
    done = evaluated_before(model, first, earliest, latest)
    if order is None:
        permute(model, reduced, first, done, earliest, latest)
    last = last_stages(reduced, earliest, latest)
    again: list[dict[int, Term]] = [{} for _ in range(count + 1)]
    held: list[dict[int, Term]] = [{} for _ in range(count + 1)]
    for stage in range(count + 1):
        for operator in range(count):
            is_once = reduced.once >> operator & 1
            if earliest[operator] < stage <= last[operator] and not is_once:
                again[stage][operator] = model.new_bool_var("")
                if stage <= latest[operator]:
                    model.add(again[stage][operator] <= done[stage][operator])
            is_result = reduced.makes_set[operator] & reduced.outputs
            if earliest[operator] <= stage <= (count if is_result else last[operator]):
                for data in reduced.makes[operator]:
                    held[stage][data] = model.new_bool_var("")
    master = assemble_master(model, reduced, None, first, again, held, sum(reduced.cost))
    for stage in range(count + 1):
        add_stage(master, stage, order is not None)
    add_demands(master, done)
    return master


def evaluated_before(
    model: Any, first: list[dict[int, Term]], earliest: Sequence[int], latest: Sequence[int]
) -> list[list[Term]]:
    """Add the variables of operators evaluated before each stage, and before one after the last.

    Every operator has its first evaluation at exactly one stage from its earliest to its latest.
    """
    count = len(earliest)
    done: list[list[Term]] = [[0] * count for _ in range(count + 2)]
    for operator in range(count):
        low, high = earliest[operator], latest[operator]
        for stage in range(high + 1, count + 2):
            done[stage][operator] = 1
        for stage in range(low + 1, high + 1):
            done[stage][operator] = model.new_bool_var("")
            model.add(
                done[stage][operator] == done[stage - 1][operator] + first[stage - 1][operator]
            )
        if low < high:
            model.add_exactly_one(first[stage][operator] for stage in range(low, high + 1))
            model.add(done[high][operator] + first[high][operator] == 1)
    return done


def permute(
    model: Any, reduced: Reduced, first: list[dict[int, Term]], done: list[list[Term]],
    earliest: Sequence[int], latest: Sequence[int],
) -> None:  # fmt: skip
    """Constrain first evaluations to a topological permutation: one per stage, inputs before."""
    count = len(reduced.operators)
    for stage in range(count):
        model.add(sum(first[stage].values()) == 1)
        model.add(sum(done[stage]) == stage)
    for operator in range(count):
        for before in {reduced.producer[data] for data in reduced.reads[operator]}:
            for stage in range(max(earliest[operator], 1), latest[operator] + 1):
                if stage <= latest[before]:
                    model.add(done[stage + 1][operator] <= done[stage][before])


def last_stages(reduced: Reduced, earliest: Sequence[int], latest: Sequence[int]) -> list[int]:
    """Return for each operator the last stage in which a recomputation of it can be of use.

    A descendant of it has yet to be evaluated first, or it is for a result that was freed: then
    that is the stage after all first evaluations. A result whose first evaluation comes last is
    not freed any more.
    """
    count = len(reduced.operators)
    results = as_set(
        operator
        for operator in range(count)
        if reduced.makes_set[operator] & reduced.outputs and earliest[operator] < count - 1
    )
    last = []
    for operator, after in enumerate(reduced.descendants):
        if (after | 1 << operator) & results:
            last.append(count)
        else:
            last.append(max([latest[operator], *(latest[other] for other in members(after))]))
    return last


def path_model(reduced: Reduced, path: list[int]) -> Master:
    """Return the model whose stages end with the first evaluations along a path of the graph.

    First evaluations and recomputations of other operators within a stage are not told apart.
    """
    count, stages = len(reduced.operators), len(path)
    model = solver_module().CpModel()
    position = {operator: stage for stage, operator in enumerate(path)}
    # An operator's first evaluation comes after those of its ancestors on the path.
    earliest = [
        position.get(
            operator,
            max((position[u] + 1 for u in members(before) if u in position), default=0),
        )
        for operator, before in enumerate(reduced.ancestors)
    ]
    first: list[dict[int, Term]] = [*({operator: 1} for operator in path), {}]
    again: list[dict[int, Term]] = []
    held: list[dict[int, Term]] = []
    for stage in range(stages + 1):
        again.append(
            {
                operator: model.new_bool_var("")
                for operator in range(count)
                if earliest[operator] + (operator in position) <= stage
                and not (operator in position and reduced.once >> operator & 1)
            }
        )
        held.append(
            {
                data: model.new_bool_var("")
                for operator in range(count)
                if earliest[operator] <= stage
                for data in reduced.makes[operator]
            }
        )
    for operator in range(count):
        if operator not in position:
            times = sum(chosen[operator] for chosen in again if operator in chosen)
            model.add(times == 1 if reduced.once >> operator & 1 else times >= 1)
    base = sum(reduced.cost[operator] for operator in path)
    master = assemble_master(model, reduced, path, first, again, held, base)
    for stage in range(stages + 1):
        add_stage(master, stage)
    return master


def longest_path(reduced: Reduced) -> list[int]:
    """Return a path of the graph with the most operators."""
    length, before = [1] * len(reduced.operators), [-1] * len(reduced.operators)
    for operator, values in enumerate(reduced.reads):
        for data in values:
            producer = reduced.producer[data]
            if length[producer] + 1 > length[operator]:
                length[operator], before[operator] = length[producer] + 1, producer
    path = []
    operator = length.index(max(length))
    while operator >= 0:
        path.append(operator)
        operator = before[operator]
    return path[::-1]


def add_demands(master: Master, done: list[list[Term]]) -> None:
    """Add valid inequalities: a value read later is resident now or evaluated again by then.

    They follow from the other constraints for integers, and tighten the linear relaxation.
    """
    model, reduced = master.model, master.reduced
    for data in range(len(reduced.data)):
        operator = reduced.producer[data]
        later: Term = 0
        for stage in range(len(master.held) - 1, -1, -1):
            if data in master.held[stage]:
                readers_done = [done[stage + 1][reader] for reader in reduced.readers[data]]
                if reduced.outputs >> data & 1:
                    readers_done.append(0)
                for reader_done in readers_done:
                    if not is_always(reader_done):
                        wanted = done[stage + 1][operator] - reader_done
                        model.add(master.held[stage][data] + later >= wanted)
            later = later + master.again[stage].get(operator, 0)
