"""LLaMA-7B with Adam, larger than any test machine: built, planned and replayed."""

import tracemalloc
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.networks import llama

PARAMETERS = 6_738_415_616
BUDGET = 16 * 2**30


def built() -> Any:
    """Return the graph of a training step."""
    network = llama()
    step = tc.train_step(network.loss, tc.adam(1e-4))
    return step.graph(step.init(network.specs[0]), *network.specs[1:])


@pytest.fixture(scope="module")
def graph() -> Any:
    return built()


@pytest.mark.nightly
def test_llama_7b_graph_takes_megabytes() -> None:
    tracemalloc.start()
    graph = built()
    schedule = tc.plan(graph, "sqrt_n")
    tc.ledger(schedule)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 2**26  # of the 1 GiB that it may take, most is Python and NumPy themselves
    assert graph.source_bytes > 3 * 4 * PARAMETERS


@pytest.mark.long
def test_llama_7b_ledger_has_adam_state(graph: Any) -> None:
    schedule = tc.plan(graph, "sqrt_n")
    trace, ledger = tc.replay(schedule), tc.ledger(schedule)
    assert ledger.sources["parameters"] == 4 * PARAMETERS
    assert ledger.sources["optimizer state"] == 8 * PARAMETERS + 8  # and the number of the step
    assert ledger.peak_bytes == trace.peak_bytes + graph.source_bytes
    # Each gradient is consumed once it is there: the largest is that of the embedding.
    assert max(ledger.held["gradients"]) < 2 * 4 * 32000 * 4096
    stored = tc.replay(tc.plan(graph))
    assert (stored.recomputations, trace.peak_bytes * 9 < stored.peak_bytes) == (0, True)
    assert max(trace.evaluations_so_far) == trace.evaluations < 1.3 * stored.evaluations


@pytest.mark.long
def test_llama_7b_plan_stays_within_budget(graph: Any) -> None:
    schedule = tc.plan(graph, budget=BUDGET, time_limit=1.0)
    assert tc.replay(schedule).peak_bytes <= BUDGET
    assert schedule.certificate is not None
    # However short the search, it is no dearer than a policy that needs none.
    sqrt_n = tc.replay(tc.plan(graph, "sqrt_n"))
    assert sqrt_n.peak_bytes <= BUDGET
    assert schedule.certificate.cost <= sqrt_n.evaluations
    total = tc.plan(graph, "greedy", budget="96 GiB total", time_limit=60.0)
    assert tc.ledger(total).peak_bytes <= 96 * 2**30
