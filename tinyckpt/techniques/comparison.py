"""Comparison of memory-saving techniques on one network within one memory budget.

Recomputation, offloading, activation compression, approximate derivatives, chunking, gradient
accumulation and pipeline parallelism: each is compared alone, and most also combined with
recomputation. A network and a budget go in; out comes a ``TechniqueComparison``: for each technique
its peak memory, its time by the cost model and measured, and whether its gradients are exact. A
technique is a function from a ``Case`` to a ``Planned``; ``compare_techniques``, at the end, runs
them all.

Memory is counted as by ``replay``: the values of a schedule, without those that the caller
supplies. Other storage of a technique, such as accumulated gradients, counts too. Gradients are
included in any case: store-all's are results, which stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import partial
from math import inf, isfinite, sqrt
from numbers import Real
from time import perf_counter
from typing import Any, Literal

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import (
    BackendError,
    BudgetError,
    GraphError,
    OptionError,
    ScheduleError,
    TinyckptError,
    expect,
)
from tinyckpt.base.text_table import table
from tinyckpt.base.tree import Tree, leaves, map_leaves
from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.compiled import compile
from tinyckpt.core.backend import NUMPY, Backend, get_backend, to_backend
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.tracing import build
from tinyckpt.networks import Network, random_arrays
from tinyckpt.networks.registry import argument_specs
from tinyckpt.pipeline import (
    Pipeline,
    PlannedStage,
    partition,
    pipeline_costs,
    plan_stages,
    replay_pipeline,
    run_pipeline,
    stages_of,
)
from tinyckpt.pipeline.schedules import one_f_one_b
from tinyckpt.pipeline.stages import EXCHANGE
from tinyckpt.planner.model import cost_models as cost
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.link import Link, checked_link
from tinyckpt.planner.offload.offload_saved_values import (
    movable_values,
    offload_order,
    offload_to_peak,
)
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.fewest_stages import fewest_stages
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.plan_with_host import plan_with_host
from tinyckpt.planner.portfolio.search import Progress
from tinyckpt.storage.offload_steps import insert_offloads
from tinyckpt.techniques.chunk_loss import chunked_loss
from tinyckpt.techniques.compress_activations import with_compression
from tinyckpt.techniques.low_memory_bp import ACTIVATIONS, Rewriting, rewrite
from tinyckpt.techniques.match_norms import norms_of
from tinyckpt.techniques.split_batch import divisors, gradient_exactness, micro_network
from tinyckpt.training.compiled_step import TrainStep, micro_batch, train_step
from tinyckpt.training.optimizers import sgd

__all__ = ["TECHNIQUES", "Case", "Planned", "Row", "TechniqueComparison", "compare_techniques"]

# Exactness of gradients. "unproven" is exact if the loss is a mean over samples, which cannot be
# proven here for every loss, nor for every operator before it.
Gradients = Literal["bitwise", "rounded", "unproven", "approximate"]
# From a network's arguments and a backend to a step: a function that returns the gradients.
Begin = Callable[[tuple[Any, ...], Any], Callable[[], Any]]

# Default links by unit of cost: PCI Express 4.0 with 16 lanes, 32 GB/s in each direction, next to
# an A100 with 19.5 TFLOP/s in float32 and 1,555 GB/s of memory bandwidth (NVIDIA's data sheet).
LINKS = {
    "FLOPs": Link(Fraction(32, 19_500)),
    "bytes moved": Link(Fraction(32, 1_555)),
    "seconds": Link(32 * 10**9),
}


@dataclass(frozen=True, slots=True)
class Case:
    """The input of every technique: a network, its graph, the cost model and the budget.

    Attributes:
        graph: loss and gradients of the whole batch.
        network: the graph's function; None if only the graph is given.
        costs_of: from a graph to the costs of its operators, in one unit.
        budget: the largest peak allowed, in bytes.
        link: to the host, and between devices; None if none is known in the unit of costs.
        time_limit: seconds for each plan.
        stages: number of stages, and devices, of a pipeline.
        chunks: number of chunks of the loss.
        progress: as of ``plan``.
        stored: the graph's store-all schedule.
    """

    graph: TrainingGraph
    network: Network | None
    costs_of: Callable[[Graph], Costs]
    budget: int
    link: Link | None
    time_limit: float
    stages: int
    chunks: int
    progress: Progress | None
    stored: Schedule = field(repr=False)

    @property
    def function(self) -> Network:
        """The network.

        Raises:
            GraphError: if only its graph is given.
        """
        if self.network is None:
            raise GraphError("it needs the network's function, and only a graph is given")
        return self.network

    @property
    def known_link(self) -> Link:
        """The link.

        Raises:
            ScheduleError: if none is known in the unit of the costs.
        """
        if self.link is None:
            unit = self.costs_of(self.graph).unit
            raise ScheduleError(
                f"no link is known in {unit}: give its bandwidth, in bytes for each"
            )
        return self.link


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of one technique: its peak, its cost, and the schedules that it runs.

    Attributes:
        peak: bytes, on the device with the largest peak.
        cost: of a step, summed over devices, in the unit of the case's costs.
        gradients: their exactness.
        sense: in what sense they are approximate, in a few words; or why they may be.
        takes: other resources that it needs, in a few words.
        schedules: (schedule, repetitions) pairs: of the device, or of each stage's graph.
        host_bytes: peak of offloaded bytes on the host.
        devices: their number.
        begin: prepares a step to be measured; None if it cannot be run here.
    """

    peak: int
    cost: float
    gradients: Gradients = "bitwise"
    sense: str = ""
    takes: str = ""
    schedules: tuple[tuple[Schedule, int], ...] = field(default=(), repr=False)
    host_bytes: int = 0
    devices: int = 1
    begin: Begin | None = field(default=None, repr=False)


