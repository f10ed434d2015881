"""Operator profiling in an isolated worker process, which may crash or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import lacking, require

require("torch")

import torch
from torch import Tensor, nn

import tinyckpt as tc
from tests.torch_fatal_operators import OPERATORS
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import isolated_worker as isolation
from tinyckpt.interop.torch import worker, workspace
from tinyckpt.interop.torch.costs import call_of

IMAGES = torch.ones(2, 3, 16, 16)
ROOT = Path(__file__).parents[3]
ENDED = "the process that evaluated it ended with"
ABORTED = f"{ENDED} " + ("exit status" if os.name == "nt" else f"signal {int(signal.SIGABRT)}")


class Model(nn.Module):
    """A convolution, whose kernel has workspace, followed by operators."""

    def __init__(self, *operators: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.operators = nn.Conv2d(3, 5, 3, padding=1), operators

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        for operator in self.operators:
            x = operator(x)
        return x.square().mean()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "KNOWN", type(workspace.KNOWN)())
    monkeypatch.setitem(workspace.REGISTERED_BY, "tinyckpt_fatal", ("tests.torch_fatal_operators",))


@pytest.fixture
def other_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[isolation.WorkerProcess]:
    """A worker that is not started yet, in place of that of the other tests."""
    monkeypatch.setattr(isolation, "WORKER", isolation.WorkerProcess())
    yield isolation.WORKER
    isolation.WORKER.stop()


def workspaces(graph: tc.TrainingGraph) -> dict[str, int]:
    return {operator.name: operator.workspace for operator in graph.operators if operator.workspace}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("aborts", ABORTED, marks=pytest.mark.long),
        pytest.param("exits", f"{ENDED} exit status 0", marks=pytest.mark.nightly),
        ("leaves", "SystemExit: 3"),
        ("runs_out", "MemoryError: no memory"),
    ],
)
def test_crashing_operator_counts_no_workspace_and_others_continue(name: str, why: str) -> None:
    model = Model(OPERATORS[name])
    with pytest.warns(UserWarning, match=rf"these operators counts as 0.*: {name} \({why}"):
        graph = tct.trace(model, IMAGES).graph
    plain = workspaces(tct.trace(Model(torch.clone), IMAGES).graph)
    assert plain["convolution"] > 0
    assert workspaces(graph) == plain
    with pytest.warns(UserWarning, match=rf"{name} \({why}") as seen:
        assert tct.advise(model, IMAGES, budget=1.0).peak > 0
    assert len(seen) == 1
    with pytest.raises(tc.GraphError, match=rf"{name}.* cannot be evaluated by itself: {why}"):
        tct.trace(model, IMAGES, cost="measured")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert workspaces(tct.trace(model, IMAGES, workspace=False).graph) == {}


@pytest.mark.long
def test_hanging_operator_counts_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    tct.trace(Model(), IMAGES)  # the worker is up
    monkeypatch.setattr(isolation, "DEADLINE", 1.5)
    with pytest.warns(UserWarning, match=r"hangs \(the process .* was still running after 1.5 s"):
        graph = tct.trace(Model(OPERATORS["hangs"]), IMAGES).graph
    monkeypatch.undo()
    assert len(graph.operators) > 5


@pytest.mark.nightly
def test_worker_stops_after_crash_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MOST_CRASHES", 1)
    names = [OPERATORS["exits"], lambda x: OPERATORS["exits"](x[1:])]
    with pytest.warns(UserWarning, match=r"counts as 0"):
        tct.trace(Model(*names), IMAGES)
    assert "not tried, after others" not in str([*workspace.KNOWN.values()])


@pytest.mark.nightly
def test_kernel_output_does_not_corrupt_replies() -> None:
    tct.trace(Model(OPERATORS["prints"]), IMAGES)


def test_operator_unknown_to_worker_counts_no_workspace() -> None:
    with torch.library._scoped_library("tinyckpt_own", "DEF") as own:
        own.define("once(Tensor x) -> Tensor")
        own.impl("once", lambda x: x.clone(), "CompositeExplicitAutograd")
        with pytest.warns(UserWarning, match=r"only the process that registered tinyckpt_own.once"):
            tct.trace(Model(lambda x: x + torch.ops.tinyckpt_own.once(x.detach())), IMAGES)


def test_measurements_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tct.trace(Model(), IMAGES).graph
    monkeypatch.setattr(isolation, "evaluate_requests", lambda *given: pytest.fail(f"{given}"))
    assert tct.trace(Model(), IMAGES).graph == first


def test_measurement_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "KEPT", 3)
    first = tct.trace(Model(), IMAGES).graph
    assert len(workspace.KNOWN) == 3
    assert tct.trace(Model(), IMAGES).graph == first


def requests_of(graph: Any) -> list[dict[str, Any]]:
    joint = graph.imported.joint
    calls = [call for call in graph.imported.calls if call is not None]
    found = [workspace.request_of(call_of(joint.values, node), False) for node in calls]
    return [request for request in found if not request["failure"]]


@pytest.mark.parametrize("enabled", [True, False])
def test_worker_measures_what_this_process_would(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", enabled)
    try:
        torch.set_num_threads(2)
        requests = requests_of(tct.trace(Model(), IMAGES))
        here = [reply[:2] for request in requests for reply in worker.evaluated([request])]
        assert [reply[:2] for reply in worker.evaluated(requests)] == here
        assert [
            reply[:2] for reply in isolation.evaluate_requests(requests, isolation.settings())
        ] == here
    finally:
        torch.set_num_threads(threads)


LEAN = """
import sys
from tinyckpt.interop.torch import isolated_worker, worker
worker.set_up(isolated_worker.settings())
layout = {"dtype": worker.torch.float32, "device": "cpu", "shape": (8,), "stride": (1,)}
operands = [layout | {"offset": 0}]
request = {"operator": "aten.sin.default", "modules": (), "args": operands, "kwargs": {}}
request |= {"forward": None, "device": "cpu", "timed": False, "by": ()}
print(worker.evaluated([request]))
print("torch._inductor" in sys.modules)
"""


@pytest.mark.nightly
def test_worker_does_not_import_the_compiler() -> None:  # which takes seconds
    done = subprocess.run(
        [sys.executable, "-c", LEAN], capture_output=True, text=True, cwd=ROOT, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "[(0, (32,), 0.0)]\nFalse\n"


def test_missing_worker_warns_and_counts_no_workspace(
    monkeypatch: pytest.MonkeyPatch, other_worker: isolation.WorkerProcess
) -> None:
    monkeypatch.setattr(sys, "executable", str(ROOT / "no-such-python"))
    with pytest.warns(UserWarning, match=r"none can be started: .*no-such-python"):
        assert workspaces(tct.trace(Model(), IMAGES).graph) == {}
    with pytest.raises(tc.GraphError, match=r"none can be started: .*; a cost other than measured"):
        tct.trace(Model(), IMAGES, cost="measured")


def test_broken_interpreter_fails_fast(
    monkeypatch: pytest.MonkeyPatch, other_worker: isolation.WorkerProcess
) -> None:
    program = "cmd.exe" if sys.platform == "win32" else "false"
    found = subprocess.run(
        [sys.executable, "-c", f"import shutil; print(shutil.which({program!r}))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    monkeypatch.setattr(sys, "executable", found)
    with pytest.warns(UserWarning, match=r"ended with exit status \d+ before it had imported"):
        tct.advise(Model(), IMAGES, budget=1.0)


def test_frozen_program_starts_no_worker(
    monkeypatch: pytest.MonkeyPatch, other_worker: isolation.WorkerProcess
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.warns(UserWarning, match=r"none can be started: this program is no Python"):
        tct.advise(Model(), IMAGES, budget=1.0)
    assert other_worker.process is None


def test_threads_share_one_worker() -> None:
    found: list[dict[str, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(workspaces(tct.trace(Model(), IMAGES).graph)))
        for _ in range(3)
    ]
    expected = workspaces(tct.trace(Model(), IMAGES).graph)
    workspace.KNOWN.clear()
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [expected] * 3


def test_operators_are_measured_while_others_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(torch.tanh, lambda x: nn.functional.avg_pool2d(x, 2), torch.sin)
    expected = tct.estimate(model, IMAGES)
    workspace.KNOWN.clear()
    evaluate, places = isolation.evaluate_requests, []

    def noted(requests: Any, wanted: Any) -> Any:
        places.append((threading.current_thread() is threading.main_thread(), len(requests)))
        return evaluate(requests, wanted)

    monkeypatch.setattr(isolation, "evaluate_requests", noted)
    monkeypatch.setattr(isolation, "TOGETHER", 3)
    assert tct.estimate(model, IMAGES) == expected
    # How far the threads come is a matter of time; no operator is measured twice.
    assert {count for is_main, count in places if not is_main} & {1, 2, 3}
    assert sum(count for _, count in places) == len(workspace.KNOWN)


@pytest.mark.long
def test_program_ends_while_an_operator_is_measured(tmp_path: Path) -> None:
    script = """
