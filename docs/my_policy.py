"""A policy of your own: ``tinyckpt compare chain:16 --policy docs/my_policy.py:keep_the_dear``."""

import tinyckpt as tc


def keep_the_dear(graph: tc.Graph, costs: tc.Costs, *, share: float = 0.5) -> list[int]:
    """Keep the forward values that cost the most for their memory; recompute the others.

    Each time that a backward operator reads one of the others, it is computed again, from what is
    kept: nothing stays for a second reader.
    """

    def worth(operator: tc.Operator) -> float:
        size = sum(costs.data[data] for data in operator.outputs)
        return costs.operators[operator.id] / max(size, 1)

    forward = graph.operators[: graph.forward_count]
    dear = sorted(forward, key=worth, reverse=True)
    kept = {operator.id for operator in dear[: round(share * len(dear))]}
    order = [operator.id for operator in forward]
    for operator in graph.operators[graph.forward_count :]:
        order += computed_again(graph, operator, kept)
        order.append(operator.id)
    return order


def computed_again(graph: tc.Graph, operator: tc.Operator, kept: set[int]) -> list[int]:
    """Return the forward operators to be evaluated again before an operator, in their order."""
    found: set[int] = set()
    wanted = list(operator.inputs)
    while wanted:
        producer = graph.data[wanted.pop()].producer
        if producer is None or producer >= graph.forward_count or producer in kept | found:
            continue
        found.add(producer)
        wanted += graph.operators[producer].inputs
    return sorted(found)
