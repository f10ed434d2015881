"""Jaxpr flattening: calls inlined, by evaluating the jaxpr abstractly once more.

In: a closed jaxpr. Out: another one, whose equations stand in an executable order. Nested jaxprs of
``jit``, ``custom_jvp`` and ``checkpoint`` are inlined; control flow (``scan``, ``while``, ``cond``)
is one equation each; effects are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

from tinyckpt.base.errors import GraphError

# Call primitives, which are inlined. What has a derivative rule of its own is inlined only after it
# has been differentiated.
DIFFERENTIATED = frozenset({"checkpoint", "closed_call", "core_call", "jit", "pjit", "remat2"})
CALLS = DIFFERENTIATED | {
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat",
}  # fmt: skip


def flattened(closed: Any, name: str, calls: Collection[str] = CALLS) -> Any:
    """Inline the calls of a jaxpr; return the new one.

    Args:
        closed: a ``ClosedJaxpr``.
        name: of the function, for errors.
        calls: primitives to inline: ``CALLS``, or ``DIFFERENTIATED`` of what is not yet.

    Raises:
        GraphError: if it has an effect.
    """

    def walk(closed: Any, *arguments: Any) -> list[Any]:
        """Evaluate the equations of a jaxpr, those of calls in their place."""
        values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(closed.jaxpr.invars, arguments, strict=True))
        for equation in closed.jaxpr.eqns:
            primitive, scope = equation.primitive.name, scope_of(equation)
            operands = read_all(values, equation.invars)
            with jax.named_scope(scope) if scope else nullcontext():
                if primitive in calls:
                    results = walk(called_jaxpr(equation), *operands)
                elif equation.effects:
                    raise GraphError(
                        f"{name}: {primitive} has a side effect, which a recomputation would "
                        "repeat; remove it"
                    )
                else:
                    results = bind(equation, operands)
            values.update(zip(equation.outvars, results, strict=True))
        return read_all(values, closed.jaxpr.outvars)

    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in closed.in_avals]
    return jax.make_jaxpr(lambda *arguments: walk(closed, *arguments))(*shapes)


def called_jaxpr(equation: Any) -> Any:
    """Return the jaxpr that a call equation runs."""
    keys = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next(equation.params[key] for key in keys if key in equation.params)
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def scope_of(equation: Any) -> str:
    """Return the ``named_scope`` path of an equation, without JAX's own transformations."""
    stack = equation.source_info.name_stack.stack
    return "/".join(entry.name for entry in stack if type(entry).__name__ == "Scope")


def bind(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluate one equation on operands; return its results."""
    primitive = equation.primitive
    made = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
    return list(made) if primitive.multiple_results else [made]


def read_all(values: Mapping[Any, Any], atoms: Iterable[Any]) -> list[Any]:
    """Look up variables in an environment; a literal is its own number."""
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Return those of the operands or results that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def backward_slice(equations: Sequence[Any], results: Iterable[Any]) -> set[int]:
    """Return the ids of the equations that some results depend on (a backward slice)."""
    wanted = set(variables(results))
    found = set()
    for equation in reversed(equations):
        if wanted.intersection(equation.outvars):
            found.add(id(equation))
            wanted.update(variables(equation.invars))
    return found
