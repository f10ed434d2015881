"""``weigh``: every means of holding less on one network, within one budget, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tinyckpt.base.deadline import checked_seconds
from tinyckpt.base.errors import BackendError, BudgetError, GraphError, OptionError, TinyckptError
from tinyckpt.base.tree import leaves
from tinyckpt.core import costs as cost
from tinyckpt.core.backend import Backend, get_backend
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.means.case import LINKS, Case, Planned
from tinyckpt.means.divided import accumulation, accumulation_and_recomputation, pipeline
from tinyckpt.means.measured import Measured, measured
from tinyckpt.means.planned import (
    offload,
    recomputation,
    recomputation_and_offload,
    store_all,
)
from tinyckpt.means.rewritten import chunking, compression, low_memory_backward, recomputed
from tinyckpt.means.rows import Row, Weighing, size_beside
from tinyckpt.networks import Network, random_arrays
from tinyckpt.networks.named import specs_of
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.search import Progress

BUDGET = "50 %"
SECONDS = 6.0  # for each plan
STAGES, CHUNKS = 4, 8
REFERENCE = "store-all"

# Every means by its name, in the order of the table.
MEANS: dict[str, Callable[[Case], Planned]] = {
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


def weigh(
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
) -> Weighing:
    """Return what each means of holding less takes on a network, within one budget.

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
    >>> from tinyckpt.means import weigh
    >>> network = tc.networks.mlp(8, 32, batch=512)
    >>> found = weigh(network, budget="60 %", time_limit=0.5, measure=False)
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
    for name, means in MEANS.items():
        try:
            plans[name] = means(case)
        except TinyckptError as error:
            errors_of[name] = error
    for name, parts in PARTS.items():
        known = [plans[each] for each in (name, *parts) if each in plans]
        fitting = [each for each in known if each.peak <= case.budget]
        if fitting and isinstance(errors_of.get(name), BudgetError | None):
            plans[name] = min(fitting, key=lambda each: each.cost)
    plans = {name: plans[name] for name in MEANS if name in plans}
    run, note = Measured({}, {}, {}), ""
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
        for name in MEANS
    ]
    unit = case.costs_of(case.graph).unit
    return Weighing(case.graph.name, case.budget, unit, case.link, tuple(rows), note)


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
    """Return what is weighed, after checking it; the arguments are as of ``weigh``."""
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
    limit, counted = parse_budget(graph, own, budget)
    if counted.memory_unit != "bytes":
        raise BudgetError(f"budget {budget!r:.80}: means are weighed in bytes, not in nodes")
    return Case(
        TrainingGraph(graph), network, costs_of, limit, link or LINKS.get(own.unit),
        checked_seconds(time_limit), stages, chunks, progress, plan(graph, costs=own),
    )  # fmt: skip


def reason(error: TinyckptError, budget: int) -> str:
    """Return in few words why a means does not apply."""
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
    run: Measured,
) -> Row:
    """Return the row of a means that applies."""
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
