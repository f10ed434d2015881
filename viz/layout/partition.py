"""Graph partitioning for display: runs of forward operators that are drawn as one node each.

A part is a run of consecutive forward operators in build order, a topological order, so that the
graph of parts is acyclic. Where scopes divide the operators into a readable number of parts, parts
are scopes; else operators are split into runs of about equal length, at small cuts: where few
values cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

SMALL = 150  # operators, backward ones included, that a picture shows one by one
LONGEST_CHAIN = 512  # the same for forward operators of a chain without scopes: it folds into bands
OPENED_CHAIN = 128  # the same in an expanded group, so that long chains expand in two steps
MOST = 60  # parts in a picture
WISHED = 24  # parts up to which a deeper scope level is preferred: two rows of them
FEW = 6  # parts, below which a scope level is too coarse
CHUNKS = 32  # parts of operators that no scope divides
LEAST = 6  # operators in each of these


@dataclass(frozen=True, slots=True)
class Part:
    """A run of consecutive forward operators that is one node of a picture.

    Attributes:
        start, stop: the operators are ``start`` to ``stop - 1``.
        title: its full name, such as ``stage3/block2``; empty for most single operators.
        label: its short name; empty for a single operator, which has its own, unless the user gave
            one.
        within: the heading over it and its neighbours, such as ``stage3``.
    """

    start: int
    stop: int
    title: str = ""
    label: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Precomputed columns for partitioning a graph: each lookup is O(1), since graphs may be long.

    Attributes:
        graph: whose forward operators are partitioned.
        scopes: the scope of every forward operator, outermost name first.
        follows: for every forward operator, whether it reads the one before it.
        others: the last of the other forward operators that it reads, or -1.
        adjoints: the backward operators with a forward operator, in the order of these.
        before: number of backward operators that belong to forward operators before a given one;
            one more entry at the end.
        crossing: cut size before each forward operator: values made before it and read from it on.
    """

    graph: Graph
    scopes: tuple[tuple[str, ...], ...]
    follows: tuple[bool, ...]
    others: tuple[int, ...]
    adjoints: tuple[int, ...]
    before: tuple[int, ...]
    crossing: tuple[int, ...]

    def adjoints_of(self, start: int, stop: int) -> list[int]:
        """Return the backward operators of forward ones ``start`` to ``stop - 1``, ascending."""
        return sorted(self.adjoints[self.before[start] : self.before[stop]])


def anatomy_of(graph: Graph) -> Anatomy:
    """Precompute the columns that ``parts_of`` needs."""
    count = graph.forward_count
    forward = graph.operators[:count]
    known: dict[str, tuple[str, ...]] = {"": ()}
    follows, others = [], []
    for operator in forward:
        if operator.scope not in known:
            known[operator.scope] = tuple(name for name in operator.scope.split("/") if name)
        follow, other = False, -1
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer == operator.id - 1:
                follow = True
            elif producer is not None and producer > other:
                other = producer
        follows.append(follow)
        others.append(other)
    pairs = sorted(
        (operator.adjoint_of, operator.id)
        for operator in graph.operators[count:]
        if operator.adjoint_of is not None and operator.adjoint_of < count
    )
    numbers = [0] * count
    for mirror, _ in pairs:
        numbers[mirror] += 1
    return Anatomy(
        graph,
        tuple([known[operator.scope] for operator in forward]),
        tuple(follows),
        tuple(others),
        tuple([index for _, index in pairs]),
        tuple(accumulate(numbers, initial=0)),
        tuple(accumulate(crossings(graph))),
    )


def crossings(graph: Graph) -> list[int]:
    """Return the change of the cut size at each forward operator (a difference array)."""
    count = graph.forward_count
    changes = [0] * (count + 1)
    for operator in graph.operators[:count]:
        for data in operator.outputs:
            readers = graph.consumers[data]  # ascending
            last = next((reader for reader in reversed(readers) if reader < count), None)
            if last is not None:
                changes[operator.id + 1] += 1
                changes[last + 1] -= 1
    return changes


def parts_of(known: Anatomy, start: int, stop: int) -> list[Part]:
    """Partition forward operators ``start`` to ``stop - 1`` into at most MOST groups.

    A small graph, or a chain of moderate length, has one part per operator.
    """
    if is_small(known, start, stop):
        return [Part(operator, operator + 1) for operator in range(start, stop)]
    return parts_by_scope(known, start, stop) or split_at_cuts(known, start, stop)


def parts_by_scope(known: Anatomy, start: int, stop: int) -> list[Part]:
    """Partition operators by scope; empty if scopes do not divide them."""
    parts = by_scope(known, start, stop)
    while parts and len(parts) < FEW:
        # One scope around nearly everything is no information: its children take its place.
        largest = max(parts, key=lambda part: part.stop - part.start)
        inner = by_scope(known, largest.start, largest.stop)
        if not inner or is_small(known, largest.start, largest.stop):
            break
        if len(parts) - 1 + len(inner) > MOST:
            break
        at = parts.index(largest)
        parts[at : at + 1] = inner
    return parts


