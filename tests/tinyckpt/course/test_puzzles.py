"""Puzzles: solved at their optimum, the optimum proven; wrong answers get the message that fits."""

from itertools import combinations, repeat
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.course.grading import best_answers
from tinyckpt.course.puzzles import MICRO_BATCHES, POINTS, PUZZLES, as_data, score, statement

ANSWERS = best_answers()


def checked(number: int, answer: Any) -> Any:
    return score(number, as_data(PUZZLES[number], answer))


def test_there_are_fifteen_puzzles_of_five_forms() -> None:
    assert list(PUZZLES) == list(ANSWERS) == list(range(1, 16))
    forms = {puzzle.form for puzzle in PUZZLES.values()}
    assert forms == {"keep", "order", "function", "lanes", "offsets"}


@pytest.mark.parametrize("number", PUZZLES)
def test_each_puzzle_is_solved_at_its_optimum(number: int) -> None:
    puzzle, result = PUZZLES[number], checked(number, ANSWERS[number])
    value = result.peak if puzzle.minimise == "peak" else result.cost
    assert (result.points, value, result.gap) == (POINTS, puzzle.optimum, 0.0)
    assert "it is " in result.why


@pytest.mark.parametrize("number", [2, 3, 4, pytest.param(10, marks=pytest.mark.long), 11])
def test_optimum_is_certified_by_the_planner(number: int) -> None:
    puzzle = PUZZLES[number]
    unit = puzzle.memory if puzzle.memory == "nodes" else ""
    schedule = tc.plan(puzzle.made_graph(), budget=f"{puzzle.budget} {unit}".strip(), time_limit=20)
    assert schedule.certificate.status == "optimal"
    assert schedule.certificate.cost == puzzle.optimum


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("number", [8, 9, 12])
def test_optimum_is_certified_by_the_solver(number: int) -> None:
    require("ortools")
    puzzle = PUZZLES[number]
    schedule = tc.plan(puzzle.made_graph(), "optimal", budget=puzzle.budget, time_limit=300)
    assert schedule.certificate.status == "optimal"
    assert schedule.certificate.cost == puzzle.optimum


def test_optimum_of_two_checkpoints_is_the_best_of_all_keep_sets() -> None:
    graph = tc.networks.chain(9)
    layers = [f"f{layer}" for layer in range(1, 10)]
    sets = [keep for count in range(3) for keep in combinations(layers, count)]
    peaks = {keep: tc.replay(tc.plan(graph, "retain", keep=keep)).peak_nodes for keep in sets}
    assert len(sets) == 46
    assert [keep for keep, peak in peaks.items() if peak <= PUZZLES[1].optimum] == [("f4", "f7")]


def test_closed_forms_agree_with_planners() -> None:
    price = PUZZLES[5].expected
    assert price is not None
    for n in (1, 4, 9, 16, 100):
        trace = tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n"))
        assert price(n) == trace.evaluations


def test_numpy_numbers_are_answers() -> None:
    assert checked(5, lambda n: 2 * n + 1 + (np.sqrt(n) - 1) ** 2).points == POINTS
    offsets = np.array(ANSWERS[15])
    assert checked(15, offsets).points == POINTS


def test_sum_has_no_order_with_a_smaller_peak() -> None:
    # All sets of values that can be in memory together, breadth first, each operator once.
    operators = PUZZLES[7].made_graph().operators
    best = {frozenset[int](): 0}
    for _ in operators:
        after: dict[frozenset[int], int] = {}
        for done, peak in best.items():
            for operator in operators:
                ready = operator.id not in done and {i - 1 for i in operator.inputs if i} <= done
                if ready:
                    used = {i - 1 for other in operators if other.id in done for i in other.inputs}
                    live = len(done - used) + 1
                    now = done | {operator.id}
                    after[now] = min(after.get(now, 99), max(peak, live))
        best = after
    assert list(best.values()) == [PUZZLES[7].optimum]


def test_greedy_is_nine_percent_off_and_the_portfolio_takes_45() -> None:
    eleven, twelve = PUZZLES[11], PUZZLES[12]
    greedy = tc.plan(eleven.made_graph(), "greedy", budget=eleven.budget)
    assert greedy.certificate.cost == 182
    assert round(100 * (182 / eleven.optimum - 1)) == 9
    stored = tc.replay(tc.plan(twelve.made_graph())).peak_bytes
    assert twelve.budget == 0.4 * stored


def test_buffer_is_as_small_as_what_is_live_and_first_fit_is_not() -> None:
    puzzle = PUZZLES[15]
    plan = tc.arena(tc.plan(puzzle.made_graph()), alignment=1024)
    assert plan.optimal
    assert plan.nbytes == plan.lower_bound == puzzle.optimum
    names = {"v3", "v6", "v7"}
    live = [each for each in plan.allocations if each.start <= 12 < each.stop]
    assert {plan.schedule.graph.data[each.storage].name for each in live} == names
    assert sum(each.nbytes for each in live) == puzzle.optimum
    # The lowest free address for each, in order of time.
    places: list[tuple[int, int, int]] = []
    for each in plan.allocations:
        taken = sorted((low, high) for low, high, stop in places if stop > each.start)
        offset = 0
        for low, high in taken:
            if low < offset + each.nbytes and offset < high:
                offset = high
        places.append((offset, offset + each.nbytes, each.stop))
    assert max(high for _, high, _ in places) == 22 << 10
    assert "takes 22 KiB" in puzzle.statement


CHAIN = ["f1", "f2", "f3", "f4", "l", "b4", "b3", "b2", "b1"]


