"""Stub operators of torchvision, for a build of PyTorch that cannot load its library.

Its wheel for Linux is linked to CUDA. Beside a build of PyTorch for the CPU its library is left
out, which its models take in their stride; but of two operators it registers what they return
without asking whether they are there. Declared here, they raise when somebody calls them. No model
of the zoo does. transformers imports torchvision where it is installed, so this comes first.
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
