"""Short tracebacks: of an error of tinyckpt, the caller's frames and one of the package.

A mistake in a traced function is raised below a dozen frames of tracing, planning and compiling,
which say nothing about it. Public functions decorated with ``short_traceback`` leave them out.
With the environment variable ``TINYCKPT_TRACEBACK=full`` all of them are shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tinyckpt.base.errors import TinyckptError

P = ParamSpec("P")
R = TypeVar("R")
PACKAGE = str(Path(__file__).parents[1]) + os.sep


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Leave frames of the package out of the tracebacks of its own errors.

    >>> import tinyckpt as tc
    >>> try:
    ...     tc.grad(lambda x: x if x > 0 else -x)(1.0)
    ... except tc.GraphError as error:
    ...     print(len(frames_of(error)))
    3
    """

    @wraps(function)
    def door(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TinyckptError as error:
            raise shortened(error) from error.__cause__

    return door


def shortened(error: TinyckptError) -> TinyckptError:
    """Return an error without the frames of the package below the one that raises it again."""
    if os.environ.get("TINYCKPT_TRACEBACK") == "full":
        return error
    return error.with_traceback(callers_frames(error.__traceback__))


def callers_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames whose code is the package's."""
    frames = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(PACKAGE):
            frames.append(traceback)
        traceback = traceback.tb_next
    shown = None
    for frame in reversed(frames):
        shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


def frames_of(error: BaseException) -> list[str]:
    """Return the file names of the frames in an error's traceback, from the outermost."""
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    return found
