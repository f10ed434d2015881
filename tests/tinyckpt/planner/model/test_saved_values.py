"""What store-all keeps, found without a schedule."""

import doctest
from pathlib import Path
from typing import Any

import tinyckpt as tc
from tinyckpt.networks import gpt2, resnet
from tinyckpt.planner.model.saved_values import saved_values


def test_views_count_as_their_memory_once_and_parameters_never() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = tc.tanh(x * 2.0)
        left, right = (part[0] for part in tc.split(h.reshape(2, 3, 4), 2))
        return tc.sum((left @ w) * (right @ w))

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 5)), tc.Spec((6, 4))), (0, 1))
    assert [node.name for node in saved_values(graph)] == ["tanh_1", "matmul_1", "matmul_2"]


def test_store_all_holds_just_that_when_the_backward_half_begins() -> None:
    for network in (gpt2(2, 16, 2, 8, 2, 30), resnet(18, 2, 32, width=4, classes=5)):
        graph = network.graph()
        schedule = tc.plan(graph, "store_all")
        trace = tc.replay(schedule)
        last = max(
            position
            for position, step in enumerate(schedule.steps)
            if isinstance(step, tc.Compute) and step.operator < graph.forward_count
        )
        # After the last forward operator, and what is freed behind it, comes the backward half.
        while isinstance(schedule.steps[last + 1], tc.Free):
            last += 1
        kept = {node.id for node in saved_values(graph) if not node.is_source}
        kept |= trace.resident_at(last) & set(graph.outputs)  # the loss
        held = trace.activation[last] + trace.output[last]
        assert held == sum(graph.data[data].nbytes for data in kept)


def test_a_graph_without_a_backward_half_keeps_nothing() -> None:
    assert saved_values(tc.build(lambda x: tc.tanh(x), tc.Spec(3))) == []


def test_the_page_says_what_is_kept() -> None:
    page = Path(__file__).parents[4] / "docs" / "saved.md"
    assert doctest.testfile(str(page), module_relative=False) == (0, 11)
