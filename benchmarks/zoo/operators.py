"""Stubs of torchvision's operators, for a CPU build of PyTorch without torchvision's library.

torchvision's wheel for Linux is linked to CUDA, so beside a CPU build of PyTorch its compiled
library is not loaded. torchvision's models do not need the library, but the import fails: shape
functions of two operators are registered without a check that these operators exist. Declared here,
they raise if called, which no model of the zoo does. transformers imports torchvision if it is
installed, so this module is imported first.
"""

from __future__ import annotations

import torch

MISSING = ("nms", "qnms")
DECLARED = torch.library.Library("torchvision", "FRAGMENT")  # what is in it lasts as long as it

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    for name in MISSING:
        DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

VERSION = torchvision.__version__
