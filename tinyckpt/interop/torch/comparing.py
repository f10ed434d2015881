"""Comparison with PyTorch's min-cut partitioner: plans within the peak that each setting reaches.

``activation_memory_budget`` is PyTorch's setting for compiled steps, from 0 to 1. For each setting
the peak is measured by the allocator on a copy of the model, and FLOPs are counted in the forward
and backward graphs that PyTorch makes. Plans are of the same joint graph, within these peaks;
PyTorch's own schedules are among their seeds, so that no plan is more expensive. A plan is charged
for some bytes that PyTorch's own step need not store (new values of buffers to the end of the step,
generator states), so it may use the measured peak or the peak predicted for PyTorch's step,
whichever is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.units import size_text
from tinyckpt.core.replay import replay
from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.torch.advising import RecordedStep, record_steps
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.capture import copy_graph, joint_of_graph, output_node, storage_of
from tinyckpt.interop.torch.codegen_fx import clone_of
from tinyckpt.interop.torch.costs import call_of, flops_of
from tinyckpt.interop.torch.importer import graph_of
from tinyckpt.interop.torch.joint import JointGraph
from tinyckpt.interop.torch.min_cut import (
    BUDGETS,
    checked_settings,
    min_cut_partitioner,
    schedule_at,
)
from tinyckpt.interop.torch.partitioning import eager_backend
from tinyckpt.interop.torch.pytrees import map_tensors
from tinyckpt.interop.torch.schedule_from_partition import GraphPair
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.tracing import trace
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.interop.torch.workspace import allocator_peak
from tinyckpt.planner.portfolio.pareto import Frontier
from tinyckpt.planner.portfolio.plan import frontier

FRONTIER_SECONDS = 20.0  # seconds for the search of the frontier
HEADER = ("activation_memory_budget", "peak", "FLOPs", "a plan in that peak", "modules wrapped")


@dataclass(frozen=True, slots=True, eq=False)
class CompiledStep:
    """A training step that PyTorch compiled and ran.

    Attributes:
        peak: peak bytes, as the allocator hands them out.
        flops: FLOPs of a step.
        joint: the joint graph that was compiled.
        results: the number of its outputs that belong to the forward pass.
        halves: the forward and backward graphs that PyTorch makes of it.
    """

    peak: int
    flops: int
    joint: fx.GraphModule
    results: int
    halves: GraphPair


@dataclass(frozen=True, slots=True)
class ComparedSetting:
    """One setting of PyTorch's, and the best plan and advice within the same peak.

    Attributes:
        budget: the setting of ``activation_memory_budget``.
        peak: measured peak bytes of a step.
        cost: FLOPs of a step, as a multiple of those without recomputation.
        planned: cost of the best plan found within that peak, or within the peak predicted for
            PyTorch's own step if that is larger; None if there is none.
        advised: cost of the best choice of modules to checkpoint, within the measured peak; None if
            there is none.
        failed: the exception that PyTorch raised; peak and cost are 0 then.
    """

    budget: float
    peak: int
    cost: float
    planned: float | None = None
    advised: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """PyTorch's memory budgets and tinyckpt's plans, setting by setting.

    Attributes:
        rows: one per setting.
        frontier: the Pareto frontier of the plans, for ``viz.frontier``; ``points`` are PyTorch's.

    >>> from tinyckpt.interop.torch.comparing import ComparedSetting
    >>> print(Comparison((ComparedSetting(0.5, 2**20, 1.25, 1.1, None),), frontier=None))
    activation_memory_budget     peak  FLOPs  a plan in that peak  modules wrapped
                         0.5  1.0 MiB  1.250                1.100  -
    """

    rows: tuple[ComparedSetting, ...]
    frontier: Frontier = field(repr=False)

    @property
    def points(self) -> list[tuple[str, int, float]]:
        """PyTorch's settings as the points ``viz.frontier`` takes: name, bytes, FLOPs."""
        once = sum(self.frontier.costs.operators)
        return [
            (f"PyTorch {row.budget:g}", row.peak, row.cost * once)
            for row in self.rows
            if not row.failed
        ]

    def __str__(self) -> str:
        return table(HEADER, self.texts())

    def _repr_html_(self) -> str:
        return html_table(HEADER, self.texts())

    def texts(self) -> list[list[str]]:
        """Return the rows of the table."""
        return [
            [f"{row.budget:g}", row.failed, "", "", ""]
            if row.failed
            else [
                f"{row.budget:g}",
                size_text(row.peak),
                *("-" if cost is None else f"{cost:.3f}" for cost in (
                    row.cost, row.planned, row.advised
                )),
            ]
            for row in self.rows
        ]  # fmt: skip


