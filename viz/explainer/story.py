"""Storyboard of the explainer: one or two traces as moments, aligned by progress.

Traces come in, a frozen ``Story`` comes out: for every moment the share of each layer's values in
memory, what is live, and the work done so far. Progress is the number of operators evaluated for
the first time: a row that recomputes falls behind, and the others wait for it. Evaluations of one
kind in one layer share a moment; of a long trace only every n-th moment is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from tinyckpt.base.errors import OptionError
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS

from ..layout.drawn_nodes import printable
from ..layout.partition import Part, anatomy_of, parts_by_scope, parts_of
from ..memory_curve import memory_bands
from ..node_memory import CellMemory
from ..scene import as_list, counts_nodes, live_of

if TYPE_CHECKING:
    from tinyckpt.core.costs import Costs
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace

MOST_TILES = 32  # more do not fit into a row; neighbours share one
FEWEST_TILES = 4  # scopes; of fewer, the operators are shown
MOST_MOMENTS = 150  # of the whole story, but for the first recomputation: some 25 seconds
STOPS = ("start", "peak", "recomputation", "end")
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


class Beat(NamedTuple):
    """Consecutive evaluations of one kind in one tile.

    Attributes:
        work: the kind: first evaluations in the forward or in the backward pass, or recomputations.
        tile: of the operators, or of the forward operators whose gradients they compute; None for
            the loss.
        first, last: the steps of the trace.
        times: evaluations.
    """

    work: Work
    tile: int | None
    first: int
    last: int
    times: int


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
    waits: bool


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
        in_nodes: whether memory is counted in values, and work in evaluations; else they are bytes
            and FLOPs.
        highest: the largest amount of memory of any row.
        moments: in order.
    """

    tiles: tuple[Tile, ...]
    noun: str
    traces: tuple[Trace, ...]
    kept: tuple[tuple[int, ...] | None, ...]
    in_nodes: bool
    highest: int
    moments: tuple[Moment, ...]

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
            "recomputation": first[-1] if first else peak,
            "end": len(self.moments) - 1,
        }[stop]


def story_of(traces: Trace | Sequence[Trace]) -> Story:
    """Return the story of one trace, below that of store-all, or of two traces of one graph.

    Raises:
        OptionError: if there are more, or none, or they are of two graphs, or of one without a
            backward pass.
    """
    listed = as_list(traces)
    if not 1 <= len(listed) <= 2 or any(not trace.steps for trace in listed):
        raise OptionError("an explainer shows one trace, or two of one graph")
    graph = listed[-1].graph
    if any(trace.graph is not graph for trace in listed):
        raise OptionError("an explainer shows traces of one graph")
    if not graph.forward_count or graph.forward_count == len(graph.operators):
        raise OptionError(f"{graph.name} has no backward pass: there is nothing to recompute for")
    if len(listed) == 1:
        listed.insert(0, replay(evaluated_once(graph, "store_all")))
    tiles, noun = tiles_of(graph)
    in_nodes = counts_nodes(listed)
    costs = evaluations(graph) if in_nodes else flops(graph)
    rows = [RowReader(trace, tiles, in_nodes, costs) for trace in listed]
    full = [max(most) or 1 for most in zip(*(row.most for row in rows), strict=True)]
    moments = tuple(told(rows, full))
    highest = max(max(live_of(trace, in_nodes)) for trace in listed)
    kept = tuple(row.kept() for row in rows)
    return Story(tiles, noun, tuple(listed), kept, in_nodes, highest, moments)


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


