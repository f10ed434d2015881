"""tinyckpt: see, understand and plan gradient checkpointing (rematerialization), in NumPy.

Ten names do most of the work; ``import tinyckpt as tc``::

    build          trace a Python function into a computation graph
    differentiate  reverse-mode autodiff: add the backward pass to the graph
    plan           a policy or a memory budget makes a schedule of compute and free steps
    replay         run a schedule without arrays: counts, bytes, peak memory
    run            run a schedule on arrays: value, gradients, measured trace
    compile        write a schedule as NumPy source
    explain        say what a schedule saves and recomputes, and what fills its peak
    value_and_grad all of it in one call; grad and jit likewise
    train_step     loss, gradients and the optimiser's update as one graph
    networks       published networks at any size, to plan for

>>> import tinyckpt as tc
>>> graph = tc.differentiate(tc.build(lambda x: tc.mean(tc.tanh(x) ** 2), tc.Spec((256, 64))))
>>> trace = tc.replay(tc.plan(graph, "sqrt_n"))
>>> trace.evaluations, trace.peak_bytes
(8, 393224)

Pictures are in ``tinyckpt.viz``; PyTorch and JAX in ``tinyckpt.interop``; every public name is in
``tinyckpt.__all__``.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinyckpt import networks
from tinyckpt.base import tree
from tinyckpt.base.errors import (
    BackendError,
    BudgetError,
    FormatError,
    GraphError,
    OptionError,
    PolicyOptionError,
    ScheduleError,
    TinyckptError,
)
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import tree_map
from tinyckpt.codegen.arena import Arena, arena
from tinyckpt.codegen.compiled import Compiled, compile
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.autodiff import differentiate, gradients
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import DataNode, Graph, Operator, TrainingGraph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Compute, Fetch, Free, Offload, Schedule, Update
from tinyckpt.core.trace import Trace
from tinyckpt.core.tracing import Var, build, name, scope
from tinyckpt.documents.measured_memory import Measured, load_measured
from tinyckpt.documents.parameters import load_params, save_params
from tinyckpt.documents.schedules import (
    load_graph,
    load_schedule,
    load_trace,
    save_graph,
    save_schedule,
    save_trace,
)
from tinyckpt.documents.trace_export import save_chrome_trace, save_csv
from tinyckpt.ops import PRIMITIVES, Primitive, apply, apply_all, linalg
from tinyckpt.ops.activation import (
    gelu,
    log_sigmoid,
    relu,
    sigmoid,
    silu,
    tanh,
)
from tinyckpt.ops.activation_compression import compressed
from tinyckpt.ops.approximate_activations import regelu2, resilu2
from tinyckpt.ops.attention import attention
from tinyckpt.ops.casting import astype
from tinyckpt.ops.causal_softmax import causal_softmax
from tinyckpt.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from tinyckpt.ops.contraction import (
    dot,
    einsum,
    inner,
    kron,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from tinyckpt.ops.convolution import (
    conv2d,
)
from tinyckpt.ops.creation import (
    arange,
    copy,
    eye,
    full_like,
    linspace,
    ones,
    ones_like,
    tri,
    zeros,
    zeros_like,
)
from tinyckpt.ops.elementwise import (
    absolute,
    add,
    cos,
    divide,
    exp,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    sin,
    sqrt,
    subtract,
    where,
)
from tinyckpt.ops.elementwise_functions import (
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    cbrt,
    cosh,
    deg2rad,
    elu,
    exp2,
    expm1,
    hypot,
    leaky_relu,
    log1p,
    log2,
    log10,
    logaddexp,
    rad2deg,
    reciprocal,
    sinc,
    sinh,
    softplus,
    square,
    tan,
)
from tinyckpt.ops.embedding import (
    embedding,
)
from tinyckpt.ops.indexing import (
    argmax,
    argmin,
    argsort,
    sort,
    take,
    take_along_axis,
)
from tinyckpt.ops.linalg import (
    matmul,
)
from tinyckpt.ops.logic import (
    all,
    any,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    count_nonzero,
    invert,
    isclose,
    isfinite,
    isinf,
    isnan,
    left_shift,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    right_shift,
    signbit,
)
from tinyckpt.ops.manipulation import (
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    column_stack,
    diag,
    diagonal,
    dstack,
    flip,
    fliplr,
    flipud,
    hstack,
    matrix_transpose,
    moveaxis,
    pad,
    ravel,
    repeat,
    roll,
    rot90,
    squeeze,
    swapaxes,
    tile,
    tril,
    triu,
    unstack,
    vstack,
)
from tinyckpt.ops.memory_sharing_norms import ms_layer_norm, ms_rms_norm
from tinyckpt.ops.nn import (
    cross_entropy,
    half_squared_norm,
    log_softmax,
    one_hot,
    softmax,
)
from tinyckpt.ops.non_recomputable import once
from tinyckpt.ops.normalization import (
    batch_norm,
    batch_norm_inference,
    group_norm,
    layer_norm,
    moved_statistics,
    rms_norm,
)
from tinyckpt.ops.parameter_update import assign
from tinyckpt.ops.pooling import (
    avg_pool2d,
    global_avg_pool2d,
    max_pool2d,
)
from tinyckpt.ops.random import (
    dropout,
)
from tinyckpt.ops.reduce import (
    max,
    mean,
    min,
    sum,
)
from tinyckpt.ops.rotary import (
    rotary,
)
from tinyckpt.ops.rounding import (
    ceil,
    clip,
    copysign,
    floor,
    floor_divide,
    fmax,
    fmin,
    fmod,
    heaviside,
    nan_to_num,
    remainder,
    round,
    sign,
    trunc,
)
from tinyckpt.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    reshape,
    split,
    stack,
    stop_gradient,
    transpose,
)
from tinyckpt.ops.statistics import (
    average,
    cumprod,
    cumsum,
    diff,
    logsumexp,
    median,
    prod,
    ptp,
    std,
    var,
)
from tinyckpt.ops.transposed_convolution import (
    conv_transpose2d,
)
from tinyckpt.planner.manual import saveable as checkpoint_policies
from tinyckpt.planner.manual.regions import checkpoint
from tinyckpt.planner.model import cost_models as cost
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.link import Link
from tinyckpt.planner.model.saved_values import saved_values
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.explain import Explanation, explain
from tinyckpt.planner.portfolio.pareto import Frontier, Point
from tinyckpt.planner.portfolio.plan import certify, frontier, lower_bound, plan
from tinyckpt.planner.portfolio.policies import POLICIES, Policy
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike
from tinyckpt.storage.disk import on_disk
from tinyckpt.techniques.chunked_cross_entropy import chunked_cross_entropy
from tinyckpt.techniques.chunked_evaluation import chunked
from tinyckpt.techniques.compress_activations import with_compression
from tinyckpt.techniques.low_memory_bp import Rewriting, rewrite
from tinyckpt.training import (
    Ledger,
    LossScale,
    Optimizer,
    TrainStep,
    adam,
    adamw,
    check_gradient,
    clipped,
    cosine_rate,
    ledger,
    linear_rate,
    momentum,
    sgd,
    train_step,
    with_master_weights,
)
from tinyckpt.training.transformations import RunResult, grad, jit, run, value_and_grad

if TYPE_CHECKING:
    from tinyckpt.codegen.reserved_memory import Reserved, reserved
    from tinyckpt.planner.portfolio.plan_with_host import plan_with_host

__version__ = "0.1.0"

# NumPy's aliases.
abs, mod, flatten, concat = absolute, remainder, ravel, concatenate

__all__ = [
    "POLICIES", "PRIMITIVES", "Arena", "BackendError", "BudgetError", "Certificate", "Compiled",
    "Compute", "Costs", "DataNode", "Explanation", "Fetch", "FormatError", "Free", "Frontier",
    "Graph", "GraphError", "InPlace", "Ledger", "Link", "LossScale", "Measured", "Offload",
    "Operator", "Optimizer", "OptionError", "Point", "Policy", "PolicyLike", "PolicyOptionError",
    "Primitive", "Reserved", "Rewriting", "RunResult", "Schedule", "ScheduleError", "Spec",
    "Timeline", "TinyckptError", "Trace", "TrainStep", "TrainingGraph", "Update", "Var",
    "__version__", "abs", "absolute", "adam", "adamw", "add", "all", "any", "apply",
    "apply_all", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "arena", "argmax", "argmin", "argsort", "array_split", "assign", "astype",
    "atleast_1d", "atleast_2d", "atleast_3d", "attention", "average", "avg_pool2d",
    "batch_norm", "batch_norm_inference", "bitwise_and", "bitwise_or", "bitwise_xor",
    "broadcast_arrays", "broadcast_to", "build", "causal_softmax", "cbrt", "ceil", "certify",
    "check_gradient", "checkpoint", "checkpoint_policies", "chunked", "chunked_cross_entropy",
    "clip", "clipped", "column_stack", "compile", "compressed", "concat", "concatenate",
    "conv2d", "conv_transpose2d", "copy", "copysign", "cos", "cosh", "cosine_rate", "cost",
    "count_nonzero", "cross_entropy", "cumprod", "cumsum", "deg2rad", "diag", "diagonal",
    "diff", "differentiate", "divide", "dot", "dropout", "dstack", "einsum", "elu", "embedding",
    "equal", "exp", "exp2", "expand_dims", "explain", "expm1", "eye", "flatten", "flip",
    "fliplr", "flipud", "floor", "floor_divide", "fmax", "fmin", "fmod", "from_order",
    "frontier", "full", "full_like", "gelu", "global_avg_pool2d", "grad", "gradients",
    "greater", "greater_equal", "group_norm", "half_squared_norm", "heaviside", "hstack",
    "hypot", "inner", "invert", "isclose", "isfinite", "isinf", "isnan", "jit", "kron",
    "layer_norm", "leaky_relu", "ledger", "left_shift", "less", "less_equal", "linalg",
    "linear_rate", "linspace", "load_graph", "load_measured", "load_params", "load_schedule",
    "load_trace", "log", "log1p", "log2", "log10", "log_sigmoid", "log_softmax", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "lower_bound",
    "matmul", "matrix_transpose", "matvec", "max", "max_pool2d", "maximum", "mean", "median",
    "min", "minimum", "mod", "momentum", "moveaxis", "moved_statistics", "ms_layer_norm",
    "ms_rms_norm", "multiply", "name", "nan_to_num", "negative", "networks", "not_equal",
    "on_disk", "once", "one_hot", "ones", "ones_like", "outer", "pad", "plan", "plan_with_host",
    "power", "prod", "ptp", "rad2deg", "ravel", "reciprocal", "regelu2", "relu", "remainder",
    "repeat", "replay", "reserved", "reshape", "resilu2", "rewrite", "right_shift", "rms_norm",
    "roll", "rot90", "rotary", "round", "run", "save_chrome_trace", "save_csv", "save_graph",
    "save_params", "save_schedule", "save_trace", "saved_values", "scope", "separators", "sgd",
    "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "softmax", "softplus", "sort",
    "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "subtract", "sum",
    "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "timed",
    "train_step", "transpose", "tree", "tree_map", "tri", "tril", "triu", "trunc", "unstack",
    "value_and_grad", "var", "vdot", "vecdot", "vecmat", "vstack", "where", "with_compression",
    "with_master_weights", "zeros", "zeros_like",
]  # fmt: skip

# Importing a submodule makes it an attribute of its package. Private ones are deleted here, so that
# a package such as storage, or a NumPy function that is missing here, is not silently a module.
# They can still be imported: ``from tinyckpt.core import trace``, ``import tinyckpt.core as core``.
for _name, _value in list(globals().items()):
    if isinstance(_value, ModuleType) and _name not in (*__all__, "techniques"):
        del globals()[_name]
del _name, _value


def __dir__() -> list[str]:
    """List the public names only."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import what is used by few; explain a missing name, as one of NumPy, PyTorch or JAX."""
        from sys import modules

        # Not imported at first: with them, an import took 4 % longer.
        if name == "puzzles":
            from tinyckpt.course import puzzles

            return puzzles
        if name in ("Reserved", "reserved"):
            from tinyckpt.codegen import reserved_memory

            return getattr(reserved_memory, name)
        if name == "plan_with_host":
            from tinyckpt.planner.portfolio.plan_with_host import plan_with_host

            return plan_with_host

        from tinyckpt.ops.foreign_names import NAMES
        from tinyckpt.ops.numpy_protocols import hint

        missing = f"module 'tinyckpt' has no attribute {name!r}"
        if f"tinyckpt.{name}" in modules:
            missing = f"tinyckpt.{name} is a module: write 'from tinyckpt import {name}'"
        raise AttributeError("; ".join(filter(None, [missing, NAMES.get(name) or hint(name)])))
