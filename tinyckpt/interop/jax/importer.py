"""From a program of JAX to a graph of tinyckpt: data nodes and abstract operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import DataNode, Graph, Operator, Role, Spec, TrainingGraph, check_graph
from tinyckpt.interop.frameworks import spec_of
from tinyckpt.interop.jax.capture import CapturedProgram, Equation, Value
from tinyckpt.interop.jax.costs import flops_of

# The same bytes under another shape, or the same value under a name.
VIEWS = {"bitcast_convert_type", "expand_dims", "name", "reshape", "squeeze"}
# As a rule XLA never writes these out, but makes them anew for whoever reads them.
UNWRITTEN = {"broadcast_in_dim", "iota"}


def graph_of(program: CapturedProgram, name: str) -> tuple[TrainingGraph, tuple[Equation, ...]]:
    """Return the graph of a program, and the equation of every operator, by operator id.

    Raises:
        GraphError: if the value depends on nothing, or nothing needs a gradient.
    """
    value = program.results[0]
    forward, backward = halves(program)
    if not forward or isinstance(value, Literal) or not backward:
        raise GraphError(f"{name}: its value depends on nothing that could be differentiated")
    building = JaxprGraphBuilder()
    for variable, path in zip(program.arguments, program.paths, strict=True):
        role: Role = "parameter" if path.startswith("args[0]") else "input"
        building.add_value(path, variable, role, None)
    for count, variable in enumerate(program.constants, 1):
        building.add_value(f"constant_{count}", variable, "constant", None)
    for equation in forward:
        building.add(equation, "forward")
    for equation in backward:
        building.add(equation, "backward")
    number = building.number
    gradients = {
        path: number[result]
        for path, result in zip(program.gradient_paths, program.results[1:], strict=True)
        if not isinstance(result, Literal)
    }
    graph = Graph(
        name,
        tuple(building.data),
        tuple(building.operators),
        tuple(number[variable] for variable in program.arguments),
        number[value],
        gradients,
    )
    check_graph(graph)
    return TrainingGraph(graph), (*forward, *backward)


def halves(program: CapturedProgram) -> tuple[list[Equation], list[Equation]]:
    """Return the equations that the value needs, and those that only gradients need.

    What JAX computes with the value for the gradients' sake stands right before its first reader
    in the backward half: otherwise all of it would have to be kept, or computed at once.
    """
    equations = program.equations
    forward = needed_for(equations, program.results[:1])
    needed = needed_for(equations, program.results)
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


def needed_for(equations: Sequence[Equation], results: Iterable[Any]) -> set[int]:
    """Return the ids of the equations that some results are computed by."""
    wanted = {value for value in results if isinstance(value, Value)}
    found = set()
    for equation in reversed(equations):
        if wanted.intersection(equation.outputs):
            found.add(id(equation))
            wanted.update(value for value in equation.inputs if isinstance(value, Value))
    return found


class JaxprGraphBuilder:
    """A graph in the making.

    Attributes:
        data, operators: what is there already.
        number: the data node of every value.
    """

    def __init__(self) -> None:
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.number: dict[Value, int] = {}

    def add(self, equation: Equation, half: Any) -> None:
        """Add the operator of an equation, with all that it makes."""
        kind, index = equation.primitive.name, len(self.operators)
        name = f"{kind}_{index}"
        reads = [self.number[value] for value in equation.inputs if isinstance(value, Value)]
        role: Role = "activation" if half == "forward" else "cotangent"
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
                half,
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
        held = spec.nbytes if view_of is None else 0
        self.number[value] = number = len(self.data)
        self.data.append(DataNode(number, name, spec, role, held, producer, view_of, label))
