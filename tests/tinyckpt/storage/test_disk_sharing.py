"""Concurrent use of one disk store: threads, forked and spawned processes, garbage collection."""

import os
import subprocess
import sys
import threading
import time
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import lacking
from tinyckpt.core.backend import Backend
from tinyckpt.storage.disk import Disk

X = np.linspace(-1, 1, 64).reshape(8, 8)


def gradients(backend: Backend, scale: float, compiled: bool = False) -> Any:
    schedule = tc.plan(tc.networks.chain(12), "offload")
    if compiled:
        return tc.compile(schedule, backend)(scale * X)[1]
    return tc.run(schedule, scale * X, backend=backend).gradients


EXPECTED = [gradients(tc.on_disk(), scale) for scale in range(8)]


class Dawdling:
    """A lock whose owner lets the others go ahead as soon as it has given it back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()
        time.sleep(1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_threads_share_disk_with_bitwise_equal_results(count: int, compiled: bool) -> None:
    backend, wrong = tc.on_disk(), []
    assert isinstance(backend.host, Disk)
    backend.host.file.lock = Dawdling()  # type: ignore[assignment]

    def work(scale: int) -> None:
        for _ in range(24 // count):
            found = gradients(backend, scale, compiled)
            wrong.append(not np.array_equal(found, EXPECTED[scale]))

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * (24 // count) * count


class Collecting:
    """A file during whose writes the garbage collector takes a value away that waits in it."""

    def __init__(self, file: Any, values: list[Any]) -> None:
        self.file, self.values = file, values
        self.seek, self.readinto, self.truncate = file.seek, file.readinto, file.truncate

    def write(self, data: Any) -> int:
        self.values[:1] = []
        return int(self.file.write(data[: len(data) // 2] or data))


@pytest.mark.parametrize("count", range(1, 5))
def test_values_collected_during_a_write_do_not_corrupt_it(count: int) -> None:
    disk = Disk(None)
    values = [disk.park(np.full(4, float(number))) for number in range(count)]
    disk.file.raw = Collecting(disk.file.raw, values)
    arrays = [np.full(4, 10.0 + number) for number in range(2 * count)]
    parked = [disk.park(array) for array in arrays]
    for array, written in zip(arrays, parked, strict=True):
        assert np.array_equal(disk.fetch(written, [], ()), array)


INTERRUPTED = """
import os, signal, sys, threading, numpy as np, tinyckpt as tc
from tests.tinyckpt.storage.test_disk_sharing import EXPECTED, gradients

# A shell starts its background jobs with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
backend = tc.on_disk(sys.argv[1])
disk = backend.host()
kept = disk.park(np.arange(500.0))
for seconds in np.random.default_rng(1).uniform(0.0005, 0.01, 60):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        for _ in range(5000):
            assert np.array_equal(gradients(backend, 3), EXPECTED[3])
    except KeyboardInterrupt:
        timer.join()
    assert np.array_equal(disk.fetch(kept, [], ()), np.arange(500.0))
del kept
disk.park(np.ones(1))
assert disk.file.end == 8, "places were lost"
print("exact")
"""


@pytest.mark.long
def test_interrupts_leave_disk_consistent(tmp_path: Any) -> None:
    run = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("exact\n", "", 0)


FORKED = """
import os, sys, threading, warnings, numpy as np, tinyckpt as tc
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
from tests.tinyckpt.storage.test_disk_sharing import EXPECTED, gradients

backend = tc.on_disk(sys.argv[1])
disk = backend.host()
kept = disk.park(np.arange(1000.0))

def work(scale):
    return all(np.array_equal(gradients(backend, scale), EXPECTED[scale]) for _ in range(2))

def status_of(work, *args):
    process = os.fork()
    if process:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        os._exit(0 if work(*args) else 1)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(2)

def refuses():
    try:
        disk.fetch(kept, [], ())
    except tc.BackendError as error:
        return "written before this process was forked" in str(error)

