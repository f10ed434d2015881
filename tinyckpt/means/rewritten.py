"""The means that put another network in the place of one, which computes the same loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from tinyckpt.approx.calling import Replacement, call_graph
from tinyckpt.approx.compressing import with_compression
from tinyckpt.approx.finding import is_regrouping, norms_of
from tinyckpt.approx.losses import losses_in_pieces
from tinyckpt.approx.rewrite import ACTIVATIONS, Rewriting, rewrite
from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import leaves_like
from tinyckpt.base.units import counted
from tinyckpt.core.backend import Backend
from tinyckpt.core.build import build
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.schedule import Schedule
from tinyckpt.means.case import Case, Planned
from tinyckpt.means.planned import begin_run, of_schedule, on_device, within
from tinyckpt.means.staged import fewest_stages
from tinyckpt.networks import Network
from tinyckpt.ops.elementwise import add
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import CROSS_ENTROPY
from tinyckpt.ops.shape import reshape
from tinyckpt.planner.portfolio.plan import plan

Planner = Callable[[Case, Graph], Schedule]
SHARES = 4  # of the time limit, one is for the schedules of the fewest stages
SEED = 0  # of the codes, where a step is run


def keeping(case: Case, graph: Graph) -> Schedule:
    """Return the schedule that keeps everything."""
    return plan(graph, "store_all", costs=case.costs_of(graph))


def regions(case: Case, graph: Graph) -> Schedule:
    """Return the schedule that recomputes what is marked."""
    return plan(graph, "regions", costs=case.costs_of(graph))


def compression(case: Case, bits: int = 8, planner: Planner = keeping) -> Planned:
    """Keep codes of a few bits for the backward half."""
    coded = with_compression(case.function, bits=bits)
    schedule = planner(case, coded.graph())

    def begin(arrays: tuple[Any, ...], backend: Backend) -> Any:
        return begin_run(schedule, (*arrays, np.int64(SEED)), backend)

    found = of_schedule(case, schedule, begin)
    return replace(found, gradients="approximate", sense=f"codes of {bits} bits")


def low_memory_backward(case: Case, planner: Planner = keeping) -> Planned:
    """Have norms share memory, and activations a step function as their derivative."""
    graph = build(case.function.loss, *case.function.specs)
    kinds = {operator.kind for operator in graph.operators}
    if not kinds & set(ACTIVATIONS) and not list(norms_of(graph)):
        raise GraphError("no gelu, no silu and no norm of one operator")
    rewriting = rewrite(case.function, norms="possible")
    schedule = planner(case, rewriting.network.graph())
    found = of_schedule(case, schedule, partial(begin_rewritten, rewriting, schedule))
    names = [f"{counted(len(rewriting.norms), 'norm')} shared"] if rewriting.norms else []
    takes = ", ".join(filter(None, [*names, found.takes]))
    if not rewriting.activations:
        return replace(found, gradients="rounded", takes=takes)
    own = sorted(kinds & set(ACTIVATIONS))
    sense = f"slopes of {' and '.join(own)} in steps"
    return replace(found, gradients="approximate", sense=sense, takes=takes)


def begin_rewritten(
    rewriting: Rewriting, schedule: Schedule, arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step on the merged parameters; its gradients are those of the original's."""
    params, *batch = on_device(arrays, backend)
    step = begin_run(schedule, (rewriting.merged(params), *batch), backend)
    return lambda: rewriting.gradients(step(), params)


def chunking(case: Case, planner: Planner = regions) -> Planned:
    """Go through the rows of the loss piece by piece, so that its logits are never whole."""
    network, chunks = chunked_loss(case.function, case.chunks)
    found = of_schedule(case, planner(case, network.graph()))
    takes = ", ".join(filter(None, [f"logits in {counted(chunks, 'piece')}", found.takes]))
    return replace(found, gradients="rounded", takes=takes)


