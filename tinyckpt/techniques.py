"""What is compared, and what one of the techniques makes of it: plain data.

Memory is counted as ``replay`` does it: what a schedule holds, and not what the caller supplies.
What a technique stores besides, such as gradients that micro-batches accumulate, counts too.
Gradients are included either way: store-all's are results, which stay in memory.
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

from tinyckpt.approx.calling import Replacement, call_graph
from tinyckpt.approx.chunked import compare
from tinyckpt.approx.compressing import with_compression
from tinyckpt.approx.finding import is_regrouping, norms_of
from tinyckpt.approx.following import AxisPlace, places
from tinyckpt.approx.losses import losses_in_pieces
from tinyckpt.approx.rewrite import ACTIVATIONS, Rewriting, rewrite
from tinyckpt.base.deadline import ENDLESS, Clock, checked_seconds
from tinyckpt.base.errors import (
    BackendError,
    BudgetError,
    GraphError,
    OptionError,
    ScheduleError,
    TinyckptError,
)
from tinyckpt.base.tree import Tree, leaves, leaves_like, map_leaves
from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.numpy_source import compile
from tinyckpt.core import costs as cost
from tinyckpt.core.backend import NUMPY, Backend, get_backend, moved
from tinyckpt.core.costs import Costs, cost_of
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, Operator, TrainingGraph, producer_of
from tinyckpt.core.lowering import offloading
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.tracing import build
from tinyckpt.networks import Network, random_arrays
from tinyckpt.networks.named import specs_of
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
from tinyckpt.pipeline.orders import one_f_one_b
from tinyckpt.pipeline.program import Recompute
from tinyckpt.pipeline.stages import EXCHANGE
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.saved_values import saved_values
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.offload.prefetch import movable_values
from tinyckpt.planner.offload.simulate import timed
from tinyckpt.planner.portfolio.offload_schedules import leaving_order, moved_within
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.plan_with_host import plan_with_host
from tinyckpt.planner.portfolio.search import Progress
from tinyckpt.planner.portfolio.table import table
from tinyckpt.training.optimizers import sgd
from tinyckpt.training.trainer import TrainStep, micro_batch, train_step

# What becomes of gradients. "unproven" is exact if the loss is a mean over samples, which is not
# known here of all losses, nor of all operators before.
Gradients = Literal["bitwise", "rounded", "unproven", "approximate"]
# From a network's arguments to a step, which returns its gradients when it is called.
Begin = Callable[[tuple[Any, ...], Any], Callable[[], Any]]

# Where nothing else is said, the link is PCI Express 4.0 with 16 lanes, 32 GB/s in each direction,
# beside an A100: 19.5 TFLOP/s in float32, 1,555 GB/s from its own memory (NVIDIA's data sheet).
LINKS = {
    "FLOPs": Link(Fraction(32, 19_500)),
    "bytes moved": Link(Fraction(32, 1_555)),
    "seconds": Link(32 * 10**9),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What the techniques are weighed on.

    Attributes:
        graph: loss and gradients of the whole batch.
        network: the function that it is of; None if there is but the graph.
        costs_of: from a graph to the costs of its operators, in one unit.
        budget: the peak to stay within, in bytes.
        link: to the host, and from device to device; None if none is known in the unit of costs.
        time_limit: seconds for each plan.
        stages: devices of a pipeline.
        chunks: pieces of the loss.
        progress: as of ``plan``.
        stored: the graph's schedule that keeps everything.
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
            GraphError: if there is but its graph.
        """
        if self.network is None:
            raise GraphError("there is but a graph, and no function to be called otherwise")
        return self.network

    @property
    def known_link(self) -> Link:
        """The link.

        Raises:
            ScheduleError: if none is known.
        """
        if self.link is None:
            unit = self.costs_of(self.graph).unit
            raise ScheduleError(
                f"no link is known in {unit}: give its bandwidth, in bytes for each"
            )
        return self.link