import threading, time, torch
from tinyckpt.interop.torch import isolated_worker as isolation
layout = {"dtype": torch.float32, "device": "cpu", "shape": (), "stride": (), "offset": 0}
request = {"operator": "tinyckpt_fatal.hangs.default", "modules": ("tests.torch_fatal_operators",),
           "args": [layout], "kwargs": {}, "forward": None, "device": "cpu", "timed": False}
given = [request] * 2, isolation.settings()
threading.Thread(target=isolation.evaluate_requests, args=given, daemon=True).start()
while not isolation.WORKER.settings:
    time.sleep(0.1)
time.sleep(1)
print(isolation.WORKER.process.pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT,
        timeout=isolation.DEADLINE / 2,
    )  # fmt: skip
    if os.name != "nt":
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


SCRIPT = """
import os, torch
print("begins")
from tinyckpt.interop import torch as tct
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 8)
    def forward(self, x):
        return self.layer(x)[0].square().mean()
graph = tct.trace(Model(), torch.ones(5, 3, 4)).graph
print(sum(operator.workspace for operator in graph.operators) > 30_000)
"""
FORKED = """
import warnings
from tinyckpt.interop.torch import isolated_worker as isolation, workspace
def measured():
    workspace.KNOWN.clear()
    graph = tct.trace(Model(), torch.ones(6, 3, 4)).graph
    return isolation.WORKER.process.pid, [operator.workspace for operator in graph.operators]
first = measured()
warnings.simplefilter("ignore")
child = os.fork()
second = measured()
if not child:
    if second[0] == first[0] or second[1] != first[1]:
        os._exit(1)
    isolation.WORKER.stop()
    os._exit(0)
print(os.waitpid(child, 0)[1] == 0, second == first, measured() == first)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "way", ["file", *(pytest.param(way, marks=pytest.mark.nightly) for way in ("-c", "-", "fork"))]
)
def test_worker_does_not_rerun_main_program(way: str, tmp_path: Path) -> None:
    if way == "fork" and not hasattr(os, "fork"):
        lacking("os.fork")
    script = SCRIPT + FORKED * (way == "fork")
    (tmp_path / "script.py").write_text(script)
    program = {"file": ["script.py"], "-c": ["-c", script], "-": ["-"], "fork": ["script.py"]}[way]
    done = subprocess.run(
        [sys.executable, "-W", "error", *program],
        input=script, capture_output=True, text=True, timeout=300, check=False,
        cwd=ROOT if program[0].startswith("-") else tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    expected = "begins\nTrue\n" + "True True True\n" * (way == "fork")
    assert done.stdout == expected, done.stderr
