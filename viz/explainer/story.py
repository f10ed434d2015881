"""Storyboard of the explainer: one or two traces as moments, aligned by progress.

Traces come in, a frozen ``Story`` comes out: for every moment the share of each layer's values in
memory, what is live, and the work done so far. Progress is the number of operators evaluated for
the first time: a row that recomputes falls behind, and the others wait for it. Evaluations of one
kind in one layer share a moment; of a long trace only every n-th moment is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.model.vectorised_lowering import checkpoints_of_order, saved_values_of_order

from ..layout.drawn_nodes import printable
from ..layout.partition import Part, anatomy_of, parts_by_scope, parts_of
from ..memory_curve import BANDS, memory_bands
from ..node_memory import CellMemory
from ..scene import as_list, counts_nodes, live_of, stop_of

if TYPE_CHECKING:
    from tinyckpt.core.costs import Costs
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace

MOST_TILES = 32  # more do not fit into a row; neighbours share one
FEWEST_TILES = 4  # scopes; of fewer, the operators are shown
MOST_MOMENTS = 150  # of the whole story, but for the first recomputation: some 25 seconds
Work = Literal["forward", "backward", "again"]
WORKS: tuple[Work, ...] = ("forward", "backward", "again")


class Tile(NamedTuple):
    """One layer of the picture: a run of forward operators.

    Attributes:
        start, stop: the operators are ``start`` to ``stop - 1``.
        title: the name of the layer, or of the scope.
    """

    start: int
    stop: int
    title: str


class Evaluated(NamedTuple):
    """One evaluation of a trace.

    Attributes:
        position: of the step.
        operator: that it evaluates.
        work: the kind: a first evaluation in the forward or in the backward pass, or a
            recomputation.
        tile: of the operator, or of the forward operator whose gradient it computes; None for the
            loss.
    """

    position: int
    operator: int
    work: Work
    tile: int | None

    def continues_in(self, following: Evaluated | None) -> bool:
        """Whether the next evaluation is of the same kind in the same tile."""
        return following is not None and (following.work, following.tile) == (self.work, self.tile)


@dataclass(frozen=True, slots=True)
class RowMoment:
    """One row of the picture at one moment.

    Attributes:
        filled: for every tile the share of its values that is in memory, of the most that ever is
            after it was computed, from 0 to 1.
        again: for every tile the part of this share that was recomputed.
        computed: for every tile whether it has been computed at all.
        active: the tile that is being computed.
        gradient: the tile that the gradient has reached; None in the forward pass.
        bands: live memory by kind, as in ``memory_curve.BANDS``.
        peak: the most that has been live so far.
        done: work so far, by WORKS, in the unit of the story.
        run: while tiles are recomputed, the first and last of them, and the tile they start from.
        step: of the trace, the last that has been taken; -1 before the first.
        waits: whether the row waits for another.
    """

    filled: tuple[float, ...]
    again: tuple[float, ...]
    computed: tuple[bool, ...]
    active: int | None
    gradient: int | None
    bands: tuple[int, ...]
    peak: int
    done: tuple[float, ...]
    run: tuple[int, int, int | None] | None
    step: int
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """All rows at one moment.

    Attributes:
        phase: "forward", "turn", "first" (recomputation), or "backward".
        rows: one per trace.
    """

    phase: Literal["forward", "turn", "first", "backward"]
    rows: tuple[RowMoment, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """What the explainer tells.

    Attributes:
        tiles: the layers.
        noun: of a tile: "layer", or "block" where it stands for several operators.
        traces: one per row.
        kept: for every row the tiles whose values it saves; None where it saves all.
        in_nodes: whether memory is counted in values, and work in evaluations; else memory is in
            bytes.
        unit: of work.
        highest: the largest amount of memory of any row.
        full: for every tile the most bytes of it that are in memory while another is computed.
        intervals: for every row its moments between boundaries that all rows share: each
            recomputation of a tile, then the end of the interval. The first interval is the start.
        moments: of all rows together, in order.
    """

    tiles: tuple[Tile, ...]
    noun: str
    traces: tuple[Trace, ...]
    kept: tuple[tuple[int, ...] | None, ...]
    in_nodes: bool
    unit: str
    highest: int
    full: tuple[int, ...]
    intervals: tuple[tuple[tuple[RowMoment, ...], ...], ...]
    moments: tuple[Moment, ...]

    @property
    def fullest(self) -> list[int]:
        """The most memory of each row at any of its moments."""
        return fullest_of(self.intervals)

    def at(self, stop: str) -> int:
        """Return the index of the moment of one of STOPS.

        The peak is that of the last row; where nothing is recomputed, the recomputation is too.
        """
        live = [sum(moment.rows[-1].bands) for moment in self.moments]
        first = [place for place, moment in enumerate(self.moments) if moment.phase == "first"]
        peak = live.index(max(live))
        return {
            "start": 0,
            "peak": peak,
            "first recomputation": first[-1] if first else peak,
            "end": len(self.moments) - 1,
        }[stop_of(stop)]


def story_of(traces: Trace | Sequence[Trace], most: int = 2) -> Story:
    """Return the story of one trace, below that of store-all, or of up to ``most`` of one graph.

    Raises:
        OptionError: if there are more, or none, or they are of two graphs, or of one without a
            backward pass, or without memory.
    """
    listed = as_list(traces)
    if not 1 <= len(listed) <= most or any(not trace.steps for trace in listed):
        several = "two" if most == 2 else f"up to {most}"
        raise OptionError(f"an explainer shows one trace, or {several} of one graph")
    graph = listed[-1].graph
    if any(trace.graph is not graph for trace in listed):
        raise OptionError("an explainer shows traces of one graph")
    if not graph.forward_count or graph.forward_count == len(graph.operators):
        raise OptionError(f"{graph.name} has no backward pass: there is nothing to recompute for")
    if len(listed) == 1:
        listed.insert(0, replay(evaluated_once(graph, "store_all")))
    tiles, noun = tiles_of(graph)
    in_nodes = counts_nodes(listed)
    costs = evaluations(graph) if in_nodes else work_of_operators(graph)
    rows = [RowReader(trace, tiles, in_nodes, costs) for trace in listed]
    full = tuple(
        max(most) or 1 for most in zip(*(row.most_resident() for row in rows), strict=True)
    )
    ends = set[int]().union(*(row.boundaries() for row in rows))
    intervals = tuple(tuple(row.intervals(ends, full)) for row in rows)
    highest = max(max(live_of(trace, in_nodes)) for trace in listed)
    if not highest:
        raise OptionError(f"all values of {graph.name} are of 0 bytes: there is no memory to show")
    kept = tuple(kept_of(trace, tiles) for trace in listed)
    moments = tuple(told(intervals))
    return Story(
        tiles, noun, tuple(listed), kept, in_nodes, costs.unit, highest, full, intervals, moments
    )


def work_of_operators(graph: Graph) -> Costs:
    """Return the FLOPs of a graph's operators; of a profile without them, the costs that it has."""
    known = (flops(graph), given(graph))
    return next((costs for costs in known if any(costs.operators)), evaluations(graph))


