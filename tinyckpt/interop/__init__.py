"""Models of other frameworks: their graphs in, plans that run there out.

Each framework has a package of its own and an extra of its name; the core imports none of them::

    from tinyckpt.interop import torch as tct  # pip install 'tinyckpt[torch]'
"""
