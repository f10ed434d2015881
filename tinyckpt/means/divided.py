"""The means that part a batch: gradient accumulation on one device, a pipeline on several.

Both hold gradients that micro-batches add up, besides what one of them holds; in place of the
results that store-all holds at its end.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.tree import Tree, leaves
from tinyckpt.base.units import counted
from tinyckpt.codegen.numpy_source import compile
from tinyckpt.core.backend import Backend
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.means.case import Case, Gradients, Planned, own_cost, peak_of
from tinyckpt.means.planned import on_device, within
from tinyckpt.means.rewritten import Planner, keeping
from tinyckpt.means.samples import divisors, micro_specs, parted, parts_of
from tinyckpt.networks import Network
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
from tinyckpt.pipeline.orders import one_f_one_b
from tinyckpt.pipeline.program import Recompute
from tinyckpt.training.optimizers import sgd
from tinyckpt.training.trainer import TrainStep, micro_batch, train_step

PER_STAGE = 4  # micro-batches for each stage of a pipeline, from where its bubble is small: GPipe's
SHARES = 3  # a plan gets one of so many of the time that is left


# Accumulation ------------------------------------------------------------------------------------


def accumulation(case: Case) -> Planned:
    """Take as few micro-batches as the budget asks for; or as the least peak does, above it."""
    clock, best = Clock(case.time_limit), None
    for count in divisors(case.function):
        found = accumulated(case, count, keeping)
        if best is None or found.peak < best.peak:
            best = found
        if found.peak <= case.budget or not clock.left():
            break
    assert best is not None
    return best


def accumulation_and_recomputation(case: Case) -> Planned:
    """Take some micro-batches, and recompute within each so as to fit: the best number of them.

    From where they fit as they are, more of them only take more.
    """
    clock = Clock(case.time_limit)
    found: list[Planned] = []
    errors: list[BudgetError] = []
    for count in divisors(case.function):
        if (found or errors) and not clock.left():
            break
        plain = accumulated(case, count, keeping)
        if plain.peak <= case.budget:
            found.append(plain)
            break
        try:
            found.append(accumulated(case, count, None, clock))
        except BudgetError as error:
            errors.append(error)
    if not found:
        raise min(errors, key=lambda error: error.smallest or inf)
    return min(found, key=lambda each: each.cost)


def accumulated(case: Case, count: int, planner: Planner | None, clock: Clock = ENDLESS) -> Planned:
    """Return what a number of micro-batches takes, one after another.

    Args:
        case: with a network.
        count: how many.
        planner: of the graph of one; None to recompute within the budget.
        clock: of the search for that; each plan gets a share of what is left.
    """
    network = case.function
    step = train_step(network.loss, sgd(0.0), micro_batches=count)
    state = step.init(network.specs[0])
    besides = sum(spec.nbytes for spec in leaves(state["accumulated"]))
    part = micro_specs(network.specs[1:], count)

    def planned(which: Any) -> Schedule:
        graph = step.graph(state, *part, part=which)
        if planner is not None:
            return planner(case, graph)
        return within(case, graph, besides, clock.left() / SHARES)

    # The first one writes its gradients down, the others add theirs.
    schedules = ((planned("first"), 1), (planned("middle"), count - 1))
    gradients, sense = parted(network, count)
    again = sum(replay(schedule).recomputations * times for schedule, times in schedules)
    words = [f"{count} micro-batches"]
    words += [counted(again, "recomputation")] if again else []
    return Planned(
        peak=besides + max(peak_of(schedule) for schedule, _ in schedules),
        cost=sum(times * own_cost(case, schedule) for schedule, times in schedules),
        gradients=gradients,
        sense=sense,
        takes=", ".join(words),
        schedules=schedules,
        begin=partial(begin_accumulated, step, tuple(schedule for schedule, _ in schedules)),
    )


def begin_accumulated(
    step: TrainStep, schedules: tuple[Schedule, ...], arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step that goes through all micro-batches, and returns the mean of the gradients."""
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


# A pipeline --------------------------------------------------------------------------------------


def pipeline(case: Case, policy: str = "store_all") -> Planned:
    """Cut the graph into stages, and let micro-batches go through them, 1F1B.

    What a device holds is what its micro-batches hold, and the gradients that they add up to. Its
    time is all of the pipeline's, idle or not.
    """
    count, graph = micro_batches_of(case)
    gradients: tuple[Gradients, str] = "rounded", ""
    if count > 1:
        gradients = parted(case.function, count)
    recompute: Recompute | None = None if policy == "store_all" else "early"
    cuts = partition(graph, case.stages, costs=case.costs_of(graph))
    made = one_f_one_b(case.stages, count, recompute=recompute)
    stages = plan_stages(stages_of(graph, cuts), policy, early=bool(recompute))
    trace = replay_pipeline(
        made,
        pipeline_costs(made, stages, case.costs_of, way_between(case, stages)),
        [each.footprint for each in stages],
    )
    added = [added_up(each) if count > 1 else 0 for each in stages]
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
    """Return how many micro-batches a pipeline takes, and the graph of one of them."""
    if case.network is None:
        return 1, case.graph
    fitting = [count for count in parts_of(case.network) if count <= PER_STAGE * case.stages]
    if not fitting:
        return 1, case.graph
    count, network = fitting[-1], case.network
    specs = (network.specs[0], *micro_specs(network.specs[1:], count))
    return count, Network(network.name, network.loss, specs).graph()


def way_between(case: Case, stages: tuple[PlannedStage, ...]) -> float:
    """Return what it takes to hand over the most that goes over a cut; 0 if no link is known."""
    if case.link is None:
        return 0.0
    bundles = [bundle for each in stages for bundle in (each.stage.gives, each.stage.gives_back)]
    return float(case.link.duration(max(map(stages[0].stage.nbytes, bundles))))


def added_up(planned: PlannedStage) -> int:
    """Return the bytes of the gradients of a stage."""
    graph = planned.stage.graph
    return sum(graph.data[data].spec.nbytes for data in leaves(graph.gradients))


def begin_pipeline(
    made: Pipeline, stages: tuple[PlannedStage, ...], arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step of all devices in this process; what it takes is no pipeline's time."""
    params, *batch = arrays
    count = made.micro_batches
    parts = [
        (params, *(micro_batch(tree, number, count) for tree in batch)) for number in range(count)
    ]
    return lambda: run_pipeline(made, stages, parts).gradients
