"""The operators, one file a family; ``PRIMITIVES`` lists every primitive there is."""

import copyreg
from dataclasses import fields
from typing import Any

from tinyckpt.ops import activation, elementwise, linalg, nn, random, reduce, shape
from tinyckpt.ops.primitive import Primitive, apply, apply_all

ALL = (
    activation.TANH_VJP,
    activation.SIGMOID_VJP,
    activation.LOG_SIGMOID_VJP,
    activation.RELU_VJP,
    elementwise.SQRT_VJP,
    elementwise.SIN_VJP,
    elementwise.COS_VJP,
    elementwise.ABSOLUTE_VJP,
    activation.SILU_VJP,
    activation.GELU_VJP,
    activation.GELU_TANH_VJP,
    elementwise.POWER_VJP,
    elementwise.NEGATIVE,
    elementwise.EXP,
    elementwise.LOG,
    elementwise.SQRT,
    elementwise.SIN,
    elementwise.COS,
    elementwise.ABSOLUTE,
    activation.TANH,
    activation.SIGMOID,
    activation.LOG_SIGMOID,
    activation.RELU,
    activation.SILU,
    activation.GELU,
    activation.GELU_TANH,
    elementwise.POWER,
    elementwise.DIVIDE_VJP,
    elementwise.LARGER_VJP,
    elementwise.ADD,
    elementwise.SUBTRACT,
    elementwise.MULTIPLY,
    elementwise.DIVIDE,
    elementwise.MAXIMUM,
    elementwise.MINIMUM,
    elementwise.GREATER,
    elementwise.GREATER_EQUAL,
    elementwise.LESS,
    elementwise.LESS_EQUAL,
    elementwise.EQUAL,
    elementwise.NOT_EQUAL,
    elementwise.WHERE,
    elementwise.CAST,
    linalg.MATMUL,
    nn.SOFTMAX_VJP,
    nn.SOFTMAX,
    nn.LOG_SOFTMAX_VJP,
    nn.LOG_SOFTMAX,
    nn.ONE_HOT,
    nn.CROSS_ENTROPY_VJP,
    nn.CROSS_ENTROPY,
    nn.HALF_SQUARED_NORM_VJP,
    nn.HALF_SQUARED_NORM,
    random.DROPOUT,
    random.SEEDED_DROPOUT,
    reduce.SUM_VJP,
    reduce.SUM,
    reduce.MAX_VJP,
    reduce.MAX,
    shape.RESHAPE,
    shape.TRANSPOSE,
    shape.BROADCAST_TO,
    shape.UNBROADCAST,
    shape.INDEX,
    shape.INDEX_VJP,
    shape.CONCATENATE,
    shape.SPLIT,
    shape.CONTIGUOUS,
    shape.FULL,
)
PRIMITIVES: dict[str, Primitive] = {primitive.name: primitive for primitive in ALL}


def named(name: str) -> Primitive:
    """Return the primitive of a name."""
    return PRIMITIVES[name]


def reduced(primitive: Primitive) -> tuple[Any, tuple[Any, ...]]:
    """Return how a primitive is pickled: by its name, or, if it is somebody's own, by its fields.

    The rules in the table are lambdas, which pickle refuses; the other side has the same table.
    """
    if PRIMITIVES.get(primitive.name) is primitive:
        return named, (primitive.name,)
    return Primitive, tuple(getattr(primitive, field.name) for field in fields(primitive))


copyreg.pickle(Primitive, reduced)

__all__ = ["PRIMITIVES", "Primitive", "apply", "apply_all"]
