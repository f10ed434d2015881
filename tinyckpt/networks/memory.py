"""The memory of this machine, asked before arrays are made: what cannot fit is refused at once.

Python's own MemoryError comes late, after minutes of work, or never: a system that promises more
memory than it has ends the process instead.
"""

from __future__ import annotations

import os
from pathlib import Path

from tinyckpt.base.errors import BackendError
from tinyckpt.base.units import size_text

# Where Linux says what the processes of a container may take together: its two versions.
OF_CONTAINER = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"


def memory_of_machine() -> int | None:
    """Return the bytes that this process may take: of the machine, or of its limits if less.

    None where the system does not say.
    """
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # no POSIX
        return None
    for path in OF_CONTAINER:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    import resource  # of POSIX

    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found.append(soft)
    return min(found)


def check_memory(what: str, nbytes: int) -> None:
    """Raise a BackendError if something takes more memory than this machine has.

    Args:
        what: such as ``the arguments of mlp:8x64 take``.
        nbytes: how much, at least.
    """
    there = memory_of_machine()
    if there is not None and nbytes > there:
        raise BackendError(
            f"{what} {size_text(nbytes)}, and this machine has {size_text(there)}; plans and "
            "pictures take none of it"
        )
