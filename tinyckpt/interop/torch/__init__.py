"""PyTorch models: their training steps as graphs that plan. Extra ``torch``.

::

    from tinyckpt.interop import torch as tct

    traced = tct.trace(model, x, y)                  # forward returns the loss; no memory is used
    schedule = tc.plan(traced.graph, budget="2 GiB")
"""

from tinyckpt.interop.torch.versions import check_torch

check_torch()  # before what follows fails for want of it, with less of a clue

from tinyckpt.interop.torch.tracing import Traced, trace

__all__ = ["Traced", "trace"]
