"""Selective checkpointing: knapsack, JAX's checkpoint policies, marked regions, keep sets."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.planner.heuristics.knapsack import solve_knapsack


def test_knapsack_value_equals_exhaustive_search() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        sizes = generator.integers(1, 9, 8).tolist()
        values = generator.integers(0, 9, 8).astype(float).tolist()
        capacity = int(generator.integers(0, 40))
        best = 0.0
        for chosen in range(256):
            items = [i for i in range(8) if chosen >> i & 1]
            if sum(sizes[i] for i in items) <= capacity:
                best = max(best, sum(values[i] for i in items))
        taken = solve_knapsack(sizes, values, capacity)
        assert sum(sizes[i] for i in taken) <= capacity
        assert sum(values[i] for i in taken) == best


def test_knapsack_bounds_saved_bytes_but_not_peak() -> None:
    graph = tc.networks.chain(64)
    store_all = tc.replay(tc.plan(graph))
    for share in (0.0, 0.05, 0.2, 0.5):
        schedule = tc.plan(graph, "knapsack", activation_memory_budget=share)
        saved = sum(graph.data[data].nbytes for data in schedule.checkpoints)
        assert saved <= share * 64 * 512
        assert tc.replay(schedule).peak_bytes > share * store_all.peak_bytes
    assert tc.plan(graph, "knapsack", activation_memory_budget=1).steps == tc.plan(graph).steps
    for wrong in (-0.1, 1.1, "half", True):
        with pytest.raises(tc.ScheduleError, match="expected a number from 0 to 1"):
            tc.plan(graph, "knapsack", activation_memory_budget=wrong)


def attention(x: Any, w: Any) -> Any:
    q = tc.name(x @ w, "query")
    scores = tc.name(tc.softmax(q @ q.transpose(0, 2, 1)), "scores")
    return tc.half_squared_norm(tc.tanh(scores @ q))


ATTENTION = tc.differentiate(tc.build(attention, tc.Spec((2, 4, 4)), tc.Spec((4, 4))), (0, 1))


def recomputed(schedule: tc.Schedule) -> set[str]:
    """Return the names of the operators that are evaluated more than once."""
    counts: dict[int, int] = {}
    for step in schedule.steps:
        if isinstance(step, tc.Compute):
            counts[step.operator] = counts.get(step.operator, 0) + 1
    return {schedule.graph.operators[index].name for index, count in counts.items() if count > 1}


def test_saveable_rules_match_jax_policies_of_same_name() -> None:
    rules = tc.checkpoint_policies
    dots = {"matmul_1", "matmul_2", "matmul_3"}

    def again(rule: Any, *names: str) -> set[str]:
        return recomputed(tc.plan(ATTENTION, "saveable", rule=rule, names=names))

    assert again("everything_saveable") == set()
    # The inputs of the first backward operators are still resident.
    assert again("nothing_saveable") >= {"matmul_1", "softmax_1"}
    assert not again("dots_saveable") & dots
    assert "softmax_1" in again("dots_saveable")
    # The projection has no batch dimensions, the two products of attention have.
    assert "matmul_1" not in again("dots_with_no_batch_dims_saveable")
    assert "matmul_2" in again("dots_with_no_batch_dims_saveable")
    assert "softmax_1" not in again("save_only_these_names", "scores")
    assert again("save_any_names_but_these", "scores") == again("save_only_these_names", "query")
    assert "softmax_1" in again("save_anything_except_these_names", "scores")
    both = rules.save_from_both_policies(rules.dots_saveable, rules.save_only_these_names("scores"))
    assert {name.rsplit("_", 1)[0] for name in again(both)} == {"reshape", "transpose"}  # views
    with pytest.raises(tc.ScheduleError, match="no value is named 'nobody'; names are query, sco"):
        again("save_only_these_names", "nobody")
    with pytest.raises(tc.ScheduleError, match="unknown rule 'dots'; known are everything_save"):
        again("dots")
    with pytest.raises(tc.ScheduleError, match="dots_saveable takes no names"):
        again("dots_saveable", "query")


def test_saveable_offloads_values_and_keeps_gradients_bitwise_equal() -> None:
    rules = tc.checkpoint_policies
    rule = rules.save_and_offload_only_these_names(
        names_which_can_be_saved=["query"], names_which_can_be_offloaded=["scores"]
    )
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(2, 4, 4)), generator.normal(size=(4, 4))
    expected = tc.run(tc.plan(ATTENTION), x, w).gradients
    for chosen in (rule, "offload_dot_with_no_batch_dims"):
        schedule = tc.plan(ATTENTION, "saveable", rule=chosen)
        trace = tc.replay(schedule)
        assert max(trace.host) > 0
        assert trace.host[-1] == 0
        result = tc.run(schedule, x, w)
        assert result.trace == trace
        for ours, theirs in zip(result.gradients, expected, strict=True):
            assert np.array_equal(ours, theirs)


def nested(x: Any) -> Any:
    def inner(h: Any) -> Any:
        return tc.tanh(tc.sin(tc.tanh(h)))

    def outer(h: Any) -> Any:
        return tc.sin(tc.checkpoint(inner)(tc.sin(h)))

    for _ in range(3):
        x = tc.tanh(tc.checkpoint(outer)(x))
    return tc.half_squared_norm(x)


def flat(x: Any) -> Any:
    for _ in range(3):
        x = tc.checkpoint(lambda h: tc.tanh(tc.sin(tc.tanh(h))))(x)
    return tc.half_squared_norm(x)


def times_evaluated(schedule: tc.Schedule) -> list[int]:
    counts = [0] * schedule.graph.forward_count
    for step in schedule.steps:
        if isinstance(step, tc.Compute) and step.operator < len(counts):
            counts[step.operator] += 1
    return counts


def test_regions_recompute_values_inside_once() -> None:
    graph = tc.differentiate(tc.build(flat, tc.Spec(4)))
    schedule = tc.plan(graph, "regions")
    # tanh, sin, tanh in three regions: the vjp of sin reads the first tanh, inside the region; that
    # of the second tanh reads the region's output, which stays.
    assert times_evaluated(schedule) == [2, 1, 1] * 3 + [1]
    assert schedule.note == "3 marked regions"


def test_nested_regions_are_recomputed_at_each_level() -> None:
    graph = tc.differentiate(tc.build(nested, tc.Spec(4)))
    schedule = tc.plan(graph, "regions")
    # sin | tanh sin tanh | sin, and tanh outside. The backward pass of the outer region recomputes
    # the inputs of the vjp of its last sin; then that of the inner one, the first tanh once more.
    assert times_evaluated(schedule)[:6] == [2, 3, 2, 2, 1, 1]
    assert schedule.note == "6 marked regions"
    plain = tc.plan(tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(x)), tc.Spec(4))), "regions")
    assert plain.note == "no function is marked with tc.checkpoint"


def block(h: Any) -> Any:
    return tc.name(tc.tanh(tc.name(tc.sin(tc.tanh(h)), "middle")), "end")


def blocks(x: Any) -> Any:
    for _ in range(3):
        x = tc.checkpoint(block)(x)
    return tc.half_squared_norm(tc.sin(x))


BLOCKS = tc.differentiate(tc.build(blocks, tc.Spec(4)))


def test_regions_keep_saves_named_inner_values() -> None:
    def again(keep: Any) -> list[int]:
        schedule = tc.plan(BLOCKS, "regions", keep=keep)
        tc.replay(schedule)
        return times_evaluated(schedule)[:9]

    plain = tc.plan(BLOCKS, "regions")
    # tanh, sin, tanh: the vjp of sin reads the first tanh, that of the last tanh its own output,
    # which is the region's output and stays.
    assert times_evaluated(plain)[:9] == [2, 1, 1] * 3
    assert again("tanh_1") == [1, 1, 1, 2, 1, 1, 2, 1, 1]
    assert again(["tanh_1", BLOCKS.operators[3].outputs[0]]) == [1, 1, 1, 1, 1, 1, 2, 1, 1]
    assert again("tanh_*") == again("tanh_?") == [1] * 9
    assert again(lambda node: node.name.startswith("tanh")) == [1] * 9
    assert again("middle") == again("m*") == [2, 1, 1] * 3  # nothing reads it a second time
    kept = tc.plan(BLOCKS, "regions", keep="tanh_1")
    assert kept.note == "3 marked regions; kept 1 value of the inside: tanh_1"
    assert kept.options == {"keep": ["tanh_1"]}
    assert set(kept.checkpoints) == {*plain.checkpoints, BLOCKS.operators[0].outputs[0]}
    assert plain.options == {}
    for wrong in ("tanh_9", "cosh_*", "half_squared_norm_1_vjp", -1, 1.5, True):
        with pytest.raises(
            tc.PolicyOptionError, match=r"regions: .* is not a forward value of blocks"
        ):
            again([wrong])


def test_regions_keep_saves_nested_value_at_every_level() -> None:
    graph = tc.differentiate(tc.build(nested, tc.Spec(4)))
    x = np.linspace(-1.0, 1.0, 4)
    expected = tc.run(tc.plan(graph), x).gradients
    # Without keep, the inner region's first tanh is evaluated three times: see above.
    schedule = tc.plan(graph, "regions", keep="tanh_1")
    assert times_evaluated(schedule)[:6] == [1, 1, 2, 2, 1, 1]
    assert np.array_equal(tc.run(schedule, x).gradients, expected)


def test_retain_selects_values_by_name_pattern() -> None:
    assert tc.plan(BLOCKS, "retain", keep="sin_?").options == {
        "keep": ["sin_1", "sin_2", "sin_3", "sin_4"]
    }
    assert tc.plan(BLOCKS, "retain", keep="e?d") == tc.plan(BLOCKS, "retain", keep="end")
