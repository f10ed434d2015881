"""Process supervision of MPI ranks (a watchdog): a parent per rank reports how the rank died.

A launcher ends all ranks when one is killed, but names its process id only; and it ends none when
one exits with a code before MPI is finalised. So ``supervise`` restarts the program as a child of
the process that the launcher started: whatever kills the child, its parent survives to name the
rank, and then kills itself by a signal, which every launcher detects. A launcher signals the
process group of each rank, so the children of the others end with their parents; on Linux the
kernel ends a child whose parent is killed alone as well. A rank that hangs instead of dying runs
into the timeouts of ``mpi``.

Needs no MPI.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from time import sleep

# Environment variables in which MPI launchers give the rank: MPICH and Intel MPI, Open MPI, PMIx.
RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
# Ids of Slurm's special steps, which no srun started (the batch script, its shell, others), from:
FIRST_SPECIAL_STEP = 0xFFFF_FFF0
STDERR = 2
SUPERVISOR_DELAY = 3.0  # seconds that a rank lets the rank that failed first report its error
STDERR_DELAY = (
    0.5  # seconds for a launcher to forward stderr; it drops the rest when the processes end
)
# Environment variable with the process id of the supervisor. A process that merely inherits it,
# such as a launcher that a rank starts, has another parent.
SUPERVISOR = "TINYCKPT_SUPERVISOR"


def launched_rank(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rank that an MPI launcher gave this process; None without a launcher.

    The variables of MPI launchers are set in ranks only. Slurm sets SLURM_PROCID in batch scripts
    and their shells as well, which are not ranks: ranks are the tasks of a step that srun started,
    if there are several.

    Args:
        environment: the process's environment variables.

    >>> launched_rank({"PMI_RANK": "3"}), launched_rank({"SLURM_PROCID": "0"})
    ('3', None)
    """
    for name in RANK_NAMES:
        if environment.get(name, "").isdecimal():
            return environment[name]
    step, tasks, rank = (
        environment.get(name, "")
        for name in ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    )
    is_step = step.isdecimal() and int(step) < FIRST_SPECIAL_STEP
    return rank if is_step and tasks not in ("", "1") and rank.isdecimal() else None


def supervise() -> None:
    """Restart this process as a supervised child, if a launcher started it; call it first of all.

    It returns in the child, and at once where there is no launcher. The parent never returns: it
    waits, reports on stderr if the child was killed or stopped, and makes the launcher kill the
    other ranks if the child failed.

    >>> from tinyckpt.pipeline import supervise
    >>> supervise()  # doctest: +SKIP
    """
    rank = launched_rank()
    if rank is None or not hasattr(os, "WUNTRACED"):  # Windows: no signal says that a rank stopped
        return
    if is_supervised():
        if sys.platform == "linux":  # 1 is PR_SET_PDEATHSIG: a signal when the parent ends
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, SUPERVISOR: str(os.getpid())},
        close_fds=False,  # keep the launcher's file descriptors open
    )
    code = wait_for_exit(child.pid, rank)
    if code == 0:
        os._exit(0)
    what = f"ended with code {code}"
    if code < 0:
        what = f"was killed by {name_of(-code)}"
        if name_of(-code) == "SIGALRM":  # see get_mpi
            what = "timed out: it waited for all ranks to start, and one of them hangs"
    say(f"rank {rank} (process {child.pid}) {what}; the launcher ends the other ranks")
    sleep(STDERR_DELAY)
    os.kill(os.getpid(), signal.SIGKILL)


def is_supervised() -> bool:
    """Whether this process is the child of its supervisor."""
    return os.environ.get(SUPERVISOR) == str(os.getppid())


def after_rank_0() -> None:
    """Delay error messages in all supervised ranks but rank 0.

    An error common to all ranks is then reported once: after rank 0's report all are killed.
    """
    if is_supervised() and launched_rank() not in (None, "0"):
        sleep(SUPERVISOR_DELAY)


def say(text: str) -> None:
    """Write a line to stderr by one system call, so that lines of several ranks do not mix."""
    os.write(STDERR, f"tinyckpt: {text}\n".encode())


def name_of(number: int) -> str:
    """Return the name of a signal; its number if it has no name, such as real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def wait_for_exit(process: int, rank: str) -> int:
    """Wait for a child process, and return its exit code; minus the signal if it was killed."""
    while True:
        _, status = os.waitpid(process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        name = name_of(os.WSTOPSIG(status))
        say(f"rank {rank} (process {process}) was stopped by {name}; the others wait for it")
