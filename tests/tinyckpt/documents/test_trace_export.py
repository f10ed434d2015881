"""Export as Chrome trace events and CSV: valid by their formats' rules, equal to the trace."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.documents.test_serialize import hostile_graph
from tinyckpt.core.schedule import step_text
from tinyckpt.documents.trace_export import CSV_HEADER, TRACKS, UNMEASURED, escape_formula

# The fields that the format demands of each phase, besides ``ph``.
REQUIRED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
}


def trace_of(name: str, policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.network_from_text(name)[0], policy))


def offloaded() -> tc.Trace:
    """Return the trace of a chain of two, whose first value waits on the host."""
    graph = tc.networks.chain(2)
    first = graph.operators[0].outputs[0]
    evaluated = [tc.Compute(operator.id) for operator in graph.operators]
    steps = (*evaluated[:2], tc.Offload(first), *evaluated[2:4], tc.Fetch(first), evaluated[4])
    return tc.replay(tc.Schedule(graph, steps, "by hand"))


def events_of(trace: tc.Trace, path: Path) -> list[dict[str, Any]]:
    """Return the events that are written, after checking them by the rules of their format."""
    tc.save_chrome_trace(trace, path)
    document = json.loads(path.read_bytes())
    events: list[dict[str, Any]] = document["traceEvents"]
    open_spans: dict[tuple[Any, ...], dict[str, Any]] = {}
    last = 0.0
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert event["ts"] >= last
        last = event["ts"]
        key = (event.get("cat"), event.get("id"), event["name"])
        if event["ph"] == "b":
            assert key not in open_spans
            open_spans[key] = event
        elif event["ph"] == "e":
            assert open_spans.pop(key)["ts"] <= event["ts"]
        elif event["ph"] == "C":
            assert all(type(value) is int for value in event["args"].values())
        elif event["ph"] == "X":
            assert event["dur"] >= 0
    assert open_spans == {}
    return events


def check_events(trace: tc.Trace, events: list[dict[str, Any]]) -> None:
    """Check that the events are the trace's: evaluations, counters, spans."""
    evaluations = [e for e in events if e["ph"] == "X" and e["cat"] != "transfer"]
    names = [
        trace.graph.operators[step.operator].name
        for step in trace.steps
        if isinstance(step, tc.Compute)
    ]
    assert [event["name"] for event in evaluations] == names
    assert sum(e["cat"] == "recomputation" for e in evaluations) == trace.recomputations
    for event in evaluations:
        assert TRACKS[event["tid"] - 1] == event["cat"]
    memory = [event["args"] for event in events if event["name"] == "live bytes"]
    kinds = ("activation", "cotangent", "output", "workspace")
    for kind in kinds:
        assert tuple(args[kind] for args in memory) == getattr(trace, kind)
    assert tuple(map(sum, (args.values() for args in memory))) == trace.live_bytes
    values = [event["args"]["nodes"] for event in events if event["name"] == "live values"]
    assert tuple(values) == trace.nodes
    # At every step as many spans are open as values are live.
    live, position = 0, -1
    for event in events:
        live += {"b": 1, "e": -1}.get(event["ph"], 0)
        if event["name"] == "live values":
            position += 1
            assert live == trace.nodes[position]


@settings(max_examples=examples(30))
@given(training_graphs(largest=6), st.sampled_from(["sqrt_n", "recompute_all"]), st.booleans())
def test_chrome_traces_are_valid_and_equal_to_the_trace(
    tmp_path_factory: pytest.TempPathFactory, case: Any, policy: str, timed: bool
) -> None:
    graph, arrays = case
    schedule = tc.plan(graph, policy)
    trace = tc.run(schedule, *arrays, timed=True).trace if timed else tc.replay(schedule)
    events = events_of(trace, tmp_path_factory.mktemp("chrome") / "t.json")
    check_events(trace, events)
    durations = [event["dur"] for event in events if event["ph"] == "X"]
    if timed:
        seconds = [
            second
            for step, second in zip(trace.steps, trace.seconds, strict=True)
            if isinstance(step, tc.Compute)
        ]
        assert durations == pytest.approx([1e6 * second for second in seconds], abs=1e-3)
    else:
        assert set(durations) == {UNMEASURED}
        assert events[-1]["ts"] == UNMEASURED * trace.evaluations


def test_chrome_tracks_have_names(tmp_path: Path) -> None:
    events = events_of(trace_of("chain:4"), tmp_path / "t.json")
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == dict(enumerate(TRACKS, start=1))
    assert events[0]["args"]["name"] == "sqrt_n on chain:4"
    (again,) = [e for e in events if e.get("cat") == "recomputation"]
    assert (again["name"], again["tid"], again["args"]["step"]) == ("f1", 3, 15)


