"""Pipelines under MPI with four processes: equal results, faults, timeouts, aborts."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.cli.mpi_rank import RandomMicroBatches
from tinyckpt.pipeline import one_f_one_b, plan_stages, stages_of

require("mpi4py")

PROGRAM = Path(__file__).parent / "mpi_program.py"
MARK = f"TINYCKPT_TEST={os.getpid()}"  # other tests may run the program at the same time
ROOT = PROGRAM.parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return launched(str(PROGRAM), *arguments)


def launched(*arguments: str) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert launcher, "mpi4py is installed, and no mpiexec"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.update([MARK.split("=")])
    return subprocess.run(
        [launcher, "-n", "4", sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "v-min", "v-half"])
def test_four_mpi_processes_equal_one_process(name: str) -> None:
    done = run(name, "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"values": True, "bitwise": True, "error": 0.0}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("replicas", ["2", "4"])
def test_mpi_replicas_equal_one_process(replicas: str) -> None:
    done = run("1f1b", replicas)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # The sum over replicas has another order than that over micro-batches.
    assert found["values"]
    assert found["error"] < 1e-12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("zero", ["0", "1", "2", "3"])
@pytest.mark.parametrize("replicas", ["2", "4"])
def test_mpi_zero_training_equals_one_process(replicas: str, zero: str) -> None:
    done = run("interleaved", replicas, zero)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert max(found["errors"]) < 1e-12


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fault",
    ["killed", "killed before", "killed in a forward", "killed in an all-reduce",
     "killed at the end"],
)  # fmt: skip
def test_killed_rank_is_named_and_aborts_others(fault: str) -> None:
    done = run("1f1b", "2", fault)
    assert done.returncode != 0
    assert "tinyckpt: rank 2 (process " in done.stderr
    assert ") was killed by SIGKILL; the launcher ends the other ranks" in done.stderr
    assert done.stderr.count("was killed by") == 1
    assert not children_left()


def test_rank_exiting_before_mpi_init_aborts_others() -> None:
    done = run("1f1b", "1", "left before")
    assert done.returncode != 0
    assert ") ended with code 3; the launcher ends the other ranks" in done.stderr
    assert done.stderr.count("tinyckpt: rank 2 (process ") == 1
    assert not children_left()


def test_hanging_rank_is_named_and_aborts_all() -> None:
    done = run("1f1b", "2", "stopped")
    assert done.returncode != 0
    assert ") was stopped by SIGSTOP; the others wait for it" in done.stderr
    # Device 1 waits for what it makes, and the other replica for the all-reduce.
    assert re.search(r"tinyckpt: rank [013] \(device [01]\): waited 2 s for ", done.stderr)
    assert not children_left()


def test_rank_missing_at_mpi_init_times_out_and_aborts_all() -> None:
    done = run("1f1b", "1", "late")
    assert done.returncode != 0
    # It is not there when MPI begins; of the others, the first to be impatient says so.
    assert "timed out: it waited for all ranks to start, and one" in done.stderr
    assert "tinyckpt: rank 2" not in done.stderr
    assert not children_left()


def test_replicas_with_differing_parameters_do_not_start() -> None:
    done = run("1f1b", "2", "other")
    assert done.returncode != 0
    # It is device 1 that has the last layer; device 0 of that replica has what it should.
    assert (
        "tinyckpt: rank 3 (device 1) was given other numbers in params[7]['b'] than rank 1; all "
        "processes must be called with the same arguments"
    ) in done.stderr
    assert done.stderr.count("tinyckpt: ") == 1 + done.stderr.count("ended with code")


def children_left() -> list[str]:
    """The processes of the program that there still are, a moment after the launcher ended."""
    for _ in range(100):
        found = [path.name for path in Path("/proc").glob("[0-9]*") if is_marked(path)]
        if not found:
            return []
        time.sleep(0.1)
    return found


def is_marked(process: Path) -> bool:
    try:
        return MARK.encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_error_in_one_rank_is_named_and_aborts_others() -> None:
    done = run("1f1b", "1", "wrong")
    assert done.returncode != 0
    assert "tinyckpt: rank 2 (device 2): y: expected float64[4,6]" in done.stderr
    assert done.stderr.count("y: expected") == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stages", "2", "--micro-batches", "0"), "error: 1f1b: micro-batches=0; it must be"),
        (("--stages", "3", "--micro-batches", "2"), "1f1b on 3 devices takes 3 processes; there"),
        (("--replicas", "3", "--micro-batches", "2"), "on 1 devices in 3 replicas takes 3 proc"),
        (("--replicas", "5", "--micro-batches", "2"), "on 1 devices in 5 replicas takes 5 proc"),
        (("--stages", "2"), "error: the following arguments are required: --micro-batches"),
    ],
)
def test_error_common_to_all_ranks_is_reported_once(
    arguments: tuple[str, ...], message: str
) -> None:
    done = launched("-m", "tinyckpt", "pipe", "mlp:4x8", *arguments)
    assert done.returncode != 0
    assert done.stderr.count(message) == 1
    assert done.stderr.count("usage:") <= 1
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_command_runs_under_mpi_launcher() -> None:
    command = ("-m", "tinyckpt", "pipe", "mlp:4x16", "--micro-batches")
    one = launched(*command, "8", "--stages", "4", "--schedule", "zb-h1")
    two = launched(
        *command, "4", "--stages", "2", "--replicas", "2", "--recompute", "late",
        "--policy", "sqrt_n", "--optimizer", "none",
    )  # fmt: skip
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert "zb-h1 of mlp:4x16 in 4 processes: loss " in one.stdout
    assert "1f1b of mlp:4x16 in 4 processes: loss " in two.stdout
    plain = launched(*command, "8", "--schedule", "zb-h1")  # as many stages as processes
    halves = launched(*command, "4", "--replicas", "2", "--optimizer", "none")
    for done, same in ((plain, one), (halves, two)):
        assert done.returncode == 0, done.stderr
        ours, theirs = (re.sub(r", [\d.]+ ms", "", each.stdout) for each in (done, same))
        assert ours == theirs
    three = launched(
        *command, "2", "--stages", "1", "--replicas", "4", "--zero", "3", "--chunks", "4",
        "--schedule", "interleaved", "--optimizer", "adamw", "--steps", "3", "--rate", "0.01",
    )  # fmt: skip
    assert three.returncode == 0, three.stderr
    assert "interleaved of mlp:4x16, ZeRO-3, in 4 processes: trained by adamw" in three.stdout
    # The same batch, cut otherwise.
    found = [re.split(r"[\s,;]", done.stdout.split("loss ")[1])[0] for done in (one, two, three)]
    assert found[0] == found[1] == found[2]
    assert one.stdout.count("loss") == 1
    lines = [line for line in three.stdout.splitlines() if line.startswith("step ")]
    steps = [float(line.split(": loss ")[1]) for line in lines]
    np.testing.assert_allclose(steps, losses_of_one_device(3), rtol=1e-11)


def losses_of_one_device(steps: int) -> list[float]:
    network = tc.networks.mlp(4, 16)
    stages = plan_stages(stages_of(network.graph(), []))
    batches = RandomMicroBatches(network.specs, one_f_one_b(1, 8), stages, (0, 0))
    step = tc.train_step(network.loss, tc.adamw(0.01), micro_batches=8)
    state = step.init(batches[0][0])
    own = [np.concatenate([batches[n][k] for n in range(8)]) for k in (1, 2)]
    found = []
    for _ in range(steps):
        state, value = step(state, *own)
        found.append(float(value))
    return found
