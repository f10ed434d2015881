"""What a primitive is: the facts about one kind of operator, side by side.

``apply`` puts a primitive into the graph that is being built. The builder itself is found through
``ACTIVE_BUILDER``, so that the op families below know nothing of how graphs are built.
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


# (output cotangents, inputs, outputs, **attrs) -> the input's cotangent, or None for zero.
# A cotangent is None where nothing reads that output.
VjpRule = Callable[..., "Var | None"]
Specs = Sequence[Spec]


def no_bytes(inputs: Specs, outputs: Specs, **attrs: Any) -> int:
    """Declare that a kernel holds nothing besides inputs and outputs."""
    return 0


def per_element(count: int) -> Callable[..., int]:
    """Return a FLOP count of ``count`` operations for every element of the first output."""
    return lambda inputs, outputs, **attrs: count * outputs[0].size


def free_of_charge(inputs: Specs, outputs: Specs, **attrs: Any) -> int:
    """Declare that an operator moves or relabels data without arithmetic."""
    return 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """The facts about one kind of operator.

    Attributes:
        name: what graphs call it.
        forward: the kernel, ``forward(xp, *arrays, **attrs)`` -> an array, or a tuple of arrays.
        infer: ``infer(specs, **attrs)`` -> the specs of the outputs; raises GraphError.
        vjp: one rule per input, or a function of the input's position for any number of inputs.
            A rule emits graph operators and closes over no arrays: the edges are the residuals.
            A missing rule (a tuple too short) means "not differentiable here".
        flops: floating-point operations of one evaluation, from specs and attributes.
        workspace: bytes held besides inputs and outputs, from specs and attributes.
        alias: the input whose memory every output shares, for views; None for fresh memory.
        contiguous: whether outputs are C-contiguous; None means "if every input is".
        takes_bfloat16: whether inputs may be bfloat16: they are moved, or computed with in 32 bits.
    """

    name: str
    forward: Callable[..., Any]
    infer: Callable[..., tuple[Spec, ...]]
    vjp: tuple[VjpRule, ...] | Callable[[int], VjpRule] = ()
    flops: Callable[..., int] = free_of_charge
    workspace: Callable[..., int] = no_bytes
    alias: int | None = None
    contiguous: bool | None = None
    takes_bfloat16: bool = False

    def output_specs(self, specs: Specs, attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
        """Return the specs of the outputs, or raise the GraphError that says why there are none."""
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


def zero(cotangents: Any, inputs: Any, outputs: Any, **attrs: Any) -> None:
    """The vjp rule of an input that the output does not vary with."""


def active_builder(what: str) -> Builder:
    """Return the builder of the function being traced."""
    builder = ACTIVE_BUILDER.get()
    if builder is None:
        raise GraphError(
            f"{what} was called outside of a build; operators act on the arguments of a function "
            "that tc.build, tc.value_and_grad or tc.grad is tracing"
        )
    return builder


def as_var(operand: Any) -> Var:
    """Return the operand as a Var of the function being traced; arrays become constants."""
    return active_builder("an operator").as_var(operand)


def apply_all(primitive: Primitive, *operands: Any, **attrs: Any) -> tuple[Var, ...]:
    """Add one operator to the graph being built and return all its outputs."""
    return active_builder(primitive.name).add_operator(primitive, operands, attrs)


def apply(primitive: Primitive, *operands: Any, **attrs: Any) -> Var:
    """Add one operator to the graph being built and return its only output."""
    (output,) = apply_all(primitive, *operands, **attrs)
    return output


def apply_shared(primitive: Primitive, *operands: Any, **attrs: Any) -> tuple[Var, ...]:
    """Return all results of an operator that several vjp rules of one operator share.

    Rules are called one by one, an input at a time. Where one operator gives the cotangents of
    several inputs, each of their rules calls this with the same operands: the first adds the
    operator, the others find it among what their adjoint has added last.

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
# What the operators that are added to a graph under construction belong to.


# The graph that is under construction now, if one is.
ACTIVE_BUILDER: ContextVar[Builder | None] = ContextVar("ACTIVE_BUILDER", default=None)


@dataclass(frozen=True, slots=True)
class Belonging:
    """What the operators that are added now belong to.

    Attributes:
        phase: the graph's forward or its backward half.
        adjoint_of: the forward operator whose adjoint they are part of, or None.
        name: what they are called; after their primitive, if not given.
        scope, regions: as in ``Operator``.
    """

    phase: Phase = "forward"
    adjoint_of: int | None = None
    name: str | None = None
    scope: str = ""
    regions: tuple[int, ...] = ()


class Around:
    """A context manager: what is added inside belongs elsewhere than what is added around it."""

    __slots__ = ("builder", "inside", "outside")

    def __init__(self, builder: Builder, inside: Belonging) -> None:
        self.builder, self.inside = builder, inside

    def __enter__(self) -> None:
        self.outside, self.builder._here = self.builder._here, self.inside

    def __exit__(self, *raised: object) -> None:
        self.builder._here = self.outside
