"""Primitives: per operator kind, shape inference, kernel, vjp rule, FLOPs, workspace and aliasing.

A ``Primitive`` is one row of the operator table, which the families in ``ops`` fill. Rules emit
operators and capture no arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from tinyckpt.base.dtypes import is_bfloat16
from tinyckpt.base.errors import GraphError, check_fields
from tinyckpt.base.spec import Spec

# (output cotangents, inputs, outputs, **attrs) -> this operator's contribution to the cotangent of
# the input, or None for zero.
# An output's cotangent is None if the loss does not depend on that output.
VjpRule = Callable[..., Any]
Specs = Sequence[Spec]
# What a rule with a mistake may raise: it is told with the operator's name.
RULE_ERRORS = GraphError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError


def none(inputs: Specs, outputs: Specs, **attrs: Any) -> int:
    """FLOP rule of operators that only move data, workspace rule of kernels without temporaries."""
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
        infer: shape inference, ``infer(*specs, **attrs)`` -> the specs of the outputs; raises
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
    flops: Callable[..., int] = none
    workspace: Callable[..., int] = none
    alias: int | None = None
    contiguous: bool | None = None
    takes_bfloat16: bool = False

    def __post_init__(self) -> None:
        functions = dict.fromkeys(("forward", "infer", "flops", "workspace"), callable)
        check_fields(GraphError, self, name=str, alias=(int, NoneType), **functions)
        rules = (self.vjp,) if callable(self.vjp) else self.vjp
        if not isinstance(rules, tuple | list) or not all(map(callable, filter(None, rules))):
            raise GraphError(f"{self.name}: vjp={self.vjp!r:.80}; expected a function per input")

    def output_specs(self, specs: Specs, attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
        """Infer the specs of the outputs; raise a GraphError if the inputs do not fit."""
        if not self.takes_bfloat16 and any(is_bfloat16(spec.dtype) for spec in specs):
            raise GraphError(
                f"of {', '.join(map(str, specs))}: bfloat16 is for storage; convert with "
                "x.astype('float32') to compute"
            )
        if self.alias is not None and self.alias not in range(len(specs)):
            raise GraphError(f"alias={self.alias}; its inputs are numbered 0 to {len(specs) - 1}")
        outputs = self.infer(*specs, **attrs)
        if not isinstance(outputs, tuple) or {*map(type, outputs)} != {Spec}:
            raise GraphError("its infer rule must return a tuple of tc.Spec, one per output")
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
