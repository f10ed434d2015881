"""Functions in Python files of the user's: networks and policies named on the command line."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyckpt.documents.reader import read_bytes
from tinyckpt.errors import FormatError, GraphError, TinyckptError, meant


def function_of_file(path: str, name: str) -> Callable[..., Any]:
    """Return a function that a Python file defines, after running the file.

    Raises:
        GraphError: if the file cannot be read, is not valid Python, raises anything, or has no
            such function.
    """
    try:
        read_bytes(path)  # a regular file, and of a size that can be read
    except FormatError as error:
        raise GraphError(str(error)) from error
    with user_code(path, name):
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert spec is not None  # the path ends in .py
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise GraphError(f"{path} has no function {name!r}{meant(name, known)}")
    return function  # type: ignore[no-any-return]


@contextmanager
def user_code(path: str, name: str) -> Iterator[None]:
    """Turn whatever a file of the user's raises into a GraphError that says where."""
    try:
        yield
    except TinyckptError:
        raise
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except SyntaxError as error:
        raise GraphError(f"{path} is not valid Python: {error}") from error
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise GraphError(f"{path}:{name}: {type(error).__name__}: {error} ({where})") from error
