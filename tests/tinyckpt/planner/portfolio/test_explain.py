"""Explanations: saved values and their fates, live values at the peak, cost of recomputations."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc


def test_explanation_of_chain_gives_fate_of_every_value() -> None:
    graph = tc.networks.chain(8)
    explanation = tc.explain(tc.plan(graph, budget="5 nodes"), nodes=True)
    assert [r.name for r in explanation.residuals] == [f"f{i}" for i in range(1, 9)]
    kept = [r.name for r in explanation.residuals if r.fate == "kept"]
    again = [r.name for r in explanation.residuals if r.fate == "recomputed"]
    assert len(kept) + len(again) == 8
    assert sum(r.extra_cost for r in explanation.residuals) == 22 - 17
    assert sum(r.cost for r in explanation.recomputed) == 22 - 17
    assert len(explanation.at_peak) == explanation.trace.peak_nodes == 5
    assert (explanation.next_budget, explanation.next_cost) == (6, 21)
    assert explanation.certificate.status == "optimal"
    for residual in explanation.residuals:
        assert residual.read_by[-1] == f"b{residual.name[1:]}"
        assert residual.evaluations == (1 if residual.fate == "kept" else 2)


def test_explanation_text_reads_as_report() -> None:
    text = str(tc.explain(tc.plan(tc.networks.chain(4), "sqrt_n"), nodes=True))
    assert "sqrt_n on chain:4: 10 evaluations, 1 of them recomputations; peak 5 nodes" in text
    assert "4 stages in 2 segments; kept f2" in text
    assert "optimal: no schedule within 5 nodes costs less than 10 evaluations" in text
    assert "freed at step 2, computed again at step 15" in text
    assert "kept for b2, as a checkpoint" in text
    assert "With 1 node more, 9 evaluations would do instead of 10 evaluations." in text
    assert "No cheaper schedule is known with more memory" in str(
        tc.explain(tc.plan(tc.networks.chain(4)))
    )


def test_explanation_says_gradient_where_names_say_vjp() -> None:
    graph = tc.networks.network_from_text("mlp:3x8")[0]
    explanation = tc.explain(tc.plan(graph, "sqrt_n"), time_limit=1)
    text = str(explanation)
    assert "vjp" not in text
    assert "(compute output/gradient of cross_entropy_1), live values:" in text
    assert "kept for gradient of matmul_3 (2), as a checkpoint" in text
    # The data keep the names of the graph.
    names = {operator.name for operator in graph.operators}
    assert {name for r in explanation.residuals for name in r.read_by} <= names
    assert {name for r in explanation.recomputed for name in r.needed_for} <= names


@pytest.mark.long
def test_live_values_at_peak_sum_to_peak() -> None:
    graph = tc.networks.residual_mlp(3, 8, 64).graph()
    explanation = tc.explain(tc.plan(graph, "sqrt_n"), time_limit=1)
    assert sum(nbytes for _, nbytes in explanation.at_peak) == explanation.trace.peak_bytes


def test_explanation_marks_offloaded_values() -> None:
    def loss(x: tc.Var) -> tc.Var:
        return tc.half_squared_norm(tc.tanh(tc.tanh(tc.name(tc.tanh(x), "first"))))

    graph = tc.differentiate(tc.build(loss, tc.Spec(4)))
    rule = tc.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_offloaded=["first"]
    )
    schedule = tc.plan(graph, "saveable", rule=rule)
    explanation = tc.explain(schedule, time_limit=1)
    fates = {r.name: r.fate for r in explanation.residuals}
    assert fates["first"] == "offloaded"
    assert tc.run(schedule, np.ones(4)).trace == explanation.trace


def test_explain_rejects_illegal_schedule() -> None:
    graph = tc.networks.chain(2)
    with pytest.raises(tc.ScheduleError):
        tc.explain(tc.Schedule(graph, (tc.Compute(1),), "broken"))


@pytest.mark.long
def test_explain_bound_respects_time_limit() -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    schedule = tc.plan(graph, "sqrt_n")
    # The bound rises in the first moments of a search that lasts as long as it may.
    patient, hurried = (tc.explain(schedule, time_limit=limit) for limit in (1, 0))
    assert patient.certificate is not None
    assert hurried.certificate is not None
    assert hurried.certificate.lower_bound == len(graph.operators)
    assert hurried.certificate.lower_bound < patient.certificate.lower_bound
    # What the schedule itself tells takes no search.
    assert hurried.residuals == patient.residuals
    assert hurried.recomputed == patient.recomputed


@pytest.mark.parametrize("limit", [-1, "1", float("nan")])
def test_explain_rejects_invalid_time_limit(limit: Any) -> None:
    with pytest.raises(tc.PolicyOptionError, match=r"time_limit .* must be a number of seconds"):
        tc.explain(tc.plan(tc.networks.chain(4)), time_limit=limit)
