"""Graph import from JAX: a flattened jaxpr becomes data nodes and abstract operators.

In: a ``CapturedProgram``. Out: a ``TrainingGraph``, and the equation of each operator. Reshapes are
views; broadcasts and iota take no memory, since XLA rematerializes them in each consumer. The
forward pass is the backward slice of the value; the rest is the backward pass, scheduled lazily.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.graph import DataNode, Graph, Operator, Role, TrainingGraph
from tinyckpt.documents.verifier import check_graph
from tinyckpt.interop.importer_checks import spec_of
from tinyckpt.interop.jax.capture import CapturedProgram, Equation, Value
from tinyckpt.interop.jax.costs import flops_of

# Views: the same bytes under another shape, or the same value under a checkpoint name.
VIEWS = {"bitcast_convert_type", "expand_dims", "name", "reshape", "squeeze"}
# As a rule XLA never materializes these, but fuses them into each consumer.
UNWRITTEN = {"broadcast_in_dim", "iota"}


def graph_of(program: CapturedProgram, name: str) -> tuple[TrainingGraph, tuple[Equation, ...]]:
    """Build the graph of a program; return it with the equation of each operator, by operator id.

    Raises:
        GraphError: if the value depends on no argument, or nothing needs a gradient.
    """
    value = program.results[0]
    forward, backward = split_forward_backward(program)
    if not forward or isinstance(value, Literal) or not backward:
        raise GraphError(f"{name}: its value depends on no differentiable argument")
    builder = JaxprGraphBuilder()
    for variable, path in zip(program.arguments, program.paths, strict=True):
        role: Role = "parameter" if path.startswith("args[0]") else "input"
        builder.add_value(path, variable, role, None)
    for count, variable in enumerate(program.constants, 1):
        builder.add_value(f"constant_{count}", variable, "constant", None)
    for equation in forward:
        builder.add(equation, "forward")
    for equation in backward:
        builder.add(equation, "backward")
    number = builder.number
    gradients = {
        path: number[result]
        for path, result in zip(program.gradient_paths, program.results[1:], strict=True)
        if not isinstance(result, Literal)
    }
    graph = Graph(
        name,
        tuple(builder.data),
        tuple(builder.operators),
        tuple(number[variable] for variable in program.arguments),
        number[value],
        gradients,
    )
    check_graph(graph)
    return TrainingGraph(graph), (*forward, *backward)


def split_forward_backward(program: CapturedProgram) -> tuple[list[Equation], list[Equation]]:
    """Partition equations into forward and backward pass, dead code eliminated.

    The forward pass is what the value depends on. Equations that JAX computes along with the value,
    but only gradients depend on, are moved to right before their first consumer in the backward
    pass: otherwise all of them would have to be saved, or computed at once.
    """
    equations = program.equations
    forward = backward_slice(equations, program.results[:1])
    needed = backward_slice(equations, program.results)
    first = [equation for equation in equations if id(equation) in forward]
    last = max((place for place, e in enumerate(equations) if id(e) in forward), default=-1)
    maker = {value: equation for equation in equations for value in equation.outputs}
    position = {id(equation): place for place, equation in enumerate(equations)}
    placed = set(forward)
    rest: list[Equation] = []
    late = [e for e in equations[last + 1 :] if id(e) in needed]
    for equation in (*late, *(e for e in equations if id(e) in needed)):
        missing: dict[int, Equation] = {}
        stack = [equation]
        while stack:
            wanted = stack.pop()
            if id(wanted) not in placed and id(wanted) not in missing:
                missing[id(wanted)] = wanted
                stack += [maker[v] for v in wanted.inputs if isinstance(v, Value) and v in maker]
        placed |= set(missing)
        rest += sorted(missing.values(), key=lambda found: position[id(found)])
    return first, rest


def backward_slice(equations: Sequence[Equation], results: Iterable[Any]) -> set[int]:
    """Return the ids of the equations that some results depend on (a backward slice)."""
    wanted = {value for value in results if isinstance(value, Value)}
    found = set()
    for equation in reversed(equations):
        if wanted.intersection(equation.outputs):
            found.add(id(equation))
            wanted.update(value for value in equation.inputs if isinstance(value, Value))
    return found


class JaxprGraphBuilder:
    """A graph under construction.

    Attributes:
        data, operators: the nodes added so far.
        number: the data node id of each value.
    """

    def __init__(self) -> None:
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.number: dict[Value, int] = {}

    def add(self, equation: Equation, phase: Any) -> None:
        """Add the operator of an equation, with its outputs."""
        kind, index = equation.primitive.name, len(self.operators)
        name = f"{kind}_{index}"
        reads = [self.number[value] for value in equation.inputs if isinstance(value, Value)]
        role: Role = "activation" if phase == "forward" else "cotangent"
        view_of = reads[0] if kind in VIEWS and reads else None
        label = equation.params["name"] if kind == "name" else None
        for place, value in enumerate(equation.outputs):
            own = name if len(equation.outputs) == 1 else f"{name}.{place}"
            self.add_value(own, value, role, index, view_of, kind in UNWRITTEN, label)
        flops = flops_of(equation)
        self.operators.append(
            Operator(
                index,
                name,
                kind,
                tuple(dict.fromkeys(reads)),
                tuple(self.number[value] for value in equation.outputs),
                phase,
                scope=equation.scope,
                flops=flops,
                cost=float(flops),
            )
        )

    def add_value(
        self,
        name: str,
        value: Value,
        role: Role,
        producer: int | None,
        view_of: int | None = None,
        unwritten: bool = False,
        label: str | None = None,
    ) -> None:
        """Add a data node."""
        shape, dtype = value.aval.shape, value.aval.dtype
        written = spec_of(shape, str(dtype), math.prod(shape) * dtype.itemsize)
        spec = Spec((0,), "uint8") if unwritten else written
        storage_bytes = spec.nbytes if view_of is None else 0
        self.number[value] = number = len(self.data)
        self.data.append(
            DataNode(number, name, spec, role, storage_bytes, producer, view_of, label)
        )
