"""Measured memory: PyTorch snapshots and lists load; damaged ones give one clear error."""

import io
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.snapshots import event, listed, pickled, segment, snapshot, training
from tinyckpt.documents import safe_unpickler as pickles
from tinyckpt.documents import torch_snapshots as snapshots
from tinyckpt.documents.safe_unpickler import read_pickle

A, B, C = 2**46, 2**46 + 512, 2**46 + 4096


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_snapshot_gives_allocated_bytes_over_time(tmp_path: Path, protocol: int) -> None:
    path = pickled(tmp_path, training(4096, base=10_000), protocol=protocol)
    measured = tc.load_measured(path)
    assert measured.source == "run.pickle"
    assert measured.what == "device 0 of a PyTorch snapshot"
    assert measured.unit == "seconds"
    assert measured.bytes == (
        10_000, 11_024, 12_048, 13_072, 14_096, 13_072, 12_048, 11_024, 10_000,
    )  # fmt: skip
    assert measured.times == pytest.approx((0, 0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8))
    assert (measured.base, measured.peak) == (10_000, 4096)
    assert measured.less(0).peak == 14_096
    assert measured.less(12_000).peak == 2096
    assert measured.less(20_000).peak == 0
    assert measured.less(3).less() == measured
    assert repr(measured) == (
        "<Measured run.pickle: device 0 of a PyTorch snapshot; 9 moments in 0.8 seconds, "
        "peak 4.0 KiB, less 9.8 KiB>"
    )


def test_allocations_before_first_event_count(tmp_path: Path) -> None:
    """A is freed without an allocation event; C's block is in use, without any event."""
    trace = [
        event("free_requested", A, 100, 0),
        event("alloc", B, 30, 1),
        event("snapshot", 0, 0, 2),
        event("oom", 0, 2**40, 2, device_free=17),
    ]
    blocks = [(7, "active_allocated"), (8, "inactive"), (9, "active_awaiting_free")]
    ends = [segment(0, C, blocks), segment(0, B, [(30, "active_allocated")]), segment(1, A, blocks)]
    measured = tc.load_measured(pickled(tmp_path, snapshot(trace, segments=ends)))
    assert measured.bytes == (107, 7, 37)


def test_pause_in_recording_leaves_totals_right(tmp_path: Path) -> None:
    trace = [
        event("alloc", A, 100, 0),
        event("alloc", A, 30, 1),  # the first was freed unseen
        event("free_requested", A, 30, 2),
        event("free_requested", A, 50, 3),  # allocated unseen, and freed
        event("alloc", B, 1, 2.5),  # a little out of order
    ]
    measured = tc.load_measured(pickled(tmp_path, snapshot(trace)))
    assert measured.bytes == (0, 100, 30, 0, 0, 1)
    assert measured.times == pytest.approx((0, 0, 1, 2, 3, 3))


def test_snapshot_without_times_counts_events(tmp_path: Path) -> None:
    trace = [event("alloc", A, 10), event("segment_alloc", A, 99), event("free_requested", A, 10)]
    measured = tc.load_measured(pickled(tmp_path, snapshot(trace)))
    assert (measured.unit, measured.times, measured.bytes) == ("events", (0, 1, 2), (0, 10, 0))


def test_snapshot_device_is_selected(tmp_path: Path) -> None:
    one, other = [event("alloc", A, 1, 0)], [event("alloc", A, 2, 0)]
    path = pickled(tmp_path, snapshot([], one, other))
    assert tc.load_measured(path, device=2).bytes[-1] == 2
    assert tc.load_measured(pickled(tmp_path, snapshot([], one), "one")).bytes[-1] == 1
    with pytest.raises(tc.OptionError, match="devices 1, 2 have events; choose one, device=1"):
        tc.load_measured(path)
    for wrong in (0, 3, -1, True):
        with pytest.raises(tc.OptionError, match=r"has no events; those that have are 1, 2"):
            tc.load_measured(path, device=wrong)


@pytest.mark.parametrize("name", ["run.json", "run.csv", "run.txt"])
def test_json_and_csv_lists_load(tmp_path: Path, name: str) -> None:
    path = listed(tmp_path, [(3.5, 100), (4.0, 700), (4.0, 50), (7.5, 0)], name)
    measured = tc.load_measured(path)
    assert (measured.times, measured.bytes) == ((0, 0.5, 0.5, 4.0), (100, 700, 50, 0))
    assert (measured.base, measured.peak, measured.unit) == (100, 600, "seconds")
    with pytest.raises(tc.OptionError, match="is a list, which has no devices"):
        tc.load_measured(path, device=0)