def tiles_of(graph: Graph) -> tuple[tuple[Tile, ...], str]:
    """Return the tiles of a graph, at most MOST_TILES, and the noun for one."""
    known, count = anatomy_of(graph), graph.forward_count
    parts = parts_by_scope(known, 0, count)
    if len(parts) < FEWEST_TILES:
        parts = parts_of(known, 0, count)
    if len(parts) > 1 and is_loss(graph, parts):
        parts = parts[:-1]
    size = -(-len(parts) // MOST_TILES)
    groups = [parts[place : place + size] for place in range(0, len(parts), size)]
    tiles = tuple(
        Tile(
            group[0].start, group[-1].stop,
            printable(group[0].title or graph.operators[group[0].start].name),
        )
        for group in groups
    )  # fmt: skip
    single = all(tile.stop - tile.start == 1 for tile in tiles)
    layers = all(tile.title.rpartition("/")[2].startswith("layer") for tile in tiles[1:-1])
    return tiles, "layer" if single or (layers and size == 1 and len(tiles) > 2) else "block"


def is_loss(graph: Graph, parts: Sequence[Part]) -> bool:
    """Whether the last part is the loss and no layer.

    It makes nothing but results of the graph; or it alone is in no scope.
    """
    made = [d for op in graph.operators[parts[-1].start : parts[-1].stop] for d in op.outputs]
    scoped = [bool(graph.operators[part.start].scope) for part in parts]
    return set(made) <= set(graph.outputs) or scoped == [True] * (len(parts) - 1) + [False]


def kept_of(trace: Trace, tiles: Sequence[Tile]) -> tuple[int, ...] | None:
    """Return the tiles of which something is saved; None where nothing is recomputed.

    Of a policy that says what it saves, that; else whatever its order saves. The last tile's values
    are read where the backward pass begins: to keep them is no choice.
    """
    graph, schedule = trace.graph, trace.schedule
    if not trace.recomputations:
        return None
    if "tiles" in schedule.options:  # picked by hand, counted from 1
        return tuple(number - 1 for number in schedule.options["tiles"])
    order = [step.operator for step in trace.steps if isinstance(step, EVALUATIONS)]
    values: Sequence[int] = schedule.checkpoints
    if set(values) <= set(checkpoints_of_order(graph, order)):
        values = [
            data
            for data in saved_values_of_order(graph, order)
            if graph.data[data].producer not in range(tiles[-1].start, tiles[-1].stop)
        ]
    saved = {graph.data[data].producer for data in values}
    return tuple(
        place
        for place, tile in enumerate(tiles)
        if not saved.isdisjoint(range(tile.start, tile.stop))
    )


class RowReader:
    """A trace read evaluation by evaluation."""

    def __init__(self, trace: Trace, tiles: Sequence[Tile], in_nodes: bool, costs: Costs) -> None:
        self.trace, self.tiles, self.costs = trace, tiles, costs
        self.bands = memory_bands(trace, in_nodes)
        self.peaks = np.maximum.accumulate(self.bands.sum(axis=0))
        self.tile_of_operator: dict[int, int] = {
            operator: place
            for place, tile in enumerate(tiles)
            for operator in range(tile.start, tile.stop)
        }
        for operator in trace.graph.operators[trace.graph.forward_count :]:
            if operator.adjoint_of in self.tile_of_operator:
                self.tile_of_operator[operator.id] = self.tile_of_operator[operator.adjoint_of]
        self.evaluated = list(self.read_evaluations())

    def read_evaluations(self) -> Iterator[Evaluated]:
        """Yield the evaluations of the trace."""
        graph, seen = self.trace.graph, set[int]()
        for position, step in enumerate(self.trace.steps):
            if isinstance(step, EVALUATIONS):
                work: Work = "backward" if step.operator >= graph.forward_count else "forward"
                kind: Work = "again" if step.operator in seen else work
                seen.add(step.operator)
                tile = self.tile_of_operator.get(step.operator)
                yield Evaluated(position, step.operator, kind, tile)

    def new_memory(self) -> CellMemory:
        """Return counters of the tiles' forward values, with nothing resident."""
        graph = self.trace.graph
        home = {
            data: self.tile_of_operator[operator.id]
            for operator in graph.operators[: graph.forward_count]
            if operator.id in self.tile_of_operator
            for data in operator.outputs
        }
        return CellMemory(graph, home, len(self.tiles))

    def most_resident(self) -> list[int]:
        """Return the most bytes of each tile that are resident while another is computed."""
        memory, most = self.new_memory(), [0] * len(self.tiles)
        for step in self.trace.steps:
            memory.take(step)
            if isinstance(step, EVALUATIONS):
                active = self.tile_of_operator.get(step.operator)
                is_forward = step.operator < self.trace.graph.forward_count
                for tile in memory.touched:
                    if not (is_forward and tile == active):
                        most[tile] = max(most[tile], memory.bytes[tile])
                memory.touched.clear()
                if is_forward and active is not None:
                    memory.touched.add(active)
        return most

    def boundaries(self) -> set[int]:
        """Return the numbers of first evaluations at which the row goes on to another tile."""
        useful, ends = 0, set[int]()
        for evaluated, following in zip_longest(self.evaluated, self.evaluated[1:]):
            useful += evaluated.work != "again"
            if not evaluated.continues_in(following):
                ends.add(useful)
        return ends - {0}

    def intervals(
        self, ends: Collection[int], full: Sequence[int]
    ) -> Iterator[tuple[RowMoment, ...]]:
        """Yield the start, and the moments until each number of first evaluations.

        Every recomputation of a tile is a moment, at its last evaluation, and so is every end; only
        the one in which memory is fullest shows that evaluation, be it the last or not.
        """
        memory, taken, useful = self.new_memory(), 0, 0
        computed, done = [False] * len(self.tiles), dict.fromkeys(WORKS, 0.0)
        active: int | None = None
        gradient: int | None = None
        run: tuple[int, int, int | None] | None = None
        moments: list[RowMoment] = []
        fullest: RowMoment | None = None
        totals = self.bands.sum(axis=0)
        peak = max(self.evaluated, key=lambda evaluated: totals[evaluated.position]).position

        def shown() -> RowMoment:
            bytes_, again = memory.bytes, memory.bytes_again
            return RowMoment(
                filled=tuple(min(1.0, held / f) for held, f in zip(bytes_, full, strict=True)),
                again=tuple(min(1.0, held / f) for held, f in zip(again, full, strict=True)),
                computed=tuple(computed),
                active=active,
                gradient=gradient,
                bands=tuple(map(int, self.bands[:, taken - 1])) if taken else (0,) * len(BANDS),
                peak=int(self.peaks[taken - 1]) if taken else 0,
                done=tuple(done.values()),
                run=run,
                step=taken - 1,
            )

        yield (shown(),)
        for place, (position, operator, work, tile) in enumerate(self.evaluated):
            following = self.evaluated[place + 1] if place + 1 < len(self.evaluated) else None
            if work == "again":
                if run is None:
                    run = self.run_from(place, memory)
                active = tile
            else:
                run, useful = None, useful + 1
                active = tile if work == "forward" else None
                if tile is not None and work == "forward":
                    computed[tile] = True
                elif tile is not None:
                    gradient = tile
            for step in self.trace.steps[taken : position + 1]:
                memory.take(step)
            taken = position + 1
            done[work] += self.costs.operators[operator]
            if position == peak:
                fullest = shown()
            if work == "again":
                is_told = not self.evaluated[place].continues_in(following)
            else:
                is_told = useful in ends
            if not is_told:
                continue
            moment = shown()
            if fullest is not None and following is not None:
                moment = replace(
                    moment, filled=fullest.filled, again=fullest.again, bands=fullest.bands,
                    step=fullest.step,
                )  # fmt: skip
                fullest = None
            if work != "again":
                yield (*moments, moment)
                moments = []
            else:
                moments.append(moment)

    def run_from(self, place: int, memory: CellMemory) -> tuple[int, int, int | None] | None:
        """Return the first and last tile recomputed next, and the resident one before them."""
        following = islice(self.evaluated, place, None)
        run = takewhile(lambda evaluated: evaluated.work == "again", following)
        tiles = [evaluated.tile for evaluated in run if evaluated.tile is not None]
        if not tiles:
            return None
        first, last = min(tiles), max(tiles)
        return first, last, max((k for k in range(first) if memory.bytes[k]), default=None)


def fullest_of(rows: Sequence[Sequence[Sequence[RowMoment]]]) -> list[int]:
    """Return the most memory of each row at any of its moments."""
    return [max(sum(moment.bands) for interval in row for moment in interval) for row in rows]


def told(rows: Sequence[Sequence[Sequence[RowMoment]]]) -> Iterator[Moment]:
    """Yield the moments of some rows' intervals, in step; thinned to about MOST_MOMENTS.

    A row that has nothing to recompute, or has done so, waits for those that do.
    """
    (start, *intervals) = zip(*rows, strict=True)
    count = len(intervals) + max(sum(len(each) - 1 for each in row) for row in rows)
    stride = -(-count // MOST_MOMENTS)
    peaks = fullest_of(rows)
    told_first = False
    number = 0

    def must_be_told() -> bool:
        full = any(sum(m.bands) == peak for m, peak in zip(now, peaks, strict=True))
        return number % stride == 0 or full

    now = [moments[-1] for moments in start]
    yield Moment("forward", tuple(now))
    for place, interval in enumerate(intervals, 1):
        for turn in range(max(map(len, interval)) - 1):
            waits = [turn >= len(moments) - 1 for moments in interval]
            now = [
                replace(before, active=None, run=None, waits=True) if waiting else moments[turn]
                for before, waiting, moments in zip(now, waits, interval, strict=True)
            ]
            number += 1
            if not told_first or must_be_told():
                yield Moment("backward" if told_first else "first", tuple(now))
        told_first |= any(len(moments) > 1 for moments in interval)
        begun = any(row.done[1] for row in now)
        now = [moments[-1] for moments in interval]
        number += 1
        phase: Literal["forward", "turn", "backward"] = "backward" if begun else "forward"
        if not begun and any(row.done[1] for row in now):
            phase = "turn"
        if phase == "turn" or must_be_told() or place == len(intervals):
            yield Moment(phase, tuple(now))
