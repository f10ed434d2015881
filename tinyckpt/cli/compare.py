"""``tinyckpt compare``: a table of policies on one network: peak, cost, best known cost, run time.

``--time-limit`` is a total: for policies that search, for the best known schedules at their peaks,
and for measuring. Building the graph and replaying schedules are not included. Rows left out for
lack of time are listed below the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from time import perf_counter
from typing import Any

from tinyckpt.base.deadline import Clock
from tinyckpt.base.errors import BackendError, GraphError, OptionError
from tinyckpt.base.files import write_atomically
from tinyckpt.base.text_table import table
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.cli.resolve_options import (
    CHARTS,
    COSTS,
    check_output,
    graph_of,
    number_or_text,
    plan_within_budget,
    progress_line,
    refuse_given,
    schedules_of,
    time_to_search,
    wrong_usage,
)
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import expected_length
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.core.trace import Trace
from tinyckpt.networks import network_or_graph, random_arrays
from tinyckpt.networks.machine_memory import check_memory
from tinyckpt.planner.model.binomial_bound import uniform_chain
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.link import Link
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound
from tinyckpt.planner.portfolio.plan import frontier
from tinyckpt.planner.portfolio.search import Progress
from tinyckpt.techniques import BUDGET, compare_techniques
from tinyckpt.training.transformations import RunResult, run

TRACE_HEADER = ("policy", "evaluations", "x store-all", "peak nodes", "peak")

DEFAULT_POLICIES = ("store_all", "sqrt_n", "recompute_all")
COMPARED_STEPS = 1_000_000  # steps of a schedule in the table, planned in a second, by default
RUNS = 2  # per measured schedule: a warm-up and a timed one
# Pessimistic speeds, for NumPy and for the Python around it, on any machine.
FLOPS_A_SECOND, EVALUATIONS_A_SECOND = 2e9, 2e5


def compare_job(options: Any) -> int:
    """Print a table of policies, with the cost of the best known schedule at each one's peak."""
    if options.techniques:
        return techniques_job(options)
    refuse_given(options, ("bandwidth", "stages", "chunks"), "--{} goes with --techniques")
    check_output(options, *CHARTS)
    graph, specs = graph_of(options)
    clock = Clock(inf if options.time_limit is None else options.time_limit)
    costs = COSTS[options.cost](graph)
    names = options.policy or DEFAULT_POLICIES
    too_long = {name: steps for name in names if (steps := steps_too_many(graph, name, options))}
    if len(too_long) == len(names):
        raise OptionError(
            f"--time-limit {options.time_limit:g}: {', '.join(too_long)} would have about "
            f"{min(too_long.values()):,.0f} steps, for which it is too short"
        )
    chosen = [name for name in names if name not in too_long]
    with progress_line(options.network) as progress:
        schedules = schedules_of(
            graph, chosen, options, tell=lambda name: progress(name, 0), clock=clock, others=2
        )
        traces = [replay(schedule) for schedule in schedules]
        peaks = [trace.peak_bytes for trace in traces]
        # The other half of the time is for measuring, and for the best plan within a budget.
        seconds = time_to_search(options, clock) / (1 if options.time_limit is None else 2)
        best_costs, is_complete = best_known(graph, costs, peaks, seconds, progress)
    if options.budget is not None:
        schedules.append(plan_within_budget(graph, costs, options, clock))
        traces.append(replay(schedules[-1]))
        peaks.append(traces[-1].peak_bytes)
        best_costs.append(inf)
    own_costs = [cost_of(schedule, costs) for schedule in schedules]
    rows, unmeasured = [], []
    for trace, cost, peak, least in zip(traces, own_costs, peaks, best_costs, strict=True):
        others = (other for other, at in zip(own_costs, peaks, strict=True) if at <= peak)
        texts = [cost_text(each, costs.unit) for each in (cost, min(least, *others, cost))]
        unmeasured.append(
            can_run(trace) and seconds_at_most(trace) > time_to_search(options, clock)
        )
        is_run = can_run(trace) and not unmeasured[-1]
        rows.append([*trace_row(trace), *texts, time_of(trace, specs, options) if is_run else "-"])
    if options.budget is not None:
        rows[-1][0] = f"best: {rows[-1][0]}"
    print(f"{graph.name}: {len(graph.operators)} operators, {graph.forward_count} of them forward")
    print(table([*TRACE_HEADER, "cost", "best known at this peak", "time"], rows))
    without = "" if options.time_limit is None else " without --time-limit"
    for policy, steps in too_long.items():
        print(
            f"{policy} is left out: its schedule would have about {steps:,.0f} steps; "
            f"--policy {policy}{without} plans it anyway"
        )
    if not is_complete:
        print(
            f"the search for the best known was cut after {seconds:.2g} s; --time-limit gives more"
        )
    if any(unmeasured):
        print("-: not measured, for which the time that is left may be too short")
    if options.output:
        from tinyckpt import viz

        print(f"written to {viz.timeline(traces, options.output)}")
    return 0


