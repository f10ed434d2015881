"""Operators that may not be evaluated twice: marked, refused by the machines, kept by documents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.execute import execute


def marked(x: Any) -> Any:
    h = tc.sin(tc.once(tc.tanh(x)))
    return tc.half_squared_norm(tc.sin(h))


GRAPH = tc.differentiate(tc.build(marked, tc.Spec(4)))
NAMES = {operator.name: operator.id for operator in GRAPH.operators}
X = np.linspace(-1.0, 1.0, 4)


def schedule_of(text: str) -> tc.Schedule:
    """Return the schedule of words such as ``tanh_1 -tanh_1``: compute, and with a minus free."""
    values = {node.name: node.id for node in GRAPH.data}
    steps = [
        tc.Free(values[word[1:]]) if word.startswith("-") else tc.Compute(NAMES[word])
        for word in text.split()
    ]
    return tc.Schedule(GRAPH, tuple(steps), "by hand")


def test_a_value_marks_the_operator_that_makes_it() -> None:
    assert [operator.name for operator in GRAPH.operators if operator.once] == ["tanh_1"]
    assert GRAPH.once == (NAMES["tanh_1"],)
    # Outside of a build a mark does nothing; a source is there anyway.
    assert tc.once(X) is X
    assert tc.build(lambda x: tc.sin(tc.once(x)), tc.Spec(4)).once == ()


def test_a_second_evaluation_is_refused_by_every_machine() -> None:
    again = schedule_of("tanh_1 -tanh_1 tanh_1")
    message = (
        "step 2: compute tanh_1, which may not be evaluated twice and was at step 0; keep what it"
    )
    with pytest.raises(tc.ScheduleError, match=message):
        tc.replay(again)
    with pytest.raises(tc.ScheduleError, match="tanh_1 may not be evaluated twice"):
        execute(again, {0: X})
    with pytest.raises(tc.ScheduleError, match="tanh_1 may not be evaluated twice"):
        tc.run(again, X)
    with pytest.raises(tc.ScheduleError, match=message):
        tc.compile(again)
    # Nothing is carried over from one run to the next.
    stored = tc.plan(GRAPH)
    assert tc.run(stored, X).trace == tc.run(stored, X).trace == tc.replay(stored)


def test_documents_say_what_may_not_be_evaluated_twice(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    tc.save_graph(GRAPH, path)
    text = path.read_text(encoding="utf-8")
    assert text.count('"once"') == 1
    assert tc.load_graph(path).once == GRAPH.once
    tc.save_schedule(tc.plan(GRAPH), tmp_path / "schedule.json")
    assert tc.load_schedule(tmp_path / "schedule.json", GRAPH) == tc.plan(GRAPH)
    with pytest.raises(tc.FormatError, match="for another graph"):
        tc.load_schedule(
            tmp_path / "schedule.json",
            tc.differentiate(
                tc.build(lambda x: tc.half_squared_norm(tc.sin(tc.sin(tc.tanh(x)))), tc.Spec(4))
            ),
        )
    path.write_text(text.replace('"once": true', '"once": 1'), encoding="utf-8")
    with pytest.raises(tc.FormatError, match=r"operators\[0\].once: got int, which is not legal"):
        tc.load_graph(path)
