"""Marks: what a function says of the operators that it builds, for pictures and for policies.

They change nothing of what is computed. Where nothing is traced they do nothing: the function runs
on arrays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import GraphError
from tinyckpt.core.belonging import ACTIVE_BUILDER

if TYPE_CHECKING:
    from tinyckpt.core.var import Var


def scope(name: str) -> AbstractContextManager[None]:
    """Group the operators built inside, as in ``with tc.scope("layer3"):``; scopes nest.

    Where nothing is traced it does nothing, as ``name`` and ``checkpoint``: the function runs on
    arrays as it is.
    """
    checked, builder = checked_text("scope", name), ACTIVE_BUILDER.get()
    return nullcontext() if builder is None else builder.scoped(checked)


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function: the policy ``regions`` recomputes what it makes inside.

    Use it as a decorator, or where the function is called: ``h = tc.checkpoint(block)(h)``. Marked
    functions nest. Other policies do not look at the marks.

    >>> import tinyckpt as tc
    >>> block = tc.checkpoint(lambda x: tc.tanh(tc.sin(x)))
    >>> graph = tc.build(lambda x: tc.sum(block(x)), tc.Spec((3,)))
    >>> [operator.regions for operator in graph.operators]
    [(0,), (0,), ()]
    """

    @wraps(function)
    def marked(*args: Any, **options: Any) -> Any:
        builder = ACTIVE_BUILDER.get()
        with nullcontext() if builder is None else builder.region():
            return function(*args, **options)

    return marked


def name(x: Var, label: str) -> Var:
    """Label a value, so that policies can pick it, as JAX's ``checkpoint_name`` does.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.name(tc.tanh(x), "hidden"), tc.Spec((3,)))
    >>> graph.data[1].label
    'hidden'
    """
    checked, builder = checked_text("name", label), ACTIVE_BUILDER.get()
    return x if builder is None else builder.relabel(builder.as_var(x), checked)


def once(x: Var) -> Var:
    """Let the operator that makes a value be evaluated once: every plan keeps what it makes.

    For what cannot be repeated, or would come out otherwise the second time: what reads a clock or
    a stream, draws numbers without a seed. And for a value that is to stay under every policy.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> [operator.once for operator in graph.operators]
    [True, False]
    """
    builder = ACTIVE_BUILDER.get()
    return x if builder is None else builder.pin(builder.as_var(x))


def checked_text(what: str, text: str) -> str:
    """Return what a user calls something, or raise a GraphError if it is no text."""
    if not isinstance(text, str):
        raise GraphError(f"{what}: expected a string, got a {type(text).__name__}")
    return text
