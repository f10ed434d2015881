"""Command line as a process: closed output, signals, user files, suggestions for typos."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run
from tinyckpt.cli import demo as steps
from tinyckpt.cli import main
from tinyckpt.cli.streams_and_signals import TERMINATING_SIGNALS, Terminated, unwinding_on_signals

COMMAND = f"{sys.executable} -m tinyckpt"


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("plan chain:3 >&-", 0),
        ("plan chain:3 --explain >&- 2>&-", 0),
        ("plan chain:3 2>&-", 0),
        ("plan sphere >&- 2>&-", 2),
        ("plan chain:3 --budget 1 2>&-", 1),
        ("--help >&-", 0),
    ],
)
def test_closed_output_exits_cleanly(line: str, code: int) -> None:
    result = subprocess.run(f"{COMMAND} {line}", shell=True, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (code, "")


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.mark.sampled(3)
@pytest.mark.long
@FULL
@pytest.mark.parametrize(
    ("line", "code", "unbuffered"),
    [
        ("--help", 1, ""),
        ("--help", 1, "1"),
        ("--version", 1, ""),
        ("plan chain:3", 1, ""),
        ("plan chain:3", 1, "1"),
        ("plan sphere", 2, ""),
        ("plan chain:3 --budget 1", 1, ""),
    ],
)
def test_full_output_device_fails(line: str, code: int, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = f"{COMMAND} {line}"
    result = subprocess.run(
        f"{command} > /dev/full", shell=True, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert result.returncode == code
    if not ("sphere" in line or "budget" in line):
        assert result.stderr.splitlines() == [result.stderr.strip()]
        assert result.stderr.startswith("tinyckpt: ")
        assert "No space left on device" in result.stderr
    result = subprocess.run(f"{command} > /dev/full 2>&1", shell=True, env=environment)
    assert result.returncode == code


@pytest.mark.parametrize(("line", "unbuffered"), [("--help", "1"), ("plan chain:60", "")])
def test_broken_pipe_exits_cleanly(line: str, unbuffered: str) -> None:
    result = subprocess.run(
        f"{{ {COMMAND} {line}; echo $? >&2; }} | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert (len(result.stdout), result.stderr) == (1, "0\n")


@pytest.mark.long
def test_file_is_written_when_output_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    subprocess.run(f"{COMMAND} plan chain:3 -o {path} >&- 2>&-", shell=True, check=True)
    assert tc.load_trace(path).evaluations == 8


SIGNALLED = """
import os, signal, sys, time
from tinyckpt.base import files
from tinyckpt.cli import main

# A shell starts what runs in its background with interrupts ignored, nohup with hang-ups.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
whole = files.os.replace
def slow(*paths):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    if signal.SIG_IGN in map(signal.getsignal, (signal.SIGTERM, signal.SIGHUP)):
        return whole(*paths)
    time.sleep(60)
files.os.replace = slow
{setup}
main(["plan", "chain:3", "-o", sys.argv[2]])
"""


def signalled(name: str, path: Path, setup: str = "") -> subprocess.CompletedProcess[str]:
    """Write a trace in a process that gets a signal when the file is there, but not in place."""
    command = [sys.executable, "-c", SIGNALLED.format(setup=setup), name, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("old", [None, "old"])
def test_signal_leaves_no_partial_file(tmp_path: Path, name: str, old: str | None) -> None:
    path = tmp_path / "trace.json"
    if old:
        path.write_text(old)
    result = signalled(name, path)
    if name == "SIGINT":
        assert result.stderr == "tinyckpt: interrupted\n"
    else:  # the parent sees what it sent
        assert (result.returncode, result.stderr) == (-getattr(signal, name), "")
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ([old] if old else [])


@pytest.mark.long
def test_existing_signal_handlers_are_kept(tmp_path: Path) -> None:
    setup = "signal.signal(signal.SIGTERM, lambda *_: print('mine') or os._exit(3))"
    result = signalled("SIGTERM", tmp_path / "t.json", setup)
    assert result.returncode == 3
    result = signalled(
        "SIGHUP", tmp_path / "t.json", "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    )
    assert result.returncode == 0, result.stderr  # as under nohup


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in TERMINATING_SIGNALS]
    with unwinding_on_signals():
        assert all(signal.getsignal(number) is not signal.SIG_DFL for number in TERMINATING_SIGNALS)
    assert [signal.getsignal(number) for number in TERMINATING_SIGNALS] == before
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGTERM)
        with unwinding_on_signals():
            assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, mine)
    assert not issubclass(Terminated, Exception)


def test_command_runs_outside_main_thread(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(capsys, "plan", "chain:3")[0]))
    thread.start()
    thread.join()
    assert codes == [0]


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"tinyckpt {tc.__version__}\n", "")


POLICIES = """
import tinyckpt as tc

def every_second(graph, costs, *, first=0):
    names = {data for operator in graph.operators[first:graph.forward_count:2]
             for data in operator.outputs}
    return tc.plan(graph, "retain", keep=lambda node: node.id in names, costs=costs)

def broken(graph, costs):
    return 1 / 0

def wrong(graph, costs):
    return 3.5
