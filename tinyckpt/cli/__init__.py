"""Command-line interface: the command ``tinyckpt``, a module per subcommand."""

from tinyckpt.cli.main import main

__all__ = ["main"]
