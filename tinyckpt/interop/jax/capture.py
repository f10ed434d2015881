"""Jaxpr flattening: a function's ``value_and_grad`` as one list of equations, calls inlined.

In: a function and arguments (arrays or ``jax.ShapeDtypeStruct``). Out: a ``CapturedProgram`` in
single-assignment form, in an executable order. Nested jaxprs of ``jit``, ``custom_jvp`` and
``checkpoint`` are inlined; control flow (``scan``, ``while``, ``cond``) and effects are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tinyckpt.base.errors import GraphError

# Call primitives, which are inlined.
CALLS = {
    "checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "jit", "pjit", "remat", "remat2",
}  # fmt: skip
# Refused: they run jaxprs of their own, whose memory a graph of operators does not show.
OPAQUE = {
    "cond", "custom_linear_solve", "custom_root", "pallas_call", "pmap", "scan", "shard_map",
    "while", "xla_pmap",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value of the flattened program.

    Attributes:
        aval: JAX's abstract value, shape and dtype.
    """

    aval: Any


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """One application of a JAX primitive.

    Attributes:
        primitive: JAX's primitive.
        params: the parameters that JAX binds it with.
        inputs: operands: values, and literals, which are numbers.
        outputs: values.
        scope: the ``jax.named_scope`` it was traced in, outermost first.
    """

    primitive: Any
    params: Mapping[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Value, ...]
    scope: str


@dataclass(frozen=True, slots=True, eq=False)
class CapturedProgram:
    """The flattened ``value_and_grad`` of a function.

    Attributes:
        equations: in an executable (topological) order.
        arguments: the leaves of the function's arguments.
        paths: the pytree path of each, such as ``args[0]['w']``.
        constants: arrays that the function closes over.
        results: the value, then the leaves of the gradients; a literal where one is a number.
        gradient_paths: the pytree path of each gradient.
        nestings: JAX's tree structures of the arguments, and of (value, gradients).
    """

    equations: tuple[Equation, ...]
    arguments: tuple[Value, ...]
    paths: tuple[str, ...]
    constants: Mapping[Value, Any]
    results: tuple[Any, ...]
    gradient_paths: tuple[str, ...]
    nestings: tuple[Any, Any]


def program_of(fun: Callable[..., Any], args: Sequence[Any]) -> CapturedProgram:
    """Trace and flatten ``value_and_grad`` of a function, with respect to its first argument.

    Raises:
        GraphError: if the function does not return one scalar, does not take the arguments, or has
            data-dependent control flow.
    """
    name = getattr(fun, "__name__", "the function")
    check_scalar(fun, args, name)
    closed, shapes = traced(jax.make_jaxpr(jax.value_and_grad(fun), return_shape=True), args, name)
    flat = JaxprFlattener(name)
    arguments = tuple(Value(variable.aval) for variable in closed.jaxpr.invars)
    results = flat.walk(closed.jaxpr, flat.known(closed.consts), arguments, "")
    leaves, nesting = jax.tree_util.tree_flatten_with_path(tuple(args))
    gradients, _ = jax.tree_util.tree_flatten_with_path(shapes[1])
    return CapturedProgram(
        tuple(flat.equations),
        arguments,
        tuple("args" + jax.tree_util.keystr(path) for path, _ in leaves),
        flat.constants,
        tuple(results),
        tuple("args[0]" + jax.tree_util.keystr(path) for path, _ in gradients),
        (nesting, jax.tree_util.tree_structure(shapes)),
    )


def check_scalar(fun: Callable[..., Any], args: Sequence[Any], name: str) -> None:
    """Raise a GraphError unless a function takes the arguments and returns one real scalar."""
    if not args:
        raise GraphError(f"{name}: give its arguments; the gradient is taken of the first")
    returned = traced(lambda *given: jax.eval_shape(fun, *given), args, name)
    leaves = jax.tree_util.tree_leaves(returned)
    is_one = len(leaves) == 1 and leaves[0] is returned and leaves[0].shape == ()
    if is_one and jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return
    what = ", ".join(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves)
    raise GraphError(
        f"{name} returns {what or 'nothing'}; expected one real scalar, the loss to differentiate"
    )


def traced(call: Callable[..., Any], args: Sequence[Any], name: str) -> Any:
    """Call a JAX transformation; any exception that JAX raises becomes one GraphError."""
    try:
        return call(*args)
    except GraphError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise GraphError(
            f"{name}: JAX cannot trace it: {type(error).__name__}: {text}; expected arguments "
            "that it accepts, the first of real numbers, and control flow that does not depend on "
            "the values of its arrays"
        ) from error


class JaxprFlattener:
    """A recursive inliner of jaxprs, with the equations emitted so far.

    Attributes:
        name: of the function, for errors.
        equations: emitted so far.
        constants: arrays that the function closes over.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.equations: list[Equation] = []
        self.constants: dict[Value, Any] = {}

    def known(self, arrays: Sequence[Any]) -> list[Value]:
        """Register closed-over arrays as constants; return their values."""
        values = [Value(jax.typeof(array)) for array in arrays]
        self.constants.update(zip(values, arrays, strict=True))
        return values

    def walk(
        self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Any], scope: str
    ) -> list[Any]:
        """Emit the equations of a jaxpr, inlining calls; return its results."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(map(read, equation.invars))
            inside = "/".join(filter(None, (scope, scope_of(equation))))
            inner = called_jaxpr(equation)
            if inner is not None:
                results = self.walk(inner.jaxpr, self.known(inner.consts), inputs, inside)
                values.update(zip(equation.outvars, results, strict=True))
                continue
            self.check(equation)
            outputs = tuple(Value(variable.aval) for variable in equation.outvars)
            values.update(zip(equation.outvars, outputs, strict=True))
            self.equations.append(
                Equation(equation.primitive, equation.params, inputs, outputs, inside)
            )
        return [read(atom) for atom in jaxpr.outvars]

    def check(self, equation: Any) -> None:
        """Raise a GraphError if an equation has control flow inside or an effect."""
        kind = equation.primitive.name
        if kind in OPAQUE:
            raise GraphError(
                f"{self.name}: {kind} runs a jaxpr of its own, whose memory is not modelled; "
                "write loops and branches in Python, so that they are unrolled"
            )
        if equation.effects:
            raise GraphError(
                f"{self.name}: {kind} has a side effect, which a recomputation would repeat; "
                "remove it"
            )


def called_jaxpr(equation: Any) -> ClosedJaxpr | None:
    """Return the jaxpr that a call equation runs, or None if the equation is no call."""
    if equation.primitive.name not in CALLS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(key)
        if isinstance(inner, ClosedJaxpr):
            return inner
        if isinstance(inner, Jaxpr):
            return ClosedJaxpr(inner, ())
    return None


def scope_of(equation: Any) -> str:
    """Return the ``named_scope`` path of an equation, without JAX's own transformations."""
    stack = equation.source_info.name_stack.stack
    return "/".join(entry.name for entry in stack if type(entry).__name__ == "Scope")
