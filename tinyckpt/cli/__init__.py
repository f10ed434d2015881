"""The command ``tinyckpt``."""

from tinyckpt.cli.main import main

__all__ = ["main"]
