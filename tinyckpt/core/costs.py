"""The cost model: cost per evaluation and size per value, the two quantities that planners trade.

Every planner accepts any cost model, so that one policy can minimise evaluations, FLOPs, memory
traffic or measured seconds, in bytes or in nodes; ``planner.model.cost_models`` has more of them.
Store-all and recompute-all ignore it, and sqrt(n) reads the sizes alone, if ``by="bytes"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinyckpt.base.errors import expect
from tinyckpt.base.quantities import check_total, validated_costs, validated_sizes
from tinyckpt.core.graph import Graph


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost model: a cost per operator and a size per data node.

    Numbers of any kind are converted to Python's own, since NumPy integers may overflow silently.

    >>> import tinyckpt as tc
    >>> costs = tc.cost.evaluations(tc.networks.chain(2))
    >>> costs.operators, costs.data, costs.unit
    ((1, 1, 1, 1, 1), (512, 512, 512, 8, 512, 512, 512), 'evaluations')

    Attributes:
        operators: the cost of one evaluation of each operator, by operator id.
        data: the memory of each data node while resident, by data id.
        workspace: the scratch memory of each operator while it runs, by operator id.
        unit: unit of the operators' costs, such as ``evaluations`` or ``FLOPs``.
        memory_unit: unit of memory. In bytes a view has size 0 and keeps its base alive; in nodes
            every value has size 1, and views keep nothing alive.

    Raises:
        ScheduleError: unless costs are finite and non-negative, and sizes non-negative integers
            that total less than 2^60.
    """

    operators: tuple[float, ...]
    data: tuple[int, ...]
    workspace: tuple[int, ...]
    unit: str = "evaluations"
    memory_unit: Literal["bytes", "nodes"] = "bytes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", validated_costs(self.operators))
        object.__setattr__(self, "data", validated_sizes(self.data, "data"))
        object.__setattr__(self, "workspace", validated_sizes(self.workspace, "workspace"))
        check_total(self.data, self.workspace, self.memory_unit)


def evaluations(graph: Graph) -> Costs:
    """Return unit costs: 1 per evaluation.

    >>> import tinyckpt as tc
    >>> tc.cost.evaluations(tc.networks.chain(2)).operators
    (1, 1, 1, 1, 1)
    """
    return with_sizes(graph, (1,) * len(expect(graph, Graph).operators), "evaluations")


def flops(graph: Graph) -> Costs:
    """Return costs in floating-point operations; operators that only move data cost 0.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x, w: x @ w, tc.Spec((2, 3)), tc.Spec((3, 4)))
    >>> tc.cost.flops(graph).operators  # 2 * 2 * 3 * 4
    (48,)
    """
    operators = expect(graph, Graph).operators  # a user's FLOP rule may return anything
    costs = validated_costs([each.flops for each in operators], [each.name for each in operators])
    return with_sizes(graph, costs, "FLOPs")


def with_sizes(graph: Graph, operators: tuple[float, ...], unit: str) -> Costs:
    """Combine operator costs with the graph's own sizes in bytes."""
    data = tuple([node.nbytes for node in graph.data])
    workspace = tuple([operator.workspace for operator in graph.operators])
    return Costs(operators, data, workspace, unit)
