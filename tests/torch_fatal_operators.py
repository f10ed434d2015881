"""Operators whose kernels crash the process, hang or fail: namespace ``tinyckpt_fatal``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def aborts() -> None:
    os.abort()


def exits() -> None:
    os._exit(0)


def hangs() -> None:
    while True:
        time.sleep(1)


def runs_out() -> None:
    raise MemoryError("no memory")


def leaves() -> None:
    raise SystemExit(3)


def prints() -> None:
    print("from a kernel", flush=True)
    os.write(1, b"from a kernel\n" * 10_000)


def register(does: Callable[[], None]) -> Any:
    """Return an operator that runs a function and returns a copy; its vjp is the identity."""

    @torch.library.custom_op(f"tinyckpt_fatal::{does.__name__}", mutates_args=())
    def operator(x: Tensor) -> Tensor:
        does()
        return x.clone()

    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda context, cotangent: cotangent)
    return operator


OPERATORS = {
    does.__name__: register(does) for does in (aborts, exits, hangs, runs_out, leaves, prints)
}
