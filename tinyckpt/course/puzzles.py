"""Graded puzzles on recomputation, each with a proven optimum; one row of a table per puzzle.

An answer is a keep set, an order of evaluations or a policy, a function, the lanes of a pipeline,
or offsets in a buffer. It becomes data, which is replayed here; its score is the exact peak and
cost of that replay against the optimum. Optima are recorded, and not searched for when an answer is
checked: each comes with its proof, by a planner's certificate or in closed form, and a test repeats
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from math import comb
from textwrap import fill, shorten
from typing import Any, Literal

import numpy as np

import tinyckpt as tc
from tinyckpt.base.errors import OptionError, ScheduleError, TinyckptError, did_you_mean
from tinyckpt.base.units import cost_text, memory_text
from tinyckpt.course.mistakes import first_mistake, peak_told, schedule_of, some
from tinyckpt.course.rows import KIB, graph_of_rows
from tinyckpt.pipeline import PipelineCosts, PipelineTrace, replay_pipeline
from tinyckpt.pipeline.program import Kind, Lane, with_messages

Form = Literal["keep", "order", "function", "lanes", "offsets"]
POINTS = 10
WIDTH = 90  # of statements, in columns
MOST_ENTRIES = 100_000  # of an order or a schedule
MOST_KIB = 1023  # of an offset
FORMS: dict[str, str] = {
    "keep": "a list of the names of forward values to save, or a function of the graph that "
    "returns it. The others are recomputed once, when the backward pass first reads them.",
    "order": "the order in which operators are evaluated, a list of names or numbers. An operator "
    "that comes twice is recomputed; each value is freed after its last use. Or a policy: a "
    "function of the graph that returns such an order, or a tc.Schedule.",
    "function": "a function that returns an integer.",
    "lanes": "a list of four texts, one per device, such as 'F0 F1 B0 B1'.",
    "offsets": "a list of offsets in KiB, one for each value in this order.",
}


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle: its statement, and the proven optimum.

    Attributes:
        title, statement: in words.
        form: of the answer, one of FORMS.
        optimum: the least cost within the budget, the least peak if ``unit`` is ``peak``, or the
            least time of a pipeline; of a function, the number of its cases; of offsets, the least
            bytes.
        proof: why there is nothing better.
        graph: makes the graph of a keep set, an order or offsets.
        budget: the largest peak, in nodes or bytes; None for none.
        memory: the unit of peaks, ``nodes`` or ``bytes``.
        minimise: ``cost`` or ``peak``.
        most: for a keep set the largest number of values; for an order, of evaluations.
        cases: of a function, its arguments; expected is what it should return for them.
        in_flight: of a pipeline, the most micro-batches in flight on each device.
        split: of a pipeline, whether W is separate from B.
    """

    title: str
    statement: str
    form: Form
    optimum: int
    proof: str
    graph: Callable[[], tc.Graph] | None = None
    budget: int | None = None
    memory: Literal["nodes", "bytes"] = "nodes"
    minimise: Literal["cost", "peak"] = "cost"
    most: int | None = None
    cases: tuple[tuple[int, ...], ...] = ()
    expected: Callable[..., int] | None = None
    in_flight: tuple[int, ...] = ()
    split: bool = False

    def made_graph(self) -> tc.Graph:
        """Return the graph of a puzzle that has one."""
        assert self.graph is not None
        return self.graph()


