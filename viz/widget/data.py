"""Trace data of the widget: the story of up to eight traces of a graph as JSON of at most 8 KB.

A row is a text, its moments one after the other, each as what changed since the one before: a
symbol and an amount. A comma ends a recomputation, a full stop an interval between boundaries that
all rows share. Of a tile the amounts are 63rds of its most, one digit; all others have two digits,
in 4095ths of the most, or exact where that is no more. Digits are those of base 64.
``assets/moments.js`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import OptionError
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.replay import replay

from ..explainer.drawing import heading_of, subtitle_of, work_of
from ..explainer.story import RowMoment, Story, story_of
from ..scene import as_list, what_of

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.portfolio.pareto import Frontier

    Shown = Trace | Sequence[Trace] | Frontier

MOST_SCHEDULES = 8
MOST_BYTES = 8000  # of the data
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
LEVELS = len(DIGITS) - 1  # of a tile
AMOUNTS = len(DIGITS) ** 2 - 1
RECOMPUTED = len(DIGITS) // 2  # the symbol of a tile's recomputed values, after its own
# Symbols: memory outside of tiles, gradients, workspace, the peak so far; the work by WORKS; the
# tile that is computed, and the one that the gradient has reached.
OTHER, GRADIENTS, WORKSPACE, PEAK, WORK, ACTIVE, GRADIENT = "*", "+", "!", "^", "()~", "@", "$"
WITH_DIGITS = str.maketrans("()~", "[]=")  # the work of a moment that adds more or less than before
NEAR = 4  # of AMOUNTS: work that is as much as before
NO_TILE, NEXT, PREVIOUS = "?", ":", ";"  # the tile after the active one; before the gradient's
SHORT = 600  # symbols of a row that no recomputation is left out of
MOST_LEFT_OUT = 32  # recomputations between two that are told
DRIFT = 64  # memory outside of tiles is told when it is off by this part of the highest


def widget_data(shown: Shown, steps: bool = False) -> dict[str, Any]:
    """Return the data of a widget, with store-all first; with ``steps`` those of its moments too.

    Where all moments would take more than MOST_BYTES, boundaries within a tile are left out; then
    recomputations of the longest row, every second or more; then boundaries.

    Raises:
        OptionError: if there are too many traces, or they have no story.
    """
    story = story_of(traces_of(shown), MOST_SCHEDULES)
    boundaries, every = 0, [1] * len(story.traces)
    texts: dict[tuple[int, int, int], str] = {}  # of rows, by what is left out of them
    while len(json_bytes(found := encoded(story, boundaries, every, texts))) > MOST_BYTES:
        lengths = [
            len(row["moments"]) if boundaries and every[place] < MOST_LEFT_OUT else 0
            for place, row in enumerate(found["rows"])
        ]
        if max(lengths) > SHORT:
            every[lengths.index(max(lengths))] += 1
        else:
            boundaries += 1
    if steps:
        told = told_boundaries(story, boundaries)
        for row, each in enumerate(found["rows"]):
            moments = told_moments(story, row, told, every[row])
            each["steps"] = [moment.step for moment, _ in moments]
    return found


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return the data as JSON."""
    return json.dumps(data, separators=(",", ":")).encode()


def traces_of(shown: Shown) -> list[Trace]:
    """Return the traces of a widget: store-all, and what is given; of a frontier, eight points."""
    points = getattr(shown, "points", None)
    if points is None:
        traces = as_list(shown)
        count = MOST_SCHEDULES - all(t.schedule.policy != "store_all" for t in traces)
        if len(traces) > count:
            raise OptionError(f"{len(traces)} traces: expected at most {count}, and store-all")
    else:
        last = len(points) - 1
        places = {round(k * last / (MOST_SCHEDULES - 1)) for k in range(MOST_SCHEDULES)}
        peaks = [points[place].peak for place in sorted(places)]
        traces = [replay(shown.cheapest(peak, certified=False)) for peak in peaks]  # type: ignore[union-attr]
    first = [trace for trace in traces if trace.schedule.policy == "store_all"]
    rest = [trace for trace in traces if trace.schedule.policy != "store_all"]
    if rest and not first:
        first = [replay(evaluated_once(rest[0].graph, "store_all"))]
    return [*first[:1], *rest]


def encoded(
    story: Story, boundaries: int, every: Sequence[int], texts: dict[tuple[int, int, int], str]
) -> dict[str, Any]:
    """Return a story as data.

    Args:
        story: of all rows.
        boundaries: 0 for all, else every n-th at which store-all goes on to another tile.
        every: for each row, of how many recomputations one is told.
        texts: of rows that are known already; others are added.
    """
    works = [work_of(story, row) for row in range(len(story.traces))]
    scale, work_scale = (most / min(most, AMOUNTS) for most in (story.highest, max(works)))
    sizes, told = tile_sizes(story), told_boundaries(story, boundaries)
    keys = [(row, boundaries, every[row]) for row in range(len(works))]
    for key in keys:
        if key not in texts:
            texts[key] = "".join(row_text(story, key[0], told, key[2], scale, work_scale))
    rows = [
        {
            "policy": trace.schedule.policy,
            "heading": heading_of(story, row),
            "subtitle": subtitle_of(story, row),
            "kept": None if (kept := story.kept[row]) is None else [*kept],
            "peak": trace.peak_nodes if story.in_nodes else trace.peak_bytes,
            "work": works[row],
            "moments": texts[keys[row]],
        }
        for row, trace in enumerate(story.traces)
    ]
    return {
        "format": 1,
        "name": what_of(story.traces[0]),
        "noun": story.noun,
        "tiles": [tile.title for tile in story.tiles],
        "sizes": "".join(amount(size / scale) for size in sizes),
        "unit": "values" if story.in_nodes else "bytes",
        "scale": scale,
        "workScale": work_scale,
        "rows": rows,
    }


