"""Part 1: a graph of operators and its backward pass.

In: a function. Out: a graph whose results are the function's value and its gradient.
Source: Griewank and Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, section 3.2.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

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
        ### BEGIN SOLUTION
        # Task 1.1: append an Operator, and return the Var of its output.
        output = len(self.sources) + len(self.operators)
        self.operators.append(Operator(kind, tuple(x.id for x in inputs), output))
        return Var(self, output)
        ### END SOLUTION


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


### BEGIN SOLUTION
# def not_written(g: Var, out: Var, x: Var, y: Var) -> Var:
#     """Stand where a rule of yours will."""
#     raise NotImplementedError("Task 1.2: write the two rules of multiply and the two of matmul.")
#
#
### END SOLUTION
# Vector-Jacobian products, one for each input: from the cotangent g of the output, the output and
# the inputs to the cotangent of that input. A rule adds operators; it computes nothing.
RULES: dict[str, tuple[Callable[..., Var], ...]] = {
    "add": (lambda g, out, x, y: g, lambda g, out, x, y: g),
    ### BEGIN SOLUTION
    # "multiply": (not_written, not_written),
    # "matmul": (not_written, not_written),
    "multiply": (lambda g, out, x, y: g * y, lambda g, out, x, y: g * x),
    "matmul": (
        lambda g, out, x, y: g.graph.apply("matmul_vjp_x", g, y),
        lambda g, out, x, y: g.graph.apply("matmul_vjp_y", x, g),
    ),
    ### END SOLUTION
    "tanh": (lambda g, out, x: g.graph.apply("tanh_vjp", out, g),),
    "half_squared_norm": (lambda g, out, x: g.graph.apply("half_squared_norm_vjp", x, g),),
}


def backward(graph: Graph, loss: Var, parameters: Sequence[Var]) -> list[Var]:
    """Add the backward pass, and return the cotangents of the parameters: the gradient.

    A parameter that the loss does not depend on is refused with a ValueError.
    """
    ### BEGIN SOLUTION
    # Task 1.3: go through the operators from the last to the first, and add up contributions.
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
    ### END SOLUTION


def needed(graph: Graph, wanted: Collection[int], resident: Collection[int]) -> list[int]:
    """Return the operators that compute the wanted values from resident ones, in order."""
    ### BEGIN SOLUTION
    # Task 1.4: go from the wanted values back to what is resident.
    producer = {operator.output: index for index, operator in enumerate(graph.operators)}
    found: set[int] = set()
    todo = list(wanted)
    while todo:
        data = todo.pop()
        if data in producer and data not in resident and producer[data] not in found:
            found.add(producer[data])
            todo.extend(graph.operators[producer[data]].inputs)
    return sorted(found)
    ### END SOLUTION


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
