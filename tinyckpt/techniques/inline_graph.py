"""Graph inlining with operator substitution: re-trace a graph, replacing some of its operators.

The interpreter under all rewrites: every operator of a traced graph is applied again to new
arguments, except those that have a replacement. Scopes, labels, checkpointed regions and
once-only marks are preserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from tinyckpt.base.calls import function_name
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import spec_of
from tinyckpt.base.tree import Template, Tree, leaves_like, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import Builder, ContextSwitch, Var, active_builder, apply_all
from tinyckpt.networks.network import Network
from tinyckpt.ops.non_recomputable import pin
from tinyckpt.planner.manual.regions import new_region

# The replacement of an operator: from its operands to its outputs, or to the first few of them.
Replacement = Callable[..., tuple[Var, ...]]


def network_of(asker: str, what: Network | Callable[..., Any], specs: tuple[Any, ...]) -> Network:
    """Return a network; make one of a function and specs of its arguments.

    Raises:
        GraphError: if it is neither, or has no specs; the message begins with ``asker``.
    """
    if isinstance(what, Network):
        if specs:
            raise GraphError(f"{asker}: {what.name} has specs of its own; pass no others")
        return what
    if not callable(what):
        raise GraphError(f"{asker}: expected a Network or a function, got a {type(what).__name__}")
    name = function_name(what)
    if not specs:
        raise GraphError(
            f"{asker}: {name} needs its arguments, arrays or specs, with the parameters first"
        )
    own = tuple(
        map_leaves(partial(spec_of, f"argument {position} of {name}"), argument)
        for position, argument in enumerate(specs)
    )
    return Network(name, what, own)


def call_graph(
    graph: Graph,
    arguments: tuple[Tree, ...],
    replacements: Mapping[int, Replacement],
    around: Mapping[int, Callable[[Var], Var]] | None = None,
    template: Template = None,
) -> Tree:
    """Inline a graph into the one being built, and return its results.

    Args:
        graph: a forward graph.
        arguments: nested as the graph's.
        replacements: by operator id.
        around: by data id, functions that wrap a value before it is read.
        template: the graph's arguments by data id, without those that no operator reads any more;
            all of them, if not given.

    Raises:
        GraphError: if the nesting of the arguments differs, or an operator has no kernel.
    """
    builder = active_builder(graph.name)
    matched = leaves_like(graph.arguments if template is None else template, arguments, "arguments")
    values: dict[int, Any] = {**graph.constants, **{data: leaf for data, _, leaf in matched}}
    regions: dict[int, int] = {}  # from the graph's to those of the graph being built
    for operator in graph.operators:
        replacement = replacements.get(operator.id)
        # None for a missing source: only a replacement may be passed one.
        operands = [values.get(data) for data in operator.inputs]
        with within_regions(builder, operator.regions, regions):
            with builder.scoped(operator.scope) if operator.scope else nullcontext():
                outputs = (
                    apply_unchanged(operator, operands)
                    if replacement is None
                    else replacement(*operands)
                )
            for data, output in zip(operator.outputs, outputs, strict=False):
                label = graph.data[data].label
                output = output if label is None else builder.relabel(output, label)
                values[data] = around[data](output) if around and data in around else output
            if operator.once:
                pin(outputs[0])
    return map_leaves(values.__getitem__, graph.results)


def apply_unchanged(operator: Operator, operands: list[Any]) -> tuple[Var, ...]:
    """Apply an operator unchanged."""
    if operator.primitive is None:
        raise GraphError(f"{operator.name} is abstract: it has no kernel; rewrite a function")
    return apply_all(operator.primitive, *operands, **operator.attrs)


def within_regions(
    builder: Builder, regions: tuple[int, ...], known: dict[int, int]
) -> ContextSwitch:
    """Return a context in which new operators get another operator's checkpointed regions.

    Args:
        builder: of the new operators.
        regions: of an operator of another graph.
        known: from that graph's regions to those of the new operators; missing ones are added.
    """
    for region in regions:
        if region not in known:
            known[region] = new_region(builder).inside.regions[-1]
    own = [known[region] for region in regions]
    return ContextSwitch(builder, replace(builder.here, regions=(*builder.here.regions, *own)))
