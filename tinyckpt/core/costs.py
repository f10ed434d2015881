"""The cost model: cost per evaluation and size per value, the two quantities that planners trade.

Every planner accepts any cost model, so that one policy can minimise evaluations, FLOPs, memory
traffic or measured seconds, under a budget in bytes or in nodes. Store-all, recompute-all and
retain minimise nothing and ignore it. Costs must be finite and non-negative, sizes integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum
from typing import Literal

from tinyckpt.base.quantities import check_total, validated_costs, validated_sizes
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.core.trace import Trace

MemoryUnit = Literal["bytes", "nodes"]


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
    memory_unit: MemoryUnit = "bytes"

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
    return with_sizes(graph, (1,) * len(graph.operators), "evaluations")


def given(graph: Graph) -> Costs:
    """Return the costs that the graph's operators carry, such as a profile; unit costs if none do.

    This is the default objective of a plan.

    >>> import tinyckpt as tc
    >>> tc.cost.given(tc.networks.chain(2)).unit
    'evaluations'
    """
    costs = [operator.cost for operator in graph.operators if operator.cost is not None]
    if not costs or len(costs) < len(graph.operators):
        return evaluations(graph)
    are_flops = all(operator.cost == operator.flops for operator in graph.operators)
    names = [operator.name for operator in graph.operators]
    return with_sizes(graph, validated_costs(costs, names), "FLOPs" if are_flops else "cost")


def flops(graph: Graph) -> Costs:
    """Return costs in floating-point operations; operators that only move data cost 0.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x, w: x @ w, tc.Spec((2, 3)), tc.Spec((3, 4)))
    >>> tc.cost.flops(graph).operators  # 2 * 2 * 3 * 4
    (48,)
    """
    costs = tuple([operator.flops for operator in graph.operators])
    return with_sizes(graph, costs, "FLOPs")


def with_sizes(graph: Graph, operators: tuple[float, ...], unit: str) -> Costs:
    """Combine valid operator costs with the graph's own sizes in bytes, skipping the checks."""
    data = tuple([node.nbytes for node in graph.data])  # from a Spec, so integers
    workspace = validated_sizes([operator.workspace for operator in graph.operators], "workspace")
    check_total(data, workspace, "bytes")
    fields = zip(Costs.__slots__, (operators, data, workspace, unit, "bytes"), strict=True)
    costs = object.__new__(Costs)  # skips __post_init__, which would check all numbers again
    for name, value in fields:
        object.__setattr__(costs, name, value)
    return costs


def cost_of(scheduled: Schedule | Trace, costs: Costs) -> float:
    """Return the total cost of a schedule's evaluations.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(16)
    >>> tc.cost.cost_of(tc.plan(graph, "sqrt_n"), tc.cost.evaluations(graph))
    42.0
    """
    steps = scheduled.steps
    return cost_of_order([step.operator for step in steps if isinstance(step, EVALUATIONS)], costs)


def cost_of_order(order: Iterable[int], costs: Costs) -> float:
    """Return the total cost of some evaluations: the exact sum, rounded once, in any order."""
    own = costs.operators
    return fsum([own[operator] for operator in order])


def in_nodes(costs: Costs) -> Costs:
    """Return the same costs with memory counted in data nodes, as the closed forms count it.

    >>> import tinyckpt as tc
    >>> tc.cost.in_nodes(tc.cost.flops(tc.networks.chain(1))).data
    (1, 1, 1, 1, 1)
    """
    sizes, workspace = (1,) * len(costs.data), (0,) * len(costs.operators)
    return replace(costs, data=sizes, workspace=workspace, memory_unit="nodes")
