"""PyTorch training steps, eager or compiled: construction, and measured peak memory and FLOPs.

For ``pytorch.py``. Peaks are of PyTorch's allocator, gradients included and parameters excluded.
FLOPs are counted by PyTorch's own formulas: of an eager step while it runs, of a compiled one on
the programs passed to the compiler.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config as autograd_config
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

import tinyckpt as tc
from tests.torch_models import eager_step, large_example
from tinyckpt.base.deadline import Clock
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.capture import copy_graph, joint_of_graph
from tinyckpt.interop.torch.comparing import flops_in
from tinyckpt.interop.torch.costs import attention_flops
from tinyckpt.interop.torch.importer import Imported, graph_of
from tinyckpt.interop.torch.min_cut import schedules_at

Backend = Literal["eager", "aot", "inductor"]
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
Example = tuple[nn.Module, tuple[Any, ...]]
SEED = 5  # before every step, for dropout
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step.

    Attributes:
        peak, flops: bytes at the peak, and FLOPs.
        gradients, buffers: by name, the loss among the gradients.
    """

    peak: int
    flops: int
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


def know_attention() -> None:
    """Teach PyTorch's counter of FLOPs the attention of CPUs, which its planner takes for free.

    Its plans get better by it.
    """
    products = {
        aten._scaled_dot_product_flash_attention_for_cpu: (0, 2),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (1, 5),
    }
    for packet, (query, count) in products.items():
        if packet not in flop_registry:

            def flops(*args: Any, query: int = query, count: int = count, **_: Any) -> int:
                return attention_flops(args[query], args[query + 1], count)

            register_flop_formula(packet, get_raw=True)(flops)


# Making steps ------------------------------------------------------------------------------------


def checkpointed(blocks: Iterable[nn.Module]) -> None:
    """Put blocks of a model under ``torch.utils.checkpoint``."""
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


class Handed(CustomPartitionerFn):
    """Hands a partition function to Inductor; what it makes is never cached."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        return self.partition(gm, joint_inputs, **options)

    def uuid(self) -> None:
        return None


def compiled_step(
    example: Example,
    backend: Backend,
    partition: Partition = min_cut_rematerialization_partition,
    memory_budget: float = 1.0,
) -> tuple[Callable[[], Tensor], int]:
    """Return a step that ``torch.compile`` compiled, and its FLOPs.

    It has run once, so that what is compiled at first is there; buffers are as they were before.

    Args:
        example: model and arguments.
        backend: ``aot`` runs the operators of PyTorch one by one, ``inductor`` makes kernels.
        partition: what decides which values are kept from the forward to the backward half.
        memory_budget: PyTorch's ``activation_memory_budget``, which its own partition reads.
    """
    model, args = example
    seen: list[int] = []

    def noted(*given: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        halves = partition(*given, **options)
        seen.append(sum(map(flops_in, halves)))
        return halves

    options: dict[str, Any] = {}
    if backend == "aot":
        options["backend"] = aot_autograd(
            fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=noted
        )
    settings = {"activation_memory_budget": memory_budget, "enable_autograd_cache": False}
    handed = {
        "custom_partitioner_fn": Handed(noted),
        "fx_graph_cache": False,
        "allow_buffer_reuse": False,  # of one half, whose peak it may not raise: that of the step
    }
    step = eager_step(torch.compile(model, fullgraph=True, **options), args)
    before = copy.deepcopy(model.state_dict())
    with autograd_config.patch(settings), inductor_config.patch(handed):
        step()
    model.load_state_dict(before)
    (flops,) = seen
    return step, flops


# Measuring them ----------------------------------------------------------------------------------


def outcome_of(model: nn.Module, step: Callable[[], Tensor], flops: int | None = None) -> Outcome:
    """Return what a step takes and makes, from the model's state as it is; it is left as it was.

    Args:
        model: whose step it is.
        step: makes it.
        flops: what was counted; None counts here.
    """
    before = copy.deepcopy(model.state_dict())
    if flops is None:
        with FlopCounterMode(display=False) as counter:
            step()
        flops = counter.get_total_flops()
        model.load_state_dict(before)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(SEED)
    peak, loss = tct.allocator_peak(step)
    gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.load_state_dict(before)
    model.zero_grad(set_to_none=True)
    return Outcome(peak, flops, {"loss": loss, **gradients}, buffers)


def compared(outcome: Outcome, references: Mapping[str, Outcome]) -> str:
    """Say whose loss and gradients a step has, to the bit; else how far they are from the last."""
    for name, reference in references.items():
        if same(outcome.gradients, reference.gradients):
            other = "" if same(outcome.buffers, reference.buffers) else ", buffers differ"
            return f"{name}{other}"
    pairs = [
        (value, outcome.gradients[key].to(value)) for key, value in reference.gradients.items()
    ]
    apart = max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) for a, b in pairs)
    return f"{apart:.0e} from {name}"


def same(these: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether all tensors are equal, to the bit."""
    return these.keys() == others.keys() and all(
        torch.equal(value, others[name]) for name, value in these.items()
    )


