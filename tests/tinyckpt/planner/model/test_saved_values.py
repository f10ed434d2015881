"""Saved values (residuals) of a graph, found without a schedule, equal store-all's memory."""

import doctest
from pathlib import Path
from typing import Any

import tinyckpt as tc
from tinyckpt.networks import gpt2, resnet
from tinyckpt.planner.model.saved_values import saved_values


def test_saved_values_count_views_as_their_base_once_and_exclude_parameters() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = tc.tanh(x * 2.0)
        left, right = (part[0] for part in tc.split(h.reshape(2, 3, 4), 2))
        return tc.sum((left @ w) * (right @ w))

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 5)), tc.Spec((6, 4))), (0, 1))
    assert [node.name for node in saved_values(graph)] == ["tanh_1", "matmul_1", "matmul_2"]


def test_store_all_memory_equals_saved_values_when_backward_begins() -> None:
    for network in (gpt2(2, 16, 2, 8, 2, 30), resnet(18, 2, 32, width=4, classes=5)):
        graph = network.graph()
        schedule = tc.plan(graph, "store_all")
        trace = tc.replay(schedule)
        last = max(
            position
            for position, step in enumerate(schedule.steps)
            if isinstance(step, tc.Compute) and step.operator < graph.forward_count
        )
        # The backward pass begins after the last forward operator and the frees that follow it.
        while isinstance(schedule.steps[last + 1], tc.Free):
            last += 1
        kept = {node.id for node in saved_values(graph) if not node.is_source}
        kept |= trace.resident_at(last) & set(graph.outputs)  # the loss
        held = trace.activation[last] + trace.output[last]
        assert held == sum(graph.data[data].nbytes for data in kept)


def test_saved_values_are_empty_without_backward_pass() -> None:
    assert saved_values(tc.build(lambda x: tc.tanh(x), tc.Spec(3))) == []


def test_saved_values_page_examples_run() -> None:
    page = Path(__file__).parents[4] / "docs" / "saved.md"
    assert doctest.testfile(str(page), module_relative=False) == (0, 11)
