"""The verifier of graphs: what every one must satisfy, whoever made it."""

from __future__ import annotations

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import SOURCES, Graph, Operator


def check_graph(graph: Graph) -> None:
    """Check that a graph is one.

    Ids are positions; data nodes and operators name each other; operators read only what stands
    before them, in the order of operators and of data; a view is of an input of its operator, and
    no source is one; bytes fit shape and dtype; the forward operators come first.

    Raises:
        GraphError: names the first node or operator that does not fit.
    """
    made: dict[int, int] = {}
    for position, operator in enumerate(graph.operators):
        at = f"operators[{position}]"
        if operator.id != position:
            raise GraphError(f"{at}: its id is {operator.id}")
        if not operator.outputs or len(set(operator.outputs)) < len(operator.outputs):
            raise GraphError(f"{at}: an operator needs at least one output, and each once")
        for data in operator.outputs:
            if made.setdefault(data, position) != position:
                raise GraphError(f"data[{data}]: it is an output of two operators")
    for position, node in enumerate(graph.data):
        at = f"data[{position}]"
        if node.id != position:
            raise GraphError(f"{at}: its id is {node.id}")
        if made.get(position) != node.producer or (node.role in SOURCES) != node.is_source:
            raise GraphError(f"{at}: its producer does not list it as an output")
        if node.is_source and node.view_of is not None:
            raise GraphError(f"{at}: a source is not a view")
        if node.nbytes != (node.spec.nbytes if node.view_of is None else 0):
            raise GraphError(f"{at}: its bytes do not fit its shape and dtype")
    for operator in graph.operators:
        at = f"operators[{operator.id}]"
        for data in operator.inputs:
            producer = graph.data[data].producer
            if producer is not None and producer >= operator.id:
                raise GraphError(f"{at}: reads {graph.data[data].name}, which is produced later")
            if producer is not None and data > min(operator.outputs):
                raise GraphError(f"{at}: its output has a smaller id than what it reads")
        for data in operator.outputs:
            view_of = graph.data[data].view_of
            if view_of is not None and view_of not in operator.inputs:
                raise GraphError(f"{at}: output {data} is a view of something that is not an input")
        if operator.is_update:
            check_update(graph, operator, at)
        if operator.phase == "forward" and operator.id >= graph.forward_count:
            raise GraphError(f"{at}: a forward operator behind a backward one")


def check_update(graph: Graph, operator: Operator, at: str) -> None:
    """Check that an operator writes over a source that is the caller's to give, and no other does.

    Raises:
        GraphError: says what does not fit.
    """
    nodes = [graph.data[data] for data in (*operator.inputs, *operator.outputs)]
    if len(operator.inputs) != 2 or len(operator.outputs) != 1:
        raise GraphError(f"{at}: an update reads a source and a value, and returns one")
    source, value, result = nodes
    if not source.is_source or source.role == "constant" or result.view_of != source.id:
        raise GraphError(f"{at}: {source.name} is no source that can be updated")
    if not source.spec == value.spec == result.spec:
        raise GraphError(f"{at}: {source} cannot take {value}")
    if sum(graph.operators[reader].is_update for reader in graph.consumers[source.id]) > 1:
        raise GraphError(f"{at}: {source.name} is updated twice")