SUM = """v0 x 1; v1 x 1; v2 x 1; v3 x 1; v4 x 1; v5 x 1; v6 x 1; v7 x 1; s0 v0,v1 1; s1 v2,v3 1;
s2 v4,v5 1; s3 v6,v7 1; s4 s0,s1 1; s5 s2,s3 1; s6 s4,s5 1"""
THIN = """a1 x 8; a2 a1 8; a3 a2 1; b1 a3 8; b2 b1 8; b3 b2 1; c1 b3 8; c2 c1 8; c3 c2 1; l c3 0"""
CONVOLUTIONS = """conv1 x 4 9; relu1 conv1 4; conv2 relu1 4 9; relu2 conv2 4; conv3 relu2 4 9;
relu3 conv3 4; conv4 relu3 4 9; relu4 conv4 4; l relu4 0"""
BLOCKS = """qkv1 x 6 6; scores1 qkv1 8 2; softmax1 scores1 8; mix1 softmax1,qkv1 2 4; add1 mix1,x 2;
up1 add1 8 8; gelu1 up1 8; down1 gelu1,add1 2 8; qkv2 down1 6 6; scores2 qkv2 8 2;
softmax2 scores2 8; mix2 softmax2,qkv2 2 4; add2 mix2,down1 2; up2 add2 8 8; gelu2 up2 8;
down2 gelu2,add2 2 8; l down2 0"""
UNET = """d1 x 8; d2 d1 8; d3 d2 8; e1 d3 4; e2 e1 4; e3 e2 4; m1 e3 2; m2 m1 2; m3 m2 2;
u1 m3,e3 4; u2 u1 4; v1 u2,d3 8; v2 v1 8; v3 v2 8; l v3 0"""
LAYERED = """v0 x 4 9; v1 v0 5 10; v2 v0 3 11; v3 v0 5 12; v4 v0 2 13; v5 v0 1 19; v6 v1 4 6;
v7 v1,v2,v3 5 10; v8 v2,v4,v5 1 6; v9 v6 1 15; v10 v7,v8 5 3; v11 v8 1 16; v12 v5,v8 3 7;
v13 v9 1 3; v14 v0,v7,v10,v11,v12 3 12; v15 v13,v14 1 15"""
BUFFER = """v0 x 2; v1 v0 4; v2 v1 6; v3 v2,v1 2; v4 v3,v0 3; v5 v4 4; v6 v5 8; v7 v6,v3 5;
v8 v7,v3 6; v9 v8 8"""
BY_SOLVER = "the policy optimal certifies it: CP-SAT, over all schedules"
BINOMIAL = "Griewank and Walther, ACM TOMS 26 (2000): Revolve is optimal on a uniform chain"

