"""Check for the optional dependencies of the extra ``viz``, with one error that names them all."""

from __future__ import annotations

from importlib.util import find_spec

# Not pygraphviz, which has no wheel everywhere: see positions.
PACKAGES = ("PIL", "imageio", "matplotlib", "graphviz", "threadpoolctl", "tqdm")


def require_packages() -> None:
    """Raise one error that names every missing package.

    Raises:
        ModuleNotFoundError: says what to install.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ModuleNotFoundError(
            f"pictures need {', '.join(missing)}, which {are} not installed: "
            "pip install 'tinyckpt[viz]'",
            name=missing[0],
        )
