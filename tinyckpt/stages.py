"""Stages: the forward half cut into pieces, each with the backward operators that go with it.

Chain planners (Revolve, Rotor, Chen's recursion) know only stages: advance through one, advance and
keep what its backward needs, go back through it. This module makes that view of any graph. A cut
lies behind a forward operator; what crosses it are the values that an operator before it makes and
a forward operator behind it reads. At a separator that is one value; in a U-Net or a dense net it
is several, and a stage simply hands over several.

What a backward operator reads decides where it goes: with a stage, if it reads what is made inside
of it; with the stage behind, if it reads what crosses the cut between the two. So on the canonical
chain ``b_i``, which reads ``f_i``, goes with the stage behind ``f_i``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tinyckpt.cost import Costs
from tinyckpt.graph import Graph, producer_of


@dataclass(frozen=True, slots=True)
class Stage:
    """What lies between two cuts.

    Attributes:
        forward: the stage's forward operators, in build order; the last stage may have none.
        backward: the backward operators that are evaluated when the sweep comes back to it.
        cut: forward values that cross the cut behind it; empty behind the last stage.
        tape: forward values that its backward operators read and the cut before it does not hold.
        advance: the forward operators that it takes to make the cut.
        record: those that it takes to make the cut and the tape.
        replay: those that it takes to make the tape alone.
        once: those whose results nothing of this asks for again: the loss, say.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    cut: tuple[int, ...]
    tape: tuple[int, ...]
    advance: tuple[int, ...]
    record: tuple[int, ...]
    replay: tuple[int, ...]
    once: tuple[int, ...]


def stages(graph: Graph, cuts: Iterable[int]) -> tuple[Stage, ...]:
    """Return the stages between some cuts.

    Args:
        graph: a training graph.
        cuts: the forward operators behind which to cut.
    """
    ends = sorted({*cuts, graph.forward_count - 1}) if graph.forward_count else []
    if ends and not ends_in_result(graph):
        ends.append(graph.forward_count - 1)  # a last stage that holds backward operators only
    stage_of = [0] * graph.forward_count
    first = 0
    for index, end in enumerate(ends):
        stage_of[first : end + 1] = [index] * (end + 1 - first)
        first = max(first, end + 1)
    crossing = crossing_values(graph, ends[:-1])
    home = homes(graph, stage_of, [frozenset(values) for values in crossing])
    backward, tape = place_backward(graph, home, len(ends), crossing)
    cut_and_tape = [(*cut, *values) for cut, values in zip(crossing, tape, strict=True)]
    advance = needed(graph, stage_of, crossing)
    record = needed(graph, stage_of, cut_and_tape)
    replay = needed(graph, stage_of, tape)
    once = needed_once(graph, stage_of, advance, tape)
    first = 0
    result = []
    for index, end in enumerate(ends):
        forward = tuple(range(first, end + 1))
        result.append(
            Stage(
                forward, tuple(backward[index]), crossing[index], tuple(tape[index]),
                tuple(advance[index]), tuple(record[index]), tuple(replay[index]),
                tuple(once.get(index, ())),
            )
        )  # fmt: skip
        first = max(first, end + 1)
    return tuple(result)


