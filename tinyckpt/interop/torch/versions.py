"""Whether PyTorch is here, in a version that is known: asked before anything of it is imported."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from tinyckpt.errors import BackendError

# Minor versions on which the tests ran. Joint graphs come from calls that PyTorch does not promise
# to keep, so another version is refused, not tried.
TESTED = ("2.13", "2.14", "2.15")


def check_torch() -> None:
    """Do nothing if PyTorch is there in a version that was tested.

    Raises:
        BackendError: says what to install.
    """
    if find_spec("torch") is None:
        raise BackendError(
            "tinyckpt.interop.torch needs PyTorch, which is not installed: "
            "pip install 'tinyckpt[torch]'"
        )
    version = str(import_module("torch").__version__)
    if ".".join(version.split(".")[:2]) not in TESTED:
        raise BackendError(
            f"PyTorch {version} is installed; tinyckpt.interop.torch was tested with "
            f"{', '.join(TESTED)}, and takes graphs from calls that change between versions: "
            f"pip install 'torch=={TESTED[-1]}.*'"
        )
