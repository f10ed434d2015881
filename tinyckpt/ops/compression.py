"""Compressed activations: a value is kept for the backward half as a code of 8, 4 or 2 bits.

``compressed(x)`` is x: whatever reads it in the forward half reads the very memory. But where a
derivative wants x, it gets ``decode`` of a code, which ``encode`` made of x in the forward half. So
x goes as soon as the forward half has read it, and the code stays. Nobody else has to know: the
code is a value of the graph like any other, which policies keep or make again, and a code that is
made again is the same to the last bit, since chance is a seed and a counter.

A code is by groups of neighbouring elements: where between the group's smallest and largest an
element lies, in 2**bits - 1 equal steps, rounded up or down by chance, so that what is read back is
x on average, with a variance of at most a quarter of the squared step. The ends of a group come
back as they were. **Gradients are approximate**; of a loss that is linear in what was compressed,
they are right on average. A group with an infinite number or a NaN comes back as NaN.

Sources: Pan et al., "Mesa", arXiv 2111.11124 (asymmetric codes, stochastic rounding; its range is
an average over steps, here it is the group's own); Chen et al., "ActNN", ICML 2021, arXiv
2104.14129 (per-group codes of few bits). Not here: a number of bits that is chosen per value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Operator, Spec
from tinyckpt.core.primitive import Primitive, apply, apply_all, as_var, zero
from tinyckpt.ops import infer, kernels_compression
from tinyckpt.ops.parts import span_length
from tinyckpt.ops.random import checked_seed, drawing_key
from tinyckpt.ops.shape import reshape

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Builder, Var

BITS = (8, 4, 2)
GROUP = 4  # a group is a multiple of so many elements, which fill whole bytes


def code_specs(size: int, dtype: Any, bits: int, group: int) -> tuple[Spec, Spec, Spec]:
    """Return the specs of a code: packed steps, and the smallest and the largest of each group."""
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
        raise GraphError(f"{infer.listing(code)} are no code of {x}")
    return (x,)


def encode_bytes(inputs: Any, outputs: Any, group: int, **attrs: Any) -> int:
    """Return three uint64 for every element of a span, which random bits are made in."""
    return 24 * longest(inputs[0].size, group)


def decode_bytes(inputs: Any, outputs: Any, bits: int, **attrs: Any) -> int:
    """Return the steps of a span: a byte each, then of 32 bits at least; and what is left to 1."""
    each = 1 + 2 * int(wide(outputs[0].dtype).itemsize)
    return each * longest(outputs[0].size, attrs["group"])


def longest(size: int, group: int) -> int:
    """Return the elements of the longest span."""
    whole = size // group * group
    return span_length(whole, group) if whole else size


def no_second_derivative(ct: Any, ins: Any, outs: Any, **attrs: Any) -> None:
    raise GraphError(
        "a code has no derivative, and so what derivatives read of a compressed value has none; "
        "take second derivatives of the function without tc.compressed"
    )


ENCODE = Primitive(
    "encode",  # (x[, seed]) -> (steps, smallest, largest)
    kernels_compression.encode,
    infer_encode,
    # A difference, a quotient, a product, a sum, floor, and two ends; the range takes two more.
    flops=lambda inputs, outputs, **attrs: 9 * inputs[0].size,
    workspace=encode_bytes,
    contiguous=True,
)
DECODE = Primitive(
    "decode",  # (steps, smallest, largest) -> what stands for x
    kernels_compression.decode,
    lambda codes, low, high, bits, group, shape, dtype: (Spec(shape, dtype),),
    vjp=(zero, no_second_derivative, no_second_derivative),
    # A quotient, a difference, two products, a sum.
    flops=lambda inputs, outputs, **attrs: 5 * outputs[0].size,
    workspace=decode_bytes,
    contiguous=True,
)
COMPRESSED = Primitive(
    "compressed",  # (x, steps, smallest, largest) -> x
    kernels_compression.compressed,
    infer_compressed,
    vjp=(lambda ct, ins, outs, **attrs: ct[0], zero, zero, zero),
    alias=0,
)


def compressed(x: Any, bits: int = 8, group: int = 256, *, seed: Any) -> Var:
    """Return ``x``, of which the backward half keeps a code of few bits.

    >>> import numpy as np, tinyckpt as tc
    >>> from tinyckpt.planner.model.saved_values import saved_values
    >>> def loss(w, x):
    ...     return tc.sum(tc.compressed(tc.tanh(x), seed=1) @ w)
    >>> graph = tc.differentiate(tc.build(loss, tc.Spec((64, 2)), tc.Spec((128, 64))))
    >>> [str(node) for node in saved_values(graph)]
    ['encode_1.0: uint8[8192]', 'encode_1.1: float64[32]', 'encode_1.2: float64[32]']

    A value takes ``bits / 8`` bytes an element, and two numbers of its own dtype a group. What was
    a view of x before still is x itself: compress a value before its views are taken.

    Args:
        x: floats of any shape.
        bits: 8, 4 or 2.
        group: how many neighbours, in C order, share a smallest and a largest: a multiple of 4. The
            last group may be short.
        seed: an integer of 0 or more, less than 2**64, as of ``dropout``: give every value its own,
            and take a new one in each training step, as an argument of the function.

    Raises:
        GraphError: if an option is not legal, or ``x`` is not floating-point. Second derivatives
            are refused, too.
    """
    bits, group = checked_code("compressed", bits, group)
    return compressed_as(x, bits, group, seed, 0)


def compressed_as(x: Any, bits: int, group: int, seed: Any, number: int) -> Var:
    """Return ``compressed(x)``, with chances of its own for each number that shares a seed."""
    known = checked_seed("compressed", seed)
    x = as_var(x)
    code = apply_all(
        ENCODE, reshape(x, (x.size,)), *([seed] if known is None else []),
        bits=bits, group=group, key=0 if known is None else drawing_key(known, number),
        number=number,
    )  # fmt: skip
    return apply(COMPRESSED, x, *code, bits=bits, group=group)


def checked_code(name: str, bits: Any, group: Any) -> tuple[int, int]:
    """Return the bits and the group of a code as integers, or raise a GraphError."""
    found, count = infer.as_integer(bits), infer.as_integer(group)
    if found not in BITS:
        raise GraphError(f"{name}: bits={bits!r}; legal are {', '.join(map(str, BITS))}")
    if count is None or count < GROUP or count % GROUP:
        raise GraphError(f"{name}: group={group!r}; it must be a multiple of {GROUP}")
    return found, count


# What derivatives read ---------------------------------------------------------------------------


def compressed_values(builder: Builder) -> dict[int, Operator]:
    """Return the operators that say what stands for a value, by the value and by its other name."""
    own = [operator for operator in builder.operators if operator.kind == COMPRESSED.name]
    return {data: operator for operator in own for data in (operator.inputs[0], *operator.outputs)}


def as_read(
    builder: Builder, stored: Mapping[int, Operator], operator: Operator
) -> tuple[list[Var], list[Var]]:
    """Return the inputs and outputs of an operator as its vjp rules read them.

    What no rule reads in the end is dropped from the graph, as everything that nobody needs.
    """
    ids = (*operator.inputs, *operator.outputs)
    if stored:
        values = {data: read_back(builder, stored, data) for data in dict.fromkeys(ids)}
    else:
        values = {data: builder.var(data) for data in ids}
    return [values[data] for data in operator.inputs], [values[data] for data in operator.outputs]


def read_back(builder: Builder, stored: Mapping[int, Operator], data: int) -> Var:
    """Return a value as a derivative reads it: by its code, if it is one that is compressed.

    A view of such a value becomes the same view of what its code says.
    """
    views = []
    found: int | None = data
    while found is not None and found not in stored:
        views.append(found)
        found = builder.data[found].view_of
    if found is None:
        return builder.var(data)
    operator = stored[found]
    node = builder.data[operator.inputs[0]]
    with builder.named(f"{node.name}_decoded"):
        value = apply(
            DECODE, *map(builder.var, operator.inputs[1:]), **operator.attrs,
            shape=node.spec.shape, dtype=node.spec.dtype.name,
        )  # fmt: skip
        for view in reversed(views):
            value = seen_again(builder, view, value)
    return value


def seen_again(builder: Builder, view: int, base: Var) -> Var:
    """Return a view of another value, made as one was made of its own."""
    node = builder.data[view]
    operator = builder.operators[node.producer or 0]
    assert operator.primitive is not None
    operands = [base if data == node.view_of else builder.var(data) for data in operator.inputs]
    return apply_all(operator.primitive, *operands, **operator.attrs)[operator.outputs.index(view)]
