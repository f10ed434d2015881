"""Going back through stages: the few actions that all planners for chains are made of.

A planner for chains (Revolve, Rotor, Chen's recursion) knows stages 0 to L-1 and states 0 to L-1:
state i is what crosses the cut before stage i, and state 0 the sources. Its plan is a list of
actions. ``order_of`` turns them into an order of evaluations on any graph, with the stages of
``tinyckpt.stages``; the frees follow from the order, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tinyckpt.graph import Graph
from tinyckpt.stages import Stage


class Action(NamedTuple):
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


def order_of(stages: Sequence[Stage], actions: Iterable[Action]) -> list[int]:
    """Return the order of evaluations that some actions amount to."""
    order: list[int] = []
    # What nothing asks for again, such as the loss, is evaluated when the sweep first comes by.
    advancing = [merged(stage.advance, stage.once) for stage in stages]
    recording = [merged(stage.record, stage.once) for stage in stages]
    replaying = [merged(stage.replay, stage.once) for stage in stages]
    recorded = [False] * len(stages)

    def visited(index: int) -> None:
        advancing[index] = stages[index].advance
        recording[index] = stages[index].record
        replaying[index] = stages[index].replay

    for verb, first, last in actions:
        if verb == "advance":
            for index in range(first, last):
                order += advancing[index]
                visited(index)
        elif verb == "record":
            order += recording[first]
            recorded[first] = True
            visited(first)
        elif verb == "back":
            if not recorded[first]:
                order += replaying[first]
                visited(first)
            order += stages[first].backward
    return order


def merged(operators: tuple[int, ...], once: tuple[int, ...]) -> tuple[int, ...]:
    """Return operators of a stage in order, each once."""
    return tuple(sorted({*operators, *once})) if once else operators


def first_kept(stages: Sequence[Stage], actions: Iterable[Action]) -> list[int]:
    """Return the values that are kept from the first sweep on: the rings in pictures."""
    kept: set[int] = set()
    for verb, first, _ in actions:
        if verb == "back":
            break
        if verb == "keep" and first > 0:
            kept.update(stages[first - 1].cut)
        elif verb == "record":
            kept.update(stages[first].tape)
    return sorted(kept)


def nothing_to_reverse(graph: Graph) -> bool:
    """Whether the graph lacks a forward or a backward half, so that one evaluation each is all."""
    return graph.forward_count in (0, len(graph.operators))
