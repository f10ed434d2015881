"""The policy ``offload``: which values move, when they leave and return, bitwise equality."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs, with_once
from tinyckpt.base.tree import leaves
from tinyckpt.core.schedule import step_text

CHAIN = tc.networks.chain(4)


def text(schedule: tc.Schedule) -> str:
    """Return evaluations and copies, such as ``f1 >f1 <f1``."""
    signs = {"compute": "", "offload": ">", "fetch": "<"}
    titles = [step_text(schedule.graph, step) for step in schedule.steps]
    return " ".join(signs[verb] + name for verb, name in titles if verb in signs)


def test_offload_follows_last_forward_use() -> None:
    assert text(tc.plan(CHAIN, "offload", budget=3 * 512)) == (
        "f1 f2 >f1 f3 >f2 f4 >f3 l b4 <f3 b3 <f2 b2 <f1 b1"
    )


def test_prefetch_ends_when_value_is_read() -> None:
    # A copy takes two evaluations, and b2 and b1 follow one another: that of f1 is to begin with
    # b3, at 6, and that of f2, which is in the same line, with l, at 4. But until 6 f2 leaves.
    schedule = tc.plan(CHAIN, "offload", values=["f1", "f2"], bandwidth=256)
    assert text(schedule) == "f1 f2 >f1 f3 >f2 f4 <f2 l b4 <f1 b3 b2 b1"
    line = tc.timed(schedule, tc.Link(256))
    copies = [
        (line.begin[position], line.end[position])
        for position, step in enumerate(schedule.steps)
        if isinstance(step, tc.Offload | tc.Fetch)
    ]
    assert copies == [(2, 4), (4, 6), (6, 8), (8, 10)]
    assert line.stalled == 2
    longer = tc.plan(tc.networks.chain(8), "offload", values=["f1", "f2", "f3"], bandwidth=256)
    assert tc.timed(longer, tc.Link(256)).stalled == 0
    assert text(longer).endswith("l b8 <f3 b7 b6 <f2 b5 b4 <f1 b3 b2 b1")


def test_prefetch_is_no_earlier_than_memory_allows() -> None:
    late = tc.plan(CHAIN, "offload", bandwidth=128, budget=3 * 512)
    assert tc.replay(late).peak_bytes == 3 * 512
    early = tc.plan(CHAIN, "offload", bandwidth=128, budget=4 * 512)
    assert tc.replay(early).peak_bytes == 4 * 512
    spans = [tc.timed(s, tc.Link(128)).makespan for s in (late, early)]
    assert spans[1] < spans[0]
    with pytest.raises(tc.BudgetError, match=r"offload needs 1\.5 KiB with 4 values on the host"):
        tc.plan(CHAIN, "offload", budget=2 * 512)


def test_values_neither_kept_nor_moved_are_recomputed() -> None:
    schedule = tc.plan(CHAIN, "offload", values="f2", keep=[])
    assert text(schedule) == "f1 f2 f3 >f2 f4 <f2 l b4 f3 b3 b2 f1 b1"
    assert schedule.options == {"values": ["f2"], "keep": []}


def test_offload_selects_values_by_name_as_jax() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = tc.name(tc.tanh(x @ w), "first")
        return tc.sum(tc.name(tc.tanh(h @ w), "second") ** 2)

    spec = tc.Spec((4, 4))
    graph = tc.differentiate(tc.build(loss, spec, spec))
    own = tc.plan(graph, "offload", values="first", keep="second", budget=10**6)
    rule = tc.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["second"], names_which_can_be_offloaded=["first"]
    )
    jax = tc.plan(graph, "saveable", rule=rule)
    moved = [step for step in own.steps if isinstance(step, tc.Offload)]
    assert moved == [step for step in jax.steps if isinstance(step, tc.Offload)]
    assert tc.replay(own).evaluations == tc.replay(jax).evaluations
    assert [graph.data[step.data].label for step in moved] == ["first"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"values": "f9"}, "offload: 'f9' is not a forward value"),
        ({"bandwidth": -1}, "bandwidth=-1"),
        ({"budget": "4 nodes"}, "offload: memory must be counted in bytes"),
        ({"bandwidth": 0}, "cannot be moved at a bandwidth of 0"),
    ],
)
def test_offload_rejects_invalid_options(options: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        tc.plan(CHAIN, "offload", **options)


def test_forward_only_graph_moves_nothing() -> None:
    graph = tc.build(tc.tanh, tc.Spec(3))
    assert tc.plan(graph, "offload").note.startswith("no backward pass")


def same_to_the_bit(graph: tc.Graph, args: Any, schedule: tc.Schedule) -> None:
    """Hold what a schedule computes, and its trace, against store-all and replay."""
    copies = [[np.array(array) for array in leaves(args)] for _ in range(2)]
    trees = [iter(copy) for copy in copies]
    given_args = [refilled(args, tree) for tree in trees]
    stored = tc.run(tc.plan(graph, "store_all"), *given_args[0])
    moved = tc.run(schedule, *given_args[1])
    assert moved.trace == tc.replay(schedule)
    results = [leaves((result.value, result.gradients)) for result in (stored, moved)]
    for before, after in zip(*results, strict=True):
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()


def refilled(tree: Any, arrays: Any) -> Any:
    from tinyckpt.base.tree import map_leaves

    return map_leaves(lambda leaf: next(arrays), tree)


@settings(max_examples=examples(60))
@given(training_graphs(), st.data())
def test_offloaded_run_is_bitwise_equal(case: Any, data: Any) -> None:
    graph, args = case
    options: dict[str, Any] = {"bandwidth": data.draw(st.sampled_from((None, 20, 100, 1e9)))}
    if data.draw(st.booleans()):
        options["keep"] = lambda node: node.id % 3 == 0
        options["values"] = lambda node: node.id % 3 == 1 and node.view_of is None
    schedule = tc.plan(graph, "offload", **options)
    same_to_the_bit(graph, args, schedule)
    least = tc.replay(tc.plan(graph, "offload", budget=10**9)).peak_bytes
    for budget in range(least, least + 200, 90):
        within = tc.plan(graph, "offload", budget=budget, bandwidth=30)
        assert tc.replay(within).peak_bytes <= budget
        line = tc.timed(within, tc.Link(30), budget=budget)
        assert line.peak_bytes <= budget


@settings(max_examples=examples(30))
@given(graphs_of_views())
def test_views_are_moved_only_where_that_frees_memory(graph: tc.TrainingGraph) -> None:
    schedule = tc.plan(graph, "offload", budget=10**9)
    trace = tc.replay(schedule)
    args = [np.random.default_rng(seed).normal(size=(4, 4)) for seed in range(2)]
    same_to_the_bit(graph, args, schedule)
    assert max(trace.host, default=0) <= sum(node.nbytes for node in graph.data)


@settings(max_examples=examples(20))
@given(graphs_with_updates())
def test_values_read_by_updates_can_be_offloaded(case: Any) -> None:
    graph = case[0]
    tc.replay(tc.plan(graph, "offload"))


@settings(max_examples=examples(20))
@given(training_graphs(), st.data())
def test_once_values_can_be_offloaded(case: Any, data: Any) -> None:
    graph = data.draw(with_once(case[0]))
    tc.replay(tc.plan(graph, "offload", values=lambda node: node.id % 2 == 0, keep=[]))


@pytest.mark.parametrize("options", [{"latency": 1}, {"engines": 1}, {"latency": float("nan")}])
def test_link_options_require_bandwidth(options: Any) -> None:
    with pytest.raises(tc.PolicyOptionError, match="latency and engines need a bandwidth="):
        tc.plan(CHAIN, "offload", **options)


def test_numpy_options_become_python_numbers() -> None:
    options = {"bandwidth": np.float32(0.5), "latency": np.int64(1), "engines": np.int8(1)}
    known = tc.plan(CHAIN, "offload", **options).options
    assert known == {"bandwidth": 0.5, "latency": 1, "engines": 1}
    assert [type(value) for value in known.values()] == [float, int, int]
