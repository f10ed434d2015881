"""The cost model: cost per evaluation and size per value, the two quantities that planners trade.

Every planner accepts any cost model, so that one policy can minimise evaluations, FLOPs, memory
traffic or measured seconds, under a budget in bytes or in nodes. Store-all, recompute-all and
retain minimise nothing and ignore it. Costs must be finite and non-negative, sizes integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, isnan
from numbers import Integral, Real
from typing import Any, Literal

from tinyckpt.base.errors import ScheduleError, did_you_mean
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.core.trace import Trace

LARGEST_COST = 1e300  # sums of such costs are still finite
# Bound on the total of all values and workspaces. A schedule may have two copies of a value alive
# (a view may keep an older evaluation's block), and planners sum over such sets: 64-bit integers
# leave a factor of 8 for that.
LARGEST_MEMORY = 2**60
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


def check_total(data: Sequence[int], workspace: Sequence[int], unit: str) -> None:
    """Raise a ScheduleError if the total memory exceeds the planners' integer range."""
    if (total := sum(data) + sum(workspace)) >= LARGEST_MEMORY:
        raise ScheduleError(
            f"all values and workspaces total {total:,} {unit}; "
            f"planners support less than {LARGEST_MEMORY:,}"
        )


def validated_costs(costs: Sequence[Any], operators: Sequence[Operator] = ()) -> tuple[float, ...]:
    """Validate costs and convert them to Python numbers: integers as they are, others to floats.

    Raises:
        ScheduleError: names the first operator whose cost is invalid, or its position.
    """
    numbers = costs
    if not set(map(type, costs)) <= {int, float}:  # rarely
        numbers = [to_python_number(cost) for cost in costs]
    distinct = set(numbers)  # checked in bulk: of 100,000 costs usually few are distinct
    in_range = min(distinct, default=0) >= 0 and max(distinct, default=0) < LARGEST_COST
    if in_range and not isnan(sum(distinct)):
        return tuple(numbers)
    for position, cost in enumerate(numbers):
        if not 0 <= cost < LARGEST_COST:
            who = operators[position].name if operators else f"operator {position}"
            raise ScheduleError(
                f"costs: that of {who} is {costs[position]!r:.80}; it must be a finite number of 0 "
                f"or more, below {LARGEST_COST:g}"
            )
    return tuple(numbers)


def to_python_number(cost: Any) -> float:
    """Convert a cost to a Python number; infinity if it is not one or too large for a float."""
    if isinstance(cost, bool) or not isinstance(cost, Real):
        return inf
    if isinstance(cost, Integral):
        return int(cost)
    try:
        return float(cost)
    except OverflowError:
        return inf


def validated_sizes(sizes: Sequence[Any], what: str) -> tuple[int, ...]:
    """Validate sizes and convert them to Python integers."""
    if not set(map(type, sizes)) <= {int}:
        for size in sizes:
            if not isinstance(size, Integral) or isinstance(size, bool):
                raise ScheduleError(
                    f"costs: a size in {what} is {size!r:.80}; it must be an integer"
                )
        sizes = [int(size) for size in sizes]
    if min(sizes, default=0) < 0:
        raise ScheduleError(f"costs: a size in {what} is {min(sizes)}; it must be 0 or more")
    return tuple(sizes)


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
    return custom(graph, costs, "FLOPs" if are_flops else "cost")


def flops(graph: Graph) -> Costs:
    """Return costs in floating-point operations; operators that only move data cost 0.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x, w: x @ w, tc.Spec((2, 3)), tc.Spec((3, 4)))
    >>> tc.cost.flops(graph).operators  # 2 * 2 * 3 * 4
    (48,)
    """
    return custom(graph, [operator.flops for operator in graph.operators], "FLOPs")


def traffic(graph: Graph) -> Costs:
    """Return costs in bytes read and written: memory traffic bounds operators of low intensity.

    A view reads and writes nothing.

    >>> import tinyckpt as tc
    >>> tc.cost.traffic(tc.build(lambda x: tc.tanh(x), tc.Spec((4,)))).operators
    (64,)
    """
    costs = [
        0
        if all(graph.data[data].view_of is not None for data in operator.outputs)
        else sum(graph.data[data].spec.nbytes for data in (*operator.inputs, *operator.outputs))
        for operator in graph.operators
    ]
    return custom(graph, costs, "bytes moved")


def measured(trace: Trace) -> Costs:
    """Return costs in seconds, from a profiled run: the mean over each operator's evaluations.

    >>> import numpy as np, tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(2), "store_all")
    >>> tc.cost.measured(tc.run(schedule, np.ones((8, 8)), timed=True).trace).unit
    'seconds'

    Args:
        trace: ``tc.run(schedule, *arrays, timed=True).trace``; of store-all, if it fits.

    Raises:
        ScheduleError: if the run was not timed.
    """
    if not trace.seconds:
        raise ScheduleError("the trace has no timings; run with timed=True")
    total = [0.0] * len(trace.graph.operators)
    count = [0] * len(total)
    for step, seconds in zip(trace.steps, trace.seconds, strict=True):
        if isinstance(step, EVALUATIONS):
            total[step.operator] += seconds
            count[step.operator] += 1
    costs = [seconds / max(times, 1) for seconds, times in zip(total, count, strict=True)]
    return custom(trace.graph, costs, "seconds")


def custom(graph: Graph, costs: Sequence[float] | Mapping[str, float], unit: str = "cost") -> Costs:
    """Return user-defined costs, such as measured seconds, with sizes in bytes.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(1)
    >>> tc.cost.custom(graph, {"f1": 2.5, "l": 0, "b1": 5}, unit="ms").operators
    (2.5, 0, 5)

    Args:
        graph: the graph that the operators belong to.
        costs: one number per operator, in build order, or by operator name.
        unit: their unit.

    Raises:
        ScheduleError: unless there is one finite number of 0 or more for every operator.
    """
    operators = graph.operators
    if isinstance(costs, Mapping):
        names = {operator.name for operator in operators}
        for name in costs:
            if name not in names:
                raise ScheduleError(
                    f"costs: {name!r:.80} is not an operator of {graph.name}; keys are operator "
                    f"names{did_you_mean(name, names)}"
                )
        missing = [operator.name for operator in operators if operator.name not in costs]
        if missing:
            raise ScheduleError(
                f"costs: {len(missing)} of {len(operators)} operators of {graph.name} have no "
                f"cost, such as {missing[0]}"
            )
        costs = [costs[operator.name] for operator in operators]
    if len(costs) != len(operators):
        raise ScheduleError(
            f"costs: expected {len(operators)} numbers of 0 or more, one for each operator "
            f"of {graph.name}, got {len(costs)}"
        )
    return with_sizes(graph, validated_costs(costs, operators), unit)


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
