"""Captions of steps: golden sentences, and a naive reference."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.test_host import moved
from tinyckpt.base.display import spoken
from tinyckpt.base.units import size_text
from tinyckpt.core.schedule import recomputations
from tinyckpt.planner.model.value_fates import operator_words, value_words
from viz.captions import SHORT, Captions, short, whole
from viz.node_memory import CellMemory


def said(network: str, policy: str, **options: Any) -> list[str]:
    graph = tc.networks.network_from_text(network)[0]
    captions = Captions(tc.replay(tc.plan(graph, policy, **options)))
    return [captions.text(step) for step in range(len(captions.trace.steps))]


def test_run_of_recomputations_has_one_sentence_with_its_reader() -> None:
    sentence = "b7 reads f7 and b8; f5 to f7 are recomputed from f4"
    captions = said("chain:16", "sqrt_n")
    where = [place for place, text in enumerate(captions) if text.startswith(sentence)]
    assert where == list(range(where[0], where[-1] + 1))
    assert captions[where[0] :][:6] == [
        *[sentence] * 4,
        f"{sentence}; f7 is freed (512 B)",
        f"{sentence}; f7 and b8 are freed (1.0 KiB)",
    ]


def test_captions_of_frees_in_a_run_and_recomputation_from_inputs() -> None:
    captions = said("chain:4", "recompute_all")
    sentence = "b2 reads f2 and b3; f1 and f2 are recomputed from the inputs"
    assert sentence in said("chain:3", "recompute_all")
    assert f"{sentence}; f1 is freed (512 B)" in said("chain:3", "recompute_all")
    assert "b1 reads f1 and b2; f1 is recomputed from the inputs" in captions


def test_captions_of_first_evaluations_and_transfers() -> None:
    captions = said("chain:3", "offload", bandwidth=512)
    assert captions[:4] == [
        "f1 is computed", "f2 is computed from f1", "f1 goes to the host (512 B)",
        "f3 is computed from f2",
    ]  # fmt: skip
    assert "f2 comes back from the host (512 B)" in captions


def test_captions_use_user_names_and_limit_their_number() -> None:
    def function(x: tc.Var) -> Any:
        with tc.scope("block"):
            parts = [tc.name(tc.tanh(x * n), f"part{n}") for n in range(1, 6)]
            return tc.sum(tc.concatenate(parts))

    trace = tc.replay(tc.plan(tc.build(function, tc.Spec(8))))
    captions = Captions(trace)
    step = next(
        step for step in range(len(trace.steps)) if captions.text(step).startswith("block/conc")
    )
    assert list(captions.texts(step)) == [
        "block/concatenate_1 is computed from "
        "block/part1 (tanh_1), block/part2 (tanh_2) and 3 more",
        "concatenate_1 is computed from part1 (tanh_1), part2 (tanh_2) and 3 more",
        "concatenate_1 is computed from part1 (tanh_1), part2 (tanh_2) and 3 more",
    ]


@pytest.mark.parametrize("name", ["a" * 10_000, "x/" * 200 + "tanh_1", "größe" * 9, ""])
def test_long_name_is_truncated(name: str) -> None:
    assert len(whole(name)) <= 200
    assert len(short(name)) <= SHORT
    assert short("tanh_1") == whole("tanh_1") == "tanh_1"


def test_caption_before_the_first_step_is_empty() -> None:
    captions = Captions(tc.replay(tc.plan(tc.networks.chain(2))))
    assert (captions.text(-1), list(captions.texts(-1))) == ("", ["", ""])


POLICIES = ("store_all", "sqrt_n", "recompute_all")


@settings(max_examples=examples(60))
@given(training_graphs(), st.sampled_from(POLICIES), st.randoms())
def test_captions_of_random_traces_match_a_naive_scan(drawn: Any, policy: str, random: Any) -> None:
    """The clauses, found by scanning the steps one by one."""
    trace = tc.replay(tc.plan(drawn[0], policy))
    graph, again = trace.graph, recomputations(trace.steps)
    computes = [step for step, one in enumerate(trace.steps) if hasattr(one, "operator")]
    captions = Captions(trace)
    order = list(enumerate(computes))
    random.shuffle(order)  # what was looked at before changes nothing
    for position, step in order:
        run: list[int] = []
        before = position - 1
        while before >= 0 and again[computes[before]] and not again[step]:
            run.insert(0, trace.steps[computes[before]].operator)
            before -= 1
        text = captions.text(step)
        if not again[step] and not run:
            assert "recomputed" not in text
        elif not again[step]:
            made = {data for operator in run for data in graph.operators[operator].outputs}
            reads = made & set(graph.operators[trace.steps[step].operator].inputs)
            assert (" recomputed from " in text) == bool(reads)
        else:
            assert " recomputed from " in text


@settings(max_examples=examples(60))
@given(moved())
def test_captions_state_the_freed_bytes(trace: tc.Trace) -> None:
    home = {node.id: 0 for node in trace.graph.data if node.producer is not None}
    memory, captions, held = CellMemory(trace.graph, home, 1), Captions(trace), 0
    for step, taken in enumerate(trace.steps):
        if not isinstance(taken, tc.Free):
            memory.take(taken)
            held = memory.bytes[0]
            continue
        memory.take(taken)
        freed = held - memory.bytes[0]
        (*_, last) = captions.clauses(step)
        assert last.endswith(f" freed ({size_text(freed)})" if freed else " freed"), last


def test_backward_names_are_said_in_words_and_stay_in_the_graph() -> None:
    graph, _ = tc.networks.network_from_text("residual:2x4")
    captions = Captions(tc.replay(tc.plan(graph, "recompute_all")))
    texts = [text for step in range(len(captions.trace.steps)) for text in captions.texts(step)]
    assert not [text for text in texts if "vjp" in text]
    assert any("block2/gradient of gelu_2 reads" in text for text in texts)
    names = {operator_words(graph, operator.id) for operator in graph.operators}
    assert len(names) == len(graph.operators)  # as different as before
    assert any(operator.name.endswith("_vjp_2") for operator in graph.operators)


def test_only_the_backward_pass_is_said_to_be_a_gradient() -> None:
    graph = tc.build(lambda x: tc.sum(tc.name(tc.tanh(x), "my_vjp")), tc.Spec(3))
    assert value_words(graph, 1) == "my_vjp (tanh_1)"
    assert spoken("a/tanh_1_vjp_vjp_2") == "a/gradient of gradient of tanh_1 (2)"
    assert spoken("a_vjp/b (sum_1_vjp)") == "a_vjp/b (gradient of sum_1)"
    for endless in ("a" * 1_000_000 + "_vjp", "_vjp_1" * 100_000):  # nobody reads it to its end
        assert spoken(endless) == endless
