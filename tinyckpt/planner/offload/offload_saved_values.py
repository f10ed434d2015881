"""Offloading of saved values to host memory, from their last forward use until the backward pass.

Source: PyTorch's ``torch.autograd.graph.save_on_cpu``, which moves all saved tensors, and JAX's
``save_and_offload_only_these_names``, which moves named values. Neither recomputes what it moves.

The policy ``offload``: a value leaves right after the last operator of the forward pass that
touches it. Its prefetch is issued so early that the copy is over when the value is read, if the
link's bandwidth is given, and no earlier than memory allows (``offload.prefetch``). The makespan is
found by ``timed``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyckpt.base.errors import BudgetError, PolicyOptionError
from tinyckpt.base.units import counted, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse, retaining_order
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once, from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Offload, Schedule
from tinyckpt.planner.manual.keep_names import Keep, resolve_keep
from tinyckpt.planner.offload.link import MOST_ENGINES, Link, Number
from tinyckpt.planner.offload.prefetch import hoist_fetches, idle_copies, movable_values
from tinyckpt.storage.offload_steps import insert_offloads


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
    'offload on chain:16: 33 evaluations, 0 stalled; ...'
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
    leaving = set(chosen) - set(graph.outputs)
    moved = insert_offloads(stored, leaving - idle_copies(insert_offloads(stored, leaving)))
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
