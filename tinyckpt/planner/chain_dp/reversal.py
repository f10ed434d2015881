"""Chain reversal actions (advance, keep, record, back) and their lowering to an evaluation order.

The chain planners (Revolve, Rotor, Chen's recursion) know stages 0 to L-1 and states 0 to L-1:
state i is the set of values that cross the cut before stage i, and state 0 the sources. A plan is a
list of actions, as in checkpoint_schedules. ``order_of`` lowers the actions to an order of
evaluations on any graph, with the stages of ``model.chain_stages``; frees follow from the order by
liveness, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.chain_stages import Stages
from tinyckpt.planner.model.liveness import FlatGraph
from tinyckpt.planner.model.vectorised_lowering import from_order_eliminating_dead


class StageAction(NamedTuple):
    """One action of a chain planner.

    - ``advance``: read as: from state ``first``, evaluate stages up to state ``last``, saving none.
    - ``keep``: read as: state ``first`` stays until the backward sweep has come back to it.
    - ``record``: read as: evaluate stage ``first`` and save its tape: the values its backward
      reads.
    - ``back``: read as: recompute the tape of stage ``first``, unless it was recorded, and evaluate
      its backward operators.
    """

    verb: Literal["advance", "keep", "record", "back"]
    first: int
    last: int = -1


def order_of(stages: Stages, actions: Iterable[StageAction]) -> list[int]:
    """Lower actions to an order of evaluations."""
    order: list[int] = []
    # Operators that no later action evaluates, such as the loss: evaluated at the first pass.
    once: dict[int, tuple[int, ...]] = {}
    if stages.once.items:
        once = {i: own for i in range(len(stages)) if (own := stages.once.of(i, i + 1))}
    recorded: set[int] = set()
    # Raw columns (values, offsets) for speed: this loop runs for every action of a long plan.
    advance, advance_at = stages.advance
    replay, replay_at = stages.replay
    backward, backward_at = stages.backward
    for verb, first, last in actions:
        if verb == "advance":
            if once:
                for index in [index for index in once if first <= index < last]:
                    order += advance[advance_at[first] : advance_at[index]]
                    order += unique_in_order(stages.advance.of(index, index + 1), once.pop(index))
                    first = index + 1
            order += advance[advance_at[first] : advance_at[last]]
        elif verb == "record":
            order += unique_in_order(stages.record.of(first, first + 1), once.pop(first, ()))
            recorded.add(first)
        elif verb == "back":
            if first not in recorded:
                again = replay[replay_at[first] : replay_at[first + 1]]
                order += unique_in_order(again, once.pop(first)) if first in once else again
            order += backward[backward_at[first] : backward_at[first + 1]]
    return order


def unique_in_order(operators: tuple[int, ...], once: tuple[int, ...]) -> tuple[int, ...]:
    """Return operators of a stage in build order, without duplicates."""
    return tuple(sorted({*operators, *once}))


def schedule_of(
    flat: FlatGraph,
    stages: Stages,
    actions: Iterable[StageAction],
    policy: str,
    options: Mapping[str, Any],
    note: str,
) -> Schedule:
    """Lower actions to the schedule of a policy."""
    # In one pass: a long plan is never materialised as a whole.
    kept: set[int] = set()
    rest = iter(actions)
    order = order_of(stages, chain(first_sweep(stages, rest, kept), rest))
    return from_order_eliminating_dead(flat, order, policy, options, note, sorted(kept))


def first_kept(stages: Stages, actions: Iterable[StageAction]) -> list[int]:
    """Return the checkpoints of the first forward sweep: the values ringed in pictures."""
    kept: set[int] = set()
    for _ in first_sweep(stages, iter(actions), kept):
        pass
    return sorted(kept)


def first_sweep(
    stages: Stages, actions: Iterator[StageAction], kept: set[int]
) -> Iterator[StageAction]:
    """Yield the actions up to the first ``back``, adding the values they keep to ``kept``."""
    for action in actions:
        verb, first, _ = action
        if verb == "keep" and first > 0:
            kept.update(stages.cut.of(first - 1, first))
        elif verb == "record":
            kept.update(stages.tape.of(first, first + 1))
        yield action
        if verb == "back":
            break
