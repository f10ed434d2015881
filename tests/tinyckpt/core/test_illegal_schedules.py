"""The schedule verifier and policies: illegal schedules are found, mutations are visible."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.core.test_three_accounts import POLICIES, planned
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.planner.model.cost_models import custom

CHAIN = tc.networks.chain(4)


def names(schedule: tc.Schedule) -> str:
    """Return the evaluations in order, as one line."""
    steps = [step for step in schedule.steps if isinstance(step, tc.Compute)]
    return " ".join(schedule.graph.operators[step.operator].name for step in steps)


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("store_all", "f1 f2 f3 f4 l b4 b3 b2 b1"),
        ("recompute_all", "f1 f2 f3 f4 l b4 f1 f2 f3 b3 f1 f2 b2 f1 b1"),
        ("sqrt_n", "f1 f2 f3 f4 l b4 b3 b2 f1 b1"),
    ],
)
def test_policy_evaluation_order_on_chain_equals_golden_text(policy: str, order: str) -> None:
    assert names(tc.plan(CHAIN, policy)) == order


def test_sqrt_n_on_chain_of_nine() -> None:
    schedule = tc.plan(tc.networks.chain(9), "sqrt_n")
    assert names(schedule) == (
        "f1 f2 f3 f4 f5 f6 f7 f8 f9 l b9 b8 b7 b6 f4 f5 b5 b4 b3 f1 f2 b2 b1"
    )
    assert schedule.note == "9 stages in 3 segments; kept f3, f6"


def test_printed_schedule_shows_live_memory() -> None:
    lines = str(tc.plan(CHAIN, "sqrt_n")).splitlines()
    assert lines[:3] == [
        " 0  compute  f1   live 1 node, 512 B",
        " 1  compute  f2   live 2 nodes, 1.0 KiB",
        " 2  free     f1   live 1 node, 512 B",
    ]
    assert lines[-1] == (
        "sqrt_n on chain:4: 10 evaluations, 1 of them recomputations; peak 5 nodes, 2.5 KiB"
    )


@pytest.mark.parametrize(
    ("steps", "match"),
    [
        ([tc.Compute(1)], "step 0: compute f2 needs f1, which has not been computed yet"),
        (
            [tc.Compute(0), tc.Free(1), tc.Compute(1)],
            "step 2: compute f2 needs f1, which was freed at step 1",
        ),
        ([tc.Compute(0), tc.Compute(0)], "step 1: compute f1, whose result f1 is still resident"),
        ([tc.Free(1)], "step 0: free f1, which has not been computed yet"),
        ([tc.Compute(0), tc.Free(1), tc.Free(1)], "step 2: free f1, which was freed at step 1"),
        ([tc.Free(0)], "step 0: free x, a source"),
        ([tc.Compute(99)], "step 0: operator 99 does not exist"),
        ([tc.Compute(-1)], "step 0: operator -1 does not exist"),
        ([tc.Free(99)], "step 0: value 99 does not exist"),
        ([tc.Fetch(1)], "step 0: fetch f1, which is not on the host"),
        ([tc.Fetch(99)], "step 0: value 99 does not exist"),
        ([tc.Free(-1)], "step 0: value -1 does not exist"),
        ([3], "step 0: 3 is not a step"),
        ([tc.Compute(1.5)], r"step 0: operator 1\.5 does not exist"),  # type: ignore[arg-type]
        ([tc.Compute("f1")], "step 0: operator 'f1' does not exist"),  # type: ignore[arg-type]
        ([tc.Compute(0), tc.Free(True)], "step 1: value True does not exist"),
        (
            [tc.Compute(0), tc.Offload(1), tc.Compute(1)],
            "step 2: compute f2 needs f1, which was moved to the host at step 1",
        ),
        ([tc.Compute(0), tc.Offload(1), tc.Compute(0)], "f1 is still resident"),
        ([tc.Compute(0)], "the schedule ends without b1"),
    ],
)
def test_replay_error_names_step_and_reason(steps: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        tc.replay(tc.Schedule(CHAIN, tuple(steps), "by hand"))


@pytest.mark.parametrize(
    ("field", "wrong", "match"),
    [
        ("graph", None, "graph=None; expected a Graph"),
        ("steps", 7, "steps=7; expected a sequence"),
        ("policy", 7, "policy=7; expected a string"),
        ("options", [1], r"options=\[1\]; expected a dict"),
        ("checkpoints", 7, "checkpoints=7; expected a sequence"),
        ("checkpoints", ("f1",), "checkpoints: value 'f1' does not exist; chain:4 has 0 to 10"),
    ],
)
def test_schedule_with_field_of_wrong_type_is_refused(field: str, wrong: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        dataclasses.replace(tc.plan(CHAIN), **{field: wrong})


def test_schedule_copies_steps_that_are_a_list() -> None:
    steps: Any = list(tc.plan(CHAIN).steps)
    schedule = tc.Schedule(CHAIN, steps, "by hand")
    steps.append(tc.Compute(99))
    assert tc.replay(schedule).evaluations == 9


def test_offloading_moves_bytes_to_the_host_and_back() -> None:
    steps = list(tc.plan(CHAIN, "store_all").steps)
    f1 = 1
    used = max(i for i, step in enumerate(steps) if step == tc.Compute(8))  # b1 reads f1
    moved = [*steps[:2], tc.Offload(f1), *steps[2:used], tc.Fetch(f1), *steps[used:]]
    schedule = tc.Schedule(CHAIN, tuple(moved), "offloading")
    trace = tc.replay(schedule)
    assert max(trace.host) == 512
    assert trace.host[-1] == 0
    assert trace.peak_nodes == tc.replay(tc.plan(CHAIN, "store_all")).peak_nodes - 1
    x = np.linspace(-1, 1, 64).reshape(8, 8)
    result = tc.run(schedule, x)
    assert result.trace == trace
    expected = tc.run(tc.plan(CHAIN), x).gradients
    assert np.array_equal(result.gradients, expected)
    assert np.array_equal(tc.compile(schedule)(x)[1], expected)
    assert f1 not in trace.resident_at(3)
    assert f1 in trace.resident_at(used + 1)


@settings(max_examples=examples(60))
@given(training_graphs(largest=8), st.sampled_from(POLICIES), st.data())
def test_random_mutation_is_illegal_or_changes_trace(case: Any, policy: str, data: Any) -> None:
    graph, _ = case
    schedule = planned(graph, policy)
    original = tc.replay(schedule)
    steps = schedule.steps
    chosen = data.draw(st.lists(st.integers(0, len(steps) - 1), min_size=1, max_size=6))
    mutants = []
    for at in chosen:
        mutants.append((*steps[:at], *steps[at + 1 :]))
        mutants.append((*steps[: at + 1], *steps[at:]))
        if at + 1 < len(steps):
            mutants.append((*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]))
    for mutant in mutants:
        try:
            trace = tc.replay(dataclasses.replace(schedule, steps=mutant))
        except tc.ScheduleError:
            continue
        assert trace != original


def residual(x: Any) -> Any:
    for _ in range(9):
        x = x + tc.tanh(tc.sin(x))
    return tc.half_squared_norm(x)


def dense(x: Any) -> Any:
    values = [x]
    for _ in range(9):
        values.append(tc.tanh(sum(tc.sin(value) for value in values)))
    return tc.half_squared_norm(values[-1])


def test_sqrt_n_cuts_residual_net_between_blocks() -> None:
    graph = tc.differentiate(tc.build(residual, tc.Spec(4)))
    schedule = tc.plan(graph, "sqrt_n")
    # Two stages a block: its tanh, and the sum that the next block's sin reads.
    assert schedule.note == "18 stages in 4 segments; kept add_2, add_4, add_7"
    assert tc.replay(schedule).peak_nodes < tc.replay(tc.plan(graph)).peak_nodes


def test_sqrt_n_note_says_if_there_are_no_separators() -> None:
    graph = tc.differentiate(tc.build(dense, tc.Spec(4)))
    schedule = tc.plan(graph, "sqrt_n")
    assert schedule.note.startswith("9 stages in 3 segments; no separator near 2 of 2 cuts; kept")
    assert tc.run(schedule, np.ones(4)).trace == tc.replay(schedule)


def test_sqrt_n_honours_number_of_segments() -> None:
    graph = tc.networks.chain(12)
    assert tc.plan(graph, "sqrt_n", segments=1).steps == tc.plan(graph, "store_all").steps
    assert "kept f3, f6, f9" in tc.plan(graph, "sqrt_n", segments=4).note
    assert len(tc.plan(graph, "sqrt_n", segments=99).checkpoints) == 11
    for wrong in (0, 2.5, "3", True):
        with pytest.raises(tc.ScheduleError, match="there must be at least 1, an integer"):
            tc.plan(graph, "sqrt_n", segments=wrong)


def aux_at_four(x: Any) -> Any:
    early = None
    for layer in range(64):
        x = tc.tanh(x)
        early = x if layer == 3 else early
    return tc.half_squared_norm(x), early


def late_skip(x: Any) -> Any:
    values = [x]
    for _ in range(68):
        values.append(tc.tanh(values[-1]))
    return tc.half_squared_norm(values[-1] + values[8])


def deep_supervision(x: Any) -> Any:
    loss = 0.0
    for layer in range(64):
        x = tc.tanh(x)
        if layer % 16 == 15:
            loss = tc.half_squared_norm(x) + loss
    return loss


def shared_everywhere(x: Any) -> Any:
    shared = tc.sin(x)
    for _ in range(64):
        x = tc.tanh(x * shared)
    return tc.half_squared_norm(x)


@pytest.mark.parametrize("function", [aux_at_four, late_skip, deep_supervision, shared_everywhere])
@pytest.mark.parametrize("segments", [None, 8])
def test_sqrt_n_saves_memory_with_separators_in_part_of_graph(function: Any, segments: Any) -> None:
    graph = tc.differentiate(tc.build(function, tc.Spec(4)))
    stored = tc.replay(tc.plan(graph, "store_all"))
    trace = tc.replay(tc.plan(graph, "sqrt_n", segments=segments))
    assert trace.peak_bytes < 0.45 * stored.peak_bytes
    assert trace.evaluations < 1.55 * stored.evaluations


def test_retain_accepts_names_labels_nodes_ids_and_predicates() -> None:
    def function(x: Any) -> Any:
        h = tc.name(tc.tanh(x), "first")
        return tc.half_squared_norm(tc.tanh(tc.tanh(h)))

    graph = tc.differentiate(tc.build(function, tc.Spec(4)))
    expected = tc.plan(graph, "retain", keep="first")
    node = graph.data[1]
    assert expected.checkpoints == (1,)
    for keep in ([node.name], node, [node.id], lambda data: data.label == "first"):
        assert tc.plan(graph, "retain", keep=keep).steps == expected.steps
    assert tc.plan(graph, "retain", keep=["first", 1]).checkpoints == (1,)
    for wrong in (None, True, np.ones(2)):
        with pytest.raises(tc.ScheduleError, match="is not a forward value"):
            tc.plan(graph, "retain", keep=[wrong])
    for wrong in (None, b"first"):
        with pytest.raises(tc.ScheduleError, match="give names, labels, ids or a predicate"):
            tc.plan(graph, "retain", keep=wrong)
    with pytest.raises(tc.ScheduleError, match=r"'nothing' is not a forward value.*such as first"):
        tc.plan(graph, "retain", keep="nothing")


def test_empty_keep_set_recomputes_each_value_once() -> None:
    graph = tc.networks.chain(6)
    trace = tc.replay(tc.plan(graph, "retain", keep=[]))
    assert trace.recomputations == 5  # f6 is at hand when the backward sweep begins
    assert trace.peak_nodes == 7


def test_user_defined_policy_is_accepted() -> None:
    def stingy(graph: tc.Graph, costs: tc.Costs, every: int) -> tc.Schedule:
        order = []
        for operator in graph.operators:
            if operator.phase == "backward" and operator.id % every == 0:
                order.append(0)
            order.append(operator.id)
        return tc.from_order(graph, order, "stingy")

    schedule = tc.plan(CHAIN, stingy, every=2)
    assert tc.run(schedule, np.ones((8, 8))).trace == tc.replay(schedule)
    with pytest.raises(tc.ScheduleError, match="the policy <lambda>: it returned a int"):
        tc.plan(CHAIN, lambda graph, costs: 3)
    with pytest.raises(tc.ScheduleError, match="a schedule of another graph"):
        tc.plan(CHAIN, lambda graph, costs: tc.plan(tc.networks.chain(2)))
    assert tc.plan(CHAIN, tc.POLICIES["sqrt_n"]).policy == "sqrt_n"
    broken = tc.Schedule(CHAIN, (tc.Compute(3),), "broken")
    with pytest.raises(tc.ScheduleError, match="step 0"):
        tc.plan(CHAIN, lambda graph, costs: broken)


def test_unknown_policy_or_option_error_lists_known_ones() -> None:
    with pytest.raises(tc.ScheduleError, match="unknown policy 'best'; known are store_all, recom"):
        tc.plan(CHAIN, "best")
    with pytest.raises(tc.ScheduleError, match="store_all has no option 'segments'; it has none"):
        tc.plan(CHAIN, "store_all", segments=2)


def test_forward_only_graph_is_evaluated_once_by_every_policy() -> None:
    graph = tc.build(lambda x: tc.tanh(tc.sin(x)), tc.Spec(3))
    for policy in POLICIES:
        assert names(tc.plan(graph, policy)) == "sin_1 tanh_1"


def test_cost_models_on_chain() -> None:
    graph = tc.differentiate(tc.build(lambda w, x: tc.sum(x @ w), tc.Spec((3, 2)), tc.Spec((4, 3))))
    assert evaluations(graph).operators == (1, 1, 1, 1)
    # 2*4*3*2 for the product, 8 for the sum, nothing for a view, the product again.
    assert flops(graph).operators == (48, 8, 0, 48)
    assert custom(graph, [0.5] * 4, "seconds").unit == "seconds"
    with pytest.raises(tc.ScheduleError, match="the costs are not those of"):
        tc.plan(graph, costs=evaluations(CHAIN))
    with pytest.raises(tc.ScheduleError, match="expected 4 numbers of 0 or more"):
        custom(graph, [1.0])


def test_abstract_operators_replay_but_do_not_execute() -> None:
    bare = [dataclasses.replace(operator, primitive=None) for operator in CHAIN.operators]
    graph = dataclasses.replace(CHAIN, operators=tuple(bare))
    schedule = tc.plan(graph, "sqrt_n")
    assert tc.replay(schedule).evaluations == 10
    for job in (lambda: tc.run(schedule, np.ones((8, 8))), lambda: tc.compile(schedule)):
        with pytest.raises(tc.BackendError, match="f1 is abstract"):
            job()


def test_unknown_or_missing_backend_is_refused() -> None:
    with pytest.raises(
        tc.BackendError, match="unknown backend 'torch'; expected one of numpy, cupy"
    ):
        tc.run(tc.plan(CHAIN), np.ones((8, 8)), backend="torch")
