"""What an evaluation costs and what a value weighs: the two things that planners trade.

Any planner takes any costs, so that the same policy can be asked to save evaluations, FLOPs, memory
traffic or measured seconds, under a budget in bytes or in nodes. Store-all, recompute-all and
retain minimise nothing and do not look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, isnan
from numbers import Integral, Real
from typing import Any, Literal

from tinyckpt.base.errors import ScheduleError, meant
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.core.trace import Trace

LARGEST_COST = 1e300  # sums of such costs are still finite
# Of all values and workspaces together. A schedule may hold some twice, as a block and as the view
# of an older one, and planners add up what may be held: in 64 bits there is room for that.
LARGEST_MEMORY = 2**60
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

    Numbers of any kind become Python's own here, since those of NumPy may wrap around.

    Raises:
        ScheduleError: unless costs are finite numbers of 0 or more, and sizes whole ones which add
            up to less than 2^60.
    """

    operators: tuple[float, ...]
    data: tuple[int, ...]
    workspace: tuple[int, ...]
    unit: str = "evaluations"
    memory_unit: MemoryUnit = "bytes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", own_costs(self.operators))
        object.__setattr__(self, "data", own_sizes(self.data, "data"))
        object.__setattr__(self, "workspace", own_sizes(self.workspace, "workspace"))
        check_total(self.data, self.workspace, self.memory_unit)


def check_total(data: Sequence[int], workspace: Sequence[int], unit: str) -> None:
    """Raise a ScheduleError if all memory together is more than planners count up to."""
    if (total := sum(data) + sum(workspace)) >= LARGEST_MEMORY:
        raise ScheduleError(
            f"all values and workspaces weigh {total:,} {unit} together; "
            f"planners count up to {LARGEST_MEMORY:,}"
        )


def own_costs(costs: Sequence[Any], operators: Sequence[Operator] = ()) -> tuple[float, ...]:
    """Return costs as Python's own numbers: integers and floats as they are, others as floats.

    Raises:
        ScheduleError: names the first operator whose cost is none, or its number.
    """
    found = costs
    if not set(map(type, costs)) <= {int, float}:  # most often they are
        found = [own_number(cost) for cost in costs]
    distinct = set(found)  # in bulk: there may be 100,000, most often the same few
    in_range = min(distinct, default=0) >= 0 and max(distinct, default=0) < LARGEST_COST
    if in_range and not isnan(sum(distinct)):
        return tuple(found)
    for position, cost in enumerate(found):
        if not 0 <= cost < LARGEST_COST:
            who = operators[position].name if operators else f"operator {position}"
            raise ScheduleError(
                f"costs: that of {who} is {costs[position]!r:.80}; it must be a finite number of 0 "
                f"or more, below {LARGEST_COST:g}"
            )
    return tuple(found)


def own_number(cost: Any) -> float:
    """Return a cost as Python's own number; infinity if it is none, or too large for a float."""
    if isinstance(cost, bool) or not isinstance(cost, Real):
        return inf
    if isinstance(cost, Integral):
        return int(cost)
    try:
        return float(cost)
    except OverflowError:
        return inf


def own_sizes(sizes: Sequence[Any], what: str) -> tuple[int, ...]:
    """Return sizes as Python's own integers."""
    if not set(map(type, sizes)) <= {int}:
        for size in sizes:
            if not isinstance(size, Integral) or isinstance(size, bool):
                raise ScheduleError(
                    f"costs: a size in {what} is {size!r:.80}; it must be a whole number"
                )
        sizes = [int(size) for size in sizes]
    if min(sizes, default=0) < 0:
        raise ScheduleError(f"costs: a size in {what} is {min(sizes)}; it must be 0 or more")
    return tuple(sizes)


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
    are_flops = all(operator.cost == operator.flops for operator in graph.operators)
    return custom(graph, costs, "FLOPs" if are_flops else "cost")


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
        if isinstance(step, EVALUATIONS):
            total[step.operator] += seconds
            count[step.operator] += 1
    costs = [seconds / max(times, 1) for seconds, times in zip(total, count, strict=True)]
    return custom(trace.graph, costs, "seconds")


def custom(graph: Graph, costs: Sequence[float] | Mapping[str, float], unit: str = "cost") -> Costs:
    """Return the caller's own costs, such as measured seconds, with sizes in bytes.

    Args:
        graph: whose operators they are the costs of.
        costs: a number for every operator, in their order, or by their names.
        unit: what they are counted in.

    Raises:
        ScheduleError: unless there is one finite number of 0 or more for every operator.
    """
    operators = graph.operators
    if isinstance(costs, Mapping):
        names = {operator.name for operator in operators}
        for name in costs:
            if name not in names:
                raise ScheduleError(
                    f"costs: {name!r:.80} is no operator of {graph.name}; they go by name"
                    f"{meant(name, names)}"
                )
        missing = [operator.name for operator in operators if operator.name not in costs]
        if missing:
            raise ScheduleError(
                f"costs: {len(missing)} of {len(operators)} operators of {graph.name} have none, "
                f"such as {missing[0]}"
            )
        costs = [costs[operator.name] for operator in operators]
    if len(costs) != len(operators):
        raise ScheduleError(
            f"costs: expected {len(operators)} numbers of 0 or more, one for each operator "
            f"of {graph.name}, got {len(costs)}"
        )
    return with_sizes(graph, own_costs(costs, operators), unit)


def with_sizes(graph: Graph, operators: tuple[float, ...], unit: str) -> Costs:
    """Return costs of operators that are known to be legal with the graph's own sizes, in bytes."""
    data = tuple([node.nbytes for node in graph.data])  # a Spec's, so whole
    workspace = own_sizes([operator.workspace for operator in graph.operators], "workspace")
    check_total(data, workspace, "bytes")
    fields = zip(Costs.__slots__, (operators, data, workspace, unit, "bytes"), strict=True)
    costs = object.__new__(Costs)  # of 100,000 numbers none is looked at twice
    for name, value in fields:
        object.__setattr__(costs, name, value)
    return costs


def cost_of(scheduled: Schedule | Trace, costs: Costs) -> float:
    """Return the cost of all evaluations of a schedule."""
    steps = scheduled.steps
    return cost_of_order([step.operator for step in steps if isinstance(step, EVALUATIONS)], costs)


def cost_of_order(order: Iterable[int], costs: Costs) -> float:
    """Return the cost of some evaluations: the exact sum, rounded once, in whatever order."""
    own = costs.operators
    return fsum([own[operator] for operator in order])


def in_nodes(costs: Costs) -> Costs:
    """Return the same costs with memory counted in data nodes, as the closed forms count it."""
    sizes, workspace = (1,) * len(costs.data), (0,) * len(costs.operators)
    return replace(costs, data=sizes, workspace=workspace, memory_unit="nodes")
