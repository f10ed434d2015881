"""The errors of tinyckpt: every message says what went wrong, where, and what would be legal."""

from collections.abc import Iterable
from difflib import get_close_matches


class TinyckptError(Exception):
    """Any error that tinyckpt raises on purpose; catch this one to catch them all."""


class GraphError(TinyckptError):
    """A function cannot become a graph, or a graph cannot be differentiated."""


class ScheduleError(TinyckptError):
    """A schedule is not legal for its graph, or a policy was asked for something it cannot do."""


class BudgetError(TinyckptError):
    """No schedule fits the memory budget.

    Attributes:
        smallest: the smallest peak that was found, in the plan's memory unit; or, where the budget
            was refused before anything was looked for, what any schedule needs at least. None if
            neither is known, as of what is no budget at all.
        proven: whether no schedule has a smaller one than was found.
    """

    def __init__(self, message: str, smallest: int | None = None, proven: bool = False) -> None:
        super().__init__(message)
        self.smallest, self.proven = smallest, proven


class BackendError(TinyckptError):
    """A schedule cannot be executed: the backend is missing, a kernel fails, or makes a NaN."""


class FormatError(TinyckptError):
    """A file is not one of tinyckpt's documents, or is damaged."""


class OptionError(TinyckptError):
    """An option's value is not legal, or not together with the others'."""


class PolicyOptionError(OptionError, ScheduleError):
    """There is no such policy, or one of its options is not legal."""


def meant(word: object, known: Iterable[str]) -> str:
    """Return the question which known name was meant, to stand after an unknown one; or nothing.

    >>> meant("sqrtn", ["store_all", "sqrt_n"]), meant("sphere", ["store_all", "sqrt_n"])
    (' (did you mean sqrt_n?)', '')
    """
    close = get_close_matches(str(word), list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
