"""PyTorch's own ways to trade time for memory, measured, beside plans: ``compare``.

``activation_memory_budget`` is PyTorch's option for compiled steps, from 0 to 1; what it leaves at
the peak is measured, by the allocator, on a copy of the model, and what it computes is counted in
the two graphs that it makes. Plans are those of the same step's joint graph, within these peaks;
what the two graphs evaluate is among what is compared, so that no plan is dearer. A plan is charged
for some bytes that PyTorch's own step need not have (new values of buffers to the end of the step,
states of generators), so the peak that counts is at least what is predicted of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import size_text
from tinyckpt.core.replay import replay
from tinyckpt.interop.torch.advising import Watched, watched
from tinyckpt.interop.torch.capture import joint_of_graph, tree_map
from tinyckpt.interop.torch.codegen_fx import min_cut_backend
from tinyckpt.interop.torch.costs import flops_of
from tinyckpt.interop.torch.importer import graph_of
from tinyckpt.interop.torch.joint import Joint
from tinyckpt.interop.torch.min_cut import BUDGETS, checked_settings, schedule_at
from tinyckpt.interop.torch.preserving import preserving
from tinyckpt.interop.torch.schedule_from_partition import Halves
from tinyckpt.interop.torch.tracing import trace
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.interop.torch.workspace import allocator_peak
from tinyckpt.planner.portfolio.pareto import Frontier
from tinyckpt.planner.portfolio.plan import frontier
from tinyckpt.planner.portfolio.table import html_table, table

PATIENCE = 20.0  # seconds to search for plans
HEADER = ("activation_memory_budget", "peak", "FLOPs", "a plan in that peak", "modules wrapped")


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A step that PyTorch compiled.

    Attributes:
        peak: bytes at the peak, as the allocator hands them out.
        flops: FLOPs of a step.
        joint: the joint graph that was compiled.
        results: how many of its outputs belong to the forward half.
        halves: what PyTorch made of it.
    """

    peak: int
    flops: int
    joint: fx.GraphModule
    results: int
    halves: Halves


@dataclass(frozen=True, slots=True)
class ComparedSetting:
    """One setting of PyTorch's, and what there is within the peak that it leaves.

    Attributes:
        budget: the setting.
        peak: bytes at the peak of a step, as the allocator hands them out.
        cost: FLOPs of a step, in those of one that recomputes nothing.
        planned: the cost of the best plan found within that peak, or within what is predicted of
            PyTorch's own step if that is more; None if there is none.
        advised: the cost of the best choice of modules to wrap, likewise.
        failed: what PyTorch raised; peak and cost are 0 then.
    """

    budget: float
    peak: int
    cost: float
    planned: float | None = None
    advised: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """PyTorch's own settings beside plans.

    Attributes:
        rows: by setting.
        frontier: the plans, for ``viz.frontier``, and ``points`` beside them.
    """

    rows: tuple[ComparedSetting, ...]
    frontier: Frontier = field(repr=False)

    @property
    def points(self) -> list[tuple[str, int, float]]:
        """PyTorch's settings as ``viz.frontier`` takes points: name, bytes, FLOPs."""
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
    time_limit: float = PATIENCE,
) -> Comparison:
    """Return what PyTorch's ``activation_memory_budget`` does to a step, and what plans do.

    The step runs for every setting, compiled to PyTorch's own operators (no Inductor), on copies of
    the model and of tensors among the arguments; it must fit in memory. Buffers that a step both
    saves and writes to, as BatchNorm's, are saved as copies, without which PyTorch's backward pass
    raises below a setting of 1.

    Args:
        model: a module in training whose forward returns a scalar loss.
        args: what forward takes.
        budgets: PyTorch's settings, from 0 to 1.
        time_limit: seconds to search for plans.

    Raises:
        GraphError: if the model cannot be traced.
        OptionError: if a setting is not a number from 0 to 1.
    """
    check_calls("compare")
    settings = checked_settings(budgets)
    imported = trace(model, *args).imported
    advice = watched(model, args, None, workspace=True)
    taken = [(budget, step_or_error(model, args, budget)) for budget in settings]
    steps = [(budget, step) for budget, step in taken if isinstance(step, Taken)]
    if steps:
        # The graph that was compiled: what nobody needs is not in it, and names may be others.
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
        planned = within(partial(plan_cost, found, peak))
        advised = within(partial(advised_cost, advice, step.peak))
        rows.append(
            ComparedSetting(
                budget, step.peak, step.flops / once, planned and planned / once, advised
            )
        )
    return Comparison(tuple(rows), found)


def plan_cost(found: Frontier, peak: int) -> float:
    """Return the FLOPs of the best plan within a peak."""
    return found.within(peak).cost


def advised_cost(advice: Watched, peak: int) -> float:
    """Return what the best choice of modules to wrap costs, in FLOPs of the plain step."""
    return advice.within(peak).cost


def within(cost: Callable[[], float]) -> float | None:
    """Return a cost, or None if there is nothing within the budget."""
    try:
        return cost()
    except BudgetError:
        return None


def step_or_error(model: nn.Module, args: Sequence[Any], budget: float) -> Taken | str:
    """Return what comes of a step at a setting, or what PyTorch raised, in a few words."""
    try:
        return min_cut_step(model, args, budget)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"


def min_cut_step(model: nn.Module, args: Sequence[Any], budget: float) -> Taken:
    """Return what comes of a step under PyTorch's own partitioner, at a setting of it."""
    seen: list[tuple[fx.GraphModule, int, Halves]] = []
    own, given = deepcopy(model), tree_map(copied_leaf, tuple(args))
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
    return Taken(peak, sum(map(flops_in, halves)), joint, results, halves)


def copied_leaf(value: Any) -> Any:
    """Return a copy of an argument, whose gradient is not that of the argument."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def flops_in(half: fx.GraphModule) -> int:
    """Return the FLOPs of one evaluation of a graph that PyTorch made."""
    values = {node: node.meta.get("val") for node in half.graph.nodes}
    joint = Joint(
        half, values, sources=(), tangents=(), forward=(), gradients=(), mutations={}, writes=(),
        inputs={}, gradient_of=(),
    )  # fmt: skip
    return sum(flops_of(joint, node) for node in half.graph.nodes if node.op == "call_function")
