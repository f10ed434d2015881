"""Going back through stages: the few actions that all planners for chains are made of.

A planner for chains (Revolve, Rotor, Chen's recursion) knows stages 0 to L-1 and states 0 to L-1:
state i is what crosses the cut before stage i, and state 0 the sources. Its plan is a list of
actions. ``order_of`` turns them into an order of evaluations on any graph, with the stages of
``tinyckpt.stages``; the frees follow from the order, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order_without_dead
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.chain_stages import Stages
from tinyckpt.planner.model.liveness import Flat


class StageAction(NamedTuple):
    """One action of a planner for chains.

    - ``advance``: read as: from state ``first``, evaluate stages up to state ``last``.
    - ``keep``: read as: state ``first`` stays until the sweep has come back to it.
    - ``record``: read as: evaluate stage ``first``, and keep what its backward reads.
    - ``back``: read as: make what the backward half of stage ``first`` reads, unless it was
      recorded, and evaluate that half.
    """

    verb: Literal["advance", "keep", "record", "back"]
    first: int
    last: int = -1


def order_of(stages: Stages, actions: Iterable[StageAction]) -> list[int]:
    """Return the order of evaluations that some actions amount to."""
    order: list[int] = []
    # What nothing asks for again, such as the loss, is evaluated when the sweep first comes by.
    once: dict[int, tuple[int, ...]] = {}
    if stages.once.items:
        once = {i: own for i in range(len(stages)) if (own := stages.once.of(i, i + 1))}
    recorded: set[int] = set()
    # Columns as they are: this loop runs for every action of a long plan.
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
    """Return operators of a stage in order, each once."""
    return tuple(sorted({*operators, *once}))


def schedule_of(
    flat: Flat,
    stages: Stages,
    actions: Iterable[StageAction],
    policy: str,
    options: Mapping[str, Any],
    note: str,
) -> Schedule:
    """Return the schedule that some actions amount to, as a policy's own."""
    # In one pass: a long plan need never be there as a whole.
    kept: set[int] = set()
    rest = iter(actions)
    order = order_of(stages, chain(first_sweep(stages, rest, kept), rest))
    return from_order_without_dead(flat, order, policy, options, note, sorted(kept))


def first_kept(stages: Stages, actions: Iterable[StageAction]) -> list[int]:
    """Return the values that are kept from the first sweep on: the rings in pictures."""
    kept: set[int] = set()
    for _ in first_sweep(stages, iter(actions), kept):
        pass
    return sorted(kept)


def first_sweep(
    stages: Stages, actions: Iterator[StageAction], kept: set[int]
) -> Iterator[StageAction]:
    """Yield the actions to the first ``back``, and note in ``kept`` what they keep until then."""
    for action in actions:
        verb, first, _ = action
        if verb == "keep" and first > 0:
            kept.update(stages.cut.of(first - 1, first))
        elif verb == "record":
            kept.update(stages.tape.of(first, first + 1))
        yield action
        if verb == "back":
            break


def nothing_to_reverse(graph: Graph) -> bool:
    """Whether the graph lacks a forward or a backward half, so that one evaluation each is all."""
    return graph.forward_count in (0, len(graph.operators))