def child(scale):
    # What was inherited is refused, before this process has a file and after; so is it in a child's
    # child, which has what it wrote to itself.
    if not (refuses() and work(scale) and refuses()):
        return False
    own = disk.park(np.full(3, scale))
    grandchild = status_of(lambda: refuses() and work(scale + 1) and refuses())
    return grandchild() == 0 and work(scale) and disk.fetch(own, [], ()).tolist() == [scale] * 3

# Three processes on one backend at once; the parent reads what it wrote before.
waited = [status_of(child, 2), status_of(child, 4)]
assert work(1)
assert [wait() for wait in waited] == [0, 0]
assert np.array_equal(disk.fetch(kept, [], ()), np.arange(1000.0))

# Forked while another thread is inside, with the lock; and while one runs.
disk.file.lock.acquire()
inside = status_of(work, 3)
assert inside() == 0
disk.file.lock.release()
threads = [threading.Thread(target=work, args=(scale,)) for scale in (5, 6)]
for thread in threads:
    thread.start()
waited = [status_of(child, scale) for scale in (0, 1, 2)]
assert [wait() for wait in waited] == [0, 0, 0]
for thread in threads:
    thread.join()
assert work(7)
assert np.array_equal(disk.fetch(kept, [], ()), np.arange(1000.0))

# A child that goes on with its parent's run is refused, and the parent ends it exactly.
parent = os.getpid()

def forking(xp, x):
    if os.getpid() == parent:
        waited.append(os.fork())
    return x + 0.0

waited = []
def rule(cotangents, inputs, outputs):
    return cotangents[0]

own = tc.Primitive("forking", forking, lambda x: (x,), (rule,))
def loss(x):
    return tc.sum(tc.tanh(tc.apply(own, tc.tanh(tc.tanh(tc.tanh(x))))))

graph = tc.differentiate(tc.build(loss, tc.Spec(9)))
schedule, x = tc.plan(graph, "offload"), np.linspace(0, 1, 9)
expected = tc.run(schedule, x).gradients
for process in waited:
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
waited.clear()
try:
    found = tc.run(schedule, x, backend=backend).gradients
except tc.BackendError as error:
    os._exit(7 if os.getpid() != parent and "this process was forked" in str(error) else 1)
assert os.getpid() == parent and np.array_equal(found, expected)
assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in waited] == [7]
print("exact")
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX")
def test_forked_processes_share_disk_or_are_refused(tmp_path: Any) -> None:
    run = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("exact\n", "", 0)
    assert list(tmp_path.iterdir()) == []


def put_gradients(backend: Backend, scale: int, queue: Any) -> None:
    queue.put(gradients(backend, scale))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_backend_is_picklable_to_another_process(method: Any, tmp_path: Any) -> None:
    if method == "forkserver" and not hasattr(os, "fork"):
        lacking("os.fork")
    context, backend = get_context(method), tc.on_disk(tmp_path)
    queue = context.Queue()
    process = context.Process(target=put_gradients, args=(backend, 3, queue))
    process.start()
    for _ in range(10):
        assert np.array_equal(gradients(backend, 2), EXPECTED[2])
    assert np.array_equal(queue.get(timeout=60), EXPECTED[3])
    process.join()
    assert process.exitcode == 0
    assert list(tmp_path.iterdir()) == []


CLOSED = """
import os, sys, numpy as np, tinyckpt as tc
from tests.tinyckpt.storage.test_disk_sharing import gradients
backend, path = tc.on_disk(), sys.argv[1]
first = backend.host.file.raw.fileno()
parked = backend.host.park(np.ones(50))
os.closerange(3, 100)
others = [open(f"{path}/{number}", "w+b", buffering=0) for number in range(first)]
assert first in [other.fileno() for other in others]
for other in others:
    other.write(b"x" * 9000)
for use in (
    lambda: gradients(backend, 2.0), lambda: backend.host.fetch(parked, None, ())
):
    try:
        use()
    except tc.BackendError as error:
        assert "was closed from outside" in str(error), error
    else:
        raise AssertionError("no refusal")
for other in others:
    assert os.pread(other.fileno(), 9999, 0) == b"x" * 9000
os._exit(0)  # what closes the backend's file would close another's
"""


@pytest.mark.long
def test_closed_descriptor_never_writes_to_another_file(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
