"""Rematerialization for PyTorch: trace training steps, plan them, run or compile the schedules.

::

    from tinyckpt.interop import torch as tct

    traced = tct.trace(model, x, y)                  # forward returns the loss; no memory is used
    schedule = tc.plan(traced.graph, budget="2 GiB")
    step = tct.step(schedule, traced)
    loss, gradients = step(x, y)

    model = torch.compile(model, backend=tct.backend("2 GiB"), fullgraph=True)  # the same plan

    print(tct.estimate(model, x, y))                  # what a plain step takes
    advice = tct.advise(model, x, y, budget="2 GiB")  # for eager training: what to checkpoint
    advice.apply(model)
    print(advice.code("transformers"))                # the same, without this library
    print(tct.memory_by_module(model, x, y), tct.lint(model, x, y))

Extra ``torch``.
"""

from tinyckpt.interop.torch.versions import check_torch

check_torch()  # first: the imports below would fail with a less helpful error

from tinyckpt.interop.torch.advising import Advice, advise
from tinyckpt.interop.torch.comparing import Comparison, compare
from tinyckpt.interop.torch.estimating import Estimate, estimate
from tinyckpt.interop.torch.execute_schedule import step
from tinyckpt.interop.torch.linting import Lint, Wrap, lint
from tinyckpt.interop.torch.min_cut import min_cut_schedules
from tinyckpt.interop.torch.module_memory import MemoryByModule, ModuleMemory, memory_by_module
from tinyckpt.interop.torch.offloading import Offload, offload
from tinyckpt.interop.torch.partitioning import backend, inductor_partitioner, partitioner
from tinyckpt.interop.torch.selective import Selective, selective
from tinyckpt.interop.torch.tracing import Traced, trace
from tinyckpt.interop.torch.training_callbacks import lightning_callback, trainer_callback
from tinyckpt.interop.torch.workspace import allocator_peak

__all__ = [
    "Advice", "Comparison", "Estimate", "Lint", "MemoryByModule", "ModuleMemory", "Offload",
    "Selective", "Traced", "Wrap", "advise", "allocator_peak", "backend", "compare", "estimate",
    "inductor_partitioner", "lightning_callback", "lint", "memory_by_module",
    "min_cut_schedules", "offload", "partitioner", "selective", "step", "trace", "trainer_callback",
]  # fmt: skip
