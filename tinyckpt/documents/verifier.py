"""The IR verifier: the invariants of a graph, whether traced, imported or loaded from a file."""

from __future__ import annotations

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import SOURCES, Graph
from tinyckpt.ops.update_steps import check_update


def check_graph(graph: Graph) -> None:
    """Verify the invariants of a graph.

    Ids equal positions; producers and outputs agree; the order of operators and of data is
    topological; a view is of an input of its operator, and no source is a view; nbytes match shape
    and dtype; forward operators precede backward ones; each source is updated at most once.

    Raises:
        GraphError: names the first node or operator that violates an invariant.
    """
    producers: dict[int, int] = {}  # by output
    for position, operator in enumerate(graph.operators):
        at = f"operators[{position}]"
        if operator.id != position:
            raise GraphError(f"{at}: its id is {operator.id}")
        if not operator.outputs or len(set(operator.outputs)) < len(operator.outputs):
            raise GraphError(f"{at}: an operator needs at least one output, and each once")
        for data in operator.outputs:
            if producers.setdefault(data, position) != position:
                raise GraphError(f"data[{data}]: it is an output of two operators")
    for position, node in enumerate(graph.data):
        at = f"data[{position}]"
        if node.id != position:
            raise GraphError(f"{at}: its id is {node.id}")
        if producers.get(position) != node.producer or (node.role in SOURCES) != node.is_source:
            raise GraphError(f"{at}: its producer does not list it as an output")
        if node.is_source and node.view_of is not None:
            raise GraphError(f"{at}: a source is not a view")
        if node.nbytes != (node.spec.nbytes if node.view_of is None else 0):
            raise GraphError(f"{at}: its nbytes do not match its shape and dtype")
    for operator in graph.operators:
        at = f"operators[{operator.id}]"
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is not None and producer >= operator.id:
                raise GraphError(f"{at}: reads {graph.data[data].name}, which is produced later")
            if producer is not None and data > min(operator.outputs):
                raise GraphError(f"{at}: its output has a smaller id than its input")
        for data in operator.outputs:
            view_of = graph.data[data].view_of
            if view_of is not None and view_of not in operator.inputs:
                raise GraphError(f"{at}: output {data} is a view of something that is not an input")
        if operator.is_update:
            check_update(graph, operator, at)
        if operator.phase == "forward" and operator.id >= graph.forward_count:
            raise GraphError(f"{at}: a forward operator after a backward one")
