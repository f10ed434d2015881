"""Space-time diagram: evaluations, and live intervals of values."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.charts.test_charts import legend_of, trace_of, traces_of
from viz.charts.residency import Bar, EvaluationKind, Mark, ledger_of, rows_of
from viz.charts.space_time import cells_of, ledger_figure
from viz.theme import DARK, LIGHT


def test_ledger_of_sqrt_n_on_a_chain_matches_golden_text() -> None:
    book = ledger_of(trace_of("chain:4"), 10)
    assert book.rows == ("f1", "f2", "f3", "f4", "loss")
    assert "".join("FBR"[mark.kind] + str(mark.row + 1) for mark in book.marks) == (
        "F1F2F3F4B5B4B3B2R1B1"
    )
    assert [(bar.row + 1, bar.begin, bar.end, bar.recomputed) for bar in book.bars] == [
        (1, 0, 2, False), (4, 3, 6, False), (3, 2, 7, False), (2, 1, 8, False), (1, 8, 10, True),
    ]  # fmt: skip


@settings(max_examples=examples(50))
@given(training_graphs(), st.sampled_from(["sqrt_n", "recompute_all"]))
def test_bars_equal_live_intervals(case: Any, policy: str) -> None:
    graph, _ = case
    trace = tc.replay(tc.plan(graph, policy))
    book = ledger_of(trace, 1000)
    assert book.evaluations == len(book.marks) == trace.evaluations
    again = sum(mark.kind == EvaluationKind.RECOMPUTATION for mark in book.marks)
    assert again == trace.recomputations
    forward = {
        data for operator in graph.operators[: graph.forward_count] for data in operator.outputs
    }
    for step, taken in enumerate(trace.steps):
        if isinstance(taken, tc.Compute):
            now = trace.evaluations_so_far[step] - 1
            held = {bar.data for bar in book.bars if bar.begin <= now < bar.end}
            assert held == trace.resident_at(step) & forward


def offloaded() -> tc.Trace:
    graph = tc.networks.chain(2)
    f1, f2, loss, b2, b1 = graph.operators
    value = [operator.outputs[0] for operator in graph.operators]
    steps = (
        tc.Compute(f1.id), tc.Compute(f2.id), tc.Offload(value[0]), tc.Compute(loss.id),
        tc.Compute(b2.id), tc.Fetch(value[0]), tc.Compute(b1.id),
    )  # fmt: skip
    return tc.replay(tc.Schedule(graph, steps, "by hand"))


def test_offloaded_values_are_drawn_thin() -> None:
    trace = offloaded()
    bars = [bar for bar in ledger_of(trace, 10).bars if bar.row == 0]
    first = trace.graph.operators[0].outputs[0]
    assert bars == [
        Bar(0, 0, 2, False, False, first), Bar(0, 2, 4, False, True, first),
        Bar(0, 4, 5, False, False, first),
    ]  # fmt: skip
    figure = ledger_figure([trace], LIGHT)
    heights = {round(bar.get_height(), 6) for bar in figure.axes[0].patches if bar.get_y() < 0.4}
    assert len(heights) == 3  # a value, a value on the host, an evaluation
    assert legend_of(figure.legends[0])[-1] == "on the host"


@pytest.mark.long
def test_compared_ledgers_share_a_time_scale() -> None:
    traces = traces_of("chain:16")
    figure = ledger_figure(traces, DARK)
    assert {axis.get_xlim() for axis in figure.axes} == {(0, 153)}
    for axis, trace in zip(figure.axes, traces, strict=True):
        cells = [bar for bar in axis.patches if bar.get_height() > 0.8]
        assert sorted(bar.get_x() for bar in cells) == list(range(trace.evaluations))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [*(f"f{i}" for i in range(1, 17)), "loss"]
    assert legend_of(figure.legends[0]) == [
        "forward evaluation", "recomputation", "backward evaluation", "value in memory",
        "in memory, recomputed",
    ]  # fmt: skip


def test_large_ledger_is_drawn_as_an_image() -> None:
    trace = trace_of("chain:100", "recompute_all")
    book = ledger_of(trace, 36)
    assert book.rows[0] == "f1 to f3"
    assert len(book.rows) == 34 + 1
    longest = trace.evaluations
    image = cells_of(trace, book, longest, LIGHT)
    assert image.shape == (35, 1000, 3)
    assert tuple(image[0, 0]) == LIGHT.evaluation
    assert tuple(image[34, 100 * 1000 // longest]) in (LIGHT.gradient, LIGHT.evaluation)
    for mark in book.marks:
        if mark.kind == EvaluationKind.RECOMPUTATION:
            assert tuple(image[mark.row, mark.at * 1000 // longest]) == LIGHT.recomputing
    figure = ledger_figure([trace], LIGHT)
    assert len(figure.axes[0].images) == 1
    assert "in memory (stronger: more of it)" in legend_of(figure.legends[0])


def test_shade_grows_with_live_share() -> None:
    trace = trace_of("chain:72", "store_all")
    book = ledger_of(trace, 36)  # two operators a row
    image = cells_of(trace, book, trace.evaluations, LIGHT).astype(int)
    far = [abs(image[0, column] - LIGHT.panel).sum() for column in (2, 143)]
    assert tuple(image[0, 2]) == LIGHT.kept  # both are held
    assert tuple(image[35, 0]) == LIGHT.panel  # nothing is
    assert far[0] > far[1] > 0


def test_rows_are_scopes_for_many_operators() -> None:
    graph, _ = tc.networks.network_from_text("transformer:2x64")
    names, rows = rows_of(graph, 36)
    assert "layer2/attention" in names
    assert len(rows) == len(graph.operators)
    for operator, row in zip(graph.operators, rows, strict=True):
        if operator.phase == "forward" and operator.scope:
            assert names[row] == operator.scope
    assert rows_of(graph, 4)[0] == ["(no scope)", "layer1", "layer2", "output"]
    assert len(rows_of(graph, 3)[0]) == 3  # too few for scopes: runs of neighbours
    assert rows_of(tc.networks.chain(3), 3)[0] == ["f1", "f2", "f3", "loss"]


def test_marks_are_in_schedule_order() -> None:
    marks = ledger_of(trace_of("chain:9"), 36).marks
    assert marks[0] == Mark(0, 0, EvaluationKind.FORWARD)
    assert [mark.at for mark in marks] == list(range(len(marks)))


def test_ledger_rows_have_user_names() -> None:
    def loss(x: Any) -> Any:
        for _ in range(2):
            x = tc.name(tc.tanh(x), "hidden")
        return tc.sum(x)

    trace = tc.replay(tc.plan(tc.differentiate(tc.build(loss, tc.Spec(3)))))
    assert ledger_of(trace, 36).rows == ("hidden", "hidden (tanh_2)", "loss")
