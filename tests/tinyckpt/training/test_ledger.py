"""Memory ledger: each byte has one category, and categories add up to trace and sources."""

from typing import Any

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_with_updates, training_graphs


def totals(ledger: tc.Ledger) -> list[int]:
    return [sum(row) for row in zip(*ledger.held.values(), strict=True)]


@settings(max_examples=examples(40))
@given(training_graphs())
def test_categories_add_up_to_the_trace(case: Any) -> None:
    graph, _ = case
    schedule = tc.plan(graph, "sqrt_n")
    trace, ledger = tc.replay(schedule), tc.ledger(schedule)
    assert totals(ledger) == list(trace.live_bytes)
    assert ledger.peak_bytes == trace.peak_bytes + graph.source_bytes
    assert ledger.held["workspace"] == trace.workspace


@settings(max_examples=examples(20))
@given(graphs_with_updates())
def test_categories_add_up_with_updates(case: Any) -> None:
    graph, _ = case
    schedule = tc.plan(graph)
    assert totals(tc.ledger(schedule)) == list(tc.replay(schedule).live_bytes)


def test_adam_takes_16_bytes_per_parameter() -> None:
    def loss(params: Any, x: Any) -> Any:
        return tc.half_squared_norm(x @ params["w"])

    count = 256 * 64
    step = tc.train_step(loss, tc.adam(1e-3), gradients="held")
    state = step.init({"w": tc.Spec((256, 64), "float32")})
    ledger = tc.ledger(step.schedule(state, tc.Spec((8, 256), "float32")))
    assert ledger.sources["parameters"] == 4 * count
    assert ledger.sources["optimizer state"] == 8 * count + 8  # and the number of steps
    assert max(ledger.held["gradients"]) == 4 * count
    assert ledger.sources["other sources"] >= 4 * 8 * 256
    assert "optimizer state" in str(ledger)


@pytest.mark.long
def test_budget_may_count_sources_too() -> None:
    graph = tc.networks.mlp(24, 16, 512).graph()
    stored = tc.replay(tc.plan(graph)).peak_bytes
    all_of_it = stored + graph.source_bytes
    schedule = tc.plan(graph, budget=f"{all_of_it - stored // 4} bytes total", time_limit=0.5)
    ledger = tc.ledger(schedule)
    assert ledger.peak_bytes <= all_of_it - stored // 4
    assert (
        tc.ledger(tc.plan(graph, budget="80 % total", time_limit=0.5)).peak_bytes <= 0.8 * all_of_it
    )
    with pytest.raises(tc.BudgetError, match="the sources alone are"):
        tc.plan(graph, budget="1 KiB total")
    for text in ("9 nodes total", "total", "300 total", "x total"):
        with pytest.raises(tc.BudgetError, match="expected"):
            tc.plan(graph, budget=text)


LAYERS, WIDTH, BATCH = 4, 8, 16
COUNT = LAYERS * WIDTH * WIDTH


def tanh_loss(params: Any, x: Any) -> Any:
    for w in params:
        x = tc.tanh(x @ w)
    return tc.half_squared_norm(x)


def ledger_of(part: Any = "whole", rows: int = BATCH, **options: Any) -> tc.Ledger:
    step = tc.train_step(tanh_loss, tc.adam(1e-3), **options)
    state = step.init([tc.Spec((WIDTH, WIDTH), "float32")] * LAYERS)
    return tc.ledger(step.schedule(state, tc.Spec((rows, WIDTH), "float32"), part=part))


@pytest.mark.parametrize("part", ["first", "middle", "last"])
def test_every_micro_batch_has_the_same_state(part: str) -> None:
    ledger = ledger_of(part, rows=BATCH // 4, micro_batches=4)
    assert ledger.sources["accumulated gradients"] == 4 * COUNT
    assert ledger.sources["optimizer state"] == 8 * COUNT + 8
    assert ledger.sources["parameters"] == 4 * COUNT
    assert 4 * max(ledger.held["activations"]) == max(ledger_of().held["activations"])


def test_consumed_gradients_are_resident_one_at_a_time() -> None:
    assert max(ledger_of(gradients="held").held["gradients"]) == 4 * COUNT
    assert max(ledger_of().held["gradients"]) == 4 * WIDTH * WIDTH


def test_graph_without_optimizer_has_a_ledger() -> None:
    parameters = [tc.Spec((WIDTH, WIDTH), "float32")] * LAYERS
    built = tc.build(tanh_loss, parameters, tc.Spec((BATCH, WIDTH), "float32"))
    ledger = tc.ledger(tc.plan(tc.differentiate(built)))
    assert ledger.sources["optimizer state"] == ledger.sources["accumulated gradients"] == 0
    head, *rows = str(ledger).splitlines()
    assert head == f"store_all on tanh_loss, step {ledger.peak_step}:"
    assert rows[-1].split() == ["total", "4.5", "KiB"]  # w, x, 4 values, 2 cotangents


def test_ledger_without_steps_counts_the_sources() -> None:
    graph = tc.differentiate(tc.build(lambda x: x, tc.Spec(())))
    ledger = tc.ledger(tc.plan(graph))
    assert not ledger.schedule.steps
    assert ledger.peak_bytes == graph.source_bytes
    assert str(ledger).splitlines()[-1].split() == ["total", "16", "B"]  # x and its cotangent, 1


def test_waiting_optimizer_stores_gradients_and_not_updates() -> None:
    def peaks(optimizer: tc.Optimizer, dtype: str, **options: Any) -> int:
        step = tc.train_step(tanh_loss, optimizer, **options)
        state = step.init([tc.Spec((WIDTH, WIDTH), dtype)] * 16)
        return tc.ledger(step.schedule(state, tc.Spec((1, WIDTH), dtype))).peak_bytes

    adam, layer = tc.adam(1e-3), 4 * WIDTH * WIDTH
    assert (
        peaks(tc.clipped(adam, 1.0), "float32") <= peaks(adam, "float32", gradients="held") + layer
    )
    master = tc.with_master_weights(adam)
    scaled = peaks(master, "float16", loss_scale=tc.LossScale())
    assert scaled <= peaks(master, "float16", gradients="held") + layer


@pytest.mark.long
def test_total_budget_error_reports_totals() -> None:
    graph = tc.networks.mlp(24, 16, 512).graph()
    least = graph.source_bytes + 1000
    with pytest.raises(tc.BudgetError, match="of which the sources take") as caught:
        tc.plan(graph, budget=f"{least} bytes  TOTAL", time_limit=0.5)
    assert caught.value.smallest is not None
    assert f"{caught.value.smallest // 2**10}" in str(caught.value).split("with the sources, ")[1]
    assert caught.value.smallest > least
    schedule = tc.plan(graph, budget=f"{caught.value.smallest} bytes total", time_limit=0.5)
    assert tc.ledger(schedule).peak_bytes <= caught.value.smallest