# --------------------------------------------------------------------------------------------------
# Techniques that plan the graph as it is: store-all, recomputation, offload, and both.


# Timing the copies takes time quadratic in the number of offloaded values: some ten seconds for
# this many.
MOST_MOVABLE = 10_000


def store_all(case: Case) -> Planned:
    """Save everything that the backward pass reads: the baseline of the comparison."""
    return planned_schedule(case, case.stored)


def recomputation(case: Case) -> Planned:
    """Recompute (rematerialize) as little as the budget requires: the best plan within it."""
    return planned_schedule(case, plan_within(case, case.graph))


def offload(case: Case) -> Planned:
    """Offload as few values to the host as the budget requires; or as the least peak does."""
    link, costs, stored = case.known_link, case.costs_of(case.graph), case.stored
    movable = movable_of(case) if link.bandwidth else set()
    order = offload_order(stored, movable)
    goal = max(case.budget, replay(insert_offloads(stored, set(order))).peak_bytes)
    schedule = stored
    if goal < replay(stored).peak_bytes:
        schedule = offload_to_peak(stored, order, goal, costs) or stored
    room = max(goal, replay(schedule).peak_bytes)
    return planned_schedule(case, schedule, line=timed(schedule, link, costs, budget=room))


def recomputation_and_offload(case: Case) -> Planned:
    """Save, recompute or offload each value, within the budget."""
    link, costs = case.known_link, case.costs_of(case.graph)
    movable_of(case)
    own: dict[str, Any] = {"budget": f"{case.budget} B", "time_limit": case.time_limit}
    schedule = plan_with_host(case.graph, link, costs=costs, **own)
    return planned_schedule(case, schedule, line=timed(schedule, link, costs, budget=case.budget))


def movable_of(case: Case) -> set[int]:
    """Return the values that can be offloaded to the host.

    Raises:
        ScheduleError: if there are too many to time their copies quickly.
    """
    found = set(movable_values(case.graph))
    if len(found) > MOST_MOVABLE:
        raise ScheduleError(
            f"{len(found):,} values could be offloaded; copies of at most "
            f"{MOST_MOVABLE:,} are timed"
        )
    return found


def plan_within(
    case: Case,
    graph: Graph,
    reserved: int = 0,
    seconds: float | None = None,
    seeds: Sequence[Schedule] = (),
) -> Schedule:
    """Plan a graph within the budget, or within the part of it that other storage leaves.

    Args:
        case: has the budget.
        graph: to be planned.
        reserved: bytes of the budget that other storage takes.
        seconds: time limit of the search; that of the case if not given.
        seeds: known schedules of the graph, which the result is at least as good as.

    Raises:
        BudgetError: if no schedule was found, with the smallest peak found, ``reserved`` included.
    """
    if case.budget < reserved:
        raise BudgetError(f"accumulated gradients alone take {size_text(reserved)}", reserved)
    try:
        return plan(
            graph,
            budget=f"{case.budget - reserved} B",
            costs=case.costs_of(graph),
            time_limit=case.time_limit if seconds is None else seconds,
            progress=case.progress,
            seeds=seeds,
        )
    except BudgetError as error:
        smallest = None if error.smallest is None else error.smallest + reserved
        raise BudgetError(str(error), smallest, error.proven) from None


def planned_schedule(
    case: Case, schedule: Schedule, begin: Begin | None = None, line: Timeline | None = None
) -> Planned:
    """Measure a schedule by replay.

    Args:
        case: with the cost model.
        schedule: of the case's graph, or of a rewritten one.
        begin: prepares a step of it; of the schedule as it is, if not given.
        line: its timeline, if it offloads: copies overlap with computation.
    """
    trace = replay(schedule)
    host = max(trace.host, default=0)
    takes = [counted(trace.recomputations, "recomputation")] if trace.recomputations else []
    takes += [f"{size_text(host)} of the host"] if host else []
    peak, own_cost = trace.peak_bytes, cost_of(schedule, case.costs_of(schedule.graph))
    if line is not None:
        peak, own_cost = line.peak_bytes, float(line.makespan)
    return Planned(
        peak=peak,
        cost=own_cost,
        takes=", ".join(takes),
        schedules=((schedule, 1),),
        host_bytes=host,
        begin=begin or partial(begin_run, schedule),
    )


