"""User-defined grouping of operators: one node per scope, per operator, or per named group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tinyckpt.base.errors import OptionError

from .check_label_options import Grouping, checked_text
from .partition import MOST, Anatomy, Part, parts_by_scope, parts_of

MOST_ASKED = 1_000  # forward nodes of a picture at most, if the user requests a grouping


def requested_parts(known: Anatomy, group: Grouping) -> list[Part]:
    """Return the partition of a whole graph: the requested one, or the default for its size.

    Raises:
        OptionError: if there is nothing to group by, or there would be too many nodes to draw.
    """
    count = known.graph.forward_count
    if group is None:
        return parts_of(known, 0, count)
    if group == "scope":
        parts = scoped_parts(known)
    elif callable(group):
        parts = named_parts(known, group)
    else:
        parts = [Part(operator, operator + 1) for operator in range(count)]
    if len(parts) > MOST_ASKED:
        raise OptionError(
            f"group: {known.graph.name} would have {len(parts):,} nodes, and a picture has at most "
            f"{MOST_ASKED:,}; ask for larger groups, or leave it out"
        )
    return parts


def scoped_parts(known: Anatomy) -> list[Part]:
    """Return a part per scope; operators outside any scope stand for themselves if they are few."""
    parts = parts_by_scope(known, 0, known.graph.forward_count)
    if not parts:
        raise OptionError(
            f"group 'scope': {known.graph.name} has no scopes that divide it; have "
            "`with tc.scope(name):` in the function, or give a function of an operator"
        )
    outside = [part for part in parts if not known.scopes[part.start]]
    if len(parts) - len(outside) + sum(part.stop - part.start for part in outside) > MOST:
        return parts
    return [
        piece
        for part in parts
        for piece in (
            [part]
            if known.scopes[part.start]
            else [Part(operator, operator + 1) for operator in range(part.start, part.stop)]
        )
    ]


def named_parts(known: Anatomy, group: Grouping) -> list[Part]:
    """Return a part for each run of operators to which a function gives one name."""
    assert callable(group)
    names = [
        checked_text(group(operator), "group", f"or None for {operator.name}")
        for operator in known.graph.operators[: known.graph.forward_count]
    ]
    return [
        part_of(list(run), names)
        for _, run in groupby(range(len(names)), key=lambda place: names[place] or place)
    ]


def part_of(run: Sequence[int], names: Sequence[str | None]) -> Part:
    """Return the part of consecutive operators of one name."""
    name = names[run[0]] or ""
    return Part(run[0], run[-1] + 1, name, name)
