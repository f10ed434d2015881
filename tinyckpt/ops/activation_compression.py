"""Activation compression: a saved value is quantised to 8, 4 or 2 bits for the backward pass.

``compressed(x)`` is x: every reader in the forward pass reads the same memory. But where a
derivative wants x, it gets ``decode`` of a code that ``encode`` made of x in the forward pass. So x
is freed after its last use in the forward pass, and the code is saved instead. Policies need not
know: the code is a value of the graph like any other, which they save or recompute, and a
recomputed code is the same to the last bit, since the randomness is a seed and a counter.

Quantisation is per group of neighbouring elements: each element becomes its position between the
group's minimum and maximum, in 2**bits - 1 equal steps, with stochastic rounding. So the decoded
value is x in expectation, with a variance of at most a quarter of the squared step. The minimum and
the maximum are decoded exactly. **Gradients are approximate**; for a loss that is linear in the
compressed value they are unbiased. A group with an infinity or a NaN is decoded as NaN.

Sources: Pan et al., "Mesa", arXiv 2111.11124 (asymmetric codes, stochastic rounding; its range is
an average over steps, here it is the group's own); Chen et al., "ActNN", ICML 2021, arXiv
2104.14129 (per-group codes of few bits). Not here: a number of bits that is chosen per value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec
from tinyckpt.core.graph import Operator
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Builder, Var, apply, apply_all, as_var
from tinyckpt.ops import kernels_compression
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.cache_blocking import span_length
from tinyckpt.ops.eager import eager
from tinyckpt.ops.random import checked_seed, stream_key
from tinyckpt.ops.shape import reshape

BITS = (8, 4, 2)
GROUP = 4  # elements; a group is a multiple of it, so that it fills whole bytes at 2 bits


def code_specs(size: int, dtype: Any, bits: int, group: int) -> tuple[Spec, Spec, Spec]:
    """Return the specs of a code: packed steps, and the minimum and the maximum of each group."""
    ends = Spec(-(-size // group), dtype)
    return (Spec(-(-size * bits // 8), "uint8"), ends, ends)


def infer_encode(
    x: Spec, *seed: Spec, bits: int, group: int, key: int, number: int
) -> tuple[Spec, ...]:
    infer.require_float(x)
    if seed and (seed[0].shape != () or seed[0].dtype.kind not in "iu"):
        raise GraphError(f"the seed must be one integer, got {seed[0]}")
    return code_specs(x.size, x.dtype, bits, group)


def infer_compressed(x: Spec, *code: Spec, bits: int, group: int) -> tuple[Spec, ...]:
    if code != code_specs(x.size, x.dtype, bits, group):
        raise GraphError(f"{infer.format_specs(code)} are not a code of {x}")
    return (x,)


def encode_bytes(inputs: Any, outputs: Any, group: int, **attrs: Any) -> int:
    """Return the workspace of ``encode``: three uint64 per element of a span, for random bits."""
    return 24 * longest_span(inputs[0].size, group)


def decode_bytes(inputs: Any, outputs: Any, bits: int, **attrs: Any) -> int:
    """Return the workspace of ``decode`` for a span, in bytes.

    A byte per step, and two arrays of at least 32 bits: the positions between minimum and maximum,
    and 1 minus these.
    """
    each = 1 + 2 * int(wide(outputs[0].dtype).itemsize)
    return each * longest_span(outputs[0].size, attrs["group"])


def longest_span(size: int, group: int) -> int:
    """Return the number of elements in the longest span."""
    whole = size // group * group
    return span_length(whole, group) if whole else size


def no_second_derivative(ct: Any, ins: Any, outs: Any, **attrs: Any) -> None:
    raise GraphError(
        "a code has no derivative, so a compressed value has no second derivative; "
        "take second derivatives of the function without tc.compressed"
    )


ENCODE = Primitive(
    "encode",  # (x[, seed]) -> (steps, minima, maxima)
    kernels_compression.encode,
    infer_encode,
    # A difference, a quotient, a product, a sum, floor, two clamps; the range takes two more.
    flops=lambda inputs, outputs, **attrs: 9 * inputs[0].size,
    workspace=encode_bytes,
    contiguous=True,
)
DECODE = Primitive(
    "decode",  # (steps, minima, maxima) -> the decoded x
    kernels_compression.decode,
    lambda codes, low, high, bits, group, shape, dtype: (Spec(shape, dtype),),
    vjp=(zero, no_second_derivative, no_second_derivative),
    # A quotient, a difference, two products, a sum.
    flops=lambda inputs, outputs, **attrs: 5 * outputs[0].size,
    workspace=decode_bytes,
    contiguous=True,
)
COMPRESSED = Primitive(
    "compressed",  # (x, steps, minima, maxima) -> x
    kernels_compression.compressed,
    infer_compressed,
    vjp=(lambda ct, ins, outs, **attrs: ct[0], zero, zero, zero),
    alias=0,
)


@eager
def compressed(x: Any, bits: int = 8, group: int = 256, *, seed: Any) -> Var:
    """Save ``x`` for the backward pass as a code of few bits; ``x`` itself in the forward pass.

    >>> import numpy as np, tinyckpt as tc
    >>> from tinyckpt.planner.model.saved_values import saved_values
    >>> def loss(w, x):
    ...     return tc.sum(tc.compressed(tc.tanh(x), seed=1) @ w)
    >>> graph = tc.differentiate(tc.build(loss, tc.Spec((64, 2)), tc.Spec((128, 64))))
    >>> [str(node) for node in saved_values(graph)]
    ['encode_1.0: uint8[8192]', 'encode_1.1: float64[32]', 'encode_1.2: float64[32]']

    A code takes ``bits / 8`` bytes per element, and two numbers of the value's dtype per group. A
    view taken of x before the call still refers to x itself: compress a value before its views are
    taken.

    Args:
        x: floats of any shape.
        bits: 8, 4 or 2.
        group: how many neighbours, in C order, share a minimum and a maximum: a multiple of 4. The
            last group may be short.
        seed: a nonnegative integer less than 2**64, as for ``dropout``: give every value its own,
            and take a new one in each training step, as an argument of the function.

    Raises:
        GraphError: if an option is invalid, or ``x`` is not floating-point. Second derivatives are
            rejected, too.
    """
    bits, group = checked_code("compressed", bits, group)
    return compress_stream(x, bits, group, seed, 0)


def compress_stream(x: Any, bits: int, group: int, seed: Any, number: int) -> Var:
    """Compress ``x``, with an independent random stream for each number that shares a seed."""
    known = checked_seed("compressed", seed)
    x = as_var(x)
    code = apply_all(
        ENCODE, reshape(x, (x.size,)), *([seed] if known is None else []),
        bits=bits, group=group, key=0 if known is None else stream_key(known, number),
        number=number,
    )  # fmt: skip
    return apply(COMPRESSED, x, *code, bits=bits, group=group)


def checked_code(name: str, bits: Any, group: Any) -> tuple[int, int]:
    """Return the bits and the group size of a code as integers; GraphError if one is invalid."""
    width, count = as_integer(bits), as_integer(group)
    if width not in BITS:
        raise GraphError(f"{name}: bits={bits!r}; expected one of {', '.join(map(str, BITS))}")
    if count is None or count < GROUP or count % GROUP:
        raise GraphError(f"{name}: group={group!r}; it must be a multiple of {GROUP}")
    return width, count


# Substitution of decoded values in vjp rules ------------------------------------------------------


def decoded_residuals(builder: Builder, read: Callable[[int], Var]) -> Callable[[int], Var]:
    """Return the function by which vjp rules read values: ``read``, if no value is compressed.

    Decoded values that no rule reads are removed by dead code elimination, like any unused value.
    """
    own = [operator for operator in builder.operators if operator.kind == COMPRESSED.name]
    # The operator of each compressed value, and of its alias.
    stored = {
        data: operator for operator in own for data in (operator.inputs[0], *operator.outputs)
    }
    return partial(decoded, builder, stored, read) if stored else read


def decoded(
    builder: Builder, stored: Mapping[int, Operator], read: Callable[[int], Var], data: int
) -> Var:
    """Return a value as a derivative reads it: decoded, if it is compressed.

    A view of a compressed value becomes the same view of the decoded one.
    """
    views = []
    found: int | None = data
    while found is not None and found not in stored:
        views.append(found)
        found = builder.data[found].view_of
    if found is None:
        return read(data)
    operator = stored[found]
    node = builder.data[operator.inputs[0]]
    with builder.named(f"{node.name}_decoded"):
        value = apply(
            DECODE, *map(builder.var, operator.inputs[1:]), **operator.attrs,
            shape=node.spec.shape, dtype=node.spec.dtype.name,
        )  # fmt: skip
        for view in reversed(views):
            value = replay_view(builder, view, value)
    return value


def replay_view(builder: Builder, view: int, base: Var) -> Var:
    """Apply the view operator that made ``view`` to another base."""
    node = builder.data[view]
    operator = builder.operators[node.producer or 0]
    assert operator.primitive is not None
    operands = [base if data == node.view_of else builder.var(data) for data in operator.inputs]
    return apply_all(operator.primitive, *operands, **operator.attrs)[operator.outputs.index(view)]
