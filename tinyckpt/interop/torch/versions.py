"""Whether PyTorch is here, in a version that is known: asked before anything of it is imported."""

from __future__ import annotations

from importlib import import_module

from tinyckpt.errors import BackendError
from tinyckpt.interop.frameworks import check_installed

# Joint graphs come from calls that PyTorch does not promise to keep. The tests ran with each of
# these minor versions, on a CPU; others are refused.
TESTED = ("2.13", "2.14", "2.15")


def check_torch() -> None:
    """Do nothing if PyTorch is there in a version that is known.

    Raises:
        BackendError: says what to install.
    """
    check_installed("torch", "PyTorch")
    version = str(import_module("torch").__version__)
    if ".".join(version.split(".")[:2]) not in TESTED:
        raise BackendError(
            f"PyTorch {version} is installed; tinyckpt.interop.torch was tested with "
            f"{', '.join(TESTED)} and takes graphs from calls that change between versions: "
            f"pip install 'torch=={TESTED[-1]}.*'"
        )
