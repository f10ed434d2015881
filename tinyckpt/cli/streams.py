"""The command as a process: output that the shell closed, and signals that end it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from tinyckpt.base.display import printable
from tinyckpt.pipeline.supervising import after_rank_0

# What ends a process that has not asked for anything else: kill, and a terminal that is gone.
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(BaseException):
    """A signal has arrived; nothing but cleaning up is to be done."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def open_closed_streams() -> None:
    """Let output go nowhere where the shell closed it (``>&-``); Python has None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def discard(stream: Any) -> None:
    """Let what is still to be written to a stream go nowhere, or Python tries again at its end."""
    with suppress(OSError):  # a stream that is no file of the system's
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def finished(code: int) -> int:
    """Write what was said and is not yet written; return the exit code, which says if that fails.

    That whoever reads a pipe has seen enough is no failure.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if code == 0 and not isinstance(error, BrokenPipeError):
            code = failed(f"cannot write the output: {error.strerror or error}")
    try:
        sys.stderr.flush()
    except OSError:  # then the code alone says what is wrong
        discard(sys.stderr)
    return code


def failed(reason: str) -> int:
    """Say why a job failed; return its exit code."""
    after_rank_0()
    with suppress(OSError):  # then the code alone says it
        print(f"tinyckpt: {printable(reason)}", file=sys.stderr)
    return 1


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Let a signal that ends the process unwind the block first, so that it leaves no half files.

    The process then ends by that same signal, which is what its parent is to see. A signal that
    somebody handles or ignores is left to them, and so are all outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]

    def unwind(number: int, frame: Any) -> NoReturn:
        for other in taken:  # the first one is enough: cleaning up is not to be interrupted
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    for number in taken:
        signal.signal(number, unwind)
    ended = None
    try:
        yield
    except Ended as error:
        ended = error.number
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if ended is not None:
            signal.raise_signal(ended)