"""


def test_policy_from_python_file_plans(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(POLICIES)
    code, out, _ = run(capsys, "plan", "chain:6", "--policy", f"{path}:every_second")
    assert code == 0
    assert "kept 3 values" in out
    code, out, _ = run(
        capsys, "compare", "chain:6", "--policy", f"{path}:every_second", "--set", "first=4",
        "--policy", "store_all",
    )  # fmt: skip
    assert code == 0
    assert len(out.splitlines()) == 4
    for name, message in (
        ("every_secnd", "mine.py has no function 'every_secnd' (did you mean every_second?)"),
        ("broken", "mine.py:broken: ZeroDivisionError: division by zero ("),
        ("wrong", "returned a float"),
    ):
        code, _, err = run(capsys, "plan", "chain:6", "--policy", f"{path}:{name}")
        assert code in (1, 2)
        assert message in err
        assert "Traceback" not in err
    assert "cannot read" in run(capsys, "plan", "chain:6", "--policy", f"{tmp_path}/no.py:f")[2]
    assert "--set fist: no policy has" in run(capsys, "plan", "chain:6", "--set", "fist=1")[2]


@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "greedy", "retain", "revolve"])
def test_time_limit_is_accepted_with_every_policy(
    capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    code, _, err = run(capsys, "plan", "chain:6", "--policy", policy, "--time-limit", "2")
    assert (code, err) == (0, "")


def test_policy_receives_time_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, object]] = []

    def record(plan: Callable[..., tc.Schedule]) -> Callable[..., tc.Schedule]:
        def recorded(*args: object, **options: object) -> tc.Schedule:
            given.append(options)
            return plan(*args)

        return recorded

    monkeypatch.setattr("tinyckpt.cli.resolve_options.plan", record(tc.plan))
    assert run(capsys, "plan", "chain:3", "--policy", "rotor", "--time-limit", "2")[0] == 0
    assert run(capsys, "plan", "chain:3", "--policy", "rotor")[0] == 0
    limited, unlimited = (options.get("time_limit") for options in given)
    assert isinstance(limited, float)
    assert 0 < limited <= 2  # what is left of it when the policy's turn comes
    assert unlimited is None


WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
import tinyckpt as tc
from tinyckpt.cli import main
assert main(["plan", "chain:9", "--budget", "5 nodes"]) == 0  # NumPy alone plans
tc.networks.chain(3)._repr_mimebundle_()
codes = [main(["gif", "chain:2", "-o", "x.gif"]), main(["plan", "chain:2", "-o", "x.svg"]),
         main(["play", "chain:2", "-o", "x.html"]), main(["demo", "-o", "x"])]
assert codes == [1] * 4
import viz
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["PIL"], "PIL, which is"),
        (["matplotlib"], "matplotlib, which is"),
        (["PIL", "matplotlib", "graphviz", "pygraphviz", "tqdm"],
         "PIL, matplotlib, graphviz, tqdm, which are"),
    ],
)  # fmt: skip
def test_missing_viz_packages_give_one_error(tmp_path: Path, names: list[str], what: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=names)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    message = f"pictures need {what} not installed: pip install 'tinyckpt[viz]'"
    lines = result.stderr.splitlines()
    assert lines[:4] == [f"tinyckpt: {message}"] * 4
    assert lines[-1] == f"ModuleNotFoundError: {message}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("variable", "share"), [(None, 1), ("OMP_NUM_THREADS", None)])
def test_demo_runs_blas_on_one_thread_unless_told_otherwise(
    variable: str | None, share: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("threadpoolctl")
    import threadpoolctl

    def threads() -> list[int]:
        found = threadpoolctl.threadpool_info()
        return [each["num_threads"] for each in found if each["user_api"] == "blas"]

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "2")
    seen = []
    monkeypatch.setitem(main.__globals__, "demo", lambda *arguments: seen.extend(threads()))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        assert main(["demo"]) == 0
        assert seen == [share or each for each in before]
        assert threads() == before


def test_demo_next_steps_use_paths_that_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "a clone"
    for path in ("lessons/01_the_graph.py", ".venv/bin/python", ".venv/bin/tinyckpt"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
        (folder / path).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / ".venv/bin/python"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(folder / ".venv/bin"))
    monkeypatch.setattr(steps, "LESSON", folder / "lessons/01_the_graph.py")
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(folder)
    first, second, *_ = (line.split(" # ")[0].strip() for line in steps.next_steps().splitlines())
    assert first == ".venv/bin/python lessons/01_the_graph.py"
    assert second == ".venv/bin/tinyckpt compare chain:64"
    monkeypatch.setenv("PATH", f"{folder}/.venv/bin:/usr/bin")  # as after activation
    assert steps.next_steps().startswith("   python lessons/01_the_graph.py ")
    monkeypatch.chdir(tmp_path)
    assert steps.next_steps().startswith("   python 'a clone/lessons/01_the_graph.py' ")
    (folder / ".venv/bin/tinyckpt").unlink()
    monkeypatch.setattr(steps, "LESSON", folder / "gone.py")  # installed from a wheel
    assert steps.next_steps().startswith("   python -m tinyckpt compare chain:64 ")
    monkeypatch.setenv("PATH", "/usr/bin")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert steps.next_steps().startswith(f"   '{folder}/.venv/bin/python' -m tinyckpt compare")