class RowReader:
    """A trace read beat by beat; ``moment`` is its row as it stands."""

    def __init__(self, trace: Trace, tiles: Sequence[Tile], in_nodes: bool, costs: Costs) -> None:
        self.trace, self.tiles, self.costs = trace, tiles, costs
        self.bands = memory_bands(trace, in_nodes)
        self.tile_of_operator: dict[int, int] = {
            operator: place
            for place, tile in enumerate(tiles)
            for operator in range(tile.start, tile.stop)
        }
        for operator in trace.graph.operators[trace.graph.forward_count :]:
            if operator.adjoint_of in self.tile_of_operator:
                self.tile_of_operator[operator.id] = self.tile_of_operator[operator.adjoint_of]
        self.most = self.most_resident()
        self.beats = list(self.read_beats())
        self.begin()

    def begin(self) -> None:
        """Go to the moment before the first step."""
        self.memory = self.new_memory()
        self.taken = self.useful = 0
        self.computed = [False] * len(self.tiles)
        self.done = dict.fromkeys(WORKS, 0.0)
        self.active: int | None = None
        self.gradient: int | None = None
        self.run: tuple[int, int, int | None] | None = None
        self.place = 0  # of the next beat

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

    def read_beats(self) -> Iterator[Beat]:
        """Yield the beats of the trace."""
        graph, seen = self.trace.graph, set[int]()
        kinds: list[tuple[int, Work, int | None]] = []
        for position, step in enumerate(self.trace.steps):
            if isinstance(step, EVALUATIONS):
                work: Work = "backward" if step.operator >= graph.forward_count else "forward"
                kind: Work = "again" if step.operator in seen else work
                seen.add(step.operator)
                kinds.append((position, kind, self.tile_of_operator.get(step.operator)))
        for (work, tile), group in groupby(kinds, key=lambda kind: kind[1:]):
            positions = [position for position, _, _ in group]
            yield Beat(work, tile, positions[0], positions[-1], len(positions))

    def kept(self) -> tuple[int, ...] | None:
        """Return the tiles of which a checkpoint is saved; None where nothing is recomputed."""
        if not self.trace.recomputations:
            return None
        graph = self.trace.graph
        producers = [graph.data[data].producer for data in self.trace.schedule.checkpoints]
        return tuple(
            sorted({self.tile_of_operator[i] for i in producers if i in self.tile_of_operator})
        )

    def next_run(self) -> list[Beat]:
        """Return the recomputations before the next useful evaluation."""
        beats = []
        for beat in self.beats[self.place :]:
            if beat.work != "again":
                break
            beats.append(beat)
        return beats

    def recompute(self, beats: Sequence[Beat], whole: Sequence[Beat]) -> None:
        """Play some of the recomputations of a run."""
        tiles = [beat.tile for beat in whole if beat.tile is not None]
        if tiles:
            source = max((k for k in range(min(tiles)) if self.share(k)), default=None)
            if self.run is None or self.run[:2] != (min(tiles), max(tiles)):
                self.run = min(tiles), max(tiles), source
        for beat in beats:
            self.play(beat.last, beat.work)
            self.active = beat.tile
        self.place += len(beats)

    def advance(self, useful: int) -> None:
        """Play useful beats until so many first evaluations are done, and no recomputation."""
        self.run = None
        while self.useful < useful:
            beat = self.beats[self.place]
            count = min(beat.times, useful - self.useful)
            last = self.nth_evaluation(beat, count)
            self.play(last, beat.work)
            self.useful += count
            self.active = beat.tile
            if beat.work == "backward":
                self.gradient = self.gradient if beat.tile is None else beat.tile
                self.active = None
            elif beat.tile is not None:
                self.computed[beat.tile] = True
            if count < beat.times:
                self.beats[self.place] = beat._replace(first=last + 1, times=beat.times - count)
            else:
                self.place += 1

    def nth_evaluation(self, beat: Beat, count: int) -> int:
        """Return the step of the n-th evaluation of a beat."""
        if count == beat.times:
            return beat.last
        positions = (
            position for position in range(beat.first, beat.last + 1)
            if isinstance(self.trace.steps[position], EVALUATIONS)
        )  # fmt: skip
        return next(position for n, position in enumerate(positions, 1) if n == count)

    def play(self, last: int, work: Work) -> None:
        """Take the steps up to one."""
        for step in self.trace.steps[self.taken : last + 1]:
            self.memory.take(step)
            if isinstance(step, EVALUATIONS):
                self.done[work] += self.costs.operators[step.operator]
        self.taken = last + 1

    def share(self, tile: int) -> int:
        """Return the resident bytes of a tile."""
        return self.memory.bytes[tile]

    def moment(self, full: Sequence[int], waits: bool = False) -> RowMoment:
        """Return the row as it stands."""
        bytes_, again = self.memory.bytes, self.memory.bytes_again
        step = self.taken - 1
        return RowMoment(
            filled=tuple(min(1.0, held / most) for held, most in zip(bytes_, full, strict=True)),
            again=tuple(min(1.0, held / most) for held, most in zip(again, full, strict=True)),
            computed=tuple(self.computed),
            active=None if waits else self.active,
            gradient=self.gradient,
            bands=tuple(int(band) for band in self.bands[:, step]) if step >= 0 else (0, 0, 0, 0),
            peak=int(self.bands[:, : step + 1].sum(axis=0).max()) if step >= 0 else 0,
            done=tuple(self.done.values()),
            run=None if waits else self.run,
            waits=waits,
        )


def told(rows: Sequence[RowReader], full: Sequence[int]) -> Iterator[Moment]:
    """Yield the moments of some rows, in step; thinned to about MOST_MOMENTS."""
    ends = boundaries(rows)
    count = len(ends) + max(sum(beat.work == "again" for beat in row.beats) for row in rows)
    stride = -(-count // MOST_MOMENTS)
    phase: Literal["forward", "turn", "first", "backward"] = "forward"
    told_first = False
    number = 0

    def shown(waits: Sequence[bool]) -> Moment:
        return Moment(phase, tuple(row.moment(full, w) for row, w in zip(rows, waits, strict=True)))

    together = [False] * len(rows)
    yield shown(together)
    for end in ends:
        runs = [row.next_run() for row in rows]
        for turn in range(max(map(len, runs))):
            for row, run in zip(rows, runs, strict=True):
                row.recompute(run[turn : turn + 1], run)
            phase = "backward" if told_first else "first"
            number += 1
            if not told_first or number % stride == 0:
                yield shown([turn >= len(run) for run in runs])
        told_first |= any(runs)
        before = [row.done["backward"] for row in rows]
        for row in rows:
            row.advance(end)
        number += 1
        begun = any(row.done["backward"] for row in rows)
        phase = "backward" if any(before) else "turn" if begun else "forward"
        if phase == "turn" or number % stride == 0 or end == ends[-1]:
            yield shown(together)


def boundaries(rows: Sequence[RowReader]) -> list[int]:
    """Return the numbers of first evaluations at which a row goes on to another tile."""
    ends: set[int] = set()
    for row in rows:
        useful = 0
        for beat in row.beats:
            useful += beat.times if beat.work != "again" else 0
            ends.add(useful)
    return sorted(ends - {0})
