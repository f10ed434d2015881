"""The operators (primitives), one family per file; ``PRIMITIVES`` is the table of all of them.

The table is explicit: each family defines its primitives (shape inference, vjp rules, FLOPs,
workspace), and this file lists them. Their kernels are in ``kernels_*``.
"""

import copyreg
from dataclasses import fields
from typing import Any

from tinyckpt.core import tracing
from tinyckpt.core.autodiff import RESIDUAL_RULES
from tinyckpt.core.primitive import ARITHMETIC, Primitive
from tinyckpt.ops import (
    activation_compression,
    approximate_activations,
    casting,
    causal_softmax,
    convolution,
    elementwise,
    embedding,
    fused_attention,
    indexing,
    linalg,
    logic,
    manipulation,
    memory_sharing_norms,
    methods,
    nn,
    non_recomputable,
    normalization_primitives,
    parameter_update,
    pooling,
    random,
    reduce,
    rotary,
    shape,
    statistics,
    transposed_convolution,
    update_steps,
)
from tinyckpt.ops.eager import eager

ALL = (
    *elementwise.PRIMITIVES.values(),  # of rows of elementwise_table
    elementwise.WHERE,
    logic.ANY, logic.ALL,
    approximate_activations.REGELU2_VJP, approximate_activations.REGELU2,
    approximate_activations.RESILU2_VJP, approximate_activations.RESILU2,
    casting.CAST,
    linalg.MATMUL,
    nn.SOFTMAX_VJP, nn.SOFTMAX, nn.LOG_SOFTMAX_VJP, nn.LOG_SOFTMAX, nn.ONE_HOT,
    nn.CROSS_ENTROPY_VJP, nn.CROSS_ENTROPY, nn.HALF_SQUARED_NORM_VJP, nn.HALF_SQUARED_NORM,
    random.DROPOUT, random.SEEDED_DROPOUT,
    reduce.SUM_VJP, reduce.SUM, reduce.MAX_VJP, reduce.MAX, reduce.MIN,
    shape.RESHAPE, shape.TRANSPOSE, shape.STOP_GRADIENT, shape.BROADCAST_TO, shape.UNBROADCAST,
    shape.INDEX, shape.INDEX_VJP, shape.CONCATENATE, shape.SPLIT, shape.CONTIGUOUS, shape.FULL,
    parameter_update.WRITE_OVER, parameter_update.DESCEND, parameter_update.MOVING_SUM,
    parameter_update.MOVING_AVERAGE, parameter_update.MOVING_SQUARE, parameter_update.ADAM_STEP,
    statistics.LOGSUMEXP_VJP, statistics.LOGSUMEXP, statistics.CUMSUM,
    indexing.TAKE, indexing.TAKE_VJP, indexing.FLAT_INDEX, indexing.ARGMAX, indexing.ARGMIN,
    indexing.ARGSORT,
    manipulation.PAD,
    convolution.CONV2D, convolution.CONV2D_INPUT_VJP, convolution.CONV2D_WEIGHT_VJP,
    transposed_convolution.CONV_TRANSPOSE2D,
    pooling.MAX_POOL, pooling.MAX_POOL_VJP, pooling.MAX_POOL_TAKE, pooling.AVG_POOL,
    pooling.AVG_POOL_VJP,
    embedding.EMBEDDING,
    normalization_primitives.BATCH_NORM, normalization_primitives.BATCH_NORM_INPUT_VJP,
    normalization_primitives.BATCH_NORM_SCALE_VJP, normalization_primitives.LAYER_NORM,
    normalization_primitives.LAYER_NORM_INPUT_VJP,
    normalization_primitives.LAYER_NORM_SCALE_VJP, normalization_primitives.GROUP_NORM,
    normalization_primitives.GROUP_NORM_INPUT_VJP,
    normalization_primitives.GROUP_NORM_SCALE_VJP, normalization_primitives.RMS_NORM,
    normalization_primitives.RMS_NORM_INPUT_VJP, normalization_primitives.RMS_NORM_SCALE_VJP,
    memory_sharing_norms.MS_NORM_VJP, memory_sharing_norms.MS_LAYER_NORM,
    memory_sharing_norms.MS_RMS_NORM,
    activation_compression.ENCODE, activation_compression.DECODE,
    activation_compression.COMPRESSED,
    rotary.ROTARY,
    causal_softmax.CAUSAL_SOFTMAX,
    fused_attention.FUSED_ATTENTION_VJP, fused_attention.FUSED_ATTENTION,
)  # fmt: skip
PRIMITIVES: dict[str, Primitive] = {primitive.name: primitive for primitive in ALL}


def primitive_of_name(name: str) -> Primitive:
    """Return the primitive with this name."""
    return PRIMITIVES[name]


def reduce_primitive(primitive: Primitive) -> tuple[Any, tuple[Any, ...]]:
    """Reduce a primitive for pickle: by its name, or, if it is a user's own, by its fields.

    The rules in the table are lambdas, which pickle rejects; the receiving process has the same
    table.
    """
    if PRIMITIVES.get(primitive.name) is primitive:
        return primitive_of_name, (primitive.name,)
    return Primitive, tuple(getattr(primitive, field.name) for field in fields(primitive))


copyreg.pickle(Primitive, reduce_primitive)

# What the engine takes from the operators: a traced value's methods; what autodiff adds; operators
# that are evaluated once, and updates in place.
methods.install()
non_recomputable.install()  # before updates: what is dropped from an order reads nothing
update_steps.install()
ARITHMETIC.update(
    cast=casting.astype,
    add=elementwise.accumulate_cotangents,
    fill=shape.full,
    unalias=shape.unalias_results,
)
RESIDUAL_RULES.append(activation_compression.decoded_residuals)

# For primitives of one's own; outside of a trace they compute at once, as the operators do.
apply, apply_all = eager(tracing.apply), eager(tracing.apply_all)

__all__ = ["PRIMITIVES", "Primitive", "apply", "apply_all"]
