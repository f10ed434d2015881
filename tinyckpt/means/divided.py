"""The means that part a batch: gradient accumulation on one device, a pipeline on several.

Both hold gradients that micro-batches add up, besides what one of them holds; in place of the
results that store-all holds at its end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from tinyckpt.analysis.limits import ENDLESS, Clock
from tinyckpt.backend import Backend
from tinyckpt.build import build
from tinyckpt.chunking.chunked import compare
from tinyckpt.chunking.following import Place, places
from tinyckpt.compile import compile
from tinyckpt.errors import BudgetError, GraphError
from tinyckpt.graph import Graph, Operator
from tinyckpt.means.case import Case, Gradients, Planned, own_cost, peak_of
from tinyckpt.means.planned import on_device, within
from tinyckpt.means.rewritten import Planner, keeping
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
from tinyckpt.replay import replay
from tinyckpt.schedule import Schedule
from tinyckpt.training.optimizers import sgd
from tinyckpt.training.trainer import TrainStep, micro_batch, train_step
from tinyckpt.tree import Tree, leaves, map_leaves
from tinyckpt.units import counted

PER_STAGE = 4  # micro-batches for each stage of a pipeline, from where its bubble is small: GPipe's
SHARES = 3  # a plan gets one of so many of the time that is left
BATCH_NORM = "batch_norm"


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
    clock, found, errors = Clock(case.time_limit), [], []
    for count in divisors(case.function):
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


def divisors(network: Network) -> list[int]:
    """Return into how many parts a batch can be divided, two or more, ascending.

    Raises:
        GraphError: if it cannot.
    """
    found = parts_of(network)
    if not found:
        raise GraphError("its data have no batch in common that could be parted")
    return found


def parts_of(network: Network) -> list[int]:
    """Return what ``divisors`` does; nothing where there is no batch to be divided.

    The batch is the first axis that all data have, single numbers aside.
    """
    sizes = {spec.shape[0] for spec in leaves(network.specs[1:]) if spec.shape}
    if len(sizes) != 1:
        return []
    (size,) = sizes
    return [count for count in range(2, size + 1) if size % count == 0]


def micro_specs(specs: Any, count: int) -> Any:
    """Return the specs of one micro-batch."""

    def part(spec: Any) -> Any:
        if not spec.shape:
            return spec
        return type(spec)((spec.shape[0] // count, *spec.shape[1:]), spec.dtype)

    return map_leaves(part, tuple(specs))


# A pipeline --------------------------------------------------------------------------------------


def pipeline(case: Case, policy: str = "store_all") -> Planned:
    """Cut the graph into stages, and let micro-batches go through them, 1F1B.

    What a device holds is what its micro-batches hold, and the gradients that they add up to. Its
    time is all of the pipeline's, idle or not.
    """
    count, graph = 1, case.graph
    gradients: Gradients = "rounded"
    sense = ""
    if case.network is not None:
        fitting = [n for n in parts_of(case.network) if n <= PER_STAGE * case.stages]
        count = max(fitting, default=1)
    if count > 1:
        network = case.function
        specs = (network.specs[0], *micro_specs(network.specs[1:], count))
        graph = Network(network.name, network.loss, specs).graph()
        gradients, sense = parted(network, count)
    costs = case.costs_of(graph)
    recompute: Recompute | None = None if policy == "store_all" else "early"
    made = one_f_one_b(case.stages, count, recompute=recompute)
    stages = plan_stages(
        stages_of(graph, partition(graph, case.stages, costs=costs)), policy, early=bool(recompute)
    )
    way = 0.0
    if case.link is not None:
        ways = [
            each.stage.nbytes(side)
            for each in stages
            for side in (each.stage.gives, each.stage.gives_back)
        ]
        way = float(case.link.duration(max(ways)))
    trace = replay_pipeline(
        made,
        pipeline_costs(made, stages, case.costs_of, way),
        [each.footprint for each in stages],
    )
    peaks = []
    for held, each in zip(trace.peaks, stages, strict=True):
        own = each.stage.graph
        added = sum(own.data[data].spec.nbytes for data in leaves(own.gradients))
        peaks.append(held + (added if count > 1 else 0))
    return Planned(
        peak=max(peaks),
        cost=float(trace.makespan) * made.devices,
        gradients=gradients,
        sense=sense,
        takes=", ".join(
            [
                counted(made.devices, "device"),
                "1 micro-batch" if count == 1 else f"{count} micro-batches",
                f"{100 * float(trace.bubble):.0f} % idle",
            ]
        ),
        schedules=tuple((each.schedule, count) for each in stages),
        devices=made.devices,
        begin=partial(begin_pipeline, made, stages),
    )


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


# Whether parts add up to the whole ---------------------------------------------------------------


def parted(network: Network, count: int) -> tuple[Gradients, str]:
    """Return what becomes of gradients when a batch is parted, and why.

    They are those of the whole if the loss is a mean over samples of what each has by itself, so
    that no operator before looks across the batch. Rules that tell it are those of ``tc.chunked``.
    """
    graph = build(network.loss, *network.specs)
    if any(operator.kind == BATCH_NORM for operator in graph.operators):
        return "approximate", "batch norm sees a part alone"
    specs = (network.specs[0], *micro_specs(network.specs[1:], count))
    try:
        proven = is_mean_of_samples(graph, build(network.loss, *specs))
    except GraphError:
        return NOT_PROVEN
    return ("rounded", "") if proven else NOT_PROVEN


NOT_PROVEN: tuple[Gradients, str] = "unproven", "if the loss is a mean over samples"


def is_mean_of_samples(graph: Graph, part: Graph) -> bool:
    """Whether a loss is proven to be a mean over a batch of what each sample has by itself.

    Args:
        graph: the loss of the whole batch.
        part: that of a part, which has to be the same but for the mean.

    Raises:
        GraphError: names an operator that looks across the batch, or may, or is another for a part.
    """
    means = [sum_of_mean(each) for each in (graph, part)]
    if means[0] is None or means[1] is None:
        return False
    total, divisor = means[0]
    batch = [data for data in leaves(graph.arguments[1:]) if graph.data[data].spec.shape]
    sources = {data: Place(0, 1, graph.data[data].spec.shape[0]) for data in batch}
    before, piece = (
        replace(
            each,
            operators=each.operators[: own[0].id],
            constants={data: value for data, value in each.constants.items() if data != own[1]},
        )
        for each, own in ((graph, (total, divisor)), (part, means[1]))
    )
    found = places(before, sources)
    compare(before, piece, found, part.data[batch[0]].spec.shape[0])
    place = found[total.inputs[0]]
    return place is not None and place.axis in total.attrs["axes"]


def sum_of_mean(graph: Graph) -> tuple[Operator, int] | None:
    """Return the sum that a loss divides by the number of its terms, and that number's data id.

    None if it is no such mean.
    """
    results = leaves(graph.results)
    last = made_by(graph, results[0]) if len(results) == 1 else None
    if last is not None and last.kind == "cast":
        last = made_by(graph, last.inputs[0])
    if last is None or last.kind != "divide":
        return None
    total, divisor = made_by(graph, last.inputs[0]), graph.constants.get(last.inputs[1])
    if total is None or total.kind != "sum" or divisor is None:
        return None
    terms = graph.data[total.inputs[0]].spec.size / max(graph.data[total.outputs[0]].spec.size, 1)
    if divisor.size != 1 or float(divisor.ravel()[0]) != terms:
        return None
    return total, last.inputs[1]


def made_by(graph: Graph, data: int) -> Operator | None:
    """Return the operator that makes a value; None of a source."""
    producer = graph.data[data].producer
    return None if producer is None else graph.operators[producer]
