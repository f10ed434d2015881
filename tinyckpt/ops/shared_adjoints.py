"""Local common subexpression elimination among the vjp rules of one operator."""

from __future__ import annotations

from typing import Any

from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, active_builder


def apply_shared(primitive: Primitive, *operands: Any, **attrs: Any) -> tuple[Var, ...]:
    """Add an operator that several vjp rules of one operator share, or return it if it is there.

    Vjp rules are called one input at a time. Where a single operator computes the cotangents of
    several inputs, each rule calls this function with the same operands: the first call adds the
    operator, later calls find it among the latest operators of the same adjoint (a local common
    subexpression elimination).

    Args:
        primitive, operands, attrs: as in ``apply_all``.
    """
    builder = active_builder(primitive.name)
    inputs = tuple([builder.as_var(operand).node.id for operand in operands])
    for operator in reversed(builder.operators):
        if operator.adjoint_of != builder.here.adjoint_of:
            break
        same = operator.primitive is primitive and operator.inputs == inputs
        if same and operator.attrs == attrs:
            return tuple([builder.var(data) for data in operator.outputs])
    return builder.add_operator(primitive, operands, attrs)
