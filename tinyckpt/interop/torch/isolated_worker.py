"""Process isolation: evaluates operators in a worker process that may crash or hang harmlessly.

Kernels on made-up inputs that cannot occur in a real step may do anything. So one process,
``worker.py``, evaluates operators on request, and is replaced when an operator kills it. It is a
script of its own, started with this interpreter and this ``sys.path``: nothing of the calling
program is imported again, be it a notebook, a script without a guard, or standard input. It is
reused for the next request, and ends with this process. A forked process starts one of its own.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from tinyckpt.interop.torch import worker

START = 120.0  # seconds in which PyTorch is imported; 2 are usual, more on a cold disk
# Seconds for one evaluation; products of bfloat16 may take that on an old CPU. Operators that take
# it together are evaluated one by one.
DEADLINE = 120.0
TOGETHER = 64  # operators evaluated in one session of the profiler; timed ones one by one
MOST_CRASHES = 8  # crashes in one call, then the rest is skipped: each hang costs minutes
# Flags that select kernels, beside the arguments; they have no getter functions.
FLAGS = (
    "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic",
    "backends.mkldnn.matmul.fp32_precision",
    "backends.mkldnn.conv.fp32_precision",
    "backends.mkldnn.rnn.fp32_precision",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
    "backends.cuda.matmul.fp32_precision",
    "utils.deterministic.fill_uninitialized_memory",
)


class NoWorkerError(Exception):
    """No worker process can be started."""


class WorkerProcess:
    """The worker of this process, started lazily.

    Attributes:
        process: the worker, once it is started.
        settings: the thread count and flags that it computes with; None until it has some.
        refused: why none can be started, once that is known.
        lock: serialises requests of several threads.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, Any] | None = None
        self.refused = ""
        self.lock = threading.RLock()

    def start(self) -> None:
        """Start the worker unless there is one, without waiting for its import of PyTorch."""
        with self.lock:
            if self.process is not None or self.refused:
                return
            self.settings = None
            try:
                if getattr(sys, "frozen", False) or not sys.executable:
                    raise OSError("this program is no Python interpreter that could start another")
                script = str(Path(worker.__file__))
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", script, *sys.path],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            except (OSError, ValueError) as error:
                self.refused = str(error)

    def stop(self) -> None:
        """Kill the worker, if there is one."""
        with self.lock:
            process, self.process = self.process, None
            if process is None:
                return
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # pending writes have no reader
                    if pipe is not None:
                        pipe.close()

    def set_up(self, wanted: dict[str, Any]) -> None:
        """Start the worker unless there is one, and give it settings unless it has them.

        Raises:
            NoWorkerError: if no worker can be started.
        """
        self.start()
        if self.process is None:
            raise NoWorkerError(self.refused)
        if self.settings == wanted:
            return
        reply, ended = self.ask(wanted, START)
        if ended and self.settings is None:
            self.refused = f"{sys.executable} {ended} before it had imported PyTorch"
        if ended or reply:
            raise NoWorkerError(self.refused or ended or reply)
        self.settings = wanted

    def ask(self, request: Any, seconds: float) -> tuple[Any, str]:
        """Return the reply to a request, and how the worker ended on it, or ""."""
        try:
            message = pickle.dumps(request)
        except Exception as error:
            return f"its arguments cannot be sent to a process: {error}", ""
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(message)
            process.stdin.flush()
            reply = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10.0)  # its pipes may close before it exits
            self.stop()
            if expired.is_set():
                return None, f"was still running after {seconds:g} seconds"
            return None, ending(process.returncode)
        except BaseException:
            self.stop()  # else the next request would read this reply
            raise
        finally:
            timer.cancel()
        return reply, ""


def ending(code: int) -> str:
    """Describe how a process ended, by its return code."""
    return f"ended with signal {-code}" if code < 0 else f"ended with exit status {code}"


WORKER = WorkerProcess()
INHERITED: list[Any] = []  # workers of a parent process, kept: closing them would close their pipes


def leave_worker_to_parent() -> None:
    """After a fork: leave the worker to the parent process."""
    global WORKER
    INHERITED.append(WORKER)
    WORKER = WorkerProcess()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_worker_to_parent)


def end() -> None:
    """End the worker with this process, even while a thread waits for its reply."""
    WORKER.refused = "this program ends"
    if (process := WORKER.process) is not None:
        process.kill()
    WORKER.stop()


atexit.register(end)


def evaluate_requests(requests: Sequence[dict[str, Any]], wanted: dict[str, Any]) -> list[Any]:
    """Return the worker's reply to each request; a text for a request that failed or killed it.

    After ``MOST_CRASHES`` crashes the remaining requests have no reply.

    Args:
        requests: as ``workspace.request_of`` makes them.
        wanted: the settings to evaluate them with.

    Raises:
        NoWorkerError: if no worker can be started.
    """
    with WORKER.lock:
        deaths, found = 0, list[Any]()
        timed = any(request["timed"] for request in requests)
        size, evaluations = (1, 1 + worker.REPEATS) if timed else (TOGETHER, 1)
        waiting = deque(requests[i : i + size] for i in range(0, len(requests), size))
        while waiting and deaths < MOST_CRASHES:
            some = waiting.popleft()
            WORKER.set_up(wanted)
            reply, ended = WORKER.ask(some, DEADLINE * evaluations)
            if isinstance(reply, list):
                found += reply
            elif len(some) > 1:  # one of them cannot be sent, or ended the worker: each by itself
                waiting.extendleft([request] for request in reversed(some))
            else:
                found.append(f"the process that evaluated it {ended}" if ended else reply)
                deaths += bool(ended)
        return found


def settings() -> dict[str, Any]:
    """Return the global settings of this process that kernels depend on besides their arguments."""
    flags = {}
    for path in FLAGS:
        with suppress(AttributeError):  # not in this version of PyTorch
            flags[path] = attrgetter(path)(torch)
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "flags": flags,
    }
