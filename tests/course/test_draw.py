"""A student's schedule becomes a trace of tinyckpt, and a wrong one is refused."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.course.networks import NETWORKS

COURSE = Path(__file__).parents[2] / "course"


@pytest.fixture
def mini(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(COURSE))
    monkeypatch.syspath_prepend(str(COURSE / "solutions"))
    import mini

    return mini


def run_residual(mini: Any) -> Any:
    graph = mini.differentiate(NETWORKS["residual of 6"][0](mini), 6, 1)
    steps = mini.free_after_last_use(graph, mini.sqrt_n(graph))
    _, trace = mini.run(graph, steps, [*[np.eye(6)] * 6, np.ones((4, 6))])
    return graph, steps, trace


def test_replay_counts_what_the_student_counted(mini: Any) -> None:
    from draw import replayed

    graph, steps, trace = run_residual(mini)
    kept = set().union(*(mini.crossing(graph, cut) for cut in mini.cuts_of(graph)))
    found = replayed(graph, steps, trace, "sqrt(n) of mine", kept)
    assert found.summary() == (
        "sqrt(n) of mine on my graph: 52 evaluations, 10 of them recomputations; "
        "peak 11 nodes, 2.3 KiB"
    )
    assert found.live_bytes == tuple(trace.live_bytes)
    producers = [found.graph.data[data].producer for data in found.schedule.checkpoints]
    assert [found.graph.operators[index].kind for index in producers] == ["add", "add"]
    # Each backward operator stands below a forward one, whose cotangent it computes or reads.
    backward = found.graph.operators[found.graph.forward_count :]
    assert all(operator.phase == "backward" for operator in backward)
    below = [operator.adjoint_of for operator in backward if operator.kind == "tanh_vjp"]
    assert [found.graph.operators[index].name for index in below] == [
        f"tanh_{layer}" for layer in range(6, 0, -1)
    ]


def test_wrong_counts_are_refused_with_the_first_step(mini: Any) -> None:
    from draw import replayed

    graph, steps, trace = run_residual(mini)
    trace.live_values[7] += 1
    with pytest.raises(ValueError, match=r"^step 7: \d+ live values; the replay has \d+$"):
        replayed(graph, steps, trace)
    trace.live_values[7] -= 1
    trace.evaluations = 50
    with pytest.raises(ValueError, match=r"^50 evaluations; the replay has 52$"):
        replayed(graph, steps, trace)


def test_illegal_schedule_is_refused_by_the_replay(mini: Any) -> None:
    from draw import replayed

    graph, steps, trace = run_residual(mini)
    again = next(place for place, step in enumerate(steps) if step in steps[:place])
    del steps[again], trace.live_values[again], trace.live_bytes[again]
    with pytest.raises(tc.ScheduleError, match="step"):
        replayed(graph, steps, trace)


def test_bars_say_what_each_plan_keeps_in_memory(
    mini: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("matplotlib")
    from draw import bars

    kinds = {"norms": 2**30, "core": 8 * 2**30, "MLP": 3 * 2**30}
    plans = {"save all": (kinds, "no more"), "selective": (kinds | {"core": 0}, "1 % more")}
    text = bars(plans, str(tmp_path / "plans.svg"), "Two plans").read_text(encoding="utf-8")
    for word in ("Two plans", "12.0 GiB, no more", "4.0 GiB, 1 % more", "core", "norms", "MLP"):
        assert f">{word}<" in text
    # The largest kind comes first, whatever the order of the mapping.
    assert text.index(">core<") < text.index(">MLP<") < text.index(">norms<")
