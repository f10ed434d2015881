"""Graph inlining with operator substitution: re-trace a graph, replacing some of its operators.

The interpreter under all rewrites: every operator of a traced graph is applied again to new
arguments, except those that have a replacement. Scopes, labels, checkpointed regions and
once-only marks are preserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Tree, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import Builder, Var, active_builder, apply_all
from tinyckpt.ops.non_recomputable import pin
from tinyckpt.planner.manual.regions import new_region

# The replacement of an operator: from its operands to its outputs, or to the first few of them.
Replacement = Callable[..., tuple[Var, ...]]


def call_graph(
    graph: Graph,
    sources: Mapping[int, Any],
    replacements: Mapping[int, Replacement],
    around: Mapping[int, Callable[[Var], Var]] | None = None,
) -> Tree:
    """Inline a graph into the one being built, and return its results.

    Scopes, labels, checkpointed regions and once-only marks are preserved.

    Args:
        graph: a forward graph.
        sources: by data id the substitutes of its arguments; those may be missing that no operator
            reads any more.
        replacements: by operator id.
        around: by data id, functions that wrap a value before it is read.
    """
    builder = active_builder(graph.name)
    values: dict[int, Any] = {**graph.constants, **sources}
    with regions_of(builder) as enter:
        for operator in graph.operators:
            enter(operator.regions)
            replacement = replacements.get(operator.id)
            with scope_of(builder, operator):
                # None for a missing source: only a replacement may be passed one.
                operands = [values.get(data) for data in operator.inputs]
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


def scope_of(builder: Builder, operator: Operator) -> AbstractContextManager[None]:
    """Return a context in which new operators get another operator's scope."""
    return builder.scoped(operator.scope) if operator.scope else nullcontext()


@contextmanager
def regions_of(builder: Builder) -> Iterator[Callable[[tuple[int, ...]], None]]:
    """Yield a function that enters an operator's checkpointed regions, and leaves all others.

    The operators of a region are consecutive, so that each region is entered once.
    """
    entered: list[tuple[int, AbstractContextManager[None]]] = []

    def leave(down_to: int) -> None:
        while len(entered) > down_to:
            entered.pop()[1].__exit__(None, None, None)

    def enter(regions: tuple[int, ...]) -> None:
        same = 0
        while same < min(len(entered), len(regions)) and entered[same][0] == regions[same]:
            same += 1
        leave(same)
        for region in regions[same:]:
            inside = new_region(builder)
            inside.__enter__()
            entered.append((region, inside))

    try:
        yield enter
    finally:
        leave(0)
