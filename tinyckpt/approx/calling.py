"""A graph called as a function, inside of a build, with other operators in the place of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Tree, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.primitive import active_builder, apply_all
from tinyckpt.core.tracing import Builder, Var

# What stands in an operator's place: from its operands to its outputs, of which it may make fewer.
Replacement = Callable[..., tuple[Var, ...]]


def call_graph(
    graph: Graph,
    sources: Mapping[int, Any],
    replacements: Mapping[int, Replacement],
    around: Mapping[int, Callable[[Var], Var]] | None = None,
) -> Tree:
    """Add a graph's operators to the one being built, and return its results.

    Scopes, labels, regions to be recomputed and what may be evaluated once stay what they are.

    Args:
        graph: a forward graph.
        sources: by data id what is put in the place of its arguments; without those that nothing
            reads any more.
        replacements: by operator.
        around: by data id, what is made of a value before it is read.
    """
    builder = active_builder(graph.name)
    values: dict[int, Any] = {**graph.constants, **sources}
    with regions_of(builder) as enter:
        for operator in graph.operators:
            enter(operator.regions)
            replacement = replacements.get(operator.id)
            with scope_of(builder, operator):
                # None for a source that is not there: only what replaces an operator may read one.
                operands = [values.get(data) for data in operator.inputs]
                outputs = (
                    added(operator, operands) if replacement is None else replacement(*operands)
                )
            for data, output in zip(operator.outputs, outputs, strict=False):
                label = graph.data[data].label
                output = output if label is None else builder.relabel(output, label)
                values[data] = around[data](output) if around and data in around else output
            if operator.once:
                builder.pin(outputs[0])
    return map_leaves(values.__getitem__, graph.results)


def added(operator: Operator, operands: list[Any]) -> tuple[Var, ...]:
    """Add an operator as it is."""
    if operator.primitive is None:
        raise GraphError(f"{operator.name} is abstract: it has no kernel; rewrite a function")
    return apply_all(operator.primitive, *operands, **operator.attrs)


def scope_of(builder: Builder, operator: Operator) -> AbstractContextManager[None]:
    """Return the context in which operators have the scope of another."""
    return builder.scoped(operator.scope) if operator.scope else nullcontext()


@contextmanager
def regions_of(builder: Builder) -> Iterator[Callable[[tuple[int, ...]], None]]:
    """Give a function that enters the regions of an operator, and leaves those it is not in.

    The operators of one region stand side by side, so that each is entered once.
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
            inside = builder.region()
            inside.__enter__()
            entered.append((region, inside))

    try:
        yield enter
    finally:
        leave(0)
