"""Tracing of JAX functions to training graphs by abstract evaluation, without any array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinyckpt.core.graph import TrainingGraph
from tinyckpt.interop.jax.capture import CapturedProgram, Equation, program_of
from tinyckpt.interop.jax.importer import graph_of


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A traced ``value_and_grad``: the graph to plan on, and the equations ``step`` executes.

    Attributes:
        graph: the training graph, which plans, replays and draws like any other.
        program: the flattened program that it was built from.
        equations: the equation of each operator, by operator id.

    >>> import jax
    >>> trace(lambda w: (w * w).sum(), jax.ShapeDtypeStruct((3,), "float32"))
    <Traced <lambda>, 6 operators>
    """

    graph: TrainingGraph
    program: CapturedProgram
    equations: tuple[Equation, ...]

    def __repr__(self) -> str:
        return f"<Traced {self.graph.name}, {len(self.graph.operators)} operators>"


def trace(fun: Callable[..., Any], *args: Any) -> Traced:
    """Return the graph of ``jax.value_and_grad(fun)``, with respect to the first argument.

    Calls (``jit``, ``custom_jvp``, ``checkpoint``) are written out. Scopes are those of
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
            or has what cannot be planned: loops and branches of ``jax.lax``, effects.

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
    program = program_of(fun, args)
    graph, equations = graph_of(program, getattr(fun, "__name__", "jax"))
    return Traced(graph, program, equations)
