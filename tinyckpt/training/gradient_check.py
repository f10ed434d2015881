"""Gradient checking by finite differences in random directions, like HIPS/autograd's check_grads.

Where a gradient and the differences of the function's values disagree, every operator is checked by
itself, at the values that it has in the graph, so that the error names the wrong vjp rule. The
check is independent of how derivatives are computed.

Not here: kinks. At one, such as relu's at 0, there is no derivative to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.tree import Tree, fill, leaves, map_leaves
from tinyckpt.core.autodiff import gradients
from tinyckpt.core.backend import bind_sources
from tinyckpt.core.execute import execute
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import apply_all, build
from tinyckpt.ops.elementwise import add, multiply
from tinyckpt.ops.reduce import sum
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.training.transformations import jit, value_and_grad

Flat = Callable[..., Tree]  # of arrays, none of them nested

# Richardson extrapolation: values at -2h, -h, h and 2h give two central differences of second
# order, D(h) and D(2h), and both together one of fourth order, (4 D(h) - D(2h)) / 3. Its truncation
# error is about h^4 = 1e-12, its rounding error about 1e-16 / h = 1e-13.
H = 1e-3
# Tolerance for rounding, relative to the values: many times 1e-13, for sums of many terms.
NOISE = 1e-9
# Each further derivative has two to three times the operators: softmax's 10th has 25,000.
MOST_ORDERS = 10


def check_gradient(
    function: Callable[..., Any], *args: Any, order: int = 2, rtol: float = 1e-6
) -> None:
    """Check a function's derivatives against finite differences; raise a GraphError if they differ.

    Results are projected onto a random direction, and each argument is moved along another: two
    numbers are compared per argument, whatever the sizes. Then the gradient itself is checked in
    the same way, for the second derivative. Shapes and dtypes that kernels return are compared with
    what their infer rules say.

    >>> import numpy as np, tinyckpt as tc
    >>> cube = tc.Primitive(
    ...     "cube", lambda xp, x: x**3, infer=lambda x: (x,),
    ...     vjp=(lambda cotangents, inputs, outputs: cotangents[0] * 3 * inputs[0],),
    ... )
    >>> try:
    ...     tc.check_gradient(lambda x: tc.apply(cube, x), np.array([1.0, 2.0]))
    ... except tc.GraphError as error:
    ...     print(str(error).partition(" along a random direction")[0])
    cube_1: the vjp rule of cube for argument 0 (x) gives a slope of -4.80542

    Args:
        function: of Vars; returns one or several, nested.
        args: its arguments, nested or not. Floating-point arrays must be float64, since
            differences at lower precision are inaccurate; other arrays stay fixed.
        order: 1 for the gradient alone, 2 for its derivatives as well, and so on.
        rtol: the largest relative difference allowed.

    Raises:
        GraphError: names the operator and its argument, or the function's if no operator is wrong
            by itself; or an operator whose result is not as inferred, a value that is not finite,
            or a missing rule, which prevent the check.
        OptionError: if the order is less than 1, or more than can be checked.

    Source: randomly projected differences, as check_grads of HIPS/autograd has them.
    """
    if type(order) is not int or not 1 <= order <= MOST_ORDERS:
        raise OptionError(f"order={order!r:.80}; it must be an integer from 1 to {MOST_ORDERS}")
    graph = build(function, *args)
    arrays = [np.array(array, order="C") for array in bind_sources(graph, args).values()]
    names = [graph.data[data].name for data in leaves(graph.arguments)]
    varied = [index for index, array in enumerate(arrays) if array.dtype.kind == "f"]
    for index in varied:
        if arrays[index].dtype != np.float64:
            raise GraphError(
                f"check_gradient: {names[index]} is {arrays[index].dtype}, not float64"
            )
    if not varied:
        raise GraphError(f"check_gradient: {graph.name} has no argument of float64 to vary")
    check_kernels(graph, arrays)
    places = iter(range(len(arrays)))
    template = map_leaves(lambda _: next(places), tuple(args))

    def flat(*values: Any) -> Tree:
        return function(*fill(template, values))

    for number in range(1, order + 1):
        for index, slope, numeric in disagreements(flat, arrays, varied, rtol):
            message = wrong_operator_message(flat, arrays, names, varied, rtol) or (
                f"{graph.name}: its derivative with respect to {names[index]} gives a slope of "
                f"{slope:.6g} along a random direction, where differences of its values give "
                f"{numeric:.6g}, though by itself every operator is right"
            )
            raise GraphError(
                f"{'' if number == 1 else f'derivative {number}: '}{message} (they also differ "
                "near a kink, such as relu's at 0: then use other arguments)"
            )
        flat = slope_of(flat, varied)


def check_kernels(graph: Graph, arrays: Sequence[Any]) -> None:
    """Raise a GraphError if a kernel returns another shape or dtype than its infer rule says.

    A run does not look: it computes with what the kernel returned, and only its bytes differ from
    those of ``replay``.
    """

    def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
        operator = graph.operators[index]
        for data, result in zip(operator.outputs, map(np.asarray, results), strict=True):
            spec = graph.data[data].spec
            if (result.shape, result.dtype.name) != (spec.shape, spec.dtype.name):
                found = f"{result.dtype.name}[{','.join(map(str, result.shape))}]"
                raise GraphError(
                    f"{operator.name}: the kernel of {operator.kind} returns {found}, where its "
                    f"infer rule says {spec}"
                )

    execute(plan(graph), dict(zip(leaves(graph.arguments), arrays, strict=True)), watch=watch)


def projected(flat: Flat) -> Flat:
    """Project the function's results onto a fixed random direction: a scalar function."""

    def scalar(*values: Any) -> Any:
        generator = np.random.default_rng(1)
        terms = [
            sum(multiply(result, unit_vector(generator, result.shape)))
            for result in leaves(flat(*values))
            if getattr(getattr(result, "dtype", None), "kind", None) == "f"
        ]
        if not terms:
            raise GraphError("check_gradient: the function returns no floating-point array")
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        return total

    return scalar


