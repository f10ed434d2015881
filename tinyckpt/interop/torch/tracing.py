"""Tracing of PyTorch modules and torch.export programs to training graphs, without data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.interop.importer_checks import error_text
from tinyckpt.interop.torch import isolated_worker
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.capture import compiled_module_name
from tinyckpt.interop.torch.check_purity import joint_of_module
from tinyckpt.interop.torch.importer import Cost, Imported, check_cost, graph_of
from tinyckpt.interop.torch.joint import JointGraph
from tinyckpt.interop.torch.pytrees import tree_flatten
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.tied_parameters import first_names
from tinyckpt.interop.torch.validate_model import check_measurable, check_model
from tinyckpt.interop.torch.versions import check_calls


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A traced training step: the graph to plan on, and the model that ``step`` runs plans of.

    Attributes:
        imported: the graph, and the FX nodes of its operators.
        model: the module; its parameters and buffers are looked up whenever a step runs.
        arguments: the tree structure of the traced arguments, and the leaves: FakeTensors in place
            of tensors.
        names: for each name of a parameter or buffer, the first name of the same tensor.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> tct.trace(Loss(4, 1, bias=False), torch.ones(8, 4), workspace=False)
    <Traced Loss, 9 operators>
    """

    imported: Imported
    model: torch.nn.Module
    arguments: tuple[Any, tuple[Any, ...]]
    names: Mapping[str, str]

    @property
    def graph(self) -> TrainingGraph:
        """The training graph, which plans, replays and draws like any other."""
        return self.imported.graph

    def __repr__(self) -> str:
        return f"<Traced {self.graph.name}, {len(self.graph.operators)} operators>"


@preserving
def trace(
    model: Any,
    *args: Any,
    cost: Cost = "flops",
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> Traced:
    """Trace a training step of a PyTorch module to a graph, without memory.

    Forward and backward pass are PyTorch's own operators, with module paths as scopes and each
    backward operator linked to the forward operator that it is the vjp of. Runs no kernel except,
    once each, in isolation and in a process of its own, those whose workspace is measured; an
    operator that cannot be evaluated so counts none, with a warning. The model, its buffers and
    random generators are left unchanged. Results are the loss and the new values of buffers;
    gradients go by the names of parameters: the first, of a tied one.

    Args:
        model: a module, as it is; or a program of ``torch.export``, or the path of its ``.pt2``
            file. Its parameters and the arguments may be
            FakeTensors or on the device ``meta``, which is traced as a CPU's, if ``workspace`` is
            False.
        args, named: the arguments of forward: tensors, in any pytree, by position or by name, or a
            batch as one dict. Optional for an exported program.
        cost: the objective of plans: ``flops``, as PyTorch's own counter counts them; ``roofline``,
            the seconds of arithmetic or of memory traffic on one NVIDIA A100, whichever are more;
            ``measured``, the seconds of every operator, evaluated alone, here.
        workspace: whether to evaluate each distinct operator once to measure its kernel's temporary
            memory. Kernels of convolutions have some.
        loss, targets: as in ``advise``.

    Raises:
        GraphError: if the model is none, does not return a scalar, refuses the arguments, or cannot
            be planned; the model is left unchanged.
        OptionError: if the cost is unknown.

    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> traced = tct.trace(Loss(4, 1, bias=False), torch.ones(8, 4), workspace=False)
    >>> list(traced.graph.gradients), traced.graph.operators[-1].name
    (['weight'], 't_3')
    """
    check_calls("trace")
    check_cost(cost)
    model, given, by_name = module_and_arguments(model, args, named)
    check_model(model)
    compiled = compiled_module_name(model)
    if compiled is not None:
        raise GraphError(
            f"{type(model).__name__}: {compiled or 'it'} is compiled already; pass the module "
            "that torch.compile was given"
        )
    with returning_loss(model, given, by_name, loss, targets) as arguments:
        check_measurable(model, tree_flatten(arguments)[0], workspace or cost == "measured")
        if workspace or cost == "measured":
            isolated_worker.WORKER.start()
        joint = joint_of_module(model, arguments)
    imported = graph_of(joint, type(model).__name__, cost, workspace)
    return Traced(imported, model, layout_of(joint, arguments), first_names(model))


def module_and_arguments(
    model: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[torch.nn.Module, Sequence[Any], Mapping[str, Any]]:
    """Resolve the module to trace and its arguments, from a module, exported program or path."""
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        try:
            model = torch.export.load(path)
        except Exception as error:
            raise GraphError(
                f"{path} cannot be read as a program of torch.export: {error_text(error)}"
            ) from error
    if isinstance(model, torch.export.ExportedProgram):
        if not args and not named and model.example_inputs is not None:
            args, named = model.example_inputs
        return model.module(), args, named
    if not isinstance(model, torch.nn.Module):
        raise GraphError(
            f"expected a torch.nn.Module whose forward returns a scalar loss, got a "
            f"{type(model).__name__}; or a program of torch.export, or the path of its .pt2 file"
        )
    return model, args, named


def layout_of(joint: JointGraph, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the tree structure of arguments, and the leaves, FakeTensors in place of tensors."""
    leaves, nesting = tree_flatten(tuple(args))
    place = {which: node for node, (kind, which) in joint.inputs.items() if kind == "argument"}
    return nesting, tuple(
        joint.values[place[index]] if isinstance(leaf, torch.Tensor) else leaf
        for index, leaf in enumerate(leaves)
    )
