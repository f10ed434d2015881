"""From a PyTorch module, or a program that torch.export wrote, to a graph that plans: ``trace``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.interop.torch import isolation
from tinyckpt.interop.torch.aliases import first_names
from tinyckpt.interop.torch.capture import compiled_in, tree_flatten
from tinyckpt.interop.torch.checks import check_measurable, check_model
from tinyckpt.interop.torch.constants import joint_of_module
from tinyckpt.interop.torch.importer import Cost, Imported, check_cost, graph_of
from tinyckpt.interop.torch.joint import Joint
from tinyckpt.interop.torch.preserving import preserving
from tinyckpt.interop.torch.versions import check_calls


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A training step of a PyTorch module: its graph, and what ``step`` needs to run plans of it.

    Attributes:
        imported: the graph, and the nodes that its operators stand for.
        model: the module; parameters and buffers are looked up in it whenever a step runs.
        arguments: the nesting of the arguments that it was traced with, and its leaves: FakeTensors
            in place of tensors.
        names: for each name of a parameter or buffer the first one that the same tensor has.
    """

    imported: Imported
    model: torch.nn.Module
    arguments: tuple[Any, tuple[Any, ...]]
    names: Mapping[str, str]

    @property
    def graph(self) -> TrainingGraph:
        """The graph, which plans, replays and draws like any other."""
        return self.imported.graph

    def __repr__(self) -> str:
        return f"<Traced {self.graph.name}, {len(self.graph.operators)} operators>"


@preserving
def trace(model: Any, *args: Any, cost: Cost = "flops", workspace: bool = True) -> Traced:
    """Return the graph of a training step of a PyTorch module, captured without memory.

    Forward and backward half are PyTorch's own operators, with the module paths as scopes and each
    backward operator as the adjoint of its forward one. No kernel runs but, once each, alone and in
    a process of its own, those whose temporaries are to be known; one that cannot be evaluated so
    counts none, with a warning. The model, its buffers and the state of the random
    numbers are left as they are. Results are the loss and the new values of buffers, gradients go
    by the names of parameters: the first, of one that has several.

    Args:
        model: a module whose forward returns a scalar loss; or a program of ``torch.export`` whose
            forward does, or the path of its ``.pt2`` file. Its parameters and the arguments may be
            FakeTensors or on the device ``meta``, which is traced as a CPU's, if ``workspace`` is
            False.
        args: what forward takes: tensors, in any nesting that PyTorch knows. For an exported
            program they may be left out.
        cost: what plans minimise: ``flops``, as PyTorch's own counter counts them; ``roofline``,
            the seconds of arithmetic or of memory traffic on one NVIDIA A100, whichever are more;
            ``measured``, the seconds of every operator, evaluated alone, here.
        workspace: whether each distinct operator is evaluated once to see which memory its kernel
            holds besides inputs and outputs. Kernels of convolutions do.

    Raises:
        GraphError: if the model is none, does not return a scalar, refuses the arguments, or has
            what cannot be planned; the model is as it was.
        OptionError: if the cost is unknown.
    """
    check_calls("trace")
    check_cost(cost)
    model, arguments = module_and_arguments(model, args)
    check_model(model)
    compiled = compiled_in(model)
    if compiled is not None:
        raise GraphError(
            f"{type(model).__name__}: {compiled or 'it'} is compiled already; legal is the module "
            "that torch.compile was given"
        )
    check_measurable(model, arguments, workspace or cost == "measured")
    if workspace or cost == "measured":
        isolation.start()
    joint = joint_of_module(model, arguments)
    imported = graph_of(joint, type(model).__name__, cost, workspace)
    return Traced(imported, model, layout_of(joint, arguments), first_names(model))


def module_and_arguments(model: Any, args: Sequence[Any]) -> tuple[torch.nn.Module, Sequence[Any]]:
    """Return the module to trace, and its arguments; those of an exported program if none are."""
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        try:
            model = torch.export.load(path)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise GraphError(
                f"{path} cannot be read as a program of torch.export: "
                f"{type(error).__name__}: {text}"
            ) from error
    if isinstance(model, torch.export.ExportedProgram):
        if not args and model.example_inputs is not None:
            args, _ = model.example_inputs
        return model.module(), args
    if not isinstance(model, torch.nn.Module):
        raise GraphError(
            f"expected a torch.nn.Module whose forward returns a scalar loss, got a "
            f"{type(model).__name__}; or a program of torch.export, or the path of its .pt2 file"
        )
    return model, args


def layout_of(joint: Joint, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the nesting of arguments, and its leaves, FakeTensors in place of tensors."""
    leaves, nesting = tree_flatten(tuple(args))
    place = {which: node for node, (kind, which) in joint.inputs.items() if kind == "argument"}
    return nesting, tuple(
        joint.values[place[index]] if isinstance(leaf, torch.Tensor) else leaf
        for index, leaf in enumerate(leaves)
    )
