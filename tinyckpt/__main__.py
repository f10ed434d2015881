"""Entry point of ``python -m tinyckpt``: the ``tinyckpt`` command."""

import sys

from tinyckpt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