# fmt: off
PUZZLES: dict[int, Puzzle] = dict(enumerate([
    Puzzle(
        "Two checkpoints on a chain of nine",
        "Save two of the nine forward values so that the peak is as small as can be.",
        "keep", 5, "all 46 keep sets of at most two values were tried",
        lambda: tc.networks.chain(9), minimise="peak", most=2,
    ),
    Puzzle(
        "As little memory as there is",
        "Three values in memory are the least on a chain. Four layers: how few evaluations?",
        "order", 15, "n (n + 1) / 2 + n + 1 evaluations with n layers; certified by Revolve",
        lambda: tc.networks.chain(4), budget=3,
    ),
    Puzzle(
        "The square root",
        "Sixteen layers in half of the memory that saving everything takes: nine values.",
        "order", 42, "2 n + 1 + (k - 1)^2 evaluations with n = k^2 layers; " + BINOMIAL,
        lambda: tc.networks.chain(16), budget=9,
    ),
    Puzzle(
        "Below the square root",
        "The same sixteen layers within five values. Cut the segments again.",
        "order", 53, BINOMIAL, lambda: tc.networks.chain(16), budget=5,
    ),
    Puzzle(
        "The price of the square root",
        "answer(n) is the number of evaluations that sqrt(n) takes on a chain of n layers, n being "
        "a square.",
        "function", 6, "closed form: 2 n + 1 + (k - 1)^2 with n = k^2",
        cases=((1,), (4,), (9,), (16,), (100,), (10_000,)),
        expected=lambda n: 2 * n + 1 + (round(n**0.5) - 1) ** 2,
    ),
    Puzzle(
        "How far do s checkpoints reach?",
        "answer(s, r) is the length of the longest chain that can be reversed with s checkpoints "
        "at a time, the input among them, if no step is advanced through more than r times. With "
        "one checkpoint it is r + 1 steps; with any number and r = 1, s + 1.",
        "function", 6, "closed form: the binomial coefficient (s + r) over s; " + BINOMIAL,
        cases=((1, 1), (1, 5), (4, 1), (3, 2), (3, 3), (10, 10)),
        expected=lambda s, r: comb(s + r, s),
    ),
    Puzzle(
        "A sum of eight",
        "Eight leaves are added in pairs, pairs of pairs, and all. Evaluate each operator once, in "
        "an order with the smallest peak.",
        "order", 5, "closed form: depth + 2 of a complete binary tree; Sethi and Ullman, JACM 17 "
        "(1970)", lambda: graph_of_rows("sum of eight", SUM), minimise="peak", most=15,
    ),
    Puzzle(
        "Thin places",
        "Every third value is an eighth of the size of the others. Half of the memory, with as few "
        "evaluations as can be: which values are saved?",
        "keep", 25, BY_SOLVER,
        lambda: graph_of_rows("thin places", THIN, 1), budget=33 * KIB, memory="bytes",
    ),
    Puzzle(
        "Expensive and cheap",
        "All values are of one size. A convolution costs 9, a relu 1. Six values, or 24 KiB: "
        "which are saved?",
        "keep", 94, BY_SOLVER,
        lambda: graph_of_rows("convolutions", CONVOLUTIONS, 4), budget=24 * KIB, memory="bytes",
    ),
    Puzzle(
        "Selective recomputation",
        "Two transformer blocks in 70 % of their memory. Attention scores and their softmax are "
        "large and cheap; what else is?",
        "keep", 131, "a certificate of the planner, over all schedules",
        lambda: graph_of_rows("two blocks", BLOCKS, 2), budget=72 * KIB, memory="bytes",
    ),
    Puzzle(
        "A layered graph where greedy is 9 % off",
        "A random layered graph, the benchmark of papers on scheduling. The policy greedy takes "
        "182 within this budget.",
        "order", 167, "each operator is evaluated once",
        lambda: graph_of_rows("layered", LAYERED), budget=23 * KIB, memory="bytes",
    ),
    Puzzle(
        "A U-Net in 40 % of its memory",
        "36 KiB of 90, where skip connections pass by all that is below them. The best of all "
        "planners without a solver takes 45.",
        "order", 43, BY_SOLVER,
        lambda: graph_of_rows("U-Net", UNET, 8), budget=36 * KIB, memory="bytes",
    ),
    Puzzle(
        "Four stages with the least waiting",
        "A pipeline of four devices, a stage each, and eight micro-batches, 0 to 7. A forward F "
        "takes 1, a backward B takes 2. At most 4 micro-batches are in flight on device 0, then 3, "
        "2, and 1 on device 3. In how little time?",
        "lanes", 33, "the last stage starts after 3, works for 8 * 3, and three backwards of 2 "
        "follow: 33", in_flight=(4, 3, 2, 1),
    ),
    Puzzle(
        "The same, with backwards split",
        "Now B, the cotangent of the inputs, and W, that of the weights, take 1 each, and nothing "
        "waits for W. At most 4 micro-batches are in flight on each device.",
        "lanes", 27, "the last stage starts after 3, and works for 8 * 3: 27",
        in_flight=(4, 4, 4, 4), split=True,
    ),
    Puzzle(
        "Ten values in one buffer",
        "Give each value an offset in one buffer, so that no two that are in memory at a step "
        "overlap, and the buffer is as small as can be. The lowest free address for each, in order "
        "of time, takes 22 KiB.",
        "offsets", 15 * KIB, "v3, v6 and v7 are live at step 12: 15 KiB, in whatever buffer",
        lambda: graph_of_rows("ten values", BUFFER), memory="bytes",
    ),
], 1))
# fmt: on
MICRO_BATCHES = 8


# From an answer to data ---------------------------------------------------------------------------


def as_data(puzzle: Puzzle, answer: Any) -> list[Any]:
    """Convert an answer to lists, numbers and texts; functions are called here.

    Raises:
        ScheduleError: if it is of another form; and whatever the student's function raises.
    """
    if puzzle.form == "function":
        if not callable(answer):
            raise ScheduleError(f"`answer` is a {type(answer).__name__}; expected a function")
        return [plain(answer(*case), "its result") for case in puzzle.cases]
    if callable(answer):
        answer = answer(puzzle.graph()) if puzzle.graph else answer()
    if isinstance(answer, tc.Schedule):
        steps = [
            ["compute", step.operator] if isinstance(step, tc.Compute) else ["free", step.data]
            for step in answer.steps
            if isinstance(step, tc.Compute | tc.Free)
        ]
        if len(steps) < len(answer.steps):
            raise ScheduleError("the schedule has steps other than compute and free")
        return ["steps", steps]
    try:
        entries = [answer] if isinstance(answer, str) else iter(answer)
    except TypeError:
        expected = FORMS[puzzle.form].partition(".")[0]
        raise ScheduleError(f"`answer` is a {type(answer).__name__}; expected {expected}") from None
    found = list(islice(entries, MOST_ENTRIES + 1))
    if len(found) > MOST_ENTRIES:
        raise ScheduleError(f"`answer` has more than {MOST_ENTRIES:,} entries, and may never end")
    return ["entries", [plain(item, f"entry {index}") for index, item in enumerate(found)]]