def begin_run(schedule: Schedule, arrays: tuple[Any, ...], backend: Backend) -> Any:
    """Compile a schedule; return a step that runs it on arrays and returns its gradients."""
    program = compile(schedule, backend)
    own = on_device(arrays, backend)
    return lambda: program(*own)[1]


def on_device(arrays: Any, backend: Backend) -> Any:
    """Move a tree of arrays to a backend's device."""
    return map_leaves(partial(to_backend, backend), arrays)


# --------------------------------------------------------------------------------------------------
# Techniques that rewrite the network, with the same loss: compressed activations, LowMemoryBP,
# chunked loss. A rewritten graph is planned by a policy; without one, recomputed within the budget.


REWRITE_PLAN_SHARES = 4  # a quarter of the time limit is for ``fewest_stages``
SEED = 0  # of stochastic rounding, where a step is measured


def plan_rewritten(case: Case, graph: Graph, policy: str | None) -> Schedule:
    """Plan by a policy; or within the budget, with the schedule of ``fewest_stages`` as a seed."""
    costs = case.costs_of(graph)
    if policy is not None:
        return plan(graph, policy, costs=costs)
    few = fewest_stages(graph, costs, case.budget, case.time_limit / REWRITE_PLAN_SHARES)
    return plan_within(case, graph, seeds=() if few is None else (few,))


def compression(case: Case, bits: int = 8, policy: str | None = "store_all") -> Planned:
    """Compressed activations: save codes of a few bits for the backward pass."""
    schedule = plan_rewritten(case, with_compression(case.function, bits=bits).graph(), policy)

    def begin(arrays: tuple[Any, ...], backend: Backend) -> Any:
        return begin_run(schedule, (*arrays, np.int64(SEED)), backend)

    found = planned_schedule(case, schedule, begin)
    return replace(found, gradients="approximate", sense=f"codes of {bits} bits")


def low_memory_backward(case: Case, policy: str | None = "store_all") -> Planned:
    """LowMemoryBP: memory-sharing norms, and activations with a step function as derivative."""
    graph = build(case.function.loss, *case.function.specs)
    activations = sorted({operator.kind for operator in graph.operators} & set(ACTIVATIONS))
    if not activations and not list(norms_of(graph)):
        raise GraphError("no gelu, no silu and no norm of one operator")
    rewriting = rewrite(case.function, norms="possible")
    schedule = plan_rewritten(case, rewriting.network.graph(), policy)
    found = planned_schedule(case, schedule, partial(begin_rewritten, rewriting, schedule))
    names = [f"{counted(len(rewriting.norms), 'norm')} shared"] if rewriting.norms else []
    found = replace(found, takes=", ".join(filter(None, [*names, found.takes])))
    if not rewriting.activations:
        return replace(found, gradients="rounded")
    sense = f"slopes of {' and '.join(activations)} in steps"
    return replace(found, gradients="approximate", sense=sense)


