"""Offloading of saved values to host memory, from their last forward use until the backward pass.

Source: PyTorch's ``torch.autograd.graph.save_on_cpu``, which moves all saved tensors, and JAX's
``save_and_offload_only_these_names``, which moves named values. Neither recomputes what it moves.

Which values: those that the backward pass reads (``movable_values``), unless they are read again at
once (``idle_copies``). Where only some have to go, those with the furthest next use go first
(Belady's rule, IBM Systems Journal 1966), as few as reach a target peak (``offload_to_peak``).

The policy ``offload``: a value leaves right after the last operator of the forward pass that
touches it. Its prefetch is issued so early that the copy is over when the value is read, if the
link's bandwidth is given, and no earlier than memory allows (``offload.prefetch``). The makespan is
found by ``timed``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tinyckpt.base.deadline import NO_DEADLINE, Clock, Pace
from tinyckpt.base.errors import BudgetError, PolicyOptionError
from tinyckpt.base.units import counted, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse, retaining_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once, from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule
from tinyckpt.ops.update_steps import old_source
from tinyckpt.planner.manual.retain import Keep, resolve_keep
from tinyckpt.planner.model.link import MOST_ENGINES, Link, Number
from tinyckpt.planner.offload.prefetch import hoist_fetches
from tinyckpt.storage.offload_steps import insert_offloads

T = TypeVar("T")


def plan_offload(
    graph: Graph,
    costs: Costs,
    *,
    values: Keep | None = None,
    keep: Keep | None = None,
    bandwidth: Number | None = None,
    latency: Number = 0,
    engines: int = MOST_ENGINES,
    budget: int | None = None,
) -> Schedule:
    """Offload saved values to host memory between their last forward and first backward use.

    Args:
        graph: the training graph.
        costs: the duration of each evaluation, with which copies overlap; in bytes.
        values: values to move: names or labels, or patterns of them; data nodes or ids; or a
            predicate. If not given, all values that the backward pass reads, except those of whose
            memory it reads several overlapping views. A value that is read again at once stays.
        keep: values that stay on the device; values neither kept nor moved are then recomputed, as
            in JAX. If not given, all values that are not moved stay.
        bandwidth, latency, engines: of the ``Link``. Without a bandwidth, values come back as early
            as they can without a higher peak.
        budget: bytes within which the peak has to be, copies in flight not counted: whatever lacks
            room meanwhile waits for them (``timed``).

    Raises:
        PolicyOptionError: if an option is invalid.
        BudgetError: if the peak is above the budget even with every value fetched at the last
            moment.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "offload", bandwidth=512)
    >>> schedule.note
    'on the host: 15 values, 7.5 KiB'
    >>> tc.timed(schedule, tc.Link(bandwidth=512)).summary()  # doctest: +ELLIPSIS
    'offload on chain:16: makespan 33 evaluations, 0 of them stalled; ...'
    """
    link = None if bandwidth is None else Link(bandwidth, latency, engines)
    if link is None and (latency != 0 or engines != MOST_ENGINES):
        raise PolicyOptionError("offload: latency and engines need a bandwidth=")
    if costs.memory_unit != "bytes":
        raise PolicyOptionError(
            "offload: memory must be counted in bytes; give the budget in bytes"
        )
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "offload")
    chosen = movable_values(graph) if values is None else resolve_keep(graph, values, "offload")
    options: dict[str, Any] = {} if values is None else {"values": names_of(graph, chosen)}
    kept: list[int] = []
    order = list(range(len(graph.operators)))
    if keep is not None:
        kept = resolve_keep(graph, keep, "offload")
        order = retaining_order(graph, [*chosen, *kept], reuse=True)
        options["keep"] = names_of(graph, kept)
    if link is not None:
        options |= {"bandwidth": link.bandwidth, "latency": link.latency, "engines": link.engines}
    stored = from_order(graph, order, "offload", options, "", [*chosen, *kept])
    moved = insert_useful_offloads(stored, set(chosen) - set(graph.outputs))
    smallest = replay(moved).peak_bytes
    if budget is not None and smallest > budget:
        raise BudgetError(
            f"offload needs {size_text(smallest)} with {counted(len(chosen), 'value')} on the host "
            f"until it is read, which is more than the budget of {size_text(budget)}",
            smallest,
        )
    schedule = hoist_fetches(moved, costs, link, budget)
    waiting = [step.data for step in schedule.steps if isinstance(step, Offload)]
    nbytes = sum(graph.data[data].spec.nbytes for data in waiting)
    note = f"on the host: {counted(len(waiting), 'value')}, {size_text(nbytes)}"
    return replace(schedule, note=note)


def names_of(graph: Graph, values: list[int]) -> list[str]:
    """Return the unique names of values."""
    return [graph.data[data].name for data in values]


OFFLOAD = Policy(
    "offload",
    plan_offload,
    "offload what the backward pass reads to host memory, copies overlapped with computation",
    "as good as the choice of values; moved values are not recomputed",
    "O(V + E), and the evaluations that copies overlap",
    "torch.autograd.graph.save_on_cpu; jax.checkpoint_policies.save_and_offload_only_these_names",
)


# --------------------------------------------------------------------------------------------------
# Which values: those that can be offloaded, and are not read again at once.


def movable_values(graph: Graph, recomputing: bool = False) -> list[int]:
    """Return the forward values that the backward pass reads and that can be offloaded.

    Results of the graph are excluded, and views of sources, which take no memory. Each view is
    copied separately: of a value and its views, none is included if the copies would weigh more
    than the storage they share.

    Args:
        graph: with a backward pass.
        recomputing: whether to include forward values that forward operators alone read, which may
            be evaluated again.
    """
    outputs, first = set(graph.outputs), graph.forward_count
    families: dict[int, list[int]] = {}
    for node in graph.data:
        is_forward = node.producer is not None and node.producer < first
        readers = graph.consumers[node.id]
        is_read = readers and (recomputing or readers[-1] >= first)
        if not (is_forward and is_read) or node.id in outputs:
            continue
        if old_source(graph, node.id) is None:
            families.setdefault(owner_of(graph, node.id), []).append(node.id)
    return sorted(
        data
        for owner, family in families.items()
        if sum(graph.data[data].spec.nbytes for data in family) <= graph.data[owner].nbytes
        for data in family
    )


def owner_of(graph: Graph, data: int) -> int:
    """Return the value that owns the storage of a value (the root of its views)."""
    while (base := graph.data[data].view_of) is not None:
        data = base
    return data


def insert_useful_offloads(stored: Schedule, values: set[int]) -> Schedule:
    """Offload values of a schedule, each fetched right before it is read; idle copies left out."""
    moved = insert_offloads(stored, values)
    idle = idle_copies(moved)
    return insert_offloads(stored, values - idle) if idle else moved


def idle_copies(schedule: Schedule) -> set[int]:
    """Return the values fetched with no evaluation since they left: moving them gains nothing."""
    left: dict[int, int] = {}
    idle: set[int] = set()
    count = 0
    for step in schedule.steps:
        if isinstance(step, EVALUATIONS):
            count += 1
        elif isinstance(step, Offload):
            left[step.data] = count
        elif isinstance(step, Fetch) and left[step.data] == count:
            idle.add(step.data)
    return idle


# --------------------------------------------------------------------------------------------------
# Which first, and how many: Belady's order, and bisection on a target peak.


@dataclass(frozen=True, slots=True)
class PacedWork:
    """Passes over schedules, each of which begins only if it is predicted to end in time.

    A pass is linear in the evaluations of its schedule.

    Attributes:
        clock: the deadline.
        reserve: evaluations of the final pass, for which time is reserved.
        pace: the slowest rate so far.
    """

    clock: Clock = NO_DEADLINE
    reserve: int = 0
    pace: Pace = field(default_factory=Pace)

    def run(self, evaluations: int, work: Callable[..., T], *args: Any) -> T:
        """Run work over a schedule of so many evaluations; return its result.

        Raises:
            OutOfTimeError: if there is probably no time for it.
        """
        if self.clock is not NO_DEADLINE:
            self.pace.check(self.clock, evaluations + self.reserve)
        begin = self.clock.spent()
        result = work(*args)
        self.pace.note(self.clock.spent() - begin, evaluations)
        return result


def offload_order(stored: Schedule, movable: set[int]) -> list[int]:
    """Return the offloadable values in order of leaving: those that are read last first."""
    everything = insert_offloads(stored, movable)
    idle = idle_copies(everything)
    returns = [step.data for step in everything.steps if isinstance(step, Fetch)]
    return [data for data in reversed(returns) if data not in idle]


def offload_to_peak(
    stored: Schedule, order: list[int], goal: int, costs: Costs, paced: PacedWork | None = None
) -> Schedule | None:
    """Offload as few values as a target peak takes (bisection); None if it cannot be reached.

    Args:
        stored: without copies.
        order: the values to offload, the first ones first.
        goal: bytes; 0 for the smallest peak possible.
        costs: of the evaluations that copies overlap with.
        paced: how passes over the schedule are run; without a deadline if not given.

    Raises:
        OutOfTimeError: if there is no time for it.
    """
    run = (PacedWork() if paced is None else paced).run
    count = sum(isinstance(step, EVALUATIONS) for step in stored.steps)

    def moved(number: int) -> Schedule:
        return run(count, insert_offloads, stored, set(order[:number]))

    low, high = 0, len(order) + (goal > 0)  # with high values moved it is reached, or high is more
    while goal and high - low > 1:
        middle = (low + high) // 2
        if run(count, replay, moved(middle)).peak_bytes <= goal:
            high = middle
        else:
            low = middle
    if high > len(order):
        return None
    return run(count, hoist_fetches, moved(high), costs, None, goal or None)
