"""Document readers of the empty lab: accept, refuse and report errors exactly as Python does."""

import base64
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs, with_once
from tests.snapshots import training
from tests.tinyckpt.documents.test_measured_memory import (
    LISTS,
    PICKLES,
    SNAPSHOTS,
    Hostile,
    with_event,
)
from tests.tinyckpt.documents.test_serialize import DAMAGED, damage, mutate, saved
from tests.viz.lab.lab_driver import engine, page_graph
from tinyckpt.planner.model.value_fates import value_words
from viz.lab.empty import constants
from viz.player.measured import MOST_MOMENTS, downsampled

pytestmark = pytest.mark.browser
READERS = ("reader", "graphs", "schedules", "pickles", "snapshots", "planned")
# What is said of each text, read as a plan; nothing if it is read.
SAID = """([texts, path, dtypes]) => texts.map(text => {
    try { readPlan(text, path, dtypes); return ""; }
    catch (error) { return (error instanceof FormatError ? "" : "BUG ") + error.message; } })"""
GRAPHS_READ = """([texts, dtypes]) => texts.map(text => {
    const { graph, own } = readPlan(text, "x", dtypes);
    const plain = node => ArrayBuffer.isView(node) ? Array.from(node)
        : node && typeof node === "object" && !Array.isArray(node)
            ? Object.fromEntries(Object.entries(node).map(([k, v]) => [k, plain(v)])) : node;
    return [plain(graph), own && plain({ ...own, graph: 0 })]; })"""
MEASURED_OR_SAID = """([files, path]) => files.map(file => {
    const content = Uint8Array.from(atob(file), letter => letter.charCodeAt(0));
    try {
        const reading = readMeasured(content, path);
        const all = Array.from({ length: reading.names.length || 1 }, (_, i) => reading.of(i));
        return all.map(({ moments, held, ...own }) =>
            ({ ...own, times: Array.from(moments), held: Array.from(held) }));
    } catch (error) { return (error instanceof FormatError ? "" : "BUG ") + error.message; } })"""
# JSON has no such numbers: a browser refuses the document, and Python the number.
NO_JSON = ("NaN", "Infinity")


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = engine(browser, "format", *READERS)
    yield page
    page.close()


def said_by_page(page: Any, texts: Sequence[str], path: Path) -> list[str]:
    found: list[str] = page.evaluate(SAID, [list(texts), str(path), constants()["dtypes"]])
    return found


