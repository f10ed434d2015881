"""Regions: recompute the inside of functions that the user marked with ``@tc.checkpoint``.

What is read inside a marked function only is dropped after the forward sweep. When the backward
sweep reaches the function, its inside is evaluated again, once, and stays until it has been gone
back through. In a marked function inside a marked function this happens at each level: going back
through the outer one keeps what the inner one is given, not what it makes inside. This is what
``torch.utils.checkpoint`` and ``jax.checkpoint`` do, nested or not; with values that are kept of
the inside, what selective checkpointing does: save these, recompute the rest.
"""

from __future__ import annotations

from collections.abc import Collection

from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import (
    Keep,
    last_target_of,
    missing_producers,
    pinned_values,
    producers_of,
    selected,
    some_names,
    with_bases,
)
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order, without_dead
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule

Path = tuple[int, ...]  # the marked calls around an operator, from the outermost in


def plan_regions(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Recompute the inside of marked functions; keep all else that the backward half reads.

    Args:
        graph: the training graph.
        costs: not used; the marks decide.
        keep: what stays of the inside, as in ``retain``: names, labels, patterns, or a predicate.

    Raises:
        PolicyOptionError: if ``keep`` names what is no forward value.
    """
    path = [region_of(graph, index) for index in range(len(graph.operators))]
    chosen = selected(graph, keep, "regions")
    home = homes(graph, path, with_bases(graph, [*chosen, *pinned_values(graph)]))
    wanted = wanted_in(graph, path, home)
    order = list(range(graph.forward_count))
    resident = bytearray(
        node.producer is None or node.producer >= graph.forward_count or not home[node.id]
        for node in graph.data
    )
    for target in range(graph.forward_count, len(graph.operators)):
        for depth in range(1, len(path[target]) + 1):
            inside = wanted.pop(path[target][:depth], ())  # each region is entered once
            order.extend(producers_of(graph, inside, resident))
            for data in inside:
                resident[data] = 1
        order.extend(missing_producers(graph, target, resident, ()))
        order.append(target)
    if chosen or graph.once:  # what only they are made from is made for nobody
        order = without_dead(graph, order)
    marked = {region for region in path if region}
    last_target = last_target_of(graph)
    kept = [
        node.id
        for node in graph.data
        if not node.is_source and last_target[node.id] >= 0 and not home[node.id]
    ]
    kept = sorted({*kept, *chosen})
    note = f"{len(marked)} marked regions" if marked else "no function is marked with tc.checkpoint"
    options: dict[str, object] = {}
    if chosen:
        nodes = [graph.data[data] for data in chosen]
        note += f"; kept {counted(len(chosen), 'value')} of the inside: {some_names(nodes)}"
        options["keep"] = [node.name for node in nodes]
    return from_order(graph, order, "regions", options, note, kept)


def region_of(graph: Graph, index: int) -> Path:
    """Return the marked calls around an operator; for an adjoint, around its forward operator."""
    operator = graph.operators[index]
    if operator.phase == "backward":
        return () if operator.adjoint_of is None else graph.operators[operator.adjoint_of].regions
    return operator.regions


def homes(graph: Graph, path: list[Path], kept: Collection[int]) -> list[Path]:
    """Return for every value the innermost marked call that holds all that touch it.

    Those that are kept are at home outside of all, and so are results.
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


def wanted_in(graph: Graph, path: list[Path], home: list[Path]) -> dict[Path, list[int]]:
    """Return for every region what going back through it reads.

    That is what an adjoint reads, and what is handed to a deeper region.
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
