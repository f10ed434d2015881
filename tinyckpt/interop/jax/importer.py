"""Graph import from JAX: a flattened jaxpr becomes data nodes and abstract operators.

In: a flattened jaxpr of ``value_and_grad``. Out: a ``TrainingGraph``. Reshapes are views;
broadcasts and iota take no memory, since XLA rematerializes them in each consumer. The forward pass
is the backward slice of the value; the rest is the backward pass, scheduled lazily.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.graph import DataNode, Graph, Operator, Phase, Role, TrainingGraph
from tinyckpt.documents.verifier import check_graph
from tinyckpt.interop.importer_checks import spec_of
from tinyckpt.interop.jax.capture import backward_slice, scope_of, variables
from tinyckpt.interop.jax.costs import flops_of

# Views: the same bytes under another shape, or the same value under a checkpoint name.
VIEWS = {"bitcast_convert_type", "expand_dims", "name", "reshape", "squeeze"}
# As a rule XLA never materializes these, but fuses them into each consumer.
UNWRITTEN = {"broadcast_in_dim", "iota"}


def graph_of(
    jaxpr: Any, paths: Sequence[str], gradient_paths: Sequence[str], function: str
) -> TrainingGraph:
    """Build the graph of a program.

    Args:
        jaxpr: returns the value, then the gradients; one that is a literal is not in the graph.
        paths: the pytree path of each argument.
        gradient_paths: the pytree path of what each gradient is one of.
        function: its name.

    Raises:
        GraphError: if the value depends on no argument, or nothing needs a gradient.
    """
    value = jaxpr.outvars[0]
    forward, backward = split_forward_backward(jaxpr)
    if not forward or isinstance(value, Literal) or not backward:
        raise GraphError(f"{function}: its value depends on no differentiable argument")
    data: list[DataNode] = []
    operators: list[Operator] = []
    number: dict[Any, int] = {}  # the data node id of each value

    def add_value(value: Any, name: str, role: Role, equation: Any, view_of: int | None) -> None:
        kind = equation.primitive.name if equation else ""
        shape, dtype = value.aval.shape, value.aval.dtype
        written = spec_of(shape, str(dtype), math.prod(shape) * dtype.itemsize)
        spec = Spec((0,), "uint8") if kind in UNWRITTEN else written
        storage_bytes = spec.nbytes if view_of is None else 0
        producer = len(operators) if equation else None
        label = equation.params["name"] if kind == "name" else None
        number[value] = at = len(data)
        data.append(DataNode(at, name, spec, role, storage_bytes, producer, view_of, label))

    for variable, path in zip(jaxpr.invars, paths, strict=True):
        is_first = path.startswith("args[0]")
        add_value(variable, path, "parameter" if is_first else "input", None, None)
    for count, variable in enumerate(jaxpr.constvars, 1):
        add_value(variable, f"constant_{count}", "constant", None, None)
    for equation in (*forward, *backward):
        index, kind, flops = len(operators), equation.primitive.name, flops_of(equation)
        phase: Phase = "forward" if index < len(forward) else "backward"
        role: Role = "activation" if phase == "forward" else "cotangent"
        name, made = f"{kind}_{index}", equation.outvars
        reads = [number[variable] for variable in variables(equation.invars)]
        for place, variable in enumerate(made):
            own = name if len(made) == 1 else f"{name}.{place}"
            add_value(variable, own, role, equation, reads[0] if kind in VIEWS and reads else None)
        inputs, outputs = tuple(dict.fromkeys(reads)), tuple(number[each] for each in made)
        scope, cost = scope_of(equation), float(flops)
        operators.append(
            Operator(index, name, kind, inputs, outputs, phase, scope=scope, flops=flops, cost=cost)
        )
    gradients = {
        path: number[result]
        for path, result in zip(gradient_paths, jaxpr.outvars[1:], strict=True)
        if not isinstance(result, Literal)
    }
    arguments = tuple(number[variable] for variable in jaxpr.invars)
    graph = Graph(function, tuple(data), tuple(operators), arguments, number[value], gradients)
    check_graph(graph)
    return TrainingGraph(graph)


def split_forward_backward(jaxpr: Any) -> tuple[list[Any], list[Any]]:
    """Partition equations into forward and backward pass, dead code eliminated.

    The forward pass is what the value depends on. Equations that JAX computes along with the value,
    but only gradients depend on, are moved to right before their first consumer in the backward
    pass: otherwise all of them would have to be saved, or computed at once.
    """
    equations = jaxpr.eqns
    forward = backward_slice(equations, jaxpr.outvars[:1])
    needed = backward_slice(equations, jaxpr.outvars)
    first = [equation for equation in equations if id(equation) in forward]
    last = max((place for place, e in enumerate(equations) if id(e) in forward), default=-1)
    maker = {value: equation for equation in equations for value in equation.outvars}
    position = {id(equation): place for place, equation in enumerate(equations)}
    placed = set(forward)
    rest: list[Any] = []
    late = [e for e in equations[last + 1 :] if id(e) in needed]
    for equation in (*late, *(e for e in equations if id(e) in needed)):
        missing: dict[int, Any] = {}
        stack = [equation]
        while stack:
            wanted = stack.pop()
            if id(wanted) not in placed and id(wanted) not in missing:
                missing[id(wanted)] = wanted
                stack += [maker[v] for v in variables(wanted.invars) if v in maker]
        placed |= set(missing)
        rest += sorted(missing.values(), key=lambda found: position[id(found)])
    return first, rest