def needed(
    graph: Graph, stage_of: Sequence[int], targets: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return for every stage which of its operators it takes to make its targets, from its state.

    Targets that another stage makes are not its business.
    """
    wanted = bytearray(len(graph.data))
    for index, values in enumerate(targets):
        for data in values:
            producer = graph.data[data].producer
            if producer is not None and stage_of[producer] == index:
                wanted[data] = 1
    found: list[list[int]] = [[] for _ in targets]
    for operator in reversed(graph.operators[: graph.forward_count]):
        if not any(wanted[data] for data in operator.outputs):
            continue
        stage = stage_of[operator.id]
        found[stage].append(operator.id)
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is not None and stage_of[producer] == stage:
                wanted[data] = 1
    for operators in found:
        operators.reverse()
    return found


def needed_once(
    graph: Graph,
    stage_of: Sequence[int],
    advance: Sequence[list[int]],
    tape: Sequence[Sequence[int]],
) -> dict[int, list[int]]:
    """Return for some stages what the first sweep must evaluate besides what makes the cut.

    That makes results of the graph, and what another stage has on its tape.
    """
    targets: list[list[int]] = [[] for _ in advance]
    for data in graph.outputs:
        producer = graph.data[data].producer
        if producer is not None and producer < graph.forward_count:
            targets[stage_of[producer]].append(data)
    for index, values in enumerate(tape):
        for data in values:
            stage = stage_of[producer_of(graph, data)]
            if stage != index:
                targets[stage].append(data)
    if not any(targets):
        return {}
    return {
        index: [operator for operator in operators if operator not in set(advance[index])]
        for index, operators in enumerate(needed(graph, stage_of, targets))
        if operators
    }


def ends_in_result(graph: Graph) -> bool:
    """Whether the last forward operator makes a result, and not something that is handed on."""
    outputs = set(graph.outputs)
    return any(data in outputs for data in graph.operators[graph.forward_count - 1].outputs)


def last_forward_readers(graph: Graph) -> list[int]:
    """Return for every value the last forward operator that reads it, or -1."""
    last = [-1] * len(graph.data)
    for operator in graph.operators[: graph.forward_count]:
        for data in operator.inputs:
            last[data] = operator.id
    return last


def crossing_values(graph: Graph, ends: Sequence[int]) -> list[tuple[int, ...]]:
    """Return what crosses the cut behind each of some operators; nothing crosses the very end.

    A cut behind the last forward operator is crossed by what that operator makes.
    """
    last = last_forward_readers(graph)
    at_end = graph.forward_count - 1
    if at_end >= 0 and not ends_in_result(graph):
        for data in graph.operators[at_end].outputs:
            last[data] = at_end + 1
    live: dict[int, None] = {}
    crossing = []
    operators = iter(graph.operators[: graph.forward_count])
    position = -1
    for end in ends:
        for operator in operators:
            live.update((data, None) for data in operator.outputs if last[data] > operator.id)
            position = operator.id
            if position == end:
                break
        live = {data: None for data in live if last[data] > end}
        crossing.append(tuple(sorted(live)))
    crossing.append(())
    return crossing


def homes(graph: Graph, stage_of: list[int], crossing: Sequence[frozenset[int]]) -> list[int]:
    """Return for every forward value the first stage in which its readers find it.

    That is the stage that makes it; if it is handed on, the one behind the first cut it crosses.
    """
    home = [-1] * len(graph.data)
    for operator in graph.operators[: graph.forward_count]:
        index = stage_of[operator.id]
        for data in operator.outputs:
            home[data] = index + 1 if data in crossing[index] else index
    return home


def place_backward(
    graph: Graph, home: list[int], count: int, crossing: list[tuple[int, ...]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the backward operators of every stage, and what they need on its tape.

    An operator cannot go with a later stage than the backward operators it reads from.
    """
    backward: list[list[int]] = [[] for _ in range(count)]
    tape: list[dict[int, None]] = [{} for _ in range(count)]
    held = [set(), *map(set, crossing)]
    stage_of: dict[int, int] = {}
    for operator in graph.operators[graph.forward_count :]:
        earliest = count - 1
        wanted = -1
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is None:
                continue
            if producer >= graph.forward_count:
                earliest = min(earliest, stage_of[producer])
            else:
                wanted = max(wanted, home[data])
        index = earliest if wanted < 0 else min(earliest, wanted)
        stage_of[operator.id] = index
        backward[index].append(operator.id)
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is not None and producer < graph.forward_count and data not in held[index]:
                tape[index][data] = None
    return backward, [sorted(values) for values in tape]


def useful_cuts(graph: Graph, costs: Costs, most: int = 200) -> list[int]:
    """Return places to cut: behind every operator whose results the backward half will read.

    A state kept at such a place is kept for the backward's sake as well. If there are too many
    places, those stay where least crosses.

    Args:
        graph: a training graph.
        costs: tells what the values weigh.
        most: the largest number of cuts.
    """
    weights = crossing_weights(graph, costs)
    places = [
        operator.id
        for operator in graph.operators[: max(graph.forward_count - 1, 0)]
        if any(
            graph.consumers[data] and graph.consumers[data][-1] >= graph.forward_count
            for data in operator.outputs
        )
    ]
    return sorted(sorted(places, key=lambda place: (weights[place], place))[:most])


def crossing_weights(graph: Graph, costs: Costs) -> list[int]:
    """Return how much memory crosses the cut behind every forward operator but the last.

    A view that crosses holds what it is a view of.
    """
    last = last_forward_readers(graph)
    shared = costs.memory_unit == "bytes"
    for node in reversed(graph.data):
        if shared and node.view_of is not None:
            last[node.view_of] = max(last[node.view_of], last[node.id])
    change = [0] * (graph.forward_count + 1)
    for operator in graph.operators[: graph.forward_count]:
        for data in operator.outputs:
            if last[data] > operator.id:
                change[operator.id] += costs.data[data]
                change[last[data]] -= costs.data[data]
    return list(accumulate(change[: max(graph.forward_count - 1, 0)]))


def cheap_cuts(graph: Graph, costs: Costs) -> list[int]:
    """Return the places to cut where no less crosses at the operators next to them.

    On a chain of blocks these are the separators between the blocks; where there are none, as in a
    U-Net, they are the cheapest cuts of several values.
    """
    weights = crossing_weights(graph, costs)
    padded = [weights[0], *weights, weights[-1]] if weights else []
    return [
        place
        for place, weight in enumerate(weights)
        if weight <= padded[place] and weight <= padded[place + 2]
    ]