# Of models by name -------------------------------------------------------------------------------


class Plans:
    """Plans of one model's compiled step, from one search on the graph of the first that is made.

    Attributes:
        stored, stored_peak: what comes of store-all, and its predicted peak.
        imported: what is planned.
        seeds: schedules that the search compares, too.
    """

    imported: Imported

    def __init__(self, name: str, backend: Backend, seconds: float) -> None:
        self.name, self.backend, self.seconds = name, backend, seconds
        self.known: dict[tuple[int, ...], tuple[int, Outcome]] = {}
        self.seeds: list[tc.Schedule] = []
        self.stored = measured(name, backend, self.storing)
        self.stored_peak = tc.replay(tc.plan(self.imported.graph)).peak_bytes

    def storing(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        """Note the graph of a step, as a partition function of store-all."""
        own = joint_of_graph(copy_graph(joint), options["num_fwd_outputs"], self.name)
        is_aot = self.backend == "aot"
        self.imported = graph_of(own, self.name, "flops", workspace=is_aot, fuses=not is_aot)
        self.resident = options["static_lifetime_input_indices"]
        return self.partition(None)(joint, inputs, **options)

    def partition(self, order: tuple[int, ...] | None) -> Partition:
        """Return a partition function by an order of evaluations; None is that of the trace."""
        policy = "store_all" if order is None else lambda graph: order
        return tct.partitioner(
            None, workspace=False, fuses=self.backend == "inductor", policy=policy
        )

    def follow(self, budgets: Iterable[float]) -> None:
        """Let the search compare what PyTorch's own planner makes at some of its budgets."""
        self.seeds = schedules_at(self.imported, budgets, Clock(), self.resident)

    def within(self, budget: int) -> tuple[int, Outcome]:
        """Return what the best plan within a budget should take, and what it does."""
        order = self.order(budget)
        if order not in self.known:
            predicted = tc.replay(tc.from_order(self.imported.graph, order)).peak_bytes
            outcome = measured(self.name, self.backend, self.partition(order))
            self.known[order] = predicted, outcome
        return self.known[order]

    def order(self, budget: int) -> tuple[int, ...]:
        """Return the order of evaluations of the best plan within a budget."""
        graph, seconds = self.imported.graph, self.seconds
        schedule = tc.plan(graph, budget=budget, time_limit=seconds, seeds=self.seeds)
        return tuple(step.operator for step in schedule.steps if isinstance(step, tc.Compute))


def measured(name: str, backend: Backend, *args: Any, **options: Any) -> Outcome:
    """Return what comes of a model's step, compiled anew."""
    torch._dynamo.reset()
    example = large_example(name)
    step, flops = compiled_step(example, backend, *args, **options)
    return outcome_of(example[0], step, flops)