@dataclass(frozen=True, slots=True)
class Planned:
    """What one of the techniques takes.

    Attributes:
        peak: bytes, on the device that holds most.
        cost: of a step, all devices' time together, in the unit of the case's costs.
        gradients: what becomes of them.
        sense: in what sense they are approximate, in a few words; or why they may be.
        takes: what it takes besides, in a few words.
        schedules: what a device does, and how often; or what each stage does, of its graph.
        host_bytes: the most that is on the host.
        devices: how many there are.
        begin: how a step is made ready; None if it is not run here.
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
    """Return the peak of a schedule in bytes."""
    return replay(schedule).peak_bytes


def schedule_cost(case: Case, schedule: Schedule) -> float:
    """Return what a schedule costs, in the unit of the case."""
    return cost_of(schedule, case.costs_of(schedule.graph))


# --------------------------------------------------------------------------------------------------
# What comparing the techniques found: one row for each, as data, as a table, as JSON.


TEXTS: dict[Gradients, str] = {
    "bitwise": "exact, bit for bit",
    "rounded": "exact but for rounding",
    "unproven": "exact",
    "approximate": "approximate:",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one of the techniques takes; where it does not apply, why.

    Attributes:
        name: as in ``TECHNIQUES``.
        why: why there is nothing to say; empty where there is, and else all numbers are None.
        peak: bytes, on the device that holds most: what is counted is what schedules hold, and
            gradients that micro-batches add up.
        share: of store-all's peak.
        fits: whether the peak is within the budget.
        times: what a step takes by the model, all devices' time together, as times store-all's.
        measured: what a step took here, as times store-all's in the same run; None where it was
            not run.
        gradients: ``bitwise`` equal to store-all's; equal but ``rounded``; so if the
            loss is a mean over samples, ``unproven``; or ``approximate``.
        sense: in what sense they are approximate, or why they may be.
        not_run: why it was not run here, where others were, or might have been.
        error: how far they were off here: a norm, as a share of the gradients'.
        takes: what it takes besides, in a few words.
        host_bytes: the most that is on the host.
        devices: how many it takes.
        schedules: what was planned.
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
        """Whether gradients are known to be those of the network, but for rounding."""
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
class Comparison:
    """All techniques, compared on one network.

    Attributes:
        name: the network's.
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
        alike = [row for row in self.rows if row.peak and is_alike(row.peak, self.budget)]
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
        """Return the reasons for which some techniques were not run, each with their names."""
        names: dict[str, list[str]] = {}
        for row in self.rows:
            if row.not_run:
                names.setdefault(row.not_run, []).append(row.name)
        return [f"{', '.join(own)}: {reason}" for reason, own in names.items()]

    def document(self) -> dict[str, Any]:
        """Return the data as JSON has them, schedules left out; null for what is infinite."""
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
    """Return a value as JSON has it, which has no number that is not finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if not isinstance(value, int):
        value = float(value)
    return value if isinstance(value, int) or isfinite(value) else None


def is_alike(amount: int, other: int) -> bool:
    """Whether two amounts of bytes are not the same, and read so."""
    return amount != other and size_text(amount) == size_text(other)


def size_beside(amount: int, other: int) -> str:
    """Return bytes as people read them, or all of them where another amount would read alike."""
    return f"{amount:,} B" if is_alike(amount, other) else size_text(amount)


# --------------------------------------------------------------------------------------------------
# Batches in parts: how many there can be, and whether they add up to the whole.


BATCH_NORM = "batch_norm"
RANDOM = ("dropout", "seeded_dropout", "encode")
NOT_PROVEN: tuple[Gradients, str] = "unproven", "if the loss is a mean over samples"


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
    small = [count for count in range(1, isqrt(size) + 1) if size % count == 0]
    return sorted({*small, *(size // count for count in small)} - {1})


def micro_specs(specs: Any, count: int) -> Any:
    """Return the specs of one micro-batch."""

    def part(spec: Any) -> Any:
        if not spec.shape:
            return spec
        return type(spec)((spec.shape[0] // count, *spec.shape[1:]), spec.dtype)

    return map_leaves(part, tuple(specs))


def parted(network: Network, count: int) -> tuple[Gradients, str]:
    """Return what becomes of gradients when a batch is parted, and why.

    They are those of the whole if the loss is a mean over samples of what each has by itself, so
    that no operator before looks across the batch. Rules that tell it are those of ``tc.chunked``.
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


