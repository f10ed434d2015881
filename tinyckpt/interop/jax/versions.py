"""Whether JAX is here: asked before anything of it is imported."""

from __future__ import annotations

from importlib.util import find_spec

from tinyckpt.errors import BackendError


def check_jax() -> None:
    """Do nothing if JAX is there.

    Raises:
        BackendError: says what to install.
    """
    if find_spec("jax") is None:
        raise BackendError(
            "tinyckpt.interop.jax needs JAX, which is not installed: pip install 'tinyckpt[jax]'"
        )