def test_between_returns_interval_from_zero(tmp_path: Path) -> None:
    measured = tc.load_measured(listed(tmp_path, [(0, 5), (1, 10), (2, 20), (3, 5), (9, 0)]))
    part = measured.between(1.5, 4)
    assert (part.times, part.bytes, part.base) == ((0, 0.5, 1.5, 2.5), (10, 20, 5, 5), 10)
    assert measured.between(0, 99).times[-1] == 9
    for begin, end in ((2, 2), (-1, 3), (9, 10), (3, 2), (float("nan"), 1)):
        with pytest.raises(tc.OptionError, match="it must begin before it ends, within 0 to 9 sec"):
            measured.between(begin, end)
    for base in (-1, 2.5, True, "all"):
        with pytest.raises(tc.OptionError, match="must be a number of bytes"):
            measured.less(base)  # type: ignore[arg-type]


# Damaged files ---------------------------------------------------------------------------------


def with_event(**changes: Any) -> dict[str, Any]:
    damaged = training()
    damaged["device_traces"][0][3] |= changes
    return damaged


def without(key: str) -> dict[str, Any]:
    damaged = training()
    del damaged["device_traces"][0][3][key]
    return damaged


def shared_blocks(segments: int, blocks: int) -> dict[str, Any]:
    """Return a snapshot whose segments share one list of blocks, which a pickle writes once."""
    one = segment(0, A, [(8, "inactive")] * blocks)
    return snapshot([event("alloc", B, 1, 0)], segments=[{**one} for _ in range(segments)])


