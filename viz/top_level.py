"""The top-level module ``viz`` of a wheel: another name of ``tinyckpt.viz``.

It is installed as ``viz.py``. Where another distribution has a package ``viz``, Python takes that.
"""

from tinyckpt.base.aliases import alias_module

if __name__ == "viz":
    alias_module("viz", "tinyckpt.viz")
