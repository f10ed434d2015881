"""Calls: the array arguments of a call, which are traced, and the static ones, which are not.

A trace is specialised to the shapes of its arrays and to the values of static arguments: a flag, a
number of layers, a name. Those are passed on as they are, as with ``static_argnames`` in JAX.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, did_you_mean


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function, split into array arguments and static arguments.

    Attributes:
        function: the callable.
        args, named: its positional and keyword arguments.
        places: positions and keywords of the array arguments.
        static: (name, key) of the static arguments; part of the identity of a specialisation.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[int | str, ...] = ()
    static: tuple[tuple[str, Any], ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The array arguments."""
        return tuple([self.args[p] if isinstance(p, int) else self.named[p] for p in self.places])

    @property
    def names(self) -> list[str]:
        """The parameter names of the array arguments."""
        names = parameter_names(self.function, len(self.args))
        return [names[place] if isinstance(place, int) else place for place in self.places]

    def again(self, arguments: Sequence[Any]) -> Any:
        """Call the function with other values for the array arguments."""
        args, named = list(self.args), dict(self.named)
        for place, argument in zip(self.places, arguments, strict=True):
            if isinstance(place, int):
                args[place] = argument
            else:
                named[place] = argument
        return self.function(*args, **named)


def split_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    static: str | Collection[str],
) -> Call:
    """Split a call's arguments into arrays and static values.

    Raises:
        GraphError: if it is no function, or has no such parameters, or if a static argument is an
            array or not hashable.
    """
    if not callable(function):
        raise GraphError(
            f"expected a function, got a {type(function).__name__}; give the function itself, not "
            "what it returns"
        )
    if not named and not static:
        return Call(function, args, named, tuple(range(len(args))))
    static = (static,) if isinstance(static, str) else static
    if not isinstance(static, Sequence | Set) or not all(isinstance(name, str) for name in static):
        raise GraphError(f"static={static!r}: expected names of arguments, such as ('train',)")
    args, named = bind_arguments(function, args, named)
    names = dict(enumerate(parameter_names(function, len(args)))) | {key: key for key in named}
    check_static(function, static, names.values())
    values = dict(enumerate(args)) | dict(named)
    return Call(
        function,
        args,
        named,
        tuple([place for place, name in names.items() if name not in static]),
        tuple(
            [
                (name, static_key(name, values[place]))
                for place, name in names.items()
                if name in static
            ]
        ),
    )


def bind_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Bind arguments to the function's parameters, positionally where possible."""
    signature = signature_of(function)
    if signature is None:
        return args, named
    try:
        found = signature.bind(*args, **named)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        taken = inspect.Signature(plain)
        raise GraphError(f"{function_name(function)}{taken}: {error}") from error
    return found.args, found.kwargs


def check_static(function: Callable[..., Any], static: Collection[str], passed: Any) -> None:
    """Raise a GraphError if a name in ``static`` is not a parameter of the function."""
    signature = signature_of(function)
    parameters = signature.parameters if signature else {}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in static:
        if name not in parameters and name not in passed and not anything:
            legal = ", ".join(parameters) or "none that Python knows of"
            raise GraphError(
                f"static: {function_name(function)} has no parameter {name!r}"
                f"{did_you_mean(name, parameters)}; it has {legal}"
            )


def static_key(name: str, value: Any) -> Any:
    """Return a key that two static values share only if no function can distinguish them.

    Plain equality is too coarse and too fine: 1, 1.0 and True are equal in Python, and so are 0.0
    and -0.0, while no NaN equals itself.

    Raises:
        GraphError: if a value is not hashable.
    """
    if isinstance(value, tuple):
        return type(value), tuple([static_key(f"{name}[{i}]", v) for i, v in enumerate(value)])
    if isinstance(value, frozenset):
        return type(value), frozenset([static_key(f"an element of {name}", v) for v in value])
    if is_dataclass(value) and not isinstance(value, type):
        items = [(f.name, getattr(value, f.name)) for f in fields(value)]
        return type(value), tuple([static_key(f"{name}.{key}", v) for key, v in items])
    try:
        hash(value)
    except TypeError as error:
        if hasattr(value, "__array__"):
            message = "an array cannot be static; leave its name out of static="
        else:
            message = (
                f"a static argument must be hashable, and a {type(value).__name__} is not; pass a "
                "tuple, or its items one by one"
            )
        raise GraphError(f"{name}: {message}") from error
    inexact = isinstance(value, float | complex | np.inexact)
    return type(value), repr(value) if inexact else value


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional parameters; ``arg0`` etc. without a signature."""
    signature = signature_of(function)
    parameters = signature.parameters.values() if signature else ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[:count] + [f"arg{position}" for position in range(len(names), count)]


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return a function's signature, or None if it has none (some built-ins)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def function_name(function: Callable[..., Any]) -> str:
    """Return a function's name for graphs and messages."""
    return str(getattr(function, "__name__", "graph"))
