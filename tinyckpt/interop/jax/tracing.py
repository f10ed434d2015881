"""Tracing of JAX functions to training graphs by abstract evaluation, without any array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.jax.capture import flattened
from tinyckpt.interop.jax.importer import graph_of


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A traced ``value_and_grad``.

    Attributes:
        graph: the training graph, which plans, replays and draws like any other.

    >>> import jax
    >>> trace(lambda w: (w * w).sum(), jax.ShapeDtypeStruct((3,), "float32"))
    <Traced <lambda>, 6 operators>
    """

    graph: TrainingGraph

    def __repr__(self) -> str:
        return f"<Traced {self.graph.name}, {len(self.graph.operators)} operators>"


def trace(fun: Callable[..., Any], *args: Any) -> Traced:
    """Return the graph of ``jax.value_and_grad(fun)``, with respect to the first argument.

    Calls (``jit``, ``custom_jvp``, ``checkpoint``) are written out; control flow of ``jax.lax`` is
    one operator each, whose inner memory does not count. XLA fuses and reorders operators, so the
    peaks of such a graph are for comparing plans, not for what XLA allocates. Scopes are those of
    ``jax.named_scope``, and what ``checkpoint_name`` names has that as its label, so that
    ``tc.plan(graph, "retain", keep=...)`` and JAX's own policies pick it by its name. Costs are
    floating-point operations. Gradients go by the path of what they are the gradient of, such as
    ``args[0]['w']``; of a number that needs none there is none.

    Args:
        fun: returns one real scalar.
        args: arrays, or ``jax.ShapeDtypeStruct``, in any nesting that JAX knows: nothing is
            computed.

    Raises:
        GraphError: if the function does not return one real scalar, does not take the arguments,
            has effects, or control flow in Python that depends on numbers.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.tanh(x @ w).sum()
    >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> print(trace(loss, shape, shape).graph)
    loss: 10 operators, 12 data nodes
      dot_general_0 = dot_general(args[1], args[0])   float32[4,4]
      tanh_1 = tanh(dot_general_0)   float32[4,4]
      reduce_sum_2 = reduce_sum(tanh_1)   float32[]
    backward:
      broadcast_in_dim_3 = broadcast_in_dim()   uint8[0]
      sub_4 = sub(tanh_1)   float32[4,4]
      mul_5 = mul(broadcast_in_dim_3, sub_4)   float32[4,4]
      mul_6 = mul(mul_5, tanh_1)   float32[4,4]
      add_any_7 = add_any(mul_5, mul_6)   float32[4,4]
      dot_general_8 = dot_general(add_any_7, args[1])   float32[4,4]
      transpose_9 = transpose(dot_general_8)   float32[4,4]
    """
    name = getattr(fun, "__name__", "the function")
    check_scalar(fun, args, name)
    closed, shapes = traced(jax.make_jaxpr(jax.value_and_grad(fun), return_shape=True), args, name)
    flat = flattened(closed, name).jaxpr
    graph = graph_of(flat, paths_of(tuple(args), "args"), paths_of(shapes[1], "args[0]"), name)
    return Traced(graph)


def paths_of(nesting: Any, prefix: str) -> list[str]:
    """Return the pytree path of each leaf, such as ``args[0]['w']``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(nesting)
    return [prefix + jax.tree_util.keystr(path) for path, _ in leaves]


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
        raise GraphError(
            f"{name}: JAX cannot trace it: {error_text(error, 300)}; expected arguments that it "
            "accepts, the first of real numbers, and control flow that does not depend on the "
            "values of its arrays"
        ) from error
