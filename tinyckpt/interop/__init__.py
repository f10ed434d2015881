"""Interoperability with PyTorch and JAX: import their graphs, run schedules in them.

Each framework has a package of its own and an extra of its name; the core imports none of them::

    from tinyckpt.interop import torch as tct  # pip install 'tinyckpt[torch]'
"""
