"""What an evaluation costs and what a value weighs: one number per operator, one per data node.

What policies that minimise are given, so that the same policy can be asked to save evaluations,
FLOPs or measured seconds. Store-all, recompute-all, sqrt(n) and retain minimise nothing and do not
look at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost per operator and a size per data node.

    Attributes:
        operators: the cost of one evaluation of each operator, by operator id.
        data: the memory that each data node takes while resident, by data id; 0 for a view.
        unit: what the operators' costs are counted in, such as ``evaluations`` or ``FLOPs``.
    """

    operators: tuple[float, ...]
    data: tuple[int, ...]
    unit: str = "evaluations"


def evaluations(graph: Graph) -> Costs:
    """Return costs of 1 for every evaluation, with sizes in bytes."""
    return Costs((1,) * len(graph.operators), tuple(node.nbytes for node in graph.data))


def flops(graph: Graph) -> Costs:
    """Return costs in floating-point operations, with sizes in bytes."""
    counts = tuple(operator.flops for operator in graph.operators)
    return Costs(counts, tuple(node.nbytes for node in graph.data), "FLOPs")


def custom(graph: Graph, costs: Sequence[float], unit: str = "cost") -> Costs:
    """Return the caller's own costs, such as measured seconds, with sizes in bytes.

    Raises:
        ScheduleError: unless there is one number of 0 or more for every operator.
    """
    if len(costs) != len(graph.operators) or not all(cost >= 0 for cost in costs):
        raise ScheduleError(
            f"costs: expected {len(graph.operators)} numbers of 0 or more, one for each operator "
            f"of {graph.name}, got {len(costs)}"
        )
    return Costs(tuple(costs), tuple(node.nbytes for node in graph.data), unit)