def best_known(
    graph: Graph, costs: Costs, budgets: Sequence[int], seconds: float, progress: Progress
) -> tuple[list[float], bool]:
    """Return the least known cost within each budget, and whether the search is complete.

    A cost is infinite where no schedule is known. On a uniform chain nothing is searched.
    """
    if uniform_chain(graph, costs) is not None:
        problem = problem_of(graph, costs)
        return [cost_bound(problem, budget) for budget in budgets], True
    found = frontier(graph, costs, time_limit=seconds, progress=progress)
    least = [
        min((point.cost for point in found.points if point.peak <= budget), default=inf)
        for budget in budgets
    ]
    return least, found.complete


def steps_too_many(graph: Graph, policy: str, options: Any) -> float:
    """Return the steps that a policy's schedule would have, if too many for a table; else 0.

    A policy named on the command line has no such limit, unless there is a time limit.
    """
    if policy != "recompute_all" or (options.policy and options.time_limit is None):
        return 0
    steps = 2 * expected_length(graph)  # an evaluation, and the free that follows
    return steps if steps > COMPARED_STEPS * max(1, options.time_limit or 1) else 0


def can_run(trace: Trace) -> bool:
    """Whether a schedule is executable: it has kernels, and fits in this machine's memory."""
    if any(operator.primitive is None for operator in trace.graph.operators):
        return False
    try:
        check_memory("it takes", trace.graph.source_bytes + trace.peak_bytes)
    except BackendError:
        return False
    return True


def seconds_at_most(trace: Trace) -> float:
    """Return an upper estimate of the time to measure a schedule, in seconds."""
    operators = [step.operator for step in trace.steps if isinstance(step, EVALUATIONS)]
    flops = sum(trace.graph.operators[operator].flops for operator in operators)
    return RUNS * (flops / FLOPS_A_SECOND + len(operators) / EVALUATIONS_A_SECOND)


def time_of(trace: Trace, specs: Any, options: Any) -> str:
    """Return the run time of a schedule as text, in milliseconds."""
    return f"{1000 * seconds_of(trace, random_arrays(specs), options.backend)[1]:.1f} ms"


def seconds_of(trace: Trace, arrays: Sequence[Any], backend: str) -> tuple[RunResult, float]:
    """Run a schedule twice; return the second run's result and its seconds."""
    run(trace.schedule, *arrays, backend=backend)  # warms up caches and kernels
    begin = perf_counter()
    result = run(trace.schedule, *arrays, backend=backend)
    return result, perf_counter() - begin


def trace_row(trace: Trace) -> list[str]:
    """Return a trace's entries under TRACE_HEADER."""
    once = trace.evaluations - trace.recomputations
    return [
        trace.schedule.policy,
        str(trace.evaluations),
        f"{trace.evaluations / max(once, 1):.2f}",
        str(trace.peak_nodes),
        size_text(trace.peak_bytes),
    ]


# ``--techniques``: every memory-saving technique on one network, in one table ---------------------

SHARES = 8  # of a time limit: one for each of six plans, two for measuring all rows
OF_POLICIES = ("policy", "segments", "keep", "set")  # options of policies only


def techniques_job(options: Any) -> int:
    """Print the comparison, and draw or write it."""
    check_techniques(options)
    try:
        what = network_or_graph(options.network)
    except GraphError as error:
        wrong_usage(options, str(error))
    own = {name: getattr(options, name) for name in ("stages", "chunks")}
    with progress_line(options.network) as progress:
        found = compare_techniques(
            what,
            budget=BUDGET if options.budget is None else number_or_text(options.budget),
            costs=None if options.cost == "given" else COSTS[options.cost],
            link=None if options.bandwidth is None else Link(options.bandwidth),
            time_limit=time_to_search(options) / (1 if options.time_limit is None else SHARES),
            backend=options.backend,
            progress=progress,
            **{name: value for name, value in own.items() if value is not None},
        )
    print(found)
    if not options.output:
        return 0
    if options.output.lower().endswith(".json"):
        text = json.dumps(found.document(), indent=1, allow_nan=False)
        write_atomically(options.output, f"{text}\n".encode())
    else:
        from tinyckpt import viz

        viz.techniques(found, options.output)
    print(f"written to {options.output}")
    return 0


def check_techniques(options: Any) -> None:
    """Refuse options in conflict with ``--techniques``, before any work is done."""
    refuse_given(options, OF_POLICIES, "--{} is about policies; leave it out, or --techniques")
    if options.bandwidth is not None and not 0 <= options.bandwidth < inf:
        wrong_usage(options, f"--bandwidth {options.bandwidth}: it must be 0 or more, and finite")
    check_output(options, ".json", *CHARTS)