def begin_rewritten(
    rewriting: Rewriting, schedule: Schedule, arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step on the merged parameters, with gradients of the original parameters."""
    params, *batch = on_device(arrays, backend)
    step = begin_run(schedule, (rewriting.merged(params), *batch), backend)
    return lambda: rewriting.gradients(step(), params)


def chunking(case: Case, policy: str | None = "regions") -> Planned:
    """Chunked loss: logits of a chunk of rows at a time, never whole in memory."""
    network, chunks = chunked_loss(case.function, case.chunks)
    found = planned_schedule(case, plan_rewritten(case, network.graph(), policy))
    takes = ", ".join(filter(None, [f"logits in {counted(chunks, 'piece')}", found.takes]))
    return replace(found, gradients="rounded", takes=takes)


# --------------------------------------------------------------------------------------------------
# Techniques that split the batch: gradient accumulation on one device, a pipeline on several.
#
# Both store accumulated gradients in addition to the values of a micro-batch; in place of the
# results that store-all has in memory at its end.


PER_STAGE = 4  # micro-batches per stage of a pipeline, from which GPipe calls the bubble negligible
BATCH_PLAN_SHARES = 3  # each plan gets a third of the remaining time


def accumulation(case: Case, policy: str | None = "store_all") -> Planned:
    """Gradient accumulation with the fewest micro-batches that fit, or with the least peak.

    Without a policy each micro-batch is recomputed within the budget, and the cheapest number of
    them counts. The search stops at the first number that fits without: more only cost more.
    """
    clock = Clock(case.time_limit)
    found: list[Planned] = []
    errors: list[BudgetError] = []
    for count in divisors(case.function):
        if (found or errors) and not clock.left():
            break
        plain = plan_accumulation(case, count, "store_all")
        if plain.peak <= case.budget or policy is not None:
            found.append(plain)
        if plain.peak <= case.budget:
            break
        if policy is None:
            try:
                found.append(plan_accumulation(case, count, None, clock))
            except BudgetError as error:
                errors.append(error)
    if errors and not found:
        raise min(errors, key=lambda error: error.smallest or inf)
    if not found:
        raise GraphError("its data have no common batch axis that could be split")
    return min(found, key=lambda each: each.cost if policy is None else each.peak)


def plan_accumulation(
    case: Case, count: int, policy: str | None, clock: Clock = NO_DEADLINE
) -> Planned:
    """Plan gradient accumulation over a number of micro-batches.

    Args:
        case: with a network.
        count: number of micro-batches.
        policy: of the graph of one; None to recompute within the budget.
        clock: of the search for that; each plan gets a share of the remaining time.
    """
    network = case.function
    step = train_step(network.loss, sgd(0.0), micro_batches=count)
    state = step.init(network.specs[0])
    accumulated_bytes = sum(spec.nbytes for spec in leaves(state["accumulated"]))
    part = micro_network(network, count).specs[1:]

    def planned(which: Any) -> Schedule:
        graph = step.graph(state, *part, part=which)
        if policy is not None:
            return plan(graph, policy, costs=case.costs_of(graph))
        return plan_within(case, graph, accumulated_bytes, clock.left() / BATCH_PLAN_SHARES)

    # The first micro-batch stores its gradients, the others accumulate.
    schedules = ((planned("first"), 1), (planned("middle"), count - 1))
    plans = [(planned_schedule(case, schedule), times) for schedule, times in schedules]
    gradients, sense = gradient_exactness(network, count)
    again = sum(replay(schedule).recomputations * times for schedule, times in schedules)
    words = [f"{count} micro-batches"]
    words += [counted(again, "recomputation")] if again else []
    return Planned(
        peak=accumulated_bytes + max(each.peak for each, _ in plans),
        cost=sum(times * each.cost for each, times in plans),
        gradients=gradients,
        sense=sense,
        takes=", ".join(words),
        schedules=schedules,
        begin=partial(begin_accumulated, step, tuple(schedule for schedule, _ in schedules)),
    )


def begin_accumulated(
    step: TrainStep, schedules: tuple[Schedule, ...], arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step that runs all micro-batches, and returns the mean of their gradients."""
    count = step.recipe.micro_batches
    first, middle = (compile(schedule, backend) for schedule in schedules)
    params, *batch = arrays
    state = on_device(step.init(params), backend)
    rest = {key: tree for key, tree in state.items() if key != "parameters"}
    parts = [
        on_device([micro_batch(tree, number, count) for tree in batch], backend)
        for number in range(count)
    ]

    def whole() -> Tree:
        for program, part in zip((first, *[middle] * (count - 1)), parts, strict=True):
            program(state["parameters"], rest, *part)
        return rest["accumulated"]

    return whole


def pipeline(case: Case, policy: str = "store_all") -> Planned:
    """Pipeline parallelism: the graph cut into balanced stages, with the 1F1B schedule.

    The memory of a device is that of its micro-batches in flight and of its accumulated gradients.
    Its time is the makespan, idle time included.
    """
    count, graph = micro_batches_of(case)
    gradients: tuple[Gradients, str] = "rounded", ""
    if count > 1:
        gradients = gradient_exactness(case.function, count)
    early = policy != "store_all"
    cuts = partition(graph, case.stages, costs=case.costs_of(graph))
    made = one_f_one_b(case.stages, count, recompute="early" if early else None)
    stages = plan_stages(stages_of(graph, cuts), policy, early=early)
    costs = pipeline_costs(made, stages, case.costs_of, communication_time(case, stages))
    trace = replay_pipeline(made, costs, [each.footprint for each in stages])
    added = [gradient_bytes(each) if count > 1 else 0 for each in stages]
    batches = "1 micro-batch" if count == 1 else f"{count} micro-batches"
    idle = f"{100 * float(trace.bubble):.0f} % idle"
    return Planned(
        peak=max(sum(pair) for pair in zip(trace.peaks, added, strict=True)),
        cost=float(trace.makespan) * made.devices,
        gradients=gradients[0],
        sense=gradients[1],
        takes=", ".join([counted(made.devices, "device"), batches, idle]),
        schedules=tuple((each.schedule, count) for each in stages),
        devices=made.devices,
        begin=partial(begin_pipeline, made, stages),
    )


def micro_batches_of(case: Case) -> tuple[int, TrainingGraph]:
    """Return the number of micro-batches of a pipeline, and the graph of one of them."""
    counts = [] if case.network is None else divisors(case.network)
    fitting = [count for count in counts if count <= PER_STAGE * case.stages]
    if not fitting:
        return 1, case.graph
    return fitting[-1], micro_network(case.function, fitting[-1]).graph()


def communication_time(case: Case, stages: tuple[PlannedStage, ...]) -> float:
    """Return the communication time of the largest cut; 0 if no link is known."""
    if case.link is None:
        return 0.0
    bundles = [bundle for each in stages for bundle in (each.stage.gives, each.stage.gives_back)]
    return float(case.link.duration(max(map(stages[0].stage.nbytes, bundles))))


def gradient_bytes(planned: PlannedStage) -> int:
    """Return the bytes of the gradients of a stage."""
    graph = planned.stage.graph
    return sum(graph.data[data].spec.nbytes for data in leaves(graph.gradients))


def begin_pipeline(
    made: Pipeline, stages: tuple[PlannedStage, ...], arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step of all devices in this process; its duration is not that of a pipeline."""
    params, *batch = arrays
    count = made.micro_batches
    parts = [
        (params, *(micro_batch(tree, number, count) for tree in batch)) for number in range(count)
    ]
    return lambda: run_pipeline(made, stages, parts).gradients


# --------------------------------------------------------------------------------------------------
# Measurement: seconds of real steps relative to store-all's, and errors of gradients.


REFERENCE = "store-all"
ROUNDS = 3  # of all steps in turn; the fastest of each counts
FLOPS_A_SECOND = 2e9  # a rate that NumPy reaches on any machine
MOST_BYTES = 2**32  # of arguments plus peak: memory that any machine has


def measure_steps(
    plans: Mapping[str, Planned],
    arrays: Callable[[], tuple[Any, ...]],
    backend: Backend,
    time_limit: float,
) -> dict[str, dict[str, Any]]:
    """Run the steps that fit into time and memory; measure seconds and errors of gradients.

    Args:
        plans: by name; the gradients of REFERENCE are exact.
        arrays: makes arguments of the network; not called if nothing is run.
        backend: runs the steps.
        time_limit: seconds for each, estimated by its FLOPs.

    Returns:
        The fields ``measured``, ``error`` and ``not_run`` of each row; only the reference's, if
        that was not run, nor the others.

    Raises:
        BackendError: if a step fails, or its gradients are not finite.
    """
    sources = plans[REFERENCE].schedules[0][0].graph.source_bytes
    reasons = {
        name: reason_not_run(each, sources, time_limit, backend) for name, each in plans.items()
    }
    if reasons[REFERENCE]:
        return {REFERENCE: {"not_run": reasons[REFERENCE]}}
    begins = {name: each.begin for name, each in plans.items() if each.begin and not reasons[name]}
    own = arrays()
    steps = {name: begin(own, backend) for name, begin in begins.items()}
    exact = steps[REFERENCE]()
    errors = {name: error_of(step(), exact, name, backend) for name, step in steps.items()}
    seconds: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            if is_timed(plans[name], backend):
                begin = perf_counter()
                step()
                if backend.synchronize is not None:
                    backend.synchronize()
                spent = perf_counter() - begin
                seconds[name] = min(spent, seconds.get(name, spent))
    times = {name: spent / seconds[REFERENCE] for name, spent in seconds.items()}
    return {
        name: {"measured": times.get(name), "error": errors.get(name), "not_run": reasons[name]}
        for name in plans
    }


def is_timed(planned: Planned, backend: Backend) -> bool:
    """Whether seconds here are meaningful: not for several devices in turn, nor without copies.

    On NumPy host and device memory are the same, and an offloaded value is not copied.
    """
    return planned.devices == 1 and not (backend is NUMPY and planned.host_bytes)


def reason_not_run(planned: Planned, sources: int, time_limit: float, backend: Backend) -> str:
    """Return the reason why a step is not run; empty if it is.

    Args:
        planned: the plan.
        sources: bytes of the network's arguments, which have to be allocated.
        time_limit: seconds for all rounds.
        backend: to run it on.
    """
    if planned.begin is None or (planned.devices > 1 and backend is not NUMPY):
        return "several devices are run on NumPy alone"
    flops = 0.0
    for schedule, times in planned.schedules:
        operators = [operator for operator in schedule.graph.operators if operator.kind != EXCHANGE]
        if any(operator.primitive is None for operator in operators):
            return "it has operators without a kernel"
        flops += times * cost_of(schedule, cost.flops(schedule.graph))
    held = sources + planned.devices * planned.peak
    if held > MOST_BYTES:
        most = size_text(MOST_BYTES)
        return f"it needs {size_text(held)}, arguments included; the limit is {most}"
    seconds = (ROUNDS + 1) * flops / FLOPS_A_SECOND
    if seconds > time_limit:
        return f"{ROUNDS + 1} steps may take {seconds:,.0f} s; the limit is {time_limit:g} s"
    return ""


def error_of(found: Any, exact: Any, name: str, backend: Backend) -> float:
    """Return the relative error of gradients in the 2-norm; absolute if the exact ones are 0.

    Raises:
        BackendError: if they are not finite.
    """
    xp = backend.xp
    off = norm = 0.0
    for ours, theirs in zip(leaves(found), leaves(exact), strict=True):
        wide = theirs.astype(xp.float64)
        off += ((ours.astype(xp.float64) - wide) ** 2).sum().item()
        norm += (wide**2).sum().item()
    error = sqrt(off / norm) if norm else sqrt(off)
    if not 0 <= error < float("inf"):
        raise BackendError(f"{name}: the gradients of random arguments are not finite")
    return error


# --------------------------------------------------------------------------------------------------
# The result of a comparison: one row per technique, as data, as a table, as JSON.


TEXTS: dict[Gradients, str] = {
    "bitwise": "exact, bit for bit",
    "rounded": "exact but for rounding",
    "unproven": "exact",
    "approximate": "approximate:",
}


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one technique; or the reason why it does not apply.

    Attributes:
        name: as in ``TECHNIQUES``.
        why: why the technique does not apply; then all numbers are None. Else empty.
        peak: bytes, on the device with the largest peak: values of schedules, and gradients that
            micro-batches accumulate.
        share: the peak as a fraction of store-all's.
        fits: whether the peak is within the budget.
        times: modelled time of a step, summed over devices, relative to store-all's.
        measured: measured time of a step, relative to store-all's in the same run; None if it was
            not run.
        gradients: ``bitwise`` equal to store-all's; ``rounded``, equal but for rounding;
            ``unproven``, equal but for rounding if the loss is a mean over samples; or
            ``approximate``.
        sense: in what sense they are approximate, or why they may be.
        not_run: why it was not measured, where others were, or might have been.
        error: measured relative error of the gradients, in the 2-norm.
        takes: other resources that it needs, in a few words.
        host_bytes: peak of offloaded bytes on the host.
        devices: number of devices.
        schedules: the planned schedules.
    """

    name: str
    why: str = ""
    peak: int | None = None
    share: float | None = None
    fits: bool | None = None
    times: float | None = None
    measured: float | None = None
    gradients: Gradients | None = None
    sense: str = ""
    error: float | None = None
    not_run: str = ""
    takes: str = ""
    host_bytes: int = 0
    devices: int = 1
    schedules: tuple[Schedule, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_exact(self) -> bool:
        """Whether gradients are proven equal to the network's, but for rounding."""
        return self.gradients in ("bitwise", "rounded")

    def cells(self, budget: int) -> list[str]:
        """Return the row of the printed table, under HEADER."""
        if self.peak is None:
            return [self.name, "", "", "", "", "", "", "", self.why]
        assert self.gradients is not None
        assert self.share is not None
        gradients = TEXTS[self.gradients]
        return [
            self.name,
            size_beside(self.peak, budget),
            f"{100 * self.share:.1f} %",
            "yes" if self.fits else "no",
            f"{self.times:.3f}",
            "" if self.measured is None else f"{self.measured:.2f}",
            "" if self.error is None else f"{self.error:.1g}",
            f"{gradients} {self.sense}".strip(),
            self.takes,
        ]


HEADER = (
    "technique", "peak", "of store-all's", "fits", "x time", "x measured", "off by", "gradients",
    "takes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TechniqueComparison:
    """The comparison of all techniques on one network.

    Attributes:
        name: of the network.
        budget: in bytes.
        unit: of costs.
        link: of the copies; None if none is known.
        rows: one for each of ``TECHNIQUES``.
        note: why nothing was measured; empty if it was.
    """

    name: str
    budget: int
    unit: str
    link: Link | None
    rows: tuple[Row, ...]
    note: str = ""

    def row(self, name: str) -> Row:
        """Return the row of a technique."""
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        alike = [row for row in self.rows if row.peak and has_same_text(row.peak, self.budget)]
        budget = size_text(self.budget) + (f", {self.budget:,} B" if alike else "")
        head = f"{self.name} within {budget}; time in {self.unit}"
        if self.link is not None:
            head += f", copies at {float(self.link.bandwidth):.4g} bytes for each"
        columns = list(zip(HEADER, *(row.cells(self.budget) for row in self.rows), strict=True))
        header, *rows = zip(*(c for c in columns if any(c[1:])), strict=True)
        lines = [head, table(header, rows)]
        if self.note:
            return "\n".join([*lines, self.note])
        return "\n".join([*lines, *(f"not run: {each}" for each in self.left_out())])

    def left_out(self) -> list[str]:
        """Return the reasons why techniques were not measured, each with the techniques' names."""
        names: dict[str, list[str]] = {}
        for row in self.rows:
            if row.not_run:
                names.setdefault(row.not_run, []).append(row.name)
        return [f"{', '.join(own)}: {reason}" for reason, own in names.items()]

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON data, without schedules; null for infinite numbers."""
        names = [each.name for each in fields(Row) if each.name != "schedules"]
        of_link = ("bandwidth", "latency", "engines")
        link = self.link and {name: in_json(getattr(self.link, name)) for name in of_link}
        return {
            "network": self.name,
            "budget": self.budget,
            "unit": self.unit,
            "link": link,
            "note": self.note,
            "rows": [{name: in_json(getattr(row, name)) for name in names} for row in self.rows],
        }


def in_json(value: Any) -> Any:
    """Convert a value to JSON; non-finite numbers, which JSON lacks, to None."""
    if isinstance(value, int) or not isinstance(value, Real):
        return value
    return float(value) if isfinite(value) else None


def has_same_text(amount: int, other: int) -> bool:
    """Whether two different sizes are rounded to the same text."""
    return amount != other and size_text(amount) == size_text(other)


def size_beside(amount: int, other: int) -> str:
    """Format a size in bytes; to the byte if another size is rounded to the same text."""
    return f"{amount:,} B" if has_same_text(amount, other) else size_text(amount)


# --------------------------------------------------------------------------------------------------
# ``compare_techniques``: every technique on one network, within one budget, in one table.


BUDGET = "50 %"
SECONDS = 6.0  # for each plan
STAGES, CHUNKS = 4, 8

# Every technique by its name, in the order of the table.
TECHNIQUES: dict[str, Callable[[Case], Planned]] = {
    REFERENCE: store_all,
    "recomputation": recomputation,
    "offload": offload,
    "recomputation + offload": recomputation_and_offload,
    "8 bits": partial(compression, bits=8),
    "4 bits": partial(compression, bits=4),
    "2 bits": partial(compression, bits=2),
    "8 bits + recomputation": partial(compression, bits=8, policy=None),
    "LowMemoryBP": low_memory_backward,
    "LowMemoryBP + recomputation": partial(low_memory_backward, policy=None),
    "chunking": chunking,
    "chunking + recomputation": partial(chunking, policy=None),
    "accumulation": accumulation,
    "accumulation + recomputation": partial(accumulation, policy=None),
    "pipeline": pipeline,
    "pipeline + recomputation": partial(pipeline, policy="sqrt_n"),
}
# Combinations, and the techniques that they contain: each is at least as good as one that fits.
PARTS = {
    "recomputation + offload": ("recomputation", "offload"),
    "8 bits + recomputation": ("8 bits",),
    "LowMemoryBP + recomputation": ("LowMemoryBP",),
    "chunking + recomputation": ("chunking",),
    "accumulation + recomputation": ("accumulation",),
}


def compare_techniques(
    what: Network | Graph,
    *,
    budget: str | int | float = BUDGET,
    costs: Callable[[Graph], Costs] | None = None,
    link: Link | None = None,
    time_limit: float = SECONDS,
    stages: int = STAGES,
    chunks: int = CHUNKS,
    measure: bool = True,
    backend: str | Backend = "numpy",
    progress: Progress | None = None,
) -> TechniqueComparison:
    """Compare memory-saving techniques on a network, within one memory budget.

    Args:
        what: a network; or a training graph, to which only techniques apply that need no function.
        budget: the largest peak allowed, as for ``plan``, in bytes: it counts the values of a
            schedule, gradients included, parameters excluded.
        costs: from a graph to the costs of its operators; the graph's own if it has them, else
            FLOPs.
        link: between device and host, and between devices of a pipeline; the bandwidth is in bytes
            per unit of cost. If not given, see ``LINKS``.
        time_limit: seconds for each plan, of which there are six; and for the measured steps of
            each technique.
        stages: number of stages, and devices, of the pipeline.
        chunks: number of chunks of the loss.
        measure: whether to run steps on random arrays, where they are short enough.
        backend: runs them.
        progress: called during the search for plans, as of ``plan``.

    Raises:
        BudgetError: if the budget is not legal, or in nodes.
        GraphError: if there is no backward pass, or no parameter.
        OptionError: if another option is not legal.

    >>> import tinyckpt as tc
    >>> from tinyckpt.techniques import compare_techniques
    >>> network = tc.networks.mlp(8, 32, batch=512)
    >>> found = compare_techniques(network, budget="60 %", time_limit=0.5, measure=False)
    >>> for row in found.rows[1:5]:
    ...     print(row.name, row.fits, row.is_exact)
    recomputation True True
    offload True True
    recomputation + offload True True
    8 bits True False
    >>> found.row("LowMemoryBP").why
    'no gelu, no silu and no norm of one operator'
    """
    library = get_backend(backend)
    network, graph = network_and_graph(what)
    for option, number in (("stages", stages), ("chunks", chunks)):
        if type(number) is not int or number < 1:
            raise OptionError(
                f"compare_techniques: {option}={number!r:.80}; it must be an integer of 1 or more"
            )
    if costs is not None and not callable(costs):
        raise OptionError(
            f"compare_techniques: costs={costs!r:.80}; expected a function of a graph, such as "
            "tc.cost.flops"
        )
    costs_of = own_costs if costs is None else costs
    own = expect(costs_of(graph), Costs)
    budget_size, problem = parse_budget(graph, own, budget)
    if problem.costs.memory_unit != "bytes":
        raise BudgetError(f"budget {budget!r:.80}: techniques are compared in bytes, not in nodes")
    case = Case(
        graph, network, costs_of, budget_size,
        LINKS.get(own.unit) if link is None else checked_link(link),
        checked_seconds(time_limit), stages, chunks, progress, plan(graph, costs=own),
    )  # fmt: skip
    plans, errors = plans_of(case)
    measured: dict[str, dict[str, Any]] = {}
    note = ""
    if measure:
        specs = argument_specs(graph) if network is None else network.specs
        try:
            measured = measure_steps(plans, partial(random_arrays, specs), library, time_limit)
        except BackendError as error:
            note = f"nothing was measured: {error}"
        if left_out := measured.get(REFERENCE, {}).get("not_run"):
            note = f"nothing was measured: {REFERENCE}: {left_out}"
    rows = [
        row_of(case, name, plans[name], plans[REFERENCE], measured.get(name, {}))
        if name in plans
        else Row(name, reason(errors[name], case.budget))
        for name in TECHNIQUES
    ]
    return TechniqueComparison(graph.name, case.budget, own.unit, case.link, tuple(rows), note)


def network_and_graph(what: Network | Graph) -> tuple[Network | None, TrainingGraph]:
    """Return a network, if it is one, and its training graph.

    Raises:
        GraphError: if it is neither, or there is no backward pass, or no parameter.
    """
    if not isinstance(what, Network | Graph):
        raise GraphError(
            f"compare_techniques: expected a Network or a Graph, got a {type(what).__name__}"
        )
    network = what if isinstance(what, Network) else None
    graph = what.graph() if isinstance(what, Network) else what
    if graph.gradients is None:
        raise GraphError(f"{graph.name} has no backward pass; expected a training graph")
    if not leaves(graph.gradients):
        raise GraphError(f"{graph.name} has no parameters, and so no gradients")
    return network, TrainingGraph(graph)


def plans_of(case: Case) -> tuple[dict[str, Planned], dict[str, TinyckptError]]:
    """Plan every technique; return the plans, and the errors of those that do not apply."""
    plans: dict[str, Planned] = {}
    errors: dict[str, TinyckptError] = {}
    for name, technique in TECHNIQUES.items():
        try:
            plans[name] = technique(case)
        except TinyckptError as error:
            errors[name] = error
    for name, parts in PARTS.items():
        known = [plans[each] for each in (name, *parts) if each in plans]
        fitting = [each for each in known if each.peak <= case.budget]
        if fitting and isinstance(errors.get(name), BudgetError | None):
            plans[name] = min(fitting, key=lambda each: each.cost)
    return {name: plans[name] for name in TECHNIQUES if name in plans}, errors


def reason(error: TinyckptError, budget: int) -> str:
    """Return in a few words why a technique does not apply."""
    if isinstance(error, BudgetError) and error.smallest is not None:
        least = size_beside(error.smallest, budget)
        return f"nothing found within the budget; the least peak is {least}"
    return str(error)


def own_costs(graph: Graph) -> Costs:
    """Return the costs that a graph carries; FLOPs if it carries none."""
    known = all(operator.cost is not None for operator in graph.operators)
    return cost.given(graph) if known else cost.flops(graph)


def row_of(
    case: Case, name: str, planned: Planned, stored: Planned, measured: Mapping[str, Any]
) -> Row:
    """Make the row of a technique that applies, relative to store-all's."""
    same = ("peak", "gradients", "sense", "takes", "host_bytes", "devices")
    return Row(
        name,
        **{key: getattr(planned, key) for key in same},
        **measured,
        share=planned.peak / stored.peak if stored.peak else 1.0,
        fits=planned.peak <= case.budget,
        times=planned.cost / stored.cost if stored.cost else 1.0,
        schedules=tuple(schedule for schedule, _ in planned.schedules),
    )
