"""Embedded data of an HTML player: traces, graphs and views, as JSON with packed columns.

The page replays the steps itself: no memory is stored, only steps and graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import BackendError
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.codegen.numpy_source import source_of
from tinyckpt.codegen.reserved_memory import reserved
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Compute,
    Fetch,
    Free,
    Offload,
    Update,
)
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.model.value_fates import operator_words, residual_fates, value_words

from ..charts.transfer_lanes import time_words
from ..layout.check_label_options import Naming
from ..layout.geometry import WIDTH, Layout
from ..layout.views import GroupView, views_of
from ..memory_curve import BANDS
from ..node_looks import checkpoints_of
from ..node_style import arrow_sizes
from ..scene import Row, Scene, one_line
from ..strip_layout import strip_lines, strip_words
from .packing import Packed, packed, packed_lists, packed_texts

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.offload.simulate import Timeline

    from ..layout.drawn_nodes import Cell

VERBS = (Compute, Free, Offload, Fetch)
MOST_SOURCE_STEPS = 20_000  # with more, a program is too long to read, and most of the file
MOST_RESERVED_STEPS = 20_000  # with more, there are more allocations than the page places
LONGEST_NAME = 200  # characters of a name that are shown
MOST_FLOPS = 2**52  # of one operator: sums stay exact integers in JavaScript
TICKS = 10**9  # of the longest timeline: 32-bit integers


def shown(name: str) -> str:
    """Return a name on one line, truncated to a readable length."""
    return one_line(name, LONGEST_NAME)


def page_data(scene: Scene, clocks: Sequence[Timeline | None] = ()) -> dict[str, Any]:
    """Return all data of a page; ``clocks`` are the timeline of each trace, or None."""
    known = list(clocks) or [None] * len(scene.rows)
    longest = max((end for clock in known if clock for end in clock.end), default=Fraction(0))
    graphs, positions = distinct(row.trace.graph for row in scene.rows)
    return {
        "in_nodes": scene.in_nodes,
        "highest": scene.highest,
        "host": scene.host if any(known) or any(row.moves for row in scene.rows) else None,
        "graphs": [graph_data(graph, scene.style.naming) for graph in graphs],
        "traces": [
            {
                "graph": position,
                **trace_data(row),
                **({"times": times_data(clock, longest)} if clock else {}),
            }
            for row, clock, position in zip(scene.rows, known, positions, strict=True)
        ],
    }


def distinct(graphs: Iterable[Graph]) -> tuple[list[Graph], list[int]]:
    """Deduplicate graphs; also return the index of each: equal graphs are one."""
    found: list[Graph] = []
    positions = []
    for graph in graphs:
        known = (i for i, other in enumerate(found) if other is graph or other == graph)
        positions.append(next(known, len(found)))
        if positions[-1] == len(found):
            found.append(graph)
    return found, positions


def graph_data(graph: Graph, naming: Naming) -> dict[str, Any]:
    """Return a graph's values, operators and views."""
    return {
        "name": shown(graph.name),
        "forward_count": graph.forward_count,
        "data": {
            "names": packed_texts(shown(value_words(graph, node.id)) for node in graph.data),
            "specs": packed_texts(str(node.spec) for node in graph.data),
            "nbytes": packed([node.nbytes for node in graph.data]),
            "bases": packed([-1 if n.view_of is None else n.view_of for n in graph.data]),
            "sizes": packed([node.spec.nbytes for node in graph.data]),
            "producers": packed([-1 if n.producer is None else n.producer for n in graph.data]),
            "results": packed(sorted(graph.outputs)),
        },
        "operators": {
            "names": packed_texts(shown(operator_words(graph, o.id)) for o in graph.operators),
            "kinds": packed_texts(shown(operator.kind) for operator in graph.operators),
            "scopes": packed_texts(shown(operator.scope) for operator in graph.operators),
            "workspace": packed([operator.workspace for operator in graph.operators]),
            "flops": packed([min(o.flops, MOST_FLOPS) for o in graph.operators]),
            "adjoints": packed(
                [-1 if o.adjoint_of is None else o.adjoint_of for o in graph.operators]
            ),
            "inputs": packed_lists([operator.inputs for operator in graph.operators]),
            "outputs": packed_lists([operator.outputs for operator in graph.operators]),
        },
        "views": [view_data(view, graph) for view in views_of(graph, naming)],
    }


def view_data(view: GroupView, graph: Graph) -> dict[str, Any]:
    """Return a view: cells, positions, expansions. Points are in tenths of a pixel."""
    plan = view.layout
    head, line = arrow_sizes(plan.diameter)
    return {
        "title": shown(view.title or graph.name),
        "parent": view.parent,
        "opens": {str(cell): target for cell, target in view.opens.items()},
        "width": WIDTH,
        "height": round(plan.height, 1),
        "diameter": plan.diameter,
        "head": head,
        "line": line,
        "widths": tenths(width for width, _ in plan.sizes),
        "heights": tenths(height for _, height in plan.sizes),
        "labels": packed_texts(plan.labels),
        "points": packed(plan.points),
        "titles": packed_texts(shown(cell.title) for cell in plan.cells),
        "rows": packed_texts(map(shown, row_names(plan.cells, graph))),
        "mirrors": packed([-1 if c.mirror is None else c.mirror for c in plan.cells]),
        "groups": packed([int(cell.group) for cell in plan.cells]),
        "backward": packed([int(cell.backward) for cell in plan.cells]),
        "operators": packed_lists([cell.operators for cell in plan.cells]),
        "data": packed_lists([cell.data for cell in plan.cells]),
        "x": tenths(x for x, _ in plan.centres),
        "y": tenths(y for _, y in plan.centres),
        "arrows": arrows_data(plan, faint=False),
        "faint": arrows_data(plan, faint=True),
        "headings": [
            {
                "text": shown(heading.text),
                "left": heading.left,
                "right": heading.right,
                "y": heading.y,
            }
            for heading in plan.headings
        ],
        "dots_x": tenths(x for x, _ in plan.dots),
        "dots_y": tenths(y for _, y in plan.dots),
    }


