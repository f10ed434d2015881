"""The explainer's story: every number of it is the trace's own."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.random_dags import training_graphs
from tinyckpt.base.errors import OptionError
from viz.explainer import delays_of
from viz.explainer.drawing import caption_of, heading_of, results_of, subtitle_of
from viz.explainer.story import MOST_TILES, RowMoment, Story, story_of


def replayed(graph: tc.Graph, policy: str) -> tc.Trace:
    return tc.replay(tc.plan(graph, policy))


def tiles(row: RowMoment) -> str:
    """One letter per tile: in memory, computed again, thrown away, not computed yet."""
    return "".join(
        ("r" if again else "#") if filled else "." if computed else " "
        for filled, again, computed in zip(row.filled, row.again, row.computed, strict=True)
    )


def test_chain_of_16_tells_the_first_recomputation_tile_by_tile() -> None:
    story = story_of(replayed(tc.networks.chain(16), "sqrt_n"))
    first = [moment for moment in story.moments if moment.phase == "first"]
    assert [tiles(moment.rows[1]) for moment in first] == [
        "...#...#r.......",
        "...#...#rr......",
        "...#...#rrr.....",
    ]
    assert [tiles(moment.rows[0]) for moment in first] == ["############...."] * 3
    assert all(moment.rows[0].waits and not moment.rows[1].waits for moment in first)
    assert [caption_of(story, first[0], row) for row in (0, 1)] == [
        "The gradient waits for the other one",
        "Layers 9, 10, 11 again, from layer 8",
    ]


def test_chain_of_16_says_what_is_kept_and_what_it_costs() -> None:
    story = story_of(replayed(tc.networks.chain(16), "sqrt_n"))
    assert [heading_of(story, row) for row in (0, 1)] == [
        "Keep everything",
        "Keep every 4th layer, compute the rest again",
    ]
    assert [row.peak for row in story.moments[-1].rows] == [18, 9]
    assert [sum(row.done) for row in story.moments[-1].rows] == [33, 42]
    assert [words for words, _ in results_of(story)] == [
        "Half the memory.",
        "27 % more work.",
        "The same gradient.",
    ]


@pytest.mark.parametrize(
    ("policies", "work"),
    [
        (("store_all", "recompute_all"), "4.6 times the work."),  # 153 evaluations for 33
        (("recompute_all", "store_all"), "78 % less work."),
    ],
)
def test_work_is_said_as_one_would(policies: tuple[str, str], work: str) -> None:
    graph = tc.networks.chain(16)
    story = story_of([replayed(graph, policy) for policy in policies])
    assert [words for words, _ in results_of(story)][1] == work


def test_chain_of_16_takes_13_seconds() -> None:
    story = story_of(replayed(tc.networks.chain(16), "sqrt_n"))
    delays, phases = delays_of(story), [moment.phase for moment in story.moments]
    seconds = {
        phase: sum(d for d, p in zip(delays, phases, strict=False) if p == phase) / 100
        for phase in ("forward", "turn", "first")
    }
    assert sum(delays) == 1300
    assert seconds == {"forward": 1.5, "turn": 1.0, "first": 4.0}


@pytest.mark.parametrize(
    ("graph", "policy", "heading"),
    [
        (tc.networks.chain(5), "recompute_all", "Keep nothing, compute all of it again"),
        (tc.networks.chain(9), "sqrt_n", "Keep every 3rd layer, compute the rest again"),
        (tc.networks.chain(16), "store_all", "Keep everything"),
        (tc.networks.chain(3), "sqrt_n", "Keep layer 2, compute the rest again"),
        (tc.networks.chain(8), "offload", "Move to host memory, and back"),
        (tc.networks.unet(), "sqrt_n", "Keep 6 of 10 blocks, compute the rest again"),
        (
            tc.networks.network_from_text("residual:8x64")[0],
            "sqrt_n",
            "Keep part of 4 blocks, compute the rest again",
        ),
    ],
    ids=["recompute_all", "every third", "store_all", "one", "offload", "unet", "residual"],
)
def test_heading_says_what_a_policy_keeps(graph: tc.Graph, policy: str, heading: str) -> None:
    assert heading_of(story_of(replayed(graph, policy)), 1) == heading


@pytest.mark.parametrize(
    ("policy", "subtitle", "caption"),
    [
        ("sqrt_n", "sqrt_n: here it computes nothing again", "Every layer's output stays"),
        ("store_all", "a step of training, 2 layers", "Every layer's output stays"),
        (
            "offload",
            "offloading: offload; nothing is computed again",
            "The others wait on the host",
        ),
    ],
)
def test_row_that_recomputes_nothing_says_why(policy: str, subtitle: str, caption: str) -> None:
    story = story_of(replayed(tc.networks.chain(2), policy))
    assert subtitle_of(story, 0) == "a step of training, 2 layers"
    assert subtitle_of(story, 1) == subtitle
    assert caption_of(story, story.moments[0], 1) == caption


@pytest.mark.long
def test_heading_leaves_out_what_stays_until_it_is_read() -> None:
    # After the last of every 4th nothing is computed again, whoever made the schedule.
    schedule = tc.frontier(tc.networks.chain(16), nodes=True).schedule(9)
    heading = heading_of(story_of(tc.replay(schedule)), 1)
    assert heading == "Keep every 4th layer, compute the rest again"


def check(story: Story) -> None:
    """Each number of the last moment is its trace's, and none on the way exceeds it."""
    flops = tc.cost.evaluations if story.unit == "evaluations" else tc.cost.flops
    for place, trace in enumerate(story.traces):
        last = story.moments[-1].rows[place]
        weights = flops(trace.graph).operators
        done = [weights[s.operator] for s in trace.steps if isinstance(s, tc.Compute)]
        assert sum(last.done) == pytest.approx(sum(done))
        assert last.peak == (trace.peak_nodes if story.in_nodes else trace.peak_bytes)
        peaks = [moment.rows[place].peak for moment in story.moments]
        assert peaks == sorted(peaks)
        live = set(trace.nodes if story.in_nodes else trace.live_bytes)
        assert {sum(moment.rows[place].bands) for moment in story.moments[1:]} <= live
    for moment in story.moments:
        useful = {sum(row.done[:2]) for row in moment.rows}
        assert not story.in_nodes or len(useful) == 1, "a row runs ahead"
        assert not all(row.waits for row in moment.rows)
        for row in moment.rows:
            assert all(
                0 <= again <= filled <= 1
                for again, filled in zip(row.again, row.filled, strict=True)
            )
    assert len(story.tiles) <= MOST_TILES
    assert sum(delays_of(story)) <= 2500


