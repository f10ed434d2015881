"""The disk as host memory: to the bit, and nothing left behind."""

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
from tinyckpt.storage.disk import Disk
from tinyckpt.tree import leaves


@settings(max_examples=examples(40))
@given(training_graphs(), st.data())
def test_executed_to_the_bit(case: Any, data: Any) -> None:
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


def test_a_compiled_schedule_writes_to_the_file_too() -> None:
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
    assert disk.file.seek(0, os.SEEK_END) == 5 * x.nbytes


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
def test_every_array_comes_back_as_a_copy_in_memory_would_be(array: Any) -> None:
    disk = Disk(".")
    parked = disk.park(array)
    back, copied = disk.fetch(parked, [], ()), np.array(array)
    assert parked.nbytes == copied.nbytes
    assert (back.shape, back.dtype, back.strides) == (copied.shape, copied.dtype, copied.strides)
    assert back.tobytes() == array.tobytes()


def test_places_are_used_again() -> None:
    disk = Disk(".")
    first, second = disk.park(np.zeros(8)), disk.park(np.ones(8))
    del first
    third = disk.park(np.full(8, 3.0))
    assert disk.end == 128
    assert disk.fetch(second, [], ())[0] == 1
    assert disk.fetch(third, [], ())[0] == 3


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(tc.BackendError, match=r"on_disk: no file can be made in .*missing"):
        tc.on_disk(tmp_path / "missing")


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(".")
    monkeypatch.setattr(disk, "file", FullFile())
    with pytest.raises(tc.BackendError, match=r"80 B cannot be written in .*No space left"):
        disk.park(np.zeros(10))


class FullFile:
    def seek(self, place: int) -> int:
        return place

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


PROGRAM = """
import sys, numpy as np, tinyckpt as tc
backend = tc.on_disk(sys.argv[1])
parked = backend.host().park(np.ones(1 << 20))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_nothing_is_left_behind_by_a_process_that_is_killed(tmp_path: Path) -> None:
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


def test_a_file_in_which_nothing_waits_begins_anew() -> None:
    disk = Disk(".")
    for count in range(1, 50):
        parked = disk.park(np.zeros(count))
        del parked
    kept = disk.park(np.ones(8))
    assert disk.end == 64
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


@pytest.mark.skipif(os.name != "posix", reason="such limits are of POSIX")
def test_a_file_that_may_not_grow_any_more(tmp_path: Path) -> None:
    # 16,000 of 20,000 bytes are taken: seven values of 512 bytes have room, the eighth has not.
    run = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "512 B cannot be written in" in done.stdout
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_two_runs_at_once_in_one_folder_and_killed_while_they_write(tmp_path: Path) -> None:
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
