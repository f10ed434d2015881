"""Primitives: per operator kind, shape inference, kernel, vjp rule, FLOPs, workspace and aliasing.

A ``Primitive`` is one row of the operator table. ``apply`` adds an application of it to the graph
under construction, which is found through the context variable ``ACTIVE_BUILDER``: operator
families need not import the builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyckpt.base.dtypes import is_bfloat16
from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Phase, Spec

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Builder, Var


# (output cotangents, inputs, outputs, **attrs) -> the input's cotangent, or None for a zero one.
# An output's cotangent is None if the loss does not depend on that output.
VjpRule = Callable[..., "Var | None"]
Specs = Sequence[Spec]


def no_workspace(inputs: Specs, outputs: Specs, **attrs: Any) -> int:
    """Workspace rule of a kernel that allocates nothing beyond its outputs."""
    return 0


def per_element(count: int) -> Callable[..., int]:
    """FLOP rule: ``count`` operations per element of the first output."""
    return lambda inputs, outputs, **attrs: count * outputs[0].size


def no_flops(inputs: Specs, outputs: Specs, **attrs: Any) -> int:
    """FLOP rule of an operator that moves or relabels data without arithmetic."""
    return 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """The operator table's row: everything the system knows of one kind of operator.

    >>> import tinyckpt as tc
    >>> twice = tc.Primitive(
    ...     "twice", lambda xp, x: x + x, lambda x: (x,), vjp=(lambda ct, ins, outs: ct[0] + ct[0],)
    ... )
    >>> float(tc.grad(lambda x: tc.apply(twice, x))(3.0))
    2.0

    Attributes:
        name: the operator's kind in graphs.
        forward: the kernel, ``forward(xp, *arrays, **attrs)`` -> an array, or a tuple of arrays.
        infer: shape inference, ``infer(specs, **attrs)`` -> the specs of the outputs; raises
            GraphError.
        vjp: one vector-Jacobian product rule per input, or a function from the input's position to
            its rule (variadic operators). A rule emits graph operators and captures no arrays: the
            graph's edges are the residuals. A missing rule (a tuple too short) means that the
            operator is not differentiable with respect to that input.
        flops: floating-point operations of one evaluation, from specs and attributes.
        workspace: scratch bytes of one evaluation, beyond inputs and outputs.
        alias: the input whose memory every output shares, for views; None for fresh memory.
        contiguous: whether outputs are C-contiguous; None means "if every input is".
        takes_bfloat16: whether inputs may be bfloat16: only moved, or computed with in 32 bits.
    """

    name: str
    forward: Callable[..., Any]
    infer: Callable[..., tuple[Spec, ...]]
    vjp: tuple[VjpRule, ...] | Callable[[int], VjpRule] = ()
    flops: Callable[..., int] = no_flops
    workspace: Callable[..., int] = no_workspace
    alias: int | None = None
    contiguous: bool | None = None
    takes_bfloat16: bool = False

    def output_specs(self, specs: Specs, attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
        """Infer the specs of the outputs; raise a GraphError if the inputs do not fit."""
        if not self.takes_bfloat16 and any(is_bfloat16(spec.dtype) for spec in specs):
            raise GraphError(
                f"of {', '.join(map(str, specs))}: bfloat16 is for storage; convert with "
                "x.astype('float32') to compute"
            )
        outputs = self.infer(*specs, **attrs)
        if not isinstance(outputs, tuple):
            raise GraphError("its infer rule must return a tuple of tc.Spec")
        return outputs

    def rule(self, position: int) -> VjpRule | None:
        """Return the vjp rule of the input at ``position``, or None if there is none."""
        if callable(self.vjp):
            return self.vjp(position)
        return self.vjp[position] if position < len(self.vjp) else None


# The operators that tracing and autodiff themselves add, filled by ``ops``:
# ``cast(x, dtype)``; ``add(x, y)``, the sum of two cotangents; ``fill(shape, value, dtype)``; and
# ``unalias(results, shown)``, copies where two results would share memory.
ARITHMETIC: dict[str, Callable[..., Any]] = {}


def zero(cotangents: Any, inputs: Any, outputs: Any, **attrs: Any) -> None:
    """Vjp rule of an input whose cotangent is zero: the output does not vary with it."""


def active_builder(what: str) -> Builder:
    """Return the builder of the function being traced, or raise a GraphError outside of a trace."""
    builder = ACTIVE_BUILDER.get()
    if builder is None:
        raise GraphError(
            f"{what} was called outside of a build; operators act on the arguments of a function "
            "that tc.build, tc.value_and_grad or tc.grad is tracing"
        )
    return builder


def as_var(operand: Any) -> Var:
    """Convert an operand to a Var of the function being traced; arrays become constants."""
    return active_builder("an operator").as_var(operand)


def apply_all(primitive: Primitive, *operands: Any, **attrs: Any) -> tuple[Var, ...]:
    """Add one operator to the graph being traced, and return all its outputs.

    >>> import numpy as np, tinyckpt as tc
    >>> swap = tc.Primitive("swap", lambda xp, x, y: (y + 0, x + 0), lambda x, y: (y, x))
    >>> [float(value) for value in tc.jit(lambda x, y: tc.apply_all(swap, x, y))(1.0, 2.0)]
    [2.0, 1.0]
    """
    return active_builder(primitive.name).add_operator(primitive, operands, attrs)


def apply(primitive: Primitive, *operands: Any, **attrs: Any) -> Var:
    """Add one operator to the graph being traced, and return its only output.

    >>> import tinyckpt as tc
    >>> square = tc.Primitive("my_square", lambda xp, x: x * x, lambda x: (x,))
    >>> float(tc.jit(lambda x: tc.apply(square, x))(3.0))
    9.0
    """
    (output,) = apply_all(primitive, *operands, **attrs)
    return output


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
        if operator.adjoint_of != builder.adjoint_of:
            break
        same = operator.primitive is primitive and operator.inputs == inputs
        if same and operator.attrs == attrs:
            return tuple([builder.var(data) for data in operator.outputs])
    return builder.add_operator(primitive, operands, attrs)


# --------------------------------------------------------------------------------------------------
# The tracing context: phase, adjoint, name and scope of the operators being added.


# The builder of the graph under construction, or None outside of a trace.
ACTIVE_BUILDER: ContextVar[Builder | None] = ContextVar("ACTIVE_BUILDER", default=None)


@dataclass(frozen=True, slots=True)
class TracingContext:
    """The tracing context: attributes that the builder gives to every operator it adds.

    Attributes:
        phase: forward or backward pass.
        adjoint_of: the forward operator whose adjoint is being added, or None.
        name: the operators' name; after their primitive, if not given.
        scope, regions: as in ``Operator``.
    """

    phase: Phase = "forward"
    adjoint_of: int | None = None
    name: str | None = None
    scope: str = ""
    regions: tuple[int, ...] = ()


class ContextSwitch:
    """Context manager that switches the builder's tracing context, and restores it on exit."""

    __slots__ = ("builder", "inside", "outside")

    def __init__(self, builder: Builder, inside: TracingContext) -> None:
        self.builder, self.inside = builder, inside

    def __enter__(self) -> None:
        self.outside, self.builder._here = self.builder._here, self.inside

    def __exit__(self, *raised: object) -> None:
        self.builder._here = self.outside