def said_by_python(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    try:
        tc.load_trace(path)
    except tc.FormatError as error:
        return str(error)
    return ""


def test_damaged_documents_give_python_errors(page: Any, tmp_path: Path) -> None:
    texts = []
    for keys, value, _ in DAMAGED:
        path, document = saved(tmp_path)
        mutate(document, keys, value)
        texts.append(json.dumps(document))
    kinds = "the schema is 'other'; expected one of 'tinyckpt.graph', 'tinyckpt.schedule', 'tin"
    same = 0
    for text, found in zip(texts, said_by_page(page, texts, path), strict=True):
        expected = said_by_python(path, text)
        assert expected
        if any(word in text for word in NO_JSON):
            assert "is not a complete JSON document" in found
        elif "the schema is 'other'" in expected:  # three kinds are legal on the page
            assert kinds in found
        elif "0000000000" in expected:  # a number of 400 digits is infinite there
            assert found.rpartition(": ")[0] == expected.rpartition(": ")[0]
        else:
            assert found == expected
            same += 1
    assert same > 45


def test_other_files_are_refused_as_in_python(page: Any, tmp_path: Path) -> None:
    path, document = saved(tmp_path)
    whole = path.read_text()
    texts = [
        "",
        "null",
        "[1, 2]",
        "[" * 100_000,
        '{"schema": 1}',
        '{"schema": null}',
        "{}",
        whole[: len(whole) // 2],
    ]
    for text, found in zip(texts, said_by_page(page, texts, path), strict=True):
        assert found.startswith(str(path)), text[:20]
        assert found.partition(" (")[0] in (
            f"{path} is not a complete JSON document",
            found if "; expected one of 'tinyckpt.graph'" in found else "",
        )
        if "is not a complete" not in found:
            assert found.partition("; ")[0] == said_by_python(path, text).partition("; ")[0]
    assert said_by_page(page, [whole, json.dumps(document["schedule"]["graph"])], path)[0] == ""


@settings(max_examples=examples(15))
@given(data=st.data())
def test_random_damage_is_refused_by_both_or_read_by_both(
    data: Any, page: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    texts = []
    for _ in range(20):
        path, document = saved(folder)
        damage(data, document)
        text = json.dumps(document)
        # A whole number with a fraction of zero is an integer in JavaScript; it has no others than
        # those of 53 bits, and no NaN.
        if not any(word in text for word in NO_JSON):
            texts.append(text)
    for text, found in zip(texts, said_by_page(page, texts, path), strict=True):
        expected = said_by_python(path, text)
        assert not found.startswith("BUG"), found
        if "got float" not in expected and "must be" not in expected:
            assert bool(found) == bool(expected), (found, expected)


GRAPHS = st.one_of(
    training_graphs().map(lambda drawn: drawn[0]),
    training_graphs().flatmap(lambda drawn: with_once(drawn[0])),
    graphs_of_views(),
    graphs_with_updates().map(lambda drawn: drawn[0]),
)


@settings(max_examples=examples(20))
@given(graphs=st.lists(GRAPHS, min_size=5, max_size=5))
def test_random_graphs_and_traces_are_read_as_in_python(
    graphs: list[tc.Graph], page: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("read")
    texts, expected = [], []
    for graph in graphs:
        tc.save_graph(graph, folder / "g.json")
        texts.append((folder / "g.json").read_text())
        expected.append((tc.load_graph(folder / "g.json"), None))
        try:
            trace = tc.replay(tc.plan(graph, "sqrt_n"))
        except tc.ScheduleError:
            continue
        tc.save_trace(trace, folder / "t.json")
        texts.append((folder / "t.json").read_text())
        expected.append((tc.load_trace(folder / "t.json").graph, trace))
    read = page.evaluate(GRAPHS_READ, [texts, constants()["dtypes"]])
    for (graph, trace), (found, own) in zip(expected, read, strict=True):
        known = page_graph(graph)
        assert found["forward_count"] == graph.forward_count
        assert found["planning"]["once"] == list(graph.once)
        assert found["planning"]["updates"] == list(graph.updates)
        assert found["planning"]["costs"] == list(known["planning"]["costs"])
        for part in ("data", "operators"):
            shared = {key: found[part][key] for key in known[part] if key != "names"}
            assert shared == {key: known[part][key] for key in shared}
        assert found["operators"]["plain"] == [operator.name for operator in graph.operators]
        loss = graph.outputs[0]
        assert found["data"]["names"][loss] == value_words(graph, loss)
        assert found["data"]["specs"] == [str(node.spec) for node in graph.data]
        if trace is not None:
            assert len(own["verbs"]) == len(trace.steps)
            assert own["checkpoints"] == list(trace.schedule.checkpoints)


# What was measured ---------------------------------------------------------------------------


def measured_by_page(page: Any, files: Sequence[bytes], path: Path) -> list[Any]:
    coded = [base64.b64encode(content).decode() for content in files]
    found: list[Any] = page.evaluate(MEASURED_OR_SAID, [coded, str(path)])
    return found


def measured_by_python(path: Path, content: bytes) -> Any:
    path.write_bytes(content)
    try:
        return tc.load_measured(path)
    except tc.FormatError as error:
        return str(error)


def test_damaged_measurements_give_python_errors(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    hostile = [pickle.dumps(Hostile(tmp_path / "sprung"), protocol) for protocol in (2, 4)]
    files = [
        *(pickle.dumps(content) for content, _ in SNAPSHOTS if content != with_event(time_us=1.5)),
        *(content for content, _ in PICKLES), *hostile, *(t.encode() for _, t, _ in LISTS),
        b"\xff\xfe1,2", b"", b"\x80\x04)" + b"\x85" * 200_000 + b".",
    ]  # fmt: skip
    said = measured_by_page(page, files, path)
    for content, found in zip(files, said, strict=True):
        expected = measured_by_python(path, content)
        assert isinstance(expected, str), content
        head = f"{path} is not a complete JSON document ("
        if expected.startswith(head) or b"NaN" in content:
            assert found.startswith(head), content
        else:
            assert found == expected, content
    assert not (tmp_path / "sprung").exists()


def test_pickle_reader_is_bounded_in_memory(page: Any) -> None:
    found = page.evaluate(
        """() => [5, 6].map(times => {
            const content = Uint8Array.of(0x80, 4, 0x4e, ...Array(times).fill(0x94), 0x2e);
            const machine = new PickleMachine(content, "x");
            machine.made = MOST_MADE - 12;
            try { return machine.run(); } catch (error) { return error.message; } })"""
    )
    assert found == [
        None,
        "x: byte 9: more than 30000000 values are made and kept; record fewer events "
        "(max_entries=100000)",
    ]


@settings(max_examples=examples(10))
@given(data=st.data())
def test_random_damage_of_pickles_gives_python_errors(
    data: Any, page: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pickles") / "run"
    files = []
    for _ in range(30):
        content = bytearray(pickle.dumps(training(), data.draw(st.sampled_from([2, 4]))))
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        files.append(bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))]))
    for content, found in zip(files, measured_by_page(page, files, path), strict=True):
        expected = measured_by_python(path, content)
        if not isinstance(expected, str):
            assert not isinstance(found, str), found
        elif "got float" not in expected:  # a number that happens to have no fraction
            assert found == expected


def test_measurements_are_read_as_in_python(page: Any, tmp_path: Path) -> None:
    files = [
        *(pickle.dumps(training(), protocol) for protocol in (2, 3, 4, 5)),
        b"[[3.5, 100], [4.0, 700.5], [4, 50]]", b"seconds,bytes\n0.5,2\n\n1e1,4096\n",
        b'\xef\xbb\xbf"1","2"\r\n2,3\r\n',
    ]  # fmt: skip
    for content, found in zip(files, measured_by_page(page, files, tmp_path / "run"), strict=True):
        expected = measured_by_python(tmp_path / "run", content)
        (own,) = found
        assert (own["source"].rpartition("/")[2], own["what"]) == ("run", expected.what)
        assert (own["unit"], own["base"]) == (expected.unit, expected.base)
        assert own["times"] == pytest.approx(expected.times, abs=1e-12)
        assert own["held"] == list(expected.bytes)


def test_long_measurement_is_downsampled_as_in_python(page: Any) -> None:
    for count in (1, MOST_MOMENTS, MOST_MOMENTS + 1, 3 * MOST_MOMENTS + 7):
        held = np.random.default_rng(count).integers(0, 1000, count)
        # As one text each way: number by number it takes the browser's protocol seconds.
        places = page.evaluate(
            "held => JSON.stringify(thinned(Float64Array.from(JSON.parse(held))))",
            json.dumps(held.tolist()),
        )
        assert json.loads(places) == downsampled(held).tolist()


def test_devices_are_read_once(page: Any) -> None:
    coded = base64.b64encode(pickle.dumps(training())).decode()
    assert page.evaluate(
        """file => {
            const content = Uint8Array.from(atob(file), letter => letter.charCodeAt(0));
            const reading = readMeasured(content, "x");
            return reading.of(0) === reading.of(0); }""",
        coded,
    )
