"""Hypothesis strategies for random training graphs: fan-out, several outputs, views, dropout."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tinyckpt as tc
from tinyckpt.base.tree import leaves
from tinyckpt.core.tracing import Builder
from tinyckpt.ops.parameter_update import descend
from tinyckpt.planner.heuristics.backward_order import renumber_operators
from tinyckpt.training.optimizer_in_backward import placed

ROWS, COLUMNS = 3, 4

# Every action takes the pool of (ROWS, COLUMNS) values and a way to pick one, and adds to the pool.
Pick = Callable[[], Any]
ACTIONS: dict[str, Callable[[Pick, int], list[Any]]] = {
    "tanh": lambda pick, n: [tc.tanh(pick())],
    "sin": lambda pick, n: [tc.sin(pick())],
    "gelu": lambda pick, n: [tc.gelu(pick())],
    "add": lambda pick, n: [pick() + pick()],
    "multiply": lambda pick, n: [pick() * pick()],
    "square": lambda pick, n: [tc.tanh(pick()) ** 2],
    "scale": lambda pick, n: [pick() * 0.5],
    "maximum": lambda pick, n: [tc.maximum(pick(), pick())],
    "softmax": lambda pick, n: [tc.softmax(pick())],
    "dropout": lambda pick, n: [tc.dropout(pick(), 0.3, seed=n)],
    "reshaped": lambda pick, n: [tc.tanh(pick().reshape(COLUMNS, ROWS)).reshape(ROWS, COLUMNS)],
    "transposed": lambda pick, n: [(pick().T * 1.5).T],
    "reversed": lambda pick, n: [pick()[::-1, ::-1]],
    "centred": lambda pick, n: [centred(pick())],
    "halves": lambda pick, n: halves(pick()),
    "swapped": lambda pick, n: [tc.concatenate(tc.split(pick(), 2, axis=1)[::-1], axis=1)],
    "mixed": lambda pick, n: [pick() @ tc.transpose(pick()) @ pick()],
    "batched": lambda pick, n: [batched(pick(), pick())],
    "cube": lambda pick, n: [cube(pick(), pick(), pick())],
    "picked": lambda pick, n: [pick()[[2, 0, 2]], pick()[:, [3, 1, 1, 0]]],
    "sorted": lambda pick, n: [tc.sort(pick(), axis=n % 2)],
    "by data": lambda pick, n: [tc.take_along_axis(pick(), tc.argmax(pick(), 0, True), 0) + pick()],
    "accumulated": lambda pick, n: [tc.cumsum(pick(), axis=1) * 0.5],
    "normed": lambda pick, n: [pick() / (1.0 + tc.linalg.norm(pick(), axis=0))],
    "logs": lambda pick, n: [pick() - tc.logsumexp(pick(), axis=1, keepdims=True)],
    "contracted": lambda pick, n: [np.einsum("ij,kj->ik", pick(), pick()) @ pick()],
    "captured": lambda pick, n: [pick() * tc.reshape(CAPTURED, (ROWS, COLUMNS))],
    "labelled": lambda pick, n: [tc.name(tc.cos(pick()), f"label{n}")],
    "dead": lambda pick, n: [tc.exp(pick())][:0],
}


# Not C-contiguous, so that reshaping it would copy if it were taken as it is.
CAPTURED = np.asfortranarray(np.linspace(0.5, 1.5, ROWS * COLUMNS).reshape(COLUMNS, ROWS))


def batched(x: Any, y: Any) -> Any:
    # A product whose batch axes are transposed, then flattened.
    x, y = x.reshape(3, 2, 2), y.reshape(2, 2, 3)
    return (x.transpose(1, 0, 2) @ y).reshape(-1)[:12].reshape(ROWS, COLUMNS)


def cube(x: Any, y: Any, z: Any) -> Any:
    # One operand is broadcast along a new first axis, and the sum is read the other way round.
    return tc.tanh((tc.stack([x, y]) + z).transpose(2, 1, 0).reshape(-1))[:12].reshape(
        ROWS, COLUMNS
    )


def centred(x: Any) -> Any:
    return x - x.mean(axis=0, keepdims=True)


def halves(x: Any) -> list[Any]:
    # The third result is never read; the first is read twice.
    left, right, _ = tc.split(x, [1, 3], axis=1)
    largest = x[:, 2:].max(axis=1, keepdims=True)
    return [tc.concatenate([left, right * left, largest], axis=1)]


@st.composite
def training_graphs(draw: st.DrawFn, largest: int = 14) -> tuple[tc.TrainingGraph, tuple[Any, ...]]:
    """Draw a training graph and arrays to run it on."""
    count = draw(st.integers(1, largest))
    names = [draw(st.sampled_from(sorted(ACTIONS))) for _ in range(count)]
    choices = [draw(st.lists(st.integers(0, 99), min_size=3, max_size=3)) for _ in range(count)]
    parameters = draw(st.integers(1, 3))
    wrt_input = draw(st.booleans())
    auxiliary = draw(st.booleans())

    def loss(params: Any, x: Any, unused: Any) -> Any:
        pool = [x, *params]
        for number, (action, picks) in enumerate(zip(names, choices, strict=True)):
            queue = list(picks)
            # Recent values are picked more often, so that graphs are deep as well as wide.
            pool.extend(
                ACTIONS[action](lambda q=queue: pool[-1 - min(q.pop() % 5, len(pool) - 1)], number)
            )
        total = tc.mean(pool[-1] * pool[-1]) + tc.sum(tc.sin(pool[len(pool) // 2]))
        return (total, pool[-1]) if auxiliary else total

    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    params = [generator.normal(size=(ROWS, COLUMNS)) for _ in range(parameters)]
    x, unused = generator.normal(size=(ROWS, COLUMNS)), generator.normal(size=2)
    graph = tc.build(loss, params, x, unused)
    return tc.differentiate(graph, (0, 1) if wrt_input else 0), (params, x, unused)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "both": lambda x: x.T[::-1],
    "folded": lambda x: x.reshape(2, 8).reshape(4, 4),
    "scaled": lambda x: x * 0.5,
    "tanh": tc.tanh,
}


@st.composite
def graphs_of_views(draw: st.DrawFn, largest: int = 14) -> tc.TrainingGraph:
    """Draw a training graph of 4 by 4 values, most of them views, also views of views."""
    picks = st.tuples(st.sampled_from(["product", *VIEWS]), st.integers(0, 5), st.integers(0, 5))
    steps = draw(st.lists(picks, min_size=2, max_size=largest))

    def loss(x: Any, y: Any) -> Any:
        pool = [x, y]
        for action, first, second in steps:
            left, right = (pool[-1 - pick % len(pool)] for pick in (first, second))
            pool.append(left * right if action == "product" else VIEWS[action](left))
        return tc.sum(pool[-1] * pool[len(pool) // 2])

    return tc.differentiate(tc.build(loss, tc.Spec((4, 4)), tc.Spec((4, 4))), (0, 1))


@st.composite
def with_once(draw: st.DrawFn, graph: tc.Graph) -> Any:
    """Draw which operators of a graph may not be evaluated twice; return the graph with that."""
    chosen = draw(st.sets(st.integers(0, len(graph.operators) - 1), max_size=6))
    operators = [
        replace(graph.operators[index], once=index in chosen)
        for index in range(len(graph.operators))
    ]
    return replace(graph, operators=tuple(operators))


@st.composite
def graphs_with_updates(draw: st.DrawFn) -> tuple[tc.TrainingGraph, tuple[Any, ...]]:
    """Draw a graph that updates each of its parameters by its gradient, and arrays to run it on."""
    graph, args = draw(training_graphs())
    builder = Builder.reopen(graph)
    parameters = [builder.var(data) for data in leaves(graph.arguments[0])]
    gradients = leaves(graph.gradients)[: len(parameters)]
    with builder.active(), builder.backward_half(), builder.scoped("optimizer"):
        updates = [
            tc.assign(p, descend(p, builder.var(g), builder.as_var(0.1)))
            for p, g in zip(parameters, gradients, strict=True)
        ]
    ids = [update.node.id for update in updates]
    sealed = builder.seal(graph.arguments, (ids, graph.results))
    sequence = placed(sealed, held=draw(st.booleans()))
    return tc.TrainingGraph(renumber_operators(sealed, sequence)), args