def is_small(known: Anatomy, start: int, stop: int) -> bool:
    """Whether a picture shows these operators one by one."""
    if stop - start + known.before[stop] - known.before[start] <= SMALL:
        return True
    everything = stop - start == len(known.scopes)
    longest = LONGEST_CHAIN if everything else OPENED_CHAIN
    if stop - start > longest or not is_chain_run(known, start, stop):
        return False
    return not by_scope(known, start, stop)


def is_chain_run(known: Anatomy, start: int, stop: int) -> bool:
    """Whether the operators are a chain: each reads, of them, only its predecessor."""
    return (
        all(known.follows[start + 1 : stop])
        and max(known.others[start + 1 : stop], default=-1) < start
    )


def by_scope(known: Anatomy, start: int, stop: int) -> list[Part]:
    """Return a part per run of one scope, at the most readable depth; empty if there is none."""
    deepest = max(map(len, known.scopes[start:stop]))
    best: list[Part] = []
    for depth in range(1, deepest + 1):
        runs = runs_at(known, start, stop, depth)
        if len(runs) == 1:
            continue
        if len(runs) > MOST:
            return best or joined_runs(known, runs)
        if len(runs) <= WISHED or len(best) < FEW:
            best = runs
    return best


def runs_at(known: Anatomy, start: int, stop: int, depth: int) -> list[Part]:
    """Return the runs of operators whose scopes agree in their first ``depth`` names."""
    bounds = [start]
    for operator in range(start + 1, stop):
        if known.scopes[operator][:depth] != known.scopes[operator - 1][:depth]:
            bounds.append(operator)
    return [
        part_of_scope(known, first, last, known.scopes[first][:depth])
        for first, last in zip(bounds, [*bounds[1:], stop], strict=True)
    ]


def part_of_scope(known: Anatomy, start: int, stop: int, scope: Sequence[str]) -> Part:
    """Return the part of a scope; operators outside any scope are named after themselves."""
    if stop - start == 1:
        return Part(start, stop)
    if not scope:
        return part_of_run(known, start, stop)
    return Part(start, stop, "/".join(scope), scope[-1], "/".join(scope[:-1]))


def joined_runs(known: Anatomy, runs: Sequence[Part]) -> list[Part]:
    """Merge runs into parts of several each: ``layer1-4`` and so on, with an en dash."""
    size = -(-len(runs) // CHUNKS)
    parts = []
    for place in range(0, len(runs), size):
        some = runs[place : place + size]
        named_runs = [run for run in some if run.label]
        start, stop = some[0].start, some[-1].stop
        if stop - start == 1:
            parts.append(Part(start, stop))
        elif not named_runs:
            parts.append(part_of_run(known, start, stop))
        elif len(named_runs) == 1:
            only = named_runs[0]
            parts.append(Part(start, stop, only.title, only.label, only.within))
        else:
            first, last = named_runs[0], named_runs[-1]
            title = range_label(first.title, last.title)
            parts.append(Part(start, stop, title, range_label(first.label, last.label)))
    return parts


def split_at_cuts(known: Anatomy, start: int, stop: int) -> list[Part]:
    """Split operators into runs of about equal length, at the smallest cuts nearby."""
    count = max(2, min(CHUNKS, (stop - start) // LEAST))
    size = -(-(stop - start) // count)
    bounds = [start]
    while stop - bounds[-1] > size + size // 4:
        aim = bounds[-1] + size
        near = range(aim - size // 4, aim + size // 4 + 1)
        bounds.append(min(near, key=lambda cut: (known.crossing[cut], abs(cut - aim))))
    return [
        part_of_run(known, first, last) if last - first > 1 else Part(first, last)
        for first, last in zip(bounds, [*bounds[1:], stop], strict=True)
    ]


def part_of_run(known: Anatomy, start: int, stop: int) -> Part:
    """Return a part that is named after its first and last operators, or after their ids."""
    names = [operator.name for operator in known.graph.operators[start:stop]]
    first, last = names[0], names[-1]
    if len({name.rstrip("0123456789") for name in names}) == 1:
        return Part(start, stop, range_label(first, last), range_label(first, last))
    return Part(start, stop, f"{first} to {last}", f"{start}{DASH}{stop - 1}")


DASH = "\u2013"


def range_label(first: str, last: str) -> str:
    """Return ``layer1-4`` (with an en dash) for layer1 and layer4; both names if stems differ.

    >>> range_label("layer1", "layer4"), range_label("f1", "f64"), range_label("down4", "bottom")
    ('layer1\u20134', 'f1\u201364', 'down4\u2013bottom')
    """
    if first == last:
        return first
    stem = first.rstrip("0123456789")
    number = last.removeprefix(stem)
    same_stem = first != stem and last.startswith(stem) and number.isdigit()
    return f"{first}{DASH}{number if same_stem else last}"
