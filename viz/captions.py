"""What a step does, in words: for the caption of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from tinyckpt.schedule import EVALUATIONS, Fetch, Free, Offload, data_title, operator_title
from tinyckpt.units import size_text

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

MOST_NAMES = 3  # in a list of them


def caption_of(trace: Trace, step: int, again: bool = False) -> str:
    """Return in words what a step does, ``again`` if it evaluates something once more.

    Values that are freed one after the other are named together, at the last of them.

    >>> import tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(4), "offload", bandwidth=512))
    >>> [caption_of(trace, step) for step in (0, 1, 2, 15)]  # doctest: +NORMALIZE_WHITESPACE
    ['f1 is computed', 'f2 is computed from f1', 'f1 goes to the host (512 B)',
     'f3 and b4 are freed']
    """
    graph, taken = trace.graph, trace.steps[step]
    if isinstance(taken, EVALUATIONS):
        read = dict.fromkeys(graph.operators[taken.operator].inputs)
        names = [data_title(graph, data) for data in read if not graph.data[data].is_source]
        source = f" from {listed(names)}" if names else ""
        name = operator_title(graph, taken.operator)
        return f"{name} is computed{' again' if again else ''}{source}"
    size = size_text(graph.data[taken.data].spec.nbytes)
    if isinstance(taken, Offload):
        return f"{data_title(graph, taken.data)} goes to the host ({size})"
    if isinstance(taken, Fetch):
        return f"{data_title(graph, taken.data)} comes back from the host ({size})"
    before = takewhile(lambda place: isinstance(trace.steps[place], Free), range(step, -1, -1))
    freed = [trace.steps[place].data for place in before][::-1]  # type: ignore[union-attr]
    are = "is" if len(freed) == 1 else "are"
    return f"{listed([data_title(graph, data) for data in freed])} {are} freed"


def listed(names: Sequence[str]) -> str:
    """Return names as a text.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdef"))
    ('a', 'a, b and c', 'a, b and 4 more')
    """
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