def row_names(cells: Sequence[Cell], graph: Graph) -> list[str]:
    """Return the name of each cell's ledger row; empty where it shares another cell's row.

    A row has more room than a node: a group has its full name, and an operator whose label is a
    symbol, or not unique, its own name.
    """
    own = [cell for cell in cells if cell.mirror is None]
    times = Counter(cell.title or cell.label for cell in own)
    names = [""] * len(cells)
    for cell in own:
        text = cell.title or cell.label
        alone = len(cell.operators) == 1 and (not cell.named or times[text] > 1)
        names[cell.id] = operator_words(graph, cell.operators[0]) if alone else text
    return names


def arrows_data(plan: Layout, faint: bool) -> dict[str, Packed]:
    """Return polylines: offset among all points, cells at both ends, and the points."""
    reads = [read for read in plan.reads if read.faint == faint for _ in read.lines]
    lines = plan.faint if faint else plan.arrows
    points = [point for line in lines for point in line]
    return {
        "first": packed([0, *accumulate(map(len, lines))]),
        "sources": packed([read.source for read in reads]),
        "targets": packed([read.target for read in reads]),
        "x": tenths(x for x, _ in points),
        "y": tenths(y for _, y in points),
    }


def tenths(values: Iterable[float]) -> Packed:
    """Pack coordinates in tenths of a pixel."""
    return packed([round(10 * value) for value in values])


def trace_data(row: Row) -> dict[str, Any]:
    """Return a trace's columns, and its schedule's description.

    No memory is included: it follows from the steps, and the page computes it.
    """
    trace = row.trace
    verbs: dict[type, int] = {kind: number for number, kind in enumerate(VERBS)}
    verbs[Update] = verbs[InPlace] = verbs[Compute]  # its operator's name describes it
    over = [step.data if isinstance(step, InPlace) else -1 for step in trace.steps]
    targets = [s.operator if isinstance(s, EVALUATIONS) else s.data for s in trace.steps]
    schedule = trace.schedule
    return {
        "title": shown(row.title),
        "subtitle": row.subtitles[0],
        "policy": shown(schedule.policy),
        "note": one_line(schedule.note, 400),
        "certificate": "" if schedule.certificate is None else str(schedule.certificate),
        "strip_words": strip_words(row.memory, WIDTH),
        "strip_lines": [
            {"words": line.words, "amount": line.amount, "dashes": line.dashes}
            for line in strip_lines(row.memory)
        ],
        "budget": row.budget,
        "verbs": packed([verbs[type(step)] for step in trace.steps]),
        "targets": packed(targets),
        "over": packed(over) if max(over, default=-1) >= 0 else None,
        "bands": [{"name": name, "fill": fill} for name, fill in BANDS.items()],
        "host": packed(trace.host) if row.moves else None,
        "checkpoints": packed(sorted(checkpoints_of(trace))),
        "fates": fate_data(trace),
        "reserved": reserved(schedule).nbytes if len(trace.steps) <= MOST_RESERVED_STEPS else None,
        **source_data(trace),
    }


def times_data(clock: Timeline, longest: Fraction) -> dict[str, Any]:
    """Return begin and end of each step, in integer TICKS of the longest timeline, and totals."""
    unit = TICKS / longest if longest else Fraction(0)
    return {
        "begin": packed([round(moment * unit) for moment in clock.begin]),
        "end": packed([round(moment * unit) for moment in clock.end]),
        "makespan": round(clock.makespan * unit),
        "words": f"time: {time_words(clock)}{' (shaded)' if clock.stalled else ''}",
    }


def fate_data(trace: Trace) -> dict[str, Any]:
    """Return the fate of each value that the backward pass reads, with its reason."""
    residuals = residual_fates(trace.schedule, given(trace.graph))
    return {
        "data": packed([residual.data for residual in residuals]),
        "reasons": packed_texts(one_line(residual.reason, 400) for residual in residuals),
    }


def source_data(trace: Trace) -> dict[str, Any]:
    """Return the generated program and each step's line in it, or why there is none."""
    if len(trace.steps) > MOST_SOURCE_STEPS:
        reason = (
            f"The program of {len(trace.steps):,} steps is left out of this page; "
            "tc.compile(schedule).source is its text."
        )
        return {"source": None, "no_source": reason}
    try:
        source, lines = source_of(trace.schedule)
    except BackendError as error:
        return {"source": None, "no_source": f"There is no program: {one_line(str(error), 400)}."}
    return {"source": packed_texts(source.split("\n")), "lines": packed(lines)}
