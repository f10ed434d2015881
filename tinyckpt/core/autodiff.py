"""Reverse-mode automatic differentiation, graph to graph.

A graph says how a loss is computed, one operator after another. This file adds, to the same graph,
how its gradient is computed: the backward pass. Three ideas are enough.

**A cotangent.** For every value v on the way to the loss L, the cotangent of v is dL/dv: an array
of v's shape that says how much the loss changes with each element of v. The cotangent of the loss
itself is 1. The cotangents of the parameters are the gradient, which is the goal.

**One operator at a time.** For y = f(x), the chain rule turns the cotangent of y into the
contribution of f to the cotangent of x: the *vector-Jacobian product* (vjp) of f. For y = tanh(x)
it is dL/dx = dL/dy * (1 - y²). The Jacobian itself, an array of len(y) times len(x) numbers, is
never formed. Each primitive has one such rule for each of its inputs; a rule emits operators.

**Backwards.** A value's cotangent is complete once every operator that reads the value has
contributed, and contributions add up. So the operators are visited in reverse topological order,
from the last to the first: by the time one is reached, all its readers have been, and the
cotangents of its outputs are complete. One sweep gives the gradient with respect to everything,
which is why it runs in this direction: a loss is one number, and parameters are many.

Nothing is evaluated here, and no array is captured. The rule of tanh above reads y, and so the
graph gets an edge from y to the operator that the rule emits. The forward values at the tails of
all such edges are the *residuals*: what store-all saves, and what checkpointing recomputes.

>>> import tinyckpt as tc
>>> graph = tc.build(lambda w, x: tc.sum(tc.tanh(w * x)), tc.Spec(3), tc.Spec(3), graph_name="one")
>>> print(tc.differentiate(graph, value=False))
one: 5 operators, 8 data nodes
  multiply_1 = multiply(w, x)   float64[3]
  tanh_1 = tanh(multiply_1)   float64[3]
backward:
  sum_1_vjp = sum_vjp(1.0)   float64[3]
  tanh_1_vjp = tanh_vjp(tanh_1, sum_1_vjp)   float64[3]
  multiply_1_vjp = multiply(tanh_1_vjp, x)   float64[3]

The forward value ``sum_1`` is missing: ``value=False`` does not return it, and no gradient reads
it, so that dead code elimination drops it.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, section 3.2,
doi:10.1137/1.9780898717761. This is not a tape: nothing is recorded while arrays are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.tree import Tree, leaves, leaves_with_paths, map_leaves
from tinyckpt.core.graph import Graph, Operator, TrainingGraph
from tinyckpt.core.primitive import ARITHMETIC, RULE_ERRORS
from tinyckpt.core.tracing import Builder, Var, active_builder

# Extensions: each changes what vjp rules read for a value, given by its id (``tc.compressed``: a
# decoded value); it returns the function that it is given if the build has nothing to substitute.
Read = Callable[[int], Var]
RESIDUAL_RULES: list[Callable[[Builder, Read], Read]] = []

# 1. One operator: its vector-Jacobian products ---------------------------------------------------


def pull_back(
    builder: Builder,
    operator: Operator,
    active: bytearray,
    read: Read,
    cotangents: dict[int, Var],
) -> None:
    """Pull the cotangents of one operator's outputs back to its inputs, accumulating them there.

    Args:
        builder: the build in progress.
        operator: an operator of which at least one output has a cotangent.
        active: marks the active values, as ``varied_values`` finds them; cotangents of others
            are not needed, and so not computed.
        read: maps a value's id to what vjp rules read: the value itself, or a substitute.
        cotangents: by data id; those of the operator's outputs are complete. Updated in place.
    """
    outputs = [cotangents.get(output) for output in operator.outputs]
    touched = {data: read(data) for data in (*operator.inputs, *operator.outputs)}
    operands = [touched[data] for data in operator.inputs]
    results = [touched[data] for data in operator.outputs]
    for position, data in enumerate(operator.inputs):
        variable = builder.var(data)
        if not active[data]:
            continue
        rule = operator.primitive.rule(position) if operator.primitive else None
        if rule is None:
            raise GraphError(
                f"{operator.name}: {operator.kind} has no vjp rule for its argument {position} "
                f"({variable.node}); add one to its Primitive, or keep parameters out of it"
            )
        try:
            contribution = rule(outputs, operands, results, **operator.attrs)
            if contribution is None:  # zero: the output does not vary with this input
                continue
            contribution = builder.as_var(contribution)
        except RULE_ERRORS as error:
            raise GraphError(f"{operator.name}: vjp of argument {position}: {error}") from error
        if contribution.shape == variable.shape and is_float(contribution.dtype):
            # The operands' dtypes may differ.
            contribution = ARITHMETIC["cast"](contribution, variable.dtype)
        if contribution.spec != variable.spec:
            raise GraphError(
                f"{operator.name}: the vjp rule for argument {position} returned "
                f"{contribution.spec}, but the argument is {variable.spec}"
            )
        # Fan-out: a value that is read twice, even by one operator (x * x), sums contributions.
        earlier = cotangents.get(data)
        if earlier is not None:
            contribution = ARITHMETIC["add"](earlier, contribution)
        cotangents[data] = contribution


# 2. All operators, in reverse topological order --------------------------------------------------


def backpropagate(
    builder: Builder, seeds: Mapping[int, Var], targets: Sequence[Var]
) -> dict[int, Var]:
    """Emit the backward sweep: operators that propagate seed cotangents to the targets.

    Args:
        builder: the build in progress.
        seeds: initial cotangents by data id; that of a loss is 1.
        targets: values to compute cotangents of.

    Returns:
        Cotangents by data id, those of all targets among them; zeros for targets that no seed
        depends on.
    """
    forward = list(builder.operators)  # a copy: the sweep appends operators to the builder's list
    active = varied_values(builder, [target.node.id for target in targets])
    cotangents = dict(seeds)
    read: Read = builder.var
    for rule in RESIDUAL_RULES:
        read = rule(builder, read)
    for operator in reversed(forward):
        # An operator none of whose outputs has a cotangent does not contribute to the loss.
        if any(output in cotangents for output in operator.outputs):
            with builder.adjoint(operator):
                pull_back(builder, operator, active, read, cotangents)
    for target in targets:
        if target.node.id not in cotangents:
            with builder.named(f"zero_{target.node.name}"):
                cotangents[target.node.id] = ARITHMETIC["fill"](target.shape, 0.0, target.dtype)
    return cotangents


def varied_values(builder: Builder, roots: Sequence[int]) -> bytearray:
    """Activity analysis, forward: mark the floating-point values that depend on the roots.

    The roots themselves are marked too. The other direction (values that the loss depends on)
    needs no analysis: only those ever get a cotangent.
    """
    active = bytearray(len(builder.data))
    for root in roots:
        active[root] = 1
    for operator in builder.operators:
        if any(active[data] for data in operator.inputs):
            for output in operator.outputs:
                active[output] = is_float(builder.data[output].spec.dtype)
    return active


# 3. Derivatives inside a function that is being traced (nested, higher-order) --------------------


def gradients(loss: Var, wrt: Tree) -> Tree:
    """Add the operators that compute the gradient of a scalar, inside a build.

    >>> import numpy as np, tinyckpt as tc
    >>> def slope(x):
    ...     return tc.gradients(tc.sum(x * x), x)
    >>> graph = tc.build(slope, tc.Spec(2))
    >>> tc.run(tc.plan(graph), np.array([3.0, 4.0])).value
    array([6., 8.])

    Args:
        loss: a floating-point scalar.
        wrt: Vars nested in dicts, lists and tuples: arguments, or any intermediate values.

    Returns:
        Gradients in the same nesting; each has the shape and dtype of its Var, and is zero where
        the loss does not depend on the Var. Gradients may be differentiated again.

    Raises:
        GraphError: if the loss is not a floating-point scalar, if a Var is not floating-point, or
            if an operator in between has no vjp rule.
    """
    builder = active_builder("gradients")
    check_loss(loss)
    for path, variable in leaves_with_paths(wrt, "wrt"):
        if not isinstance(variable, Var):
            raise GraphError(f"{path}: expected a Var, got a {type(variable).__name__}")
        if not is_float(variable.dtype):
            raise GraphError(
                f"{path}: {variable.node.name} is {variable.spec}; only floating-point values have "
                "a gradient; leave it out, or pass it as a float array"
            )
    targets = [builder.as_var(variable) for variable in leaves(wrt)]
    seed = builder.add_constant(loss.dtype.type(1))
    cotangents = backpropagate(builder, {builder.as_var(loss).node.id: seed}, targets)
    return map_leaves(lambda variable: cotangents[builder.as_var(variable).node.id], wrt)


def check_loss(loss: Any) -> None:
    """Raise a GraphError unless the loss is a floating-point scalar Var."""
    if not isinstance(loss, Var):
        raise GraphError(f"the loss must be a Var of this build, got a {type(loss).__name__}")
    if loss.shape != () or loss.dtype.kind != "f":
        raise GraphError(
            f"the loss {loss.node.name} is {loss.spec}; only a floating-point scalar has a "
            f"gradient: {'reduce it with tc.sum or tc.mean' if loss.shape else 'pass floats'}"
        )


# 4. From a forward graph to a training graph -----------------------------------------------------


def differentiate(graph: Graph, wrt: int | Sequence[int] = 0, value: bool = True) -> TrainingGraph:
    """Add the backward pass to a graph: a training graph, with loss and gradients as outputs.

    >>> import tinyckpt as tc
    >>> loss = tc.build(lambda w, x: tc.mean((x @ w) ** 2), tc.Spec((4, 2)), tc.Spec((8, 4)))
    >>> graph = tc.differentiate(loss)
    >>> graph.data[graph.gradients].spec
    Spec(shape=(4, 2), dtype=dtype('float64'))

    Args:
        graph: a graph from ``build``. The function's result is the loss, a floating-point
            scalar; or a tuple that begins with the loss, the rest of which is passed through.
        wrt: position of the argument to differentiate with respect to, or several positions. The
            role of its sources changes from input to parameter.
        value: whether to return the function's result as well as the gradients. Without it,
            operators that only the loss value needs are eliminated.

    Raises:
        GraphError: if the loss is not a floating-point scalar, if an argument in ``wrt`` is
            not floating-point, or if an operator has no vjp rule.
    """
    return add_backward_pass(graph, wrt, value)


def add_backward_pass(
    graph: Graph, wrt: int | Sequence[int] = 0, value: bool = True, owned: bool = True
) -> TrainingGraph:
    """Add the backward pass, as ``differentiate``, with control over the gradients' memory.

    Args:
        graph, wrt, value: as in ``differentiate``.
        owned: whether each gradient must own its memory; unnecessary if gradients are only read,
            as by an optimiser within the same graph.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"expected a Graph, got a {type(graph).__name__}; call tc.build first")
    if graph.gradients is not None:
        raise GraphError(f"{graph.name} already has a backward pass; use tc.gradients inside it")
    positions = positions_of(graph.name, len(graph.arguments), wrt)
    selected = tuple(graph.arguments[position] for position in positions)
    loss = loss_of(graph.name, graph.results)
    builder = Builder.reopen(graph)
    for data in leaves(selected):
        builder.data[data] = replace(builder.data[data], role="parameter")
    # For one position the gradient has that argument's nesting; for several it is a tuple.
    tree = map_leaves(builder.var, selected if isinstance(wrt, Sequence) else selected[0])
    with builder.active(), builder.backward_half():
        result = gradients(builder.var(loss), tree)
        if owned:
            shown = leaves(graph.results) if value else []
            result = ARITHMETIC["unalias"](result, map(builder.var, shown))
    ids = map_leaves(lambda variable: variable.node.id, result)
    return TrainingGraph(builder.seal(graph.arguments, graph.results if value else None, ids))


def loss_of(name: str, results: Tree) -> Any:
    """Return the loss of a function's results: the only leaf of the result or of its first item."""
    loss = leaves(results[0] if isinstance(results, tuple) and results else results)
    if len(loss) != 1:
        raise GraphError(
            f"{name} returns {len(loss)} values in place of the loss; return a scalar, "
            "or a tuple that begins with one"
        )
    return loss[0]


def positions_of(name: str, count: int, wrt: int | Sequence[int]) -> tuple[int, ...]:
    """Normalise ``wrt`` to a tuple of argument positions, checked against the argument count."""
    several = wrt if isinstance(wrt, Sequence) else (wrt,)
    positions = [i for i in map(as_integer, several) if i is not None and 0 <= i < count]
    if len(positions) < len(several):
        raise GraphError(f"wrt={wrt!r}: {name} has {count} positional arguments, counted from 0")
    return tuple(positions)
