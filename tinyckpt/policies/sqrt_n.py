"""sqrt(n): cut the forward half into about sqrt(n) segments, keep what crosses between them.

Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016,
arXiv 1604.06174, section 3.2, by count of stages. The values of the last segment are kept as well,
since the backward sweep begins there: recomputing them would save nothing.

Not here: segments balanced by bytes or by cost, and the search over segment counts for a budget.
"""

from __future__ import annotations

from math import isqrt

from tinyckpt.cost import Costs
from tinyckpt.errors import ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.policies.lowering import from_order
from tinyckpt.policies.policy import Policy
from tinyckpt.policies.retain import last_target_of, retaining_order, some_names
from tinyckpt.schedule import Schedule
from tinyckpt.separators import separators


def plan_sqrt_n(graph: Graph, costs: Costs, *, segments: int | None = None) -> Schedule:
    """Keep one value between segments, where the graph has single values to cut at.

    Cuts are made at separators that the backward half reads anyway. A graph with too few of them
    for sqrt(n) segments (a U-Net, dense connections) is cut by operator count instead, and all
    values that cross a cut are kept.

    On ``chain(k*k)``: 2n + 1 + (k-1)^2 evaluations, peak 2k+1 nodes, and no schedule with that peak
    has fewer evaluations.

    Args:
        graph: the training graph.
        costs: not used; stages are counted.
        segments: how many segments; the square root of the number of stages if not given.
    """
    if segments is not None and segments < 1:
        raise ScheduleError(f"sqrt_n: segments={segments}; there must be at least 1")
    if graph.forward_count in (0, len(graph.operators)):
        note = "no backward half: every operator is evaluated once"
        return from_order(graph, range(len(graph.operators)), "sqrt_n", note=note)
    last_target = last_target_of(graph)
    found = separators(graph)
    stages = [data for data in found if last_target[data] >= 0]
    wanted = min(segments or nearest_root(graph.forward_count), graph.forward_count)
    if len(stages) < wanted:
        cuts, note = cuts_by_count(graph, wanted)
        note = f"only {len(stages)} usable separators: {note}"
    else:
        cuts, note = cuts_at_stages(
            graph, stages, min(segments or nearest_root(len(stages)), len(stages))
        )
    last_cut = cuts[-1][0] if cuts else -1
    checkpoints = sorted({data for _, crossing in cuts for data in crossing})
    kept = set(checkpoints)
    # The last segment stays resident.
    kept.update(
        node.id
        for node in graph.data
        if node.producer is not None
        and last_cut < node.producer < graph.forward_count
        and last_target[node.id] >= 0
    )
    order = retaining_order(graph, kept, reuse=True)
    options = {} if segments is None else {"segments": segments}
    if checkpoints:
        note += f"; kept {some_names([graph.data[data] for data in checkpoints])}"
    return from_order(graph, order, "sqrt_n", options, note, checkpoints)


def nearest_root(count: int) -> int:
    """Return the integer nearest to the square root."""
    root = isqrt(count)
    return root + 1 if count - root * root > root else root


Cuts = list[tuple[int, tuple[int, ...]]]  # (last operator before the cut, values that cross it)


def cuts_at_stages(graph: Graph, stages: list[int], segments: int) -> tuple[Cuts, str]:
    """Return cuts at separators, such that segments have equally many stages."""
    ends = [stages[round(part * len(stages) / segments) - 1] for part in range(1, segments)]
    cuts: Cuts = []
    for data in ends:
        producer = graph.data[data].producer
        assert producer is not None  # separators are computed
        cuts.append((producer, (data,)))
    return cuts, f"{counted(len(stages), 'stage')} in {counted(segments, 'segment')}"


def cuts_by_count(graph: Graph, segments: int) -> tuple[Cuts, str]:
    """Return cuts after every equal share of the forward operators, wherever they fall."""
    cuts = []
    for part in range(1, segments):
        last = round(part * graph.forward_count / segments) - 1
        crossing = tuple(
            node.id
            for node in graph.data
            if node.producer is not None
            and node.producer <= last
            and any(last < reader < graph.forward_count for reader in graph.consumers[node.id])
        )
        cuts.append((last, crossing))
    forward = counted(graph.forward_count, "forward operator")
    return cuts, f"{forward} cut by count into {counted(segments, 'segment')}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


SQRT_N = Policy(
    "sqrt_n",
    plan_sqrt_n,
    "cut into about sqrt(n) segments, keep the value between them, recompute each segment once",
    "Chen et al. 2016, arXiv 1604.06174",
)
