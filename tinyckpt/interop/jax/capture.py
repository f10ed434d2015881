"""A function's value_and_grad as one list of equations, with no calls inside of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tinyckpt.base.errors import GraphError

# Calls that are written out: what is inside runs as if it stood outside.
CALLS = {
    "checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "jit", "pjit", "remat", "remat2",
}  # fmt: skip
# They have programs of their own inside, which hold memory that no graph of operators shows.
OPAQUE = {
    "cond", "custom_linear_solve", "custom_root", "pallas_call", "pmap", "scan", "shard_map",
    "while", "xla_pmap",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of the program.

    Attributes:
        aval: JAX's shape and dtype.
    """

    aval: Any


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """One application of a primitive of JAX.

    Attributes:
        primitive: of JAX.
        params: what JAX binds it with.
        inputs: values, and literals, which are numbers.
        outputs: values.
        scope: the ``jax.named_scope`` it was traced in, from the outermost in.
    """

    primitive: Any
    params: Mapping[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Value, ...]
    scope: str


@dataclass(frozen=True, slots=True, eq=False)
class CapturedProgram:
    """The value_and_grad of a function, flat.

    Attributes:
        equations: in an order in which they can run.
        arguments: the leaves of the function's arguments.
        paths: for each of them what people call it, such as ``args[0]['w']``.
        constants: arrays that the function captured.
        results: the value, and then the leaves of the gradients; a literal where one is a number.
        gradient_paths: for each gradient what people call it.
        nestings: of the arguments, and of (value, gradients), as JAX tells them.
    """

    equations: tuple[Equation, ...]
    arguments: tuple[Value, ...]
    paths: tuple[str, ...]
    constants: Mapping[Value, Any]
    results: tuple[Any, ...]
    gradient_paths: tuple[str, ...]
    nestings: tuple[Any, Any]


def program_of(fun: Callable[..., Any], args: Sequence[Any]) -> CapturedProgram:
    """Return the value_and_grad of a function, with respect to its first argument.

    Raises:
        GraphError: if the function does not return one scalar, does not take the arguments, or has
            control flow that only the running program decides.
    """
    name = getattr(fun, "__name__", "the function")
    check_scalar(fun, args, name)
    closed, shapes = traced(jax.make_jaxpr(jax.value_and_grad(fun), return_shape=True), args, name)
    flat = Flattening(name)
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
    """Raise a GraphError unless a function takes the arguments and returns one real number."""
    if not args:
        raise GraphError(f"{name}: give its arguments; the gradient is taken of the first")
    returned = traced(lambda *given: jax.eval_shape(fun, *given), args, name)
    leaves = jax.tree_util.tree_leaves(returned)
    is_one = len(leaves) == 1 and leaves[0] is returned and leaves[0].shape == ()
    if is_one and jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return
    what = ", ".join(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves)
    raise GraphError(
        f"{name} returns {what or 'nothing'}; legal is one real scalar, the loss that is to be "
        "differentiated"
    )


def traced(call: Callable[..., Any], args: Sequence[Any], name: str) -> Any:
    """Return a call's result; what JAX raises becomes one GraphError."""
    try:
        return call(*args)
    except GraphError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise GraphError(
            f"{name}: JAX cannot trace it: {type(error).__name__}: {text}; legal are arguments "
            "that it takes, the first of real numbers, and a course that does not depend on the "
            "numbers in its arrays"
        ) from error


class Flattening:
    """Equations as they are met.

    Attributes:
        name: of the function, for errors.
        equations: so far.
        constants: arrays that the function captured.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.equations: list[Equation] = []
        self.constants: dict[Value, Any] = {}

    def known(self, arrays: Sequence[Any]) -> list[Value]:
        """Return values for some captured arrays."""
        values = [Value(jax.typeof(array)) for array in arrays]
        self.constants.update(zip(values, arrays, strict=True))
        return values

    def walk(
        self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Any], scope: str
    ) -> list[Any]:
        """Add the equations of a jaxpr; return its results."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(map(read, equation.invars))
            inside = "/".join(filter(None, (scope, scope_of(equation))))
            inner = inner_of(equation)
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
        """Raise a GraphError if an equation is more than one operator."""
        kind = equation.primitive.name
        if kind in OPAQUE:
            raise GraphError(
                f"{self.name}: {kind} has a program of its own inside, whose memory nothing here "
                "sees; write loops and branches in Python, so that they are unrolled"
            )
        if equation.effects:
            raise GraphError(
                f"{self.name}: {kind} has an effect besides its results, which a recomputation "
                "would repeat; take it out"
            )


def inner_of(equation: Any) -> ClosedJaxpr | None:
    """Return the program that a call runs, or None if the equation is no call."""
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
    """Return the named scopes that an equation was traced in, without JAX's own transformations."""
    stack = equation.source_info.name_stack.stack
    return "/".join(entry.name for entry in stack if type(entry).__name__ == "Scope")
