"""Lets ``python -m tinyckpt`` be the ``tinyckpt`` command."""

import sys

from tinyckpt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
