"""In-place update of an input (``assign``), and fused optimiser arithmetic (SGD, momentum, Adam).

An update is the one impure operator. The schedule makes it explicit: it has a step kind of its own,
``Update``, and nothing may read the source's old value after that step.

The arithmetic of optimisers is fused so that it needs no memory but its result. It has no
derivatives, since training never differentiates through it.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.graph import UPDATE
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Builder, Var, active_builder, apply, as_var
from tinyckpt.ops import kernels_parameter_update as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.elementwise_table import UPDATES
from tinyckpt.ops.kernels_elementwise import KERNELS
from tinyckpt.ops.shape_inference import per_element


def infer_update(source: Spec, value: Spec) -> tuple[Spec, ...]:
    if source != value:
        raise GraphError(f"{source} cannot be assigned {value}; shape and dtype must be the same")
    return (source,)


def infer_like_first(first: Spec, *others: Spec, **attrs: Any) -> tuple[Spec, ...]:
    infer.require_float(first, *others)
    infer.require_same_dtype(first, *others)
    for other in others:
        if other.shape not in (first.shape, ()):
            raise GraphError(f"{other} has neither the shape of {first} nor that of a scalar")
    return (first,)


WRITE_OVER = Primitive(
    UPDATE, kernels.write_over, infer_update, alias=0, contiguous=True, takes_bfloat16=True
)


def fused(name: str) -> Primitive:
    """Make the primitive of a row of ``UPDATES``, which is evaluated in the result's memory."""
    kernel = KERNELS[name]
    flops = per_element(kernel.flops)
    return Primitive(name, kernel.function, infer_like_first, flops=flops, contiguous=True)


DESCEND, MOVING_SUM, MOVING_AVERAGE, MOVING_SQUARE = (fused(row.name) for row in UPDATES)
# The quotient and its root, epsilon, the quotient of the moments, times the rate, the difference,
# and the decay: 7 per element.
ADAM_STEP = Primitive(
    "adam_step", kernels.adam_step, infer_like_first, flops=per_element(7), contiguous=True,
    # Weight decay, a block of parameters at a time.
    workspace=lambda inputs, outputs, epsilon, weight_decay: (
        inputs[0].dtype.itemsize * min(inputs[0].size, kernels.DECAY_BLOCK) if weight_decay else 0
    ),
)  # fmt: skip


def assign(source: Var, value: Any) -> Var:
    """Update an argument of the traced function in place; return its new value.

    The result aliases the argument's memory and costs none. Readers of the argument itself read the
    old value, and so are evaluated before the update, wherever they stand in the function.

    ``tc.run`` updates a copy, and leaves the caller's arrays unchanged. Compiled programs
    (``tc.compile``, ``tc.jit``, ``tc.train_step``) update the arrays that they are given, which
    must be C-contiguous and must not overlap.

    Args:
        source: an argument of the function, as it was given.
        value: of the same shape and dtype.

    Raises:
        GraphError: if the source is not an argument, is updated already, or the value does not fit.

    >>> import numpy as np, tinyckpt as tc
    >>> def half(w):
    ...     return tc.assign(w, w - 0.5 * w), tc.sum(w)
    >>> print(tc.plan(tc.build(half, tc.Spec(2))))
    0  compute  multiply_1   live 1 node, 16 B
    1  compute  subtract_1   live 2 nodes, 32 B
    2  free     multiply_1   live 1 node, 16 B
    3  compute  sum_1        live 2 nodes, 24 B
    4  update   update_w     live 3 nodes, 24 B
    5  free     subtract_1   live 2 nodes, 8 B
    store_all on half: 4 evaluations, 0 of them recomputations; peak 3 nodes, 32 B; no backward pass
    """
    builder = active_builder("assign")
    source = as_var(source)
    if not source.node.is_source or source.node.role == "constant":
        raise GraphError(
            f"assign: {source.node.name} is not an argument of the function; only arguments "
            "can be updated"
        )
    if source.node.id in updated_sources_of(builder):
        raise GraphError(f"assign: {source.node.name} is updated already")
    with builder.named(f"update_{source.node.name}"):
        (result,) = builder.add_operator(WRITE_OVER, (source, value), {})
    return result


def updated_sources_of(builder: Builder) -> set[int]:
    """Return the sources that the graph under construction updates; linear over a whole build."""
    seen, found = builder.scratch.get("updates", (0, set()))
    for operator in builder.operators[seen:]:
        if operator.is_update:
            found.add(operator.inputs[0])
    builder.scratch["updates"] = len(builder.operators), found
    updated: set[int] = found
    return updated


def descend(x: Var, direction: Var, rate: Var) -> Var:
    """Gradient descent step, ``x - rate * direction``; ``rate`` is a number of the same dtype."""
    return apply(DESCEND, x, direction, rate)


def moving_sum(old: Var, new: Var, decay: float) -> Var:
    """Momentum accumulation, ``decay * old + new``."""
    return apply(MOVING_SUM, old, new, decay=decay)


def moving_average(old: Var, new: Var, decay: float) -> Var:
    """Exponential moving average, ``decay * old + (1 - decay) * new``."""
    return apply(MOVING_AVERAGE, old, new, decay=decay)


def moving_square(old: Var, new: Var, decay: float) -> Var:
    """Exponential moving average of squares, ``decay * old + (1 - decay) * new**2``."""
    return apply(MOVING_SQUARE, old, new, decay=decay)


def adam_step(
    x: Var,
    mean: Var,
    square: Var,
    rate: Var,
    corrections: tuple[Var, Var],
    epsilon: float,
    weight_decay: float,
) -> Var:
    """Adam step with decoupled weight decay (AdamW); returns the new parameters.

    ``x (1 - rate weight_decay) - rate (mean / c1) / (sqrt(square / c2) + epsilon)``.

    Args:
        x: the parameters.
        mean, square: the moving averages of gradients and of their squares.
        rate: the learning rate, a number of the same dtype.
        corrections: c1 and c2, the bias corrections of averages that began at 0.
        epsilon: keeps the quotient finite.
        weight_decay: decay rate of the parameters, times the learning rate.
    """
    operands = x, mean, square, rate, *corrections
    return apply(ADAM_STEP, *operands, epsilon=epsilon, weight_decay=weight_decay)