# --------------------------------------------------------------------------------------------------
# The techniques that plan a graph as it is: store-all, recomputation, offload, and both.


# What waits for what is told in time that grows with the square of the values on their way: some
# ten seconds for so many.
MOST_MOVABLE = 10_000


def store_all(case: Case) -> Planned:
    """Keep everything that the backward half reads: what the others are compared with."""
    return of_schedule(case, case.stored)


def recomputation(case: Case) -> Planned:
    """Recompute so as to stay within the budget."""
    return of_schedule(case, within(case, case.graph))


def offload(case: Case) -> Planned:
    """Move as few values to the host as the budget asks for; or as the least peak does."""
    link, costs, stored = case.known_link, case.costs_of(case.graph), case.stored
    movable = movable_of(case) if link.bandwidth else set()
    order = leaving_order(stored, movable)
    least = peak_of(offloading(stored, set(order)))
    goal = max(case.budget, least)
    schedule = stored
    if goal < peak_of(stored):
        schedule = moved_within(stored, order, goal, costs) or stored
    return of_copies(case, schedule, max(goal, peak_of(schedule)))


def recomputation_and_offload(case: Case) -> Planned:
    """Keep, recompute or move, within the budget."""
    link, costs = case.known_link, case.costs_of(case.graph)
    movable_of(case)
    own: dict[str, Any] = {"budget": f"{case.budget} B", "time_limit": case.time_limit}
    return of_copies(case, plan_with_host(case.graph, link, costs=costs, **own), case.budget)


def movable_of(case: Case) -> set[int]:
    """Return the values that can wait on the host.

    Raises:
        ScheduleError: if they are so many that telling when each is copied would take long.
    """
    found = set(movable_values(case.graph))
    if len(found) > MOST_MOVABLE:
        raise ScheduleError(
            f"{len(found):,} values could be moved, and copies of {MOST_MOVABLE:,} are timed here"
        )
    return found


def within(
    case: Case,
    graph: Graph,
    besides: int = 0,
    seconds: float | None = None,
    seeds: Sequence[Schedule] = (),
) -> Schedule:
    """Return the best schedule of a graph that is found within the budget.

    Args:
        case: whose budget it is.
        graph: what is planned.
        besides: bytes of the budget that something else takes.
        seconds: to search for it; the case's time limit if not given.
        seeds: schedules of the graph that are known, and compared with what is found.

    Raises:
        BudgetError: if none was found, with the smallest peak that was, ``besides`` included.
    """
    if case.budget < besides:
        raise BudgetError(f"{size_text(besides)} are held besides", besides)
    try:
        return plan(
            graph,
            budget=f"{case.budget - besides} B",
            costs=case.costs_of(graph),
            time_limit=case.time_limit if seconds is None else seconds,
            progress=case.progress,
            seeds=seeds,
        )
    except BudgetError as error:
        smallest = None if error.smallest is None else error.smallest + besides
        raise BudgetError(str(error), smallest, error.proven) from None


def of_schedule(case: Case, schedule: Schedule, begin: Begin | None = None) -> Planned:
    """Return what a schedule that moves nothing takes; of another graph too."""
    again = replay(schedule).recomputations
    return Planned(
        peak=peak_of(schedule),
        cost=schedule_cost(case, schedule),
        takes=counted(again, "recomputation") if again else "",
        schedules=((schedule, 1),),
        begin=begin or partial(begin_run, schedule),
    )