def plain(item: Any, what: str) -> int | float | str:
    """Convert an entry to a number or a text; nodes of a graph to their names."""
    if isinstance(item, tc.Operator | tc.DataNode):
        return item.name
    if isinstance(item, str):
        return str(item)
    if isinstance(item, float | np.floating):
        return float(item)
    if hasattr(item, "__index__") and not isinstance(item, bool):
        return int(item.__index__())
    raise ScheduleError(f"{what} is a {type(item).__name__}; expected a number or a name")


# From data to points ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The score of an answer.

    Attributes:
        number: of the puzzle.
        points: of POINTS; all for the optimum, fewer for a legal answer, 0 for another.
        why: what is wrong with the answer, or better in the best one.
        peak, cost: of its replay, in the units of the puzzle; None without one.
        gap: relative distance from the optimum; None if the answer is not legal.
        trace: of the replay, to be drawn.
    """

    number: int
    points: int
    why: str
    peak: int | None = None
    cost: int | None = None
    gap: float | None = None
    trace: tc.Trace | PipelineTrace | tc.Arena | None = field(
        default=None, repr=False, compare=False
    )

    def __str__(self) -> str:
        puzzle = PUZZLES[self.number]
        lines = [f"puzzle {self.number}, {puzzle.title}: {self.points} of {POINTS} points"]
        if self.cost is not None:
            gap = "" if self.gap is None else f"; gap {100 * self.gap:.1f} %"
            peak = "" if self.peak is None else f"peak {peak_text(puzzle, self.peak)}, "
            best = f"; the optimum is {best_text(puzzle)}" if puzzle.form != "function" else ""
            lines.append(f"{peak}{value_text(puzzle, self.cost)}{best}{gap}")
        return "\n".join([*lines, self.why])

    def document(self) -> dict[str, Any]:
        """Return the score as JSON data."""
        return {
            "puzzle": self.number, "title": PUZZLES[self.number].title, "points": self.points,
            "of": POINTS, "peak": self.peak, "cost": self.cost, "gap": self.gap, "why": self.why,
        }  # fmt: skip


def peak_text(puzzle: Puzzle, peak: int) -> str:
    """Return a peak with its unit."""
    return f"{peak} in flight" if puzzle.in_flight else memory_text(peak, puzzle.memory)


def value_text(puzzle: Puzzle, cost: int) -> str:
    """Return a cost with its unit."""
    if puzzle.form == "function":
        return f"{cost} of {len(puzzle.cases)} cases right"
    if puzzle.form == "offsets":
        return f"a buffer of {memory_text(cost, puzzle.memory)}"
    if puzzle.graph is None:
        return f"time {cost}"
    unit = tc.cost.given(puzzle.graph()).unit
    return f"cost {cost}" if unit == "cost" else cost_text(cost, unit)


def best_text(puzzle: Puzzle) -> str:
    """Return the optimum with its unit."""
    if puzzle.minimise == "peak":
        return f"peak {memory_text(puzzle.optimum, puzzle.memory)}"
    return value_text(puzzle, puzzle.optimum)


def check(number: int, answer: Any) -> Result:
    """Score an answer to a puzzle, print the score, and return it.

    >>> result = check(1, ["f4", "f7"])
    puzzle 1, Two checkpoints on a chain of nine: 10 of 10 points
    peak 5 nodes, 25 evaluations; the optimum is peak 5 nodes; gap 0.0 %
    it is optimal: all 46 keep sets of at most two values were tried

    Args:
        number: of the puzzle, 1 to 15; ``print(statement(3))`` states one.
        answer: a keep set, an order, a policy, a function, lanes or offsets, as the puzzle asks.
    """
    if number not in PUZZLES:
        raise OptionError(f"puzzle {number!r:.40}: they are numbered 1 to {len(PUZZLES)}")
    try:
        data = as_data(PUZZLES[number], answer)
    except ScheduleError as error:
        result = Result(number, 0, str(error))
    else:
        result = score(number, data)
    print(result)
    return result


def score(number: int, data: Any) -> Result:
    """Score the data of an answer, which may be anything: replay it, and compare to the optimum."""
    puzzle = PUZZLES[number]
    try:
        if puzzle.form == "function":
            return function_score(number, data)
        kind, entries = data if isinstance(data, list) and len(data) == 2 else (None, None)
        if kind not in ("entries", "steps") or not isinstance(entries, list):
            return Result(number, 0, f"expected {FORMS[puzzle.form].partition('.')[0]}")
        if kind == "entries" and not all(isinstance(entry, str | int | float) for entry in entries):
            return Result(number, 0, "an entry is neither a number nor a text")
        if puzzle.form == "lanes":
            return pipeline_score(number, entries)
        if puzzle.form == "offsets":
            return offsets_score(number, entries)
        schedule = answered_schedule(puzzle, kind, entries)
        mistake = first_mistake(schedule)
        if mistake:
            return Result(number, 0, mistake)
        return graph_score(number, tc.replay(schedule))
    except TinyckptError as error:
        return Result(number, 0, shorten(str(error), 3 * WIDTH, placeholder="..."))


def task(number: int, best: Sequence[str]) -> dict[str, Any]:
    """Return a puzzle as plain data for ``viz.lab(graph, challenge=...)``: its rule of points.

    Args:
        number: of a puzzle whose answer is a keep set.
        best: a keep set at the optimum, which the page shows in the end.

    Raises:
        OptionError: if the answer is of another form.

    >>> sorted(task(1, ["f4", "f7"]).items())[1:5]
    [('budget', 2560), ('minimise', 'peak'), ('most', 2), ('optimum', 2560)]
    """
    puzzle = PUZZLES[number]
    if puzzle.form != "keep":
        legal = [str(each) for each, other in PUZZLES.items() if other.form == "keep"]
        raise OptionError(
            f"puzzle {number}: its answer is no keep set, which is all that a lab can score; "
            f"those of {', '.join(legal)} are"
        )
    trace = tc.replay(tc.plan(puzzle.made_graph(), "retain", keep=best))
    least = trace.peak_bytes if puzzle.minimise == "peak" else puzzle.optimum
    values = [node.id for node in trace.graph.data if node.name in best]
    return {
        "words": f"Puzzle {number}, {puzzle.title}. {puzzle.statement}", "proof": puzzle.proof,
        "budget": puzzle.budget or trace.peak_bytes, "minimise": puzzle.minimise,
        "optimum": least, "most": puzzle.most, "points": POINTS, "best": values,
    }  # fmt: skip


def function_score(number: int, data: Any) -> Result:
    """Score the values of a function: all of them, or no points."""
    puzzle = PUZZLES[number]
    assert puzzle.expected is not None
    expected = [puzzle.expected(*case) for case in puzzle.cases]
    if not isinstance(data, list) or len(data) != len(expected):
        return Result(number, 0, f"expected {len(expected)} numbers")
    right = [
        one == other and type(other) in (int, float)
        for one, other in zip(expected, data, strict=True)
    ]
    if all(right):
        return Result(number, POINTS, f"it is right: {puzzle.proof}", None, len(right), 0.0)
    first = right.index(False)
    case = ", ".join(map(str, puzzle.cases[first]))
    why = f"answer({case}) is {str(data[first])[:60]}, and should be {expected[first]}"
    return Result(number, 0, why, None, sum(right))


def answered_schedule(puzzle: Puzzle, kind: str, entries: list[Any]) -> tc.Schedule:
    """Return the schedule of an answer's data.

    Raises:
        ScheduleError: if an entry means nothing in the graph, or there are too many.
    """
    graph = puzzle.made_graph()
    if puzzle.form == "keep":
        if kind == "steps":
            raise ScheduleError("a schedule; expected the names of the values to save")
        if puzzle.most is not None and len(set(map(str, entries))) > puzzle.most:
            raise ScheduleError(f"{len(entries)} values are saved; at most {puzzle.most} may be")
        return tc.plan(graph, "retain", keep=entries)
    if kind == "steps":
        return schedule_of(graph, entries)
    ids = {operator.name: operator.id for operator in graph.operators}
    for position, entry in enumerate(entries):
        if type(entry) is not int and entry not in ids:
            raise ScheduleError(
                f"entry {position}: {str(entry)[:60]!r} is no operator"
                f"{did_you_mean(entry, ids)}; they are {some(list(ids))}"
            )
    return tc.from_order(graph, [ids.get(entry, entry) for entry in entries], "your answer")


def graph_score(number: int, trace: tc.Trace) -> Result:
    """Score a legal schedule: 0 points beyond the budget, else by its distance from the optimum."""
    puzzle = PUZZLES[number]
    graph, nodes = trace.graph, puzzle.memory == "nodes"
    cost = round(tc.cost.cost_of(trace.schedule, tc.cost.given(graph)))
    peak = trace.peak_nodes if nodes else trace.peak_bytes
    where = f"the peak is at {peak_told(trace, nodes)}"
    if puzzle.budget is not None and peak > puzzle.budget:
        allowed = memory_text(puzzle.budget, puzzle.memory)
        why = f"over the budget of {allowed}: {where}"
        return Result(number, 0, why, peak, cost, None, trace)
    if puzzle.most is not None and puzzle.form == "order" and trace.evaluations > puzzle.most:
        why = f"{trace.evaluations} evaluations; each operator once is {puzzle.most}"
        return Result(number, 0, why, peak, cost, None, trace)
    if puzzle.minimise == "peak":
        return rated(number, peak, where, peak, cost, trace)
    times = Counter(step.operator for step in trace.steps if isinstance(step, tc.Compute))
    worst = max(graph.operators, key=lambda each: (times[each.id] - 1) * (each.cost or 1))
    why = f"{worst.name} costs most; it is evaluated {times[worst.id]} times"
    return rated(number, cost, why, peak, cost, trace)


def rated(
    number: int, value: int, why: str, peak: int | None, cost: int,
    trace: tc.Trace | PipelineTrace | tc.Arena,
) -> Result:  # fmt: skip
    """Return the score of a legal answer whose value is to be small."""
    puzzle = PUZZLES[number]
    gap = value / puzzle.optimum - 1
    if value <= puzzle.optimum:
        return Result(number, POINTS, f"it is optimal: {puzzle.proof}", peak, cost, gap, trace)
    points = max(1, min(POINTS - 1, POINTS * puzzle.optimum // value))
    return Result(number, points, f"it is legal, and not the best: {why}", peak, cost, gap, trace)


def pipeline_score(number: int, lanes: list[Any]) -> Result:
    """Score the lanes of a pipeline: the time of the batch, and what is in flight."""
    puzzle = PUZZLES[number]
    devices = len(puzzle.in_flight)
    kinds = {"F": Kind.FORWARD, "B": Kind.BACKWARD}
    if puzzle.split:
        kinds |= {"B": Kind.BACKWARD_INPUT, "W": Kind.BACKWARD_WEIGHT}
    if len(lanes) != devices:
        return Result(number, 0, f"{len(lanes)} lanes; there are {devices} devices")
    columns = []
    for device, lane in enumerate(lanes):
        words = lane.split() if isinstance(lane, str) else []
        for step, word in enumerate(words):
            if word[0] not in kinds or word[1:] not in map(str, range(MICRO_BATCHES)):
                legal = f"{', '.join(kinds)} with 0 to {MICRO_BATCHES - 1}"
                return Result(
                    number, 0, f"device {device}, step {step}: {word[:20]!r}; expected {legal}"
                )
        columns.append(
            Lane(
                np.array([kinds[word[0]] for word in words], np.int8),
                np.full(len(words), device, np.int32),
                np.array([int(word[1:]) for word in words], np.int32),
            )
        )
    order = np.arange(devices, dtype=np.int32)
    trace = replay_pipeline(
        with_messages("your answer", order, MICRO_BATCHES, columns), PipelineCosts(1, 1, 1)
    )
    peaks = zip(trace.peaks, puzzle.in_flight, strict=True)
    for device, (peak, most) in enumerate(peaks):
        if peak > most:
            why = f"device {device} has {peak} micro-batches in flight; at most {most} may be"
            return Result(number, 0, why, max(trace.peaks), int(trace.makespan), None, trace)
    why = f"devices wait for {float(trace.bubble):.1%} of the time"
    return rated(number, int(trace.makespan), why, max(trace.peaks), int(trace.makespan), trace)


def offsets_score(number: int, offsets: list[Any]) -> Result:
    """Score offsets in one buffer: its size, if no two values overlap."""
    puzzle = PUZZLES[number]
    best = tc.arena(tc.plan(puzzle.made_graph()), alignment=KIB)
    data, blocks = best.schedule.graph.data, best.allocations
    if len(offsets) != len(blocks):
        return Result(number, 0, f"{len(offsets)} offsets; there are {len(blocks)} values")
    for block, offset in zip(blocks, offsets, strict=True):
        if type(offset) is not int or not 0 <= offset <= MOST_KIB:
            name, legal = data[block.storage].name, f"a whole number of KiB, 0 to {MOST_KIB}"
            return Result(number, 0, f"{name} is at {str(offset)[:20]!r}; expected {legal}")
    begins = [KIB * offset for offset in offsets]
    ends = [begin + block.nbytes for begin, block in zip(begins, blocks, strict=True)]
    attempt = replace(best, offsets=tuple(begins), nbytes=max(ends), optimal=False)

    def told(place: int) -> str:
        at = f"{begins[place] // KIB} to {ends[place] // KIB} KiB"
        return f"{data[blocks[place].storage].name} at {at}"

    for one, other in combinations(range(len(blocks)), 2):
        step = max(blocks[one].start, blocks[other].start)
        if step < min(blocks[one].stop, blocks[other].stop) and max(
            begins[one], begins[other]
        ) < min(ends[one], ends[other]):
            why = f"{told(one)} and {told(other)} overlap: both are in memory at step {step}"
            return Result(number, 0, why, None, max(ends), None, attempt)
    why = f"the highest is {told(ends.index(max(ends)))}"
    return rated(number, why=why, value=max(ends), peak=None, cost=max(ends), trace=attempt)


# In words -----------------------------------------------------------------------------------------


def statement(number: int) -> str:
    """Return what a puzzle asks, with the operators of its graph.

    >>> print(statement(2))
    2. As little memory as there is
    <BLANKLINE>
    Three values in memory are the least on a chain. Four layers: how few evaluations?
    <BLANKLINE>
    graph chain:4; budget 3 nodes; the optimum is 15 evaluations, proven
    <BLANKLINE>
      f1 f2 f3 f4 l b4 b3 b2 b1
    <BLANKLINE>
    `answer` is the order in which operators are evaluated, a list of names or numbers. An
    operator that comes twice is recomputed; each value is freed after its last use. Or a
    policy: a function of the graph that returns such an order, or a tc.Schedule.
    """
    puzzle = PUZZLES[number]
    graph = puzzle.graph() if puzzle.graph else None
    facts = [f"graph {graph.name}"] if graph else []
    if puzzle.budget is not None:
        facts.append(f"budget {memory_text(puzzle.budget, puzzle.memory)}")
    if puzzle.form != "function":
        facts.append(f"the optimum is {best_text(puzzle)}, proven")
    parts = [f"{number}. {puzzle.title}", fill(puzzle.statement, WIDTH)]
    listed = lifetimes_told if puzzle.form == "offsets" else operators_told
    parts += filter(None, ["; ".join(facts), listed(graph) if graph else ""])
    return "\n\n".join([*parts, fill(f"`answer` is {FORMS[puzzle.form]}", WIDTH)])


def lifetimes_told(graph: tc.Graph) -> str:
    """List the values of a graph: their sizes, and the steps of store-all at which each is live."""
    return "\n".join(
        f"  {graph.data[each.storage].name}: {memory_text(each.nbytes, 'bytes'):>7}, live at steps "
        f"{each.start} to {each.stop - 1}"
        for each in tc.arena(tc.plan(graph)).allocations
    )


def operators_told(graph: tc.Graph) -> str:
    """List the operators of a graph: names alone of a chain, else what each reads and its size."""
    if graph.name.startswith("chain"):
        names = " ".join(operator.name for operator in graph.operators)
        return fill(names, WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines = []
    for operator in graph.operators:
        read = ", ".join(graph.data[data].name for data in operator.inputs)
        made = ", ".join(
            f"{graph.data[data].name} ({memory_text(graph.data[data].nbytes, 'bytes')})"
            for data in operator.outputs
        )
        lines.append(f"  {operator.name}: cost {operator.cost:g}, {read} -> {made}")
    return "\n".join(lines)