def tile_sizes(story: Story) -> list[float]:
    """Return what a full tile stands for, in the story's unit."""
    value = max(data.nbytes for data in story.traces[0].graph.data if not data.is_source)
    return [size / value if story.in_nodes else size for size in story.full]


def amount(number: float) -> str:
    """Return an amount as two digits.

    >>> amount(0), amount(64.2), amount(4095)
    ('00', '10', '__')
    """
    high, low = divmod(min(round(number), AMOUNTS), len(DIGITS))
    return DIGITS[high] + DIGITS[low]


def level(share: float) -> int:
    """Return a share of a tile as a level; 0 only if it is nothing."""
    return max(round(LEVELS * share), share > 0)


def told_boundaries(story: Story, every: int) -> set[int]:
    """Return the intervals whose ends are told."""
    ends = [interval[-1] for interval in story.intervals[0][1:]]
    if not every:
        return {*range(len(ends))}
    goes_on = [(a.active, a.gradient) != (b.active, b.gradient) for a, b in pairwise(ends)]
    turn = next(place for place, end in enumerate(ends) if end.done[1])
    places = [place for place, changed in enumerate(goes_on) if changed]
    full = {
        place
        for row, peak in zip(story.intervals, fullest(story), strict=True)
        for place, interval in enumerate(row[1:])
        if any(sum(moment.bands) == peak for moment in interval)
    }
    return {*places[every - 1 :: every], *full, max(turn - 1, 0), turn, len(ends) - 1}


def fullest(story: Story) -> list[int]:
    """Return the most memory of each row at any of its moments."""
    return [max(sum(m.bands) for interval in row for m in interval) for row in story.intervals]


def told_moments(
    story: Story, row: int, told: Collection[int], every: int
) -> Iterator[tuple[RowMoment, str]]:
    """Yield the moments of a row that are told, each with the symbol that ends it."""
    count, peak = 0, fullest(story)[row]
    for place, interval in enumerate(story.intervals[row][1:]):
        for moment in interval[:-1]:
            if count % every == 0 or sum(moment.bands) == peak:
                yield moment, ","
            count += 1
        if place in told:
            yield interval[-1], "."


def row_text(
    story: Story, row: int, told: Collection[int], every: int, scale: float, work_scale: float
) -> Iterator[str]:
    """Yield the parts of a row's text."""
    sizes = tile_sizes(story)
    before: dict[str, str] = {}
    other = 0.0
    active: int | None = None
    gradient: int | None = None
    # Work so far, and what was added last, by kind: it is added again where no digits follow.
    sums, added = dict.fromkeys(WORK, 0), dict.fromkeys(WORK, 0)

    def change(symbol: str, text: str, usual: str) -> str:
        known, before[symbol] = before.get(symbol, usual), text
        return symbol + text if text != known else ""

    for moment, end in told_moments(story, row, told, every):
        if moment.active != active:
            yield tile_text(
                ACTIVE, moment.active, NEXT if moment.active == (active or 0) + 1 else ""
            )
        if moment.gradient != gradient:
            yield tile_text(
                GRADIENT,
                moment.gradient,
                PREVIOUS if moment.gradient == (gradient or 0) - 1 else "",
            )
        active, gradient = moment.active, moment.gradient
        inside = 0.0
        for place, (filled, again) in enumerate(zip(moment.filled, moment.again, strict=True)):
            kept = level(filled - again)
            inside += kept / LEVELS * sizes[place]
            yield change(DIGITS[place], DIGITS[kept], "0")
            yield change(DIGITS[RECOMPUTED + place], DIGITS[level(again)], "0")
        if abs(moment.bands[0] - inside - other) > story.highest / DRIFT:
            other = max(0.0, moment.bands[0] - inside)
        yield change(OTHER, amount(other / scale), "00")
        yield change(GRADIENTS, amount(moment.bands[2] / scale), "00")
        yield change(WORKSPACE, amount(moment.bands[3] / scale), "00")
        yield change(PEAK, amount(moment.peak / scale), "00")
        for symbol, done in zip(WORK, moment.done, strict=True):
            more = max(round(done / work_scale), done > 0) - sums[symbol]
            if more > 0:
                near = NEAR if work_scale > 1 and added[symbol] else 0
                alike = abs(more - added[symbol]) <= near
                added[symbol] = added[symbol] if alike else more
                sums[symbol] += added[symbol]
                yield symbol if alike else symbol.translate(WITH_DIGITS) + amount(more)
        yield end


def tile_text(symbol: str, tile: int | None, short: str) -> str:
    """Return the text of another tile that is computed, or that the gradient has reached."""
    return short or symbol + (NO_TILE if tile is None else DIGITS[tile])
