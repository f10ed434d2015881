"""Memory check before an allocation, against this machine's limits (RAM, cgroup, rlimit).

Python's own MemoryError comes after minutes of work, or never: a system that overcommits memory
kills the process instead.
"""

from __future__ import annotations

import os
from pathlib import Path

from tinyckpt.base.errors import BackendError
from tinyckpt.base.units import size_text

# Where Linux gives the memory limit of a container: cgroup version 2, and version 1.
CGROUP_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"


def memory_of_machine() -> int | None:
    """Return the bytes that this process may allocate: the least of RAM, cgroup and rlimit.

    None where the system does not say.
    """
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # no POSIX
        return None
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    import resource  # of POSIX

    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def check_memory(what: str, nbytes: int) -> None:
    """Raise a BackendError if an allocation exceeds this machine's memory.

    Args:
        what: subject and verb of the message, such as ``the arguments of mlp:8x64 take``.
        nbytes: a lower bound of the bytes needed.
    """
    available = memory_of_machine()
    if available is not None and nbytes > available:
        raise BackendError(
            f"{what} {size_text(nbytes)}, and this machine has {size_text(available)}; plans and "
            "pictures take none of it"
        )
