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
from functools import partial, reduce
from math import inf, isfinite, isqrt, sqrt
from numbers import Real
from time import perf_counter
from typing import Any, Literal

import numpy as np

from tinyckpt.approx.batch_axis import AxisPlace, places
from tinyckpt.approx.chunked_cross_entropy import losses_in_pieces
from tinyckpt.approx.chunked_evaluation import compare
from tinyckpt.approx.compress_activations import with_compression
from tinyckpt.approx.inline_graph import Replacement, call_graph
from tinyckpt.approx.low_memory_bp import ACTIVATIONS, Rewriting, rewrite
from tinyckpt.approx.match_norms import is_regrouping, norms_of
from tinyckpt.base.deadline import NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import (
    BackendError,
    BudgetError,
    GraphError,
    OptionError,
    ScheduleError,
    TinyckptError,
)
from tinyckpt.base.text_table import table
from tinyckpt.base.tree import Tree, leaves, leaves_like, map_leaves
from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.numpy_source import compile
from tinyckpt.core.backend import NUMPY, Backend, get_backend, to_backend
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, Operator, TrainingGraph, producer_of
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.tracing import build
from tinyckpt.networks import Network, random_arrays
from tinyckpt.networks.registry import argument_specs
from tinyckpt.ops.elementwise import add
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import CROSS_ENTROPY
from tinyckpt.ops.shape import reshape
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
from tinyckpt.pipeline.program import Recompute
from tinyckpt.pipeline.schedules import one_f_one_b
from tinyckpt.pipeline.stages import EXCHANGE
from tinyckpt.planner.model import cost_models as cost
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.link import Link
from tinyckpt.planner.model.saved_values import saved_values
from tinyckpt.planner.offload.offload_saved_values import (
    movable_values,
    offload_order,
    offload_to_peak,
)
from tinyckpt.planner.offload.simulate import timed
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.plan_with_host import plan_with_host
from tinyckpt.planner.portfolio.search import Progress
from tinyckpt.storage.offload_steps import insert_offloads
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


def peak_of(schedule: Schedule) -> int:
    """Return the peak of a schedule in bytes, by replay."""
    return replay(schedule).peak_bytes


def schedule_cost(case: Case, schedule: Schedule) -> float:
    """Return the cost of a schedule, in the unit of the case."""
    return cost_of(schedule, case.costs_of(schedule.graph))


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
    least = peak_of(insert_offloads(stored, set(order)))
    goal = max(case.budget, least)
    schedule = stored
    if goal < peak_of(stored):
        schedule = offload_to_peak(stored, order, goal, costs) or stored
    return planned_offload(case, schedule, max(goal, peak_of(schedule)))


def recomputation_and_offload(case: Case) -> Planned:
    """Save, recompute or offload each value, within the budget."""
    link, costs = case.known_link, case.costs_of(case.graph)
    movable_of(case)
    own: dict[str, Any] = {"budget": f"{case.budget} B", "time_limit": case.time_limit}
    return planned_offload(case, plan_with_host(case.graph, link, costs=costs, **own), case.budget)


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


def planned_schedule(case: Case, schedule: Schedule, begin: Begin | None = None) -> Planned:
    """Measure a schedule without offload by replay; it may be of a rewritten graph."""
    again = replay(schedule).recomputations
    return Planned(
        peak=peak_of(schedule),
        cost=schedule_cost(case, schedule),
        takes=counted(again, "recomputation") if again else "",
        schedules=((schedule, 1),),
        begin=begin or partial(begin_run, schedule),
    )