def test_chrome_trace_has_transfers_and_host_bytes(tmp_path: Path) -> None:
    trace = offloaded()
    events = events_of(trace, tmp_path / "t.json")
    check_events(trace, events)
    host = [event["args"]["host"] for event in events if event["name"] == "host bytes"]
    assert tuple(host) == trace.host
    assert max(host) > 0
    moved = [event["name"] for event in events if event.get("cat") == "transfer"]
    assert moved == ["offload f1", "fetch f1"]
    assert [e["ts"] for e in events if e["ph"] == "b" and e["name"] == "f1"] == [0.0, 5000.0]
    unmoved = events_of(trace_of("chain:2"), tmp_path / "u.json")
    assert not any(event["name"] == "host bytes" for event in unmoved)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == CSV_HEADER
    return rows


def check_rows(trace: tc.Trace, rows: list[dict[str, str]]) -> None:
    """Check that the rows are the trace's steps and columns."""

    def column(name: str) -> tuple[int, ...]:
        return tuple(int(row[name]) for row in rows)

    assert column("step") == tuple(range(len(trace.steps)))
    assert column("live_nodes") == trace.nodes
    for kind in ("activation", "cotangent", "output", "workspace", "host"):
        assert column(f"{kind}_bytes") == getattr(trace, kind)
    assert column("live_bytes") == trace.live_bytes
    assert column("evaluations") == trace.evaluations_so_far
    assert sum(column("recomputation")) == trace.recomputations
    for row, step in zip(rows, trace.steps, strict=True):
        verb, name = step_text(trace.graph, step)
        assert (row["verb"], row["name"]) == (verb, escape_formula(name))
        target = step.operator if isinstance(step, tc.Compute) else step.data
        assert int(row["id"]) == target
    seconds = tuple(float(row["seconds"]) for row in rows if row["seconds"])
    assert seconds == trace.seconds


@settings(max_examples=examples(30))
@given(training_graphs(largest=6), st.sampled_from(["sqrt_n", "recompute_all"]), st.booleans())
def test_csv_read_back_equals_trace(
    tmp_path_factory: pytest.TempPathFactory, case: Any, policy: str, timed: bool
) -> None:
    graph, arrays = case
    schedule = tc.plan(graph, policy)
    trace = tc.run(schedule, *arrays, timed=True).trace if timed else tc.replay(schedule)
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    tc.save_csv(trace, path)
    check_rows(trace, rows_of(path))


def test_csv_text_is_as_documented(tmp_path: Path) -> None:
    tc.save_csv(trace_of("chain:1"), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().decode() == (
        "step,verb,id,name,recomputation,live_nodes,activation_bytes,cotangent_bytes,"
        "output_bytes,workspace_bytes,live_bytes,host_bytes,evaluations,seconds\r\n"
        "0,compute,0,f1,0,1,512,0,0,0,512,0,1,\r\n"
        "1,compute,1,l,0,2,512,512,0,0,1024,0,2,\r\n"
        "2,compute,2,b1,0,3,512,512,512,0,1536,0,3,\r\n"
        "3,free,1,f1,0,2,0,512,512,0,1024,0,3,\r\n"
        "4,free,3,l,0,1,0,0,512,0,512,0,3,\r\n"
    )


NASTY = [
    '=cmd|"/c calc"!A1', "+1", "-1", "@SUM(1)", "\tx", "\rx", 'a"b,c', "line\nbreak",
    "</script>", "\ud800", "\x00", "漢", "ends\r",
]  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_formula_names_are_escaped(tmp_path: Path, name: str) -> None:
    graph = hostile_graph()
    renamed = tc.Graph(
        name,
        tuple(
            tc.DataNode(n.id, f"{name}{n.id}", n.spec, n.role, n.nbytes, n.producer, n.view_of)
            for n in graph.data
        ),
        tuple(
            tc.Operator(o.id, f"{name}{o.id}", o.kind, o.inputs, o.outputs, o.phase)
            for o in graph.operators
        ),
        graph.arguments,
        graph.results,
        graph.gradients,
    )
    trace = tc.replay(tc.plan(renamed, "recompute_all"))
    check_events(trace, events_of(trace, tmp_path / "t.json"))
    tc.save_csv(trace, tmp_path / "t.csv")
    rows = rows_of(tmp_path / "t.csv")
    assert len(rows) == len(trace.steps)
    for row in rows:
        assert row["name"][0] not in "=+-@\t\r"
    if name != "\ud800":  # which no UTF-8 text can hold
        check_rows(trace, rows)


def test_unwritable_path_is_format_error(tmp_path: Path) -> None:
    for save in (tc.save_csv, tc.save_chrome_trace):
        with pytest.raises(tc.FormatError, match=r"cannot write .*No such file or directory"):
            save(trace_of("chain:2"), tmp_path / "missing" / "x")
    assert list(tmp_path.iterdir()) == []


def test_empty_trace_is_written(tmp_path: Path) -> None:
    empty = tc.Trace(tc.Schedule(tc.networks.chain(1), (), "none"), *[()] * 7)
    assert all(event["ph"] == "M" for event in events_of(empty, tmp_path / "t.json"))
    tc.save_csv(empty, tmp_path / "t.csv")
    assert rows_of(tmp_path / "t.csv") == []
