"""A student's schedule becomes a trace of tinyckpt, and a wrong one is refused."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.course.networks import BATCH, COURSE, NETWORKS, WIDTH, loss_of, mini, mini_chain


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module ``draw``, imported as beside a student's files."""
    monkeypatch.syspath_prepend(str(COURSE))
    return import_module("draw")


def run_residual() -> Any:
    graph = mini.differentiate(loss_of("residual of 6", mini), 6, 1)
    steps = mini.free_after_last_use(graph, mini.sqrt_n(graph))
    _, trace = mini.run(graph, steps, [*[np.eye(6)] * 6, np.ones((4, 6))])
    return graph, steps, trace


def test_replay_counts_what_the_student_counted(draw: Any) -> None:
    graph, steps, trace = run_residual()
    kept = set().union(*(mini.crossing(graph, cut) for cut in mini.cuts_of(graph)))
    found = draw.replayed(graph, steps, trace, "sqrt(n) of mine", kept)
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


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_operators_belong_to_the_forward_ones_that_tinyckpt_says(
    name: str, draw: Any
) -> None:
    _, count = NETWORKS[name]
    graph = tc.differentiate(
        tc.build(loss_of(name, tc), [tc.Spec((WIDTH, WIDTH))] * count, tc.Spec((BATCH, WIDTH)))
    )
    mirrors = draw.mirrors_of(mini.differentiate(loss_of(name, mini), count, 1))
    backward = graph.operators[graph.forward_count :]
    assert [mirrors.get(operator.id) for operator in backward] == [
        operator.adjoint_of for operator in backward
    ]


def test_pictures_of_chains_have_the_names_of_the_pages(draw: Any) -> None:
    require("matplotlib")
    from tinyckpt.viz.captions import Captions
    from tinyckpt.viz.layout.drawn_nodes import cells_of

    graph = mini_chain(16)
    steps = mini.free_after_last_use(graph, mini.store_all(graph))
    found = draw.replayed(graph, steps, mini.run(graph, steps, [np.ones((2, 2))])[1])
    # A circle each: at the peak of 18 values, 18 of them are filled.
    labels = [cell.label for cell in cells_of(found.graph)]
    chain = tc.networks.chain(16)
    assert labels == [cell.label for cell in cells_of(chain)]
    assert labels[15:18] == ["f16", "l", "b16"]
    captions = Captions(found)
    said = [captions.text(step) for step, (verb, index) in enumerate(steps) if verb == "compute"]
    assert said[0] == "f1 is computed"
    assert said[17] == "b16 reads f16 and l"
    assert said[23] == "b10 reads f10 and b11"


def test_backward_operators_have_the_number_of_their_forward_operator(draw: Any) -> None:
    found = draw.replayed(*run_residual())
    backward = found.graph.operators[found.graph.forward_count :]
    for operator in backward:
        assert operator.adjoint_of is not None
        assert operator.name.partition("_vjp")[0] == found.graph.operators[operator.adjoint_of].name


def test_wrong_counts_are_refused_with_the_first_step(draw: Any) -> None:
    graph, steps, trace = run_residual()
    trace.live_values[7] += 1
    with pytest.raises(ValueError, match=r"^step 7: \d+ live values; the replay has \d+$"):
        draw.replayed(graph, steps, trace)
    trace.live_values[7] -= 1
    trace.evaluations = 50
    with pytest.raises(ValueError, match=r"^50 evaluations; the replay has 52$"):
        draw.replayed(graph, steps, trace)


def test_illegal_schedule_is_refused_by_the_replay(draw: Any) -> None:
    graph, steps, trace = run_residual()
    again = next(place for place, step in enumerate(steps) if step in steps[:place])
    del steps[again], trace.live_values[again], trace.live_bytes[again]
    with pytest.raises(tc.ScheduleError, match="step"):
        draw.replayed(graph, steps, trace)


def test_bars_say_what_each_plan_keeps_in_memory(draw: Any, tmp_path: Path) -> None:
    require("matplotlib")
    kinds = {"norms": 2**30, "core": 8 * 2**30, "MLP": 3 * 2**30}
    plans = {"save all": (kinds, "no more"), "selective": (kinds | {"core": 0}, "1 % more")}
    text = draw.bars(plans, str(tmp_path / "plans.svg"), "Two plans").read_text(encoding="utf-8")
    for word in ("Two plans", "12.0 GiB, no more", "4.0 GiB, 1 % more", "core", "norms", "MLP"):
        assert f">{word}<" in text
    # The largest kind comes first, whatever the order of the mapping.
    assert text.index(">core<") < text.index(">MLP<") < text.index(">norms<")
