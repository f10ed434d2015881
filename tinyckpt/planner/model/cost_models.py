"""Cost models: evaluations, FLOPs, memory traffic, measured seconds, or a user's own.

``tc.cost``: the models of ``core.costs``, and those that need more than the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum

from tinyckpt.base.errors import ScheduleError, did_you_mean, expect
from tinyckpt.base.quantities import LARGEST_COST, LARGEST_MEMORY, validated_costs
from tinyckpt.core.costs import Costs, evaluations, flops, with_sizes
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import EVALUATIONS, Schedule
from tinyckpt.core.trace import Trace

__all__ = [
    "LARGEST_COST", "LARGEST_MEMORY", "Costs", "cost_of", "cost_of_order", "custom", "evaluations",
    "flops", "given", "in_nodes", "measured", "traffic", "with_sizes",
]  # fmt: skip


def given(graph: Graph) -> Costs:
    """Return the costs that the graph's operators carry, such as a profile; unit costs if none do.

    This is the default objective of a plan.

    >>> import tinyckpt as tc
    >>> tc.cost.given(tc.networks.chain(2)).unit
    'evaluations'
    """
    expect(graph, Graph)
    costs = [operator.cost for operator in graph.operators if operator.cost is not None]
    if not costs or len(costs) < len(graph.operators):
        return evaluations(graph)
    are_flops = all(operator.cost == operator.flops for operator in graph.operators)
    names = [operator.name for operator in graph.operators]
    return with_sizes(graph, validated_costs(costs, names), "FLOPs" if are_flops else "cost")


def traffic(graph: Graph) -> Costs:
    """Return costs in bytes read and written: memory traffic bounds operators of low intensity.

    A view reads and writes nothing.

    >>> import tinyckpt as tc
    >>> tc.cost.traffic(tc.build(lambda x: tc.tanh(x), tc.Spec((4,)))).operators
    (64,)
    """
    expect(graph, Graph)
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
    expect(trace, Trace)
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
    operators = expect(graph, Graph).operators
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
    if not hasattr(costs, "__len__") or isinstance(costs, str | bytes):
        raise ScheduleError(
            f"costs: expected one number per operator, or a dict by name; got {costs!r:.80}"
        )
    if len(costs) != len(operators):
        raise ScheduleError(
            f"costs: expected {len(operators)} numbers of 0 or more, one for each operator "
            f"of {graph.name}, got {len(costs)}"
        )
    return with_sizes(
        graph, validated_costs(costs, [operator.name for operator in operators]), unit
    )


def cost_of(scheduled: Schedule | Trace, costs: Costs) -> float:
    """Return the total cost of a schedule's evaluations.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(16)
    >>> tc.cost.cost_of(tc.plan(graph, "sqrt_n"), tc.cost.evaluations(graph))
    42.0
    """
    steps = (scheduled if isinstance(scheduled, Trace) else expect(scheduled, Schedule)).steps
    return cost_of_order([step.operator for step in steps if isinstance(step, EVALUATIONS)], costs)


def cost_of_order(order: Iterable[int], costs: Costs) -> float:
    """Return the total cost of some evaluations: the exact sum, rounded once, in any order."""
    own = expect(costs, Costs).operators
    return fsum([own[operator] for operator in order])


def in_nodes(costs: Costs) -> Costs:
    """Return the same costs with memory counted in data nodes, as the closed forms count it.

    >>> import tinyckpt as tc
    >>> tc.cost.in_nodes(tc.cost.flops(tc.networks.chain(1))).data
    (1, 1, 1, 1, 1)
    """
    expect(costs, Costs)
    sizes, workspace = (1,) * len(costs.data), (0,) * len(costs.operators)
    return replace(costs, data=sizes, workspace=workspace, memory_unit="nodes")
