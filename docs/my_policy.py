"""A custom policy: ``tinyckpt compare chain:16 --policy docs/my_policy.py:keep_expensive``."""

import tinyckpt as tc


def keep_expensive(graph: tc.Graph, costs: tc.Costs, *, share: float = 0.5) -> list[int]:
    """Keep the forward values with the highest cost per byte; recompute the others.

    Each backward operator that reads another value recomputes it from the kept ones; recomputed
    values are not kept for a second reader.
    """

    def worth(operator: tc.Operator) -> float:
        size = sum(costs.data[data] for data in operator.outputs)
        return costs.operators[operator.id] / max(size, 1)

    forward = graph.operators[: graph.forward_count]
    expensive = sorted(forward, key=worth, reverse=True)
    kept = {operator.id for operator in expensive[: round(share * len(expensive))]}
    order = [operator.id for operator in forward]
    for operator in graph.operators[graph.forward_count :]:
        order += computed_again(graph, operator, kept)
        order.append(operator.id)
    return order


def computed_again(graph: tc.Graph, operator: tc.Operator, kept: set[int]) -> list[int]:
    """Return the forward operators to recompute before an operator, in topological order."""
    found: set[int] = set()
    wanted = list(operator.inputs)
    while wanted:
        producer = graph.data[wanted.pop()].producer
        if producer is None or producer >= graph.forward_count or producer in kept | found:
            continue
        found.add(producer)
        wanted += graph.operators[producer].inputs
    return sorted(found)