def chunked_loss(network: Network, chunks: int) -> tuple[Network, int]:
    """Return the network with its cross-entropy, and the product before it, in pieces.

    Args:
        network: whose loss has one cross-entropy.
        chunks: how many pieces; fewer if there are fewer rows.

    Returns:
        The network, and in how many pieces it is.

    Raises:
        GraphError: if there is no such cross-entropy, or its logits are no product of matrices.
    """
    graph = build(network.loss, *network.specs, graph_name=network.name)
    crosses = [operator for operator in graph.operators if operator.kind == CROSS_ENTROPY.name]
    if len(crosses) != 1:
        raise GraphError("the loss is no cross-entropy, of whose logits there could be pieces")
    (cross,) = crosses
    product, biases = logits_of(graph, cross)
    if any(operator.once for operator in (cross, product, *biases)):
        raise GraphError("the logits are to be computed once, and not in pieces again")
    rows = graph.data[cross.inputs[1]].spec.size
    count = min(chunks, rows)
    specs = network.specs

    def loss(*args: Any) -> Any:
        sources = {i: leaf for i, _, leaf in leaves_like(graph.arguments, args, "arguments")}
        return call_graph(graph, sources, in_pieces(graph, cross, product, biases, count))

    return Network(network.name, loss, specs), count


def logits_of(graph: Graph, cross: Operator) -> tuple[Operator, list[Operator]]:
    """Return the product that the logits of a cross-entropy are, and what is added to it.

    Raises:
        GraphError: if they are none, or are read elsewhere, too.
    """
    data = cross.inputs[0]
    sums: list[Operator] = []
    if graph.consumers[cross.outputs[1]] or cross.outputs[1] in graph.outputs:
        raise GraphError("the logarithms of the logits' sums are read elsewhere, too")
    while True:
        producer = graph.data[data].producer
        if producer is None:
            raise GraphError("the logits are given, and no product of matrices")
        if len(graph.consumers[data]) != 1 or data in graph.outputs:
            raise GraphError("the logits are read elsewhere, too")
        operator = graph.operators[producer]
        if operator.kind == "matmul" and not operator.attrs["transpose_x"]:
            return operator, sums
        if operator.kind == "add":
            rows = [d for d in operator.inputs if graph.data[d].spec.shape[1:]]
            if len(rows) != 1:
                raise GraphError("the logits are a sum of more than a product and a bias")
            sums.append(operator)
            data = rows[0]
        elif is_regrouping(graph, operator):
            sums.append(operator)
            data = operator.inputs[0]
        else:
            raise GraphError(f"the logits come from {operator.kind}, and no product of matrices")


def in_pieces(
    graph: Graph, cross: Operator, product: Operator, others: list[Operator], chunks: int
) -> dict[int, Replacement]:
    """Return what stands in the place of a product and of the cross-entropy of it.

    Args:
        graph: a forward graph.
        cross, product: the two.
        others: between them, from the last to the first: sums with a bias, and regroupings.
        chunks: how many pieces.
    """
    met: dict[int, Any] = {}
    biases = [operator for operator in reversed(others) if operator.kind == "add"]

    def noted(operator: Operator, *operands: Any) -> tuple[Any, ...]:
        met.update(zip(operator.inputs, operands, strict=True))
        return ()

    def losses(*operands: Any) -> tuple[Any, ...]:
        hidden, weight = (met[data] for data in product.inputs)
        added = [next(met[d] for d in op.inputs if met[d] is not None) for op in biases]

        def logits(rows: Any, weight: Any, *added: Any) -> Any:
            found = matmul(rows, weight.T if product.attrs["transpose_y"] else weight)
            return reduce(add, added, found)

        labels = operands[1]
        found = losses_in_pieces(logits, hidden, labels, chunks, weight, *added)
        return (reshape(found, labels.shape),)

    found: dict[int, Replacement] = {op.id: partial(noted, op) for op in (product, *others)}
    found[cross.id] = losses
    return found


def recomputed(case: Case, graph: Graph) -> Schedule:
    """Return the best schedule within the budget, that of the fewest stages among others."""
    few = fewest_stages(graph, case.costs_of(graph), case.budget, case.time_limit / SHARES)
    return within(case, graph, seeds=() if few is None else (few,))
