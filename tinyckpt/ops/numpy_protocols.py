"""NumPy's dispatch protocols on traced values: ``__array_ufunc__`` and ``__array_function__``.

``np.tanh(x)`` asks ``x`` first (``__array_ufunc__``), and so does ``np.concatenate([x, y])``
(``__array_function__``). The tables of ``numpy_names`` say which function is called; an unsupported
function is an error that names a replacement. Arguments are matched by NumPy's signature, so that
``np.sum(a=x)`` works, and an unsupported argument is named.

Source: NumPy enhancement proposals 13 and 18.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import as_var
from tinyckpt.ops import shape
from tinyckpt.ops.numpy_names import ACCUMULATIONS, FUNCTIONS, REDUCTIONS, REPLACEMENTS, UFUNCS

# NumPy's argument names that differ here, and arguments that have no effect here.
RENAMED = {"a_min": "min", "a_max": "max", "correction": "ddof"}
WITHOUT_EFFECT = {"optimize", "subok", "casting", "kind", "stable", "copy", "device", "order"}
DEFAULTS = {"where": True, "returned": False, "mode": "raise", "include_initial": False}


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Dispatch a ufunc, or one of its methods (``__array_ufunc__``).

    Raises:
        GraphError: if the function or an option is unsupported; names the supported ones.
    """
    name = ufunc.__name__
    table = {"__call__": UFUNCS, "outer": UFUNCS, "reduce": REDUCTIONS}.get(method, ACCUMULATIONS)
    called = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
    function = table.get(name)
    if method == "at":
        raise GraphError(
            f"{called}: an in-place update; values are immutable: use tc.where or x[...]"
        )
    if function is None or method == "reduceat":
        raise GraphError(f"{called}: {replacement(name, method)}")
    given = {key: value for key, value in options.items() if not is_default(key, value)}
    if method in ("reduce", "accumulate"):
        given["axis"] = inputs[1] if len(inputs) > 1 else options.get("axis", 0)
        legal = ["axis", "keepdims"] if method == "reduce" else ["axis"]
    else:
        legal = ["axis"] if name == "vecdot" else []
    for key in given:
        if key not in legal:
            raise GraphError(unsupported(called, key, legal))
    if method == "outer":
        left, right = (as_var(operand) for operand in inputs)
        return function(shape.index(left, (..., *(None,) * right.ndim)), right)
    return function(*(inputs if method == "__call__" else inputs[:1]), **given)


def call_function(function: Callable[..., Any], args: Sequence[Any], options: Any) -> Any:
    """Dispatch any other function of NumPy (``__array_function__``).

    Raises:
        GraphError: if the function or an option is unsupported; names the supported ones.
    """
    name = name_of(function)
    answer = FUNCTIONS.get(name)
    if answer is None:
        raise GraphError(f"np.{name}: {replacement(name)}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # NumPy before 2.4 has no signature for a few functions written in C
        return answer(*args, **options)
    own = inspect.signature(answer).parameters
    positional, given = map_arguments(name, signature.bind(*args, **options), own)
    return answer(*positional, **given)


def map_arguments(
    name: str, bound: inspect.BoundArguments, own: Mapping[str, inspect.Parameter]
) -> tuple[list[Any], dict[str, Any]]:
    """Map NumPy's arguments to those of the function that is called.

    By name where both have it, else by position; the defaults of unsupported arguments are dropped.
    """
    theirs = bound.signature.parameters
    own_names = list(own)
    variadic = [key for key in own if own[key].kind is inspect.Parameter.VAR_POSITIONAL]
    positional: list[Any] = []
    given: dict[str, Any] = {}
    for position, (key, parameter) in enumerate(theirs.items()):
        if key not in bound.arguments:
            continue
        value = bound.arguments[key]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(value)
            continue
        pairs = value if parameter.kind is inspect.Parameter.VAR_KEYWORD else {key: value}
        for option, setting in pairs.items():
            target = RENAMED.get(option, option)
            same_position = own_names[position] if position < len(own_names) else ""
            if target in own and not variadic:
                if setting is not no_value():
                    given[target] = setting
            elif (
                same_position
                and same_position not in theirs
                and same_position not in given
                and not variadic
            ):
                given[same_position] = setting
            elif not is_default(option, setting) and setting is not parameter.default:
                legal = [n for n in own if n in theirs or n in RENAMED.values()]
                raise GraphError(unsupported(f"np.{name}", option, legal))
    return positional, given


def no_value() -> Any:
    """Return NumPy's sentinel for the default of an argument that is not given."""
    return getattr(np, "_NoValue", None)


def is_default(option: str, value: Any) -> bool:
    """Whether an option of NumPy's has no effect here."""
    if option == "order":
        return value in (None, "C", "K", "A")
    return (
        value is None
        or value is no_value()
        or option in WITHOUT_EFFECT
        or (isinstance(value, tuple) and all(item is None for item in value) and option == "out")
        or (option in DEFAULTS and value is DEFAULTS[option])
        or (option in DEFAULTS and isinstance(value, str) and value == DEFAULTS[option])
    )


def unsupported(called: str, option: str, legal: Sequence[str]) -> str:
    """Return the message for an unsupported option."""
    reasons = {
        "out": "values are immutable, so nothing is written in place: use the result instead",
        "dtype": "convert with x.astype(...) before or after",
        "where": "choose with tc.where",
        "initial": "combine with the result, as in tc.maximum(result, initial)",
        "order": "arrays are in C order",
    }
    listed = f"supported: {', '.join(legal)}" if legal else "it takes only arrays"
    return f"{called}: {option}= is not supported: {reasons.get(option, listed)}"


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name after ``np.``."""
    module = getattr(function, "__module__", "numpy") or "numpy"
    return f"{module.removeprefix('numpy').removeprefix('.')}.{function.__name__}".removeprefix(".")


def replacement(name: str, method: str = "__call__") -> str:
    """Return the replacement for an unsupported function of NumPy."""
    if method == "reduce":
        return f"supported reductions: {', '.join(REDUCTIONS)}"
    if method in ("accumulate", "reduceat"):
        return f"supported accumulations: {', '.join(ACCUMULATIONS)}"
    return REPLACEMENTS.get(
        name,
        "not supported on traced values; docs/numpy.md lists the supported functions. On constant "
        "arrays, compute it outside of the function",
    )


def hint(name: str) -> str:
    """Return the replacement for a name that tinyckpt lacks, if NumPy has it."""
    if name in UFUNCS or name in FUNCTIONS:
        return f"np.{name}(x) works on traced values"
    return f"instead of np.{name}: {REPLACEMENTS[name]}" if name in REPLACEMENTS else ""