def planned_offload(case: Case, schedule: Schedule, budget: int | None) -> Planned:
    """Measure an offloading schedule by simulation, with copies overlapping computation.

    Args:
        case: with a link.
        schedule: of the case's graph.
        budget: bytes within which a fetch or evaluation waits for room; None for no waiting.
    """
    line = timed(schedule, case.known_link, case.costs_of(case.graph), budget=budget)
    trace = replay(schedule)
    host = max(trace.host, default=0)
    words = [counted(trace.recomputations, "recomputation")] if trace.recomputations else []
    words += [f"{size_text(host)} of the host"] if host else []
    return Planned(
        peak=line.peak_bytes,
        cost=float(line.makespan),
        takes=", ".join(words),
        schedules=((schedule, 1),),
        host_bytes=host,
        begin=partial(begin_run, schedule),
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
# Recomputation of the fewest chain stages: store-all, but for a few stages of the forward pass.
#
# Where nearly everything fits, the smallest change is to drop the saved values of some stages, and
# to save the separators at their starts instead. That gains little where a separator is as large as
# the dropped values. It gains much where saved values are compressed codes: then nothing in the
# backward pass reads the separators, so a planner that saves only values that are read has no
# checkpoint to recompute from, and goes back to the arguments. Recomputed codes are bitwise the
# same, since stochastic rounding is seeded.


STEPS = 16  # the number of stages tried grows by at most 1/16 of all stages, and by doubling


@dataclass(frozen=True, slots=True)
class DroppableStage:
    """A chain stage, between two separators, as a candidate for recomputation.

    Attributes:
        start: data id of the separator that it starts from.
        dropped: its saved values.
        price: cost of recomputing it per byte freed meanwhile.
    """

    start: int
    dropped: frozenset[int]
    price: float


def fewest_stages(graph: Graph, costs: Costs, budget: int, seconds: float) -> Schedule | None:
    """Greedy recomputation of the cheapest stages per byte, as few as the budget requires.

    Args:
        graph: a training graph.
        costs: of its operators.
        budget: bytes.
        seconds: time limit, after which the best schedule so far is returned.

    Returns:
        The schedule; None if none was found within the budget.
    """
    clock = Clock(seconds)
    saved = frozenset(
        node.id
        for node in saved_values(graph)
        if node.producer is not None and node.producer < graph.forward_count
    )
    stages = sorted(
        droppable_stages(graph, costs, saved), key=lambda stage: (stage.price, stage.start)
    )

    def fitting(chosen: Sequence[DroppableStage]) -> Schedule | None:
        schedule = dropped_stages_schedule(graph, costs, saved, chosen)
        return schedule if replay(schedule).peak_bytes <= budget else None

    # Memory is not monotone in the number of stages: recomputing one stage may need more than
    # dropping the others frees. So counts grow from below, and the last interval is bisected.
    below, count, found = -1, 0, fitting(())
    while found is None and count < len(stages) and clock.left():
        below, count = count, min(2 * count + 1, count + 1 + len(stages) // STEPS, len(stages))
        found = fitting(stages[:count])
    while found is not None and below + 1 < count and clock.left():
        middle = (below + count) // 2
        fewer = fitting(stages[:middle])
        below, count, found = (middle, count, found) if fewer is None else (below, middle, fewer)
    chosen = stages[:count]
    for stage in reversed(chosen):  # the most expensive first: the cheaper ones may suffice
        if found is None or not clock.left():
            break
        rest = [other for other in chosen if other is not stage]
        if (fewer := fitting(rest)) is not None:
            found, chosen = fewer, rest
    return found


def droppable_stages(graph: Graph, costs: Costs, saved: frozenset[int]) -> list[DroppableStage]:
    """Return the stages whose dropped values are larger than the checkpoint saved for them."""
    line = separators(graph)
    begins = [producer_of(graph, data) + 1 for data in line]
    found = []
    for start, begin, end in zip(line, begins, [*begins[1:], graph.forward_count], strict=True):
        outputs = [data for op in graph.operators[begin:end] for data in op.outputs]
        dropped = saved.intersection(outputs).difference(line)
        gain = sum(graph.data[data].nbytes for data in dropped)
        gain -= 0 if start in saved else graph.data[start].nbytes
        if gain > 0:
            found.append(DroppableStage(start, dropped, sum(costs.operators[begin:end]) / gain))
    return found


def dropped_stages_schedule(
    graph: Graph, costs: Costs, saved: frozenset[int], stages: Sequence[DroppableStage]
) -> Schedule:
    """Return the store-all schedule with some stages dropped and recomputed."""
    dropped = frozenset().union(*(stage.dropped for stage in stages))
    keep = (saved - dropped) | {stage.start for stage in stages}
    return plan(graph, "retain", costs=costs, keep=sorted(keep))


# --------------------------------------------------------------------------------------------------
# Techniques that rewrite the network, with the same loss: compressed activations, LowMemoryBP,
# chunked loss.


Planner = Callable[[Case, Graph], Schedule]
REWRITE_PLAN_SHARES = 4  # a quarter of the time limit is for ``fewest_stages``
SEED = 0  # of stochastic rounding, where a step is measured


def plan_store_all(case: Case, graph: Graph) -> Schedule:
    """Plan by store-all."""
    return plan(graph, "store_all", costs=case.costs_of(graph))


def plan_regions(case: Case, graph: Graph) -> Schedule:
    """Plan by ``regions``: recompute the regions that are marked as checkpointed functions."""
    return plan(graph, "regions", costs=case.costs_of(graph))


def compression(case: Case, bits: int = 8, planner: Planner = plan_store_all) -> Planned:
    """Compressed activations: save codes of a few bits for the backward pass."""
    coded = with_compression(case.function, bits=bits)
    schedule = planner(case, coded.graph())

    def begin(arrays: tuple[Any, ...], backend: Backend) -> Any:
        return begin_run(schedule, (*arrays, np.int64(SEED)), backend)

    found = planned_schedule(case, schedule, begin)
    return replace(found, gradients="approximate", sense=f"codes of {bits} bits")


def low_memory_backward(case: Case, planner: Planner = plan_store_all) -> Planned:
    """LowMemoryBP: memory-sharing norms, and activations with a step function as derivative."""
    graph = build(case.function.loss, *case.function.specs)
    kinds = {operator.kind for operator in graph.operators}
    if not kinds & set(ACTIVATIONS) and not list(norms_of(graph)):
        raise GraphError("no gelu, no silu and no norm of one operator")
    rewriting = rewrite(case.function, norms="possible")
    schedule = planner(case, rewriting.network.graph())
    found = planned_schedule(case, schedule, partial(begin_rewritten, rewriting, schedule))
    names = [f"{counted(len(rewriting.norms), 'norm')} shared"] if rewriting.norms else []
    takes = ", ".join(filter(None, [*names, found.takes]))
    if not rewriting.activations:
        return replace(found, gradients="rounded", takes=takes)
    own = sorted(kinds & set(ACTIVATIONS))
    sense = f"slopes of {' and '.join(own)} in steps"
    return replace(found, gradients="approximate", sense=sense, takes=takes)


def begin_rewritten(
    rewriting: Rewriting, schedule: Schedule, arrays: tuple[Any, ...], backend: Backend
) -> Any:
    """Return a step on the merged parameters, with gradients of the original parameters."""
    params, *batch = on_device(arrays, backend)
    step = begin_run(schedule, (rewriting.merged(params), *batch), backend)
    return lambda: rewriting.gradients(step(), params)


def chunking(case: Case, planner: Planner = plan_regions) -> Planned:
    """Chunked loss: logits of a chunk of rows at a time, never whole in memory."""
    network, chunks = chunked_loss(case.function, case.chunks)
    found = planned_schedule(case, planner(case, network.graph()))
    takes = ", ".join(filter(None, [f"logits in {counted(chunks, 'piece')}", found.takes]))
    return replace(found, gradients="rounded", takes=takes)


def chunked_loss(network: Network, chunks: int) -> tuple[Network, int]:
    """Rewrite a network's cross-entropy, and the matrix product before it, in chunks.

    Args:
        network: with one cross-entropy in its loss.
        chunks: number of chunks; fewer if there are fewer rows.

    Returns:
        The network, and the number of chunks.

    Raises:
        GraphError: if there is no such cross-entropy, or its logits are not a matrix product.
    """
    graph = build(network.loss, *network.specs, graph_name=network.name)
    crosses = [operator for operator in graph.operators if operator.kind == CROSS_ENTROPY.name]
    if len(crosses) != 1:
        raise GraphError("the loss is no cross-entropy whose logits could be chunked")
    (cross,) = crosses
    product, biases = logits_of(graph, cross)
    if any(operator.once for operator in (cross, product, *biases)):
        raise GraphError("the logits must be computed once, and cannot be recomputed in chunks")
    rows = graph.data[cross.inputs[1]].spec.size
    count = min(chunks, rows)
    specs = network.specs

    def loss(*args: Any) -> Any:
        sources = {i: leaf for i, _, leaf in leaves_like(graph.arguments, args, "arguments")}
        return call_graph(
            graph, sources, chunked_replacements(graph, cross, product, biases, count)
        )

    return Network(network.name, loss, specs), count


def logits_of(graph: Graph, cross: Operator) -> tuple[Operator, list[Operator]]:
    """Match logits of the form product + biases: return the product, and the operators after it.

    Raises:
        GraphError: if the logits have another form, or other readers.
    """
    data = cross.inputs[0]
    sums: list[Operator] = []
    if graph.consumers[cross.outputs[1]] or cross.outputs[1] in graph.outputs:
        raise GraphError("the log-sum-exp of the logits is read elsewhere, too")
    while True:
        producer = graph.data[data].producer
        if producer is None:
            raise GraphError("the logits are an argument, not a matrix product")
        if len(graph.consumers[data]) != 1 or data in graph.outputs:
            raise GraphError("the logits are read elsewhere, too")
        operator = graph.operators[producer]
        if operator.kind == "matmul" and not operator.attrs["transpose_x"]:
            return operator, sums
        if operator.kind == "add":
            rows = [d for d in operator.inputs if graph.data[d].spec.shape[1:]]
            if len(rows) != 1:
                raise GraphError("the logits are a sum of more than a product and a bias")
            sums.append(operator)
            data = rows[0]
        elif is_regrouping(graph, operator):
            sums.append(operator)
            data = operator.inputs[0]
        else:
            raise GraphError(f"the logits come from {operator.kind}, not from a matrix product")


def chunked_replacements(
    graph: Graph, cross: Operator, product: Operator, others: list[Operator], chunks: int
) -> dict[int, Replacement]:
    """Return the replacements of a product and its cross-entropy by a chunked loss.

    The product and the operators after it only record their operands; the cross-entropy's
    replacement computes them all, chunk by chunk.

    Args:
        graph: a forward graph.
        cross, product: the two operators.
        others: those between them, from last to first: additions of a bias, and reshapes of rows.
        chunks: number of chunks.
    """
    met: dict[int, Any] = {}
    biases = [operator for operator in reversed(others) if operator.kind == "add"]

    def noted(operator: Operator, *operands: Any) -> tuple[Any, ...]:
        met.update(zip(operator.inputs, operands, strict=True))
        return ()

    def losses(*operands: Any) -> tuple[Any, ...]:
        hidden, weight = (met[data] for data in product.inputs)
        added = [next(met[d] for d in op.inputs if met[d] is not None) for op in biases]

        def logits(rows: Any, weight: Any, *added: Any) -> Any:
            found = matmul(rows, weight.T if product.attrs["transpose_y"] else weight)
            return reduce(add, added, found)

        labels = operands[1]
        found = losses_in_pieces(logits, hidden, labels, chunks, weight, *added)
        return (reshape(found, labels.shape),)

    found: dict[int, Replacement] = {op.id: partial(noted, op) for op in (product, *others)}
    found[cross.id] = losses
    return found


def plan_recomputation(case: Case, graph: Graph) -> Schedule:
    """Plan within the budget, with the schedule of ``fewest_stages`` as a seed."""
    few = fewest_stages(
        graph, case.costs_of(graph), case.budget, case.time_limit / REWRITE_PLAN_SHARES
    )
    return plan_within(case, graph, seeds=() if few is None else (few,))


# --------------------------------------------------------------------------------------------------
# Splitting a batch: possible numbers of micro-batches, and a proof that their gradients add up.


BATCH_NORM = "batch_norm"
RANDOM = ("dropout", "seeded_dropout", "encode")
NOT_PROVEN: tuple[Gradients, str] = "unproven", "if the loss is a mean over samples"


def divisors(network: Network) -> list[int]:
    """Return the numbers of micro-batches that a batch can be split into, ascending from 2.

    Raises:
        GraphError: if it cannot be split.
    """
    found = parts_of(network)
    if not found:
        raise GraphError("its data have no common batch axis that could be split")
    return found


def parts_of(network: Network) -> list[int]:
    """Return the divisors of the batch size from 2 on; none if there is no batch.

    The batch is the first axis, if that is of one size in all data but scalars.
    """
    sizes = {spec.shape[0] for spec in leaves(network.specs[1:]) if spec.shape}
    if len(sizes) != 1:
        return []
    (size,) = sizes
    small = [count for count in range(1, isqrt(size) + 1) if size % count == 0]
    return sorted({*small, *(size // count for count in small)} - {1})


def micro_specs(specs: Any, count: int) -> Any:
    """Return the specs of one micro-batch."""

    def part(spec: Any) -> Any:
        if not spec.shape:
            return spec
        return type(spec)((spec.shape[0] // count, *spec.shape[1:]), spec.dtype)

    return map_leaves(part, tuple(specs))


def gradient_exactness(network: Network, count: int) -> tuple[Gradients, str]:
    """Classify the exactness of gradients when a batch is split into micro-batches, and why.

    They equal those of the whole batch if the loss is a mean over samples of a term that depends
    on one sample only, so that no operator before looks across the batch. That is decided by the
    rules of ``tc.chunked``.
    """
    graph = build(network.loss, *network.specs)
    if any(operator.kind == BATCH_NORM for operator in graph.operators):
        return "approximate", "batch norm sees a part alone"
    if any(operator.kind in RANDOM for operator in graph.operators):
        return "approximate", "each part draws by itself"
    specs = (network.specs[0], *micro_specs(network.specs[1:], count))
    try:
        proven = is_mean_of_samples(graph, build(network.loss, *specs))
    except GraphError:
        return NOT_PROVEN
    return ("rounded", "") if proven else NOT_PROVEN


def is_mean_of_samples(graph: Graph, part: Graph) -> bool:
    """Whether a loss is proven to be a mean over a batch of terms of one sample each.

    Args:
        graph: the loss of the whole batch.
        part: the loss of a micro-batch, which must be the same but for the mean.

    Raises:
        GraphError: names an operator that looks across the batch, or may, or that differs for a
            micro-batch.
    """
    means = [sum_of_mean(each) for each in (graph, part)]
    if means[0] is None or means[1] is None:
        return False
    total, divisor = means[0]
    batch = [data for data in leaves(graph.arguments[1:]) if graph.data[data].spec.shape]
    sources = {data: AxisPlace(0, 1, graph.data[data].spec.shape[0]) for data in batch}
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
    """Match a loss of the form sum / count: return the sum, and the data id of the count.

    None if the loss is no such mean.
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
    """Return the producer of a value; None for a source."""
    producer = graph.data[data].producer
    return None if producer is None else graph.operators[producer]


# --------------------------------------------------------------------------------------------------
# Techniques that split the batch: gradient accumulation on one device, a pipeline on several.
#
# Both store accumulated gradients in addition to the values of a micro-batch; in place of the
# results that store-all has in memory at its end.


PER_STAGE = 4  # micro-batches per stage of a pipeline, from which GPipe calls the bubble negligible
BATCH_PLAN_SHARES = 3  # each plan gets a third of the remaining time


# Accumulation ------------------------------------------------------------------------------------


def accumulation(case: Case) -> Planned:
    """Gradient accumulation with the fewest micro-batches that fit, or with the least peak."""
    clock, best = Clock(case.time_limit), None
    for count in divisors(case.function):
        found = plan_accumulation(case, count, plan_store_all)
        if best is None or found.peak < best.peak:
            best = found
        if found.peak <= case.budget or not clock.left():
            break
    assert best is not None
    return best


def accumulation_and_recomputation(case: Case) -> Planned:
    """Gradient accumulation with recomputation in each micro-batch: the best number of them.

    The search stops at the first number that fits without recomputation: more only cost more.
    """
    clock = Clock(case.time_limit)
    found: list[Planned] = []
    errors: list[BudgetError] = []
    for count in divisors(case.function):
        if (found or errors) and not clock.left():
            break
        plain = plan_accumulation(case, count, plan_store_all)
        if plain.peak <= case.budget:
            found.append(plain)
            break
        try:
            found.append(plan_accumulation(case, count, None, clock))
        except BudgetError as error:
            errors.append(error)
    if not found:
        raise min(errors, key=lambda error: error.smallest or inf)
    return min(found, key=lambda each: each.cost)


def plan_accumulation(
    case: Case, count: int, planner: Planner | None, clock: Clock = NO_DEADLINE
) -> Planned:
    """Plan gradient accumulation over a number of micro-batches.

    Args:
        case: with a network.
        count: number of micro-batches.
        planner: of the graph of one; None to recompute within the budget.
        clock: of the search for that; each plan gets a share of the remaining time.
    """
    network = case.function
    step = train_step(network.loss, sgd(0.0), micro_batches=count)
    state = step.init(network.specs[0])
    accumulated_bytes = sum(spec.nbytes for spec in leaves(state["accumulated"]))
    part = micro_specs(network.specs[1:], count)

    def planned(which: Any) -> Schedule:
        graph = step.graph(state, *part, part=which)
        if planner is not None:
            return planner(case, graph)
        return plan_within(case, graph, accumulated_bytes, clock.left() / BATCH_PLAN_SHARES)

    # The first micro-batch stores its gradients, the others accumulate.
    schedules = ((planned("first"), 1), (planned("middle"), count - 1))
    gradients, sense = gradient_exactness(network, count)
    again = sum(replay(schedule).recomputations * times for schedule, times in schedules)
    words = [f"{count} micro-batches"]
    words += [counted(again, "recomputation")] if again else []
    return Planned(
        peak=accumulated_bytes + max(peak_of(schedule) for schedule, _ in schedules),
        cost=sum(times * schedule_cost(case, schedule) for schedule, times in schedules),
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


# A pipeline --------------------------------------------------------------------------------------


def pipeline(case: Case, policy: str = "store_all") -> Planned:
    """Pipeline parallelism: the graph cut into balanced stages, with the 1F1B schedule.

    The memory of a device is that of its micro-batches in flight and of its accumulated gradients.
    Its time is the makespan, idle time included.
    """
    count, graph = micro_batches_of(case)
    gradients: tuple[Gradients, str] = "rounded", ""
    if count > 1:
        gradients = gradient_exactness(case.function, count)
    recompute: Recompute | None = None if policy == "store_all" else "early"
    cuts = partition(graph, case.stages, costs=case.costs_of(graph))
    made = one_f_one_b(case.stages, count, recompute=recompute)
    stages = plan_stages(stages_of(graph, cuts), policy, early=bool(recompute))
    trace = replay_pipeline(
        made,
        pipeline_costs(made, stages, case.costs_of, communication_time(case, stages)),
        [each.footprint for each in stages],
    )
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
    if case.network is None:
        return 1, case.graph
    fitting = [count for count in parts_of(case.network) if count <= PER_STAGE * case.stages]
    if not fitting:
        return 1, case.graph
    count, network = fitting[-1], case.network
    specs = (network.specs[0], *micro_specs(network.specs[1:], count))
    return count, Network(network.name, network.loss, specs).graph()


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


ROUNDS = 3  # of all steps in turn; the fastest of each counts
FLOPS_A_SECOND = 2e9  # a rate that NumPy reaches on any machine
MOST_BYTES = 2**32  # of arguments plus peak: memory that any machine has


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Measurements of steps, by the names of the techniques.

    Attributes:
        seconds: of one step, where they are meaningful (``is_timed``).
        errors: relative error of the gradients in the 2-norm; absolute if their norm is 0.
        reasons: why some were not run; only the reference's, if that was not run, nor the others.
    """

    seconds: dict[str, float]
    errors: dict[str, float]
    reasons: dict[str, str]


def measure_steps(
    plans: Mapping[str, Planned],
    reference: str,
    arrays: Callable[[], tuple[Any, ...]],
    backend: Backend,
    time_limit: float,
) -> MeasuredSteps:
    """Run the steps that fit into time and memory; measure seconds and errors of gradients.

    Args:
        plans: by name.
        reference: name of the plan whose gradients are exact.
        arrays: makes arguments of the network; not called if nothing is run.
        backend: runs the steps.
        time_limit: seconds for each, estimated by its FLOPs.

    Raises:
        BackendError: if a step fails, or its gradients are not finite.
    """
    sources = plans[reference].schedules[0][0].graph.source_bytes
    found = {name: reason_not_run(plans[name], sources, time_limit, backend) for name in plans}
    reasons = {name: reason for name, reason in found.items() if reason}
    if reference in reasons:
        return MeasuredSteps({}, {}, {reference: reasons[reference]})
    begins = {name: each.begin for name, each in plans.items() if each.begin and not found[name]}
    own = arrays()
    steps = {name: begin(own, backend) for name, begin in begins.items()}
    exact = steps[reference]()
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
    return MeasuredSteps(seconds, errors, reasons)


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
        link = None
        if self.link is not None:
            link = {
                "bandwidth": in_json(self.link.bandwidth),
                "latency": in_json(self.link.latency),
                "engines": self.link.engines,
            }
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
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if not isinstance(value, int):
        value = float(value)
    return value if isinstance(value, int) or isfinite(value) else None


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
REFERENCE = "store-all"

# Every technique by its name, in the order of the table.
TECHNIQUES: dict[str, Callable[[Case], Planned]] = {
    REFERENCE: store_all,
    "recomputation": recomputation,
    "offload": offload,
    "recomputation + offload": recomputation_and_offload,
    "8 bits": partial(compression, bits=8),
    "4 bits": partial(compression, bits=4),
    "2 bits": partial(compression, bits=2),
    "8 bits + recomputation": partial(compression, bits=8, planner=plan_recomputation),
    "LowMemoryBP": low_memory_backward,
    "LowMemoryBP + recomputation": partial(low_memory_backward, planner=plan_recomputation),
    "chunking": chunking,
    "chunking + recomputation": partial(chunking, planner=plan_recomputation),
    "accumulation": accumulation,
    "accumulation + recomputation": accumulation_and_recomputation,
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
    case = case_of(what, budget, costs, link, time_limit, stages, chunks, progress)
    plans: dict[str, Planned] = {}
    errors_of: dict[str, TinyckptError] = {}
    for name, technique in TECHNIQUES.items():
        try:
            plans[name] = technique(case)
        except TinyckptError as error:
            errors_of[name] = error
    for name, parts in PARTS.items():
        known = [plans[each] for each in (name, *parts) if each in plans]
        fitting = [each for each in known if each.peak <= case.budget]
        if fitting and isinstance(errors_of.get(name), BudgetError | None):
            plans[name] = min(fitting, key=lambda each: each.cost)
    plans = {name: plans[name] for name in TECHNIQUES if name in plans}
    run, note = MeasuredSteps({}, {}, {}), ""
    if measure:
        specs = argument_specs(case.graph) if case.network is None else case.network.specs
        arrays = partial(random_arrays, specs)
        try:
            run = measure_steps(plans, REFERENCE, arrays, library, time_limit)
        except BackendError as error:
            note = f"nothing was measured: {error}"
        if REFERENCE in run.reasons:
            note = f"nothing was measured: {REFERENCE}: {run.reasons[REFERENCE]}"
    rows = [
        row_of(case, name, plans, run)
        if name in plans
        else Row(name, reason(errors_of[name], case.budget))
        for name in TECHNIQUES
    ]
    unit = case.costs_of(case.graph).unit
    return TechniqueComparison(case.graph.name, case.budget, unit, case.link, tuple(rows), note)


def case_of(
    what: Network | Graph,
    budget: str | int | float,
    costs: Callable[[Graph], Costs] | None,
    link: Link | None,
    time_limit: float,
    stages: int,
    chunks: int,
    progress: Progress | None,
) -> Case:
    """Check the arguments of ``compare_techniques``, and make the case of them."""
    if not isinstance(what, Network | Graph):
        raise GraphError(
            f"compare_techniques: expected a Network or a Graph, got a {type(what).__name__}"
        )
    for name, number in (("stages", stages), ("chunks", chunks)):
        if type(number) is not int or number < 1:
            raise OptionError(
                f"compare_techniques: {name}={number!r:.80}; it must be an integer of 1 or more"
            )
    network = what if isinstance(what, Network) else None
    graph = what.graph() if isinstance(what, Network) else what
    if graph.gradients is None:
        raise GraphError(f"{graph.name} has no backward pass; expected a training graph")
    if not leaves(graph.gradients):
        raise GraphError(f"{graph.name} has no parameters, and so no gradients")
    costs_of = costs or own_costs
    own = costs_of(graph)
    budget_size, problem = parse_budget(graph, own, budget)
    if problem.costs.memory_unit != "bytes":
        raise BudgetError(f"budget {budget!r:.80}: techniques are compared in bytes, not in nodes")
    return Case(
        TrainingGraph(graph), network, costs_of, budget_size, link or LINKS.get(own.unit),
        checked_seconds(time_limit), stages, chunks, progress, plan(graph, costs=own),
    )  # fmt: skip


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
    case: Case,
    name: str,
    plans: Mapping[str, Planned],
    run: MeasuredSteps,
) -> Row:
    """Make the row of a technique that applies."""
    planned, whole, seconds = plans[name], plans[REFERENCE], run.seconds
    return Row(
        name=name,
        peak=planned.peak,
        share=planned.peak / whole.peak if whole.peak else 1.0,
        fits=planned.peak <= case.budget,
        times=planned.cost / whole.cost if whole.cost else 1.0,
        measured=seconds[name] / seconds[REFERENCE] if name in seconds else None,
        gradients=planned.gradients,
        sense=planned.sense,
        error=run.errors.get(name),
        not_run=run.reasons.get(name, ""),
        takes=planned.takes,
        host_bytes=planned.host_bytes,
        devices=planned.devices,
        schedules=tuple(schedule for schedule, _ in planned.schedules),
    )
