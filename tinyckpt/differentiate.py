"""Reverse-mode differentiation, graph to graph: the backward half is just more operators.

``gradients`` walks the operators from the loss back to the sources and lets each one's vjp rules
emit the operators that turn the cotangent of its output into the cotangents of its inputs. Where a
value was used several times, its cotangents are added by explicit ``add`` operators. Nothing is
evaluated, and no array is captured: what the backward half needs of the forward half is exactly
what the edges between them show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyckpt.builder import Builder
from tinyckpt.errors import GraphError
from tinyckpt.graph import Graph, TrainingGraph
from tinyckpt.ops.elementwise import add, astype
from tinyckpt.ops.primitive import ACTIVE_BUILDER, active_builder
from tinyckpt.ops.shape import full
from tinyckpt.tree import Tree, leaves, leaves_with_paths, map_leaves
from tinyckpt.var import Var


def gradients(loss: Var, wrt: Tree) -> Tree:
    """Add the operators that compute the gradient of a scalar, inside a build.

    Args:
        loss: a floating-point scalar.
        wrt: Vars nested in dicts, lists and tuples: arguments, or any values computed on the way.

    Returns:
        The same nesting; each gradient has the shape and dtype of its Var. It is zero where the
        loss does not depend on the Var. Gradients may be differentiated again.

    Raises:
        GraphError: if the loss is not a floating-point scalar, if a Var is not floating-point, or
            if an operator in between has no vjp rule.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, section 3.2,
    doi:10.1137/1.9780898717761.
    """
    builder = active_builder("gradients")
    check_loss(loss)
    for path, variable in leaves_with_paths(wrt, "wrt"):
        if not isinstance(variable, Var):
            raise GraphError(f"{path}: expected a Var, got a {type(variable).__name__}")
        if variable.dtype.kind != "f":
            raise GraphError(
                f"{path}: {variable.node.name} is {variable.spec}; only floating-point values have "
                "a gradient; leave it out, or pass it as a float array"
            )
    targets = [builder.as_var(variable) for variable in leaves(wrt)]
    seed = builder.add_constant(loss.dtype.type(1))
    cotangents = backpropagate(builder, {builder.as_var(loss).node.id: seed}, targets)
    return map_leaves(lambda variable: cotangents[variable.node.id], wrt)


def check_loss(loss: Any) -> None:
    """Raise a GraphError unless the loss is a floating-point scalar Var."""
    if not isinstance(loss, Var):
        raise GraphError(f"the loss must be a Var of this build, got a {type(loss).__name__}")
    if loss.shape != () or loss.dtype.kind != "f":
        raise GraphError(
            f"the loss {loss.node.name} is {loss.spec}; only a floating-point scalar has a "
            "gradient: reduce it with tc.sum or tc.mean"
        )


def backpropagate(
    builder: Builder, seeds: Mapping[int, Var], targets: Sequence[Var]
) -> dict[int, Var]:
    """Emit the backward operators, beginning with given cotangents.

    Args:
        builder: the build in progress.
        seeds: cotangents of results, by data id.
        targets: what to compute cotangents of.

    Returns:
        Cotangents by data id, those of all targets among them.
    """
    forward = list(builder.operators)
    active = depends_on(builder, [target.node.id for target in targets])
    cotangents = dict(seeds)
    with builder.backward_of(None):
        for operator in reversed(forward):
            outputs = [cotangents.get(output) for output in operator.outputs]
            if any(output is not None for output in outputs):
                with builder.backward_of(operator):
                    pull_back(builder, operator, outputs, active, cotangents)
        for target in targets:
            if target.node.id not in cotangents:
                builder.stem = f"zero_{target.node.name}"
                cotangents[target.node.id] = full(target.shape, 0.0, target.dtype)
    return cotangents


def depends_on(builder: Builder, roots: Sequence[int]) -> bytearray:
    """Mark the floating-point values that vary with the roots."""
    active = bytearray(len(builder.data))
    for root in roots:
        active[root] = 1
    for operator in builder.operators:
        if any(active[data] for data in operator.inputs):
            for output in operator.outputs:
                active[output] = builder.data[output].spec.dtype.kind == "f"
    return active


def pull_back(
    builder: Builder,
    operator: Any,
    outputs: Sequence[Var | None],
    active: bytearray,
    cotangents: dict[int, Var],
) -> None:
    """Add what one operator contributes to the cotangents of its inputs."""
    inputs = [Var(builder.data[i], builder) for i in operator.inputs]
    results = [Var(builder.data[i], builder) for i in operator.outputs]
    for position, variable in enumerate(inputs):
        if not active[variable.node.id]:
            continue
        rule = operator.primitive.rule(position)
        if rule is None:
            raise GraphError(
                f"{operator.name}: {operator.kind} has no vjp rule for its argument {position} "
                f"({variable.node}); give its Primitive one, or keep parameters out of it"
            )
        contribution = rule(outputs, inputs, results, **operator.attrs)
        if contribution is None:
            continue
        if contribution.shape == variable.shape and contribution.dtype.kind == "f":
            contribution = astype(contribution, variable.dtype)  # where dtypes were mixed
        if contribution.spec != variable.spec:
            raise GraphError(
                f"{operator.name}: the vjp rule for argument {position} returned "
                f"{contribution.spec}, but the argument is {variable.spec}"
            )
        earlier = cotangents.get(variable.node.id)
        if earlier is not None:
            contribution = add(earlier, contribution)
        cotangents[variable.node.id] = contribution


def differentiate(graph: Graph, wrt: int | Sequence[int] = 0, value: bool = True) -> TrainingGraph:
    """Return the graph with its backward half: loss and gradients are its outputs.

    Args:
        graph: what ``build`` returned. The function's result is the loss, a floating-point scalar;
            or a tuple that begins with the loss, of which the rest is passed through.
        wrt: position of the argument to differentiate with respect to, or several positions.
        value: whether the function's result is asked for besides the gradients. Without it,
            operators that only the loss value needs are left out.

    Raises:
        GraphError: if the loss is not a floating-point scalar, if an argument holds integers, or
            if an operator has no vjp rule.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"expected a Graph, got a {type(graph).__name__}; call tc.build first")
    if graph.gradients is not None:
        raise GraphError(f"{graph.name} has a backward half already; use tc.gradients inside of it")
    positions = (wrt,) if isinstance(wrt, int) else tuple(wrt)
    for position in positions:
        if not isinstance(position, int) or not 0 <= position < len(graph.arguments):
            raise GraphError(
                f"wrt={wrt!r}: {graph.name} has {len(graph.arguments)} positional arguments, "
                f"counted from 0"
            )
    builder = Builder.reopen(graph)
    builder.outermost = True
    selected = tuple(graph.arguments[position] for position in positions)
    for data in leaves(selected):
        builder.data[data] = replace(builder.data[data], role="parameter")
    results = graph.results
    loss = leaves(results[0] if isinstance(results, tuple) else results)
    if len(loss) != 1:
        raise GraphError(
            f"{graph.name} returns {len(loss)} values where the loss should be; return a scalar, "
            "or a tuple that begins with it"
        )
    tree = selected[0] if isinstance(wrt, int) else selected
    token = ACTIVE_BUILDER.set(builder)
    try:
        variables = map_leaves(lambda data: Var(builder.data[data], builder), tree)
        result = gradients(Var(builder.data[loss[0]], builder), variables)
    finally:
        ACTIVE_BUILDER.reset(token)
    ids = map_leaves(lambda variable: variable.node.id, result)
    return TrainingGraph(builder.seal(graph.arguments, results if value else None, ids))
