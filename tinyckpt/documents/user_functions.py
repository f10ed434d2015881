"""Functions in Python files of the user's: networks and policies named on the command line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tinyckpt.base.errors import FormatError, GraphError, TinyckptError, meant
from tinyckpt.documents.reader import read_bytes

# By folder: the modules in it that its files imported, by name.
NEIGHBOURS: dict[Path, dict[str, ModuleType]] = {}


def function_of_file(path: str, name: str) -> Callable[..., Any]:
    """Return a function that a Python file defines, after running the file.

    The file imports its neighbours as under ``python file.py``, what is in the current folder, and,
    if it is in a package, relatively. Whoever calls the function does it under ``user_code``.

    Raises:
        GraphError: if the file cannot be read, is not valid Python, raises anything, or has no
            such function.
    """
    try:
        source = read_bytes(path)  # of a regular file alone: a device may have no end
    except FormatError as error:
        raise GraphError(str(error)) from error
    with user_code(path, name):
        spec = importlib.util.spec_from_file_location(module_name(Path(path).resolve()), path)
        assert spec is not None  # the path ends in .py
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses and pickles look there for their module
        try:
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise GraphError(f"{path} has no function {name!r}{meant(name, known)}")
    return function  # type: ignore[no-any-return]


def module_name(path: Path) -> str:
    """Return the name to import a file by: with its packages; another one if that is taken."""
    name = ".".join((*(package.name for package in packages_of(path)), path.stem))
    taken = sys.modules.get(name)
    if taken is None or getattr(taken, "__file__", None) == str(path):
        return name
    return f"{name}_of_{len(NEIGHBOURS)}"


def packages_of(path: Path) -> list[Path]:
    """Return the folders of the packages that a file is in, the outermost first."""
    found: list[Path] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        found.insert(0, folder)
        folder = folder.parent
    return found


@contextmanager
def importing(path: str) -> Iterator[None]:
    """While this is active, a file's neighbours can be imported, and what is in the current folder.

    A neighbour of another file by the name of one of this file is hidden for as long.
    """
    file = Path(path).resolve()
    outermost = next(iter(packages_of(file)), file)
    folders = list(dict.fromkeys((file.parent, outermost.parent, Path.cwd())))
    own = NEIGHBOURS.setdefault(file.parent, {})
    for modules in NEIGHBOURS.values():
        for name in modules if modules is not own else ():
            if sys.modules.get(name) is modules[name] and is_in(name, file.parent):
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
        own.update({name: sys.modules[name] for name in added if is_in(name, file.parent)})


def is_in(name: str, folder: Path) -> bool:
    """Whether a folder has a module or package, by the first part of its name."""
    first = name.partition(".")[0]
    return (folder / f"{first}.py").is_file() or (folder / first).is_dir()


@contextmanager
def user_code(path: str, name: str) -> Iterator[None]:
    """Run code of a user's file: it can import its neighbours, and errors say where they arose.

    Raises:
        GraphError: in place of whatever the code raises.
    """
    try:
        with importing(path):
            yield
    except TinyckptError:
        raise
    except OSError as error:
        if error.filename not in (path, str(Path(path).resolve())):  # one that the code reads
            raise GraphError(raised(path, name, error)) from error
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except SyntaxError as error:
        raise GraphError(f"{path} is not valid Python: {error}") from error
    except (Exception, SystemExit) as error:
        raise GraphError(raised(path, name, error)) from error


def raised(path: str, name: str, error: BaseException) -> str:
    """Return what code of a user's file raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename}, line {last.lineno}"
    return f"{path}:{name}: {type(error).__name__}: {error} ({where})"
