"""Loader of user functions (``path/to/file.py:function``): networks and policies from Python files.

A file imports its neighbours as a script does; two files may import different neighbours of one
name. Errors of user code become one GraphError with file and line.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tinyckpt.base.errors import FormatError, GraphError, TinyckptError, did_you_mean
from tinyckpt.documents.json_reader import read_bytes

# Modules that files of a folder imported from it, by folder and name.
IMPORTED_BY_FOLDER: dict[Path, dict[str, ModuleType]] = {}


def function_of_file(path: str, name: str) -> Callable[..., Any]:
    """Execute a Python file, and return one of its functions.

    The file can import its neighbours as under ``python file.py``, modules of the current folder,
    and, if it is in a package, relatively. Call the function under ``user_code``.

    Raises:
        GraphError: if the file cannot be read, is not valid Python, raises anything, or has no
            such function.
    """
    try:
        source = read_bytes(path)  # regular files only: a device may be endless
    except FormatError as error:
        raise GraphError(str(error)) from error
    with user_code(path, name):
        spec = importlib.util.spec_from_file_location(module_name(Path(path).resolve()), path)
        assert spec is not None  # the path ends in .py
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where dataclasses and pickle look up modules
        try:
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise GraphError(f"{path} has no function {name!r}{did_you_mean(name, known)}")
    return function  # type: ignore[no-any-return]


def module_name(path: Path) -> str:
    """Return the qualified module name of a file; a unique variant if the name is taken."""
    name = ".".join((*(package.name for package in packages_of(path)), path.stem))
    taken = sys.modules.get(name)
    if taken is None or getattr(taken, "__file__", None) == str(path):
        return name
    return f"{name}_of_{len(IMPORTED_BY_FOLDER)}"


def packages_of(path: Path) -> list[Path]:
    """Return the folders of the packages around a file, outermost first."""
    found: list[Path] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        found.insert(0, folder)
        folder = folder.parent
    return found


@contextmanager
def importing(path: str) -> Iterator[None]:
    """Make a file's neighbours and the modules of the current folder importable, for a block.

    A module of the same name that another file imported from its own folder is hidden meanwhile.
    """
    file = Path(path).resolve()
    outermost = next(iter(packages_of(file)), file)
    folders = list(dict.fromkeys((file.parent, outermost.parent, Path.cwd())))
    own = IMPORTED_BY_FOLDER.setdefault(file.parent, {})
    for modules in IMPORTED_BY_FOLDER.values():
        for name in modules if modules is not own else ():
            if sys.modules.get(name) is modules[name] and is_module_of(name, file.parent):
                del sys.modules[name]
    sys.modules.update(own)
    before = set(sys.modules)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        for folder in folders:
            if str(folder) in sys.path:
                sys.path.remove(str(folder))
        added = sys.modules.keys() - before
        own.update({name: sys.modules[name] for name in added if is_module_of(name, file.parent)})


def is_module_of(name: str, folder: Path) -> bool:
    """Whether a folder contains a module or package, by the first part of its dotted name."""
    first = name.partition(".")[0]
    return (folder / f"{first}.py").is_file() or (folder / first).is_dir()


@contextmanager
def user_code(path: str, name: str) -> Iterator[None]:
    """Context for running a user's code: neighbours are importable, errors carry file and line.

    Raises:
        GraphError: instead of any exception of the code.
    """
    try:
        with importing(path):
            yield
    except TinyckptError:
        raise
    except OSError as error:
        if error.filename not in (path, str(Path(path).resolve())):  # opened by the code
            raise GraphError(error_text(path, name, error)) from error
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except SyntaxError as error:
        raise GraphError(f"{path} is not valid Python: {error}") from error
    except (Exception, SystemExit) as error:
        raise GraphError(error_text(path, name, error)) from error


def error_text(path: str, name: str, error: BaseException) -> str:
    """Format an exception of user code, with its file and line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename}, line {last.lineno}"
    return f"{path}:{name}: {type(error).__name__}: {error} ({where})"
