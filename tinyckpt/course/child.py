"""The process in which a student's file runs: limits, an audit hook, questions, answers as JSON.

``isolated`` starts it and believes nothing of it. Limits of the kernel come first; the audit hook,
which the file could get around, says in plain words what an answer may not do.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from tinyckpt.course.puzzles import PUZZLES, as_data
from tinyckpt.course.recorded_tests import run_recorded

# Beginnings of audit events, and what they are. https://docs.python.org/3/library/audit_events.html
REFUSED = {
    **dict.fromkeys(
        ("os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.", "pty."),
        "start a process",
    ),
    **dict.fromkeys(("os.kill", "signal.pthread_kill"), "send a signal"),
    **dict.fromkeys(("socket.", "urllib."), "use the network"),
    "ctypes.": "call C",
    **dict.fromkeys(
        ("os.remove", "os.rmdir", "os.rename", "os.truncate", "os.ch", "os.link", "os.symlink"),
        "change files",
    ),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEW_USER, NEW_NETWORK, NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000  # of unshare(2)
READ_ONLY, RECURSIVE, PRIVATE = 0x1, 0x4000, 0x40000  # of mount(2)


def main() -> None:
    """Read a request, run its file, write the answers; end without waiting for anything."""
    request = json.loads(sys.stdin.buffer.read())
    own = os.open(request["answers"], os.O_WRONLY | os.O_APPEND)

    def tell(index: int, what: str, data: Any) -> None:
        line = json.dumps([request["token"], index, what, data], allow_nan=False)
        os.write(own, f"{line}\n".encode())

    missing = "; ".join(filter(None, [cut_off(request["hidden"]), set_limits(request)]))
    tried = refuse_by_audit([Path(folder) for folder in request["hidden"]])
    try:
        module = loaded(request["file"])
    except BaseException as error:
        tell(-1, "problem", told(error, request))
        os._exit(0)
    tell(-1, "loaded", missing)
    for index, question in enumerate(request["questions"]):
        try:
            tell(index, "value", reply(question, module, request["tests"]))
        except BaseException as error:
            tell(index, "problem", told(error, request))
    if tried:
        tell(-1, "problem", tried[0])
    elif threading.active_count() > 1:
        tell(-1, "problem", "it left a thread running")
    tell(-1, "end", None)
    with suppress(BaseException):  # its own streams, by now
        sys.stdout.flush()
    os._exit(0)


def reply(question: str, module: ModuleType, tests: str) -> Any:
    """Put a question to a student's module: ``puzzle 3``, or a seed and a test of its part."""
    first, _, rest = question.partition(" ")
    if first != "puzzle":
        return run_recorded(tests, rest, int(first))
    if not hasattr(module, "answer"):
        raise AttributeError("the file defines no `answer`")
    return as_data(PUZZLES[int(rest)], module.answer)


def loaded(name: str) -> ModuleType:
    """Import the file; files beside it can be imported from it."""
    sys.path.insert(0, os.getcwd())
    spec = spec_from_file_location(Path(name).stem, os.path.abspath(name))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def told(error: BaseException, request: Any) -> str:
    """Say what an exception is, and in which line of the file."""
    try:
        message = str(error)[:1000]
    except BaseException:
        message = "its message raises an error"
    own = os.path.abspath(request["file"])
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__)
             if frame.f_code.co_filename == own]  # fmt: skip
    if isinstance(error, SystemExit):
        return "it called sys.exit"
    if isinstance(error, OSError) and error.errno == 27:
        message = f"it wrote more than {request['file_bytes'] >> 20} MiB"
    if isinstance(error, MemoryError):
        message = f"more than {request['memory'] >> 20} MiB were needed"
    where = f" ({request['file']}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {message}{where}"


# Limits of the kernel -----------------------------------------------------------------------------


def cut_off(hidden: Sequence[str]) -> str:
    """Leave the network, and cover folders; return what the platform does not permit."""
    if not sys.platform.startswith("linux"):
        return "the network is not cut off on this platform"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER | NEW_NETWORK | NEW_MOUNTS):
        return f"the network is not cut off: {os.strerror(ctypes.get_errno())}"
    if libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None):
        return f"solutions are not covered: {os.strerror(ctypes.get_errno())}"
    for folder in hidden:
        if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", READ_ONLY, None):
            return f"{folder} is not covered: {os.strerror(ctypes.get_errno())}"
    return ""


def set_limits(request: Any) -> str:
    """Limit CPU time, memory, file sizes and processes; return what the platform does not limit."""
    try:
        import resource
    except ImportError:  # Windows
        return "elapsed time alone is limited on this platform"
    spent = int(time.process_time()) + 1
    limits = {
        "RLIMIT_CPU": (spent + request["cpu_seconds"], spent + request["cpu_seconds"] + 1),
        "RLIMIT_AS": (address_space() + request["memory"],) * 2,
        "RLIMIT_FSIZE": (request["file_bytes"],) * 2,
        "RLIMIT_NOFILE": (128, 128),
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_NPROC": (0, 0),  # of its user, threads included; root's are not counted
    }
    missing = []
    for name, limit in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), limit)
        except (AttributeError, ValueError, OSError):
            missing.append(name)
    return f"not limited: {', '.join(missing)}" if missing else ""


def address_space() -> int:
    """Return the bytes of address space in use; 4 GiB where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2**32


# The audit hook -----------------------------------------------------------------------------------


def within(path: str, folders: Sequence[str]) -> bool:
    """Whether a path is one of some folders, or in one."""
    return any(path == each or path.startswith(f"{each}{os.sep}") for each in folders)


def refuse_by_audit(hidden: Sequence[Path]) -> list[str]:
    """Refuse from now on what no answer needs; return a list, which gets what voids the answers."""
    tried: list[str] = []
    work = os.path.realpath(os.getcwd())
    package = Path(__file__).parents[1]
    folders = {*sysconfig.get_paths().values(), sys.base_prefix, sys.prefix, str(package)}
    folders |= {
        str(Path(np.__file__).parents[1]),
        str(package.parent / "viz"),
        "/dev",
        "/proc/self",
    }
    readable = [work, *(os.path.realpath(folder) for folder in folders)]
    covered = [os.path.realpath(folder) for folder in hidden]

    def refused(what: str) -> NoReturn:
        raise PermissionError(f"an answer may not {what}")

    def check_open(path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        real = os.path.realpath(os.fsdecode(path))
        writes = bool((flags or 0) & WRITING) or bool(set(str(mode or "r")) & set("wax+"))
        if within(real, covered):
            tried.append(f"it tried to read {real}, which holds solutions")
            refused("read the solutions")
        if writes and not within(real, [work, os.path.realpath(os.devnull)]):
            refused(f"write {real}")
        if not within(real, readable):
            refused(f"read {real}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            check_open(*arguments)
            return
        for beginning, what in REFUSED.items():
            if event.startswith(beginning):
                refused(what)

    sys.addaudithook(hook)
    return tried