SNAPSHOTS: list[tuple[Any, str]] = [
    (["segment"], "it has segments and no events: call torch.cuda.memory._record_memory_history"),
    (17, "it holds int, which is no memory snapshot"),
    ({"segments": []}, "it has no device_traces, so it is no memory snapshot"),
    (snapshot([], []), "it has no events: call torch.cuda.memory._record_memory_history()"),
    (snapshot([event("oom", 0, 1, 0)]), "device 0 allocates nothing: call torch.cuda.memory"),
    ({"device_traces": 3}, "device_traces: got int, which is not legal here"),
    ({"device_traces": [3]}, r"device_traces\[0\]: got int, which is not legal here"),
    (snapshot([3]), r"device_traces\[0\]\[0\]: got int, which is not legal here"),  # type: ignore[list-item]
    (without("action"), r"device_traces\[0\]\[3\]: 'action' is missing"),
    (with_event(action=7), r"device_traces\[0\]\[3\].action: got int, which is not legal here"),
    (without("addr"), r"device_traces\[0\]\[3\]: 'addr' is missing"),
    (with_event(addr=-1), r"device_traces\[0\]\[3\].addr: -1 must be at least 0"),
    (with_event(size="8"), r"device_traces\[0\]\[3\].size: got str, which is not legal here"),
    (with_event(size=-8), r"device_traces\[0\]\[3\].size: -8 must be at least 0"),
    (with_event(size=True), r"device_traces\[0\]\[3\].size: got bool, which is not legal"),
    (with_event(time_us=1.5), r"device_traces\[0\]\[3\].time_us: got float, which is not legal"),
    (training() | {"segments": {}}, "segments: got dict, which is not legal here"),
    (training() | {"segments": [{}]}, r"segments\[0\]: 'blocks' is missing"),
    (training() | {"segments": [{"blocks": [{}]}]}, r"segments\[0\].blocks\[0\]: 'size' is miss"),
    (shared_blocks(101, 10_000), r"segments\[100\].blocks: more than 1000000 blocks of device 0"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("content", "said"), SNAPSHOTS)
def test_damaged_snapshot_error_names_entry(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(tc.FormatError, match=said):
        tc.load_measured(pickled(tmp_path, content))


def test_blocks_and_events_are_bounded_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_BLOCKS", 20)
    path = pickled(tmp_path, shared_blocks(4, 5))
    assert tc.load_measured(path).bytes == (0, 1)
    path = pickled(tmp_path, shared_blocks(3, 10))
    with pytest.raises(tc.FormatError, match=r"segments\[2\].blocks: more than 20 blocks"):
        tc.load_measured(path)
    monkeypatch.setattr(snapshots, "MOST_EVENTS", 2)
    path = pickled(tmp_path, snapshot([event("alloc", A, 1)] * 2))
    assert tc.load_measured(path).bytes == (0, 1, 1)
    path = pickled(tmp_path, snapshot([event("alloc", A, 1)] * 3))
    with pytest.raises(tc.FormatError, match=r"device_traces\[0\]: more than 2 events; record"):
        tc.load_measured(path)


class Hostile:
    """Runs a command when the standard unpickler loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_with_code_is_refused_unexecuted(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "sprung"
    path = pickled(tmp_path, training() | {"x": Hostile(trap)}, protocol=protocol)
    said = r"run\.pickle: byte \d+: (STACK_)?GLOBAL would load or call code; legal is plain data"
    with pytest.raises(tc.FormatError, match=said):
        tc.load_measured(path)
    assert not trap.exists()


def test_every_pickle_opcode_is_supported_or_refused() -> None:
    known = {code.name for code in pickletools.opcodes}
    assert known >= pickles.LEGAL | pickles.CODE
    assert not pickles.LEGAL & pickles.CODE
    for code in set(range(256)) - set(pickles.ACTIONS):
        with pytest.raises(tc.FormatError, match=r"x: byte 2: .*(nothing of the file|no instruct)"):
            read_pickle(b"\x80\x04" + bytes([code]) + b"os\nsystem\n.", "x")


PICKLES: list[tuple[bytes, str]] = [
    (b"\x80\x04", "the pickle has no end; was the file cut short?"),
    (b"\x80\x04.", "byte 2: it ends with 0 values instead of one"),
    (b"\x80\x04NN.", "byte 4: it ends with 2 values instead of one"),
    (b"\x80\x04(N.", "byte 4: it ends with 1 values instead of one"),
    (b"\x80\x06N.", "byte 2: protocol 6; legal are 2 to 5"),
    (b"\x80\x04a", "it takes a value that is not there"),
    (b"\x80\x04Na", "it fills what is not there"),
    (b"\x80\x04NNa", "it fills a list, and there is none"),
    (b"\x80\x04NNNs", "it fills a dict, and there is none"),
    (b"\x80\x04e", "it ends what it never began"),
    (b"\x80\x04](0", "it takes a value that is not there"),
    (b"\x80\x04}]Ns", "a key that is neither a text nor an integer"),
    (b"\x80\x04})\x85\x94h\x00\x86Ns", "a key that is neither a text nor an integer"),
    (b"\x80\x04}(Nu", "a key without a value"),
    (b"\x80\x04h\x07.", "value 7 was never kept"),
    (b"\x80\x04q\x07", "it keeps a value that is not there"),
    (b"\x80\x04N(q\x00", "it keeps a value that is not there"),
    (b"\x80\x04Nq\x01", "byte 5: it keeps value 1 before value 0"),
    (b"\x80\x04Nr\xff\xff\xff\xff.", "it keeps value 4294967295 before value 0"),
    (b"\x80\x04\x8a\xffx", "an integer of 255 bytes; legal are at most 8"),
    (b"\x80\x04\x8c\x02\xff\xff.", "a text that is not UTF-8"),
    (b"\x80\x04X\xff\xff\xff\xffab", "byte 7: more bytes were to come; was the file"),
    (b"\x80\x04\x8d" + b"\xff" * 8 + b"ab", "more bytes were to come; was the file cut short?"),
    (b"\x80\x04" + b"(" * 1001, "more than 1000 values begun inside each other"),
    (b"\x80\x04" + b"N" * 100_001, "more than 100000 values that belong to nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "said"), PICKLES)
def test_damaged_pickle_error_names_byte(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run.pickle"
    path.write_bytes(content)
    with pytest.raises(tc.FormatError) as error:
        tc.load_measured(path)
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))


def test_values_of_pickle_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_VALUES", 12)  # of which the list's place in the memo is two
    assert read_pickle(pickle.dumps(list(range(9))), "x") == list(range(9))
    with pytest.raises(tc.FormatError, match="x: byte 26: more than 12 values are made and kept"):
        read_pickle(pickle.dumps(list(range(10)), 2), "x")
    for kept in (b"\x94", b"q\x00", b"r\x00\x00\x00\x00"):
        assert read_pickle(b"\x80\x04N" + 5 * kept + b".", "x") is None
        with pytest.raises(tc.FormatError, match="more than 12 values are made and kept; record"):
            read_pickle(b"\x80\x04N" + 6 * kept + b".", "x")


@pytest.mark.parametrize("length", [0, 3, 12, 2**63, 2**64 - 1])
def test_lengths_of_frames_are_not_trusted(length: int) -> None:
    """Short, overlapping and endless frames contain the same data."""
    frame = b"\x95" + length.to_bytes(8, "little")
    written = b"\x80\x04" + frame + b"](" + frame + b"K\x01" + frame * 2 + b"K\x02e."
    assert read_pickle(written, "x") == [1, 2]


def test_unpickler_refuses_what_a_check_lets_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles.PickleChecker, "run", lambda checker: checker.content)
    with pytest.raises(tc.FormatError, match=r"\w+\.mkdir in a pickle; legal is plain data al"):
        read_pickle(pickle.dumps(Hostile(Path("sprung"))), "x")


def test_deeply_nested_tuples_do_not_recurse(tmp_path: Path) -> None:
    """Neither reading nor deallocating them recurses."""
    path = tmp_path / "run.pickle"
    path.write_bytes(b"\x80\x04)" + b"\x85" * 300_000 + b".")
    with pytest.raises(tc.FormatError, match="it holds tuple, which is no memory snapshot"):
        tc.load_measured(path)


def test_too_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    with path.open("wb") as file:
        file.truncate(2**30 + 1)
    with pytest.raises(tc.FormatError, match=r"1.0 GiB; at most 1.0 GiB are read: record fewer"):
        tc.load_measured(path)


LISTS = [
    ("a.json", "[[0, 1], [1", "is not a complete JSON document"),
    ("a.json", "{}", "measured: got dict, which is not legal here"),
    ("a.json", "[" * 100_000, "is not a complete JSON document"),
    ("a.json", "[]", "it has no moments; expected pairs of seconds and bytes"),
    ("a.json", "[[0, 1], 3]", "measured[1]: got int, which is not legal here"),
    ("a.json", "[[0, 1, 2]]", "measured[0]: expected 2 entries, got 3"),
    ("a.json", '[["0", 1]]', "measured[0][0]: got str, which is not legal here"),
    ("a.json", "[[0, true]]", "measured[0][1]: True must be a finite number of 0 or more"),
    ("a.json", "[[0, -1]]", "measured[0][1]: -1 must be a finite number of 0 or more"),
    ("a.json", "[[0, NaN]]", "measured[0][1]: nan must be a finite number of 0 or more"),
    ("a.json", "[[1, 1], [0.5, 1]]", "measured[1][0]: 0.5 is before 1: time goes on"),
    ("a.csv", "", "it has no moments; expected pairs of seconds and bytes"),
    ("a.csv", "time,bytes\n", "it has no moments; expected pairs of seconds and bytes"),
    ("a.csv", "time,bytes\n1,2\n\nx,3", "line 4: 'x,3': expected seconds,bytes, such as 0.5,4096"),
    ("a.csv", "1,2\n3", "line 2: expected 2 entries, got 1"),
    ("a.csv", "1,inf", "line 1[1]: inf must be a finite number of 0 or more"),
    ("a.csv", "only words", "line 1: 'only words': expected seconds,bytes, such as 0.5,4096"),
]


@pytest.mark.parametrize(("name", "text", "said"), LISTS)
def test_damaged_list_error_names_entry(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(tc.FormatError) as error:
        tc.load_measured(path)
    assert said in str(error.value)
    path.write_bytes(b"\xff\xfe" + text.encode())
    with pytest.raises(tc.FormatError, match="is neither a pickle of a PyTorch snapshot nor a"):
        tc.load_measured(path)


@pytest.mark.parametrize("row", ["1,2\n", "[1,2],"])
def test_long_list_is_refused_before_parsing(row: str, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(f"[{row * 1_000_010}" if row[0] == "[" else row * 1_000_010)
    with pytest.raises(tc.FormatError, match="more than 1,000,000 moments; at most that many"):
        tc.load_measured(path)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_mutated_pickle_loads_or_is_format_error(data: st.DataObject) -> None:
    """No damage leads to anything but data or a FormatError: no other error, and no hanging."""
    content = bytearray(pickle.dumps(training(), data.draw(st.sampled_from([2, 4]))))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    with suppress(tc.FormatError):
        read_pickle(bytes(content), "x")


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@pytest.mark.long
@settings(max_examples=examples(100))
@given(content=plain, protocol=st.integers(2, 5))
def test_plain_data_equals_standard_unpickler(content: Any, protocol: int) -> None:
    written = pickle.dumps(content, protocol)
    assert repr(read_pickle(written, "x")) == repr(pickle.loads(written))
    without_memo = io.BytesIO()
    pickler = pickle.Pickler(without_memo, protocol)
    pickler.fast = True
    pickler.dump(content)
    assert repr(read_pickle(without_memo.getvalue(), "x")) == repr(content)


def test_pickled_floats_are_read_exactly() -> None:
    for number in (0.1, -0.0, 1e308, 5e-324):
        assert read_pickle(pickle.dumps(number), "x").hex() == number.hex()
    assert read_pickle(b"\x80\x02G" + struct.pack(">d", 0.25) + b".", "x") == 0.25
