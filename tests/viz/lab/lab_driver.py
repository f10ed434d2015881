"""Driver of the lab's planner in a page: evaluates its scripts without the user interface."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import tinyckpt as tc
from tinyckpt.base.display import spoken
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.model.cost_models import cost_of, given
from tinyckpt.planner.model.value_fates import residual_fates
from tinyckpt.planner.model.vectorised_lowering import checkpoints_of_order
from viz.memory_curve import memory_bands
from viz.player.data import VERBS
from viz.player.page import HOST, SEVERAL, script

ENGINE = ("columns", "state", "lowering", "replay")
OPTIONAL = (HOST, *SEVERAL)
# Lower sets of values and orders of each graph; say all that is known of each schedule.
PLANNED = """cases => {
    const typed = node => Array.isArray(node)
        ? (typeof node[0] === "string" ? node : Float64Array.from(node))
        : typeof node === "object"
            ? Object.fromEntries(Object.entries(node).map(([key, value]) => [key, typed(value)]))
            : node;
    return cases.map(([data, keeps, orders]) => {
        const graph = typed(data);
        return [...keeps.map(k => retainingOrder(graph, k)), ...orders].map(order => {
            const steps = loweredSteps(graph, order);
            const { bands, host, evaluations, recomputations, ...own } = replayed(graph, steps);
            const rings = keptValues(graph, order).checkpoints;
            const lists = [steps.verbs, steps.targets, own.nodes, own.bytes, ...bands];
            const fates = fatesOf(graph, steps, rings);
            return [...lists.map(c => Array.from(c)), rings, evaluations, recomputations, host,
                costOfTimes(graph, own.times), fates];
        });
    }); }"""
# What a page shows: steps, the choice, what is kept by hand, rings; and a layer by its number.
SHOWN = "() => [player.models[0].verbs, player.models[0].targets].map(c => Array.from(c))"
STATE = "() => player.choice.key"
KEEPING = "() => player.choice.keep"
RINGS = """() => document.querySelectorAll(
    player.panels[0].isGraph ? ".graph .ring" : ".rail .ring").length"""
LAYER = {"ledger": ".rail-row[data-row='{}']", "graph": ".graph .node[data-cell='{}']"}
Case = tuple[tc.Graph, Sequence[Sequence[int]], Sequence[Sequence[int]]]


def engine(browser: Any, *more: str) -> Any:
    """Return a page with the planner's scripts, and optionally more."""
    page = browser.new_page()
    page.set_content(f"<script>{script((*ENGINE, *more), OPTIONAL)}</script>")
    return page


def page_graph(graph: tc.Graph) -> dict[str, Any]:
    """Return a graph as the page's planner sees it, unpacked; ``fates`` uses these names."""
    data, operators = graph.data, graph.operators
    return {
        "forward_count": graph.forward_count,
        "planning": {
            "once": graph.once,
            "updates": graph.updates,
            "costs": given(graph).operators,
        },
        "data": {
            "names": [node.name for node in data],
            "bases": [-1 if node.view_of is None else node.view_of for node in data],
            "sizes": [node.spec.nbytes for node in data],
            "producers": [-1 if node.producer is None else node.producer for node in data],
            "results": sorted(graph.outputs),
        },
        "operators": {
            "names": [
                spoken(operator.name) if operator.phase == "backward" else operator.name
                for operator in operators
            ],
            "workspace": [operator.workspace for operator in operators],
            "inputs": ends([operator.inputs for operator in operators]),
            "outputs": ends([operator.outputs for operator in operators]),
        },
    }


def ends(lists: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    """Return lists in CSR form: items end to end, and the offset of each."""
    return {
        "first": [0, *accumulate(map(len, lists))],
        "items": list(chain.from_iterable(lists)),
    }


def planned_by_page(page: Any, cases: Sequence[Case]) -> list[list[Any]]:
    """Return the page's schedules for sets of saved values, and for orders, of each graph."""
    given = [[page_graph(graph), *map(list, rest)] for graph, *rest in cases]
    found: list[list[Any]] = page.evaluate(PLANNED, given)
    return found


def expected(schedule: tc.Schedule) -> list[Any]:
    """Return Python's account of a schedule: for saved values, rings only for checkpoints."""
    if schedule.policy == "retain":
        order = [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
        found = checkpoints_of_order(schedule.graph, order)
        schedule = replace(schedule, checkpoints=tuple(found))
    trace = tc.replay(schedule)
    verbs = {kind: number for number, kind in enumerate(VERBS)} | {tc.Update: 0}
    residuals = residual_fates(schedule, given(schedule.graph))
    return [
        [verbs[type(step)] for step in schedule.steps],
        [s.operator if isinstance(s, EVALUATIONS) else s.data for s in schedule.steps],
        list(trace.nodes),
        list(trace.live_bytes),
        *memory_bands(trace, False).tolist(),
        list(schedule.checkpoints),
        trace.evaluations,
        trace.recomputations,
        None,
        cost_of(schedule, given(schedule.graph)),
        {
            "data": [residual.data for residual in residuals],
            "times": [residual.evaluations for residual in residuals],
            "reasons": [residual.reason for residual in residuals],
        },
    ]


def steps_of(schedule: tc.Schedule) -> list[list[int]]:
    return expected(schedule)[:2]


def counters(page: Any) -> dict[str, str]:
    found: dict[str, str] = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('[data-counter]')].map("
        "dd => [dd.dataset.counter, dd.textContent]))"
    )
    return found


def place(page: Any, peak: int) -> tuple[float, float]:
    """Return the position of a peak on the plot."""
    box = page.locator(".frontier").bounding_box()
    x = page.evaluate("peak => player.plot.x(peak)", peak)
    return box["x"] + x, box["y"] + box["height"] / 2


def at_work(page: Any) -> Any:
    """Return a lab with its workbench, which "more" opens below the first screen."""
    page.evaluate("() => player.setMore(true)")
    return page


def workbench(lab: Any, *shown: str, **context: Any) -> Any:
    """Return the open lab of a network with everything shown."""
    return at_work(lab(*shown, **context))
