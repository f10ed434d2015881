"""Number of threads of the OpenBLAS that NumPy's wheels contain, set while the program runs.

On a machine that is busy, threads of a small matrix product wait for each other, which takes many
times as long as the product on one thread. Other libraries (MKL, Accelerate), which their own
environment variables control, are left alone. The same as ``threadpoolctl``, for this one library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
FOLDERS = ("numpy.libs", "numpy/.dylibs")  # of Linux and Windows, of macOS
SYMBOLS = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)
Accessor = Callable[..., int]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run on one thread, unless an environment variable of the user says otherwise."""
    found = None if any(name in os.environ for name in VARIABLES) else accessors()
    if found is None:
        yield
        return
    get, put = found
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


def accessors() -> tuple[Accessor, Accessor] | None:
    """Return the functions that get and set the number of threads, or None if there are none."""
    site = Path(np.__file__).parents[1]
    for path in sorted(path for folder in FOLDERS for path in (site / folder).glob("*openblas*")):
        with suppress(OSError):
            library = ctypes.CDLL(str(path))
            for symbol in SYMBOLS:
                get, put = (getattr(library, symbol.format(verb), None) for verb in ("get", "set"))
                if get is not None and put is not None:
                    return get, put
    return None