@preserving
def compare(
    model: nn.Module,
    *args: Any,
    budgets: Sequence[float] = BUDGETS,
    time_limit: float = FRONTIER_SECONDS,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> Comparison:
    """Measure a step under PyTorch's ``activation_memory_budget``, and plan within each peak.

    The step runs once per setting, compiled to PyTorch's own operators (no Inductor), on copies of
    the model and of the argument tensors; it must fit in memory. Buffers that a step both saves and
    writes to, such as BatchNorm's, are saved as clones; otherwise PyTorch's backward pass raises
    below a setting of 1.

    ::

        comparison = tct.compare(model, x, y, budgets=(1.0, 0.5, 0.0))
        print(comparison)                               # one row per setting
        viz.frontier(comparison.frontier, points=comparison.points)

    Args:
        model, args, named, loss, targets: as in ``advise``.
        budgets: PyTorch's settings, from 0 to 1.
        time_limit: seconds to search for plans.

    Raises:
        GraphError: if the model cannot be traced.
        OptionError: if a setting is not a number from 0 to 1.
    """
    check_calls("compare")
    settings = checked_settings(budgets)
    imported = trace(model, *args, loss=loss, targets=targets, **named).imported
    with returning_loss(model, args, named, loss, targets) as packed:
        taken = [(budget, step_or_error(model, packed, budget)) for budget in settings]
        advice = next(record_steps(model, packed, None, workspace=True))
    steps = [(budget, step) for budget, step in taken if isinstance(step, CompiledStep)]
    if steps:
        # The compiled graph: dead code is eliminated in it, and node names may differ.
        first = steps[0][1]
        joint = joint_of_graph(first.joint, first.results, imported.graph.name)
        imported = graph_of(joint, imported.graph.name, "flops", workspace=True)
    theirs = {budget: schedule_at(budget, step.halves, imported) for budget, step in steps}
    found = frontier(imported.graph, time_limit=time_limit, seeds=theirs.values())
    once = max(sum(operator.flops for operator in imported.graph.operators), 1)
    rows = []
    for budget, step in taken:
        if isinstance(step, str):
            rows.append(ComparedSetting(budget, 0, 0.0, failed=step))
            continue
        peak = max(step.peak, replay(theirs[budget]).peak_bytes)
        planned = cost_within(found, peak)
        advised = cost_within(advice, step.peak)
        rows.append(
            ComparedSetting(
                budget, step.peak, step.flops / once, planned and planned / once, advised
            )
        )
    return Comparison(tuple(rows), found)


def cost_within(choices: Frontier | RecordedStep, peak: int) -> float | None:
    """Return the cost of the best plan, or choice of modules, within a peak; None if none is."""
    try:
        return choices.within(peak).cost
    except BudgetError:
        return None


def step_or_error(model: nn.Module, args: Sequence[Any], budget: float) -> CompiledStep | str:
    """Compile and run a step at a setting; if PyTorch raises, return a short message instead."""
    try:
        return min_cut_step(model, args, budget)
    except Exception as error:
        return error_text(error, 60)


def min_cut_step(model: nn.Module, args: Sequence[Any], budget: float) -> CompiledStep:
    """Compile and run a step under PyTorch's own partitioner at one setting; measure its peak."""
    seen: list[tuple[fx.GraphModule, int, GraphPair]] = []
    own, given = deepcopy(model), map_tensors(copied_leaf, tuple(args))
    torch.compiler.reset()
    with (
        torch.random.fork_rng(),
        min_cut_backend(budget, lambda *made: seen.append(made)) as backend,
    ):
        compiled = torch.compile(own, backend=backend, fullgraph=True)

        def step() -> None:
            compiled(*given).backward()

        step()  # compiles
        own.zero_grad(set_to_none=True)
        device = next((str(p.device) for p in own.parameters()), "cpu")
        peak, _ = allocator_peak(step, device)
    torch.compiler.reset()
    joint, results, halves = seen[-1]
    return CompiledStep(peak, sum(map(flops_in, halves)), joint, results, halves)


@contextmanager
def min_cut_backend(
    budget: float, on_halves: Callable[[fx.GraphModule, int, Sequence[fx.GraphModule]], None]
) -> Iterator[Callable[..., Any]]:
    """Set PyTorch's ``activation_memory_budget``; yield a backend with its own partitioner.

    Saved values that alias a buffer that the step writes to, such as BatchNorm's running averages,
    are cloned: PyTorch saves the buffer itself, and its backward pass then raises. Inductor avoids
    that by its decompositions, which without its fusion use more memory.

    Args:
        budget: from 0 to 1.
        on_halves: called with the joint graph before partitioning, the number of its forward
            outputs, and the forward and backward graphs that PyTorch makes of it.
    """
    with min_cut_partitioner(budget) as cut:

        def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            before, results = copy_graph(joint), options["num_fwd_outputs"]
            forward, backward = cut(joint, inputs, **options)
            on_halves(before, results, (copy_graph(forward), backward))
            save_copies_of_written(joint_of_graph(before, results, "compiled"), forward)
            return forward, backward

        yield eager_backend(partition)


def save_copies_of_written(joint: JointGraph, forward: fx.GraphModule) -> None:
    """Clone saved values that alias an input that the step writes to.

    Args:
        joint: the joint graph.
        forward: the forward graph that PyTorch made of it, with the same node names.
    """
    written = {storage_of(joint.values[node]) for node in joint.mutations}
    names = {node.name for node, value in joint.values.items() if storage_of(value) in written}
    end = output_node(forward)
    results = list(end.args[0])
    for place in range(len(joint.forward), len(results)):
        node = results[place]
        if isinstance(node, fx.Node) and node.name in names:
            with forward.graph.inserting_before(end):
                results[place] = clone_of(forward.graph, node)
    end.args = (tuple(results),)
    forward.recompile()


def copied_leaf(value: torch.Tensor) -> torch.Tensor:
    """Copy an argument; the copy is a leaf whose gradient is its own."""
    return value.detach().clone().requires_grad_(value.requires_grad)


def flops_in(half: fx.GraphModule) -> int:
    """Return the FLOPs of one evaluation of a graph that PyTorch made."""
    values = {node: node.meta.get("val") for node in half.graph.nodes}
    calls = [node for node in half.graph.nodes if node.op == "call_function"]
    return sum(flops_of(call_of(values, node)) for node in calls)
