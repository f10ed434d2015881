"""A parent for each rank, which sees how the rank ends and says so.

Launchers end all ranks when one dies, but do not say which it was; and not even that, if it dies
before all have met in MPI and does so with an exit code. So ``supervise`` starts the program anew
as a child of the process that the launcher knows: whatever kills the child, its parent is there to
name the rank, and then ends by a signal, which every launcher understands. When that kills the
parents of the others, their children end, too. A rank that does not end but hangs is waited for
only so long: see ``channel``.

Needs no MPI.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from time import sleep

# Where launchers of MPI say which rank a process is: MPICH and Intel, Open MPI, PMIx.
RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
# Slurm's steps that no srun made: from here on up, for the script of a job, its shell, and others.
FIRST_SPECIAL_STEP = 0xFFFF_FFF0
STDERR = 2
BEHIND = 3.0  # seconds that a rank waits for the one that knows best what is wrong
HEARD = 0.5  # seconds in which a launcher hands on what was said; it drops what is left at the end
# The pipe that ends when the parent does: its file descriptor, and the inode. Whoever has the
# variable from a rank, such as a launcher that a rank starts, has not the pipe.
LIFELINE = "TINYCKPT_LIFELINE"


def launched_rank(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rank that a launcher gave this process; None if none started it.

    What a launcher of MPI sets, only a rank has. Slurm sets SLURM_PROCID in the script of a job and
    in its shells, too, which are no ranks: those are the tasks of a step that srun made, if it made
    several.

    Args:
        environment: the process's variables.
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
    """Let a parent watch over this process, if a launcher started it; call it before all else.

    It returns in the child, and at once where there is no launcher. The parent never returns: it
    waits, says on stderr which rank was killed or stopped if the child was, and has the launcher
    end the other ranks if the child did not end well.
    """
    rank = launched_rank()
    if rank is None:
        return
    if (lifeline := lifeline_of(os.environ)) is not None:
        die_with_parent(lifeline)
        return
    ours, theirs = os.pipe()  # nothing is ever written: it ends with the process that holds it
    os.set_inheritable(ours, True)
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, LIFELINE: f"{ours} {os.fstat(ours).st_ino}"},
        close_fds=False,  # the launcher's own are among them
    )
    os.close(ours)
    code = ended(child.pid, rank)
    os.close(theirs)
    if code == 0:
        os._exit(0)
    what = f"ended with code {code}"
    if code < 0:
        what = f"was killed by {name_of(-code)}"
        if name_of(-code) == "SIGALRM":  # see get_mpi
            what = "has lost its patience: it waited for all ranks to begin, and one of them hangs"
    say(f"rank {rank} (process {child.pid}) {what}; the launcher ends the other ranks")
    sleep(HEARD)
    os.kill(os.getpid(), signal.SIGKILL)


def after_rank_0() -> None:
    """Wait a moment before an error is said, in all supervised ranks but the first.

    What is wrong in all of them is then said once: when rank 0 has said it, all are ended.
    """
    if lifeline_of(os.environ) is not None and launched_rank() not in (None, "0"):
        sleep(BEHIND)


def say(text: str) -> None:
    """Write a line on stderr that no other rank's is mixed up with."""
    os.write(STDERR, f"tinyckpt: {text}\n".encode())


def name_of(number: int) -> str:
    """Return what a signal is called; those that are only for programs' own use have numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ended(process: int, rank: str) -> int:
    """Wait for a child to end, and return its exit code; that of a signal is negative."""
    while True:
        _, status = os.waitpid(process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        name = name_of(os.WSTOPSIG(status))
        say(f"rank {rank} (process {process}) was stopped by {name}; the others wait for it")


def lifeline_of(environment: Mapping[str, str]) -> int | None:
    """Return the file descriptor that ends with this process's parent; None if it has none."""
    try:
        number, inode = map(int, environment.get(LIFELINE, "").split())
        return number if os.fstat(number).st_ino == inode else None
    except (ValueError, OSError, OverflowError):
        return None


def die_with_parent(lifeline: int) -> None:
    """Have this process end as soon as its parent has, even while it waits in MPI."""
    if sys.platform == "linux":
        # A stopped process runs no thread, but the kernel ends it. 1 is PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    threading.Thread(target=end_with_parent, args=(lifeline,), daemon=True).start()


def end_with_parent(lifeline: int) -> None:
    """Wait until the parent has ended, and end this process."""
    os.read(lifeline, 1)
    os._exit(1)