def of_copies(case: Case, schedule: Schedule, budget: int | None) -> Planned:
    """Return what a schedule takes whose copies go on beside its evaluations.

    Args:
        case: with a link.
        schedule: of the case's graph.
        budget: what has no room within it waits; None if nothing waits.
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
    """Return a step that runs a schedule on arrays, and returns its gradients."""
    program = compile(schedule, backend)
    own = on_device(arrays, backend)
    return lambda: program(*own)[1]


def on_device(arrays: Any, backend: Backend) -> Any:
    """Return arrays, in their nesting, where a backend computes."""
    return map_leaves(partial(moved, backend), arrays)


# --------------------------------------------------------------------------------------------------
# Store-all, but for a few stages of the forward half, which are evaluated again.
#
# Where nearly all fits, the least that can be done is to drop what the backward half reads of some
# stages, and to keep the separators that they begin with. That is little to gain where a separator
# is as large as what is dropped. It is much where codes are kept: nothing in the backward half
# reads the separators then, so that whoever plans by what is read has nothing to begin with, and
# goes back to the arguments. Codes of what is evaluated again are the same bits, since chance is a
# seed.


STEPS = 16  # how many counts of stages are tried on the way to all of them, at least


@dataclass(frozen=True, slots=True)
class DroppableStage:
    """What lies between two separators, as something to drop.

    Attributes:
        start: the separator that it begins with, by its data id.
        dropped: the values that the backward half reads of it.
        price: what evaluating it again costs, for each byte that is free until then.
    """

    start: int
    dropped: frozenset[int]
    price: float


def fewest_stages(graph: Graph, costs: Costs, budget: int, seconds: float) -> Schedule | None:
    """Return the schedule that evaluates the cheapest stages again, as few as the budget asks for.

    Args:
        graph: a training graph.
        costs: of its operators.
        budget: bytes.
        seconds: after which what has been found is the answer.

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

    # More stages are not always less memory: from all of them the one that is evaluated again may
    # hold more than the others free. So counts are tried from below, and halved between two.
    below, count, found = -1, 0, fitting(())
    while found is None and count < len(stages) and clock.left():
        below, count = count, min(2 * count + 1, count + 1 + len(stages) // STEPS, len(stages))
        found = fitting(stages[:count])
    while found is not None and below + 1 < count and clock.left():
        middle = (below + count) // 2
        fewer = fitting(stages[:middle])
        below, count, found = (middle, count, found) if fewer is None else (below, middle, fewer)
    chosen = stages[:count]
    for stage in reversed(chosen):  # the dearest first: those after it may be enough
        if found is None or not clock.left():
            break
        rest = [other for other in chosen if other is not stage]
        if (fewer := fitting(rest)) is not None:
            found, chosen = fewer, rest
    return found


def droppable_stages(graph: Graph, costs: Costs, saved: frozenset[int]) -> list[DroppableStage]:
    """Return the stages of which something can be dropped that is more than what is kept for it."""
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
    """Return the schedule that keeps what store-all does, but for what some stages drop."""
    dropped = frozenset().union(*(stage.dropped for stage in stages))
    keep = (saved - dropped) | {stage.start for stage in stages}
    return plan(graph, "retain", costs=costs, keep=sorted(keep))


# --------------------------------------------------------------------------------------------------
# The techniques that put another network in the place of one, which computes the same loss.


Planner = Callable[[Case, Graph], Schedule]
REWRITE_PLAN_SHARES = 4  # of the time limit, one is for the schedules of the fewest stages
SEED = 0  # of the codes, where a step is run


def keeping(case: Case, graph: Graph) -> Schedule:
    """Return the schedule that keeps everything."""
    return plan(graph, "store_all", costs=case.costs_of(graph))


def regions(case: Case, graph: Graph) -> Schedule:
    """Return the schedule that recomputes what is marked."""
    return plan(graph, "regions", costs=case.costs_of(graph))


def compression(case: Case, bits: int = 8, planner: Planner = keeping) -> Planned:
    """Keep codes of a few bits for the backward half."""
    coded = with_compression(case.function, bits=bits)
    schedule = planner(case, coded.graph())

    def begin(arrays: tuple[Any, ...], backend: Backend) -> Any:
        return begin_run(schedule, (*arrays, np.int64(SEED)), backend)

    found = of_schedule(case, schedule, begin)
    return replace(found, gradients="approximate", sense=f"codes of {bits} bits")


def low_memory_backward(case: Case, planner: Planner = keeping) -> Planned:
    """Have norms share memory, and activations a step function as their derivative."""
    graph = build(case.function.loss, *case.function.specs)
    kinds = {operator.kind for operator in graph.operators}
    if not kinds & set(ACTIVATIONS) and not list(norms_of(graph)):
        raise GraphError("no gelu, no silu and no norm of one operator")
    rewriting = rewrite(case.function, norms="possible")
    schedule = planner(case, rewriting.network.graph())
    found = of_schedule(case, schedule, partial(begin_rewritten, rewriting, schedule))
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
    """Return a step on the merged parameters; its gradients are those of the original's."""
    params, *batch = on_device(arrays, backend)
    step = begin_run(schedule, (rewriting.merged(params), *batch), backend)
    return lambda: rewriting.gradients(step(), params)


def chunking(case: Case, planner: Planner = regions) -> Planned:
    """Go through the rows of the loss piece by piece, so that its logits are never whole."""
    network, chunks = chunked_loss(case.function, case.chunks)
    found = of_schedule(case, planner(case, network.graph()))
    takes = ", ".join(filter(None, [f"logits in {counted(chunks, 'piece')}", found.takes]))
    return replace(found, gradients="rounded", takes=takes)


def chunked_loss(network: Network, chunks: int) -> tuple[Network, int]:
    """Return the network with its cross-entropy, and the product before it, in pieces.

    Args:
        network: whose loss has one cross-entropy.
        chunks: how many pieces; fewer if there are fewer rows.

    Returns:
        The network, and in how many pieces it is.

    Raises:
        GraphError: if there is no such cross-entropy, or its logits are no product of matrices.
    """
    graph = build(network.loss, *network.specs, graph_name=network.name)
    crosses = [operator for operator in graph.operators if operator.kind == CROSS_ENTROPY.name]
    if len(crosses) != 1:
        raise GraphError("the loss is no cross-entropy, of whose logits there could be pieces")
    (cross,) = crosses
    product, biases = logits_of(graph, cross)
    if any(operator.once for operator in (cross, product, *biases)):
        raise GraphError("the logits are to be computed once, and not in pieces again")
    rows = graph.data[cross.inputs[1]].spec.size
    count = min(chunks, rows)
    specs = network.specs

    def loss(*args: Any) -> Any:
        sources = {i: leaf for i, _, leaf in leaves_like(graph.arguments, args, "arguments")}
        return call_graph(graph, sources, in_pieces(graph, cross, product, biases, count))

    return Network(network.name, loss, specs), count


def logits_of(graph: Graph, cross: Operator) -> tuple[Operator, list[Operator]]:
    """Return the product that the logits of a cross-entropy are, and what is added to it.

    Raises:
        GraphError: if they are none, or are read elsewhere, too.
    """
    data = cross.inputs[0]
    sums: list[Operator] = []
    if graph.consumers[cross.outputs[1]] or cross.outputs[1] in graph.outputs:
        raise GraphError("the logarithms of the logits' sums are read elsewhere, too")
    while True:
        producer = graph.data[data].producer
        if producer is None:
            raise GraphError("the logits are given, and no product of matrices")
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
            raise GraphError(f"the logits come from {operator.kind}, and no product of matrices")


def in_pieces(
    graph: Graph, cross: Operator, product: Operator, others: list[Operator], chunks: int
) -> dict[int, Replacement]:
    """Return what stands in the place of a product and of the cross-entropy of it.

    Args:
        graph: a forward graph.
        cross, product: the two.
        others: between them, from the last to the first: sums with a bias, and regroupings.
        chunks: how many pieces.
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


def recomputed(case: Case, graph: Graph) -> Schedule:
    """Return the best schedule within the budget, that of the fewest stages among others."""
    few = fewest_stages(
        graph, case.costs_of(graph), case.budget, case.time_limit / REWRITE_PLAN_SHARES
    )
    return within(case, graph, seeds=() if few is None else (few,))


# --------------------------------------------------------------------------------------------------
# The techniques that part a batch: gradient accumulation on one device, a pipeline on several.
#
# Both hold gradients that micro-batches add up, besides what one of them holds; in place of the
# results that store-all holds at its end.


PER_STAGE = 4  # micro-batches for each stage of a pipeline, from where its bubble is small: GPipe's
BATCH_PLAN_SHARES = 3  # a plan gets one of so many of the time that is left


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
        return within(case, graph, besides, clock.left() / BATCH_PLAN_SHARES)

    # The first one writes its gradients down, the others add theirs.
    schedules = ((planned("first"), 1), (planned("middle"), count - 1))
    gradients, sense = parted(network, count)
    again = sum(replay(schedule).recomputations * times for schedule, times in schedules)
    words = [f"{count} micro-batches"]
    words += [counted(again, "recomputation")] if again else []
    return Planned(
        peak=besides + max(peak_of(schedule) for schedule, _ in schedules),
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


# --------------------------------------------------------------------------------------------------
# What steps take where they run: seconds beside store-all's, and how far gradients are off.


ROUNDS = 3  # of all steps in turn; the quickest of each counts
FLOPS_A_SECOND = 2e9  # what NumPy can be trusted to do on any machine
MOST_BYTES = 2**32  # of arguments and a peak, which can be had on any machine


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """What was found by running steps, by the names of the techniques.

    Attributes:
        seconds: of one step, where they say something (``is_timed``).
        errors: the norm of what gradients are off by, divided by theirs if that is not 0.
        reasons: why some were not run; the reference alone if it was not, nor anything else.
    """

    seconds: dict[str, float]
    errors: dict[str, float]
    reasons: dict[str, str]


def measured(
    plans: Mapping[str, Planned],
    reference: str,
    arrays: Callable[[], tuple[Any, ...]],
    backend: Backend,
    time_limit: float,
) -> MeasuredSteps:
    """Run what can be run in time and in memory; see how long it takes, and how far it is off.

    Args:
        plans: by name.
        reference: the one whose gradients are exact.
        arrays: makes arguments of the network; they may be too large for what is not run.
        backend: what runs.
        time_limit: seconds for each, as far as its FLOPs tell.

    Raises:
        BackendError: if a step fails, or its gradients are not finite.
    """
    sources = plans[reference].schedules[0][0].graph.source_bytes
    found = {name: obstacle(plans[name], sources, time_limit, backend) for name in plans}
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
    """Whether seconds here say something: not of several devices in turn, nor of no copies.

    On NumPy the host's memory is the device's, and a value that is moved stays where it is.
    """
    return planned.devices == 1 and not (backend is NUMPY and planned.host_bytes)


def obstacle(planned: Planned, sources: int, time_limit: float, backend: Backend) -> str:
    """Return why a step is not run; nothing if it is.

    Args:
        planned: what would run.
        sources: bytes of the network's arguments, which are made for it.
        time_limit: seconds for all of its rounds.
        backend: what would run it.
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
        return f"it holds {size_text(held)}, arguments included, and {most} may be taken"
    seconds = (ROUNDS + 1) * flops / FLOPS_A_SECOND
    if seconds > time_limit:
        return f"{ROUNDS + 1} steps may take {seconds:,.0f} s, and {time_limit:g} s are given"
    return ""


def error_of(found: Any, exact: Any, name: str, backend: Backend) -> float:
    """Return how far gradients are off.

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
    "8 bits + recomputation": partial(compression, bits=8, planner=recomputed),
    "LowMemoryBP": low_memory_backward,
    "LowMemoryBP + recomputation": partial(low_memory_backward, planner=recomputed),
    "chunking": chunking,
    "chunking + recomputation": partial(chunking, planner=recomputed),
    "accumulation": accumulation,
    "accumulation + recomputation": accumulation_and_recomputation,
    "pipeline": pipeline,
    "pipeline + recomputation": partial(pipeline, policy="sqrt_n"),
}
# Those that may do without one of their parts: each is at least as good as a part that fits.
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
) -> Comparison:
    """Return what each memory-saving technique takes on a network, within one budget.

    Args:
        what: a network; or a training graph, to which only those apply that need no function.
        budget: the peak to stay within, as for ``plan``, in bytes: what is counted are values that
            a schedule holds, gradients among them, and no parameters.
        costs: from a graph to the costs of its operators; the graph's own if it has them, else
            FLOPs.
        link: between device and host, and between devices of a pipeline; the bandwidth is in bytes
            for each unit of cost. If not given, see ``LINKS``.
        time_limit: seconds for each plan, of which there are six; and for the steps of each that
            are measured.
        stages: devices of the pipeline.
        chunks: pieces of the loss.
        measure: whether steps are run on random arrays, where they are short enough.
        backend: what runs them.
        progress: called while plans are searched for, as of ``plan``.

    Raises:
        BudgetError: if the budget is not legal, or in nodes.
        GraphError: if there is no backward half, or no parameter.
        OptionError: if another option is not legal.

    >>> import tinyckpt as tc
    >>> from tinyckpt.techniques import weigh
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
        specs = specs_of(case.graph) if case.network is None else case.network.specs
        arrays = partial(random_arrays, specs)
        try:
            run = measured(plans, REFERENCE, arrays, library, time_limit)
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
    return Comparison(case.graph.name, case.budget, unit, case.link, tuple(rows), note)


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
    """Return what is weighed, after checking it; the arguments are as of ``compare_techniques``."""
    if not isinstance(what, Network | Graph):
        raise GraphError(f"weigh: expected a Network or a Graph, got a {type(what).__name__}")
    for name, number in (("stages", stages), ("chunks", chunks)):
        if type(number) is not int or number < 1:
            raise OptionError(f"weigh: {name}={number!r:.80}; it must be an integer of 1 or more")
    network = what if isinstance(what, Network) else None
    graph = what.graph() if isinstance(what, Network) else what
    if graph.gradients is None:
        raise GraphError(f"{graph.name} has no backward half, for which anything could be held")
    if not leaves(graph.gradients):
        raise GraphError(f"{graph.name} has no parameters, for whose gradients anything is held")
    costs_of = costs or own_costs
    own = costs_of(graph)
    budget_size, counted = parse_budget(graph, own, budget)
    if counted.memory_unit != "bytes":
        raise BudgetError(f"budget {budget!r:.80}: techniques are compared in bytes, not in nodes")
    return Case(
        TrainingGraph(graph), network, costs_of, budget_size, link or LINKS.get(own.unit),
        checked_seconds(time_limit), stages, chunks, progress, plan(graph, costs=own),
    )  # fmt: skip


def reason(error: TinyckptError, budget: int) -> str:
    """Return in few words why a technique does not apply."""
    if isinstance(error, BudgetError) and error.smallest is not None:
        least = size_beside(error.smallest, budget)
        return f"nothing found within the budget; the least peak is {least}"
    return str(error)


def own_costs(graph: Graph) -> Costs:
    """Return the costs that a graph carries; FLOPs, if it does not."""
    known = all(operator.cost is not None for operator in graph.operators)
    return cost.given(graph) if known else cost.flops(graph)


def row_of(
    case: Case,
    name: str,
    plans: Mapping[str, Planned],
    run: MeasuredSteps,
) -> Row:
    """Return the row of a technique that applies."""
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
