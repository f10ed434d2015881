"""Loader of ``tinyckpt.viz`` in a source checkout, from the top-level package ``viz``.

A wheel has that package in the place of this file. Loaded by its path, it is found whatever else
is called ``viz``; see ``tinyckpt.base.module_aliases`` for the short name.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viz import *  # noqa: F403
else:
    _path = Path(__file__).parents[1] / "viz" / "__init__.py"
    _spec = spec_from_file_location(__name__, _path)
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
