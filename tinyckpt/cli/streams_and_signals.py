"""Output-stream and signal handling of the command: closed or full streams, clean exit."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from tinyckpt.base.display import printable
from tinyckpt.pipeline.rank_supervisor import after_rank_0

# Signals whose default action ends the process: kill, and hang-up of the terminal.
TERMINATING_SIGNALS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Terminated(BaseException):
    """A terminating signal arrived: unwind the stack, cleaning up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def open_closed_streams() -> None:
    """Redirect streams that the shell closed (``>&-``), None in Python, to the null device."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def escape_unencodable_output() -> None:
    """Let the output escape characters that its encoding lacks, as error messages do.

    Redirected output on Windows has a code page, such as cp1252, which lacks most names.
    """
    stream: Any = sys.stdout
    if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def redirect_to_null(stream: Any) -> None:
    """Redirect a broken stream to the null device, or Python would flush it again at exit."""
    with suppress(OSError):  # a stream without a file descriptor
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def flush_output(code: int) -> int:
    """Flush the output; return the exit code, 1 if flushing fails.

    A broken pipe, whose reader has read enough, is not a failure.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        redirect_to_null(sys.stdout)
        if code == 0 and not isinstance(error, BrokenPipeError):
            code = report_failure(f"cannot write the output: {error.strerror or error}")
    try:
        sys.stderr.flush()
    except OSError:  # then only the exit code reports it
        redirect_to_null(sys.stderr)
    return code


def report_failure(reason: str) -> int:
    """Print why a job failed; return its exit code."""
    after_rank_0()
    with suppress(OSError):  # then only the exit code reports it
        print(f"tinyckpt: {printable(reason)}", file=sys.stderr)
    return 1


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Unwind the block when a terminating signal arrives, so that no partial files are left.

    The process then ends by that same signal, as its parent expects. Signals that already have a
    handler, or are ignored, are left alone, and so are all of them outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in TERMINATING_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def unwind(number: int, frame: Any) -> NoReturn:
        for other in taken:  # a second signal must not interrupt the cleanup
            signal.signal(other, signal.SIG_IGN)
        raise Terminated(number)

    for number in taken:
        signal.signal(number, unwind)
    ended = None
    try:
        yield
    except Terminated as error:
        ended = error.number
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if ended is not None:
            signal.raise_signal(ended)
