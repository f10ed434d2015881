"""JSON documents of graphs, schedules and traces: round trips, and one error per damage."""

import dataclasses
import json
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs

HOSTILE = [
    "</script><script>alert(1)</script>",
    'a"b\\',
    "x -> y; }",
    "line\nbreak",
    "<b>&amp;</b>",
]


def hostile_graph() -> tc.TrainingGraph:
    """Return a small graph whose names are made to break out of any text they are put into."""

    def function(p: Any) -> Any:
        return tc.sum(sum(tc.tanh(p[key]) for key in HOSTILE))

    return tc.differentiate(
        tc.build(function, {key: tc.Spec(2) for key in HOSTILE}, graph_name=HOSTILE[0])
    )


@settings(max_examples=examples(30))
@given(case=training_graphs(largest=6))
def test_trace_and_schedule_round_trip(case: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    graph, args = case
    folder = tmp_path_factory.mktemp("documents")
    schedule = tc.plan(graph, "sqrt_n")
    trace = tc.run(schedule, *args, timed=True).trace
    tc.save_graph(graph, folder / "graph.json")
    tc.save_schedule(schedule, folder / "schedule.json")
    tc.save_trace(trace, folder / "trace.json")
    loaded = tc.load_trace(folder / "trace.json")
    assert loaded == tc.load_trace(folder / "trace.json")
    assert str(loaded) == str(trace)
    assert loaded.seconds == trace.seconds
    assert loaded.graph.operators == graph.operators
    assert tc.load_graph(folder / "graph.json").data == graph.data
    assert tc.load_schedule(folder / "schedule.json").steps == schedule.steps
    bound = tc.load_schedule(folder / "schedule.json", graph)
    assert tc.run(bound, *args).trace == trace


def test_hostile_names_round_trip(tmp_path: Path) -> None:
    graph = hostile_graph()
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    tc.save_trace(trace, tmp_path / "trace.json")
    assert tc.load_trace(tmp_path / "trace.json").graph.data == graph.data
    arrays = {key: np.full(2, 0.1) for key in HOSTILE}
    compiled = tc.compile(tc.plan(graph))
    assert set(compiled(arrays)[1]) == set(HOSTILE)


TERMINAL = "\x1b[2J\x07\u202etxt"  # clears a screen, rings a bell, turns a line around


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        with tc.scope(f"scope{TERMINAL}"):
            return tc.sum(tc.name(tc.tanh(x), f"label{TERMINAL}"))

    graph = tc.differentiate(tc.build(function, tc.Spec(3), graph_name=f"graph{TERMINAL}"))
    path = tmp_path / "schedule.json"
    tc.save_schedule(tc.plan(graph, "sqrt_n"), path)
    document = path.read_text()
    hostile = json.dumps(f"tanh{TERMINAL}_1")[1:-1]
    path.write_text(
        document.replace("tanh_1", hostile).replace("sqrt_n", json.dumps(TERMINAL)[1:-1])
    )
    loaded = tc.load_schedule(path)
    shown = [
        str(graph), str(loaded.graph), str(loaded), str(tc.explain(loaded)), repr(loaded.graph),
        *[str(node) for node in graph.data], *[operator.scope for operator in graph.operators],
        *[node.label or "" for node in graph.data], str(tc.Schedule(loaded.graph, (), TERMINAL)),
    ]  # fmt: skip
    assert all(text.replace("\n", "").isprintable() for text in shown)
    assert "tanh\\x1b[2J\\x07\\u202etxt_1" in str(loaded)
    tc.save_schedule(loaded, path)
    assert tc.load_schedule(path) == loaded


def test_names_equal_after_escaping_are_refused(tmp_path: Path) -> None:
    path, document = saved(tmp_path)
    document["schedule"]["graph"]["data"][0]["name"] = "a\n"
    document["schedule"]["graph"]["data"][1]["name"] = "a\\n"
    path.write_text(json.dumps(document))
    with pytest.raises(tc.FormatError, match=r"the name .* is taken"):
        tc.load_trace(path)


def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "trace.json"
    tc.save_trace(tc.replay(tc.plan(tc.networks.chain(3), "sqrt_n")), path)
    return path, json.loads(path.read_text())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_truncated_document_is_format_error(tmp_path: Path, share: float) -> None:
    path, _ = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(tc.FormatError, match=r"not a complete JSON document.*cut short"):
        tc.load_trace(path)


def mutate(document: Any, keys: tuple[Any, ...], value: Any) -> None:
    for key in keys[:-1]:
        document = document[key]
    document[keys[-1]] = value


GRAPH = ("schedule", "graph")


def nested(depth: int) -> Any:
    """Return lists in lists."""
    value: Any = ["x"]
    for _ in range(depth):
        value = [value]
    return value


# Where a trace is damaged, what stands there instead, and what is said of it.
DAMAGED: list[tuple[tuple[Any, ...], Any, str]] = [
    (("schema",), "other", r"the schema is 'other'; expected 'tinyckpt\.trace'"),
    (("version",), 3, r"version 3 of tinyckpt\.trace; this tinyckpt reads version 2"),
    (("version",), "2", "version 2"),
    (("nodes",), None, "NoneType, which is not legal"),
    (("nodes", 0), -1, "at least 0"),
    (("nodes", 0), 7, "not those of its schedule"),
    (("nodes", 0), True, "bool, which is not legal"),
    (("nodes",), [], "not those of its schedule"),
    (("seconds",), ["x"], "expected 15 entries, got 1"),
    (("seconds",), ["x"] * 15, "str, which is not legal"),
    (("seconds",), [0.5] * 14, "expected 15 entries, got 14"),
    (("seconds",), [*[0.5] * 14, float("nan")], r"seconds\[14\]: nan must be a finite number"),
    (("seconds",), [*[0.5] * 14, float("inf")], "inf must be a finite number of 0 or more"),
    (("seconds",), [-1e-9, *[0.5] * 14], r"seconds\[0\]: -1e-09 must be a finite"),
    (("seconds",), [*[0.5] * 14, True], "True must be a finite number"),
    (("seconds",), [*[0.5] * 14, 10**400], "must be a finite number"),
    (("schedule", "steps", 0), ["compute", 99], "must be at least 0 and less than 7"),
    (("schedule", "steps", 0), ["update", 8], "8 must be at least 0 and less than 7"),
    (
        ("schedule", "steps", 0),
        ["explode", 0],
        "'explode' must be one of compute, update, free",
    ),
    (("schedule", "steps", 0), ["compute"], "expected 2 entries, got 1"),
    (("schedule", "steps"), [], "the schedule is not legal"),
    (("schedule", "checkpoints"), [99], "less than 9"),
    ((*GRAPH, "data", 0, "dtype"), "complex64", "'complex64' must be one of float16"),
    ((*GRAPH, "data", 0, "shape"), [-1], "at least 0"),
    ((*GRAPH, "data", 0, "shape"), [10**400], "must be at least 0 and less than"),
    ((*GRAPH, "data", 0, "shape"), [2**40, 2**40], "its shape is too large"),
    ((*GRAPH, "data", 0, "dtype"), ">f8", "must be one of float16"),
    ((*GRAPH, "data", 0, "dtype"), "\ud800", "must be one of float16"),
    ((*GRAPH, "data", 0, "role"), "villain", "'villain' must be one of input"),
    ((*GRAPH, "data", 0, "role"), "activation", "cannot be, since no operator makes it"),
    ((*GRAPH, "data", 1, "role"), "input", "cannot be, since f1 makes it"),
    ((*GRAPH, "data", 1, "name"), "x", "the name 'x' is taken"),
    ((*GRAPH, "data", 1, "view_of"), "f3", "is a view of something that is not an input"),
    ((*GRAPH, "data", 1), 3, "expected an object, got int"),
    ((*GRAPH, "operators", 1, "outputs"), ["f1"], "an output of two operators"),
    ((*GRAPH, "operators", 0, "inputs"), ["f3"], "reads f3, which is produced later"),
    ((*GRAPH, "operators", 0, "inputs"), ["me"], "'me' is not the name of anything"),
    ((*GRAPH, "operators", 0, "outputs"), [], "an operator needs at least one output"),
    ((*GRAPH, "operators", 0, "phase"), "sideways", "'sideways' must be one of forward"),
    ((*GRAPH, "operators", 0, "phase"), "backward", "a forward operator after a backward one"),
    ((*GRAPH, "operators", 0, "cost"), -1, "must be a finite number of 0 or more"),
    ((*GRAPH, "operators", 0, "cost"), float("inf"), "must be a finite number of 0 or more"),
    ((*GRAPH, "operators", 0, "cost"), 10**400, "must be a finite number of 0 or more"),
    ((*GRAPH, "data", 0, "view_of"), "f1", "a source is not a view"),
    (
        (*GRAPH, "data", 0, "shape"),
        [2**60 - 1],
        "values and workspaces together have too many bytes",
    ),
    ((*GRAPH, "arguments"), nested(900), "nested too deeply"),
    ((*GRAPH, "operators", 0, "workspace"), 0.5, "float, which is not legal"),
    ((*GRAPH, "operators", 0, "cost"), 3, "1 of 7 have a cost: all or none"),
    ((*GRAPH, "operators", 0, "costs"), 3, "'costs' means nothing here; legal are name, inp"),
    ((*GRAPH, "gradient"), ["b1"], "'gradient' means nothing here; legal are schema, ver"),
    ((*GRAPH, "data", 0, "size"), 3, "'size' means nothing here; legal are name, bytes"),
    ((*GRAPH, "data", 0), {"name": "x"}, "'bytes' is missing, or 'shape' and 'dtype'"),
    ((*GRAPH, "operators"), {}, "dict, which is not legal"),
    ((*GRAPH, "gradients"), "nobody", "'nobody' is not the name of anything"),
    ((*GRAPH, "gradients"), None, "there is nothing to compute"),
]


@pytest.mark.parametrize(("keys", "value", "match"), DAMAGED)
def test_damaged_document_error_names_entry(
    tmp_path: Path, keys: Any, value: Any, match: str
) -> None:
    path, document = saved(tmp_path)
    mutate(document, keys, value)
    path.write_text(json.dumps(document))
    with pytest.raises(tc.FormatError, match=match):
        tc.load_trace(path)


def damage(data: Any, document: Any) -> None:
    """Walk to a random place of a document and put something else there."""
    at: Any = document
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    junk = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats()
    at[key] = data.draw(junk | st.lists(junk, max_size=2) | st.dictionaries(st.text(), junk))


@settings(max_examples=examples(200))
@given(data=st.data())
def test_random_damage_gives_only_format_errors(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, document = saved(tmp_path_factory.mktemp("damaged"))
    damage(data, document)
    path.write_text(json.dumps(document))
    try:
        trace = tc.load_trace(path)
    except tc.FormatError:
        return
    assert trace == tc.replay(trace.schedule)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[1, 2]", b"null", b"[" * 100_000, b'{"schema": 1}']
)
def test_foreign_file_is_format_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(tc.FormatError, match=r"trace\.json"):
        tc.load_trace(path)


def test_missing_file_or_folder_is_format_error(tmp_path: Path) -> None:
    with pytest.raises(tc.FormatError, match=r"cannot read .*No such file"):
        tc.load_trace(tmp_path / "nothing.json")
    with pytest.raises(tc.FormatError, match=r"cannot write .*No such file or directory"):
        tc.save_graph(tc.networks.chain(2), tmp_path / "no" / "folder.json")


def test_schedule_for_another_graph_is_refused(tmp_path: Path) -> None:
    tc.save_schedule(tc.plan(tc.networks.chain(3)), tmp_path / "s.json")
    with pytest.raises(tc.FormatError, match="the schedule is for another graph than chain:4"):
        tc.load_schedule(tmp_path / "s.json", tc.networks.chain(4))


def test_loaded_graph_is_abstract(tmp_path: Path) -> None:
    tc.save_graph(tc.networks.chain(3), tmp_path / "g.json")
    graph = tc.load_graph(tmp_path / "g.json")
    assert tc.replay(tc.plan(graph, "recompute_all")).peak_nodes == 3
    assert all(operator.primitive is None for operator in graph.operators)
    unequal = dataclasses.replace(graph, name="other")
    assert unequal != graph


PROFILE = {
    "schema": "tinyckpt.graph",
    "version": 2,
    "name": "my model",
    "data": [
        {"name": "x", "bytes": 100},
        {"name": "h", "bytes": 200},
        {"name": "y", "bytes": 50},
        {"name": "dy", "bytes": 50},
        {"name": "dh", "bytes": 200},
        {"name": "dx", "bytes": 100},
    ],
    "operators": [
        {"name": "layer1", "inputs": ["x"], "outputs": ["h"], "cost": 3.5},
        {"name": "layer2", "inputs": ["h"], "outputs": ["y"], "cost": 1},
        {"name": "loss", "inputs": ["y"], "outputs": ["dy"], "phase": "backward", "cost": 0},
        {"name": "layer2_grad", "inputs": ["h", "dy"], "outputs": ["dh"], "phase": "backward",
         "adjoint_of": "layer2", "cost": 2},
        {"name": "layer1_grad", "inputs": ["x", "dh"], "outputs": ["dx"], "phase": "backward",
         "adjoint_of": "layer1", "cost": 7, "workspace": 10},
    ],
    "gradients": ["dx"],
}  # fmt: skip


def test_imported_profile_is_planned_by_its_costs(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    graph = tc.load_graph(path)
    assert tc.replay(tc.plan(graph)).peak_bytes == 200 + 50 + 200
    assert tc.cost.given(graph).operators == (3.5, 1, 0, 2, 7)
    schedule = tc.plan(graph, budget=450)
    assert schedule.certificate is not None
    assert (schedule.certificate.status, schedule.certificate.cost) == ("optimal", 13.5)
    with pytest.raises(tc.BudgetError, match="450 B, which is proven to be the smallest there is"):
        tc.plan(graph, budget=449)
    with pytest.raises(tc.BackendError, match="layer1 is abstract"):
        tc.run(schedule)
    tc.save_graph(graph, tmp_path / "again.json")
    assert tc.load_graph(tmp_path / "again.json") == graph


def test_profile_of_docs_is_planned() -> None:
    graph = tc.load_graph(Path(__file__).parents[3] / "docs" / "profile.json")
    assert [operator.phase for operator in graph.operators].count("backward") == 3
    schedule = tc.plan(graph, budget=1.0)
    assert schedule.certificate is not None
    assert (schedule.certificate.status, schedule.certificate.cost) == ("optimal", 13.6)


def test_values_load_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    shuffled = {**PROFILE, "data": PROFILE["data"][::-1]}  # type: ignore[index]
    path.write_text(json.dumps(shuffled))
    graph = tc.load_graph(path)
    assert [node.name for node in graph.data] == ["x", "h", "y", "dy", "dh", "dx"]
    assert tc.replay(tc.plan(graph)).peak_bytes == 450


@pytest.mark.parametrize("bandwidth", [Fraction(512, 3), Fraction(1, 10**29), 256, 0.1, inf])
def test_options_round_trip(bandwidth: Any, tmp_path: Path) -> None:
    graph = tc.networks.chain(4)
    plans = [
        tc.plan(graph, "offload", bandwidth=bandwidth, latency=Fraction(1, 3)),
        tc.plan_with_host(graph, tc.Link(bandwidth, Fraction(1, 3)), budget=2048),
    ]
    for number, plan in enumerate(plans):
        path = tmp_path / f"{number}.json"
        tc.save_schedule(plan, path)
        known = tc.load_schedule(path).options
        assert known == plan.options
        assert [type(value) for value in known.values()] == [*map(type, plan.options.values())]
        tc.save_trace(tc.replay(plan), path)
        assert tc.load_trace(path).schedule.options == plan.options


@pytest.mark.parametrize("fraction", [[1, 0], [1], [1, -2], [0.5, 1], ["1", 2], [True, 2], "1/2"])
def test_damaged_fraction_is_format_error(fraction: Any, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    tc.save_schedule(tc.plan(tc.networks.chain(2), "offload", bandwidth=Fraction(1, 3)), path)
    document = json.loads(path.read_text())
    document["options"]["bandwidth"] = {"fraction": fraction}
    path.write_text(json.dumps(document))
    with pytest.raises(tc.FormatError, match=r"options\.bandwidth\.fraction"):
        tc.load_schedule(path)