@pytest.mark.long
@given(
    training_graphs().map(lambda drawn: drawn[0]),
    st.sampled_from(["sqrt_n", "recompute_all", "chen_recursive"]),
)
@settings(deadline=None)
def test_story_agrees_with_the_trace_on_random_graphs(graph: tc.TrainingGraph, policy: str) -> None:
    check(story_of(replayed(graph, policy)))


@pytest.mark.parametrize("size", [1, 2, 33, 100, 1000])
def test_story_agrees_with_the_trace_on_chains(size: int) -> None:
    check(story_of(replayed(tc.networks.chain(size), "sqrt_n")))


@pytest.mark.parametrize("policy", ["store_all", "sqrt_n"])
@pytest.mark.parametrize("network", ["chain:16", "residual:12x16", "transformer:2x16", "unet"])
def test_story_shows_the_peak_of_the_trace(network: str, policy: str) -> None:
    trace = tc.replay(tc.plan(tc.networks.network_from_text(network)[0], policy))
    story = story_of(trace)
    shown = max(sum(moment.rows[-1].bands) for moment in story.moments)
    assert shown == (trace.peak_nodes if story.in_nodes else trace.peak_bytes)
    stop = story.moments[story.at("peak")].rows[-1]
    assert sum(stop.bands) == shown == stop.peak


def test_story_of_two_policies_lets_each_wait_for_the_other() -> None:
    graph = tc.networks.chain(16)
    story = story_of([replayed(graph, "sqrt_n"), replayed(graph, "recompute_all")])
    check(story)
    assert {moment.rows[0].waits for moment in story.moments} == {True, False}


@pytest.mark.parametrize(
    ("traces", "text"),
    [
        (list, "one trace, or two"),
        (lambda: [replayed(tc.networks.chain(n), "sqrt_n") for n in (3, 4)], "of one graph"),
        (lambda: [replayed(tc.networks.chain(3), "sqrt_n")] * 3, "one trace, or two"),
        (lambda: replayed(tc.build(lambda x: x + 1.0, tc.Spec(3)), "store_all"), "no backward"),
        (lambda: tc.plan(tc.networks.chain(3)), "expected a trace"),
    ],
    ids=["none", "two graphs", "three", "forward", "schedule"],
)
def test_what_has_no_story_is_refused(traces: object, text: str) -> None:
    with pytest.raises(tc.OptionError, match=text):
        story_of(traces())  # type: ignore[operator]


def profile(folder: Path, costs: list[float], sizes: tuple[int, int] = (8, 16)) -> tc.Graph:
    """A graph of two layers whose operators have costs, and no FLOPs."""
    data = [("x", 8), ("h", sizes[0]), ("y", sizes[1]), ("dy", sizes[1]), ("dh", sizes[0])]
    operators = [
        ("f", ["x"], ["h"], "forward"), ("g", ["h"], ["y"], "forward"),
        ("dg", ["h", "y"], ["dy"], "backward"), ("df", ["h", "dy"], ["dh"], "backward"),
    ]  # fmt: skip
    document = {
        "schema": "tinyckpt.graph",
        "version": 2,
        "name": "profiled",
        "gradients": ["dh"],
        "data": [{"name": name, "bytes": size} for name, size in data],
        "operators": [
            {"name": name, "inputs": read, "outputs": made, "phase": phase, "cost": cost}
            for (name, read, made, phase), cost in zip(operators, costs, strict=True)
        ],
    }
    path = folder / "profile.json"
    path.write_text(json.dumps(document))
    return tc.load_graph(path)


@pytest.mark.parametrize(
    ("costs", "unit", "work"),
    [([3.5, 1.0, 2.0, 0.5], "cost", 7.0), ([0.0] * 4, "evaluations", 4)],
    ids=["a profile's costs", "no costs"],
)
def test_work_without_flops_is_the_costs_of_the_graph(
    costs: list[float], unit: str, work: float, tmp_path: Path
) -> None:
    story = story_of(replayed(profile(tmp_path, costs), "store_all"))
    assert (story.unit, sum(story.moments[-1].rows[1].done)) == (unit, work)
    assert [words for words, _ in results_of(story)][1] == "No more work."


def test_graph_without_memory_has_no_story(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="all values of profiled are of 0 bytes"):
        story_of(replayed(profile(tmp_path, [1.0] * 4, sizes=(0, 0)), "store_all"))
