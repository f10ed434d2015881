"""Supervision of ranks: detection of the launcher, inheritance by their children; needs no MPI."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tinyckpt.cli.test_pipe import run
from tinyckpt.pipeline import launched_rank, mpi
from tinyckpt.pipeline.rank_supervisor import (
    SUPERVISOR_DELAY,
    name_of,
)

# What Slurm sets in every process of a job, in its script and in its shells.
JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, "2"),
        ({"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}, "3"),
        (JOB, None),
        (JOB | {"SLURM_STEP_ID": str(0xFFFF_FFFB)}, None),  # the script of a job
        (JOB | {"SLURM_STEP_ID": str(0xFFFF_FFFA), "SLURM_STEP_NUM_TASKS": "4"}, None),  # salloc
        (JOB | STEP | {"SLURM_STEP_NUM_TASKS": "1"}, None),  # srun --pty bash
        (JOB | STEP | {"SLURM_PROCID": "3"}, "3"),
        (JOB | {"PMI_RANK": "1"}, "1"),  # mpiexec in the script of a job
        # mpiexec of MPICH starts a proxy a machine by srun, and that the ranks.
        (JOB | STEP | {"PMI_RANK": "2"}, "2"),
        ({"PMI_RANK": ""}, None),
        ({"SLURM_STEP_ID": "x", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, None),
    ],
)
def test_launched_rank_is_read_from_launcher_variables(
    environment: dict[str, str], rank: str | None
) -> None:
    assert launched_rank(environment) == rank


def test_command_in_batch_script_is_not_a_rank(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    code, out, _ = run(capsys, "chain:8", "--stages", "2", "--micro-batches", "2")
    assert code == 0
    assert "from end to end" in out


class LostError(Exception):
    """What MPI raises where the process at the other end has gone."""


class EndedError(Exception):
    """All processes have been ended."""


@pytest.mark.parametrize(
    ("error", "waits"), [(LostError("lost"), [SUPERVISOR_DELAY]), (ValueError("no"), [])]
)
def test_mpi_error_waits_for_the_supervisor_of_the_dead_rank(
    error: Exception, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    def end(world: Any) -> None:
        raise EndedError

    monkeypatch.setattr(mpi, "get_mpi", lambda: SimpleNamespace(Exception=LostError))
    monkeypatch.setattr(mpi, "sleep", done.append)
    monkeypatch.setattr(mpi, "say", done.append)
    monkeypatch.setattr(mpi, "end_all", end)
    world = SimpleNamespace(Get_size=lambda: 4)
    with pytest.raises(EndedError), mpi.ending_all(world, "rank 3"):
        raise error
    assert done == [*waits, f"rank 3: {error}"]
    with pytest.raises(type(error)), mpi.ending_all(SimpleNamespace(Get_size=lambda: 1), ""):
        raise error


PARENT = """
import os, subprocess, sys
from tinyckpt.pipeline import supervise
supervise()
# A rank starts something by itself, which has the variables of a rank, and is watched over anew.
if "inner" in sys.argv:
    sys.exit(5)
sys.exit(subprocess.run([sys.executable, sys.argv[0], "inner"]).returncode + 40)
"""


@pytest.mark.long
def test_child_launcher_of_a_rank_is_supervised_anew(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PARENT, encoding="utf-8")
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PMI_RANK": "3", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    lines = [re.sub(r"\d+(?=\))", "N", line) for line in done.stderr.splitlines()]
    assert lines == [
        "tinyckpt: rank 3 (process N) ended with code 5; the launcher ends the other ranks",
        "tinyckpt: rank 3 (process N) ended with code 31; the launcher ends the other ranks",
    ]
    assert done.returncode == -9


def test_signal_names_fall_back_to_numbers() -> None:
    assert (name_of(9), name_of(50)) == ("SIGKILL", "signal 50")
