"""Reverse-mode autograd with gradient checkpointing, in one file: what parts 1 to 3 build.

A function becomes a graph of operators, its backward pass joins the graph, a policy chooses the
order of evaluations, liveness analysis frees each value after its last use, and a machine runs the
steps and counts memory. It needs NumPy alone. ``tinyckpt.core`` does the same for more operators;
tests compare the two on ten networks: evaluations, live values, live bytes, gradients.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

# Part 1: a graph of operators and its backward pass ----------------------------------------------

# What one evaluation does. Kernels of a backward pass are operators like any other.
KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "matmul_vjp_x": lambda g, y: g @ y.T,
    "matmul_vjp_y": lambda x, g: x.T @ g,
    "tanh": lambda x: np.tanh(x),
    "tanh_vjp": lambda y, g: (1 - y * y) * g,
    "half_squared_norm": lambda x: 0.5 * (x * x).sum(),
    "half_squared_norm_vjp": lambda x, g: g * x,
}


@dataclass(frozen=True)
class Operator:
    """One operator of a graph: it reads the values ``inputs`` and computes the value ``output``."""

    kind: str
    inputs: tuple[int, ...]
    output: int


@dataclass
class Graph:
    """Operators in an order in which they can be evaluated. A value is an integer, its id.

    Sources are the values that no operator computes: parameters, inputs, constants. The first
    ``forward_count`` operators are the forward pass, the others the backward pass.
    """

    operators: list[Operator] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    forward_count: int = 0

    def source(self) -> "Var":
        """Add a source, and return it."""
        self.sources.append(len(self.sources) + len(self.operators))
        return Var(self, self.sources[-1])

    def apply(self, kind: str, *inputs: "Var") -> "Var":
        """Add an operator, and return its output."""
        output = len(self.sources) + len(self.operators)
        self.operators.append(Operator(kind, tuple(x.id for x in inputs), output))
        return Var(self, output)


@dataclass(frozen=True)
class Var:
    """A value while its graph is built: it has an id and no numbers."""

    graph: Graph
    id: int

    def __add__(self, other: "Var") -> "Var":
        return self.graph.apply("add", self, other)

    def __mul__(self, other: "Var") -> "Var":
        return self.graph.apply("multiply", self, other)

    def __matmul__(self, other: "Var") -> "Var":
        return self.graph.apply("matmul", self, other)


def tanh(x: Var) -> Var:
    """Apply the hyperbolic tangent to every element."""
    return x.graph.apply("tanh", x)


def half_squared_norm(x: Var) -> Var:
    """Return half the sum of the squares: a scalar, whose gradient is x."""
    return x.graph.apply("half_squared_norm", x)


# Vector-Jacobian products, one for each input: from the cotangent g of the output, the output and
# the inputs to the cotangent of that input. A rule adds operators; it computes nothing.
RULES: dict[str, tuple[Callable[..., Var], ...]] = {
    "add": (lambda g, out, x, y: g, lambda g, out, x, y: g),
    "multiply": (lambda g, out, x, y: g * y, lambda g, out, x, y: g * x),
    "matmul": (
        lambda g, out, x, y: g.graph.apply("matmul_vjp_x", g, y),
        lambda g, out, x, y: g.graph.apply("matmul_vjp_y", x, g),
    ),
    "tanh": (lambda g, out, x: g.graph.apply("tanh_vjp", out, g),),
    "half_squared_norm": (lambda g, out, x: g.graph.apply("half_squared_norm_vjp", x, g),),
}


def backward(graph: Graph, loss: Var, parameters: Sequence[Var]) -> list[Var]:
    """Add the backward pass, and return the cotangents of the parameters: the gradient.

    A parameter that the loss does not depend on is refused with a ValueError.
    """
    active = {parameter.id for parameter in parameters}  # the values that depend on a parameter
    for operator in graph.operators:
        if active.intersection(operator.inputs):
            active.add(operator.output)
    seed = graph.source()
    graph.constants[seed.id] = np.ones(())
    cotangents = {loss.id: seed}
    for operator in reversed(list(graph.operators)):
        if operator.output not in cotangents:  # the loss does not depend on it
            continue
        values = [Var(graph, data) for data in (operator.output, *operator.inputs)]
        for rule, data in zip(RULES[operator.kind], operator.inputs, strict=True):
            if data in active:
                contribution = rule(cotangents[operator.output], *values)
                if data in cotangents:  # another operator reads it too: contributions add up
                    contribution = cotangents[data] + contribution
                cotangents[data] = contribution
    for place, parameter in enumerate(parameters):
        if parameter.id not in cotangents:
            raise ValueError(f"the loss does not depend on parameter {place}")
    return [cotangents[parameter.id] for parameter in parameters]


def needed(graph: Graph, wanted: Collection[int], resident: Collection[int]) -> list[int]:
    """Return the operators that compute the wanted values from resident ones, in order."""
    producer = {operator.output: index for index, operator in enumerate(graph.operators)}
    found: set[int] = set()
    todo = list(wanted)
    while todo:
        data = todo.pop()
        if data in producer and data not in resident and producer[data] not in found:
            found.add(producer[data])
            todo.extend(graph.operators[producer[data]].inputs)
    return sorted(found)


def differentiate(
    loss: Callable[..., Var], parameters: int, inputs: int = 0, value: bool = True
) -> Graph:
    """Call ``loss(parameters, *inputs)`` with values that have no numbers; add its backward pass.

    The results are the loss, unless ``value`` is False, and the gradient. Operators that no result
    needs are dropped (dead code elimination).
    """
    graph = Graph()
    weights, data = ([graph.source() for _ in range(n)] for n in (parameters, inputs))
    result = loss(weights, *data)
    graph.forward_count = len(graph.operators)
    gradient = backward(graph, result, weights)
    graph.results = [var.id for var in ([result] if value else []) + gradient]
    used = needed(graph, graph.results, ())
    graph.forward_count = sum(index < graph.forward_count for index in used)
    graph.operators = [graph.operators[index] for index in used]
    return graph


# Part 2: a machine that runs a schedule ----------------------------------------------------------

Step = tuple[str, int]  # ("compute", index of an operator) or ("free", id of a value)


def free_after_last_use(graph: Graph, order: Sequence[int]) -> list[Step]:
    """Return a schedule: the evaluations in order, each value freed after its last use.

    Liveness analysis: going from the end to the beginning, the last reader is met first.
    """
    live = set(graph.results)
    steps: list[Step] = []  # from the last to the first
    for index in reversed(order):
        operator = graph.operators[index]
        inputs = set(operator.inputs).difference(graph.sources)
        dying = (inputs | {operator.output}) - live
        steps += [("free", data) for data in sorted(dying, reverse=True)]
        steps.append(("compute", index))
        live.discard(operator.output)
        live |= inputs
    return steps[::-1]


@dataclass
class Trace:
    """What a run counts: evaluations, and the live values and bytes after each step.

    Sources are not counted: they are in memory all the time, whatever the schedule.
    """

    evaluations: int = 0
    live_values: list[int] = field(default_factory=list)
    live_bytes: list[int] = field(default_factory=list)


def run(
    graph: Graph, steps: Sequence[Step], arrays: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], Trace]:
    """Run a schedule on the parameters' and inputs' arrays; return the results and the trace."""
    given = [data for data in graph.sources if data not in graph.constants]
    sources = dict(zip(given, arrays, strict=True)) | graph.constants
    memory: dict[int, np.ndarray] = {}
    trace = Trace()
    for number, (verb, index) in enumerate(steps):
        if verb == "compute":
            operator = graph.operators[index]
            for data in operator.inputs:
                if data not in memory and data not in sources:
                    raise ValueError(f"step {number}: {operator.kind} reads value {data}: not live")
            if operator.output in memory:
                raise ValueError(f"step {number}: value {operator.output} is still live")
            operands = [sources[x] if x in sources else memory[x] for x in operator.inputs]
            memory[operator.output] = np.asarray(KERNELS[operator.kind](*operands))
            trace.evaluations += 1
        elif index in memory:
            del memory[index]
        else:
            raise ValueError(f"step {number}: value {index} is not live; it cannot be freed")
        trace.live_values.append(len(memory))
        trace.live_bytes.append(sum(array.nbytes for array in memory.values()))
    for data in graph.results:
        if data not in memory:
            raise ValueError(f"the schedule ends without the result, value {data}")
    return [memory[data] for data in graph.results], trace


# Part 3: store-all, recompute-all and sqrt(n) ----------------------------------------------------


def keeping_order(graph: Graph, kept: Collection[int], reuse: bool) -> list[int]:
    """Return the order that saves the kept forward values, and recomputes others when read.

    Resident are sources, results, kept values and outputs of backward operators; with ``reuse``,
    recomputed values, too. At hand are the inputs and the output of the last operator in the order,
    nothing else; intermediates recomputed on the way are not. What is read and is neither resident
    nor at hand is recomputed from resident values alone: a value at hand that is on the way is
    evaluated again.
    """
    order = list(range(graph.forward_count))
    resident = {*graph.sources, *graph.results, *kept}
    resident.update(operator.output for operator in graph.operators[graph.forward_count :])
    for index in range(graph.forward_count, len(graph.operators)):
        last = [graph.operators[i] for i in order[-1:]]
        at_hand = {data for operator in last for data in (*operator.inputs, operator.output)}
        again = needed(graph, set(graph.operators[index].inputs) - at_hand, resident)
        if reuse:
            resident.update(graph.operators[i].output for i in again)
        order += [*again, index]
    return order


def store_all(graph: Graph) -> list[int]:
    """Evaluate every operator once."""
    return list(range(len(graph.operators)))


def recompute_all(graph: Graph) -> list[int]:
    """Save nothing: recompute what each backward operator reads, from the sources."""
    return keeping_order(graph, (), reuse=False)


def crossing(graph: Graph, cut: int) -> set[int]:
    """Return the values computed up to forward operator ``cut`` and read by a later forward one."""
    computed = {operator.output for operator in graph.operators[: cut + 1]}
    later = graph.operators[cut + 1 : graph.forward_count]
    return computed.intersection(data for operator in later for data in operator.inputs)


def stages_of(graph: Graph) -> list[int]:
    """Return the forward operators whose outputs the backward pass reads."""
    backward = graph.operators[graph.forward_count :]
    read = {data for operator in backward for data in operator.inputs}
    forward = graph.operators[: graph.forward_count]
    return [index for index, operator in enumerate(forward) if operator.output in read]


def cuts_of(graph: Graph) -> list[int]:
    """Return the cuts between about sqrt(n) segments: forward operators, each the last of its own.

    With n stages, counted from 1, and k = round(sqrt(n)), cut number i of 1 to k - 1 follows stage
    round(i n / k), by Python's ``round``: halves to the even integer. If several values cross
    there, the cut moves to the nearest stage at most n // (2 k) away after which one value crosses;
    of two as near, to the earlier; if there is none, it stays.
    """
    stages = stages_of(graph)
    n, k = len(stages), max(1, round(len(stages) ** 0.5))
    cuts = []
    for number in range(1, k):
        target, reach = round(number * n / k) - 1, n // (2 * k)
        nearby = sorted(range(target - reach, target + reach + 1), key=lambda x: abs(x - target))
        one = [x for x in nearby if len(crossing(graph, stages[x])) == 1]
        cuts.append(stages[one[0] if one else target])
    return cuts


def sqrt_n(graph: Graph) -> list[int]:
    """Save what crosses the cuts, and recompute each segment once.

    The last segment is saved whole, since the backward pass begins there.
    Source: Chen et al. 2016, arXiv 1604.06174.
    """
    cuts = cuts_of(graph)
    last = cuts[-1] if cuts else -1
    kept = {graph.operators[index].output for index in stages_of(graph) if index > last}
    for cut in cuts:
        kept |= crossing(graph, cut)
    return keeping_order(graph, kept, reuse=True)


def value_and_gradient(
    loss: Callable[..., Var],
    policy: Callable[[Graph], list[int]],
    parameters: Sequence[np.ndarray],
    *inputs: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray], Trace]:
    """Differentiate, plan and run ``loss(parameters, *inputs)``: its value, gradient and trace."""
    graph = differentiate(loss, len(parameters), len(inputs))
    schedule = free_after_last_use(graph, policy(graph))
    (value, *gradient), trace = run(graph, schedule, [*parameters, *inputs])
    return value, gradient, trace
