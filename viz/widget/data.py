"""Delta encoding of the widget's traces: their story as JSON of at most 8 KB.

A row is a text: its moments one after the other, each as what changed since the one before. A
change is a symbol and an amount in base 64. A tile is its own symbol, and its amount is one digit:
how full it is, in 63rds. All other amounts have two digits: memory and work, in 4095ths of the
largest of all rows, or exact where that is not more than 4095. A comma ends a recomputation, a full
stop an interval between boundaries that all rows share. So the first layer of a chain of 16,
computed and in memory, is ``@00_^01[01.``: tile 0 is active and full (``_`` is 63), the peak so far
is 1, forward work 1. ``assets/moments.js`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import BudgetError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.replay import replay
from tinyckpt.planner.model.budget import parse_written_budget

from ..explainer.drawing import heading_of, offloads, subtitle_of, work_of
from ..explainer.story import RowMoment, Story, story_of
from ..scene import as_list, what_of

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.portfolio.pareto import Frontier

    Shown = Trace | Sequence[Trace] | Frontier

BUDGET_FORMS = "'9' values, '50 %' of store-all's peak, or '1.5 GiB'"
MOST_SCHEDULES = 8
MOST_BYTES = 8000  # of the data
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
LEVELS = len(DIGITS) - 1  # of a tile
AMOUNTS = len(DIGITS) ** 2 - 1
RECOMPUTED = len(DIGITS) // 2  # the symbol of a tile's recomputed values, after its own
# Symbols: memory outside of tiles, gradients on their way, those that are results, workspace, the
# peak so far; the work by WORKS; the tile that is computed, and the one that the gradient has
# reached.
OTHER, GRADIENTS, RESULTS, WORKSPACE, PEAK = "*+%!^"
WORK, ACTIVE, GRADIENT = "()~", "@", "$"
WITH_DIGITS = str.maketrans("()~", "[]=")  # the work of a moment that adds more or less than before
NEAR = 4  # of AMOUNTS: work that is as much as before
NO_TILE, NEXT, PREVIOUS = "?", ":", ";"  # the tile after the active one; before the gradient's
SHORT = 600  # symbols of a row that no recomputation is left out of
MOST_LEFT_OUT = 32  # recomputations between two that are told
DRIFT = 64  # memory outside of tiles is told when it is off by this part of the highest


def row_shown(
    data: Mapping[str, Any], policy: str | None = None, budget: str | int | float | None = None
) -> int:
    """Return the row of some data that a widget shows: what its script chooses, too.

    Args:
        data: as ``widget_data`` returns them.
        policy: of the schedule; by default the second row.
        budget: the schedule with the least work within it, instead of one by its policy.

    Raises:
        OptionError: if there is no such policy, or none within the budget.
    """
    rows = data["rows"]
    policies = [row["policy"] for row in rows]
    if policy is not None and policy not in policies:
        raise OptionError(f"policy {policy!r}: the data have {', '.join(policies)}")
    if budget is None:
        return policies.index(policy) if policy else min(1, len(rows) - 1)
    try:
        written = parse_written_budget(budget, BUDGET_FORMS)
    except BudgetError as error:
        raise OptionError(str(error)) from None
    if written.is_total or written.unit == {"values": "bytes", "bytes": "nodes"}[data["unit"]]:
        raise OptionError(f"budget {budget!r} for {data['unit']}; expected {BUDGET_FORMS}")
    most = written.amount * (rows[0]["peak"] if written.unit == "share" else 1)
    fitting = [place for place, row in enumerate(rows) if row["peak"] <= most]
    if not fitting:
        least = min(row["peak"] for row in rows)
        text = str(least) if data["unit"] == "values" else size_text(least)
        raise OptionError(f"budget {budget!r}: the least here is {text}")
    return min(fitting, key=lambda place: rows[place]["work"])


def widget_data(shown: Shown, steps: bool = False) -> dict[str, Any]:
    """Return the data of a widget, with store-all first; with ``steps`` those of its moments too.

    Where all moments would take more than MOST_BYTES, boundaries within a tile are left out; then
    recomputations of the longest row, every second or more; then boundaries.

    Raises:
        OptionError: if there are too many traces, or they have no story, or their data are too long
            whatever is left out.
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
        elif boundaries <= len(story.intervals[0]):
            boundaries += 1
        else:
            raise OptionError(
                f"the data take {len(json_bytes(found)):,} bytes, of at most {MOST_BYTES:,}: show "
                "fewer traces, or policies of shorter names"
            )
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
    return [*first[:1], *(rest or first[:1])]


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
            **({"host": True} if offloads(story, row) else {}),
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
        "tiles": len(story.tiles),
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
    changes = [(a.active, a.gradient) != (b.active, b.gradient) for a, b in pairwise(ends)]
    turn = next(place for place, end in enumerate(ends) if end.done[1])
    places = [place for place, changed in enumerate(changes) if changed]
    full = {fullest_at(story, row)[0] for row in range(len(story.intervals))}
    return {*places[every - 1 :: every], *full, max(turn - 1, 0), turn, len(ends) - 1}


def fullest_at(story: Story, row: int) -> tuple[int, int]:
    """Return where a row first has its peak: the interval, and the moment within it."""
    peak = story.fullest[row]
    return next(
        (place, at)
        for place, interval in enumerate(story.intervals[row][1:])
        for at, moment in enumerate(interval)
        if sum(moment.bands) == peak
    )


def told_moments(
    story: Story, row: int, told: Collection[int], every: int
) -> Iterator[tuple[RowMoment, str]]:
    """Yield the moments of a row that are told, each with the symbol that ends it."""
    count, full = 0, fullest_at(story, row)
    for place, interval in enumerate(story.intervals[row][1:]):
        for at, moment in enumerate(interval[:-1]):
            if count % every == 0 or (place, at) == full:
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
            kept, recomputed = level(filled - again), level(again)
            inside += (kept + recomputed) / LEVELS * sizes[place]
            yield change(DIGITS[place], DIGITS[kept], "0")
            yield change(DIGITS[RECOMPUTED + place], DIGITS[recomputed], "0")
        outside = max(0.0, sum(moment.bands[:2]) - inside)
        if abs(outside - other) > story.highest / DRIFT:
            other = outside
        yield change(OTHER, amount(other / scale), "00")
        yield change(GRADIENTS, amount(moment.bands[2] / scale), "00")
        yield change(RESULTS, amount(moment.bands[3] / scale), "00")
        yield change(WORKSPACE, amount(moment.bands[4] / scale), "00")
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
