"""Disk offloading: bitwise equal results, space reused, no files left over."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves
from tinyckpt.storage.disk import Disk


@settings(max_examples=examples(40))
@given(training_graphs(), st.data())
def test_run_on_disk_is_bitwise_equal(case: Any, data: Any) -> None:
    graph, args = case
    schedule = tc.plan(graph, "offload", bandwidth=data.draw(st.sampled_from((None, 40))))
    stored = tc.run(tc.plan(graph, "store_all"), *args)
    moved = tc.run(schedule, *args, backend=tc.on_disk())
    assert moved.trace == tc.replay(schedule)
    for before, after in zip(
        leaves((stored.value, stored.gradients)),
        leaves((moved.value, moved.gradients)),
        strict=True,
    ):
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()


def test_compiled_schedule_offloads_to_file() -> None:
    x = np.linspace(-1, 1, 64).reshape(8, 8)
    schedule = tc.plan(tc.networks.chain(6), "offload")
    backend = tc.on_disk()
    program = tc.compile(schedule, backend=backend)
    assert "park(" in program.source
    for made, stored in zip(leaves(program(x)), leaves(tc.compile(schedule)(x)), strict=True):
        assert made.tobytes() == stored.tobytes()
    assert backend.host is not None
    disk = backend.host()
    assert isinstance(disk, Disk)
    assert disk.file.raw.seek(0, os.SEEK_END) == 5 * x.nbytes


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(6, dtype="int32")[::-2],
        np.zeros((0, 3)),
        np.array(2.5),
        np.array([True, False]),
        np.ones((4, 4), "float16")[:, 1:3],
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_fetched_array_equals_copy_in_memory_with_strides(array: Any) -> None:
    disk = Disk(None)
    parked = disk.park(array)
    back, copied = disk.fetch(parked, [], ()), np.array(array)
    assert parked.nbytes == copied.nbytes
    assert (back.shape, back.dtype, back.strides) == (copied.shape, copied.dtype, copied.strides)
    assert back.tobytes() == array.tobytes()


def test_file_space_is_reused() -> None:
    disk = Disk(None)
    first, second = disk.park(np.zeros(8)), disk.park(np.ones(8))
    del first
    third = disk.park(np.full(8, 3.0))
    assert disk.file.end == 128
    assert disk.fetch(second, [], ())[0] == 1
    assert disk.fetch(third, [], ())[0] == 3


def test_uncreatable_file_raises_backend_error(tmp_path: Path) -> None:
    with pytest.raises(tc.BackendError, match=r"on_disk: no file can be made in .*missing"):
        tc.on_disk(tmp_path / "missing")


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("\0", r"on_disk: no file can be made in '\\x00': embedded null"),
        ("\ud800", r"on_disk: no file can be made in '\\ud800': "),
        ("x" * 5000, "on_disk: no file can be made in .*File name too long"),
        (5, "folder=5; on_disk expects a folder's path"),
        (True, "folder=True; on_disk expects a folder's path"),
        (["/tmp"], r"folder=\['/tmp'\]; on_disk expects a folder's path"),
    ],
)
def test_invalid_folder_is_refused(folder: Any, message: str) -> None:
    with pytest.raises((tc.BackendError, tc.OptionError), match=message):
        tc.on_disk(folder)


def test_folder_accepts_any_path_type(tmp_path: Path) -> None:
    for folder in (tmp_path, str(tmp_path), os.fsencode(tmp_path)):
        host = tc.on_disk(folder).host
        assert isinstance(host, Disk)
        assert host.folder == str(tmp_path)


class SmallDisk:
    """A file on a disk of some bytes, which may be written to in parts."""

    def __init__(self, file: Any, size: int, most: int = 1 << 30) -> None:
        self.file, self.size, self.most = file, size, most
        self.seek, self.readinto, self.truncate = file.seek, file.readinto, file.truncate

    def write(self, data: Any) -> int:
        room = min(self.size - self.file.tell(), self.most)
        if room <= 0 and len(data):
            raise OSError(28, "No space left on device")
        return int(self.file.write(data[:room]))


@pytest.mark.parametrize("most", [1, 7, 1 << 30])
def test_failed_write_on_full_disk_changes_nothing(most: int) -> None:
    disk = Disk(None)
    disk.file.raw = SmallDisk(disk.file.raw, 200, most)
    kept = disk.park(np.arange(10.0))
    for _ in range(3):
        with pytest.raises(tc.BackendError, match=r"160 B cannot be written in .*with 80 B in use"):
            disk.park(np.zeros(20))
        assert disk.file.end == 80
        assert disk.file.raw.seek(0, os.SEEK_END) == 80
        other = disk.park(np.arange(15.0))
        assert disk.fetch(other, [], ()).tolist() == list(range(15))
        del other
    assert disk.fetch(kept, [], ()).tolist() == list(range(10))


@settings(max_examples=examples(60))
@given(st.data())
def test_full_disk_stores_values_that_fit_and_corrupts_none(data: Any) -> None:
    size = 8 * data.draw(st.integers(0, 40))
    disk = Disk(None)
    disk.file.raw = SmallDisk(disk.file.raw, size, data.draw(st.sampled_from((3, 1 << 30))))
    waiting: list[tuple[Any, Any]] = []
    for number in range(data.draw(st.integers(1, 30))):
        if waiting and data.draw(st.booleans()):
            assert came_back(disk, *waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
            continue
        array = np.full(data.draw(st.integers(0, 9)), float(number))
        try:
            waiting.append((array, disk.park(array)))
        except tc.BackendError:
            # There is no room for it between those that wait, nor behind them.
            spans = sorted((p.place, p.place + p.nbytes) for _, p in waiting if p.nbytes)
            ends, begins = [0, *(end for _, end in spans)], [*(begin for begin, _ in spans), size]
            assert all(b - e < array.nbytes for e, b in zip(ends, begins, strict=True))
    assert all(came_back(disk, *pair) for pair in waiting)
    # Once nothing waits, all of the disk is there again.
    waiting.clear()
    assert came_back(disk, np.arange(size // 8), disk.park(np.arange(size // 8)))


def came_back(disk: Disk, array: Any, parked: Any) -> bool:
    return np.array_equal(disk.fetch(parked, [], ()), array)


def test_adjacent_free_spans_are_coalesced() -> None:
    disk = Disk(None)
    disk.file.raw = SmallDisk(disk.file.raw, 400)
    parked = [disk.park(np.full(10, float(number))) for number in range(5)]
    del parked[1:3]
    larger = disk.park(np.arange(15.0))
    assert disk.fetch(larger, [], ()).tolist() == list(range(15))
    smaller = disk.park(np.arange(5.0))  # in what the larger one left
    assert disk.file.end == 400
    assert disk.fetch(smaller, [], ()).tolist() == list(range(5))
    assert [disk.fetch(kept, [], ())[9] for kept in parked] == [0, 3, 4]


def test_interrupted_write_takes_no_space() -> None:
    disk = Disk(None)
    kept = disk.park(np.ones(10))
    own, disk.file.raw = disk.file.raw, Interrupting(disk.file.raw)
    with pytest.raises(KeyboardInterrupt):
        disk.park(np.zeros(10))
    disk.file.raw = own
    assert disk.file.end == 80
    other = disk.park(np.zeros(10))
    assert disk.file.end == 160
    assert (disk.fetch(kept, [], ())[0], disk.fetch(other, [], ())[0]) == (1, 0)


class Interrupting(SmallDisk):
    def __init__(self, file: Any) -> None:
        super().__init__(file, 1 << 30)

    def write(self, data: Any) -> int:
        super().write(data[:5])
        raise KeyboardInterrupt


def test_truncated_file_raises_backend_error() -> None:
    disk = Disk(None)
    parked = disk.park(np.ones(10))
    disk.file.raw.truncate(40)
    with pytest.raises(tc.BackendError, match=r"80 B cannot be read in .*the file was truncated"):
        disk.fetch(parked, [], ())


PROGRAM = """
import sys, numpy as np, tinyckpt as tc
backend = tc.on_disk(sys.argv[1])
parked = backend.host().park(np.ones(1 << 20))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_killed_process_leaves_no_file(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_empty_file_restarts_at_offset_zero() -> None:
    disk = Disk(None)
    for count in range(1, 50):
        parked = disk.park(np.zeros(count))
        del parked
    kept = disk.park(np.ones(8))
    assert disk.file.end == 64
    assert disk.fetch(kept, [], ())[0] == 1


LIMITED = """
import resource, sys, numpy as np, tinyckpt as tc
backend = tc.on_disk(sys.argv[1])
disk = backend.host()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
kept = disk.park(np.arange(2_000.0))
try:
    tc.run(tc.plan(tc.networks.chain(16), "offload"), np.ones((8, 8)), backend=backend)
except tc.BackendError as error:
    print(error)
assert (disk.fetch(kept, [], ()) == np.arange(2_000.0)).all()
x = np.linspace(-1, 1, 64).reshape(8, 8)
for x in (x, x[:5, :5].copy(), x):  # values of other sizes too
    schedule = tc.plan(tc.networks.chain(6, x.shape), "offload")
    expected = tc.run(schedule, x).gradients
    assert np.array_equal(tc.run(schedule, x, backend=backend).gradients, expected)
assert (disk.fetch(kept, [], ()) == np.arange(2_000.0)).all()
"""

WRITING = """
import sys, numpy as np, tinyckpt as tc
backend, x = tc.on_disk(sys.argv[1]), np.linspace(-1, 1, 64).reshape(8, 8)
schedule = tc.plan(tc.networks.chain(200), "offload")
expected = tc.run(schedule, x).gradients
while True:
    assert np.array_equal(tc.run(schedule, x, backend=backend).gradients, expected)
    print("done", flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="such limits are of POSIX")
def test_file_size_limit_raises_backend_error(tmp_path: Path) -> None:
    # 16,000 of 20,000 bytes are taken: seven values of 512 bytes have room, the eighth has not.
    run = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "512 B cannot be written in" in done.stdout
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_concurrent_killed_runs_in_one_folder_leave_no_files(tmp_path: Path) -> None:
    run = [sys.executable, "-c", WRITING, str(tmp_path)]
    both = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["done\n"] * 3
    for process in both:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert process.stdout is not None
        process.stdout.close()
    assert list(tmp_path.iterdir()) == []
