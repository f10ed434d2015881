"""The widget of a notebook without a browser: what Python reads and sets, over the traits."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt import viz
from viz.explainer.story import story_of

Widget = Any  # viz.widget.live.Widget, where anywidget is installed


@pytest.fixture(autouse=True)
def anywidget() -> None:
    require("anywidget")


def chain(policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.chain(16), policy))


@pytest.fixture
def widget() -> Widget:
    return viz.widget(chain())


def headings(widget: Widget) -> list[str]:
    return [row["heading"] for row in widget.data["rows"]]


def test_widget_without_a_path_says_where_it_is_and_what_is_kept(widget: Widget) -> None:
    story = story_of(chain())
    assert widget.step == story.moments[story.at("recomputation")].rows[1].step
    assert widget.kept == [4, 8, 12]
    assert (widget.row, widget.policy, widget.budget) == (1, "sqrt_n", None)
    assert widget.trace is widget.traces[1]
    steps = widget.data["rows"][1]["steps"]
    assert steps == sorted(steps)
    assert widget.step in steps
    assert steps[-1] == max(s for s, step in enumerate(widget.trace.steps) if is_evaluation(step))


def is_evaluation(step: Any) -> bool:
    return isinstance(step, tc.Compute)


def test_kept_tiles_plan_a_schedule_by_hand_that_keeps_them(widget: Widget) -> None:
    widget.kept = [8, 4]
    assert widget.kept == [4, 8]
    assert (widget.policy, widget.row, widget.budget) == ("hand-picked", 2, None)
    assert headings(widget)[2] == "Keep 2 of 16 layers, compute the rest again"
    graph = widget.trace.graph
    expected = tc.replay(tc.plan(graph, "retain", keep=["f4", "f8"]))
    assert widget.trace.steps == expected.steps
    assert widget.trace.schedule.policy == "hand-picked"
    widget.kept = [8]
    assert len(widget.traces) == 3, "schedules by hand pile up"
    widget.kept = [*range(1, 17)]
    assert widget.trace.recomputations == 0


def test_kept_tiles_of_scopes_keep_what_they_pass_on() -> None:
    graph = tc.networks.resnet50()
    widget = viz.widget(tc.replay(tc.plan(graph, "sqrt_n")))
    widget.kept = [3, 9]
    names = {graph.data[data].name for data in widget.trace.schedule.checkpoints}
    assert names == {"relu_7", "relu_25"}


def test_row_that_the_view_chooses_says_what_it_keeps() -> None:
    frontier = tc.frontier(tc.networks.chain(16), nodes=True)
    widget = viz.widget(frontier, budget=9)
    assert (widget.budget, widget.trace.peak_nodes) == ("9", 9)
    story = story_of([widget.traces[0], widget.trace])
    assert widget.step == story.moments[story.at("recomputation")].rows[1].step
    for row, trace in enumerate(widget.traces):
        widget.row = row
        assert widget.trace is trace
        assert len(widget.traces) == 8, "a schedule of the frontier was planned anew"
        if trace.recomputations == 0:
            assert widget.kept == [*range(1, 17)]


def test_budget_chooses_the_schedule_and_another_schedule_ends_the_budget() -> None:
    import traitlets

    widget = viz.widget(tc.frontier(tc.networks.chain(16), nodes=True))
    widget.budget = "50 %"
    assert (widget.trace.peak_nodes, widget.trace.evaluations) == (9, 42)
    widget.row = 0
    assert (widget.budget, widget.trace.recomputations) == (None, 0)
    for wrong in ("half", "2", "1 GiB"):
        with pytest.raises(traitlets.TraitError, match="budget"):
            widget.budget = wrong
    with pytest.raises(traitlets.TraitError, match="row 8: expected one from 0 to 7"):
        widget.row = 8
    assert (widget.row, widget.budget) == (0, None)


@pytest.mark.parametrize("kept", [[0], [17], [4, 99]])
def test_tiles_that_are_not_there_are_refused(widget: Widget, kept: list[int]) -> None:
    import traitlets

    with pytest.raises(traitlets.TraitError, match="expected tiles from 1 to 16"):
        widget.kept = kept
    assert widget.kept == [4, 8, 12]


def test_widget_displays_as_a_view_of_its_model(widget: Widget) -> None:
    bundle: Any = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    state = widget.get_state()
    assert {"data", "step", "budget", "kept", "attributes"} <= state.keys()
    assert "export default" in state["_esm"]


def test_notebook_without_anywidget_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viz.widget.live", None)
    monkeypatch.setitem(sys.modules, "tinyckpt.viz.widget.live", None)
    with pytest.raises(tc.BackendError, match=r"tinyckpt\[notebook\]"):
        viz.widget(chain())


SETTERS: dict[str, Callable[[Widget], None]] = {
    "step": lambda widget: setattr(widget, "step", 7),
    "budget": lambda widget: setattr(widget, "budget", "50 %"),
    "kept": lambda widget: setattr(widget, "kept", [5]),
}


@pytest.mark.parametrize("name", SETTERS)
def test_what_python_sets_is_sent_to_the_view(
    widget: Widget, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send_state(self: Widget, key: Any = None) -> None:
        sent.extend([key] if isinstance(key, str) else key)

    monkeypatch.setattr(type(widget), "send_state", send_state)
    SETTERS[name](widget)
    monkeypatch.undo()
    assert name in sent
