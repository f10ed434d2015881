"""tinyckpt: see, understand and plan gradient checkpointing.

A function becomes a graph, the graph gets its backward half, a policy turns it into a schedule, a
machine runs the schedule, and the trace of that run is what everyone looks at::

    graph    = tc.differentiate(tc.build(loss, params, x, y))
    schedule = tc.plan(graph, "sqrt_n")
    trace    = tc.replay(schedule)
    result   = tc.run(schedule, params, x, y)
"""

from tinyckpt import cost, networks
from tinyckpt.analysis.separators import separators
from tinyckpt.api import RunResult, grad, jit, run, value_and_grad
from tinyckpt.build import Var, build, checkpoint, name, scope
from tinyckpt.compile import Compiled, compile
from tinyckpt.cost import Costs
from tinyckpt.differentiate import differentiate, gradients
from tinyckpt.documents.export import save_chrome_trace, save_csv
from tinyckpt.documents.schedules import (
    load_graph,
    load_schedule,
    load_trace,
    save_graph,
    save_schedule,
    save_trace,
)
from tinyckpt.errors import (
    BackendError,
    BudgetError,
    FormatError,
    GraphError,
    OptionError,
    ScheduleError,
    TinyckptError,
)
from tinyckpt.graph import DataNode, Graph, Operator, Spec, TrainingGraph
from tinyckpt.ops import PRIMITIVES, Primitive, apply, apply_all
from tinyckpt.ops.activation import gelu, log_sigmoid, relu, sigmoid, silu, tanh
from tinyckpt.ops.elementwise import (
    absolute,
    add,
    astype,
    cos,
    divide,
    equal,
    exp,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    power,
    sin,
    sqrt,
    subtract,
    where,
)
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import cross_entropy, half_squared_norm, log_softmax, one_hot, softmax
from tinyckpt.ops.random import dropout
from tinyckpt.ops.reduce import max, mean, sum
from tinyckpt.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    reshape,
    split,
    stack,
    transpose,
)
from tinyckpt.orders.lowering import from_order
from tinyckpt.planning.explain import Explanation, explain
from tinyckpt.planning.plan import certify, frontier, lower_bound, plan
from tinyckpt.planning.points import Frontier, Point
from tinyckpt.policies import POLICIES, Policy
from tinyckpt.policies import saveable as checkpoint_policies
from tinyckpt.replay import replay
from tinyckpt.schedule import Certificate, Compute, Fetch, Free, Offload, Schedule
from tinyckpt.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "POLICIES",
    "PRIMITIVES",
    "BackendError",
    "BudgetError",
    "Certificate",
    "Compiled",
    "Compute",
    "Costs",
    "DataNode",
    "Explanation",
    "Fetch",
    "FormatError",
    "Free",
    "Frontier",
    "Graph",
    "GraphError",
    "Offload",
    "Operator",
    "OptionError",
    "Point",
    "Policy",
    "Primitive",
    "RunResult",
    "Schedule",
    "ScheduleError",
    "Spec",
    "TinyckptError",
    "Trace",
    "TrainingGraph",
    "Var",
    "__version__",
    "absolute",
    "add",
    "apply",
    "apply_all",
    "astype",
    "broadcast_to",
    "build",
    "certify",
    "checkpoint",
    "checkpoint_policies",
    "compile",
    "concatenate",
    "cos",
    "cost",
    "cross_entropy",
    "differentiate",
    "divide",
    "dropout",
    "equal",
    "exp",
    "expand_dims",
    "explain",
    "from_order",
    "frontier",
    "full",
    "gelu",
    "grad",
    "gradients",
    "greater",
    "greater_equal",
    "half_squared_norm",
    "jit",
    "less",
    "less_equal",
    "load_graph",
    "load_schedule",
    "load_trace",
    "log",
    "log_sigmoid",
    "log_softmax",
    "lower_bound",
    "matmul",
    "max",
    "maximum",
    "mean",
    "minimum",
    "multiply",
    "name",
    "negative",
    "networks",
    "not_equal",
    "one_hot",
    "plan",
    "power",
    "relu",
    "replay",
    "reshape",
    "run",
    "save_chrome_trace",
    "save_csv",
    "save_graph",
    "save_schedule",
    "save_trace",
    "scope",
    "separators",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "split",
    "sqrt",
    "stack",
    "subtract",
    "sum",
    "tanh",
    "transpose",
    "value_and_grad",
    "where",
]
