"""Partition functions and backends for torch.compile that follow a plan instead of a min-cut.

In: a budget. Out: ``partitioner``, a ``partition_fn`` for AOTAutograd that plans each joint graph;
``backend``, the same with uncompiled programs, for ``torch.compile``; ``inductor_partitioner``, for
Inductor. Each new shape is planned anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import fx

from tinyckpt.base.errors import OptionError
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.torch.capture import joint_of_graph
from tinyckpt.interop.torch.codegen_fx import forward_and_backward_programs
from tinyckpt.interop.torch.importer import Cost, check_cost, graph_of
from tinyckpt.interop.torch.min_cut import with_min_cut_seeds
from tinyckpt.interop.torch.specializing import specialize
from tinyckpt.interop.torch.versions import check_calls, private_attribute
from tinyckpt.planner.portfolio.plan import Budget, plan

Halves = tuple[fx.GraphModule, fx.GraphModule]
Partition = Callable[..., Halves]


def partitioner(
    budget: Budget | None,
    *,
    cost: Cost = "flops",
    workspace: bool = True,
    fuses: bool = False,
    on_plan: Callable[[Schedule], None] | None = None,
    **options: Any,
) -> Partition:
    """Return a ``partition_fn`` for AOTAutograd that plans which values to save or recompute.

    ::

        backend = aot_autograd(fw_compiler=…, bw_compiler=…, partition_fn=tct.partitioner("2 GiB"))
        model = torch.compile(model, backend=backend, fullgraph=True)

    ``backend`` is that with compilers that leave both programs unchanged.

    Each call with other shapes is planned anew: symbolic shapes are replaced by those of the call.
    Dynamo compiles one code object for at most 8 of them, and reports at the 9th call that it
    stops: with ``fullgraph=True`` it raises, without it such calls run as plain PyTorch, **without
    a plan**. A RuntimeWarning at the 8th plan says so, too;
    ``torch._dynamo.config.recompile_limit`` is the number. ``dynamic=False`` makes the first
    compilation for each shape faster.

    PyTorch's own min-cut schedules seed the search, as in ``min_cut_schedules``, for up to a
    quarter of the time: the plan costs no more than theirs within the same memory.

    Args:
        budget: the peak of the whole step, as ``tc.plan`` takes it; None for store-all. Bytes are
            the same for all shapes, shares are of each shape's own peak.
        cost, workspace: as in ``trace``.
        fuses: whether the compiler fuses pointwise operators into their consumers, as Inductor
            does, so that intermediate values are never written to memory.
        on_plan: called with each schedule, one for each shape, for ``print`` or ``tc.replay``.
        options: those of ``tc.plan``, such as ``time_limit``.

    Raises:
        OptionError: if the cost is unknown, or ``on_plan`` is no function.

    Raises, when it is called, which ``torch.compile`` wraps in an error of its own:
        GraphError: if the graph cannot be planned; nothing has run by then.
        BudgetError: if no schedule was found within the budget.

    >>> from tinyckpt.interop import torch as tct
    >>> callable(tct.partitioner("2 GiB", on_plan=print))
    True
    """
    check_calls("partitioner")
    check_cost(cost)
    if on_plan is not None and not callable(on_plan):
        raise OptionError(f"on_plan={on_plan!r:.80}; expected a function of a schedule")

    def partition(
        joint_module: fx.GraphModule,
        joint_inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **_: Any,
    ) -> Halves:
        specialize(joint_module)
        joint = joint_of_graph(joint_module, num_fwd_outputs, "compiled")
        imported = graph_of(joint, "compiled", cost, workspace, fuses, splits=True)
        resident = static_lifetime_input_indices or ()
        schedule = plan(
            imported.graph, budget=budget, **with_min_cut_seeds(imported, budget, options, resident)
        )
        if on_plan is not None:
            on_plan(schedule)
        warn_at_recompile_limit()
        return forward_and_backward_programs(schedule, imported)

    return partition


def backend(
    budget: Budget | None,
    *,
    cost: Cost = "flops",
    workspace: bool = True,
    on_plan: Callable[[Schedule], None] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Return a ``torch.compile`` backend whose training steps stay within a memory budget.

    ::

        model = torch.compile(model, backend=tct.backend("2 GiB"), fullgraph=True)

    A step evaluates PyTorch's own kernels, those of an eager step. Without ``fullgraph=True`` a
    model may be split into several graphs, and the budget is for each. Calls with other shapes,
    such as the last batch of an epoch, are planned anew, up to Dynamo's limit: see ``partitioner``.

    Args:
        budget, cost, workspace, on_plan, options: as in ``partitioner``.

    Raises, when a step runs for the first time:
        As ``partitioner``.

    >>> from tinyckpt.interop import torch as tct
    >>> callable(tct.backend("50 %", on_plan=print))
    True
    """
    check_calls("backend")
    return eager_backend(
        partitioner(budget, cost=cost, workspace=workspace, on_plan=on_plan, **options)
    )


def inductor_partitioner(
    budget: Budget | None,
    *,
    cost: Literal["flops", "roofline"] = "flops",
    on_plan: Callable[[Schedule], None] | None = None,
    **options: Any,
) -> Any:
    """Return a partitioner for ``torch._inductor.config.custom_partitioner_fn``.

    ::

        torch._inductor.config.custom_partitioner_fn = tct.inductor_partitioner("2 GiB")
        torch._inductor.config.allow_buffer_reuse = False
        model = torch.compile(model, fullgraph=True)

    Inductor compiles the forward and backward programs at its own discretion: fusion is predicted,
    not known, and it reorders operators, so the true peak is somewhat smaller or larger than the
    schedule's. Workspaces are left out, since its kernels are others. The second setting prevents
    Inductor from keeping buffers for reuse where it estimates that this does not raise the peak of
    one program.

    Args:
        budget, cost, on_plan, options: as in ``partitioner``.
    """
    check_calls("inductor_partitioner")
    return inductor_pass(
        partitioner(budget, cost=cost, workspace=False, fuses=True, on_plan=on_plan, **options)
    )


def eager_backend(partition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``torch.compile`` backend that runs a partition function's programs as is."""
    # Looked up only here: they import all of Dynamo.
    aot_autograd = private_attribute("torch._dynamo.backends.common:aot_autograd")
    boxed_nop = private_attribute("torch._dynamo.backends.debugging:boxed_nop")
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition
    )
    return made


def inductor_pass(partition: Callable[..., Any]) -> Any:
    """Wrap a partition function in the form Inductor takes; its results are never cached."""
    # Looked up only here: it imports all of Inductor.
    base: Any = private_attribute("torch._inductor.custom_graph_pass:CustomPartitionerFn")

    class Planned(base):  # type: ignore[misc]
        def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
            return partition(gm, joint_inputs, **kwargs)

        def uuid(self) -> None:
            return None

    return Planned()


def warn_at_recompile_limit() -> None:
    """Warn if this compilation of a code object is the last one that Dynamo's limit allows."""
    compiled = private_attribute("torch._guards:CompileContext.current_compile_id")()
    if compiled is None or compiled.frame_compile_id is None:
        return  # AOTAutograd without Dynamo
    limit: int = private_attribute("torch._dynamo.config:recompile_limit")
    if compiled.frame_compile_id + 1 == limit:
        warnings.warn(
            f"plan {limit} of one code object, the last that PyTorch compiles: a call with "
            "other shapes raises with fullgraph=True, and runs without a plan otherwise; "
            f"torch._dynamo.config.recompile_limit = {8 * limit} allows more",
            RuntimeWarning,
            stacklevel=2,
        )
