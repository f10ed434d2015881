"""What an evaluation costs and what a value weighs: the two things that planners trade.

Any planner takes any costs, so that the same policy can be asked to save evaluations, FLOPs, memory
traffic or measured seconds, under a budget in bytes or in nodes. Store-all, recompute-all and
retain minimise nothing and do not look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum
from numbers import Real
from typing import Literal

from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.schedule import Compute, Schedule
from tinyckpt.trace import Trace

LARGEST_COST = 1e300  # sums of such costs are still finite
MemoryUnit = Literal["bytes", "nodes"]


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost per operator and a size per data node.

    Attributes:
        operators: the cost of one evaluation of each operator, by operator id.
        data: the memory that each data node takes while resident, by data id.
        workspace: the memory that each operator holds besides inputs and outputs, by operator id.
        unit: what the operators' costs are counted in, such as ``evaluations`` or ``FLOPs``.
        memory_unit: what memory is counted in. In bytes a view weighs 0 and holds what it is a
            view of; in nodes every value weighs 1, and views hold nothing.
    """

    operators: tuple[float, ...]
    data: tuple[int, ...]
    workspace: tuple[int, ...]
    unit: str = "evaluations"
    memory_unit: MemoryUnit = "bytes"


def evaluations(graph: Graph) -> Costs:
    """Return costs of 1 for every evaluation."""
    return with_sizes(graph, (1,) * len(graph.operators), "evaluations")


def given(graph: Graph) -> Costs:
    """Return the costs that the graph's operators carry, such as a profile; 1 each if they do not.

    This is what a plan minimises unless it is told otherwise.
    """
    costs = [operator.cost for operator in graph.operators if operator.cost is not None]
    if not costs or len(costs) < len(graph.operators):
        return evaluations(graph)
    return custom(graph, costs)


def flops(graph: Graph) -> Costs:
    """Return costs in floating-point operations; operators that only move data cost nothing."""
    return custom(graph, [operator.flops for operator in graph.operators], "FLOPs")


def traffic(graph: Graph) -> Costs:
    """Return costs in bytes read and written: what bounds operators that do little arithmetic.

    A view reads and writes nothing.
    """
    costs = [
        0
        if all(graph.data[data].view_of is not None for data in operator.outputs)
        else sum(graph.data[data].spec.nbytes for data in (*operator.inputs, *operator.outputs))
        for operator in graph.operators
    ]
    return custom(graph, costs, "bytes moved")


def measured(trace: Trace) -> Costs:
    """Return costs in seconds, from the trace of a run: the mean over each operator's evaluations.

    Args:
        trace: ``tc.run(schedule, *arrays, timed=True).trace``; of store-all, if it fits.

    Raises:
        ScheduleError: if the run was not timed.
    """
    if not trace.seconds:
        raise ScheduleError("the trace holds no seconds; run with timed=True")
    total = [0.0] * len(trace.graph.operators)
    count = [0] * len(total)
    for step, seconds in zip(trace.steps, trace.seconds, strict=True):
        if isinstance(step, Compute):
            total[step.operator] += seconds
            count[step.operator] += 1
    costs = [seconds / max(times, 1) for seconds, times in zip(total, count, strict=True)]
    return custom(trace.graph, costs, "seconds")


def custom(graph: Graph, costs: Sequence[float], unit: str = "cost") -> Costs:
    """Return the caller's own costs, such as measured seconds, with sizes in bytes.

    Raises:
        ScheduleError: unless there is one finite number of 0 or more for every operator.
    """
    if len(costs) != len(graph.operators):
        raise ScheduleError(
            f"costs: expected {len(graph.operators)} numbers of 0 or more, one for each operator "
            f"of {graph.name}, got {len(costs)}"
        )
    for operator, cost in zip(graph.operators, costs, strict=True):
        is_number = type(cost) in (int, float) or isinstance(cost, Real)  # the former is faster
        if not is_number or not 0 <= cost < LARGEST_COST:  # NaN is not, either
            raise ScheduleError(
                f"costs: that of {operator.name} is {cost!r:.80}; it must be a finite number of 0 "
                "or more"
            )
    return with_sizes(graph, tuple(costs), unit)


def with_sizes(graph: Graph, operators: tuple[float, ...], unit: str) -> Costs:
    """Return costs of operators with the graph's own sizes, in bytes."""
    return Costs(
        operators,
        tuple([node.nbytes for node in graph.data]),
        tuple([operator.workspace for operator in graph.operators]),
        unit,
    )


def cost_of(scheduled: Schedule | Trace, costs: Costs) -> float:
    """Return the cost of all evaluations of a schedule."""
    steps = scheduled.steps
    return cost_of_order([step.operator for step in steps if isinstance(step, Compute)], costs)


def cost_of_order(order: Iterable[int], costs: Costs) -> float:
    """Return the cost of some evaluations: the exact sum, rounded once, in whatever order."""
    own = costs.operators
    return fsum([own[operator] for operator in order])


def in_nodes(costs: Costs) -> Costs:
    """Return the same costs with memory counted in data nodes, as the closed forms count it."""
    sizes, workspace = (1,) * len(costs.data), (0,) * len(costs.operators)
    return replace(costs, data=sizes, workspace=workspace, memory_unit="nodes")
