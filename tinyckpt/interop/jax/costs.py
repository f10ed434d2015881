"""FLOP cost model of JAX primitives: exact for matrix products, by element count for the rest."""

from __future__ import annotations

import math
from typing import Any

from tinyckpt.interop.jax.capture import backward_slice, flattened

# Data movement, which counts no FLOPs.
MOVES = {
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice",
    "expand_dims", "gather", "iota", "name", "optimization_barrier", "pad", "reduce_precision",
    "reshape", "rev", "scatter", "select_n", "slice", "split", "squeeze", "stop_gradient",
    "transpose",
}  # fmt: skip


def flops_of(equation: Any) -> int:
    """Return the floating-point operations of one evaluation.

    Matrix products and convolutions count two per multiply-add; reductions count their input
    elements, all other operators their output elements: about what XLA's own cost analysis reports.
    A ``scan`` counts its body once per iteration, a ``while`` once, a ``cond`` its largest branch.
    """
    kind, inputs, outputs = equation.primitive.name, equation.invars, equation.outvars
    if kind in MOVES:
        return 0
    if kind == "scan":
        return int(equation.params["length"]) * flops_of_jaxpr(equation.params["jaxpr"])
    if kind == "while":
        return flops_of_jaxpr(equation.params["body_jaxpr"])
    if kind == "cond":
        return max(map(flops_of_jaxpr, equation.params["branches"]))
    made = sum(elements(value) for value in outputs)
    if kind == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = inputs[0].aval.shape
        return 2 * made * math.prod([int(shape[axis]) for axis in contracted])
    if kind == "conv_general_dilated":
        features = inputs[1].aval.shape[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2 * made * elements(inputs[1]) // max(int(features), 1)
    if kind.startswith(("reduce_", "arg", "cum")):
        return sum(elements(value) for value in inputs)
    return made


def elements(value: Any) -> int:
    """Return the number of elements of a value."""
    return math.prod(map(int, value.aval.shape))


def flops_of_jaxpr(closed: Any) -> int:
    """Return the floating-point operations of what the results of a jaxpr depend on."""
    flat = flattened(closed, "the function").jaxpr
    needed = backward_slice(flat.eqns, flat.outvars)
    return sum(flops_of(equation) for equation in flat.eqns if id(equation) in needed)