def slope_of(flat: Flat, varied: Sequence[int]) -> Flat:
    """Return the gradient of the projected function, as a function of the same arguments."""
    return lambda *values: gradients(projected(flat)(*values), [values[i] for i in varied])


def unit_vector(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return a random direction of length 1."""
    direction = generator.normal(size=shape)
    return direction / max(float(np.linalg.norm(direction)), 1e-300)


def disagreements(
    flat: Flat, arrays: Sequence[Any], varied: Sequence[int], rtol: float
) -> list[tuple[int, float, float]]:
    """Compare directional derivatives by gradient and by differences, argument by argument.

    Returns:
        (argument, slope by gradient, slope by differences) for each that disagrees.
    """
    scalar = projected(flat)
    value, generator = jit(scalar), np.random.default_rng(2)
    _, slopes = value_and_grad(scalar, wrt=tuple(varied))(*arrays)
    found = []
    for index, gradient in zip(varied, slopes, strict=True):
        direction = unit_vector(generator, arrays[index].shape)
        there = []
        for step in (-2, -1, 1, 2):
            moved = list(arrays)
            moved[index] = arrays[index] + step * H * direction
            there.append(float(value(*moved)))
        near, far = (there[2] - there[1]) / (2 * H), (there[3] - there[0]) / (4 * H)
        numeric, slope = (4 * near - far) / 3, float(np.sum(gradient * direction))
        if not math.isfinite(numeric):
            raise GraphError("check_gradient: its values are not finite there; use other arguments")
        # Where the slope is 0, the error is all truncation: allow half of |D(h) - D(2h)|.
        allowed = rtol * max(abs(slope), abs(numeric)) + abs(near - far) / 2
        if not abs(slope - numeric) <= allowed + NOISE * max(map(abs, there)):
            found.append((index, slope, numeric))
    return found


def wrong_operator_message(
    flat: Flat, arrays: Sequence[Any], names: Sequence[str], varied: Sequence[int], rtol: float
) -> str | None:
    """Check every operator by itself; return the message about the first wrong one, or None."""
    graph = build(projected(flat), *arrays)
    sources = dict(zip(leaves(graph.arguments), arrays, strict=True))
    values = {**sources, **graph.constants}
    called = {node.id: node.name for node in graph.data}
    called.update(zip(sources, names, strict=True))

    def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
        values.update(zip(graph.operators[index].outputs, results, strict=True))

    execute(plan(graph), sources, watch=watch)
    varying = {data for index, data in enumerate(leaves(graph.arguments)) if index in varied}
    for operator in graph.operators:
        inner = [place for place, data in enumerate(operator.inputs) if data in varying]
        if not inner:
            continue
        varying.update(o for o in operator.outputs if graph.data[o].spec.dtype.kind == "f")
        operands = [values[data] for data in operator.inputs]
        own = operator_function(
            operator, [bool(graph.consumers[data]) for data in operator.outputs]
        )
        with suppress(GraphError):  # some operators are not differentiable in all outputs read
            for place, slope, numeric in disagreements(own, operands, inner, rtol):
                return (
                    f"{operator.name}: the vjp rule of {operator.kind} for argument {place} "
                    f"({called[operator.inputs[place]]}) gives a slope of {slope:.6g} along a "
                    f"random direction, where differences of its values give {numeric:.6g}"
                )
    return None


def operator_function(operator: Operator, is_read: Sequence[bool]) -> Flat:
    """Return an operator as a function of its inputs, restricted to the outputs that are read."""
    primitive = operator.primitive
    assert primitive is not None, "graphs that are built from functions have kernels"
    return lambda *values: list(compress(apply_all(primitive, *values, **operator.attrs), is_read))
