"""Activation checkpointing of marked functions, nested or not: ``@tc.checkpoint``, as in PyTorch.

Values read only inside a marked function (a region) are freed after the forward pass. When the
backward pass reaches the region, its inside is recomputed, once, and stays until the backward pass
has left the region. Nested regions do this at each level: the backward pass of the outer one keeps
the inputs of the inner one, not the values inside it. This is what ``torch.utils.checkpoint`` and
``jax.checkpoint`` do, nested or not; with ``keep``, selective activation checkpointing: save some
values of the inside, recompute the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any

from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import (
    close_over_views,
    last_backward_readers,
    pinned_values,
    recompute_closure,
    some_names,
)
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.tracing import ACTIVE_BUILDER, Builder, ContextSwitch
from tinyckpt.planner.manual.retain import Keep, resolve_keep
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations

Path = tuple[int, ...]  # call ids of the regions that enclose an operator, outermost first


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function for rematerialization: the policy ``regions`` recomputes its intermediates.

    Counterpart of ``torch.utils.checkpoint.checkpoint`` and ``jax.checkpoint``, as a mark: use it
    as a decorator, or where the function is called: ``h = tc.checkpoint(block)(h)``. Marked
    functions nest. Other policies ignore the marks.

    >>> import tinyckpt as tc
    >>> block = tc.checkpoint(lambda x: tc.tanh(tc.sin(x)))
    >>> graph = tc.build(lambda x: tc.sum(block(x)), tc.Spec((3,)))
    >>> [operator.regions for operator in graph.operators]
    [(0,), (0,), ()]
    """

    @wraps(function)
    def marked(*args: Any, **options: Any) -> Any:
        builder = ACTIVE_BUILDER.get()
        with nullcontext() if builder is None else new_region(builder):
            return function(*args, **options)

    return marked


def new_region(builder: Builder) -> ContextSwitch:
    """Put the operators added inside into a new region: one call of a checkpointed function."""
    number = builder.scratch["regions"] = builder.scratch.get("regions", -1) + 1
    return ContextSwitch(builder, replace(builder.here, regions=(*builder.here.regions, number)))


def plan_regions(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Recompute the inside of marked functions; save all other residuals.

    Args:
        graph: the training graph.
        costs: not used; the marks decide.
        keep: values of the inside to save, as in ``retain``: names, labels, patterns, or a
            predicate.

    Raises:
        PolicyOptionError: if an entry of ``keep`` is no forward value.

    >>> import tinyckpt as tc
    >>> block = tc.checkpoint(lambda x: tc.sin(tc.tanh(x)))
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(block(block(x))), tc.Spec(4)))
    >>> tc.replay(tc.plan(graph, "regions")).recomputations  # the two tanh
    2
    """
    path = [region_of(graph, index) for index in range(len(graph.operators))]
    chosen = resolve_keep(graph, keep, "regions")
    home = enclosing_regions(graph, path, close_over_views(graph, [*chosen, *pinned_values(graph)]))
    wanted = region_residuals(graph, path, home)
    order = list(range(graph.forward_count))
    resident = bytearray(
        node.producer is None or node.producer >= graph.forward_count or not home[node.id]
        for node in graph.data
    )
    for target in range(graph.forward_count, len(graph.operators)):
        for depth in range(1, len(path[target]) + 1):
            inside = wanted.pop(path[target][:depth], ())  # each region is recomputed once
            order.extend(recompute_closure(graph, inside, resident))
            for data in inside:
                resident[data] = 1
        order.extend(recompute_closure(graph, graph.operators[target].inputs, resident))
        order.append(target)
    if chosen or graph.once:  # recomputations whose only readers were resident are dead code
        order = eliminate_dead_recomputations(graph, order)
    marked = {region for region in path if region}
    last_target = last_backward_readers(graph)
    kept = [
        node.id
        for node in graph.data
        if not node.is_source and last_target[node.id] >= 0 and not home[node.id]
    ]
    kept = sorted({*kept, *chosen})
    note = counted(len(marked), "marked region")
    if not marked:
        note = "no function is marked with tc.checkpoint"
    options: dict[str, object] = {}
    if chosen:
        nodes = [graph.data[data] for data in chosen]
        note += f"; kept {counted(len(chosen), 'value')} of the inside: {some_names(nodes)}"
        options["keep"] = [node.name for node in nodes]
    return from_order(graph, order, "regions", options, note, kept)


def region_of(graph: Graph, index: int) -> Path:
    """Return the regions that enclose an operator; a vjp is in those of its forward operator."""
    operator = graph.operators[index]
    if operator.phase == "backward":
        return () if operator.adjoint_of is None else graph.operators[operator.adjoint_of].regions
    return operator.regions


def enclosing_regions(graph: Graph, path: list[Path], kept: Collection[int]) -> list[Path]:
    """Return for each value the innermost region that contains its producer and all its readers.

    Kept values and results of the graph belong to no region, the empty path.
    """
    home: list[Path] = []
    stays = {*graph.outputs, *kept}
    for node in graph.data:
        if node.producer is None or node.id in stays:
            home.append(())
            continue
        shared = path[node.producer]
        for reader in graph.consumers[node.id]:
            while shared != path[reader][: len(shared)]:
                shared = shared[:-1]
        home.append(shared)
    return home


def region_residuals(graph: Graph, path: list[Path], home: list[Path]) -> dict[Path, list[int]]:
    """Return the residuals of each region: the values to recompute when its backward pass begins.

    These are the values that a vjp reads, and the inputs of nested regions.
    """
    wanted: dict[Path, list[int]] = {}
    for node in graph.data:
        region = home[node.id]
        if region and any(
            reader >= graph.forward_count or len(path[reader]) > len(region)
            for reader in graph.consumers[node.id]
        ):
            wanted.setdefault(region, []).append(node.id)
    return wanted


REGIONS = Policy(
    "regions",
    plan_regions,
    "recompute the inside of functions marked with @tc.checkpoint, nested ones too",
    "as good as the marks",
    "O(V + E)",
    "torch.utils.checkpoint and jax.checkpoint as their users apply them",
)
