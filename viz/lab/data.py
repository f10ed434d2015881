"""Embedded data of the interactive planning page: candidate schedules, inputs of its planner.

Added to the data of a player (``player.data``): packed evaluation orders, named policies, lower
bounds, costs.
"""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.model import cost_models as cost

from ..player.data import shown
from ..player.packing import Packed, packed, packed_lists, packed_texts
from ..scene import one_line, title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinyckpt.core.costs import Costs
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.portfolio.precomputed_choices import Choices

LARGEST_WHOLE = 2**52  # integers up to it, and their differences, are exact in JavaScript


def lab_data(
    offered: Choices, network: str | None, challenge: int | None, title: str | None
) -> dict[str, Any]:
    """Return the lab's data, in addition to a player's; the challenge is a budget in bytes."""
    found, points = offered.found, offered.points
    return {
        "subject": None if title is None else shown(title),
        "planning": planning_data(found.graph, found.costs),
        "network": network,
        "challenge": challenge,
        "costs_text": costs_text(found.graph, found.costs),
        "complete": found.complete,
        "points": {
            "peaks": packed([point.peak for point in points]),
            "costs": numbers([point.cost for point in points]),
            "titles": packed_texts(shown(f"{point.policy}: {point.detail}") for point in points),
            "policies": packed_texts(point.policy for point in points),
            "orders": packed_lists([point.order.tolist() for point in points]),
        },
        "known": {
            "peaks": packed([point.peak for point in found.points]),
            "costs": numbers([point.cost for point in found.points]),
        },
        "named": [named_data(name, trace) for name, trace in offered.named],
        "bounds": [[budget, None if isinf(least) else least] for budget, least in offered.bounds],
        "smallest": offered.smallest,
        "proof": [one_line(text, 200) for text in offered.proof],
    }


def planning_data(graph: Graph, costs: Costs) -> dict[str, Any]:
    """Return the inputs of lowering besides inputs, outputs and views, and costs of evaluations.

    Names are those that ``retain`` accepts for forward values; displayed names may be truncated, or
    labels.
    """
    forward = [
        node.name
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
    ]
    return {
        "once": packed(graph.once),
        "updates": packed(graph.updates),
        "costs": numbers(costs.operators),
        "unit": shown(costs.unit),
        "names": packed_texts(forward),
    }


def named_data(name: str, trace: Trace) -> dict[str, Any]:
    """Return a policy's schedule as an order of evaluations: the page inserts the frees itself."""
    order = [step.operator for step in trace.steps if isinstance(step, EVALUATIONS)]
    return {
        "name": name,
        "title": shown(title_of(trace)),
        "note": one_line(trace.schedule.note, 400),
        "order": packed(order),
        "checkpoints": packed(sorted(trace.schedule.checkpoints)),
    }


def numbers(values: Sequence[float]) -> Packed:
    """Pack numbers that need not be integers."""
    column = np.asarray(values, np.float64)
    if (column % 1 == 0).all() and np.abs(column).max(initial=0) < LARGEST_WHOLE:
        return packed(column.astype(np.int64))
    return packed_texts(values)  # type: ignore[arg-type]  # JSON writes numbers as well


def costs_text(graph: Graph, costs: Costs) -> str | None:
    """Return the costs as a Python argument: empty for the graph's own; None if there is none."""
    if costs == cost.given(graph):
        return ""
    for name in ("evaluations", "flops", "traffic"):
        if costs == getattr(cost, name)(graph):
            return f", costs=tc.cost.{name}(graph)"
    return None
