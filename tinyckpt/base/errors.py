"""The exception hierarchy: every message says what is wrong, where, and what would be legal."""

from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class TinyckptError(Exception):
    """Base class of all errors that tinyckpt raises deliberately.

    >>> import tinyckpt as tc
    >>> try:
    ...     tc.plan(tc.networks.chain(2), "sqrtn")
    ... except tc.TinyckptError as error:
    ...     print(type(error).__name__)
    PolicyOptionError
    """


class GraphError(TinyckptError):
    """A function cannot be traced, or a graph cannot be differentiated or called.

    >>> import tinyckpt as tc
    >>> tc.build(lambda x: x if x > 0 else -x, tc.Spec(()))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tinyckpt.base.errors.GraphError: the truth value of greater_1 (bool[]): while a function is ...
    """


class ScheduleError(TinyckptError):
    """A schedule is illegal for its graph, or a policy cannot do what was requested.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(1)
    >>> tc.replay(tc.Schedule(graph, (tc.Compute(2),), "mine"))
    Traceback (most recent call last):
    tinyckpt.base.errors.ScheduleError: step 0: compute b1 needs f1, which has not been computed yet
    """


class BudgetError(TinyckptError):
    """No schedule fits the memory budget.

    >>> import tinyckpt as tc
    >>> try:
    ...     tc.plan(tc.networks.chain(4), budget="2 nodes")
    ... except tc.BudgetError as error:
    ...     print(error.smallest, error.proven)
    3 True

    Attributes:
        smallest: the smallest peak found, in the plan's memory unit; or, if the budget was rejected
            before any search, a lower bound on the peak of every schedule. None if neither is
            known, as for a budget that cannot be parsed.
        proven: whether no schedule has a smaller peak than the one found.
    """

    def __init__(self, message: str, smallest: int | None = None, proven: bool = False) -> None:
        super().__init__(message)
        self.smallest, self.proven = smallest, proven


class BackendError(TinyckptError):
    """A schedule cannot be executed: the backend is missing, a kernel fails, or produces a NaN.

    >>> import tinyckpt as tc
    >>> tc.run(tc.plan(tc.networks.chain(1)), [[1.0] * 8] * 8, backend="torch")
    Traceback (most recent call last):
    tinyckpt.base.errors.BackendError: unknown backend 'torch'; expected one of numpy, cupy
    """


class FormatError(TinyckptError):
    """A file is not one of tinyckpt's documents, is damaged, or cannot be written.

    >>> import tinyckpt as tc
    >>> tc.load_graph("missing.json")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tinyckpt.base.errors.FormatError: ...
    """


class OptionError(TinyckptError):
    """An option's value is illegal, by itself or in combination with others.

    >>> import tinyckpt as tc
    >>> tc.on_disk(5)
    Traceback (most recent call last):
    tinyckpt.base.errors.OptionError: folder=5; on_disk expects a folder's path
    """


class PolicyOptionError(OptionError, ScheduleError):
    """Unknown policy, or an illegal option of a policy.

    >>> import tinyckpt as tc
    >>> tc.plan(tc.networks.chain(4), "sqrt_n", by="size")
    Traceback (most recent call last):
    tinyckpt.base.errors.PolicyOptionError: sqrt_n: by='size'; expected 'count' or 'bytes'
    """


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Suggest the known name closest to an unknown one, as a suffix for its error; empty if none.

    >>> names = ["store_all", "sqrt_n"]
    >>> did_you_mean("sqrtn", names), did_you_mean("Sqrt_N", names), did_you_mean("sphere", names)
    (' (did you mean sqrt_n?)', ' (did you mean sqrt_n?)', '')
    """
    from difflib import get_close_matches  # where an error is made, import tinyckpt is done

    names = list(known)
    same = [name for name in names if name.lower() == str(word).lower()]  # in another case
    close = same or get_close_matches(str(word), names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


# What the classes of fields are called in errors.
NOUNS = {
    "callable": "a function", "Graph": "a Graph", "Iterable": "a sequence", "Mapping": "a dict",
    "NoneType": "None", "int": "an integer", "str": "a string", "tuple": "a tuple",
}  # fmt: skip
# How the objects that functions are given are made, in order.
MADE_BY = {
    "Primitive": "tc.Primitive(name, kernel, shape_inference)",
    "Graph": "tc.differentiate(tc.build(function, *arguments))",
    "Schedule": "tc.plan(graph)",
    "Trace": "tc.replay(schedule)",
    "Costs": "tc.cost.flops(graph)",
    "Pipeline": "tinyckpt.pipeline.one_f_one_b(devices, micro_batches)",
}


def check_fields(error: type[TinyckptError], record: object, **kinds: Any) -> None:
    """Raise an error about the first field of a record that is not of its kind.

    Args:
        error: class of the error.
        record: a dataclass that users make themselves.
        kinds: the legal class of each field, or several, or ``callable``, by the field's name.

    >>> import tinyckpt as tc
    >>> tc.Schedule(tc.networks.chain(2), 7, "mine")
    Traceback (most recent call last):
    tinyckpt.base.errors.ScheduleError: Schedule: steps=7; expected a sequence
    """
    for name, kind in kinds.items():
        value = getattr(record, name)
        if not (callable(value) if kind is callable else isinstance(value, kind)):
            several = kind if isinstance(kind, tuple) else (kind,)
            legal = " or ".join(NOUNS.get(each.__name__, each.__name__) for each in several)
            raise error(f"{type(record).__name__}: {name}={value!r:.80}; expected {legal}")


def expect(value: object, kind: type[T]) -> T:
    """Return a value, or raise an error if it is not of the kind that a function takes.

    >>> import tinyckpt as tc
    >>> tc.replay(tc.networks.chain(2))
    Traceback (most recent call last):
    tinyckpt.base.errors.ScheduleError: expected a Schedule, as tc.plan(graph) makes; got a Graph
    """
    if not isinstance(value, kind):
        made, given = MADE_BY[kind.__name__], type(value).__name__
        raise ScheduleError(f"expected a {kind.__name__}, as {made} makes; got a {given}")
    return value