def steps(text: str) -> Any:
    """Return a policy with these steps on a chain: "f1 f2 -f1" computes f1 and f2, frees f1."""

    def policy(graph: tc.Graph) -> tc.Schedule:
        operators = {operator.name: operator for operator in graph.operators}
        made = [
            tc.Free(operators[word[1:]].outputs[0])
            if word[0] == "-"
            else tc.Compute(operators[word].id)
            for word in text.split()
        ]
        return tc.Schedule(graph, tuple(made), "mine")

    return policy


# A puzzle, an answer, its points, and a part of what is said.
WRONG: dict[str, tuple[int, Any, int, str]] = {
    "freed too early": (2, steps("f1 f2 f3 f4 -f3 l b4 b3"), 0,
                        "step 4: you freed f3, which b3 reads at step 7"),
    "read too early": (2, steps("f1 f3"), 0, "step 1: f3 reads f2, which is not computed yet"),
    "computed while resident": (2, steps("f1 f1"), 0, "you compute f1 again while its value f1"),
    "freed twice": (2, steps("f1 -f1 -f1"), 0, "step 2: you free f1, which is not in memory since"),
    "result freed": (2, steps("f1 f2 f3 f4 l b4 b3 b2 b1 -b1"), 0,
                     "step 9: you freed b1, which is a result"),
    "ends early": (2, steps("f1"), 0, "the schedule ends without b1, which is a result"),
    "over the budget": (2, CHAIN, 0, "over the budget of 3 nodes: the peak is at step 5, b4"),
    "order reads too early": (2, ["f2"], 0, "order[0] evaluates f2, which reads f1 before"),
    "misspelt operator": (2, ["F1"], 0, "did you mean f1?"),
    "no such operator": (2, [99], 0, "order[0]: operator 99 does not exist"),
    "float": (2, [0.5], 0, "entry 0: '0.5' is no operator"),
    "nested": (2, [["f1"]], 0, "entry 0 is a list; expected a number or a name"),
    "number": (2, 3, 0, "`answer` is a int; expected the order in which operators are evaluated"),
    "endless": (2, lambda graph: repeat("f1"), 0, "may never end"),
    "not the best": (3, lambda graph: tc.plan(graph, "revolve", budget="8 nodes"), 9,
                     "it is legal, and not the best: f1 costs most; it is evaluated"),
    "too many kept": (1, ["f1", "f2", "f3"], 0, "3 values are saved; at most 2 may be"),
    "unknown value": (1, ["f10"], 0, "'f10' is not a forward value"),
    "equal distances": (1, ["f3", "f6"], 8, "the peak is at step"),
    "twice": (7, [*range(15), 0], 0, "16 evaluations; each operator once is 15"),
    "wrong formula": (5, lambda n: 2 * n + 1, 0, "answer(4) is 9, and should be 10"),
    "no function": (5, 7, 0, "`answer` is a int; expected a function"),
    "gpipe": (13, [" ".join(f"{kind}{i}" for kind in "FB" for i in range(MICRO_BATCHES))] * 4, 0,
              "device 0 has 8 micro-batches in flight; at most 4 may be"),
    "deadlock": (13, ["B0", "F0", "F0", "F0"], 0, "device 0"),
    "unknown action": (13, ["F0 W0"] * 4, 0, "device 0, step 1: 'W0'; expected F, B with 0 to 7"),
    "lanes missing": (13, ["F0"], 0, "1 lanes; there are 4 devices"),
    "one after another": (14, [" ".join(f"F{i} B{i} W{i}" for i in range(MICRO_BATCHES))] * 4, 3,
                          "devices wait for"),
    "overlap": (15, [0, 2, 6, 0, 0, 0, 0, 0, 0, 0], 0,
                "v0 at 0 to 2 KiB and v3 at 0 to 2 KiB overlap: both are in memory at step 3"),
    "first fit": (15, [0, 2, 6, 12, 2, 5, 14, 0, 5, 11], 6,
                  "it is legal, and not the best: the highest is v6 at 14 to 22 KiB"),
    "offset missing": (15, [0], 0, "1 offsets; there are 10 values"),
    "half an offset": (15, [0.5] * 10, 0, "v0 is at '0.5'; expected a whole number of KiB, 0 to"),
    "offset below": (15, [-1] * 10, 0, "v0 is at '-1'; expected a whole number of KiB, 0 to 1023"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answer_gets_the_message_that_names_the_mistake(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    number, answer, points, message = WRONG[name]
    result = tc.puzzles.check(number, answer)
    assert (result.points, message in result.why) == (points, True), result.why
    assert capsys.readouterr().out == f"{result}\n"


@pytest.mark.parametrize(
    "data",
    [None, 3, {}, [], [[]], ["steps"], ["steps", 1], ["steps", [1]], ["steps", [["free", "x"]]],
     ["steps", [["jump", 1]]], ["steps", [["compute", 10**9]]], ["entries", [None]],
     ["entries", [[1]]], ["entries", [-1]], ["entries", ["x" * 1000]]],
)  # fmt: skip
@pytest.mark.parametrize("number", [1, 2, 5, 13, 15])
def test_data_of_another_form_gets_no_points(number: int, data: Any) -> None:
    result = score(number, data)
    assert result.points == 0
    assert 0 < len(result.why) < 400


def test_unknown_puzzle_is_an_error() -> None:
    with pytest.raises(tc.OptionError, match="numbered 1 to 15"):
        tc.puzzles.check(16, [])


@pytest.mark.parametrize("number", PUZZLES)
def test_statement_names_the_optimum_and_every_operator(number: int) -> None:
    text, puzzle = statement(number), PUZZLES[number]
    assert text.startswith(f"{number}. {puzzle.title}\n")
    assert max(map(len, text.splitlines())) <= 100
    if puzzle.graph is not None:
        assert all(operator.name in text for operator in puzzle.graph().operators)
