"""Names and scopes in schedules, compiled programs and explanations."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc


def graph_of(label: str = "hidden", scope: str = "layer") -> tc.TrainingGraph:
    def loss(params: Any, x: Any) -> Any:
        h = x
        for number, weights in enumerate(params, start=1):
            with tc.scope(f"{scope}{number}"):
                h = tc.name(tc.tanh(h @ weights), label)
        return tc.sum(h * h)

    return tc.differentiate(tc.build(loss, [tc.Spec((2, 2))] * 2, tc.Spec((2, 2))))


def test_schedule_text_has_names_and_scopes() -> None:
    lines = str(tc.plan(graph_of(), "recompute_all")).splitlines()
    assert [line.partition("   live")[0].split(maxsplit=1)[1].rstrip() for line in lines[:6]] == [
        "compute  layer1/matmul_1",
        "compute  layer1/hidden (tanh_1)",
        "free     layer1/matmul_1",
        "compute  layer2/matmul_2",
        "free     layer1/hidden (tanh_1)",
        "compute  layer2/hidden (tanh_2)",
    ]


def test_illegal_schedule_text_has_scopes_and_error_unique_names() -> None:
    schedule = tc.plan(graph_of())
    text = str(tc.Schedule(schedule.graph, schedule.steps[1:], "by hand"))
    assert text.splitlines()[0] == "0  compute layer1/hidden (tanh_1)"
    assert text.splitlines()[-1].startswith("illegal: step 0: compute tanh_1 needs matmul_1")


def test_program_uses_names_as_variables_and_scopes_as_comments() -> None:
    source = tc.compile(tc.plan(graph_of(), "store_all")).source
    assert source.splitlines()[8:13] == [
        "    matmul_1 = x @ params_0  # layer1",
        "    hidden = np.tanh(matmul_1)",
        "    del matmul_1",
        "    matmul_2 = hidden @ params_1  # layer2",
        "    hidden_2 = np.tanh(matmul_2)",
    ]


@pytest.mark.long
def test_explanation_has_names_and_scopes() -> None:
    text = str(tc.explain(tc.plan(graph_of(), "recompute_all")))
    peak = text.split("At the peak")[1].split("Values that the backward pass reads")[0]
    assert "/hidden (tanh_" in peak
    assert "\nlayer1/hidden (tanh_1)  " in text.split("recomputed  ")[1]


def test_label_equal_to_operator_name_is_not_repeated() -> None:
    graph = tc.build(lambda x: tc.name(tc.tanh(x), "tanh_1"), tc.Spec(3))
    assert str(tc.plan(graph)).splitlines()[0].split() == [
        "0", "compute", "tanh_1", "live", "1", "node,", "24", "B",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    ["\nraise SystemExit", "a\r\u2028\x85b\x0c", "#'\"\\", "x" * 10_000, "漢字\ud800", "", "del"],
)
def test_names_cannot_break_out_of_comments(bad: str) -> None:
    graph = graph_of(bad, bad)
    schedule = tc.plan(graph, "recompute_all")
    compiled = tc.compile(schedule)
    assert max(map(len, compiled.source.splitlines())) < 400
    weights = [np.eye(2), np.full((2, 2), 0.5)]
    value, gradients = compiled(weights, np.ones((2, 2)))
    expected = tc.run(schedule, weights, np.ones((2, 2)))
    assert value == expected.value
    for one, other in zip(gradients, expected.gradients, strict=True):
        assert np.array_equal(one, other)
