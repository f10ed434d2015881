"""Top-level module ``viz`` of an installed wheel: an alias of ``tinyckpt.viz``.

It is installed as ``viz.py``. If another distribution has a package ``viz``, Python takes that.
"""

from tinyckpt.base.module_aliases import alias_module

if __name__ == "viz":
    alias_module("viz", "tinyckpt.viz")
