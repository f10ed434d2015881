"""The CuPy backend: NumPy's functions on an NVIDIA GPU, with offloaded values in pinned memory."""

from __future__ import annotations

from importlib import import_module

from tinyckpt.base.errors import BackendError
from tinyckpt.core.backend import BACKENDS, Backend, pickled_by_name
from tinyckpt.storage.pinned import PinnedMemory


def cupy_backend() -> Backend:
    """Return the backend of the current GPU.

    Raises:
        BackendError: if CuPy is not installed, or there is no GPU.
    """
    try:
        import cupy
    except ImportError as error:
        raise BackendError(
            "backend 'cupy' needs CuPy, which is not installed: "
            "pip install 'tinyckpt[gpu]', on Linux or Windows with an NVIDIA GPU"
        ) from error
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"backend 'cupy': CuPy {cupy.__version__} is installed but finds no usable GPU "
            f"({error}); install an NVIDIA driver, or use backend='numpy'"
        ) from error
    if devices == 0:
        raise BackendError("backend 'cupy': CuPy is installed but there is no GPU")
    backend = Backend(
        "cupy",
        cupy,
        cupy.asnumpy,
        cupy.asarray,
        lambda: cupy.cuda.Device().synchronize(),
        pinned_memory,
    )
    return pickled_by_name(backend)


def pinned_memory() -> PinnedMemory:
    """Return the pinned host store of one run."""
    return PinnedMemory(import_module("cupy"))


def install() -> None:
    """Enter the backend into the table of the engine."""
    BACKENDS["cupy"] = cupy_backend
